"""The SQL of the guard in three dialects. A file of statements: what each wish is called in each database.

The guard's own table holds for each resource the highest fence that was presented, and a digest of its owner.

Accept   the guard rule in one statement. Accepted or refused, the row (in SQLite the database) stays locked until the
         transaction ends, so that check, read and write are one step.
Look     -> fence, owner: why it was refused; and, with a lock that others can share, whether somebody may read.
Update   writes a row of the user's table unless its fence column is newer.
LookAt   -> fence, owner of that row.

MariaDB reads from a snapshot that may be older than the lock it waits for: a transaction that has read before its check
would go on reading what a newer owner has replaced. ``innodb_snapshot_isolation`` makes such a check fail (error 1020),
as PostgreSQL does by itself. A fence that does not fit into its column is an error there only in strict mode; otherwise
it would be cut to the highest number that fits, and everybody be accepted. Both are asked for with each statement.

That error needs a row that has changed, and MariaDB does not touch one that would stay the same. So each accepted check
counts there, in ``checks``: an owner that presents its fence a second time, and writes, is seen by older snapshots too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any, NamedTuple

from leasehold.guards.fence import Presented
from leasehold.guards.sql.wishes import Accept, Look, RowChange, RowResult, Update, Wish

Names = tuple[str, ...]


class Statement(NamedTuple):
    """SQL with its values between the parts. ``gives``: does it give rows?

    ``of`` is the user's SQLAlchemy Table where he named one, and ``columns`` says to which of its columns each value
    belongs: SQLAlchemy then sends and reads them as the types of these columns do."""

    parts: tuple[str, ...]
    values: tuple[Any, ...]
    gives: bool
    of: Any = None
    columns: tuple[str, ...] = ()

    def numbered(self, mark: Callable[[int], str]) -> str:
        """With a mark for each value that knows its number, from 1: ``$1``, ``:p1``."""
        first, *others = self.parts
        return first + "".join(mark(number) + part for number, part in enumerate(others, 1))

    def marked(self, mark: str) -> str:
        """With the same mark for each value. Where the mark begins with %, so would a % in somebody's name."""
        return _marked(self.parts, mark)


@lru_cache(maxsize=256)
def _marked(parts: tuple[str, ...], mark: str) -> str:
    return mark.join(parts if mark == "?" else [part.replace("%", "%%") for part in parts])


HERE = "\0"  # stands for a value; no name holds one


def statement(template: str, *values: Any, gives: bool) -> Statement:
    """Each ``HERE`` in the template stands for a value."""
    return Statement(tuple(template.split(HERE)), values, gives)


class Dialect:
    """What all have in common: the statements of SQL."""

    name = ""
    quote = '"'
    before = ""  # every statement that decides
    holding = ""  # after a SELECT whose row must stay as it is
    locking = ""  # after a SELECT that must see what is there now
    returning = False  # does an Update give the fence that stands there afterwards?
    counts_changes = False  # may an Update that changes nothing count no row?
    rounds = False  # may a column keep another number than it was given, in silence?
    accept = ""
    number = "{}"  # a fence, whatever its column is made of
    create: tuple[str, ...] = ()
    accept_gives = True  # a row
    owner_type = "VARCHAR(32)"

    def phrase(self, wish: Wish, table: str) -> Statement:
        """A wish in this dialect. ``table`` is the guard's own."""
        if isinstance(wish, Accept):
            attempt, accept = wish.attempt, self.before + self.accept.strip().replace("{table}", table)
            return statement(accept, attempt.resource, attempt.fence, attempt.owner, gives=self.accept_gives)
        if isinstance(wish, Look):
            before, after = (self.before, self.holding) if wish.hold else ("", "")
            fence = self.number.format("fence")
            look = f"{before}SELECT {fence}, owner FROM {table} WHERE resource = {HERE}{after}"  # noqa: S608 - a plain name
            return statement(look, wish.resource, gives=True)
        return self._update(wish.change) if isinstance(wish, Update) else self._look_at(wish.change)

    def accepted(self, answer: RowResult, attempt: Presented) -> bool:
        """Was an Accept with this answer accepted?"""
        return answer.row is not None

    def ddl(self, table: str) -> str:
        """The statements that make the table, for a migration."""
        return "\n".join(f"{one.strip()};" for one in self.create if "CREATE" in one).replace("{table}", table)

    def ddl_of_columns(self, table: str, fence_column: str, owner_column: str | None) -> str:
        """What gives a table of the user's a fence column, for ``update``, and perhaps one for the owner."""
        columns = {fence_column: "BIGINT", owner_column: self.owner_type}
        return "\n".join(
            f"ALTER TABLE {self._table(table)} ADD COLUMN {self.quoted(name)} {kind};"
            for name, kind in columns.items()
            if name is not None
        )

    def quoted(self, name: str) -> str:
        """A name as it is, reserved words and capitals too."""
        return self.quote + name.replace(self.quote, self.quote * 2) + self.quote

    def _fence_of(self, column: str) -> str:
        return self.number.format(self.quoted(column))

    def _update(self, change: RowChange) -> Statement:
        attempt = change.attempt
        new: dict[str, Any] = {**change.values, change.fence_column: attempt.fence}
        if change.owner_column is not None:
            new[change.owner_column] = attempt.owner
        where = self._table(change.table), *change[3:6]
        same_owner = change.owner_column is not None and not change.strict
        more = (attempt.fence, attempt.fence, attempt.owner) if same_owner else (attempt.fence,)
        parts = _update_parts(self, tuple(new), tuple(change.key), *where)
        return Statement(parts, (*new.values(), *change.key.values(), *more), self.returning)

    def update(self, new: Names, key: Names, table: str, fence_column: str, owner: str | None, strict: bool) -> str:
        """Its text: only the names count."""
        gives = f" RETURNING {self._fence_of(fence_column)}" if self.returning else ""
        where = f"{self._each(key, ' AND ')} AND ({self._allowed(fence_column, owner, strict)})"
        return f"{self.before}UPDATE {table} SET {self._each(new, ', ')} WHERE {where}{gives}"  # noqa: S608 - quoted names

    def _allowed(self, fence_column: str, owner_column: str | None, strict: bool) -> str:
        """The rule, as a condition on the row."""
        column = self._fence_of(fence_column)
        if owner_column is None or strict:
            return f"{column} IS NULL OR {column} {'<' if strict else '<='} {HERE}"
        same = f"{column} = {HERE} AND {self.quoted(owner_column)} = {HERE}"
        return f"{column} IS NULL OR {column} < {HERE} OR ({same})"

    def _look_at(self, change: RowChange) -> Statement:
        owner = "NULL" if change.owner_column is None else self.quoted(change.owner_column)
        columns = f"{self._fence_of(change.fence_column)}, {owner}"
        look = f"SELECT {columns} FROM {self._table(change.table)} WHERE "  # noqa: S608 - quoted names
        return statement(look + self._each(change.key, " AND ") + self.locking, *change.key.values(), gives=True)

    def _table(self, table: Any) -> str:
        """A name, with or without that of a schema; or a Table of SQLAlchemy's."""
        if isinstance(table, str):
            return ".".join(self.quoted(part) for part in table.split("."))
        return ".".join(self.quoted(part) for part in (table.schema, table.name) if part)

    def _each(self, names: Iterable[str], between: str) -> str:
        return between.join(f"{self.quoted(name)} = {HERE}" for name in names)


