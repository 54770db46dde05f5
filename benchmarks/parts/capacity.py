"""What one Redis carries: connections, bytes on the wire, and waiters that only wait.

``docs/capacity.md`` computes with these figures, and with those of ``growth``."""

from __future__ import annotations

import asyncio
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import redis

import leasehold
from benchmarks.parts.growth import STRANGERS, TTL, Renewals, sides, stage_rows
from benchmarks.processes import FORKED
from benchmarks.race import STOP, Board, crews
from benchmarks.report.rows import Result
from benchmarks.rounds import FULL, QUICK, TINY, Effort, Setup
from benchmarks.server import Server

# ---------------------------------------------------------------- waiters that wait

QUEUE = "Coordinators that wait for one lock on Redis, which stays held"
CONNECTIONS, COMMANDS_PER_S, REQUESTS_PER_S = "connections", "commands/s", "requests/s"
CPU, WAITER, CONNECTION = "CPU of Redis, %", "bytes a waiter", "bytes a connection"
LEAST_WEIGHED = 1_000  # what is allocated once is lost in the memory of so many
WAITERS: dict[Effort, tuple[int, ...]] = {FULL: (1, 10, 100, 1_000), QUICK: (10, 100), TINY: (2,)}
LONGEST_START = 60  # seconds


def wait_once(count: int, url: str) -> None:
    """So many coordinators on one event loop: each waits for the lock, until it gets it."""

    async def one() -> None:
        async with leasehold.aio.connect(url) as hold, hold.lock("queue", ttl=TTL):
            pass

    async def run() -> None:
        await asyncio.gather(*[one() for _ in range(count)])

    asyncio.run(run())


@contextmanager
def crowd(url: str, count: int) -> Iterator[None]:
    """So many coordinators in a few processes, which end when the lock is free."""
    sizes = sides(count, STRANGERS)
    with ProcessPoolExecutor(len(sizes), FORKED) as pool:
        futures = [pool.submit(wait_once, size, url) for size in sizes]
        yield
        for future in futures:
            future.result(LONGEST_START)


def until(ready: Callable[[], bool]) -> None:
    """Wait for it, but not for ever."""
    end = time.monotonic() + LONGEST_START
    while not ready():
        if time.monotonic() > end:
            raise TimeoutError("the coordinators did not start")
        time.sleep(0.02)  # between two looks


def queue(setup: Setup) -> Result:
    """Waiters give signs of life; nobody gets a turn."""
    counts, seconds = WAITERS[setup.effort], max(setup.effort.race_seconds * 4, 0.2)
    stages = {}
    for number, count in enumerate(counts):
        setup.step(f"{count:,} coordinators:", number + 1, len(counts))
        with Server() as server, leasehold.connect(server.url()) as hold, redis.Redis(port=server.port) as client:
            lease = hold.lock("queue", ttl=TTL).acquire()
            assert lease is not None
            hold.inspect("queue")
            server.usage()
            time.sleep(0.2)  # until the watchdog is connected, too
            empty, before = memory(client)[0], connected(client)
            with crowd(server.url(), count):
                until(lambda: len(hold.inspect("queue").waiters) == count)  # noqa: B023 # called here
                found = _rested(server, seconds)
                stages[f"{count:,} waiting"] = {CONNECTIONS: connected(client) - before, **found}
                if count >= LEAST_WEIGHED:
                    data, clients = memory(client)
                    stages[f"{count:,} waiting"] |= {WAITER: (data - empty) / count, CONNECTION: clients / count}
                lease.release()
    return Result(stage_rows(QUEUE, stages))


def _rested(server: Server, seconds: float) -> dict[str, float]:
    before = server.usage()
    time.sleep(seconds)  # what is spent meanwhile is measured
    spent = server.usage().since(before)
    return {
        COMMANDS_PER_S: spent.commands / seconds,
        REQUESTS_PER_S: spent.requests / seconds,
        CPU: spent.cpu_ms / seconds / 10,
    }


def memory(client: redis.Redis) -> tuple[int, int]:
    """The bytes of data, and those of connections."""
    info: Any = client.info("memory")
    return info["used_memory"] - info["mem_clients_normal"], info["mem_clients_normal"]


def connected(client: redis.Redis) -> float:
    """Clients of the server, without this one."""
    info: Any = client.info("clients")
    return float(info["connected_clients"] - 1)


# ---------------------------------------------------------------- a fleet of holders

FLEET = "Coordinators with one lease each on Redis, ttl 9 s"
FLEET_TTL, FLEET_SETTLES = 9, 4.0  # seconds
HOLDERS: dict[Effort, tuple[int, ...]] = {FULL: (10, 100, 500), QUICK: (100,), TINY: (2,)}
RENEWALS_PER_S, RENEWAL_US = "renewals/s", "CPU of Redis, µs a renewal"


def hold_once(path: Path, crew: range, url: str) -> None:
    """So many coordinators on one event loop: each holds a lease until the board says stop."""

    async def one(over: asyncio.Event, me: int) -> None:
        async with leasehold.aio.connect(url) as hold, hold.lock("fleet", me, ttl=FLEET_TTL):
            await over.wait()

    async def run() -> None:
        board, over = Board(path), asyncio.Event()
        async with asyncio.TaskGroup() as group:
            for me in crew:
                group.create_task(one(over, me))
            while not board[STOP]:  # noqa: ASYNC110 # another process sets it
                await asyncio.sleep(0.1)
            over.set()

    asyncio.run(run())


