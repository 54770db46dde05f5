"""Every way to a table of jobs: three databases, their drivers, threads and event loops. A test runs on each."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, closing, contextmanager
from importlib import import_module
from inspect import isawaitable
from pathlib import Path
from typing import Any

import psycopg
import psycopg_pool
import pymysql
import pytest
import sqlalchemy
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.pool import NullPool

from leasehold.patterns import AsyncJobs, Jobs
from tests.support.servers.database import Database

PAST = {
    "sqlite": "strftime('%Y-%m-%d %H:%M:%f', 'now', '-1 seconds')",
    "postgresql": "now() - interval '1 second'",
    "mariadb": "TIMESTAMPADD(SECOND, -1, UTC_TIMESTAMP(6))",
}


async def got(value: Any) -> Any:
    """What a call gives, awaited where it must be: one test for both flavours."""
    return await value if isawaitable(value) else value


class Shop:
    """A database, and one way to it."""

    def __init__(
        self, dialect: str, engine: Any, begin: Callable[[], Any], connect: Callable[[], Any], awaited: bool = False
    ) -> None:
        self.dialect, self.engine, self.awaited = dialect, engine, awaited
        self._begin, self.connect = begin, connect

    def jobs(self, **options: Any) -> Any:
        """Of the right flavour."""
        kind = AsyncJobs if self.awaited else Jobs
        return kind(self.engine, **options)

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Any]:
        """One of the user's own."""
        transaction = self._begin()
        if hasattr(transaction, "__aenter__"):
            async with transaction as tx:
                yield tx
        else:
            with transaction as tx:
                yield tx

    def execute(self, sql: str) -> list[tuple[Any, ...]]:
        """As somebody else, committed at once."""
        with closing(self.connect()) as connection:
            cursor = connection.cursor()
            cursor.execute(sql)
            rows = list(cursor.fetchall()) if cursor.description else []
            connection.commit()
            return rows

    def expire(self, table: str = "jobs", column: str = "lease_until") -> None:
        """Let the leases of everybody run out."""
        self.execute(f"UPDATE {table} SET {column} = {PAST[self.dialect]}")

    def due(self) -> None:
        """Let the pauses of everybody be over."""
        self.execute(f"UPDATE jobs SET run_at = {PAST[self.dialect]}")


async def write(tx: Any, sql: str) -> None:
    """A statement of the user's, in the words of his connection."""
    if isinstance(tx, pymysql.Connection):
        tx.cursor().execute(sql)
    else:
        await got(tx.execute(sqlalchemy.text(sql) if "sqlalchemy" in type(tx).__module__ else sql))


# ---------------------------------------------------------------- SQLite


@asynccontextmanager
async def sqlite_file(path: Path) -> AsyncIterator[Shop]:
    """A path, and sqlite3."""

    @contextmanager
    def begin() -> Iterator[sqlite3.Connection]:
        with closing(sqlite3.connect(path)) as connection, connection:
            yield connection

    yield Shop("sqlite", path, begin, lambda: sqlite3.connect(path))


@asynccontextmanager
async def sqlite_engine(path: Path) -> AsyncIterator[Shop]:
    """SQLAlchemy."""
    engine = sqlalchemy.create_engine(f"sqlite:///{path}")
    yield Shop("sqlite", engine, engine.begin, lambda: sqlite3.connect(path))
    engine.dispose()


@asynccontextmanager
async def sqlite_aiosqlite(path: Path) -> AsyncIterator[Shop]:
    """A function that connects."""
    import aiosqlite

    @asynccontextmanager
    async def begin() -> AsyncIterator[Any]:
        async with aiosqlite.connect(path) as connection:
            yield connection
            await connection.commit()

    yield Shop("sqlite", lambda: aiosqlite.connect(path), begin, lambda: sqlite3.connect(path), awaited=True)


@asynccontextmanager
async def sqlite_async_engine(path: Path) -> AsyncIterator[Shop]:
    """SQLAlchemy, awaited."""
    engine = create_async_engine(f"sqlite+aiosqlite:///{path}", poolclass=NullPool)
    yield Shop("sqlite", engine, engine.begin, lambda: sqlite3.connect(path), awaited=True)
    await engine.dispose()


# ---------------------------------------------------------------- PostgreSQL


@asynccontextmanager
async def postgres_connect(database: Database) -> AsyncIterator[Shop]:
    """A function that connects, and psycopg."""
    yield Shop("postgresql", lambda: psycopg.connect(database.dsn), lambda: psycopg.connect(database.dsn),
               lambda: psycopg.connect(database.dsn))  # fmt: skip


