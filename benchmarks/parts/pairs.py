"""One caller on Redis, no contention: acquire and release, beside the floor and the locks of other libraries.

Leases here are fenced, queue-aware and renewed by the watchdog; the other locks are bare keys that expire. The floor is
``SET NX PX`` and a script that compares and deletes, as packed bytes over a bare socket. The bare pair is the same
commands sent by redis-py: what Redis needs for others is compared with it, because Redis is faster for the floor, which
leaves the caches of the processor to it. Client and Redis share one core: what is measured is work, not how long it
takes to wake another core."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack, ExitStack, contextmanager
from functools import partial

import leasehold
from benchmarks import foreign, peers
from benchmarks.peers import (
    FLOOR,
    OURS,
    OURS_ASYNCIO,
    PYTHON_REDIS_LOCK,
    RAW,
    REDIS_ASYNCIO,
    REDIS_PY,
)
from benchmarks.race import AsyncLocks, AsyncPeer, Lock, Locks, Peer
from benchmarks.report.rows import Result, compare, ecdf
from benchmarks.rounds import Meter, Run, Setup, costs, interleave, rates, sized
from benchmarks.rounds import pairs as repeated_pairs
from benchmarks.server import Server

SYNC = "One thread, client and Redis on one core"
ASYNCIO = "One asyncio task, client and Redis on one core"
LINGER = "One thread that takes the same lock again and again, one core"
LINGERING, LINGERING_REUSED = f"{OURS}, linger", f"{OURS}, linger, one lock object"
LATENCY = "How long a pair takes, one thread, one core"
PAIRS, SERVER_US, SERVER_CPU = "pairs/s", "Redis executes, µs", "Redis CPU, µs"
REQUESTS = "requests a pair"
SAMPLES = 20_000  # of a latency, at most

CONTENDERS: dict[str, Peer] = {
    FLOOR: peers.floor,
    RAW: peers.raw,
    REDIS_PY: peers.redis_py,
    PYTHON_REDIS_LOCK: peers.python_redis_lock,
    OURS: peers.ours,
    f"{OURS}, one lock object": peers.ours_reused,
}
ASYNC_CONTENDERS: dict[str, AsyncPeer] = {
    FLOOR: peers.floor_asyncio,
    REDIS_ASYNCIO: peers.redis_asyncio,
    OURS_ASYNCIO: peers.ours_asyncio,
}


def sync(setup: Setup) -> Result:
    """One thread."""
    with (
        Server() as server,
        server.one_core(),
        clients(server) as opened,
        foreign.programs(setup, server) as (programs, notes),
    ):
        runs: dict[str, Run] = {name: repeated_pairs(partial(locks, 42)) for name, locks in opened.items()}
        counts = sized(runs, setup.effort.seconds) | dict.fromkeys(programs, 1)
        runs |= {name: program.pairs for name, program in programs.items()}
        series = interleave(setup, runs, counts, setup.effort.rounds, _meters(server))
        _check_scripts(server, opened[OURS])
    rows = rates(SYNC, PAIRS, series, FLOOR, REDIS_PY, cpu=True)
    return Result(rows + costs(SYNC, SERVER_US, series, RAW) + costs(SYNC, SERVER_CPU, series, RAW), notes=notes)


def on_asyncio(setup: Setup) -> Result:
    """One task."""
    with Server() as server, server.one_core(), on_loop(server, ASYNC_CONTENDERS) as (runner, opened):
        runs = {name: async_run(runner, locks) for name, locks in opened.items()}
        counts = sized(runs, setup.effort.seconds)
        series = interleave(setup, runs, counts, setup.effort.rounds, _meters(server))
    rows = rates(ASYNCIO, PAIRS, series, FLOOR, REDIS_ASYNCIO, cpu=True)
    return Result(rows + costs(ASYNCIO, SERVER_US, series) + costs(ASYNCIO, SERVER_CPU, series))


def linger(setup: Setup) -> Result:
    """One thread, and a lease that stays with its process for a second. Fences are checked meanwhile."""
    with Server() as server, server.one_core(), ExitStack() as stack:
        opened = {
            name: stack.enter_context(peer(server.url()))
            for name, peer in {REDIS_PY: peers.redis_py, OURS: peers.ours}.items()
        }
        hold = stack.enter_context(leasehold.connect(server.url()))
        lock = hold.lock("bench", "reused", ttl=peers.TTL, linger=1)
        runs: dict[str, Run] = {name: repeated_pairs(partial(locks, 42)) for name, locks in opened.items()}
        runs[LINGERING] = _fenced_pairs(lambda: hold.lock("bench", "linger", ttl=peers.TTL, linger=1))
        runs[LINGERING_REUSED] = _fenced_pairs(lambda: lock)
        for run in runs.values():
            run(100)  # the watchdog listens by then
        counts = sized(runs, setup.effort.seconds)
        meters: dict[str, Meter] = {REQUESTS: lambda name: server.usage().requests}
        series = interleave(setup, runs, counts, setup.effort.rounds, meters)
    return Result(rates(LINGER, PAIRS, series, REDIS_PY, cpu=True) + costs(LINGER, REQUESTS, series))


def _fenced_pairs(make: Callable[[], leasehold.Lock]) -> Run:
    last = 0

    def run(count: int) -> None:
        nonlocal last
        for _ in range(count):
            with make() as lease:
                fence = lease.fence
                if fence <= last:
                    raise RuntimeError(f"the fence {fence} follows {last}")
                last = fence

    return run


def _meters(server: Server) -> dict[str, Meter]:
    """The time that Redis executes commands, and all its CPU time. Leasehold sends scripts alone; the others send SET
    as well."""
    return {
        SERVER_US: lambda name: server.execution(*([] if name.startswith(OURS) else ["set"]))[1],
        SERVER_CPU: lambda name: server.usage().cpu_ms * 1000,
    }


def _check_scripts(server: Server, locks: Locks) -> None:
    """A plain command of Leasehold would be missing from the time that Redis took for it."""
    before, _ = server.execution()
    repeated_pairs(partial(locks, 42))(100)
    scripts = server.execution()[0] - before
    if scripts != 200:
        raise RuntimeError(f"100 pairs were {scripts} scripts: name the plain commands in _meters")


# ---------------------------------------------------------------- each pair by itself


def latency(setup: Setup) -> Result:
    """One thread, and the clock is read around each pair."""
    samples: dict[str, list[float]] = {}
    percentiles: dict[str, list[tuple[float, float]]] = {}
    with Server() as server, server.one_core(), clients(server) as opened:
        timed = {name: partial(_timed, partial(locks, 42)) for name, locks in opened.items()}
        counts = sized(timed, setup.effort.seconds)
        for number in range(setup.effort.rounds):
            setup.step("round", number + 1, setup.effort.rounds)
            for name, run in timed.items():
                took_us: list[float] = []
                run(counts[name], took_us)
                percentiles.setdefault(name, []).append((_percentile(took_us, 50), _percentile(took_us, 99)))
                samples.setdefault(name, []).extend(took_us[: SAMPLES // setup.effort.rounds])
    rows = compare(LATENCY, "p50, µs", {name: [p50 for p50, _ in many] for name, many in percentiles.items()}, REDIS_PY)
    rows += compare(
        LATENCY, "p99, µs", {name: [p99 for _, p99 in many] for name, many in percentiles.items()}, REDIS_PY
    )
    return Result(rows, [ecdf("latency-alone", LATENCY, "µs for acquire and release", samples)])


def _timed(make: Callable[[], Lock], count: int, took_us: list[float] | None = None) -> None:
    took = [] if took_us is None else took_us
    clock = time.perf_counter
    for _ in range(count):
        began = clock()
        with make():
            pass
        took.append((clock() - began) * 1e6)


def _percentile(values: list[float], percent: int) -> float:
    return sorted(values)[(len(values) - 1) * percent // 100]


# ---------------------------------------------------------------- clients


@contextmanager
def clients(server: Server) -> Iterator[dict[str, Locks]]:
    """Every client, open at once."""
    with ExitStack() as stack:
        yield {name: stack.enter_context(peer(server.url())) for name, peer in CONTENDERS.items()}


@contextmanager
def on_loop(server: Server, contenders: dict[str, AsyncPeer]) -> Iterator[tuple[asyncio.Runner, dict[str, AsyncLocks]]]:
    """One event loop with every client open on it."""
    with asyncio.Runner() as runner:
        stack = AsyncExitStack()
        try:
            enter = stack.enter_async_context
            yield runner, {name: runner.run(enter(peer(server.url()))) for name, peer in contenders.items()}
        finally:
            runner.run(stack.aclose())


def async_run(runner: asyncio.Runner, locks: AsyncLocks, tasks: int = 1) -> Run:
    """So many tasks, each on a key of its own, ``count`` pairs in total."""

    async def one(number: int, turns: int) -> None:
        for _ in range(turns):
            async with locks(number):
                pass

    async def crowd(turns: int) -> None:
        await asyncio.gather(*[one(number, turns) for number in range(tasks)])

    def run(count: int) -> None:
        turns = -(-count // tasks)
        runner.run(crowd(turns) if tasks > 1 else one(0, turns))

    return run


PIECES = {"sync": sync, "asyncio": on_asyncio, "linger": linger, "latency": latency}
