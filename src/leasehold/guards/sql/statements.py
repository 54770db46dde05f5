"""The SQL of the guard: its own table, the rule in one statement, and ``update`` on a table of the user's.

The guard's own table holds for each resource the highest fence that was presented, and a digest of its owner.

accept     the guard rule in one statement. Accepted or refused, the row (in SQLite the database) stays locked until the
           transaction ends, so that check, read and write are one step.
last       -> fence, owner: why it was refused; and, with a lock that others can share, whether a reader may read.
update     writes a row of the user's table unless its fence column is newer.
fence_of   -> fence, owner of that row.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, NamedTuple

from leasehold._sql.dialects import DIALECTS, Dialect
from leasehold._sql.statements import VALUE, Rows, Statement, statement
from leasehold.guards.fence import Presented

Names = tuple[str, ...]

# ---------------------------------------------------------------- the guard's own table

_TABLE = """
CREATE TABLE IF NOT EXISTS {table} (
    resource VARCHAR(512) NOT NULL PRIMARY KEY,
    fence BIGINT NOT NULL,
    owner VARCHAR(32) NOT NULL
)"""
# Names that differ in case or in a last space are different. ``checks`` counts accepted checks: see _sql/dialects.py.
_MARIADB_TABLE = """
CREATE TABLE IF NOT EXISTS {table} (
    resource VARCHAR(512) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin NOT NULL PRIMARY KEY,
    fence BIGINT NOT NULL,
    owner VARCHAR(32) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    checks BIGINT NOT NULL DEFAULT 0
) ENGINE = InnoDB"""
_TABLES = {"sqlite": _TABLE, "postgresql": _TABLE, "mariadb": _MARIADB_TABLE}
_OWNERS = {"mariadb": "VARCHAR(32) CHARACTER SET ascii COLLATE ascii_bin"}


def create(dialect: Dialect, table: str) -> list[Statement]:
    """The statements that create the table unless it exists."""
    return [statement(one, gives=False) for one in dialect.creation([_create(dialect, table)], table)]


def ddl(dialect: str, table: str) -> str:
    """The same for a migration, which runs alone."""
    return f"{_create(DIALECTS[dialect], table)};"


def _create(dialect: Dialect, table: str) -> str:
    return _TABLES[dialect.name].strip().replace("{table}", table)


def column_ddl(dialect: str, table: str, fence_column: str, owner_column: str | None) -> str:
    """What adds to a table of the user's the columns that ``update`` needs."""
    known = DIALECTS[dialect]
    columns = {fence_column: "BIGINT", owner_column: _OWNERS.get(dialect, "VARCHAR(32)")}
    return "\n".join(
        f"ALTER TABLE {known.table(table)} ADD COLUMN {known.quoted(name)} {kind};"
        for name, kind in columns.items()
        if name is not None
    )


def fenced_upsert(dialect: Dialect, table: str, new: Mapping[str, str], sets: Mapping[str, str], counter: str) -> str:
    """Insert a row or change it if the guard rule accepts its fence after the one that the row has. Its first columns
    are resource, fence and owner; ``sets`` is what to change besides."""
    known, presented = (dialect.integer.format(of("fence")) for of in (dialect.known, dialect.new))
    same_owner = f"{dialect.known('owner')} = {dialect.new('owner')}"
    rule = f"{known} < {presented} OR ({known} = {presented} AND {same_owner})"
    changed = {**sets, "owner": dialect.new("owner"), "fence": dialect.new("fence")}  # the rule reads these: last
    return dialect.upsert(table, new, changed, rule, counter) + _returning(dialect)


def _returning(dialect: Dialect) -> str:
    """One column, because drivers in Python take long for each: the fence, whose type is checked. Where it may be that
    of a row that was not changed, it is given only to its owner."""
    if not dialect.upsert_returns:
        return ""
    return f" RETURNING IF(owner = {VALUE}, fence, NULL)" if dialect.upsert_returns_all else " RETURNING fence"


def returned_values(dialect: Dialect, attempt: Presented) -> tuple[str, ...]:
    """The values of a ``fenced_upsert`` that come after all others."""
    return (attempt.owner,) if dialect.upsert_returns_all else ()


def is_accepted(dialect: Dialect, rows: Rows, attempt: Presented) -> bool:
    """Has a ``fenced_upsert`` accepted the fence?"""
    return dialect.upserted(rows, (attempt.fence,))


def accept(dialect: Dialect, table: str, attempt: Presented) -> Statement:
    """Apply the rule to the guard's own table, and keep the row locked until the transaction ends."""
    parts = _accept_parts(dialect, dialect.deciding, table)
    values = (attempt.resource, attempt.fence, attempt.owner, *returned_values(dialect, attempt))
    return Statement(parts, values, dialect.upsert_returns)


