"""``update`` in SQLAlchemy's own expressions, which know the types and the names of the user's table.

Imported only for a SQLAlchemy connection."""

from __future__ import annotations

from typing import Any

import sqlalchemy
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.expression import Update

from leasehold._sql.dialects import Dialect, MariaDB
from leasehold.guards.sql.statements import RowChange


class Deciding(Update):
    """An UPDATE that decides: on MariaDB it has the prefix of such a statement."""

    inherit_cache = True


@compiles(Deciding, "mysql", "mariadb")
def _strictly(element: Deciding, compiler: Any, **more: Any) -> str:
    return MariaDB.deciding + str(compiler.visit_update(element, **more))


def update(change: RowChange, dialect: Dialect) -> Any:
    """Write the row unless its fence is newer."""
    table = _table(change)
    written = Deciding(table).where(*_row(table, change), _allowed(table, change, dialect)).values(change.written())
    return written.returning(_number(table, change, dialect)) if dialect.update_returns else written


def fence_of(change: RowChange, dialect: Dialect) -> Any:
    """-> the fence and owner of the row."""
    table = _table(change)
    owner: Any = sqlalchemy.null() if change.owner_column is None else table.c[change.owner_column]
    select = sqlalchemy.select(_number(table, change, dialect), owner).where(*_row(table, change))
    return select.with_for_update() if dialect.current_read else select


def _number(table: Any, change: RowChange, dialect: Dialect) -> Any:
    """The fence column, as the dialect reads it: as a number, or as it is, whatever type the user's Table declares."""
    column = table.c[change.fence_column]
    if dialect.update_returns:
        return sqlalchemy.type_coerce(column, sqlalchemy.types.NullType())
    return sqlalchemy.cast(column, sqlalchemy.BigInteger())


def _allowed(table: Any, change: RowChange, dialect: Dialect) -> Any:
    """The rule, as a condition on the row."""
    last = _number(table, change, dialect)
    fence = sqlalchemy.literal(change.attempt.fence, sqlalchemy.BigInteger())
    if change.owner_column is None or change.strict:
        return sqlalchemy.or_(last.is_(None), last < fence if change.strict else last <= fence)
    ours = table.c[change.owner_column] == change.attempt.owner
    return sqlalchemy.or_(last.is_(None), last < fence, sqlalchemy.and_(last == fence, ours))


def _row(table: Any, change: RowChange) -> list[Any]:
    return [table.c[name] == value for name, value in change.key.items()]


def _table(change: RowChange) -> Any:
    """The user's Table, or one made of the names that are needed."""
    if not isinstance(change.table, str):
        return change.table
    schema, _, name = change.table.rpartition(".")
    names = dict.fromkeys([*change.key, *change.values, change.fence_column, change.owner_column])
    columns: list[Any] = [sqlalchemy.column(one) for one in names if one is not None]
    return sqlalchemy.table(name, *columns, schema=schema or None)
