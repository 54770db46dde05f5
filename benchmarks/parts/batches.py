"""A hundred independent leases: ``acquire_many`` and ``release_many`` beside an acquire and a release for each.

On one machine a round trip costs little more than the work that the store does for a lease, so what a batch saves there
is small and bounded. Behind a link round trips are most of the time, and that is what batches are for. What the link
takes is measured, too, as a bare PING."""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import redis

import leasehold
from benchmarks.report.rows import Result, compare
from benchmarks.rounds import Run, Setup, interleave, rates, sized
from benchmarks.server import Server
from tests.support.servers.proxy import Proxy

COUNT = 100
DELAY = 0.002  # seconds that the link adds to a round trip: it delays by whole milliseconds each way
NEAR = "100 leases on Redis, one core"
FAR = "100 leases on Redis, 2 ms away"
SQLITE = "100 leases on SQLite"
MEMORY = "100 leases in memory"
ONE_BY_ONE, TOGETHER = "one by one", "acquire_many, release_many"
ASYNC_ONE_BY_ONE, ASYNC_TOGETHER = "asyncio, one by one", "asyncio, acquire_many, release_many"
ACQUIRED, PAIRS, ROUND_TRIPS = "leases acquired/s", "pairs/s", "round trips for 100 pairs"


def one_by_one(hold: leasehold.Leasehold) -> tuple[list[Any], Callable[[], object]]:
    """The leases, and what releases them."""
    leases: list[Any] = [hold.lock("bench", number, ttl=30).acquire(wait=0) for number in range(COUNT)]
    return leases, lambda: [lease.release() for lease in leases]


def together(hold: leasehold.Leasehold) -> tuple[list[Any], Callable[[], object]]:
    """The same in one batch."""
    batch = hold.acquire_many([hold.lock("bench", number, ttl=30) for number in range(COUNT)])
    return list(batch), lambda: hold.release_many(batch)


async def one_by_one_async(hold: leasehold.AsyncLeasehold) -> None:
    """The same, awaited one after the other, and released."""
    leases: list[Any] = [await hold.lock("bench", number, ttl=30).acquire(wait=0) for number in range(COUNT)]
    for lease in leases:
        await lease.release()


async def together_async(hold: leasehold.AsyncLeasehold) -> None:
    """The same in one batch."""
    batch = await hold.acquire_many([hold.lock("bench", number, ttl=30) for number in range(COUNT)])
    await hold.release_many(batch)


WAYS = {ONE_BY_ONE: one_by_one, TOGETHER: together}
ASYNC_WAYS = {ASYNC_ONE_BY_ONE: one_by_one_async, ASYNC_TOGETHER: together_async}


def hundreds(hold: leasehold.Leasehold, name: str, seconds: list[float] | None = None) -> Run:
    """A hundred leases are acquired and released so many times. ``seconds`` gets how long acquiring them took."""

    def run(count: int) -> float:
        began = time.perf_counter()
        for _ in range(count):
            before = time.perf_counter()
            leases, release = WAYS[name](hold)
            if seconds is not None:
                seconds.append(time.perf_counter() - before)
            if None in leases:
                raise RuntimeError("a lock that nobody holds was refused")
            release()
        return COUNT * count / (time.perf_counter() - began)

    return run


def awaited_hundreds(runner: asyncio.Runner, hold: leasehold.AsyncLeasehold, name: str) -> Run:
    """The same on an event loop."""

    async def many(count: int) -> None:
        for _ in range(count):
            await ASYNC_WAYS[name](hold)

    def run(count: int) -> float:
        began = time.perf_counter()
        runner.run(many(count))
        return COUNT * count / (time.perf_counter() - began)

    return run


def compared(setup: Setup, work: str, hold: leasehold.Leasehold, runs: dict[str, Run] | None = None) -> Result:
    """Both ways in turns: pairs, and of these how fast the leases were acquired."""
    took: dict[str, list[float]] = {name: [] for name in WAYS}
    contenders = {name: hundreds(hold, name, took[name]) for name in WAYS} | (runs or {})
    counts = sized(contenders, setup.effort.seconds)
    series = interleave(setup, contenders, counts, setup.effort.rounds)
    rows = rates(work, PAIRS, {name: series[name] for name in WAYS}, ONE_BY_ONE)
    if runs:
        rows += rates(work, PAIRS, {name: series[name] for name in runs}, ASYNC_ONE_BY_ONE)
    acquired = {name: [COUNT / one for one in took[name][-setup.effort.rounds :]] for name in WAYS}
    return Result([*rows, *compare(work, ACQUIRED, acquired, ONE_BY_ONE)])


@contextmanager
def on_loop(url: str) -> Iterator[dict[str, Run]]:
    """The contenders of asyncio."""
    with asyncio.Runner() as runner:
        hold = leasehold.aio.connect(url)
        try:
            yield {name: awaited_hundreds(runner, hold, name) for name in ASYNC_WAYS}
        finally:
            runner.run(hold.close())


def near(setup: Setup) -> Result:
    """Client and Redis on one core: what is measured is work."""
    with (
        Server() as server,
        server.one_core(),
        leasehold.connect(server.url()) as hold,
        on_loop(server.url()) as runs,
    ):
        result = compared(setup, NEAR, hold, runs)
        trips = {name: [float(_round_trips(server, hold, name))] * 2 for name in WAYS}
    return Result([*result.rows, *compare(NEAR, ROUND_TRIPS, trips)])


def _round_trips(server: Server, hold: leasehold.Leasehold, name: str) -> int:
    """Reads of the server while a hundred leases are acquired and released: none is larger than what it reads at
    once, so a batch may be several."""
    before = server.usage()
    hundreds(hold, name)(1)
    return server.usage().since(before).requests


def far(setup: Setup) -> Result:
    """Redis behind a link."""
    with Server() as server, Proxy(server.port) as link:
        link.delay(DELAY / 2, DELAY / 2)
        with leasehold.connect(link.url) as hold, redis.Redis(port=int(link.port)) as client:
            client.ping()
            pings = []
            for _ in range(setup.effort.rounds):
                before = time.perf_counter()
                client.ping()
                pings.append((time.perf_counter() - before) * 1000)
            result = compared(setup, FAR, hold)
    return Result([*result.rows, *compare(FAR, "a bare PING, ms", {"the link": pings})])


def sqlite(setup: Setup) -> Result:
    """The embedded store: one transaction for all."""
    with tempfile.TemporaryDirectory() as folder, leasehold.connect(f"sqlite:///{folder}/leases.db") as hold:
        return compared(setup, SQLITE, hold)


def memory(setup: Setup) -> Result:
    """Without any store to reach: what the batch itself costs."""
    with leasehold.connect("memory://batches") as hold:
        return compared(setup, MEMORY, hold)


PIECES = {"near": near, "far": far, "sqlite": sqlite, "memory": memory}
