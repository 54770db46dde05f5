"""Many asyncio tasks of one process on Redis, each on a key of its own, beside the most that Redis can do.

Client and server run on two cores. The ceilings are redis-benchmark, a client in C that sends batches: single SETs, and
the pair of commands of the floor."""

from __future__ import annotations

import csv
import subprocess
from functools import partial

from benchmarks import peers
from benchmarks.parts.pairs import PAIRS, async_run, on_loop
from benchmarks.peers import COMPARE_AND_DELETE, OURS_ASYNCIO, POOL, REDIS_ASYNCIO
from benchmarks.race import AsyncPeer
from benchmarks.report.rows import Result
from benchmarks.rounds import Run, Setup, interleave, rates, sized
from benchmarks.server import Server

CONTENDERS: dict[str, AsyncPeer] = {REDIS_ASYNCIO: peers.redis_asyncio_pool, OURS_ASYNCIO: peers.ours_asyncio}
COMMANDS = 200_000  # of redis-benchmark in a round


def work(tasks: int) -> str:
    """The title of its table."""
    return f"{tasks:,} asyncio tasks, each on its own key"


def distinct_keys(setup: Setup) -> Result:
    """100 and 1,000 tasks."""
    result = Result([], notes=[f"redis.asyncio has a pool of {POOL} connections that waits; its default pool raises."])
    with Server() as server:
        for tasks in (100, 1_000):
            result += _tasks(setup, server, tasks)
    return result


def _tasks(setup: Setup, server: Server, tasks: int) -> Result:
    effort = setup.effort
    with on_loop(server, CONTENDERS) as (runner, opened):
        runs = {name: async_run(runner, locks, tasks) for name, locks in opened.items()}
        counts = sized(runs, effort.seconds * 3, tasks)
        if not effort.quick:
            ceilings: dict[str, Run] = {
                "redis-benchmark -c50 -P64, SET": partial(ceiling_set, server),
                "redis-benchmark -c50 -P64, pair": partial(ceiling_pair, server),
            }
            runs |= ceilings
            counts |= dict.fromkeys(ceilings, COMMANDS)
        series = interleave(setup, runs, counts, max(effort.rounds // 2, 2))
    return Result(rates(work(tasks), PAIRS, series, REDIS_ASYNCIO))


def ceiling_set(server: Server, count: int) -> float:
    """Single SETs."""
    return _redis_benchmark(server, count, "SET", "bench", "owner")


def ceiling_pair(server: Server, count: int) -> float:
    """redis-benchmark repeats one command, so the two halves of a pair are timed separately. The script finds nothing
    to delete."""
    claims = _redis_benchmark(server, count, "SET", "bench", "owner", "PX", "30000")
    releases = _redis_benchmark(server, count, "EVAL", COMPARE_AND_DELETE, "1", "nothing", "owner")
    return 1 / (1 / claims + 1 / releases)


def _redis_benchmark(server: Server, count: int, *command: str) -> float:
    options = ["-p", str(server.port), "-c", "50", "-P", "64", "-n", str(count), "--csv"]
    done = subprocess.run(["redis-benchmark", *options, *command], check=True, capture_output=True, text=True)
    (row,) = csv.DictReader(done.stdout.splitlines())
    return float(row["rps"])


PIECES = {"distinct-keys": distinct_keys}