@asynccontextmanager
async def postgres_pool(database: Database) -> AsyncIterator[Shop]:
    """A pool of psycopg."""
    with psycopg_pool.ConnectionPool(database.dsn, min_size=1, max_size=4, open=True) as pool:
        yield Shop("postgresql", pool, pool.connection, lambda: psycopg.connect(database.dsn))


@asynccontextmanager
async def postgres_engine(database: Database) -> AsyncIterator[Shop]:
    """SQLAlchemy."""
    engine = sqlalchemy.create_engine(database.sqlalchemy_url("psycopg"))
    yield Shop("postgresql", engine, engine.begin, lambda: psycopg.connect(database.dsn))
    engine.dispose()


@asynccontextmanager
async def postgres_async_pool(database: Database) -> AsyncIterator[Shop]:
    """An async pool of psycopg."""
    async with psycopg_pool.AsyncConnectionPool(database.dsn, min_size=1, max_size=4, open=False) as pool:
        yield Shop("postgresql", pool, pool.connection, lambda: psycopg.connect(database.dsn), awaited=True)


@asynccontextmanager
async def postgres_asyncpg(database: Database) -> AsyncIterator[Shop]:
    """A pool of asyncpg."""
    asyncpg: Any = import_module("asyncpg")  # it has no types
    pool = await asyncpg.create_pool(database.dsn, min_size=1, max_size=4)

    @asynccontextmanager
    async def begin() -> AsyncIterator[Any]:
        async with pool.acquire() as connection, connection.transaction():
            yield connection

    yield Shop("postgresql", pool, begin, lambda: psycopg.connect(database.dsn), awaited=True)
    await pool.close()


@asynccontextmanager
async def postgres_async_engine(database: Database) -> AsyncIterator[Shop]:
    """SQLAlchemy over asyncpg."""
    engine = create_async_engine(database.sqlalchemy_url("asyncpg"))
    yield Shop("postgresql", engine, engine.begin, lambda: psycopg.connect(database.dsn), awaited=True)
    await engine.dispose()


# ---------------------------------------------------------------- MariaDB


@asynccontextmanager
async def mariadb_connect(database: Database) -> AsyncIterator[Shop]:
    """A function that connects, and PyMySQL."""

    def connect() -> Any:
        return pymysql.connect(**database.parameters, ssl_disabled=True)

    @contextmanager
    def begin() -> Iterator[Any]:
        with closing(connect()) as connection:
            yield connection
            connection.commit()

    yield Shop("mariadb", connect, begin, connect)


@asynccontextmanager
async def mariadb_engine(database: Database) -> AsyncIterator[Shop]:
    """SQLAlchemy."""
    engine = sqlalchemy.create_engine(database.sqlalchemy_url("pymysql"))
    yield Shop("mariadb", engine, engine.begin, lambda: pymysql.connect(**database.parameters, ssl_disabled=True))
    engine.dispose()


@asynccontextmanager
async def mariadb_async_engine(database: Database) -> AsyncIterator[Shop]:
    """SQLAlchemy over aiomysql."""
    engine = create_async_engine(database.sqlalchemy_url("aiomysql"))
    yield Shop(
        "mariadb", engine, engine.begin, lambda: pymysql.connect(**database.parameters, ssl_disabled=True), awaited=True
    )
    await engine.dispose()


ON_SQLITE = [sqlite_file, sqlite_engine, sqlite_aiosqlite, sqlite_async_engine]
ON_POSTGRES = [
    postgres_connect, postgres_pool, postgres_engine, postgres_async_pool, postgres_asyncpg, postgres_async_engine,
]  # fmt: skip
ON_MARIADB = [mariadb_connect, mariadb_engine, mariadb_async_engine]
EVERY = [
    *ON_SQLITE,
    *(pytest.param(one, marks=pytest.mark.slow) for one in [*ON_POSTGRES, *ON_MARIADB]),
]
ONE_EACH = [
    sqlite_file,
    sqlite_aiosqlite,
    *(pytest.param(one, marks=pytest.mark.slow) for one in (postgres_pool, postgres_asyncpg)),
    *(pytest.param(one, marks=pytest.mark.slow) for one in (mariadb_connect, mariadb_async_engine)),
]


def place(way: Any, request: pytest.FixtureRequest) -> AbstractAsyncContextManager[Shop]:
    """The shop of this way, on a database of its own."""
    if way in ON_SQLITE:
        found: Path = request.getfixturevalue("tmp_path")
        return way(found / "app.db")  # type: ignore[no-any-return]  # one of the functions above
    fixture = "postgres_database" if way in ON_POSTGRES else "mariadb_database"
    return way(request.getfixturevalue(fixture))  # type: ignore[no-any-return]  # the same
