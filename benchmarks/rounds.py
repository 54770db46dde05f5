"""How contenders are measured side by side: in rounds. Each runs once in a round, so other load affects all alike."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractContextManager
from typing import NamedTuple

from benchmarks.progress import Progress
from benchmarks.report.rows import Row, compare

Run = Callable[[int], float | None]  # runs that many times; returns the rate if it measured that itself


class Effort(NamedTuple):
    """How long everything is measured."""

    rounds: int  # of a comparison
    seconds: float  # of one contender in one round
    races: int  # rounds of a comparison in which many wait for one lock
    race_seconds: float
    waiters: tuple[int, ...]  # in one process
    leases: tuple[int, ...]  # held at once
    starts: int  # of a program
    quick: bool  # leave out contenders that are slow, or slow to build


FULL = Effort(11, 0.15, 5, 1.5, (2, 4, 8, 16, 32, 64), (1_000, 3_000, 10_000), 40, quick=False)
QUICK = Effort(5, 0.08, 3, 0.7, (2, 16, 64), (1_000, 10_000), 12, quick=True)
TINY = Effort(2, 0.002, 1, 0.1, (2,), (20,), 1, quick=True)  # shows that a part works, and measures nothing


class Setup(NamedTuple):
    """What each part gets."""

    effort: Effort
    progress: Progress


class Series:
    """One contender: its rate in each round, and the CPU time that one turn took here and in the server."""

    def __init__(self) -> None:
        self.rates: list[float] = []
        self.cpu_us: list[float] = []
        self.server_us: list[float] = []


def repeated(call: Callable[[], object]) -> Run:
    """Calls it again and again."""

    def run(count: int) -> None:
        for _ in range(count):
            call()

    return run


def awaited(runner: asyncio.Runner, call: Callable[[], Awaitable[object]]) -> Run:
    """The same on an event loop."""

    async def run(count: int) -> None:
        for _ in range(count):
            await call()

    return lambda count: runner.run(run(count))


def pairs(make: Callable[[], AbstractContextManager[object]]) -> Run:
    """Enters and leaves a new lock object again and again, as people write it."""

    def run(count: int) -> None:
        for _ in range(count):
            with make():
                pass

    return run


def measure(setup: Setup, contenders: Mapping[str, Run], seconds: float = 0.0) -> dict[str, Series]:
    """Rounds of equal length for each contender, as many as the setup says."""
    counts = sized(contenders, seconds or setup.effort.seconds)
    return interleave(setup, contenders, counts, setup.effort.rounds)


def interleave(
    setup: Setup,
    contenders: Mapping[str, Run],
    counts: Mapping[str, int],
    rounds: int,
    server_us: Callable[[str], float] = lambda name: 0.0,
) -> dict[str, Series]:
    """Run each contender in turn, round after round. ``server_us`` is read around each run: the time that the server
    has spent on commands of this contender. CPU times stay empty for a contender that measures itself."""
    series = {name: Series() for name in contenders}
    for name, run in contenders.items():
        run(max(counts[name] // 10, 1))
    for number in range(rounds):
        setup.progress.step("round", number + 1, rounds)
        for name, run in contenders.items():
            count, one, spent = counts[name], series[name], server_us(name)
            cpu, began = time.process_time(), time.perf_counter()
            rate = run(count)
            took, cpu = time.perf_counter() - began, time.process_time() - cpu
            one.rates.append(rate or count / took)
            if rate is None:
                one.cpu_us.append(cpu / count * 1e6)
                one.server_us.append((server_us(name) - spent) / count)
    return series


def sized(contenders: Mapping[str, Run], seconds: float, multiple: int = 1) -> dict[str, int]:
    """How often each contender runs in that time, so that rounds are equally long although rates differ."""
    counts = {}
    for name, run in contenders.items():
        count, took = multiple, 0.0
        while took < seconds / 10:
            count *= 2
            began = time.perf_counter()
            run(count)
            took = time.perf_counter() - began
        counts[name] = math.ceil(count * seconds / took / multiple) * multiple
    return counts


def rates(work: str, unit: str, series: Mapping[str, Series], *peers: str, cpu: bool = False) -> list[Row]:
    """The rows of a comparison: rates with their ratios and, with ``cpu``, the CPU time of one turn."""
    rows = compare(work, unit, {name: one.rates for name, one in series.items()}, *peers)
    if cpu:
        rows += compare(work, "client CPU, µs", {name: one.cpu_us for name, one in series.items()})
    return rows
