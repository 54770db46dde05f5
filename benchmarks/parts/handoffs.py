"""Many who wait for one lock on Redis, nothing done inside: true handoffs, which go to another party than before.

Exclusion, the order of fences and the order of turns are checked all the time; a lock that breaks one of them fails the
run. Fairness is the most turns of a party divided by the fewest; 1 is fair."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks import foreign, peers, race
from benchmarks.peers import OURS, PYTHON_REDIS_LOCK
from benchmarks.race import COMMANDS, HANDOFFS_PER_S, Peer, Racer
from benchmarks.report.rows import Axis, Chart, Figure, Points, Result, Row, ecdf
from benchmarks.rounds import Setup
from benchmarks.server import Server

CONTENDERS: dict[str, Peer] = {
    PYTHON_REDIS_LOCK: peers.python_redis_lock,
    "redis-py Lock, sleep 1 ms": peers.redis_py_polling,
    OURS: peers.ours,
}
PROCESSES = "8 processes on one lock"
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
        others: dict[str, Racer] = {name: program.race for name, program in programs.items()}
        for count in setup.effort.waiters:
            few = count in setup.effort.few_waiters
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
    charts = [
        _against_waiters(
            setup, "handoffs", "Throughput against waiters: threads of one process, one lock", HANDOFFS_PER_S, rates
        ),
        _against_waiters(
            setup, "handoff-cost", "Cost against waiters: threads of one process, one lock", COMMANDS, costs
        ),
    ]
    return Result([*summary, *details, *_growth(dict(costs.get(OURS, [])))], charts, notes)


def processes(setup: Setup) -> Result:
    """Processes with a client each."""
    with Server() as server:
        found = race.compete(setup, _racers(setup, server, race.processes), 8)
    samples = {name: [took for one in many for took in one.took_us] for name, many in found.items()}
    chart = ecdf(
        "latency-handoff", f"How long a handoff takes: {PROCESSES}", "µs from release to the next acquire", samples
    )
    return Result(race.race_rows(PROCESSES, found, PYTHON_REDIS_LOCK), [chart])


def _racers(setup: Setup, server: Server, crowd: Any) -> dict[str, Racer]:
    def run(name: str, folder: Path, parties: int) -> race.Result:
        server.empty()
        return race.race(
            CONTENDERS[name],
            server.url(),
            folder,
            parties,
            setup.effort.race_seconds,
            crowd=crowd,
            usage=server.usage,
            fenced=name == OURS,
        )

    return {name: partial(run, name) for name in CONTENDERS}


def _against_waiters(setup: Setup, name: str, title: str, unit: str, lines: Mapping[str, Points]) -> Chart:
    waiters = Axis("threads that wait for the lock or hold it", log=True, ticks=setup.effort.waiters)
    return Chart(name, title, waiters, Axis(unit, log=True), lines)


def _growth(costs: dict[float, float]) -> list[Row]:
    """Few waiters take another path, so it is compared where all of them queue."""
    if 16 not in costs or 64 not in costs:
        return []
    growth = costs[64] / costs[16]
    return [Row(GROWTH, OURS, GROWTH_UNIT, Figure(growth, growth, growth))]


PIECES = {"threads": threads, "processes": processes}
