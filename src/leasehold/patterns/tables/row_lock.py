"""``row_lock``: one row for this transaction alone, or NotAcquired at once. The database's own lock, and no lease.

PostgreSQL   FOR UPDATE SKIP LOCKED. With NOWAIT a busy row would be an error, and an error fails the transaction.
MariaDB      FOR UPDATE NOWAIT: there an error undoes its own statement and nothing else.
SQLite       has no row locks. A write that writes nothing takes the one lock that it has, that of the database.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, overload

from leasehold._sql import names
from leasehold._sql.dialects import Dialect
from leasehold._sql.errors import Translation, has_code, table_errors
from leasehold._sql.rows import Row, checked_row
from leasehold._sql.run import StatementFlow, run
from leasehold._sql.statements import Rows, Statement, statement
from leasehold.errors import LeaseholdError, NotAcquired

if TYPE_CHECKING:
    from leasehold._sql.connections import AsyncTransaction, Transaction

Found = dict[str, Any]
LITE = ("SQLITE_BUSY", "SQLITE_LOCKED")
BUSY = ("55P03", "1205", *LITE)
SNAPSHOT = ("SQLITE_BUSY_SNAPSHOT",)  # waiting would not help: what was read is no longer true


@overload
def row_lock(tx: Transaction, table: str | Any, *, key: Mapping[str, Any], nowait: bool = True) -> Found: ...
@overload
def row_lock(
    tx: AsyncTransaction, table: str | Any, *, key: Mapping[str, Any], nowait: bool = True
) -> Coroutine[Any, Any, Found]: ...
def row_lock(
    tx: Any, table: str | Any, *, key: Mapping[str, Any], nowait: bool = True
) -> Found | Coroutine[Any, Any, Found]:
    """Lock one row of your table until your transaction ends. -> the row, as it is now.

    ``table`` is a name or a SQLAlchemy ``Table``, ``key`` names the row. When another transaction has locked it,
    NotAcquired comes at once, nothing was changed, and your transaction goes on. With ``nowait=False`` the database
    waits, for as long as its own setting lets it (``lock_timeout``, ``innodb_lock_wait_timeout``, ``busy_timeout``);
    NotAcquired then means that the time is over, and you roll back. With an async connection or session the same call
    is awaited.

    SQLite has no row locks: there it is the lock of the whole database that you get, or do not get; roll back then, for
    a transaction that has read may keep the other one from its commit. In none of the databases does the lock keep out
    a transaction that only reads.

    Raises NoSuchRow, which is a LookupError; Conflict when the row has changed since your transaction first read: roll
    back and run it again; InvalidRequest when several rows have that key.

    >>> import sqlite3
    >>> tx = sqlite3.connect(":memory:")
    >>> _ = tx.execute("CREATE TABLE seats (seat TEXT PRIMARY KEY, buyer TEXT)")
    >>> _ = tx.execute("INSERT INTO seats VALUES ('12A', NULL)")
    >>> row_lock(tx, "seats", key={"seat": "12A"})
    {'seat': '12A', 'buyer': None}
    >>> tx.close()
    """
    row = checked_row(table, key)
    names.flag(nowait, "nowait")
    return run(tx, lambda dialect: _FLOWS[dialect.name](row, nowait, dialect), _translation(row, nowait))


def _in_postgres(row: Row, nowait: bool, dialect: Dialect) -> StatementFlow[Found]:
    """Locked rows are skipped, so the statement also counts how many there are."""
    if not nowait:
        return _one(row, (yield _select(row, dialect, " FOR UPDATE")))
    where, table, key = row.where(dialect), dialect.table(row.table), [*row.key.items()]
    count = f"SELECT COUNT(*) FROM {table} WHERE {where}"  # noqa: S608 - quoted names
    select = f"SELECT ({count}), it.* FROM {table} AS it WHERE {where}{dialect.skip_locked}"  # noqa: S608 - quoted names
    rows = yield row.statement(select, [*key, *key], gives=True)
    if rows.rows:
        found = rows.rows[0][0]
        free = Rows(rows.changed, rows.names[1:], [one[1:] for one in rows.rows])
    else:
        ((found,),) = (yield row.statement(count, key, gives=True)).rows
        free = rows
    if found > 1:
        raise row.ambiguous(found)
    if found and not rows.rows:
        raise _busy(row, goes_on=True)
    return _one(row, free)


def _in_mariadb(row: Row, nowait: bool, dialect: Dialect) -> StatementFlow[Found]:
    return _one(row, (yield _select(row, dialect, " FOR UPDATE NOWAIT" if nowait else " FOR UPDATE")))


def _in_sqlite(row: Row, nowait: bool, dialect: Dialect) -> StatementFlow[Found]:
    """The driver begins a transaction before a write when none is open."""
    first = row.column(dialect, next(iter(row.key)))
    write = statement(f"UPDATE {dialect.table(row.table)} SET {first} = {first} WHERE 0", gives=False)  # noqa: S608 - quoted names
    if nowait:
        yield from _without_waiting(write)
    else:
        yield write
    return _one(row, (yield _select(row, dialect, "")))


def _without_waiting(write: Statement) -> StatementFlow[None]:
    """With a busy timeout of 0, for this statement alone."""
    pragma = partial(statement, gives=True)
    ((timeout,),) = (yield pragma("PRAGMA busy_timeout")).rows
    restore = pragma(f"PRAGMA busy_timeout = {int(timeout)}")
    yield pragma("PRAGMA busy_timeout = 0")
    try:
        yield write
    except BaseException:
        with suppress(Exception):  # the first error matters more; it may be a cancellation
            yield restore
        raise
    yield restore


_FLOWS: dict[str, Callable[[Row, bool, Dialect], StatementFlow[Found]]] = {
    "postgresql": _in_postgres, "mariadb": _in_mariadb, "sqlite": _in_sqlite,
}  # fmt: skip


def _select(row: Row, dialect: Dialect, locking: str) -> Statement:
    select = f"{dialect.deciding}SELECT * FROM {dialect.table(row.table)} WHERE {row.where(dialect)}{locking}"  # noqa: S608 - quoted names
    return row.statement(select, row.key.items(), gives=True)


def _one(row: Row, rows: Rows) -> Found:
    found = rows.mappings()
    if not found:
        raise row.missing()
    if len(found) > 1:
        raise row.ambiguous(len(found))
    return found[0]


def _translation(row: Row, nowait: bool) -> Translation:
    usual = table_errors(row.label)

    def translate(error: BaseException) -> LeaseholdError:
        busy = has_code(error, BUSY) and not has_code(error, SNAPSHOT)
        return _busy(row, goes_on=nowait and not has_code(error, LITE)) if busy else usual(error)

    return translate


def _busy(row: Row, *, goes_on: bool) -> NotAcquired:
    """In SQLite a transaction that has read, and stays open, may keep the other one from its commit."""
    remedy = "Your transaction goes on: try again later, or roll back" if goes_on else "Roll back, and try again later"
    return NotAcquired(f"another transaction has locked this row of {row.label}: nothing was changed. {remedy}")
