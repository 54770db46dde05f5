"""Text for people on a terminal: colours, bars, tables, lengths of time; and the text of a file that they name."""

from __future__ import annotations

import os
import re
import shutil
import sys
import textwrap
from datetime import datetime
from typing import Any

import click

from leasehold.cli.output import CommandEnded, ExitCode, printable, width

BAR = 10  # characters
FILLER = "\0"  # for the second column of a wide character
PAINTED = re.compile(r"((?:\x1b\[[0-9;]*m|\s)*)([^\s\x1b])")  # a character that is seen, with the paint before it


def coloured() -> bool:
    """Whether to print colours: not with NO_COLOR (https://no-color.org), on a dumb terminal or into a pipe."""
    if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb" or sys.stdout is None:
        return False
    return sys.stdout.isatty()


def terminal_to_ask() -> bool:
    """Whether somebody can answer a question."""
    return sys.stdin is not None and sys.stdin.isatty()


def paint(text: str, colour: str | None = None, bold: bool = False, dim: bool = False) -> str:
    return click.style(text, fg=colour, bold=bold or None, dim=dim or None) if coloured() else text


def echo(text: str = "") -> None:
    click.echo(text, color=coloured())


def warn(text: str) -> None:
    """A line on standard error, which says what the output lacks."""
    click.echo(f"leasehold: {printable(text)}", err=True)


def bar(expires_in: float, ttl: float) -> str:
    """How much of a lease is left; full right after a renewal."""
    share = min(expires_in / ttl, 1.0) if ttl > 0 else 0.0
    full = min(round(share * BAR + 0.499), BAR)
    colour = "green" if share > 0.5 else "yellow" if share > 0.2 else "red"
    return paint("#" * full, colour) + paint("." * (BAR - full), dim=True)


def elapsed(seconds: float) -> str:
    """A length of time in one or two units: 0.4s, 12s, 3m 05s, 2h 10m, 5d 3h."""
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


def table(heads: list[str], rows: list[list[str]], breaks: int = 0) -> None:
    """Print columns as wide as their widest cell. A cell may be painted. ``breaks``: so many of the first columns stand
    on a line of their own, and the next line is indented."""
    for line in table_lines(heads, rows, breaks):
        echo(line)


def table_lines(heads: list[str], rows: list[list[str]], breaks: int = 0) -> list[str]:
    """The same, to be measured first."""
    cells = [[paint(head, bold=True) for head in heads], *rows]
    own = [row[:breaks] for row in cells]
    widths = [[width(click.unstyle(cell)) for cell in row[breaks:]] for row in cells]
    columns = [max(column) for column in zip(*widths, strict=True)]
    lines: list[str] = []
    for first, row, own_widths in zip(own, cells, widths, strict=True):
        padded = [cell + " " * (most - one) for cell, most, one in zip(row[breaks:], columns, own_widths, strict=True)]
        lines += [
            *["  " * place + cell for place, cell in enumerate(first)],
            "  " * breaks + "  ".join(padded).rstrip(),
        ]
    return lines


def columns_of_terminal() -> int | None:
    """How wide the terminal is; None for a pipe, where a line may have any length."""
    if sys.stdout is None or not sys.stdout.isatty():
        return None
    return shutil.get_terminal_size().columns


def fits(lines: list[str]) -> bool:
    """Whether no line is wider than the terminal; into a pipe everything fits."""
    columns = columns_of_terminal()
    return columns is None or all(width(click.unstyle(line)) <= columns for line in lines)


def fits_at_once(lines: list[str]) -> bool:
    """Whether the terminal shows all of them at the same time; a line that is too wide takes several of its rows."""
    columns, rows = shutil.get_terminal_size()
    return sum(max(1, -(-width(click.unstyle(line)) // columns)) for line in lines) <= rows


def wrapped(line: str, indent: str) -> list[str]:
    """Wrapped to the width of the terminal, each line but the first behind ``indent``; in a pipe it stays one line. No
    word is broken: a name can be copied, also when it is longer than a line. Paint takes no room."""
    columns = columns_of_terminal()
    if not line or columns is None:
        return [line]
    most = max(columns, 40)
    plain = click.unstyle(line)
    spread = "".join([char + FILLER * (width(char) - 1) for char in plain])  # textwrap counts characters, not columns
    wide = textwrap.wrap(spread, most, subsequent_indent=indent, break_on_hyphens=False, break_long_words=False)
    parts = [part.replace(FILLER, "") for part in wide]
    return _painted_again(line, parts) if plain != line and parts else parts


def _painted_again(line: str, parts: list[str]) -> list[str]:
    """What was wrapped without its paint, with it: only spaces have changed."""
    following, end = iter(PAINTED.finditer(line)), 0
    painted = []
    for part in parts:
        text = ""
        for char in part:
            if not char.isspace():
                found = next(following)
                text, end = text + "".join(found[1].split()), found.end()
            text += char
        painted.append(text)
    painted[-1] += "".join(line[end:].split())  # the end of the paint
    return painted


def json_fields(record: Any) -> dict[str, Any]:
    """A named tuple for programs: stable keys, times in ISO 8601, lengths in seconds."""
    fields: dict[str, Any] = record._asdict()
    return {key: value.isoformat() if isinstance(value, datetime) else value for key, value in fields.items()}


# ---------------------------------------------------------------- files


MOST_BYTES = 64 * 1024 * 1024  # a larger file is named by mistake


def text_of(path: str) -> str:
    """The text of a file that the user named; ``-`` is standard input. A file that cannot be read is wrong usage: 2."""
    try:
        if path == "-":
            content = sys.stdin.buffer.read(MOST_BYTES + 1)
        else:
            with open(path, "rb") as file:
                content = file.read(MOST_BYTES + 1)
        if len(content) <= MOST_BYTES:
            return content.decode("utf-8-sig")
        why = f"it has over {MOST_BYTES >> 20} MiB: is it the right file?"
    except OSError as error:
        why = error.strerror or str(error)
    except UnicodeDecodeError:
        why = "this is no text in UTF-8"
    raise CommandEnded(ExitCode.USAGE, "failed", f"{printable(path)}: {why}")
