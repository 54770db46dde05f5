"""Connections that are awaited: psycopg 3, asyncpg and aiosqlite. The wishes, and what they mean, are the same."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from leasehold.guards.sql.dialects import DIALECTS, Dialect, Statement
from leasehold.guards.sql.drivers import (
    checked_row,
    commits_at_once,
    fetched,
    no_transaction,
    require_psycopg,
    unusable,
)
from leasehold.guards.sql.wishes import Look, RowResult, Rows, Wish


class AsyncAdapter(ABC):
    """Speaks through one connection of an event loop."""

    dialect: Dialect

    def __init__(self, connection: Any) -> None:
        self.connection = connection

    @abstractmethod
    def require_transaction(self) -> None:
        """Raise InvalidRequest when every statement would be committed on its own."""

    @asynccontextmanager
    async def step(self) -> AsyncIterator[None]:
        """Around everything that one call of the guard does."""
        yield

    async def grant(self, wish: Wish, table: str) -> RowResult:
        """Put a wish to the database."""
        if isinstance(wish, Look) and wish.hold:
            await self.begin_to_read()
        return checked_row(self.dialect, wish, await self.execute(self.dialect.phrase(wish, table)))

    async def begin_to_read(self) -> None:  # noqa: B027 - most need nothing
        """Begin a transaction where only a write would begin one."""

    @abstractmethod
    async def execute(self, statement: Statement) -> RowResult:
        """Send one statement."""

    @abstractmethod
    async def fetch(self, statement: Statement) -> Rows:
        """The same for a statement that may give many rows."""


class AsyncPsycopgAdapter(AsyncAdapter):
    """psycopg 3."""

    dialect = DIALECTS["postgresql"]

    def require_transaction(self) -> None:
        require_psycopg(self.connection)

    async def execute(self, statement: Statement) -> RowResult:
        from psycopg import AsyncCursor
        from psycopg.rows import tuple_row

        async with AsyncCursor(self.connection, row_factory=tuple_row) as cursor:
            await cursor.execute(statement.marked("%s"), statement.values)
            row = await cursor.fetchone() if statement.gives else None  # first: in a pipeline it makes the count
            return RowResult(cursor.rowcount, row)

    async def fetch(self, statement: Statement) -> Rows:
        from psycopg import AsyncCursor
        from psycopg.rows import tuple_row

        async with AsyncCursor(self.connection, row_factory=tuple_row) as cursor:
            await cursor.execute(statement.marked("%s"), statement.values)
            return fetched(cursor, await cursor.fetchall() if statement.gives else [])


class AsyncpgAdapter(AsyncAdapter):
    """asyncpg: it is in a transaction only where somebody has begun one."""

    dialect = DIALECTS["postgresql"]

    def require_transaction(self) -> None:
        if self.connection.is_closed():
            raise unusable("it is closed")
        if not self.connection.is_in_transaction():
            raise no_transaction("use `async with connection.transaction():`")

    async def execute(self, statement: Statement) -> RowResult:
        sql = statement.numbered("${}".format)
        rows = await self.connection.fetch(sql, *statement.values)
        return RowResult(len(rows), rows[0] if rows else None)

    async def fetch(self, statement: Statement) -> Rows:
        sql = statement.numbered("${}".format)
        if not statement.gives:
            tag = await self.connection.execute(sql, *statement.values)  # such as UPDATE 1
            return Rows(int(tag.rpartition(" ")[2]) if tag[-1:].isdigit() else -1)
        rows = await self.connection.fetch(sql, *statement.values)
        return Rows(len(rows), tuple(rows[0].keys()) if rows else (), [tuple(one) for one in rows])


class AiosqliteAdapter(AsyncAdapter):
    """aiosqlite. As with sqlite3, a transaction that began with our statement ends with our refusal."""

    dialect = DIALECTS["sqlite"]

    def require_transaction(self) -> None:
        if commits_at_once(self.connection):
            raise no_transaction("execute BEGIN IMMEDIATE first, or leave isolation_level at its default")

    @asynccontextmanager
    async def step(self) -> AsyncIterator[None]:
        began = not self.connection.in_transaction
        try:
            yield
        except BaseException:
            if began:
                await self.connection.rollback()
            raise

    async def begin_to_read(self) -> None:
        if not self.connection.in_transaction:
            await self.connection.execute("BEGIN")

    async def execute(self, statement: Statement) -> RowResult:
        async with self.connection.execute(statement.marked("?"), statement.values) as cursor:
            return RowResult(cursor.rowcount, await cursor.fetchone() if statement.gives else None)

    async def fetch(self, statement: Statement) -> Rows:
        async with self.connection.execute(statement.marked("?"), statement.values) as cursor:
            return fetched(cursor, await cursor.fetchall() if statement.gives else [])


KNOWN: dict[str, type[AsyncAdapter]] = {
    "psycopg": AsyncPsycopgAdapter,
    "asyncpg": AsyncpgAdapter,
    "aiosqlite": AiosqliteAdapter,
}
