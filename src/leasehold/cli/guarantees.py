"""``leasehold guarantees``: what a store promises when something goes wrong, or all of them side by side."""

from __future__ import annotations

import json

import click

from leasehold._core.guarantee_table import EVENTS, VERDICTS
from leasehold._core.guarantees import PROMISES, Guarantees, guarantees
from leasehold._core.schemes import OPENED, store_of
from leasehold.cli.coordinator import failed, open_hold
from leasehold.cli.output import printable
from leasehold.cli.terminal import echo, paint, table, wrapped
from leasehold.errors import LeaseholdError

COLOURS = {"holds": "green", "refused": "yellow", "lost": "red"}
LEGEND = {
    "exclusion": PROMISES["exclusion"],
    **{verdict: meaning for verdict, meaning in VERDICTS.items() if verdict in COLOURS},
    "-": VERDICTS["never"],
    "fences can fall": "a later grant can have a lower fence, which a guard refuses",
}


def print_guarantees(url: str | None, target: str | None, every: bool, as_json: bool) -> None:
    """Print them for one store, by its name or by a URL; or for every store. No store is opened."""
    if every and (target or url):
        raise click.UsageError("--all is every store: leave out which one")
    if every:
        _print_all([guarantees(store) for store in OPENED], as_json)
    else:
        _print_one(guarantees_of(url, target), as_json)


def guarantees_of(url: str | None, target: str | None) -> Guarantees:
    """Those of the store that is named by its name, by the scheme of its URLs or by a URL."""
    store = target if target in OPENED else store_of(target or "")
    if store is not None:
        return guarantees(store)
    if target is not None and "://" not in target:
        raise click.UsageError(
            f"there is no store {printable(target)!r}: it is one of {', '.join(OPENED)}, the scheme of a URL, or a URL"
        )
    try:
        with open_hold(target or url, None) as hold:
            return hold.guarantees
    except LeaseholdError as error:
        raise failed(error) from error


def _print_one(found: Guarantees, as_json: bool) -> None:
    if as_json:
        echo(json.dumps(found.as_dict(), indent=2))
        return
    head, *rest = str(found).split("\n")
    echo(paint(head, bold=True))
    for line in rest:
        for part in [_painted(line)] if line.startswith("  exclusion: ") else wrapped(line, "  "):
            echo(part)


def _painted(line: str) -> str:
    """The verdicts of a line in their colours."""
    named = [one.split(": ") for one in line.strip().split(", ")]
    return "  " + ", ".join(f"{promise}: {paint(verdict, COLOURS[verdict])}" for promise, verdict in named)


def _print_all(found: list[Guarantees], as_json: bool) -> None:
    if as_json:
        echo(json.dumps([one.as_dict() for one in found], indent=2))
        return
    rows = []
    for event, when in EVENTS.items():
        cells = [one.under(event) for one in found]
        if any(cell.happens for cell in cells):
            rows.append([when, *[paint(cell.short, COLOURS.get(cell.exclusion)) for cell in cells]])
    table(["EXCLUSION, WHEN", *[one.url for one in found]], rows)
    echo()
    for word, meaning in LEGEND.items():
        echo(f"{word}: {meaning}")
    echo(f"On every store, {PROMISES['guarded']}, as long as the guard keeps its own record.")
