"""More than one Redis: Redlock beside others that implement it, and what Sentinel and Cluster cost beside one server.

Redlock runs over five servers, once directly and once with 5 ms added to the round trip of each link, where the number
of round trips is what counts. The servers are too young to be believed for ``max_ttl``, so that is short here."""

from __future__ import annotations

import asyncio
import statistics
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, ExitStack, asynccontextmanager, contextmanager
from typing import Any, NamedTuple

import redis

import leasehold
from benchmarks.race import Lock
from benchmarks.report.rows import Result, Row, compare
from benchmarks.rounds import Run, Setup, awaited, interleave, pairs, rates, sized
from benchmarks.server import Server, one_core
from tests.support.servers.cluster import RedisCluster
from tests.support.servers.proxy import Proxy
from tests.support.servers.sentinel import RedisSentinel

NODES = 5
TTL = 2  # seconds
DELAY = 0.005  # seconds that a link adds to a round trip
DIRECT, FAR = "Redlock over 5 servers", "Redlock over 5 servers, 5 ms away"
CLUSTER, TASKS, SENTINEL = "A Cluster of 3 masters", "1,000 asyncio tasks on 3 masters", "A primary with Sentinels"
FAILOVER = "The first grant after a primary was killed"
OURS, OURS_ASYNCIO = "Leasehold", "Leasehold, asyncio"
POTTERY, REDLOCK_PY, AIOREDLOCK = "pottery", "redlock-py", "aioredlock"
PAIRS, MS, ROUND_TRIPS = "pairs/s", "ms to acquire", "round trips"
SERVER_CPU = "CPU of all servers, µs"
ONE = "one server"
PING = "a bare PING"
FAILOVERS, FEW_FAILOVERS = 20, 3


class Places(NamedTuple):
    """The nodes of a Redlock."""

    ports: list[int]

    @property
    def url(self) -> str:
        """For Leasehold."""
        return "redlock://" + ",".join(f"127.0.0.1:{port}" for port in self.ports) + f"?max_ttl={TTL}"


@contextmanager
def nodes(far: bool) -> Iterator[Places]:
    """Five servers, behind slow links or not, once they are believed."""
    with ExitStack() as stack:
        ports = [stack.enter_context(Server()).port for _ in range(NODES)]
        if far:
            links = [stack.enter_context(Proxy(port)) for port in ports]
            for link in links:
                link.delay(requests=DELAY / 2, replies=DELAY / 2)
            ports = [link.port for link in links]
        with leasehold.connect(Places(ports).url) as hold:  # leaves its mark, from which on the servers count
            until = time.monotonic() + 60
            while True:
                try:
                    hold.lock("first", ttl=TTL).acquire()
                    break
                except leasehold.StoreUnavailable:
                    if time.monotonic() > until:
                        raise
                    time.sleep(0.2)  # until the servers are old enough to count
        time.sleep(2)  # a new connection reads how long a server is up in whole seconds
        yield Places(ports)


# ---------------------------------------------------------------- contenders


@contextmanager
def ours(places: Places) -> Iterator[Callable[[], Lock]]:
    with leasehold.connect(places.url) as hold:
        yield lambda: hold.lock("bench", 1, ttl=TTL)


@contextmanager
def pottery(places: Places) -> Iterator[Callable[[], Lock]]:
    from pottery import Redlock

    with ExitStack() as stack:
        masters = {stack.enter_context(redis.Redis(port=port)) for port in places.ports}
        yield lambda: Redlock(key="pottery", masters=masters, auto_release_time=TTL)


@contextmanager
def redlock_py(places: Places) -> Iterator[Callable[[], Lock]]:
    from redlock import Redlock  # type: ignore[import-untyped]  # redlock-py has no types

    manager = Redlock([{"host": "127.0.0.1", "port": port} for port in places.ports])

    @contextmanager
    def lock() -> Iterator[Any]:
        held = manager.lock("redlock-py", TTL * 1000)
        if not held:
            raise RuntimeError("redlock-py did not get its lock")
        yield held
        manager.unlock(held)

    yield lock


