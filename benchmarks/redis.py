"""Leasehold over Redis against the floor, redis-py and python-redis-lock: ``python -m benchmarks.redis [part ...]``.

Leases here are fenced, queued and renewed by the watchdog; the locks of redis-py and python-redis-lock are bare keys
that expire. The parts: pairs, asyncio, tasks, handoffs, renewals, memory. ``--peers`` leaves Leasehold out."""

from __future__ import annotations

import argparse
import asyncio
import csv
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, ExitStack, contextmanager
from functools import partial
from pathlib import Path

from benchmarks import many, peers
from benchmarks.measure import Run, Series, interleave, parse_parts, show, sized
from benchmarks.measure import pairs as repeated_pairs
from benchmarks.peers import COMPARE_AND_DELETE, POOL, AsyncLocks
from benchmarks.race import Peer, Result, processes, race, threads
from benchmarks.server import Server

FLOOR = "floor: bare connection, hiredis, packed"
AsyncPeer = Callable[[str], AbstractAsyncContextManager[AsyncLocks]]

# ---------------------------------------------------------------- one caller


def pairs(server: Server, with_us: bool) -> None:
    """One thread, no contention."""
    contenders: dict[str, Peer] = {
        FLOOR: peers.floor,
        "redis-py Lock": peers.redis_py,
        "python-redis-lock": peers.python_redis_lock,
    }
    if with_us:
        contenders |= {"Leasehold": peers.ours, "Leasehold, one lock object": peers.ours_reused}
    with server.one_core(), ExitStack() as stack:
        clients = {name: stack.enter_context(peer(server.url())) for name, peer in contenders.items()}
        runs = {name: repeated_pairs(partial(locks, 42)) for name, locks in clients.items()}
        series = interleave(runs, sized(runs, 0.15), 11)
    title = "One thread, client and Redis on one core: acquire and release"
    show(title, "pairs/s", series, FLOOR, "redis-py Lock", cpu=True)


# ---------------------------------------------------------------- asyncio


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


def asyncio_pairs(server: Server, with_us: bool) -> None:
    """One task, no contention."""
    contenders: dict[str, AsyncPeer] = {
        FLOOR: peers.floor_asyncio,
        "redis.asyncio Lock": peers.redis_asyncio,
    }
    if with_us:
        contenders["Leasehold, asyncio"] = peers.ours_asyncio
    with server.one_core(), on_loop(server, contenders) as (runner, clients):
        runs = {name: async_run(runner, locks) for name, locks in clients.items()}
        series = interleave(runs, sized(runs, 0.15), 11)
    title = "One asyncio task, client and Redis on one core: acquire and release"
    show(title, "pairs/s", series, FLOOR, "redis.asyncio Lock", cpu=True)


def task_pairs(server: Server, with_us: bool) -> None:
    """Many tasks, beside the most that Redis can do, with a client in C that sends batches."""
    contenders: dict[str, AsyncPeer] = {"redis.asyncio Lock": peers.redis_asyncio_pool}
    if with_us:
        contenders["Leasehold, asyncio"] = peers.ours_asyncio
    for tasks in (100, 1_000):
        with on_loop(server, contenders) as (runner, clients):
            runs = {name: async_run(runner, locks, tasks) for name, locks in clients.items()}
            counts = sized(runs, 0.4, tasks)
            ceilings = {"redis-benchmark -c50 -P64, SET": ceiling_set, "redis-benchmark -c50 -P64, pair": ceiling_pair}
            runs |= {name: partial(ceiling, server) for name, ceiling in ceilings.items()}
            series = interleave(runs, counts | dict.fromkeys(ceilings, 200_000), 5)
        title = f"{tasks:,} asyncio tasks on as many keys, two cores (redis.asyncio: a pool of {POOL} that waits)"
        show(title, "pairs/s", series, "redis.asyncio Lock")
    print("  SET: single commands/s. Pair: a SET PX, then a script that compares and finds nothing to delete.")