@lru_cache(maxsize=256)  # a program writes the same few tables again and again
def _update_parts(dialect: Dialect, new: Names, key: Names, *where: Any) -> tuple[str, ...]:
    return tuple(dialect.update(new, key, *where).split(HERE))


_TABLE = """
CREATE TABLE IF NOT EXISTS {table} (
    resource VARCHAR(512) NOT NULL PRIMARY KEY,
    fence BIGINT NOT NULL,
    owner VARCHAR(32) NOT NULL
)"""


def _accept(number: str = "{}") -> str:
    known, new = number.format("known.fence"), number.format("excluded.fence")
    return f"""
INSERT INTO {{table}} AS known (resource, fence, owner) VALUES ({HERE}, {HERE}, {HERE})
ON CONFLICT (resource) DO UPDATE SET fence = excluded.fence, owner = excluded.owner
WHERE {known} < {new} OR ({known} = {new} AND known.owner = excluded.owner)
"""  # noqa: S608 - names of ours


class SQLite(Dialect):
    """3.24 or newer. A column of another type than INTEGER keeps fences as text, which must not be compared as such.
    Names stand in backticks: in double quotes a column that does not exist would be taken for text."""

    name, quote, number = "sqlite", "`", "CAST({} AS INTEGER)"
    create = (_TABLE,)
    accept, accept_gives = _accept(number), False

    def accepted(self, answer: RowResult, attempt: Presented) -> bool:
        """One row was written."""
        return answer.rowcount == 1


class PostgreSQL(Dialect):
    """Two that make the table at the same time would stumble over each other: one waits for the other, in one
    statement, because a connection may be in autocommit. What is written comes back, so that a column of text or of
    floating point is noticed: it would compare fences wrongly."""

    name, holding, returning = "postgresql", " FOR SHARE", True
    create = (f"DO $$ BEGIN PERFORM pg_advisory_xact_lock(hashtext('leasehold {{table}}')); {_TABLE.strip()}; END $$",)
    accept = _accept() + "RETURNING fence"

    def ddl(self, table: str) -> str:
        """A migration runs alone."""
        return f"{_TABLE.strip()};".replace("{table}", table)


class MariaDB(Dialect):
    """Its RETURNING says what stands there afterwards. Names that differ in case or in a last space are different."""

    name, quote, owner_type = "mariadb", "`", "VARCHAR(32) CHARACTER SET ascii COLLATE ascii_bin"
    before = "SET STATEMENT innodb_snapshot_isolation = ON, sql_mode = CONCAT(@@sql_mode, ',STRICT_ALL_TABLES') FOR "
    holding, locking = " LOCK IN SHARE MODE", " FOR UPDATE"
    number = "CAST({} AS SIGNED)"  # a column of text would be compared as floating point
    counts_changes = rounds = True
    create = (
        """
CREATE TABLE IF NOT EXISTS {table} (
    resource VARCHAR(512) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin NOT NULL PRIMARY KEY,
    fence BIGINT NOT NULL,
    owner VARCHAR(32) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    checks BIGINT NOT NULL DEFAULT 0
) ENGINE = InnoDB""",
    )
    accept = """
INSERT INTO {table} (resource, fence, owner) VALUES (\0, \0, \0)
ON DUPLICATE KEY UPDATE
    checks = checks + (VALUES(fence) > fence OR (VALUES(fence) = fence AND VALUES(owner) = owner)),
    owner = IF(VALUES(fence) > fence, VALUES(owner), owner),
    fence = GREATEST(fence, VALUES(fence))
RETURNING fence, owner
"""

    def accepted(self, answer: RowResult, attempt: Presented) -> bool:
        """It is ours that stands there."""
        return bool(answer.row == (attempt.fence, attempt.owner))


DIALECTS: dict[str, Dialect] = {one.name: one for one in (SQLite(), PostgreSQL(), MariaDB())}