def fleet(setup: Setup) -> Result:
    """Renewals that come one by one, as from hosts with one job each."""
    counts, seconds = HOLDERS[setup.effort], max(setup.effort.race_seconds * 6, 1.0)
    stages = {}
    for number, count in enumerate(counts):
        setup.step(f"{count:,} coordinators:", number + 1, len(counts))
        sizes = sides(count, STRANGERS)
        with (
            Server() as server,
            redis.Redis(port=server.port) as client,
            tempfile.TemporaryDirectory() as folder,
            ProcessPoolExecutor(len(sizes), FORKED) as pool,
        ):
            server.usage()  # connects
            path, before = Path(folder, "board"), connected(client)
            board = Board.new(path)
            futures = [pool.submit(hold_once, path, crew, server.url()) for crew in crews(sizes)]
            try:
                until(lambda: client.dbsize() == 2 * count)  # noqa: B023 # called here
                time.sleep(FLEET_SETTLES)  # until each has renewed, over a connection of its watchdog
                found = _rested(server, seconds)
                renewals = found.pop(REQUESTS_PER_S)
                stages[f"{count:,} holders"] = {
                    CONNECTIONS: connected(client) - before,
                    RENEWALS_PER_S: renewals,
                    CPU: found[CPU],
                    RENEWAL_US: found[CPU] * 1e4 / renewals,
                }
            finally:
                board[STOP] = 1
            for future in futures:
                future.result(LONGEST_START)
    return Result(stage_rows(FLEET, stages))


# ---------------------------------------------------------------- connections and bytes

SOCKETS, WIRE = "Connections of one coordinator to Redis", "Bytes on the wire to and from Redis"
TO_REDIS, FROM_REDIS = "to Redis", "from Redis"
PAIRS, SHORT, LONE = 500, 1.5, 0.3  # pairs; ttls for renewals in batches and alone
THREADS = 8


def sockets(_setup: Setup) -> Result:
    """How many connections there are, while one coordinator does this and that."""
    found: dict[str, dict[str, float]] = {}
    with Server() as server, redis.Redis(port=server.port) as client:
        base = connected(client)

        def note(stage: str) -> None:
            found[stage] = {CONNECTIONS: connected(client) - base}

        with leasehold.connect(server.url()) as hold:
            note("connect() was called")
            with hold.lock("one", ttl=SHORT):
                note("one thread has taken a lease")
                time.sleep(SHORT)  # until it is renewed
                note("its lease was renewed")
            _many_threads(hold)
            note(f"{THREADS} threads took leases at the same time, and are done")
        with leasehold.connect(server.url()) as hold, ThreadPoolExecutor(THREADS) as pool, hold.lock("queue", ttl=TTL):
            for _ in range(THREADS):
                pool.submit(_take, hold, "queue")
                time.sleep(0.1)  # whoever comes together with the first waiter claims for itself
            note(f"one thread holds a lock, and {THREADS} wait for it")
        asyncio.run(_on_a_loop(server.url(), note))
    return Result(stage_rows(SOCKETS, found))


def _take(hold: leasehold.Leasehold, name: str) -> None:
    with hold.lock(name, ttl=TTL):
        pass


def _many_threads(hold: leasehold.Leasehold) -> None:
    begin = threading.Barrier(THREADS)

    def run(number: int) -> None:
        begin.wait()
        for _ in range(50):
            _take(hold, f"thread-{number}")

    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(run, range(THREADS)))


async def _on_a_loop(url: str, note: Callable[[str], None]) -> None:
    async with leasehold.aio.connect(url) as hold:

        async def take(number: int) -> None:
            async with hold.lock("task", number, ttl=SHORT):
                await asyncio.sleep(SHORT)

        async with asyncio.TaskGroup() as group:
            for number in range(100):
                group.create_task(take(number))
            await asyncio.sleep(SHORT / 2 + 0.1)
            note("asyncio: 100 tasks hold leases, which were renewed")


def traffic(client: redis.Redis) -> tuple[int, int]:
    """The bytes that the server has received and sent."""
    info: Any = client.info("stats")
    return info["total_net_input_bytes"], info["total_net_output_bytes"]


def measured(client: redis.Redis, work: Callable[[], float]) -> dict[str, float]:
    """The bytes of each time that the work was done; it returns how often that was. Asking costs bytes as well."""
    first, before = traffic(client), traffic(client)
    count = work()
    after = traffic(client)
    both = [(a - b - (b - f)) / count for f, b, a in zip(first, before, after, strict=True)]
    return dict(zip((TO_REDIS, FROM_REDIS), both, strict=True))


def wire(setup: Setup) -> Result:
    """What a pair and a renewal send and receive, without the headers of TCP."""
    seconds = max(setup.effort.race_seconds * 2, 0.7)
    found: dict[str, dict[str, float]] = {}
    with (
        Server() as server,
        redis.Redis(port=server.port) as client,
        leasehold.connect(server.url()) as hold,
        Renewals().counted() as renewals,
    ):

        def pairs() -> float:
            for number in range(PAIRS):
                _take(hold, f"nightly-report-{number % 10}")
            return PAIRS

        def renewed() -> float:
            before = renewals.count
            time.sleep(seconds)  # what is sent meanwhile is counted
            return renewals.count - before

        pairs()
        found["a pair"] = measured(client, pairs)
        for name, count, ttl in (("a renewal alone", 1, LONE), ("a renewal among 1,000", 1_000, SHORT)):
            batch = [hold.lock("nightly-report", number, ttl=ttl).acquire() for number in range(count)]
            time.sleep(ttl)  # until it is renewed
            found[name] = measured(client, renewed)
            for lease in batch:
                assert lease is not None
                lease.release()
    return Result(stage_rows(WIRE, found))


PIECES = {"queue": queue, "fleet": fleet, "sockets": sockets, "wire": wire}