def ceiling_set(server: Server, count: int) -> float:
    return _redis_benchmark(server, count, "SET", "bench", "owner")


def ceiling_pair(server: Server, count: int) -> float:
    """redis-benchmark repeats one command, so the two halves of a pair are timed separately."""
    claims = _redis_benchmark(server, count, "SET", "bench", "owner", "PX", "30000")
    releases = _redis_benchmark(server, count, "EVAL", COMPARE_AND_DELETE, "1", "nothing", "owner")
    return 1 / (1 / claims + 1 / releases)


def _redis_benchmark(server: Server, count: int, *command: str) -> float:
    options = ["-p", str(server.port), "-c", "50", "-P", "64", "-n", str(count), "--csv"]
    done = subprocess.run(["redis-benchmark", *options, *command], check=True, capture_output=True, text=True)
    (row,) = csv.DictReader(done.stdout.splitlines())
    return float(row["rps"])


# ---------------------------------------------------------------- with others waiting


def handoffs(server: Server, with_us: bool, rounds: int = 3) -> None:
    """One key and a crowd: threads of one process, then processes."""
    contenders: dict[str, Peer] = {
        "python-redis-lock": peers.python_redis_lock,
        "redis-py Lock, sleep 1 ms": partial(peers.redis_py, sleep=0.001),
    }
    if with_us:
        contenders["Leasehold"] = peers.ours
    for crowd, parties in ((threads, 2), (threads, 16), (threads, 64), (processes, 2), (processes, 8)):
        results: dict[str, list[Result]] = {name: [] for name in contenders}
        with tempfile.TemporaryDirectory() as folder:
            for number in range(rounds):
                for name, peer in contenders.items():
                    server.empty()
                    place = Path(folder) / f"{name} {number}"
                    one = race(peer, server.url(), place, parties, 1.0, crowd=crowd, usage=server.usage)
                    results[name].append(one)
        _show_races(f"{parties} {crowd.__name__} on one lock, nothing done inside", results, "python-redis-lock")


def _show_races(title: str, results: dict[str, list[Result]], base: str) -> None:
    print(f"\n{title}")
    print(f"  {'':<27}{'handoffs/s':>11}{'spread':>8}{'× ' + base:>20}{'fairness':>9}", end="")
    print(f"{'p50 µs':>9}{'p99 µs':>9}{'commands':>10}{'requests':>10}")
    series = {name: Series(name) for name in results}
    for name, many_results in results.items():
        series[name].rates = [one.handoffs_per_s for one in many_results]
    for name, many_results in results.items():
        rate, fairness, *rest = (statistics.median(column) for column in zip(*many_results, strict=True))
        ratio = rate / series[base].median
        print(f"  {name:<27}{rate:>11,.0f}{series[name].spread:>7.1f}%{ratio:>20.2f}{fairness:>9.2f}", end="")
        print("{:>9,.0f}{:>9,.0f}{:>10.1f}{:>10.1f}".format(*rest))


# ----------------------------------------------------------------

PARTS: dict[str, Callable[[Server, bool], None]] = {
    "pairs": pairs,
    "asyncio": asyncio_pairs,
    "tasks": task_pairs,
    "handoffs": handoffs,
    "renewals": many.renewals,
    "memory": many.memory,
}


def main() -> None:
    """Everything, in under three minutes; progress goes to stderr."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.redis", description="Leasehold over Redis, and peers.")
    parser.add_argument("--peers", action="store_true", help="only the floor and the peers, without Leasehold")
    arguments = parse_parts(parser, PARTS)
    with Server() as server:
        for name in arguments.part:
            began = time.monotonic()
            print(f"{name} ...", end=" ", file=sys.stderr, flush=True)
            server.empty()
            PARTS[name](server, not arguments.peers)
            print(f"{time.monotonic() - began:.0f} s", file=sys.stderr)


if __name__ == "__main__":
    main()
