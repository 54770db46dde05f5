"""``update`` in SQLAlchemy's own expressions, which know the types and the names of the user's table.

SQLAlchemy takes ten times as long to build such an expression, and to recognise it, as to execute it. So the UPDATE is
built once for each shape, with parameters in place of its values. Only where a value is an expression of its own is it
built anew each time, with the values inside.

Imported only for a SQLAlchemy connection."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from itertools import count
from typing import Any, NamedTuple

import sqlalchemy
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql import operators
from sqlalchemy.sql.expression import Update
from sqlalchemy.sql.visitors import Visitable

from leasehold._sql.dialects import Dialect, MariaDB
from leasehold.guards.sql.statements import RowChange

Parameters = dict[str, Any]


class Deciding(Update):
    """An UPDATE that decides: on MariaDB it has the prefix of such a statement."""

    inherit_cache = True


@compiles(Deciding, "mysql", "mariadb")
def _strictly(element: Deciding, compiler: Any, **more: Any) -> str:
    return MariaDB.deciding + str(compiler.visit_update(element, **more))


# ---------------------------------------------------------------- update


class Shape(NamedTuple):
    """An UPDATE without its values. ``key`` has the columns of the key, and as which type each value is compared."""

    table: Any
    key: tuple[tuple[str, Any], ...]
    values: tuple[str, ...]
    fence_column: str
    owner_column: str | None
    strict: bool
    dialect: Dialect


class Values(NamedTuple):
    """What stands in an UPDATE: the values themselves, or their parameters. ``fence`` and ``owner`` are those that the
    row is compared with; ``written`` has all columns that are written."""

    key: Mapping[str, Any]
    written: Mapping[str, Any]
    fence: Any
    owner: Any


def update(change: RowChange, dialect: Dialect) -> tuple[Any, Parameters]:
    """Write the row unless its fence is newer. -> the expression, and the values of its parameters."""
    table, attempt = _table(change), change.attempt
    key = tuple([(name, _compared(table.c[name], value)) for name, value in change.key.items()])
    shape = Shape(table, key, tuple(change.values), *change[3:6], dialect)
    if _are_plain(change):
        values = (*change.key.values(), *change.written().values(), attempt.fence, attempt.owner)
        return _prepared(shape), {_parameter(number): value for number, value in enumerate(values)}
    fence = sqlalchemy.literal(attempt.fence, sqlalchemy.BigInteger())
    return _update(shape, Values(change.key, change.written(), fence, attempt.owner)), {}


def _parameter(number: int) -> str:
    """By number: the names of columns may have characters that are replaced in those of parameters, and two of them
    would then be one."""
    return f"leasehold_value_{number}"


@lru_cache(maxsize=64)  # the tables and columns that a program updates
def _prepared(shape: Shape) -> Any:
    """The UPDATE with a parameter for each value, of the type that SQLAlchemy would give to the value itself."""
    numbers = count()

    def parameter(kind: Any = None) -> Any:
        return sqlalchemy.bindparam(_parameter(next(numbers)), type_=kind)

    key = {name: parameter(kind) for name, kind in shape.key}
    ours = [shape.fence_column] if shape.owner_column is None else [shape.fence_column, shape.owner_column]
    written = {name: parameter() for name in (*shape.values, *ours)}
    return _update(shape, Values(key, written, parameter(sqlalchemy.BigInteger()), parameter()))


def _update(shape: Shape, values: Values) -> Any:
    table, dialect = shape.table, shape.dialect
    row = [table.c[name] == value for name, value in values.key.items()]
    written = Deciding(table).where(*row, _allowed(shape, values)).values(dict(values.written))
    return written.returning(_number(table, shape.fence_column, dialect)) if dialect.update_returns else written


def _allowed(shape: Shape, values: Values) -> Any:
    """The rule, as a condition on the row."""
    last, fence = _number(shape.table, shape.fence_column, shape.dialect), values.fence
    if shape.owner_column is None or shape.strict:
        return sqlalchemy.or_(last.is_(None), last < fence if shape.strict else last <= fence)
    ours = shape.table.c[shape.owner_column] == values.owner
    return sqlalchemy.or_(last.is_(None), last < fence, sqlalchemy.and_(last == fence, ours))


def _are_plain(change: RowChange) -> bool:
    """Can parameters stand for all values? Not for an expression, nor for a comparison with TRUE, which has a syntax of
    its own."""
    return not any(isinstance(one, bool) for one in change.key.values()) and not any(
        isinstance(one, Visitable) or hasattr(one, "__clause_element__")
        for one in (*change.key.values(), *change.values.values())
    )


def _compared(column: Any, value: Any) -> Any:
    """The type as which SQLAlchemy sends a value that is compared with this column."""
    return column.type.coerce_compared_value(operators.eq, value)


# ---------------------------------------------------------------- the row that was not written


def fence_of(change: RowChange, dialect: Dialect) -> tuple[Any, Parameters]:
    """-> the fence and owner of the row."""
    table = _table(change)
    owner: Any = sqlalchemy.null() if change.owner_column is None else table.c[change.owner_column]
    row = [table.c[name] == value for name, value in change.key.items()]
    select = sqlalchemy.select(_number(table, change.fence_column, dialect), owner).where(*row)
    return (select.with_for_update() if dialect.current_read else select), {}


# ---------------------------------------------------------------- tables and columns


def _number(table: Any, fence_column: str, dialect: Dialect) -> Any:
    """The fence column, as the dialect reads it: as a number, or as it is, whatever type the user's Table declares."""
    column = table.c[fence_column]
    if dialect.update_returns:
        return sqlalchemy.type_coerce(column, sqlalchemy.types.NullType())
    return sqlalchemy.cast(column, sqlalchemy.BigInteger())


def _table(change: RowChange) -> Any:
    """The user's Table, or one made of the names that are needed."""
    if not isinstance(change.table, str):
        return change.table
    names = dict.fromkeys([*change.key, *change.values, change.fence_column, change.owner_column])
    return _named_table(change.table, tuple([one for one in names if one is not None]))


@lru_cache(maxsize=64)
def _named_table(table: str, names: tuple[str, ...]) -> Any:
    schema, _, name = table.rpartition(".")
    columns: list[Any] = [sqlalchemy.column(one) for one in names]
    return sqlalchemy.table(name, *columns, schema=schema or None)
