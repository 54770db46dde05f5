"""A statement as data: SQL text with its values apart, and the rows that it gives."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

VALUE = "\0"  # stands for a value in a template; no name contains it


class Statement(NamedTuple):
    """SQL with its values between the parts. ``gives``: does it give rows?

    ``holds``: what it reads must stay as it is until the transaction ends. SQLite opens a transaction for that, where
    only a write would open one. ``named``: are the names of its columns wanted? Some drivers take longer for these than
    for the values.

    The others are for SQLAlchemy. ``table`` is the Table that the user named, and ``columns`` says to which of its
    columns each value belongs: values are then sent and read as the types of these columns want it. ``expression``
    gives what SQLAlchemy executes in place of the text, and the values of its parameters."""

    parts: tuple[str, ...]
    values: tuple[Any, ...]
    gives: bool
    holds: bool = False
    named: bool = False
    table: Any = None
    columns: tuple[str, ...] = ()
    expression: Callable[[], tuple[Any, dict[str, Any]]] | None = None

    def numbered(self, placeholder: str) -> str:
        """The text with numbered placeholders, from 1: ``$1``."""
        return _numbered(self.parts, placeholder)

    def marked(self, placeholder: str) -> str:
        """The text with the same placeholder for each value. Where it begins with %, a % in a name is doubled."""
        return _marked(self.parts, placeholder)


@lru_cache(maxsize=256)  # a program executes the same few statements again and again
def _numbered(parts: tuple[str, ...], placeholder: str) -> str:
    first, *others = parts
    return first + "".join(f"{placeholder}{number}{part}" for number, part in enumerate(others, 1))


@lru_cache(maxsize=256)
def _marked(parts: tuple[str, ...], placeholder: str) -> str:
    return placeholder.join(parts if placeholder == "?" else [part.replace("%", "%%") for part in parts])


def statement(template: str, *values: Any, gives: bool, holds: bool = False) -> Statement:
    """Each ``VALUE`` in the template stands for a value."""
    return Statement(tuple(template.split(VALUE)), values, gives, holds)


class Rows(NamedTuple):
    """What a statement gave: how many rows it changed or found, the names of their columns if it is ``named``, and the
    rows."""

    changed: int
    names: tuple[str, ...] = ()
    rows: list[tuple[Any, ...]] = []  # noqa: RUF012 - never changed

    def mappings(self) -> list[dict[str, Any]]:
        """The rows by the names of their columns."""
        return [dict(zip(self.names, one, strict=True)) for one in self.rows]


def decoded(value: Any) -> Any:
    """Some connections give text as bytes."""
    return value.decode() if isinstance(value, bytes) else value
