"""Every way to a result store: in memory, in a file, in a table over every connection, on Redis; blocking or
awaited."""

from __future__ import annotations

import asyncio
import inspect
import itertools
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from leasehold.patterns.results import (
    MemoryResultStore,
    RedisResultStore,
    SQLiteResultStore,
    SQLResultStore,
    ThreadedResultStore,
)
from leasehold.patterns.results.postgresql import PostgresResultStore
from leasehold.stores.postgresql.store import PostgresStore
from tests.support.guards.desks import django_connection
from tests.support.servers.database import Database

_numbers = itertools.count(1)


class Loop:
    """An event loop in a thread of its own, for what must be awaited."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self._thread.start()

    def run(self, call: Callable[..., Any], *args: Any, **more: Any) -> Any:
        """Call it there; what it gives is awaited where it must be."""

        async def there() -> Any:
            given = call(*args, **more)
            return await given if inspect.isawaitable(given) else given

        return asyncio.run_coroutine_threadsafe(there(), self.loop).result(50)

    def close(self) -> None:
        """It ends, and whatever its generators still hold."""
        self.run(self.loop.shutdown_asyncgens)
        self.run(self.loop.shutdown_default_executor)
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(60)
        self.loop.close()


class Waited:
    """An awaited result store that is called like a blocking one. It must be awaited: another answer is a mistake."""

    def __init__(self, results: Any, loop: Loop) -> None:
        self.results, self.loop = results, loop

    def __getattr__(self, name: str) -> Any:
        method = getattr(self.results, name)
        return (lambda *args, **more: self.loop.run(method, *args, **more)) if callable(method) else method


Make = Callable[[Any, ExitStack], Any]


def _loop(stack: ExitStack) -> Loop:
    loop = Loop()
    stack.callback(loop.close)
    return loop


def table() -> str:
    """A name that no other test has."""
    return f"results_{next(_numbers)}"


def _path(place: Any) -> str:
    return str(place / f"{next(_numbers)}.db")


def in_memory(place: Any, stack: ExitStack) -> Any:
    """In this process."""
    return MemoryResultStore()


def in_a_file(place: Path, stack: ExitStack) -> Any:
    """SQLiteResultStore."""
    results = SQLiteResultStore(_path(place))
    stack.callback(results.close)
    return results


def in_a_file_awaited(place: Path, stack: ExitStack) -> Any:
    """The same for asyncio."""
    loop = _loop(stack)
    waited = Waited(ThreadedResultStore(SQLiteResultStore(_path(place))), loop)
    stack.callback(waited.close)
    return waited


def _made(results: SQLResultStore) -> SQLResultStore:
    results.create()
    return results


def by_connections(connect: Callable[[Any], Callable[[], Any]]) -> Make:
    """A function that gives a new connection each time."""
    return lambda place, stack: _made(SQLResultStore(connect(place), table()))


def by_connections_awaited(connect: Callable[[Any], Callable[[], Any]]) -> Make:
    """The same for asyncio."""

    def make(place: Any, stack: ExitStack) -> Any:
        waited = Waited(SQLResultStore(connect(place), table()), _loop(stack))
        waited.create()
        return waited

    return make


def by_engine(driver: str, session: bool = False) -> Make:
    """SQLAlchemy: an engine, or a sessionmaker."""

    def make(place: Any, stack: ExitStack) -> Any:
        import sqlalchemy
        from sqlalchemy.orm import sessionmaker

        engine = sqlalchemy.create_engine(_url(place, driver))
        stack.callback(engine.dispose)
        return _made(SQLResultStore(sessionmaker(engine) if session else engine, table()))

    return make


def by_async_engine(driver: str, session: bool = False) -> Make:
    """The same for asyncio."""

    def make(place: Any, stack: ExitStack) -> Any:
        from sqlalchemy.ext.asyncio import async_sessionmaker, create_async_engine

        loop, engine = _loop(stack), create_async_engine(_url(place, driver))
        stack.callback(loop.run, engine.dispose)
        waited = Waited(SQLResultStore(async_sessionmaker(engine) if session else engine, table()), loop)
        waited.create()
        return waited

    return make


def beside_leases(place: Database, stack: ExitStack) -> Any:
    """The one of a coordinator on PostgreSQL, over the sessions of its store."""
    store = PostgresStore(f"{place.dsn}?table={table()}")
    stack.callback(store.close)
    return PostgresResultStore(store, asynchronous=False)


def beside_leases_awaited(place: Database, stack: ExitStack) -> Any:
    """The same for asyncio."""
    loop, store = _loop(stack), PostgresStore(f"{place.dsn}?table={table()}")
    stack.callback(store.close)
    return Waited(PostgresResultStore(store, asynchronous=True), loop)


def by_psycopg_pool(place: Database, stack: ExitStack) -> Any:
    """A pool of psycopg's."""
    import psycopg_pool

    pool: Any = stack.enter_context(psycopg_pool.ConnectionPool(place.dsn, min_size=1, max_size=8, open=True))
    return _made(SQLResultStore(pool, table()))


