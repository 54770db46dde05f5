"""What a guarded write costs beside a bare one.

One row is written again and again: bare; after ``guard.check``; with ``guard.update``; and with a version column that
people compare by hand, which protects that row and nothing else. Two more show what ``guard.check`` is made of: a
second bare ``UPDATE`` in its place, and the guard's own statement, executed by the driver alone. Nothing is flushed to
a disk in any of them: a flush takes as long with a guard as without, so with flushes the ratios are closer to 1. Client
and server share one core."""

from __future__ import annotations

import asyncio
import itertools
import sqlite3
import tempfile
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractContextManager, asynccontextmanager, closing, contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import redis
import redis.asyncio

import leasehold
from benchmarks.report.rows import Result, compare
from benchmarks.rounds import Run, Setup, awaited, measure, rates, repeated
from benchmarks.server import Server, Usage, one_core
from leasehold._sql.dialects import DIALECTS
from leasehold.guards import memory
from leasehold.guards.redis import FenceGuard as RedisGuard
from leasehold.guards.sql import FenceGuard, statements
from leasehold.stores.memory import MemoryStore
from tests.support.servers.mariadb import MariaServer
from tests.support.servers.postgres import PostgresServer

BARE, CHECK, UPDATE, BY_HAND = "bare UPDATE", "guard.check, then UPDATE", "guard.update", "UPDATE ... WHERE version = ?"
TWICE, ALONE = "UPDATE, then UPDATE", "its statement by hand, then UPDATE"
TABLE = "CREATE TABLE reports (id INTEGER PRIMARY KEY, status VARCHAR(20), version INTEGER, last_fencing_token BIGINT)"
ROWS = "INSERT INTO reports VALUES (1, 'new', 0, NULL), (2, 'new', 0, NULL), (3, 'new', 0, NULL), (4, 'new', 0, NULL)"
PLAIN = "UPDATE reports SET status = ? WHERE id = ?"
COMPARE = "UPDATE reports SET status = ?, version = version + 1 WHERE id = ? AND version = ?"
BARE_SET = "bare SET"
USES = 100  # calls whose commands are counted
REDIS_LEASE: dict[str, Any] = {"resource": "report-export:42", "owner": "host:1:secret.1"}
REDIS_BODY = "return redis.call('SET', KEYS[1], ARGV[1])"

Execute = Callable[[str, tuple[Any, ...]], int]  # -> how many rows
Begin = Callable[[], AbstractContextManager[Any]]


@contextmanager
def a_lease() -> Iterator[leasehold.Lease]:
    """A lease that lasts as long as the benchmark."""
    with leasehold.connect(MemoryStore()) as hold, hold.lock("report-export", 42, ttl="1h") as lease:
        yield lease


# ---------------------------------------------------------------- the four, on a thread and on a loop


def steps(
    tx: Any, begin: Begin, execute: Execute, mark: str, dialect: str, lease: leasehold.Lease
) -> dict[str, Callable[[], None]]:
    """Each in a transaction and on a row of its own. The value changes: otherwise MariaDB would write nothing."""
    guard, numbers, versions = FenceGuard(), itertools.count(), itertools.count()
    plain, compare = PLAIN.replace("?", mark), COMPARE.replace("?", mark)
    decide = statements.accept(DIALECTS[dialect], guard.table, guard.present(lease))
    decision = decide.marked(mark)

    def bare() -> None:
        with begin():
            execute(plain, (f"step {next(numbers)}", 1))

    def check() -> None:
        with begin():
            guard.check(tx, lease)
            execute(plain, (f"step {next(numbers)}", 2))

    def update() -> None:
        with begin():
            guard.update(tx, "reports", key={"id": 3}, values={"status": f"step {next(numbers)}"}, lease=lease)

    def by_hand() -> None:
        with begin():
            assert execute(compare, (f"step {next(numbers)}", 4, next(versions))) == 1

    def twice() -> None:
        with begin():
            execute(plain, (f"step {next(numbers)}", 1))
            execute(plain, (f"step {next(numbers)}", 2))

    def alone() -> None:
        with begin():
            execute(decision, decide.values)
            execute(plain, (f"step {next(numbers)}", 2))

    return {BARE: bare, TWICE: twice, ALONE: alone, CHECK: check, UPDATE: update, BY_HAND: by_hand}


