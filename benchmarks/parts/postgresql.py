"""The store on PostgreSQL against what people write by hand on the same server.

The two statements are the least that a lease costs: a row that is inserted or taken over when it has expired, and is
given back. The same row, asked for every 10 ms, is the lock that waits by hand. Jobs of procrastinate with the same
lock run one after the other: each of 8 processes defers a job and waits for one, and its worker looks every 10 ms as
well, because nothing tells it that the lock is free. A lease here is fenced, has a queue and is renewed. The server
keeps its data on a disk, and flushes each commit to it unless a table says otherwise."""

from __future__ import annotations

import asyncio
import logging
import tempfile
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

import psycopg

import leasehold
import leasehold.aio
from benchmarks import race
from benchmarks.parts.leases import TRIES, Ours, Renewing
from benchmarks.race import Locks, Peer
from benchmarks.report.rows import Result, compare
from benchmarks.rounds import Run, Setup, awaited, measure, pairs, rates
from tests.support.servers.postgres import PostgresServer

OURS, BARE, ADVISORY, BY_HAND = "Leasehold", "two statements", "pg_advisory_lock", "by hand, polling every 10 ms"
JOBS = "procrastinate's lock, polling every 10 ms"
ALONE, PROCESSES = "PostgreSQL, one caller", "PostgreSQL, 8 processes on one lock"
NOT_FLUSHED = f"{ALONE}, synchronous_commit = off"
IN_BATCHES = "by hand, 500 in a statement"
POLL = 0.01  # seconds
BATCH = 500
DURABLE = ("-cfsync=on", "-cfull_page_writes=on")
OFF = "?options=-c%20synchronous_commit%3Doff"

TABLE = "CREATE TABLE leases (name text PRIMARY KEY, owner text, ends timestamptz) WITH (fillfactor = 50)"
TAKE = (
    "INSERT INTO leases VALUES (%s, %s, clock_timestamp() + interval '30 s') ON CONFLICT (name) DO UPDATE "
    "SET owner = excluded.owner, ends = excluded.ends WHERE leases.ends < clock_timestamp() RETURNING 1"
)
GIVE = "UPDATE leases SET ends = '-infinity' WHERE name = %s AND owner = %s RETURNING 1"
RENEW = (
    "UPDATE leases SET ends = clock_timestamp() + interval '60 s' FROM unnest(%s::text[]) AS asked (name) "
    "WHERE leases.name = asked.name AND owner = 'me' AND ends > clock_timestamp()"
)


@contextmanager
def served() -> Iterator[PostgresServer]:
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o711)  # the server runs as somebody else
        with PostgresServer(*DURABLE, place=Path(folder)) as server:
            server.execute(TABLE)
            yield server


# ---------------------------------------------------------------- contenders


@contextmanager
def ours(url: str) -> Iterator[Locks]:
    with leasehold.connect(url) as hold:
        yield lambda number: hold.lock("bench", number, ttl=30)


@contextmanager
def by_hand(url: str) -> Iterator[Locks]:
    """A row that ends by itself; a waiter asks again and again."""

    @contextmanager
    def lock(name: str) -> Iterator[None]:
        while connection.execute(TAKE, (name, owner)).fetchone() is None:
            time.sleep(POLL)  # it is what this contender does
        yield
        connection.execute(GIVE, (name, owner))

    with psycopg.connect(url, autocommit=True) as connection:
        owner = str(connection.info.backend_pid)
        yield lambda number: lock(f"bench:{number}")


@contextmanager
def advisory(url: str) -> Iterator[Locks]:
    """The lock of a session: no lease, no fence, and it ends with the connection."""

    @contextmanager
    def lock(number: int) -> Iterator[None]:
        connection.execute("SELECT pg_advisory_lock(%s)", (number,))
        yield
        connection.execute("SELECT pg_advisory_unlock(%s)", (number,))

    with psycopg.connect(url, autocommit=True) as connection:
        yield lock


@contextmanager
def job_lock(url: str) -> Iterator[Locks]:
    """To enter is to defer a job and to be given one by the worker of this process; to leave is to end it."""
    begun: SimpleQueue[None] = SimpleQueue()
    ended: SimpleQueue[None] = SimpleQueue()

    over = threading.Event()

    def turn() -> None:
        if not over.is_set():
            begun.put(None)
            ended.get()

    async def work() -> None:
        options = {"listen_notify": False, "fetch_job_polling_interval": POLL, "install_signal_handlers": False}
        worker = asyncio.create_task(app.run_worker_async(concurrency=1, **options))
        await asyncio.to_thread(over.wait)
        worker.cancel()
        await asyncio.wait([worker])

    app, task = procrastinate_app(url, turn)

    @contextmanager
    def lock(number: int) -> Iterator[None]:
        while True:
            runner.call(task.configure(lock=f"bench:{number}").defer_async())
            with suppress(Empty):  # the last worker that leaves may take somebody's job with it
                begun.get(timeout=1)
                break
        yield
        ended.put(None)

    with Loop() as runner:
        runner.call(app.open_async())
        working = runner.start(work())
        yield lock
        over.set()
        ended.put(None)  # for a job that was given meanwhile
        working.result()
        runner.call(app.close_async())


