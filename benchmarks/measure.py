"""Measurement for all benchmarks: interleaved rounds, the median and the spread, a table of ratios."""

from __future__ import annotations

import argparse
import asyncio
import math
import statistics
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from typing import NamedTuple

Run = Callable[[int], float | None]  # runs that many times; returns the rate if it measured that itself


class Usage(NamedTuple):
    """What a server has done since it was started."""

    commands: int  # also those inside scripts
    requests: int  # reads from clients: a pipeline is one, and a push is none
    cpu_ms: float
    memory: int

    def since(self, before: Usage) -> Usage:
        """The difference, without the request that read the first numbers."""
        commands, requests, cpu_ms, memory = (now - then for now, then in zip(self, before, strict=True))
        return Usage(int(commands), max(int(requests) - 1, 0), cpu_ms, int(memory))


class Series:
    """One contender: its rate in each round, and the CPU time that one turn took in this process."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.rates: list[float] = []
        self.cpu_us: list[float] = []

    @property
    def median(self) -> float:
        """The rate of the middle round."""
        return statistics.median(self.rates)

    @property
    def spread(self) -> float:
        """Half the distance between the quartiles, in per cent of the median."""
        low, _, high = statistics.quantiles(self.rates, n=4)
        return (high - low) / 2 / self.median * 100


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


def parse_parts(parser: argparse.ArgumentParser, parts: Iterable[str]) -> argparse.Namespace:
    """The arguments of a benchmark; ``part`` is a list of those to run, all of them when none is named."""
    known = list(parts)
    parser.add_argument("part", nargs="*", help=f"which to run, of {', '.join(known)}; all when none is named")
    arguments = parser.parse_args()
    if unknown := set(arguments.part) - set(known):
        parser.error(f"unknown part: {', '.join(sorted(unknown))}")
    arguments.part = arguments.part or known
    return arguments


def interleave(contenders: Mapping[str, Run], count: int | Mapping[str, int], rounds: int) -> dict[str, Series]:
    """Run each contender in turn, round after round, so that other load on the machine affects all alike."""
    counts = dict.fromkeys(contenders, count) if isinstance(count, int) else count
    series = {name: Series(name) for name in contenders}
    for name, run in contenders.items():
        run(max(counts[name] // 10, 1))
    for _ in range(rounds):
        for name, run in contenders.items():
            cpu, began = time.process_time(), time.perf_counter()
            rate = run(counts[name])
            took = time.perf_counter() - began
            series[name].rates.append(rate or counts[name] / took)
            series[name].cpu_us.append((time.process_time() - cpu) / counts[name] * 1e6)
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


def show(title: str, unit: str, series: Mapping[str, Series], *bases: str, cpu: bool = False) -> None:
    """Print a table: rate, spread, and the ratio to each base; with ``cpu`` also the CPU time of one turn."""
    heads = {base: "× " + base.partition(":")[0] for base in bases}
    print(f"\n{title}")
    print(f"  {'':<44}{unit:>14}{'spread':>9}", *[f"{head:>15}" for head in heads.values()], *["   CPU µs"] * cpu)
    for name, one in series.items():
        ratios = [f"{one.median / series[base].median:>{max(len(head), 15)}.2f}" for base, head in heads.items()]
        cost = [f"{statistics.median(one.cpu_us):>9.1f}"] if cpu else []
        print(f"  {name:<44}{one.median:>14,.0f}{one.spread:>8.1f}%", *ratios, *cost)
