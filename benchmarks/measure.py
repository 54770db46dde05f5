"""How things are measured here: interleaved rounds, the median and the spread, a table of ratios."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable


class Series:
    """One contender: a rate for each round."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.rates: list[float] = []

    @property
    def median(self) -> float:
        """The rate of the middle round."""
        return statistics.median(self.rates)

    @property
    def spread(self) -> float:
        """Half the distance between the quartiles, in per cent of the median."""
        low, _, high = statistics.quantiles(self.rates, n=4)
        return (high - low) / 2 / self.median * 100


def interleave(contenders: dict[str, Callable[[int], None]], count: int, rounds: int) -> dict[str, Series]:
    """Run each contender in turn, round after round, so that whatever else the machine does hits all alike."""
    series = {name: Series(name) for name in contenders}
    for run in contenders.values():
        run(max(count // 10, 1))
    for _ in range(rounds):
        for name, run in contenders.items():
            began = time.perf_counter()
            run(count)
            series[name].rates.append(count / (time.perf_counter() - began))
    return series


def show(title: str, unit: str, series: dict[str, Series], base: str) -> None:
    """A table: rate, spread, and the ratio to ``base``."""
    print(f"\n{title}")
    print(f"  {'':<44}{unit:>14}{'spread':>9}{'× ' + base:>16}")
    for name, one in series.items():
        ratio = one.median / series[base].median
        print(f"  {name:<44}{one.median:>14,.0f}{one.spread:>8.1f}%{ratio:>16.2f}")
