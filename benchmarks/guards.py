"""What a guarded write costs beside a bare one: ``python -m benchmarks.guards [part ...]``.

One row is written again and again: bare; behind ``guard.check``; with ``guard.update``; and with a version column that
people compare by hand, which protects that row and nothing else. Nothing is flushed to a disk in any of them: a flush
takes as long with a guard as without, so with one the ratios come out closer to 1. Client and server share one core.

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

import leasehold
from benchmarks import redis_guard
from benchmarks.measure import Run, interleave, show, sized
from benchmarks.redis_guard import awaited, repeated
from benchmarks.server import Server
from leasehold.guards import memory
from leasehold.guards.sql import FenceGuard
from leasehold.stores.memory import MemoryStore
from tests.support.servers.mariadb import MariaServer
from tests.support.servers.postgres import PostgresServer

BARE, CHECK, UPDATE, BY_HAND = "bare UPDATE", "guard.check, then UPDATE", "guard.update", "UPDATE ... WHERE version = ?"
TABLE = "CREATE TABLE reports (id INTEGER PRIMARY KEY, status VARCHAR(20), version INTEGER, last_fencing_token BIGINT)"
ROWS = "INSERT INTO reports VALUES (1, 'new', 0, NULL), (2, 'new', 0, NULL), (3, 'new', 0, NULL), (4, 'new', 0, NULL)"
PLAIN = "UPDATE reports SET status = ? WHERE id = ?"
COMPARE = "UPDATE reports SET status = ?, version = version + 1 WHERE id = ? AND version = ?"
SECONDS, ROUNDS = 0.06, 11

Execute = Callable[[str, tuple[Any, ...]], int]  # -> how many rows
Begin = Callable[[], AbstractContextManager[Any]]


@contextmanager
def a_lease() -> Iterator[leasehold.Lease]:
    """One that lasts."""
    with leasehold.connect(MemoryStore()) as hold, hold.lock("report-export", 42, ttl="1h") as lease:
        yield lease


# ---------------------------------------------------------------- the four, on a thread and on a loop


def steps(tx: Any, begin: Begin, execute: Execute, mark: str, lease: leasehold.Lease) -> dict[str, Callable[[], None]]:
    """Each in a transaction of its own, on a row of its own. The value changes, else MariaDB would write nothing."""
    guard, numbers, versions = FenceGuard(), itertools.count(), itertools.count()
    plain, compare = PLAIN.replace("?", mark), COMPARE.replace("?", mark)

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

    return {BARE: bare, CHECK: check, UPDATE: update, BY_HAND: by_hand}


def async_steps(connection: Any, lease: leasehold.Lease) -> dict[str, Callable[[], Awaitable[None]]]:
    """The same with asyncpg."""
    guard, numbers, versions = FenceGuard(), itertools.count(), itertools.count()
    plain = "UPDATE reports SET status = $1 WHERE id = $2"
    compare = "UPDATE reports SET status = $1, version = version + 1 WHERE id = $2 AND version = $3"

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

    return {BARE: bare, CHECK: check, UPDATE: update, BY_HAND: by_hand}


def compare(title: str, runs: dict[str, Run], base: str, unit: str = "writes/s") -> None:
    """In rounds of equal length."""
    show(title, unit, interleave(runs, sized(runs, SECONDS), ROUNDS), base, cpu=True)


def each(calls: dict[str, Callable[[], None]]) -> dict[str, Run]:
    """On this thread."""
    return {name: repeated(call) for name, call in calls.items()}


# ---------------------------------------------------------------- the parts


def in_memory() -> None:
    """A dict, which is what such a guard protects in tests."""
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
        calls = steps(db, lambda: db, lambda sql, values: db.execute(sql, values).rowcount, "?", lease)
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

        calls = steps(connection, connection.transaction, execute, "%s", lease)
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

        calls = steps(connection, begin, cursor.execute, "%s", lease)
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
        redis_guard.blocking(server)
        redis_guard.on_a_loop(server)


PARTS: dict[str, Callable[[], None]] = {
    "memory": in_memory,
    "sqlite": on_sqlite,
    "psycopg": on_psycopg,
    "asyncpg": on_asyncpg,
    "pymysql": on_pymysql,
    "redis": on_redis,
}


def main() -> None:
    """Each part that was asked for, or all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", nargs="*", help=f"which to run, of {', '.join(PARTS)}; all when none is named")
    parts = parser.parse_args().part or list(PARTS)
    if wrong := set(parts) - set(PARTS):
        parser.error(f"no such part: {', '.join(sorted(wrong))}")
    # With the servers that are started below: what is seen then is work, not the wake-up of another core.
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    for name in parts:
        print(f"guards: {name} ...", file=sys.stderr)
        PARTS[name]()


if __name__ == "__main__":
    main()