@asynccontextmanager
async def ours_asyncio(places: Places) -> AsyncIterator[Callable[[], AbstractAsyncContextManager[Any]]]:
    async with leasehold.aio.connect(places.url) as hold:
        yield lambda: hold.lock("bench", 2, ttl=TTL)


@asynccontextmanager
async def aioredlock(places: Places) -> AsyncIterator[Callable[[], AbstractAsyncContextManager[Any]]]:
    from aioredlock import Aioredlock  # type: ignore[import-untyped]  # it has no types

    manager = Aioredlock([("127.0.0.1", port) for port in places.ports])

    @asynccontextmanager
    async def lock() -> AsyncIterator[Any]:
        held = await manager.lock("aioredlock", lock_timeout=TTL)
        yield held
        await manager.unlock(held)

    yield lock
    await manager.destroy()


SYNC = {POTTERY: pottery, REDLOCK_PY: redlock_py, OURS: ours}
ASYNC = {AIOREDLOCK: aioredlock, OURS_ASYNCIO: ours_asyncio}


# ---------------------------------------------------------------- Redlock


def redlock(setup: Setup) -> Result:
    """Directly, and from far away."""
    rows = []
    for work, far in ((DIRECT, False), (FAR, True)):
        with nodes(far) as places, asyncio.Runner() as runner, ExitStack() as stack:
            runs: dict[str, Run] = {name: pairs(stack.enter_context(peer(places))) for name, peer in SYNC.items()}
            for name, async_peer in ASYNC.items():
                opened = async_peer(places)
                make = runner.run(opened.__aenter__())
                stack.callback(lambda opened=opened: runner.run(opened.__aexit__(None, None, None)))  # type: ignore[misc]  # a lambda's default
                runs[name] = awaited(runner, lambda make=make: _use(make))  # type: ignore[misc]  # the same
            counts = sized(runs, setup.effort.seconds * 2)
            series = interleave(setup, runs, counts, setup.effort.rounds)
            rows += rates(work, PAIRS, series, POTTERY, REDLOCK_PY, AIOREDLOCK, cpu=True)
            if not far:
                rows += compare(work, SERVER_CPU, _server_cpu_us(places, runs, counts, setup.effort.rounds))
            rows += _round_trips(work, places, max(setup.effort.rounds, 2))
    return Result(rows)


def _round_trips(work: str, places: Places, rounds: int) -> list[Row]:
    """How long an acquire takes, in ms and in round trips of a PING over such a link. Where the servers are near, most
    of it is the work of client and servers."""
    with leasehold.connect(places.url) as hold:
        _acquire_ms(hold)  # connects
        took = [_acquire_ms(hold) for _ in range(rounds)]
    trip = _round_trip_ms(places.ports[0])
    return [
        *compare(work, MS, {OURS: took}),
        *compare(work, MS, {PING: [trip]}),
        *compare(work, ROUND_TRIPS, {OURS: [one / trip for one in took]}),
    ]


def _server_cpu_us(places: Places, runs: dict[str, Run], counts: dict[str, int], rounds: int) -> dict[str, list[float]]:
    """What a pair costs all servers together."""
    found: dict[str, list[float]] = {name: [] for name in runs}
    with ExitStack() as stack:
        clients = [stack.enter_context(redis.Redis(port=port)) for port in places.ports]

        def used() -> float:
            fields: list[Any] = [client.info("cpu") for client in clients]
            return float(sum(one["used_cpu_user"] + one["used_cpu_sys"] for one in fields))

        for _ in range(rounds):
            for name, run in runs.items():
                before = used()
                run(counts[name])
                found[name].append((used() - before) * 1_000_000 / counts[name])
    return found


def _round_trip_ms(port: int) -> float:
    """Of a bare PING over such a link, which adds more than it is told to."""
    took = []
    with redis.Redis(port=port) as client:
        for _ in range(20):
            began = time.perf_counter()
            client.ping()
            took.append((time.perf_counter() - began) * 1000)
    return statistics.median(took)


