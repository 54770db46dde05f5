"""Writes rows as Markdown: one table for each work, padded, so that it is readable in a terminal as well."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from benchmarks.report.rows import Figure, Row

NOTHING = "–"


def number(value: float) -> str:
    """Three digits, or all of a whole number: the others are noise."""
    if math.isinf(value):
        return "∞"
    if abs(value) >= 100 or (abs(value) >= 10 and value == int(value)):
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def plain(figure: Figure) -> str:
    """The median, and half the distance of the quartiles in per cent of it."""
    text = number(figure.value)
    if figure.low == figure.high or not figure.value or math.isinf(figure.high):
        return text
    return f"{text} ± {(figure.high - figure.low) / 2 / figure.value * 100:.0f} %"


def ratio(figure: Figure) -> str:
    """The median, and the quartiles in brackets."""
    if figure.low == figure.high:
        return number(figure.value)
    return f"{number(figure.value)} ({number(figure.low)} to {number(figure.high)})"


def table(head: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    """A table whose first column is text and whose others are numbers."""
    rows = [list(head), *[list(line) for line in lines]]
    widths = [max(len(row[column]) for row in rows) for column in range(len(head))]
    aligned = [_line(row, widths) for row in rows]
    aligned.insert(1, "|-" + "-" * widths[0] + "-|" + "|".join("-" * width + "-:" for width in widths[1:]) + "|")
    return "\n".join(aligned) + "\n"


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    first, *others = [
        cell.rjust(width) if place else cell.ljust(width)
        for place, (cell, width) in enumerate(zip(cells, widths, strict=True))
    ]
    return "| " + " | ".join([first, *others]) + " |"


def tables(rows: Iterable[Row]) -> str:
    """All rows: those of one work are one table, with a line for each contender and a column for each unit."""
    works: dict[str, list[Row]] = {}
    for row in rows:
        works.setdefault(row.work, []).append(row)
    return "\n".join(_work(work, many) for work, many in works.items())


def _work(work: str, rows: list[Row]) -> str:
    columns: dict[tuple[str, str], None] = {}  # a unit, or a unit and a peer, in the order of the rows
    cells: dict[str, dict[tuple[str, str], str]] = {}
    for row in rows:
        line = cells.setdefault(row.contender, {})
        line[row.unit, ""] = plain(row.figure)
        line |= {(row.unit, peer): ratio(figure) for peer, figure in row.ratios.items()}
    for unit in dict.fromkeys(row.unit for row in rows):
        peers = dict.fromkeys(peer for row in rows if row.unit == unit for peer in row.ratios)
        columns |= dict.fromkeys([(unit, ""), *[(unit, peer) for peer in peers]])
    head = [work, *[f"× {peer}" if peer else unit for unit, peer in columns]]
    lines = [[_name(name), *[line.get(column, NOTHING) for column in columns]] for name, line in cells.items()]
    return table(head, lines)


def _name(contender: str) -> str:
    return f"**{contender}**" if contender.startswith("Leasehold") else contender
