"""Many who wait for one lock on Redis, nothing done inside: true handoffs, which go to another party than before.

Exclusion, the order of fences and the order of turns are checked all the time; a lock that breaks one of them fails the
run. Fairness is the most turns of a party divided by the fewest; 1 is fair."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks import foreign, peers, race
from benchmarks.peers import OURS, OURS_ASYNCIO, PYTHON_REDIS_LOCK
from benchmarks.race import COMMANDS, HANDOFFS_PER_S, WAIT_SHARES, AsyncPeer, Peer, Racer
from benchmarks.report.rows import Axis, Chart, Figure, Points, Result, Row, compare, ecdf
from benchmarks.rounds import Setup
from benchmarks.server import Server
from leasehold._core.policy import MOST_PASSES

CONTENDERS: dict[str, Peer] = {
    PYTHON_REDIS_LOCK: peers.python_redis_lock,
    "redis-py Lock, sleep 1 ms": peers.redis_py_polling,
    OURS: peers.ours,
}
TASKS = "64 tasks of one process on one lock, beside 64 threads of python-redis-lock"
PROCESSES = "8 processes on one lock"
CREWS = "8 processes with 8 threads each on one lock"
CREW_KINDS = "Leasehold, 8 processes with 8 threads each: handoffs by kind"
ACROSS, FIRST, FURTHER = "to another process", "first within a process", "further within a process"
KINDS = (ACROSS, FIRST, FURTHER)
BOUND = "64 threads of one process and 8 other processes on one lock"
LOCAL, REMOTE = range(1, 65), range(65, 73)  # the parties of the latter
VISITED = "64 threads of one process on one lock, and another process that comes now and then"
REMOTE_WAIT, LOCAL_WAIT = f"{WAIT_SHARES}, of the 8", f"{WAIT_SHARES}, of the 64"
PASSES = (MOST_PASSES // 8, MOST_PASSES // 4, MOST_PASSES // 2, MOST_PASSES, 2 * MOST_PASSES)
SUMMARY = "Handoffs/s, threads of one process on one lock"
GROWTH, GROWTH_UNIT = "Cost of more waiters", f"{COMMANDS}, 64 threads ÷ 16"


def threads_work(count: int) -> str:
    """The title of its table."""
    return f"{count} threads of one process on one lock"


def threads(setup: Setup) -> Result:
    """Threads that share a client."""
    rates: dict[str, list[tuple[float, float]]] = {}
    costs: dict[str, list[tuple[float, float]]] = {}
    summary: list[Row] = []
    details: list[Row] = []
    with Server() as server, foreign.programs(setup, server) as (programs, notes):
        racers = _racers(setup, server, race.threads)
        for count in setup.effort.waiters:
            few = count in setup.effort.few_waiters
            others: dict[str, Racer] = {name: one.race for name, one in programs.items() if not one.failed}
            found = race.compete(setup, racers | others if few else racers, count)
            rows = race.race_rows(threads_work(count), found, PYTHON_REDIS_LOCK)
            for row in rows:
                lines = {HANDOFFS_PER_S: rates, COMMANDS: costs}.get(row.unit)
                if lines is not None:
                    lines.setdefault(row.contender, []).append((count, row.figure.value))
                if row.unit == HANDOFFS_PER_S:
                    summary.append(Row(SUMMARY, row.contender, f"{count} threads", row.figure))
            if few:
                details += rows
        notes += [program.failed for program in programs.values() if program.failed]
    charts = [
        _against_waiters(
            setup, "handoffs", "Throughput against waiters: threads of one process, one lock", HANDOFFS_PER_S, rates
        ),
        _against_waiters(
            setup, "handoff-cost", "Cost against waiters: threads of one process, one lock", COMMANDS, costs
        ),
    ]
    return Result([*summary, *details, *_growth(dict(costs.get(OURS, [])))], charts, notes)


def tasks(setup: Setup) -> Result:
    """Tasks that share a client. python-redis-lock has none for asyncio, so its threads take part."""
    with Server() as server:
        racers = _racers(setup, server, race.threads, {PYTHON_REDIS_LOCK: peers.python_redis_lock})
        racers |= _racers(setup, server, race.tasks, {OURS_ASYNCIO: peers.ours_asyncio})
        found = race.compete(setup, racers, 64)
    return Result(race.race_rows(TASKS, found, PYTHON_REDIS_LOCK))


def processes(setup: Setup) -> Result:
    """Processes with a client each."""
    with Server() as server:
        found = race.compete(setup, _racers(setup, server, race.processes), 8)
    samples = {name: [took for one in many for took in one.took_us] for name, many in found.items()}
    chart = ecdf(
        "latency-handoff", f"How long a handoff takes: {PROCESSES}", "µs from release to the next acquire", samples
    )
    return Result(race.race_rows(PROCESSES, found, PYTHON_REDIS_LOCK), [chart])


def crews(setup: Setup) -> Result:
    """Processes with threads: a lease passes within each of them, and from one to the next."""
    with Server() as server:
        crowd = partial(race.processes, sizes=[8] * 8)
        found = race.compete(setup, _racers(setup, server, crowd), 64)
    rows = race.race_rows(CREWS, found, PYTHON_REDIS_LOCK)
    shares = {name: [one.wait_shares() for one in many] for name, many in found.items()}
    return Result([*rows, *compare(CREWS, WAIT_SHARES, shares), *_by_kind(found[OURS])])


def _by_kind(results: Sequence[race.Result]) -> list[Row]:
    """How long each kind of handoff takes between those crews, and its part of the time of all."""
    medians: dict[str, list[float]] = {kind: [] for kind in KINDS}
    parts: dict[str, list[float]] = {kind: [] for kind in KINDS}
    for one in results:
        took: dict[str, list[float]] = {kind: [] for kind in KINDS}
        crews = [(party - 1) // 8 for party, _ in one.waits]
        if len(crews) != len(one.took_us):
            raise RuntimeError("a party had two turns in a row: which handoff is whose cannot be told")
        for place in range(2, len(crews)):
            before, last, this = crews[place - 2 : place + 1]
            took[FURTHER if before == last == this else FIRST if last == this else ACROSS].append(one.took_us[place])
        for kind, many in took.items():
            medians[kind].append(statistics.median(many))
            parts[kind].append(100 * sum(many) / sum(one.took_us))
    return compare(CREW_KINDS, "p50, µs", medians) + compare(CREW_KINDS, "% of the time", parts)


def bounded(passes: int) -> str:
    """The contender that passes a lease so many times."""
    return f"{OURS}, {passes} passes"


def bound(setup: Setup) -> Result:
    """What those wait who are alone in their process, while a crowd passes a lease on in another."""
    contenders = {PYTHON_REDIS_LOCK: peers.python_redis_lock} | {
        bounded(passes): partial(peers.ours_bounded, passes=passes) for passes in PASSES
    }
    with Server() as server:
        crowd = partial(race.processes, sizes=[len(LOCAL), *[1] * len(REMOTE)])
        found = race.compete(setup, _racers(setup, server, crowd, contenders), len(LOCAL) + len(REMOTE))
    rows = compare(
        BOUND,
        HANDOFFS_PER_S,
        {name: [one.handoffs_per_s for one in many] for name, many in found.items()},
        PYTHON_REDIS_LOCK,
    )
    columns: dict[str, Callable[[race.Result], float]] = {
        REMOTE_WAIT: lambda one: one.wait_shares(REMOTE),
        "ms": lambda one: one.wait_shares(REMOTE) * one.share_us / 1000,
        LOCAL_WAIT: lambda one: one.wait_shares(LOCAL),
        "turns of one of the 8 ÷ one of the 64": _remote_turns,
        COMMANDS: lambda one: one.commands,
    }
    for unit, figure in columns.items():
        rows += compare(BOUND, unit, {name: [figure(one) for one in many] for name, many in found.items()})
    return Result(rows)


def visited(setup: Setup) -> Result:
    """What somebody waits who comes while a crowd has passed a lease on for long: nobody knew of others."""
    contenders = {PYTHON_REDIS_LOCK: peers.python_redis_lock} | {
        bounded(passes): partial(peers.ours_bounded, passes=passes) for passes in PASSES[1:]
    }
    visitor = [len(LOCAL) + 1]
    with Server() as server:
        crowd = partial(race.processes, sizes=[len(LOCAL), 1], run=race.run_visited)
        found = race.compete(setup, _racers(setup, server, crowd, contenders), len(LOCAL) + 1)
    rates = {name: [one.handoffs_per_s for one in many] for name, many in found.items()}
    rows = compare(VISITED, HANDOFFS_PER_S, rates, PYTHON_REDIS_LOCK)
    for percent, unit in ((50, "its wait p50, × fair share"), (99, "its wait p99, × fair share")):
        shares = {name: [one.wait_shares(visitor, percent) for one in many] for name, many in found.items()}
        rows += compare(VISITED, unit, shares)
    share_ms = {name: [one.share_us / 1000 for one in many] for name, many in found.items()}
    return Result(rows + compare(VISITED, "fair share, ms", share_ms))


def _remote_turns(one: race.Result) -> float:
    remote = sum(party in REMOTE for party, _ in one.waits)
    return (remote / len(REMOTE)) / ((len(one.waits) - remote) / len(LOCAL))


def _racers(
    setup: Setup, server: Server, crowd: Any, contenders: Mapping[str, Peer | AsyncPeer] = CONTENDERS
) -> dict[str, Racer]:
    def run(name: str, folder: Path, parties: int) -> race.Result:
        server.empty()
        return race.race(
            contenders[name],
            server.url(),
            folder,
            parties,
            setup.effort.race_seconds,
            crowd=crowd,
            usage=server.usage,
            fenced=name.startswith(OURS),
        )

    return {name: partial(run, name) for name in contenders}


def _against_waiters(setup: Setup, name: str, title: str, unit: str, lines: Mapping[str, Points]) -> Chart:
    waiters = Axis("threads that wait for the lock or hold it", log=True, ticks=setup.effort.waiters)
    return Chart(name, title, waiters, Axis(unit, log=True), lines)


def _growth(costs: dict[float, float]) -> list[Row]:
    """Few waiters take another path, so it is compared where all of them queue."""
    if 16 not in costs or 64 not in costs:
        return []
    growth = costs[64] / costs[16]
    return [Row(GROWTH, OURS, GROWTH_UNIT, Figure(growth, growth, growth))]


PIECES = {
    "threads": threads,
    "tasks": tasks,
    "processes": processes,
    "crews": crews,
    "bound": bound,
    "visited": visited,
}
