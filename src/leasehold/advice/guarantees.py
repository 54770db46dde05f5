"""Guarantees as Markdown, for the page that compares the stores."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from leasehold._core.guarantee_table import EVENTS
from leasehold._core.guarantees import Guarantee, guarantees

SHORT = {"holds": "holds", "refused": "nothing is granted", "lost": "**lost**", "never": ""}


def markdown(stores: Iterable[str]) -> str:
    """One table that compares these stores, and for each of them one that says why."""
    named = list(stores)
    parts = [_overview(named), *[_reasons(store) for store in named]]
    return "\n\n".join("\n".join(part) for part in parts)


def comparison(stores: Iterable[str]) -> str:
    """One table with what these stores promise differently; what is the same on all of them is left out."""
    head, line, *rows = _overview(list(stores))
    return "\n".join([head, line, *[row for row in rows if len({*_cells(row)[1:]}) > 1]])


def _overview(stores: list[str]) -> Iterator[str]:
    columns = [guarantees(store) for store in stores]
    yield from _table_head("exclusion, when", *[f"`{column.url}`" for column in columns])
    for event, when in EVENTS.items():
        found = [column.under(event) for column in columns]
        if any(one.happens for one in found):
            yield _row(when, *[_short(one) for one in found])


def _short(one: Guarantee) -> str:
    """The verdict on exclusion. That on fences is named where it is lost too; guarded writes always hold."""
    return SHORT[one.exclusion] + (", fences can fall" if one.fences == "lost" else "")


def _reasons(store: str) -> Iterator[str]:
    found = guarantees(store)
    yield f"### What {found.url} promises"
    yield ""
    yield from _table_head("when", "exclusion", "fences", "why")
    for one in found.events:
        if one.happens:
            yield _row(one.when, SHORT[one.exclusion], SHORT[one.fences], one.why)


def _table_head(*titles: str) -> Iterator[str]:
    yield _row(*titles)
    yield "|" + "---|" * len(titles)


def _row(*cells: str) -> str:
    return "| " + " | ".join(cells) + " |"


def _cells(row: str) -> list[str]:
    return row[2:-2].split(" | ")
