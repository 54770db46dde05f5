"""What a part of the benchmark returns: rows of figures, charts and notes, as plain data.

A row is one figure of one contender, with its ratios to named peers. The rows of one ``work`` are one table."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

Points = Sequence[tuple[float, float]]


class Figure(NamedTuple):
    """A median, and the quartiles of the rounds that it is the median of."""

    value: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Iterable[float]) -> Figure:
        """The figure of these rounds; one round has no spread."""
        many = sorted(values)
        if len(many) == 1 or math.isinf(many[-1]):
            return cls(statistics.median(many), many[0], many[-1])
        low, middle, high = statistics.quantiles(many, n=4, method="inclusive")
        return cls(middle, low, high)


@dataclass(frozen=True)
class Row:
    """One figure: what was done, by whom, how much, and how many times as much as each of the named peers."""

    work: str
    contender: str
    unit: str
    figure: Figure
    ratios: Mapping[str, Figure] = field(default_factory=dict)


def compare(work: str, unit: str, rounds: Mapping[str, Sequence[float]], *peers: str) -> list[Row]:
    """A row for each contender. A ratio is taken within a round, where both met the same load of the machine."""
    return [
        Row(work, name, unit, Figure.of(values), {peer: _ratio(values, rounds[peer]) for peer in peers})
        for name, values in rounds.items()
        if values
    ]


def _ratio(values: Sequence[float], base: Sequence[float]) -> Figure:
    return Figure.of(one / other if other else math.inf for one, other in zip(values, base, strict=True))


@dataclass(frozen=True)
class Axis:
    """One axis of a chart. Without ``ticks`` the writer chooses them."""

    label: str
    log: bool = False
    ticks: Sequence[float] = ()


@dataclass(frozen=True)
class Chart:
    """Lines over two axes; with ``steps`` each value lasts until the next, as in an ECDF."""

    name: str  # of its file
    title: str
    x: Axis
    y: Axis
    lines: Mapping[str, Points]
    steps: bool = False


def ecdf(name: str, title: str, label: str, samples: Mapping[str, Sequence[float]], points: int = 200) -> Chart:
    """The share of the samples that are not above a value. Each line is thinned out, so that the file stays small."""
    lines = {}
    for contender, values in samples.items():
        many, count = sorted(values), min(len(values), points)
        ranks = [round(number * (len(many) - 1) / max(count - 1, 1)) for number in range(count)]
        lines[contender] = [(many[rank], (rank + 1) / len(many)) for rank in ranks]
    share = Axis("share of all", ticks=(0, 0.25, 0.5, 0.75, 1))
    return Chart(name, title, Axis(label, log=True), share, lines, steps=True)


@dataclass(frozen=True)
class Result:
    """Everything that one part found."""

    rows: list[Row]
    charts: list[Chart] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def __add__(self, other: Result) -> Result:
        return Result(self.rows + other.rows, self.charts + other.charts, self.notes + other.notes)