def by_async_psycopg_pool(place: Database, stack: ExitStack) -> Any:
    """The same for asyncio."""
    import psycopg_pool

    loop = _loop(stack)
    pool: Any = psycopg_pool.AsyncConnectionPool(place.dsn, min_size=1, max_size=8, open=False)
    loop.run(pool.open)
    stack.callback(loop.run, pool.close)
    waited = Waited(SQLResultStore(pool, table()), loop)
    waited.create()
    return waited


def by_asyncpg_pool(place: Database, stack: ExitStack) -> Any:
    """A pool of asyncpg's."""
    import asyncpg

    loop = _loop(stack)
    pool = loop.run(asyncpg.create_pool, place.dsn, min_size=1, max_size=8)
    stack.callback(loop.run, pool.close)
    waited = Waited(SQLResultStore(pool, table()), loop)
    waited.create()
    return waited


def by_django(place: Any, stack: ExitStack) -> Any:
    """A connection of Django's."""
    connection = django_connection(_path(place) if isinstance(place, Path) else place)
    stack.callback(connection.close)
    return _made(SQLResultStore(connection, table()))


def _url(place: Any, driver: str) -> str:
    return f"sqlite+{driver}:///{_path(place)}?timeout=30" if isinstance(place, Path) else place.sqlalchemy_url(driver)


def _sqlite3(place: Path) -> Callable[[], Any]:
    path = _path(place)
    return lambda: sqlite3.connect(path, timeout=30)


def _aiosqlite(place: Path) -> Callable[[], Any]:
    import aiosqlite

    path = _path(place)
    return lambda: aiosqlite.connect(path, timeout=30)


def _psycopg(place: Database) -> Callable[[], Any]:
    import psycopg

    return lambda: psycopg.connect(place.dsn)


def _async_psycopg(place: Database) -> Callable[[], Any]:
    import psycopg

    return lambda: psycopg.AsyncConnection.connect(place.dsn)


def _psycopg2(place: Database) -> Callable[[], Any]:
    import psycopg2

    return lambda: psycopg2.connect(place.dsn)


def _asyncpg(place: Database) -> Callable[[], Any]:
    import asyncpg

    return lambda: asyncpg.connect(place.dsn)


def _pymysql(place: Database) -> Callable[[], Any]:
    import pymysql

    return lambda: pymysql.connect(**place.parameters, ssl_disabled=True)


def _connector(place: Database) -> Callable[[], Any]:
    import mariadb

    return lambda: mariadb.connect(**place.parameters)


def by_client(make: str, **more: Any) -> Make:
    """A client of redis-py or valkey-py."""

    def results(place: Any, stack: ExitStack) -> Any:
        package, _, name = make.rpartition(".")
        client_class = getattr(__import__(package, fromlist=[name]), name)
        if "asyncio" not in package:
            return RedisResultStore(stack.enter_context(client_class(host="127.0.0.1", port=place.port, **more)))
        loop = _loop(stack)

        async def connect() -> Any:
            client = client_class(host="127.0.0.1", port=place.port, **more)
            await client.initialize()  # a Cluster's client stumbles when eight tasks at once are the first to use it
            return client

        client = loop.run(connect)
        stack.callback(loop.run, client.aclose)
        return Waited(RedisResultStore(client), loop)

    return results


