"""One row of a table of the user's, by its key: checked before anything is sent, and the SQL that names it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from leasehold._sql import names
from leasehold._sql.dialects import Dialect
from leasehold._sql.errors import NoSuchRow
from leasehold._sql.statements import VALUE, Statement, statement
from leasehold.errors import InvalidRequest

Columns = Mapping[str, Any]


class Row(NamedTuple):
    """``key`` has the columns that identify it. ``table`` is a name, or a SQLAlchemy Table."""

    table: Any
    key: Columns

    @property
    def label(self) -> str:
        """The table, as messages show it."""
        return names.table(self.table)

    def column(self, dialect: Dialect, name: str) -> str:
        """One of its columns, in SQL. In a SQLAlchemy Table its key and its name may differ."""
        return dialect.quoted(name if isinstance(self.table, str) else self.table.c[name].name)

    def where(self, dialect: Dialect) -> str:
        """The condition of a statement on this row. Its values are those of the key."""
        return " AND ".join(f"{self.column(dialect, name)} = {VALUE}" for name in self.key)

    def statement(self, template: str, values: Iterable[tuple[str, Any]], *, gives: bool) -> Statement:
        """A statement on its table. Each value is given with the name of its column."""
        pairs = list(values)
        plain = statement(template, *(value for _, value in pairs), gives=gives)
        table = None if isinstance(self.table, str) else self.table
        return plain._replace(table=table, columns=tuple(name for name, _ in pairs))

    def missing(self) -> NoSuchRow:
        """The error when no row has this key."""
        return NoSuchRow(f"no row of {self.label} has this key: nothing was done. Insert it, or name another")

    def ambiguous(self, count: int) -> InvalidRequest:
        """The error when several rows have this key."""
        return InvalidRequest(
            f"key= matches {count} rows of {self.label}, and this is about one: roll back, and name the whole key"
        )


def checked_row(table: Any, key: object) -> Row:
    """The row that the caller names. Raises InvalidRequest."""
    names.table(table)
    row = Row(table, names.key(key))
    names.require_columns(table, row.key)
    return row