@lru_cache(maxsize=256)  # a program checks in the same few tables again and again
def _accept_parts(dialect: Dialect, deciding: str, table: str) -> tuple[str, ...]:
    new = {"resource": VALUE, "fence": VALUE, "owner": VALUE}
    return tuple(fenced_upsert(dialect, table, new, {}, "checks").split(VALUE))


def last(dialect: Dialect, table: str, resource: str, *, hold: bool) -> Statement:
    """-> the fence and owner that were presented last. ``hold``: they stay so until the transaction ends."""
    before, after = (dialect.deciding, dialect.share_lock) if hold else ("", "")
    fence = dialect.integer.format("fence")
    text = f"{before}SELECT {fence}, owner FROM {table} WHERE resource = {VALUE}{after}"  # noqa: S608 - a plain name
    return statement(text, resource, gives=True, holds=hold)


# ---------------------------------------------------------------- a row of the user's table


class RowChange(NamedTuple):
    """One ``update`` of a row of the user's own table, which has a fence column."""

    table: Any  # a name, or a SQLAlchemy Table
    key: Mapping[str, Any]
    values: Mapping[str, Any]
    fence_column: str
    owner_column: str | None
    strict: bool
    attempt: Presented

    def follows(self, last_fence: int | None, last_owner: str | None) -> bool:
        """The rule of ``update``: a NULL column counts as 0, and without an owner column fences decide alone."""
        last, fence = last_fence or 0, self.attempt.fence
        if fence != last or self.strict:
            return fence > last
        return self.owner_column is None or last_owner == self.attempt.owner

    def written(self) -> dict[str, Any]:
        """All columns that it writes."""
        owner = {} if self.owner_column is None else {self.owner_column: self.attempt.owner}
        return {**self.values, self.fence_column: self.attempt.fence, **owner}


def update(dialect: Dialect, change: RowChange) -> Statement:
    """Write the row unless its fence is newer."""

    def expression() -> tuple[Any, dict[str, Any]]:
        from leasehold.guards.sql import expressions  # SQLAlchemy is there

        return expressions.update(change, dialect)

    attempt, new = change.attempt, change.written()
    same_owner = change.owner_column is not None and not change.strict
    fences = (attempt.fence, attempt.fence, attempt.owner) if same_owner else (attempt.fence,)
    parts = _update_parts(
        dialect, dialect.deciding, tuple(new), tuple(change.key), dialect.table(change.table), *change[3:6]
    )
    values = (*new.values(), *change.key.values(), *fences)
    return Statement(parts, values, dialect.update_returns, expression=expression)


@lru_cache(maxsize=256)
def _update_parts(
    dialect: Dialect, deciding: str, new: Names, key: Names, table: str, fence: str, owner: str | None, strict: bool
) -> tuple[str, ...]:
    gives = f" RETURNING {_fence(dialect, fence)}" if dialect.update_returns else ""
    where = f"{dialect.each(key, ' AND ')} AND ({_allowed(dialect, fence, owner, strict)})"
    text = f"{deciding}UPDATE {table} SET {dialect.each(new, ', ')} WHERE {where}{gives}"  # noqa: S608 - quoted names
    return tuple(text.split(VALUE))


def _allowed(dialect: Dialect, fence_column: str, owner_column: str | None, strict: bool) -> str:
    """The rule, as a condition on the row."""
    column = _fence(dialect, fence_column)
    if owner_column is None or strict:
        return f"{column} IS NULL OR {column} {'<' if strict else '<='} {VALUE}"
    same = f"{column} = {VALUE} AND {dialect.quoted(owner_column)} = {VALUE}"
    return f"{column} IS NULL OR {column} < {VALUE} OR ({same})"


def fence_of(dialect: Dialect, change: RowChange) -> Statement:
    """-> the fence and owner of the row; the owner is NULL without an owner column."""

    def expression() -> tuple[Any, dict[str, Any]]:
        from leasehold.guards.sql import expressions

        return expressions.fence_of(change, dialect)

    owner = "NULL" if change.owner_column is None else dialect.quoted(change.owner_column)
    columns = f"{_fence(dialect, change.fence_column)}, {owner}"
    text = f"SELECT {columns} FROM {dialect.table(change.table)} WHERE {dialect.each(change.key, ' AND ')}"  # noqa: S608 - quoted names
    found = statement(text + dialect.current_read, *change.key.values(), gives=True)
    return found._replace(expression=expression)


def _fence(dialect: Dialect, column: str) -> str:
    return dialect.integer.format(dialect.quoted(column))