def async_steps(connection: Any, lease: leasehold.Lease) -> dict[str, Callable[[], Awaitable[None]]]:
    """The same with asyncpg."""
    guard, numbers, versions = FenceGuard(), itertools.count(), itertools.count()
    plain = "UPDATE reports SET status = $1 WHERE id = $2"
    compare = "UPDATE reports SET status = $1, version = version + 1 WHERE id = $2 AND version = $3"
    decide = statements.accept(DIALECTS["postgresql"], guard.table, guard.present(lease))
    decision = decide.numbered("$")

    async def bare() -> None:
        async with connection.transaction():
            await connection.execute(plain, f"step {next(numbers)}", 1)

    async def check() -> None:
        async with connection.transaction():
            await guard.check(connection, lease)
            await connection.execute(plain, f"step {next(numbers)}", 2)

    async def update() -> None:
        async with connection.transaction():
            values = {"status": f"step {next(numbers)}"}
            await guard.update(connection, "reports", key={"id": 3}, values=values, lease=lease)

    async def by_hand() -> None:
        async with connection.transaction():
            assert await connection.execute(compare, f"step {next(numbers)}", 4, next(versions)) == "UPDATE 1"

    async def twice() -> None:
        async with connection.transaction():
            await connection.execute(plain, f"step {next(numbers)}", 1)
            await connection.execute(plain, f"step {next(numbers)}", 2)

    async def alone() -> None:
        async with connection.transaction():
            await connection.fetch(decision, *decide.values)
            await connection.execute(plain, f"step {next(numbers)}", 2)

    return {BARE: bare, TWICE: twice, ALONE: alone, CHECK: check, UPDATE: update, BY_HAND: by_hand}


def table(setup: Setup, title: str, runs: dict[str, Run], base: str, unit: str = "writes/s") -> Result:
    """Measure in rounds of equal length."""
    return Result(rates(f"Guards, {title}", unit, measure(setup, runs), base, cpu=True))


def each(calls: dict[str, Callable[[], None]]) -> dict[str, Run]:
    """The calls, each repeated on this thread."""
    return {name: repeated(call) for name, call in calls.items()}


# ---------------------------------------------------------------- the parts


def in_memory(setup: Setup) -> Result:
    """A dict, which is what this guard protects in tests."""
    guard, lock, rows = memory.FenceGuard(), threading.Lock(), {}
    with a_lease() as lease:

        def bare() -> None:
            with lock:
                rows[42] = "done"

        def writing() -> None:
            with guard.writing(lease):
                rows[42] = "done"

        runs = each(
            {"bare write under a Lock": bare, "guard.writing": writing, "guard.check": lambda: guard.check(lease)}
        )
        return table(setup, "in memory", runs, "bare write under a Lock")


def on_sqlite(setup: Setup) -> Result:
    """WAL, without a flush at each commit."""
    with (
        one_core(),
        tempfile.TemporaryDirectory() as folder,
        a_lease() as lease,
        closing(sqlite3.connect(Path(folder, "app.db"))) as db,
    ):
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("PRAGMA synchronous = OFF")
        prepare(db, db.execute)
        db.commit()
        calls = steps(db, lambda: db, lambda sql, values: db.execute(sql, values).rowcount, "?", "sqlite", lease)
        return table(setup, f"SQLite {sqlite3.sqlite_version}, sqlite3", each(calls), BARE)


def on_psycopg(setup: Setup) -> Result:
    """One connection, on loopback."""
    import psycopg

    with (
        one_core(),
        PostgresServer() as server,
        a_lease() as lease,
        psycopg.connect(server.dsn, autocommit=True) as connection,
    ):
        with connection.transaction():
            prepare(connection, lambda sql: connection.execute(sql.encode()))

        def execute(sql: str, values: tuple[Any, ...]) -> int:
            return connection.execute(sql.encode(), values).rowcount

        calls = steps(connection, connection.transaction, execute, "%s", "postgresql", lease)
        return table(setup, f"PostgreSQL {connection.info.server_version // 10000}, psycopg", each(calls), BARE)


