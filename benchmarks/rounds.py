"""How contenders are measured side by side: in rounds. Each runs once in a round, so other load affects all alike."""

from __future__ import annotations

import asyncio
import math
import random
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from typing import NamedTuple

from benchmarks.report.rows import Row, compare

Run = Callable[[int], float | None]  # runs that many times; returns the rate if it measured that itself
Step = Callable[[str, int, int], None]  # says what is done next, as "round" 2 of 3
Meter = Callable[[str], float]  # what this contender has used so far
CLIENT_CPU = "client CPU, µs"


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

    @property
    def few_waiters(self) -> tuple[int, ...]:
        """Where the whole range is not needed."""
        return tuple(count for count in self.waiters if count in {2, 16, 64})


FULL = Effort(11, 0.15, 4, 1.0, (2, 4, 8, 16, 32, 64), (1_000, 3_000, 10_000), 40, quick=False)
QUICK = Effort(5, 0.08, 3, 0.7, (2, 16, 64), (1_000, 10_000), 12, quick=True)
TINY = Effort(2, 0.002, 1, 0.1, (2,), (20,), 1, quick=True)  # shows that a part works, and measures nothing
EFFORTS = {"full": FULL, "quick": QUICK, "tiny": TINY}


class Setup(NamedTuple):
    """What each piece gets."""

    effort: Effort
    step: Step


class Series:
    """One contender: its rate in each round, and what one turn cost by each meter."""

    def __init__(self, meters: Iterable[str]) -> None:
        self.rates: list[float] = []
        self.costs: dict[str, list[float]] = {unit: [] for unit in meters}


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
    meters: Mapping[str, Meter] | None = None,
) -> dict[str, Series]:
    """Run each contender in turn, round after round, and read the meters before and after each run. Each round has an
    order of its own, the same in every run of the benchmarks: what a contender leaves behind in the caches and in the
    server would else always hit the same one. A contender that measures its rate itself does other things as well, so
    its costs stay empty."""
    read = {CLIENT_CPU: lambda name: time.process_time() * 1e6, **(meters or {})}
    series = {name: Series(read) for name in contenders}
    for name, run in contenders.items():
        run(max(counts[name] // 10, 1))
    for number in range(rounds):
        setup.step("round", number + 1, rounds)
        for name in random.Random(number).sample(list(contenders), len(contenders)):
            count, one, run = counts[name], series[name], contenders[name]
            before = {unit: meter(name) for unit, meter in reversed(read.items())}
            began = time.perf_counter()
            rate = run(count)
            took = time.perf_counter() - began
            one.rates.append(rate or count / took)
            for unit, meter in read.items() if rate is None else ():
                one.costs[unit].append((meter(name) - before[unit]) / count)
    return series


def sized(contenders: Mapping[str, Run], seconds: float, multiple: int = 1) -> dict[str, int]:
    """How often each contender runs in that time, so that rounds are equally long although rates differ. Its first run
    is not measured: it loads modules, connects, and would be taken for a slow one."""
    counts = {}
    for name, run in contenders.items():
        run(multiple)
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
    return rows + costs(work, CLIENT_CPU, series) if cpu else rows


def costs(work: str, unit: str, series: Mapping[str, Series], *peers: str) -> list[Row]:
    """The rows of one meter, for the contenders that it was read for."""
    return compare(work, unit, {name: one.costs[unit] for name, one in series.items() if one.costs[unit]}, *peers)
