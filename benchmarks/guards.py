"""What a guarded write costs beside a bare one: ``python -m benchmarks.guards [part ...]``.

One row is written again and again: bare; after ``guard.check``; with ``guard.update``; and with a version column that
people compare by hand, which protects that row and nothing else. Two more show what ``guard.check`` is made of: a
second bare ``UPDATE`` in its place, and the guard's own statement, executed by the driver alone. Nothing is flushed to
a disk in any of them: a flush takes as long with a guard as without, so with flushes the ratios are closer to 1. Client
and server share one core.

The parts: memory, sqlite, psycopg, asyncpg, pymysql, redis."""

from __future__ import annotations

import argparse
import asyncio
import itertools
import os
import sqlite3
import sys
import tempfile
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import redis
import redis.asyncio

import leasehold
from benchmarks.measure import Run, awaited, interleave, parse_parts, repeated, show, sized
from benchmarks.server import Server
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
SECONDS, ROUNDS = 0.06, 11
BARE_SET = "bare SET"
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


def compare(title: str, runs: dict[str, Run], base: str, unit: str = "writes/s") -> None:
    """Measure in rounds of equal length, and print the table."""
    show(title, unit, interleave(runs, sized(runs, SECONDS), ROUNDS), base, cpu=True)


def each(calls: dict[str, Callable[[], None]]) -> dict[str, Run]:
    """The calls, each repeated on this thread."""
    return {name: repeated(call) for name, call in calls.items()}


# ---------------------------------------------------------------- the parts


def in_memory() -> None:
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
        compare("In memory", runs, "bare write under a Lock")


def on_sqlite() -> None:
    """WAL, without a flush at each commit."""
    with tempfile.TemporaryDirectory() as folder, a_lease() as lease:
        db = sqlite3.connect(Path(folder, "app.db"))
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("PRAGMA synchronous = OFF")
        prepare(db, db.execute)
        db.commit()
        calls = steps(db, lambda: db, lambda sql, values: db.execute(sql, values).rowcount, "?", "sqlite", lease)
        compare(f"SQLite {sqlite3.sqlite_version}, sqlite3", each(calls), BARE)
        db.close()


def on_psycopg() -> None:
    """One connection, on loopback."""
    import psycopg

    with PostgresServer() as server, a_lease() as lease, psycopg.connect(server.dsn, autocommit=True) as connection:
        with connection.transaction():
            prepare(connection, lambda sql: connection.execute(sql.encode()))

        def execute(sql: str, values: tuple[Any, ...]) -> int:
            return connection.execute(sql.encode(), values).rowcount

        calls = steps(connection, connection.transaction, execute, "%s", "postgresql", lease)
        compare(f"PostgreSQL {connection.info.server_version // 10000}, psycopg", each(calls), BARE)


def on_asyncpg() -> None:
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

    with PostgresServer() as server, a_lease() as lease, asyncio.Runner() as runner:
        opened = prepared(server.dsn)
        connection = runner.run(opened.__aenter__())
        calls = async_steps(connection, lease)
        compare("PostgreSQL, asyncpg", {name: awaited(runner, call) for name, call in calls.items()}, BARE)
        runner.run(opened.__aexit__(None, None, None))


def on_pymysql() -> None:
    """One connection, on loopback."""
    import pymysql

    with MariaServer() as server, a_lease() as lease:
        connection = pymysql.connect(**server.parameters, ssl_disabled=True)
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
        compare(f"MariaDB {version}, PyMySQL", each(calls), BARE)
        connection.close()


def prepare(connection: Any, execute: Callable[[str], object]) -> None:
    """The tables."""
    FenceGuard().create(connection)
    execute(TABLE)
    execute(ROWS)


def on_redis() -> None:
    """One script, one round trip."""
    with Server() as server:
        redis_blocking(server)
        redis_on_a_loop(server)


def redis_blocking(server: Server) -> None:
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
        runs = {name: repeated(call) for name, call in calls.items()}
        with server.one_core():
            show(
                "redis-py, one thread, one core", "calls/s", interleave(runs, sized(runs, 0.15), 11), BARE_SET, cpu=True
            )
        print(f"\n  {'':<44}{'round trips':>14}{'commands':>12}")
        for name, call in calls.items():
            before = server.usage()
            for _ in range(100):
                call()
            used = server.usage().since(before)
            print(f"  {name:<44}{used.requests / 100:>14.2f}{used.commands / 100:>12.2f}")


def redis_on_a_loop(server: Server) -> None:
    with asyncio.Runner() as runner:
        client = redis.asyncio.Redis.from_url(server.url())
        guard = RedisGuard(client)
        runs = {
            BARE_SET: awaited(runner, lambda: client.set("k", "value")),
            "guard.set": awaited(runner, lambda: guard.set("k", "value", 10, **REDIS_LEASE)),
        }
        with server.one_core():
            show("asyncio, one task, one core", "calls/s", interleave(runs, sized(runs, 0.15), 11), BARE_SET, cpu=True)
        runner.run(client.aclose())


PARTS: dict[str, Callable[[], None]] = {
    "memory": in_memory,
    "sqlite": on_sqlite,
    "psycopg": on_psycopg,
    "asyncpg": on_asyncpg,
    "pymysql": on_pymysql,
    "redis": on_redis,
}


def main() -> None:
    """The parts that were named, or all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parts = parse_parts(parser, PARTS).part
    # The servers below inherit it: what is measured then is work, not the wake-up of another core.
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    for name in parts:
        print(f"guards: {name} ...", file=sys.stderr)
        PARTS[name]()


if __name__ == "__main__":
    main()
