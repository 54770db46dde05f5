"""Connections that are awaited: psycopg 3, asyncpg, aiosqlite, and SQLAlchemy, which runs the sync adapter inside."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, TypeVar

from leasehold._sql.adapters import fetched, require_begun, sqlite_autocommits
from leasehold._sql.dialects import DIALECTS, Dialect
from leasehold._sql.errors import no_transaction, unusable
from leasehold._sql.statements import Rows, Statement

R = TypeVar("R")


class AsyncAdapter(ABC):
    """Executes statements on one connection of an event loop."""

    dialect: Dialect

    def __init__(self, connection: Any) -> None:
        self.connection = connection

    @abstractmethod
    def require_transaction(self) -> None:
        """Raise InvalidRequest when every statement would be committed on its own."""

    def begins(self) -> bool:
        """Does a flow begin a transaction here that must be rolled back when it fails?"""
        return False

    async def begin_read(self) -> None:  # noqa: B027 - most need nothing
        """Begin a transaction where only a write would begin one."""

    @abstractmethod
    async def fetch(self, statement: Statement) -> Rows:
        """Execute one statement, and give all of its rows."""


class AsyncPsycopgAdapter(AsyncAdapter):
    """psycopg 3."""

    dialect = DIALECTS["postgresql"]

    def require_transaction(self) -> None:
        require_begun(self.connection, self.connection.pgconn.transaction_status)

    async def fetch(self, statement: Statement) -> Rows:
        import psycopg.rows

        async with psycopg.AsyncCursor(self.connection, row_factory=psycopg.rows.tuple_row) as cursor:
            await cursor.execute(statement.marked("%s"), statement.values)
            return fetched(cursor, statement, await cursor.fetchall() if statement.gives else ())


class AsyncpgAdapter(AsyncAdapter):
    """asyncpg: it is in a transaction only where the caller has begun one."""

    dialect = DIALECTS["postgresql"]

    def require_transaction(self) -> None:
        if self.connection.is_closed():
            raise unusable("it is closed")
        if not self.connection.is_in_transaction():
            raise no_transaction("use `async with connection.transaction():`")

    async def fetch(self, statement: Statement) -> Rows:
        sql = statement.numbered("$")
        if not statement.gives:
            tag = await self.connection.execute(sql, *statement.values)  # such as UPDATE 1
            return Rows(int(tag.rpartition(" ")[2]) if tag[-1:].isdigit() else -1)
        rows = await self.connection.fetch(sql, *statement.values)
        names = tuple(rows[0].keys()) if statement.named and rows else ()
        return Rows(len(rows), names, [tuple(one) for one in rows])


class AiosqliteAdapter(AsyncAdapter):
    """aiosqlite. As with sqlite3, a transaction that a flow began is rolled back when the flow fails."""

    dialect = DIALECTS["sqlite"]

    def require_transaction(self) -> None:
        if sqlite_autocommits(self.connection):
            raise no_transaction("execute BEGIN IMMEDIATE first, or leave isolation_level at its default")

    def begins(self) -> bool:
        return not self.connection.in_transaction

    async def begin_read(self) -> None:
        if not self.connection.in_transaction:
            await self.connection.execute("BEGIN")

    async def fetch(self, statement: Statement) -> Rows:
        """Each await is a turn of the connection's thread. A statement without rows is done after the first: there is
        nothing left to close."""
        cursor = await self.connection.execute(statement.marked("?"), statement.values)
        if not statement.gives:
            return Rows(cursor.rowcount)
        async with cursor:
            cursor.row_factory = None
            return fetched(cursor, statement, await cursor.fetchall())


class AsyncAlchemyConnection:
    """An async connection or session of SQLAlchemy: it calls a function with the sync one that it wraps."""

    def __init__(self, connection: Any) -> None:
        self.connection = connection

    async def run_sync(self, work: Callable[[Any], R]) -> R:
        """``work(connection)``, in SQLAlchemy's greenlet."""
        result: R = await self.connection.run_sync(work)
        return result


ASYNC_DRIVERS: dict[str, type[AsyncAdapter]] = {
    "psycopg": AsyncPsycopgAdapter,
    "asyncpg": AsyncpgAdapter,
    "aiosqlite": AiosqliteAdapter,
}
