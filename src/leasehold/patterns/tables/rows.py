"""One row of a table of the user's: what he says of it, checked before anything is sent, and the SQL that names it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from leasehold.errors import InvalidRequest
from leasehold.guards.sql import names
from leasehold.guards.sql.dialects import HERE, Dialect, Statement, statement
from leasehold.guards.sql.wishes import NoSuchRow, Rows

Columns = Mapping[str, Any]


class Row(NamedTuple):
    """By the columns of its key. ``table`` is a name, or a Table of SQLAlchemy's."""

    table: Any
    key: Columns

    @property
    def label(self) -> str:
        """The table, as messages show it."""
        return names.table(self.table)

    def spelled(self, dialect: Dialect) -> str:
        """The table, in SQL."""
        table = self.table
        parts = table.split(".") if isinstance(table, str) else [one for one in (table.schema, table.name) if one]
        return ".".join(dialect.quoted(part) for part in parts)

    def column(self, dialect: Dialect, name: str) -> str:
        """One of its columns, in SQL. In a Table of SQLAlchemy's it may have a name of its own there."""
        return dialect.quoted(name if isinstance(self.table, str) else self.table.c[name].name)

    def where(self, dialect: Dialect) -> str:
        """The condition of a statement on this row. Its values are those of the key."""
        return " AND ".join(f"{self.column(dialect, name)} = {HERE}" for name in self.key)

    def state(self, template: str, values: Iterable[tuple[str, Any]], *, gives: bool) -> Statement:
        """A statement on its table; each value is named with its column."""
        pairs = list(values)
        plain = statement(template, *(value for _, value in pairs), gives=gives)
        of = None if isinstance(self.table, str) else self.table
        return plain._replace(of=of, columns=tuple(name for name, _ in pairs))

    def missing(self) -> NoSuchRow:
        """What to say when nobody has it."""
        return NoSuchRow(f"no row of {self.label} has this key: nothing was done. Insert it, or name another")

    def only(self, many: int) -> InvalidRequest:
        """What to say when it is not one."""
        return InvalidRequest(
            f"key= matches {many} rows of {self.label}, and this is about one: roll back, and name the whole key"
        )


def named(table: Any, key: object) -> Row:
    """A row that the user has named."""
    names.table(table)
    row = Row(table, names.key(key))
    names.require_columns(table, row.key)
    return row


def mappings(rows: Rows) -> list[dict[str, Any]]:
    """Rows as the user gets them: by the names of their columns."""
    return [dict(zip(rows.names, one, strict=True)) for one in rows.rows]