class Loop:
    """An event loop on a thread of its own."""

    def __enter__(self) -> Loop:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()
        return self

    def start(self, work: Awaitable[Any]) -> Future[Any]:
        """It goes on meanwhile."""

        async def run() -> Any:
            return await work

        return asyncio.run_coroutine_threadsafe(run(), self._loop)

    def call(self, work: Awaitable[Any]) -> Any:
        """What it gives."""
        return self.start(work).result()

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()


def procrastinate_app(url: str, work: Callable[[], None] = lambda: None) -> tuple[Any, Any]:
    """An app, and its only task."""
    import procrastinate

    logging.getLogger("procrastinate").setLevel(logging.ERROR)  # it warns that this program is a script
    app = procrastinate.App(connector=procrastinate.PsycopgConnector(conninfo=url))
    return app, app.task(name="turn", queue="turns")(work)


def without_jobs(url: str) -> None:
    """The tables of procrastinate, as new."""
    app, _ = procrastinate_app(url)
    with Loop() as runner:
        runner.call(app.open_async())
        if runner.call(app.check_connection_async()):
            runner.call(app.connector.execute_query_async("TRUNCATE procrastinate_jobs CASCADE"))
        else:
            runner.call(app.schema_manager.apply_schema_async())
        runner.call(app.close_async())


@contextmanager
def asyncio_pairs(url: str) -> Iterator[Run]:
    """On one event loop."""
    with asyncio.Runner() as runner:
        hold = leasehold.aio.connect(url)

        async def pair() -> None:
            async with hold.lock("bench", 43, ttl=30):
                pass

        yield awaited(runner, pair)
        runner.run(hold.close())


# ---------------------------------------------------------------- pieces


def alone(setup: Setup) -> Result:
    """One caller, no contention."""
    result = Result([])
    with served() as server:
        for title, options in ((ALONE, ""), (NOT_FLUSHED, OFF)):
            url = server.url + options
            with by_hand(url) as bare, ours(url) as locks, asyncio_pairs(url) as tasks, advisory(url) as session:
                contenders = {
                    BARE: pairs(partial(bare, 1)),
                    OURS: pairs(partial(locks, 42)),
                    f"{OURS}, asyncio": tasks,
                    ADVISORY: pairs(partial(session, 7)),
                }
                result += Result(rates(title, "pairs/s", measure(setup, contenders), BARE, cpu=True))
    return result


def processes(setup: Setup) -> Result:
    """True handoffs between processes, with exclusion, fences and the order of turns checked."""
    with served() as server:

        def run(peer: Peer, folder: Path, parties: int) -> race.Result:
            seconds = setup.effort.race_seconds
            if peer is job_lock:
                without_jobs(server.url)
                seconds = max(seconds, 1.0)  # it is the slowest
            return race.race(peer, server.url, folder, parties, seconds, fenced=peer is ours)

        racers: dict[str, race.Racer] = {
            BY_HAND: partial(run, by_hand),
            ADVISORY: partial(run, advisory),
            JOBS: partial(run, job_lock),
            OURS: partial(run, ours),
        }
        found = race.compete(setup, racers, 8)
    return Result(race.race_rows(PROCESSES, found, BY_HAND, server=False))


def renewals(setup: Setup) -> Result:
    """One round over all leases; none may be lost."""
    result = Result([])
    with served() as server:
        for count in setup.effort.leases:
            server.execute("DELETE FROM leases")
            with leasehold.connect(server.url) as hold, psycopg.connect(server.url, autocommit=True) as connection:
                held = Ours(hold, count)
                work = {
                    IN_BATCHES: Renewing(batches(connection, count), lambda began: None),
                    OURS: Renewing(held.renew, held.check, held.prepare, held.late),
                }
                took: dict[str, list[float]] = {name: [] for name in work}
                rounds = max(setup.effort.rounds // 2, 1)
                for number in range(rounds):
                    setup.step(f"{count:,} leases, round", number + 1, rounds)
                    for name, one in work.items():
                        took[name].append(timed(one))
            result += Result(compare(f"PostgreSQL, renewal of {count:,} leases", "ms", took, IN_BATCHES))
    return result


def batches(connection: psycopg.Connection[Any], count: int) -> Callable[[], None]:
    names = [f"renew:{number}" for number in range(count)]
    with connection.cursor() as cursor:
        cursor.executemany("INSERT INTO leases VALUES (%s, 'me', 'infinity')", [(name,) for name in names])

    def renew() -> None:
        for start in range(0, count, BATCH):
            changed = connection.execute(RENEW, (names[start : start + BATCH],)).rowcount
            if changed != len(names[start : start + BATCH]):
                raise race.Broken("a row was not renewed")

    return renew


def timed(one: Renewing) -> float:
    """A round in which the server was slower than the watchdog waits only makes up for it, and is repeated."""
    for _ in range(TRIES):
        time.sleep(0.1)  # so that a lease which was not renewed has visibly less time left
        measured = not one.late()
        one.prepare()
        began = time.monotonic()
        one.renew()
        took = (time.monotonic() - began) * 1000
        if measured and not one.late():
            one.check(began)
            return took
    raise TimeoutError(f"PostgreSQL did not answer in time in {TRIES} rounds of renewals: the machine is too busy")


PIECES = {"alone": alone, "processes": processes, "renewals": renewals}
