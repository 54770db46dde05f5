"""Jobs a second, beside procrastinate on the same PostgreSQL.

Both enqueue jobs one by one, and their jobs do nothing, so that what is measured is a claim and a completion. Both are
asyncio over psycopg, with a pool of as many connections, and use no notifications; the jobs of both stay in their
tables when they are done. procrastinate also keeps a log of events for each job, by triggers; Leasehold keeps none.
Then the same on threads, with SQLAlchemy, with asyncpg, and on SQLite and MariaDB.

Nothing is flushed to a disk. Client and server share one core, so that rates do not depend on which is woken where."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import tempfile
import time
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack, ExitStack
from importlib import import_module
from pathlib import Path
from typing import Any

import psycopg_pool
import sqlalchemy

from benchmarks.report.rows import Result, Row
from benchmarks.rounds import Run, Setup, interleave, rates
from benchmarks.server import one_core
from leasehold.patterns import AsyncJobs, Jobs
from tests.support.servers.mariadb import MariaServer
from tests.support.servers.postgres import PostgresServer

OURS, THEIRS = "Leasehold", "procrastinate"
JOBS = 200  # in a round
CONNECTIONS = 5
Put = Callable[[int], Coroutine[Any, Any, None]]


async def nothing(job: Any) -> None:
    """The work."""


# ---------------------------------------------------------------- the two, on one loop


async def ours(pool: Any) -> dict[str, Put]:
    """The calls to measure: enqueue jobs, and work off the jobs that were enqueued before."""
    jobs = AsyncJobs(pool)
    await jobs.create()

    async def put(count: int) -> None:
        for number in range(count):
            await jobs.enqueue({"number": number})

    async def fill(count: int) -> None:
        await jobs.enqueue_many({"number": number} for number in range(count))

    def work(concurrency: int) -> Put:
        async def run(count: int) -> None:
            assert await jobs.work(nothing, drain=True, concurrency=concurrency) == count

        return run

    async def batches(count: int) -> None:
        while claimed := await jobs.claim_many(20):
            for job in claimed:
                await job.complete()

    return {"put": put, "fill": fill, "1": work(1), "4": work(4), "batches": batches}


async def theirs(pool: Any) -> dict[str, Put]:
    """The same. By default its worker logs and uses notifications: both are turned off."""
    import procrastinate

    connector = procrastinate.PsycopgConnector()
    app = procrastinate.App(connector=connector)
    await app.open_async(pool)
    await app.schema_manager.apply_schema_async()

    @app.task(name="nothing")
    async def task(number: int) -> None:
        """The work."""

    async def put(count: int) -> None:
        for number in range(count):
            await task.defer_async(number=number)

    async def fill(count: int) -> None:
        rows: list[dict[str, Any]] = [{"number": number} for number in range(count)]
        await task.batch_defer_async(*rows)

    def work(concurrency: int) -> Put:
        async def run(count: int) -> None:
            await app.run_worker_async(
                wait=False, concurrency=concurrency, listen_notify=False, install_signal_handlers=False
            )

        return run

    return {"put": put, "fill": fill, "1": work(1), "4": work(4)}


def on_loop(runner: asyncio.Runner, call: Put) -> Run:
    def run(count: int) -> None:
        runner.run(call(count))

    return run


def filled(runner: asyncio.Runner, calls: dict[str, Put], name: str) -> Run:
    """The jobs are enqueued before the clock starts."""

    def run(count: int) -> float:
        runner.run(calls["fill"](count))
        began = time.perf_counter()
        runner.run(calls[name](count))
        return count / (time.perf_counter() - began)

    return run


def pool_of(dsn: str) -> psycopg_pool.AsyncConnectionPool:
    """The same pool for both, opened on the loop."""
    return psycopg_pool.AsyncConnectionPool(dsn, min_size=CONNECTIONS, max_size=CONNECTIONS, open=False)


def beside_procrastinate(setup: Setup) -> Result:
    """Interleaved, each in a database of its own."""
    logging.getLogger("procrastinate").setLevel(logging.ERROR)  # it warns that this program is a script
    rows: list[Row] = []
    with one_core(), PostgresServer() as server, asyncio.Runner() as runner:
        stack = AsyncExitStack()
        pools = [pool_of(server.fresh().dsn) for _ in range(2)]
        for pool in pools:
            runner.run(stack.enter_async_context(pool))
        calls = {OURS: runner.run(ours(pools[0])), THEIRS: runner.run(theirs(pools[1]))}
        settle(server)
        runs: dict[str, Run] = {name: on_loop(runner, one["put"]) for name, one in calls.items()}
        rows += compared(setup, "enqueue, one by one", runs, THEIRS)
        runner.run(calls[THEIRS]["1"](0))  # the jobs that the first table left
        runner.run(calls[OURS]["batches"](0))
        for workers in ("1", "4"):
            runs = {name: filled(runner, one, workers) for name, one in calls.items()}
            if workers == "1":
                runs[f"{OURS}, claim_many(20)"] = filled(runner, calls[OURS], "batches")
            rows += compared(setup, f"claim and complete, {workers} at once", runs, THEIRS)
        runner.run(stack.aclose())
    return Result(rows)


def compared(setup: Setup, title: str, runs: dict[str, Run], *peers: str) -> list[Row]:
    jobs = JOBS // 6 if setup.effort.quick else JOBS
    return rates(
        f"Jobs, {title}", "jobs/s", interleave(setup, runs, dict.fromkeys(runs, jobs), setup.effort.rounds), *peers
    )


def settle(server: PostgresServer) -> None:
    """Make the statistics of new tables, as autovacuum would."""
    server.execute("ANALYZE")


# ---------------------------------------------------------------- by other ways


def on_threads(jobs: Jobs) -> Run:
    """Claim and complete, one at a time."""

    def run(count: int) -> float:
        jobs.enqueue_many({"number": number} for number in range(count))
        began = time.perf_counter()
        assert jobs.work(lambda job: None, drain=True) == count
        return count / (time.perf_counter() - began)

    return run


def on_a_loop(runner: asyncio.Runner, engine: Any) -> Run:
    """The same, awaited."""
    return filled(runner, runner.run(ours(engine)), "1")


async def opened(pool: Any) -> Any:
    """Opens the pool on the loop that uses it."""
    return await pool


def by_other_ways(setup: Setup) -> Result:
    """One worker each."""
    with one_core(), PostgresServer() as server, ExitStack() as stack, asyncio.Runner() as runner:
        pool = stack.enter_context(psycopg_pool.ConnectionPool(server.fresh().dsn, min_size=2, max_size=2, open=True))
        engine = sqlalchemy.create_engine(server.fresh().sqlalchemy_url("psycopg"))
        asyncpg: Any = import_module("asyncpg")  # it has no types
        async_pool = runner.run(opened(asyncpg.create_pool(server.fresh().dsn, min_size=2, max_size=2)))
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        path = Path(folder, "app.db")
        maria = stack.enter_context(MariaServer())

        def connect() -> sqlite3.Connection:
            connection = sqlite3.connect(path)
            connection.execute("PRAGMA synchronous = OFF")
            return connection

        sqlite3.connect(path).execute("PRAGMA journal_mode = WAL").connection.close()
        maria_engine = sqlalchemy.create_engine(maria.fresh().sqlalchemy_url("pymysql"))
        tables = {
            "PostgreSQL: psycopg pool, thread": Jobs(pool),
            "PostgreSQL: SQLAlchemy, thread": Jobs(engine),
            "SQLite: sqlite3, thread": Jobs(connect),
            "MariaDB: SQLAlchemy over PyMySQL, thread": Jobs(maria_engine),
        }
        for table in tables.values():
            table.create()
        runs: dict[str, Run] = {name: on_threads(table) for name, table in tables.items()}
        runs["PostgreSQL: asyncpg pool, task"] = on_a_loop(runner, async_pool)
        rows = compared(setup, "claim and complete, 1 at once, by other ways", runs)
        runner.run(async_pool.close())
        engine.dispose()
        maria_engine.dispose()
    return Result(rows)


PIECES = {"procrastinate": beside_procrastinate, "ways": by_other_ways}
