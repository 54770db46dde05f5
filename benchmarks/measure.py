"""How things are measured here: interleaved rounds, the median and the spread, a table of ratios."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Mapping
from typing import NamedTuple

Run = Callable[[int], float | None]  # do it that often; a rate that it measured itself, if it did


class Usage(NamedTuple):
    """What a server has done since it was started; differences are what counts."""

    commands: int  # also those inside scripts
    requests: int  # reads from clients: a pipeline is one, and a push is none
    cpu_ms: float
    memory: int

    def since(self, before: Usage) -> Usage:
        """The difference, without the request that asked."""
        commands, requests, cpu_ms, memory = (now - then for now, then in zip(self, before, strict=True))
        return Usage(int(commands), max(int(requests) - 1, 0), cpu_ms, int(memory))


class Series:
    """One contender: a rate for each round, and what one turn cost this process."""

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


def interleave(contenders: Mapping[str, Run], count: int | Mapping[str, int], rounds: int) -> dict[str, Series]:
    """Run each contender in turn, round after round, so that whatever else the machine does hits all alike."""
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
    """How often each contender can run in that time: rounds of equal length, where rates differ twentyfold."""
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
    """A table: rate, spread, and the ratio to each base; with ``cpu`` also what a turn costs this process."""
    heads = {base: "× " + base.partition(":")[0] for base in bases}
    print(f"\n{title}")
    print(f"  {'':<44}{unit:>14}{'spread':>9}", *[f"{head:>15}" for head in heads.values()], *["   CPU µs"] * cpu)
    for name, one in series.items():
        ratios = [f"{one.median / series[base].median:>{max(len(head), 15)}.2f}" for base, head in heads.items()]
        cost = [f"{statistics.median(one.cpu_us):>9.1f}"] if cpu else []
        print(f"  {name:<44}{one.median:>14,.0f}{one.spread:>8.1f}%", *ratios, *cost)
