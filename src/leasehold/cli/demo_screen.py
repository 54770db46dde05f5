"""How the demo is told: as a timeline for people, or as JSON lines for programs."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from typing import Any

import click

from leasehold.cli.demo_worker import TTL

PROLOGUE = f"""
Two workers, A and B, export the same report. Only the one that holds the lease should write it.

  lease        the right to do something, with an end: {TTL:g} s here, renewed while its holder is awake
  stale owner  believes in a lease that has ended: it was frozen (a paused VM, a long GC, swapping)
  fence        a number that comes with each lease; a later lease has a higher one
  guard        stands at the database and refuses a fence lower than one that it has seen"""

ACTS = {
    False: "Act 1  No guard",
    True: "Act 2  The same again, with one more line before the write: guard.check(tx, lease)",
}

EPILOGUE = """
Why fences jump: a fence is the store's clock in microseconds, or the last fence + 1 if that is
more. So fences grow even when the store has lost its memory. Only their order counts.
"""

SUMMARY = "Stale writes accepted: 1 of 1 without a guard, 0 of 1 with one. A lease asks, a guard insists."

WIDTH = 48  # of the words in a line: with a fence beside them it fits into 100 columns
COLOURS = {"A": "cyan", "B": "magenta"}


class JsonLines:
    """One event in a line, and nothing else."""

    def show(self, event: dict[str, Any]) -> None:
        print(json.dumps(event), flush=True)


class Timeline:
    """Time, who, what happened and, at the right, the fence."""

    def __init__(self, plain: bool = False) -> None:
        self._plain = plain or _no_colours()
        self._older = ""

    def show(self, event: dict[str, Any]) -> None:
        """Tell one event, as it happens."""
        special: dict[str, Callable[[dict[str, Any]], None]] = {
            "act": self._act,
            "failed": self._failed,
            "summary": self._summary,
        }
        special.get(event["event"], self._line)(event)

    def _act(self, event: dict[str, Any]) -> None:
        if event["act"] == 1:
            self._print(self._paint("Leasehold demo: what is a stale owner, and what stops it?", bold=True))
            self._print(PROLOGUE)
        self._print("\n" + self._paint(ACTS[event["guard"]], bold=True))

    def _line(self, event: dict[str, Any]) -> None:
        what, colour = _told(event)
        who = event["who"]
        at = self._paint(f"{event['at']:6.2f} s", dim=True)
        words = self._paint(what, fg=colour, bold=True) if colour else what
        gap = " " * (WIDTH - len(what))
        name = self._paint(who, fg=COLOURS[who], bold=True) if who in COLOURS else " "
        self._print(f"{at}  {name}  {words}{gap}{self._fence(event)}".rstrip())

    def _fence(self, event: dict[str, Any]) -> str:
        """The digits in which it differs from the one before stand out."""
        if event["event"] not in ("acquired", "stale_write_accepted", "stale_write_refused"):
            return ""
        digits = f"{event['fence']:_}"
        if "before" not in event:
            self._older = digits
            return "fence " + digits
        same = next((at for at, pair in enumerate(zip(digits, self._older, strict=False)) if len({*pair}) > 1), 0)
        higher = f"+{event['fence'] - event['before']:_}"
        return f"fence {digits[:same]}{self._paint(digits[same:], bold=True)}  {self._paint(higher, bold=True)}"

    def _failed(self, event: dict[str, Any]) -> None:
        self._print(self._paint(f"\nThe demo did not go as it should: {event['why']}", fg="red"), err=True)

    def _summary(self, _event: dict[str, Any]) -> None:
        self._print(EPILOGUE)
        self._print(self._paint(SUMMARY, bold=True))

    def _paint(self, text: str, **style: Any) -> str:
        return text if self._plain else click.style(text, **style)

    def _print(self, text: str, err: bool = False) -> None:
        click.echo(text, err=err, color=not self._plain)


def _told(event: dict[str, Any]) -> tuple[str, str | None]:
    """An event in plain words, and its colour when it matters."""
    words: dict[str, tuple[str, str | None]] = {
        "acquired": ("gets the lease", None),
        "queued": ("wants it too, and waits in the queue", None),
        "frozen": ("is FROZEN in the middle of its work (SIGSTOP)", "yellow"),
        "expired": ("A's lease ends: a frozen holder renews nothing", None),
        "wrote": ("writes the report and gives the lease back", None),
        "woke": ("wakes up (SIGCONT), as if no time had passed", "yellow"),
        "stale_write_accepted": ("stale write ACCEPTED: B's result is gone", "red"),
        "stale_write_refused": ("stale write REFUSED (StaleOwner): B's is safe", "green"),
        "lease_lost": (f"leaves its with block: LeaseLost, {_how_bad(event)}", None),
        "report": (f"report 42 in the database is the work of {event.get('written_by')}", None),
    }
    return words[event["event"]]


def _how_bad(event: dict[str, Any]) -> str:
    return "no harm done" if event.get("guard") else "too late"


def _no_colours() -> bool:
    """https://no-color.org, and whoever reads us through a pipe."""
    return bool(os.environ.get("NO_COLOR")) or os.environ.get("TERM") == "dumb" or not sys.stdout.isatty()