async def _use(make: Callable[[], AbstractAsyncContextManager[Any]]) -> None:
    async with make():
        pass


def _acquire_ms(hold: leasehold.Leasehold) -> float:
    began = time.perf_counter()
    lease = hold.lock("far", ttl=TTL).acquire()
    took = (time.perf_counter() - began) * 1000
    if lease is None:
        raise RuntimeError("the lock was not free")
    lease.release()
    return took


# ---------------------------------------------------------------- Cluster and Sentinel


def _beside_one(setup: Setup, work: str, one: str, url: str, servers: list[int]) -> Result:
    """One thread's pairs there, beside those on one server, all on one core."""
    with one_core(*servers), leasehold.connect(one) as alone, leasehold.connect(url) as hold:
        runs = {
            ONE: pairs(lambda: alone.lock("bench", 1)),
            work: pairs(lambda: hold.lock("bench", 1)),
        }
        series = interleave(setup, runs, sized(runs, setup.effort.seconds), setup.effort.rounds)
    return Result(rates(work, PAIRS, series, ONE, cpu=True))


def cluster(setup: Setup) -> Result:
    """Pairs of one thread; and many tasks, whose locks are on all masters."""
    with RedisCluster(3) as there:
        url = f"redis+cluster://127.0.0.1:{there.port}"
        with Server() as server:
            pids = [server.pid, *[node.pid for node in there.nodes]]
            result = _beside_one(setup, CLUSTER, server.url(), url, pids)
            with asyncio.Runner() as runner:
                places = {ONE: server.url(), CLUSTER: url}
                runs = {name: _tasks(runner, place) for name, place in places.items()}
                series = interleave(setup, runs, dict.fromkeys(runs, 1_000), max(setup.effort.rounds // 2, 2))
        return result + Result(rates(TASKS, PAIRS, series, ONE, cpu=True))


def _tasks(runner: asyncio.Runner, url: str) -> Run:
    async def run(count: int) -> float:
        async with leasehold.aio.connect(url) as hold:

            async def use(number: int) -> None:
                async with hold.lock("bench", number):
                    pass

            await asyncio.gather(*[use(number) for number in range(count)])  # connects
            began = time.perf_counter()
            await asyncio.gather(*[use(number) for number in range(count)])
            return count / (time.perf_counter() - began)

    return lambda count: runner.run(run(count))


def sentinel(setup: Setup) -> Result:
    """Pairs of one thread, beside those on the same primary without asking Sentinels."""
    with RedisSentinel(clocks=False) as there:
        return _beside_one(setup, SENTINEL, there.primary.url, there.url, [server.pid for server in there.servers])


def failover(setup: Setup) -> Result:
    """From SIGKILL to the next grant, for a thread that tries again and again. Sentinels wait for a second until they
    believe that a primary is down."""
    count = FEW_FAILOVERS if setup.effort.quick else FAILOVERS
    took: list[float] = []
    with RedisSentinel(clocks=False) as there:
        for number in range(count):
            setup.step("failover", number + 1, count)
            there.settle()
            took.append(_first_grant_ms(there, number))
    rows = compare(FAILOVER, "ms, p50", {OURS: [statistics.median(took)]})
    return Result(rows + compare(FAILOVER, "ms, worst", {OURS: [max(took)]}))


def _first_grant_ms(there: RedisSentinel, number: int) -> float:
    with leasehold.connect(there.url) as hold:
        with hold.lock("before", number, ttl=5):
            pass
        old = there.primary
        began = time.perf_counter()
        killing = threading.Thread(target=old.kill)
        killing.start()
        killing.join()
        while True:
            try:
                lease = hold.lock("after", number, ttl=5, wait=5).acquire()
            except leasehold.LeaseholdError:
                continue
            if lease is not None:
                break
        took = (time.perf_counter() - began) * 1000
        lease.release()
    there.await_another(old)
    old.start()
    return took


PIECES = {"redlock": redlock, "cluster": cluster, "sentinel": sentinel, "failover": failover}
