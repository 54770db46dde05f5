"""One row of a table of the user's, by its key: checked before anything is sent, and the SQL that names it. And, for
MariaDB, which columns of a table are unique."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from leasehold._sql import names
from leasehold._sql.dialects import Dialect
from leasehold._sql.errors import NoSuchRow
from leasehold._sql.run import StatementFlow
from leasehold._sql.statements import VALUE, Statement, decoded, statement
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
        return plain._replace(named=gives, table=table, columns=tuple(name for name, _ in pairs))

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


# ---------------------------------------------------------------- unique indexes in MariaDB
#
# ON DUPLICATE KEY names no index there, and a duplicate of any one counts: so the catalogue must show which there are.

PLACE = "@@hostname, @@port, DATABASE()"  # in which server and database a statement was executed
_UNIQUE = f"""
SELECT {PLACE}, index_name, column_name, sub_part FROM information_schema.statistics
WHERE table_schema = COALESCE({VALUE}, DATABASE()) AND table_name = {VALUE} AND non_unique = 0
"""  # noqa: S608 - names of ours


class UniqueIndexes(NamedTuple):
    """``place`` is where the table is. Each index is the set of its columns, without regard to capitals; ``whole`` are
    those that do not compare only the beginning of a column."""

    place: tuple[Any, ...]
    indexes: list[set[str]]
    whole: list[set[str]]


def unique_indexes(table: str) -> StatementFlow[UniqueIndexes]:
    """Read them from the catalogue of MariaDB."""
    schema, _, name = table.rpartition(".")
    place: tuple[Any, ...] = ()
    indexes: dict[Any, set[str]] = {}
    prefixed = set()
    for *where, index, column, part in (yield statement(_UNIQUE.strip(), schema or None, name, gives=True)).rows:
        place = tuple(where)
        indexes.setdefault(index, set()).add(decoded(column).casefold())
        if part is not None:
            prefixed.add(index)
    return UniqueIndexes(place, [*indexes.values()], [one for index, one in indexes.items() if index not in prefixed])
