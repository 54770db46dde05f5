"""How things look on a terminal: colours where they are welcome, bars, and times that people can read."""

from __future__ import annotations

import os
import sys

import click

from leasehold.cli.exit_codes import USAGE, CommandEnded
from leasehold.cli.output import printable, width

BAR = 10  # characters


def coloured() -> bool:
    """https://no-color.org, dumb terminals, and whoever reads us through a pipe."""
    if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb" or sys.stdout is None:
        return False
    return sys.stdout.isatty()


def paint(text: str, colour: str | None = None, bold: bool = False, dim: bool = False) -> str:
    return click.style(text, fg=colour, bold=bold or None, dim=dim or None) if coloured() else text


def say(text: str = "") -> None:
    click.echo(text, color=coloured())


def bar(expires_in: float, ttl: float) -> str:
    """How much of a lease is left; full right after a renewal."""
    share = min(expires_in / ttl, 1.0) if ttl > 0 else 0.0
    full = min(round(share * BAR + 0.499), BAR)
    colour = "green" if share > 0.5 else "yellow" if share > 0.2 else "red"
    return paint("#" * full, colour) + paint("." * (BAR - full), dim=True)


def lasting(seconds: float) -> str:
    """A stretch of time with one or two units: 0.4s, 12s, 3m 05s, 2h 10m, 5d 3h."""
    if seconds < 10:
        return f"{max(seconds, 0.0):.1f}s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m {whole % 60:02}s"
    if whole < 86400:
        return f"{whole // 3600}h {whole % 3600 // 60:02}m"
    return f"{whole // 86400}d {whole % 86400 // 3600}h"


def table(heads: list[str], rows: list[list[str]]) -> None:
    """Columns as wide as they must be. A cell may be painted."""
    cells = [[paint(head, bold=True) for head in heads], *rows]
    widths = [[width(click.unstyle(cell)) for cell in row] for row in cells]
    columns = [max(column) for column in zip(*widths, strict=True)]
    for row, taken in zip(cells, widths, strict=True):
        padded = [cell + " " * (most - own) for cell, most, own in zip(row, columns, taken, strict=True)]
        say("  ".join(padded).rstrip())


# ---------------------------------------------------------------- reading
#
# A file that somebody names on the command line, ``-`` for standard input: its text, or what is wrong with it.


MOST_BYTES = 64 * 1024 * 1024  # more is the wrong file


def text_of(path: str) -> str:
    """All of it. A file that cannot be read was named by mistake: 2."""
    try:
        if path == "-":
            found = sys.stdin.buffer.read(MOST_BYTES + 1)
        else:
            with open(path, "rb") as file:
                found = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise CommandEnded(USAGE, "failed", f"{printable(path)}: {error.strerror}") from error
    if len(found) > MOST_BYTES:
        raise CommandEnded(
            USAGE, "failed", f"{printable(path)}: it has over {MOST_BYTES >> 20} MiB: is it the right file?"
        )
    try:
        return found.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise CommandEnded(USAGE, "failed", f"{printable(path)}: this is no text in UTF-8") from error