def on_asyncpg(setup: Setup) -> Result:
    """One connection, one task."""
    asyncpg: Any = import_module("asyncpg")  # it has no types

    @asynccontextmanager
    async def prepared(dsn: str) -> Any:
        connection = await asyncpg.connect(dsn)
        await FenceGuard().create(connection)
        await connection.execute(TABLE)
        await connection.execute(ROWS)
        yield connection
        await connection.close()

    with one_core(), PostgresServer() as server, a_lease() as lease, asyncio.Runner() as runner:
        opened = prepared(server.dsn)
        connection = runner.run(opened.__aenter__())
        calls = async_steps(connection, lease)
        runs = {name: awaited(runner, call) for name, call in calls.items()}
        result = table(setup, "PostgreSQL, asyncpg", runs, BARE)
        runner.run(opened.__aexit__(None, None, None))
        return result


def on_pymysql(setup: Setup) -> Result:
    """One connection, on loopback."""
    import pymysql

    with (
        one_core(),
        MariaServer() as server,
        a_lease() as lease,
        closing(pymysql.connect(**server.parameters, ssl_disabled=True)) as connection,
    ):
        cursor = connection.cursor()
        prepare(connection, cursor.execute)

        @contextmanager
        def begin() -> Iterator[None]:
            connection.begin()
            yield
            connection.commit()

        calls = steps(connection, begin, cursor.execute, "%s", "mariadb", lease)
        cursor.execute("SELECT VERSION()")
        version = str(cursor.fetchall()[0][0]).partition("-")[0]
        return table(setup, f"MariaDB {version}, PyMySQL", each(calls), BARE)


def prepare(connection: Any, execute: Callable[[str], object]) -> None:
    """The tables."""
    FenceGuard().create(connection)
    execute(TABLE)
    execute(ROWS)


def on_redis(setup: Setup) -> Result:
    """One script, one round trip."""
    with Server() as server, server.one_core():
        return redis_blocking(setup, server) + redis_on_a_loop(setup, server)


def redis_blocking(setup: Setup, server: Server) -> Result:
    title = "Redis, redis-py"
    with redis.Redis.from_url(server.url()) as client:
        guard = RedisGuard(client)
        calls: dict[str, Callable[[], object]] = {
            BARE_SET: lambda: client.set("k", "value"),
            "a script that sets": lambda: client.eval(REDIS_BODY, 1, "k", "value"),
            "guard.set": lambda: guard.set("k", "value", 10, **REDIS_LEASE),
            "guard.get": lambda: guard.get("k", 10, **REDIS_LEASE),
            "guard.check": lambda: guard.check(10, **REDIS_LEASE),
            "guard.eval": lambda: guard.eval(REDIS_BODY, 10, keys=["k"], args=["value"], **REDIS_LEASE),
        }
        result = table(setup, title, {name: repeated(call) for name, call in calls.items()}, BARE_SET, "calls/s")
        used = {name: _used(server, call) for name, call in calls.items()}
    rows = compare(f"Guards, {title}", "round trips", {name: [one.requests / USES] for name, one in used.items()})
    rows += compare(f"Guards, {title}", "commands", {name: [one.commands / USES] for name, one in used.items()})
    return result + Result(rows)


def _used(server: Server, call: Callable[[], object]) -> Usage:
    before = server.usage()
    repeated(call)(USES)
    return server.usage().since(before)


def redis_on_a_loop(setup: Setup, server: Server) -> Result:
    with asyncio.Runner() as runner:
        client = redis.asyncio.Redis.from_url(server.url())
        guard = RedisGuard(client)
        runs = {
            BARE_SET: awaited(runner, lambda: client.set("k", "value")),
            "guard.set": awaited(runner, lambda: guard.set("k", "value", 10, **REDIS_LEASE)),
        }
        result = table(setup, "Redis, asyncio", runs, BARE_SET, "calls/s")
        runner.run(client.aclose())
    return result


PIECES = {
    "memory": in_memory,
    "sqlite": on_sqlite,
    "psycopg": on_psycopg,
    "asyncpg": on_asyncpg,
    "pymysql": on_pymysql,
    "redis": on_redis,
}
