"""``leasehold ls``: what is held, sorted, once or again and again. On a terminal no name is broken in its middle."""

from __future__ import annotations

import json
import shutil
import sys
import time
from collections.abc import Callable
from typing import Any

import click

from leasehold._core.durations import seconds
from leasehold.cli.arguments import duration
from leasehold.cli.coordinator import failed, open_hold, place_of
from leasehold.cli.inspection import in_use, located, row
from leasehold.cli.log_names import id_hash
from leasehold.cli.output import CommandEnded, ExitCode, printable
from leasehold.cli.terminal import columns_of_terminal, echo, fits, fits_at_once, paint, table_lines
from leasehold.coordinator import Leasehold
from leasehold.coordinator.operators import pattern_of
from leasehold.errors import InvalidRequest, LeaseholdError
from leasehold.primitives.inspection import Inspection

HEADS = ["RESOURCE", "HOLDER", "AGE", "EXPIRES IN", "WAITERS", "FENCE"]
LAYOUTS = ((0, True), (0, False), (1, True), (1, False), (2, False))  # own lines for the first cells; with a bar
LEAST_PAUSE = 0.2  # seconds between two looks
CLEAR = "\x1b[H\x1b[2J"  # the cursor to the corner, and the screen empty
NEVER = float("inf")


def _oldest(seen: Inspection) -> float:
    """When the first holder began; resources that nobody holds come last."""
    return min([one.since.timestamp() for one in seen.holders if one.since], default=NEVER)


def _remaining(seen: Inspection) -> float:
    return min([one.expires_in for one in seen.holders], default=NEVER)


ORDERS: dict[str, Callable[[Inspection], Any]] = {
    "name": lambda seen: seen.resource,
    "age": lambda seen: (_oldest(seen), seen.resource),
    "remaining": lambda seen: (_remaining(seen), seen.resource),
    "waiters": lambda seen: (-len(seen.waiters), seen.resource),
}


def ls(
    url: str | None,
    namespace: str | None,
    as_json: bool,
    pattern: str,
    order: str = "name",
    long: bool = False,
    watch: str | None = None,
    everything: bool = False,
) -> None:
    """Print what matches and is in use, or everything; with ``watch`` every so many seconds, until it is
    interrupted."""
    pause = None if watch is None else _pause(watch, pattern)
    try:
        with open_hold(url, namespace) as hold:
            check_pattern(hold, pattern)
            listing = Listing(hold, place_of(hold, url), pattern, order, long, as_json, everything)
            if pause is None:
                listing.show(listing.found())
            else:
                listing.watch(pause)
    except LeaseholdError as error:
        raise failed(error) from error


def _pause(text: str, pattern: str) -> float:
    try:
        return pause_of(text, "--watch")
    except InvalidRequest as error:
        meant = pattern == "*" and isinstance(duration(text), str) and not text[:1].isdigit()  # it is a pattern
        hint = f": write leasehold ls {click.format_filename(text)!r} --watch" if meant else ""
        raise CommandEnded(ExitCode.USAGE, "failed", f"{error}{hint}") from error


def pause_of(text: str, option: str) -> float:
    """The seconds between two looks at the store."""
    pause = seconds(duration(text), option)
    if pause <= 0:
        raise InvalidRequest(f"{option} must be above zero: it is how long the store is left alone between two looks")
    return max(pause, LEAST_PAUSE)


def check_pattern(hold: Leasehold, pattern: str) -> None:
    """Before the first look: one that is tried again and again would call a wrong pattern a store that is away."""
    try:
        pattern_of(hold, pattern)
    except InvalidRequest as error:
        raise failed(error) from error


class Listing:
    """What to list, and how."""

    def __init__(
        self, hold: Leasehold, where: str, pattern: str, order: str, long: bool, as_json: bool, everything: bool
    ) -> None:
        self._hold = hold
        self._where = printable(where)
        self._pattern = pattern
        self._order = ORDERS[order]
        self._long = long
        self._as_json = as_json
        self._everything = everything

    def found(self) -> list[Inspection]:
        listed = [one for one in self._hold.scan(self._pattern) if self._everything or in_use(one)]
        return sorted(listed, key=self._order)

    def show(self, found: list[Inspection]) -> None:
        if self._as_json:
            echo(json.dumps([located(self._hold, one) for one in found], indent=2))
        elif found:
            for line in self._headed(found):
                echo(line)
        elif self._pattern == "*":
            echo(f"Nothing is held in {self._where}.")
        else:
            echo(f"Nothing that is held in {self._where} matches {printable(self._pattern)}.")

    def watch(self, pause: float) -> None:
        """A store that is away is a line, and is tried again. Ctrl-C ends it, as the user's way to say so."""
        try:
            while True:
                try:
                    found = self.found()
                except LeaseholdError as error:
                    self._again(lambda error=error: self._unavailable(error, pause))  # type: ignore[misc]  # bound now
                else:
                    self._again(lambda found=found: self._show_again(found))  # type: ignore[misc]  # bound now
                time.sleep(pause)  # what --watch asks for; Ctrl-C ends it
        except KeyboardInterrupt:
            raise CommandEnded(ExitCode.of_signal(2)) from None

    def _again(self, show: Callable[[], None]) -> None:
        if columns_of_terminal() is not None and not self._as_json:
            click.echo(CLEAR, nl=False)
        show()
        sys.stdout.flush()

    def _show_again(self, found: list[Inspection]) -> None:
        """For programs one document in a line; in a pipe an empty line between two tables; on a terminal the first of
        the order, as many as it has room for: what comes first must not be scrolled away."""
        if self._as_json:
            echo(json.dumps([located(self._hold, one) for one in found]))
        elif columns_of_terminal() is None:
            self.show(found)
            echo()
        else:
            fitting = self._fitting(found)
            self.show(fitting)
            if len(fitting) < len(found):
                echo(paint(f"... and {len(found) - len(fitting)} more", dim=True))

    def _fitting(self, found: list[Inspection]) -> list[Inspection]:
        shown = found[: shutil.get_terminal_size().lines]  # each takes a row at least
        while len(shown) > 1 and not fits_at_once([*self._headed(shown), "... and more", "the cursor"]):
            shown.pop()
        return shown

    def _unavailable(self, error: LeaseholdError, pause: float) -> None:
        if self._as_json:
            echo(json.dumps({"event": "unavailable", "message": str(error)}))
        else:
            echo(paint(f"The store is unavailable, and is tried again every {pause:g}s: {error}", "red"))

    def _headed(self, found: list[Inspection]) -> list[str]:
        return [paint(f"In {self._where}:", dim=True), *self._lines(found)]

    def _lines(self, found: list[Inspection]) -> list[str]:
        """The first layout that fits the terminal; the last one has the least in a line. What has a line of its own
        does not count: no layout makes it shorter."""
        for breaks, with_bar in LAYOUTS:
            lines = self._table(found, breaks, with_bar)
            if fits(lines[breaks :: breaks + 1]):
                break
        return lines

    def _table(self, found: list[Inspection], breaks: int, with_bar: bool) -> list[str]:
        rows = [row(one, with_bar) for one in found]
        if not self._long:
            return table_lines(HEADS, rows, breaks)
        hashes = [id_hash(self._hold, one) or "-" for one in found]
        longer = [[*cells, digest] for cells, digest in zip(rows, hashes, strict=True)]
        return table_lines([*HEADS, "ID HASH"], longer, breaks)