def by_fake(place: Any, stack: ExitStack) -> Any:
    """A test double of redis-py's."""
    import fakeredis

    return RedisResultStore(fakeredis.FakeRedis())


# The first ones run the whole contract: each place, blocking and awaited. The others differ only in how they speak.
WAYS: dict[str, tuple[str, Make]] = {
    "memory": ("", in_memory),
    "file": ("file", in_a_file),
    "file, awaited": ("file", in_a_file_awaited),
    "psycopg pool": ("postgres_server", by_psycopg_pool),
    "asyncpg pool": ("postgres_server", by_asyncpg_pool),
    "beside leases": ("postgres_server", beside_leases),
    "beside leases, awaited": ("postgres_server", beside_leases_awaited),
    "MariaDB engine": ("mariadb_server", by_engine("pymysql")),
    "redis-py": ("redis_server", by_client("redis.Redis")),
    "asyncio, decoded": ("redis_server", by_client("redis.asyncio.Redis", decode_responses=True)),
}
OTHERS: dict[str, tuple[str, Make]] = {
    "sqlite3": ("file", by_connections(_sqlite3)),
    "fakeredis": ("", by_fake),
    "MariaDB async engine": ("mariadb_server", by_async_engine("aiomysql")),
    "Cluster": ("cluster", by_client("redis.RedisCluster")),
    "Valkey, asyncio": ("valkey_server", by_client("valkey.asyncio.Valkey")),
    "aiosqlite": ("file", by_connections_awaited(_aiosqlite)),
    "SQLite engine": ("file", by_engine("pysqlite")),
    "SQLite sessions": ("file", by_engine("pysqlite", session=True)),
    "SQLite async engine": ("file", by_async_engine("aiosqlite")),
    "SQLite, Django": ("file", by_django),
    "psycopg": ("postgres_server", by_connections(_psycopg)),
    "psycopg, awaited": ("postgres_server", by_connections_awaited(_async_psycopg)),
    "psycopg pool, awaited": ("postgres_server", by_async_psycopg_pool),
    "psycopg2": ("postgres_server", by_connections(_psycopg2)),
    "asyncpg": ("postgres_server", by_connections_awaited(_asyncpg)),
    "PostgreSQL engine": ("postgres_server", by_engine("psycopg")),
    "PostgreSQL async engine": ("postgres_server", by_async_engine("asyncpg")),
    "PostgreSQL async sessions": ("postgres_server", by_async_engine("psycopg", session=True)),
    "PostgreSQL, Django": ("postgres_server", by_django),
    "PyMySQL": ("mariadb_server", by_connections(_pymysql)),
    "MariaDB connector": ("mariadb_server", by_connections(_connector)),
    "MariaDB sessions": ("mariadb_server", by_engine("pymysql", session=True)),
    "Redis 6.2": ("old_server", by_client("redis.Redis")),
    "RESP2 and text": ("redis_server", by_client("redis.Redis", protocol=2, decode_responses=True)),
    "asyncio": ("redis_server", by_client("redis.asyncio.Redis")),
    "Cluster, asyncio": ("cluster", by_client("redis.asyncio.RedisCluster")),
    "Cluster, valkey-py": ("cluster", by_client("valkey.ValkeyCluster")),
    "Valkey": ("valkey_server", by_client("valkey.Valkey")),
}
EVERY = WAYS | OTHERS
FAST = ("", "file")


def parameters(ways: dict[str, tuple[str, Make]]) -> list[Any]:
    """Those that need a server are slow."""
    return [pytest.param(name, marks=[] if place in FAST else [pytest.mark.slow]) for name, (place, _) in ways.items()]


@contextmanager
def opened(way: str, request: pytest.FixtureRequest) -> Iterator[Any]:
    """A result store of this way on which nothing stands."""
    name, make = EVERY[way]
    place: Any = request.getfixturevalue(name) if name not in FAST else request.getfixturevalue("tmp_path")
    if name.endswith(("redis_server", "cluster", "valkey_server", "old_server")):
        place.wipe()
    elif name not in FAST:
        place = place.main
    with ExitStack() as stack:
        yield make(place, stack)
