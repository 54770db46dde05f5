"""A Prometheus exposition as it is scraped: its samples, sums over labels, and quantiles of histograms."""

from __future__ import annotations

import math
import re
from typing import NamedTuple

from leasehold.advice.samples import LABEL, TEXT
from leasehold.errors import InvalidRequest

# A name, perhaps labels, a value, perhaps a time stamp, perhaps an exemplar.
SAMPLE = re.compile(rf'([a-zA-Z_:][\w:]*)\s*(?:\{{((?:[^"}}]|{TEXT})*)\}})?\s*([^\s#]+)(?:\s+[^\s#]\S*)?(?:\s+#.*)?')
ABOUT = re.compile(r"#\s+(?:HELP|TYPE)\s+([a-zA-Z_:][\w:]*)")


class Sample(NamedTuple):
    name: str
    labels: dict[str, str]
    value: float


class Exposition:
    """The samples of one scrape, or of several one after the other. Raises InvalidRequest for what is none."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.samples = [
            _sample(number, line.strip())
            for number, line in enumerate(text.splitlines(), 1)
            if line.strip() and not line.lstrip().startswith("#")
        ]
        described = {found[1] for line in text.splitlines() if (found := ABOUT.match(line.strip()))}
        self.names = described | {one.name for one in self.samples}
        if not self.names:
            raise InvalidRequest("there are no metrics in it: give the text that Prometheus scrapes")

    def has(self, name: str) -> bool:
        """Whether there is such a metric, also when nothing was counted yet. OpenMetrics describes a counter without
        ``_total``."""
        return name in self.names or name.removesuffix("_total") in self.names

    def value(self, name: str, **labels: str) -> float | None:
        """The sum over all samples with these labels; None where there is none."""
        found = self._with(name, labels)
        return sum(one.value for one in found) if found else None

    def total(self, name: str, **labels: str) -> float:
        """The same, where none is 0."""
        return self.value(name, **labels) or 0.0

    def by_kind(self, name: str, **labels: str) -> dict[str, float]:
        """The sum for each kind, where it is above 0."""
        sums: dict[str, float] = {}
        for one in self._with(name, labels):
            kind = one.labels.get("kind", "")
            sums[kind] = sums.get(kind, 0.0) + one.value
        return {kind: value for kind, value in sums.items() if value > 0}

    def quantile(self, histogram: str, share: float, **labels: str) -> float | None:
        """The upper bound of the bucket that it is in; infinite beyond the last; None where nothing was counted."""
        bounds = self._bounds(histogram, labels)
        total = bounds.get(math.inf, 0.0)
        if not total > 0:  # nor is it for NaN, which a program may expose
            return None
        return min(bound for bound, count in bounds.items() if count >= share * total)

    def share_above(self, histogram: str, value: float, **labels: str) -> float:
        """The part of the values that is certain to be above this one. A bucket that goes beyond it is not counted:
        what is in it may be below."""
        bounds = self._bounds(histogram, labels)
        total = bounds.get(math.inf, 0.0)
        if not total > 0:
            return 0.0
        return (total - min((bound, count) for bound, count in bounds.items() if bound >= value)[1]) / total

    def count(self, histogram: str, **labels: str) -> float:
        """How many values it has."""
        return self.total(f"{histogram}_bucket", **labels, le="+Inf")

    def _bounds(self, histogram: str, labels: dict[str, str]) -> dict[float, float]:
        """How many values are at most each bound."""
        bounds: dict[float, float] = {}
        for one in self._with(f"{histogram}_bucket", labels):
            bound = _bound(one)
            if not math.isnan(bound):
                bounds[bound] = bounds.get(bound, 0.0) + one.value
        return bounds

    def _with(self, name: str, labels: dict[str, str]) -> list[Sample]:
        return [one for one in self.samples if one.name == name and labels.items() <= one.labels.items()]


def _bound(bucket: Sample) -> float:
    """NaN where it says none."""
    try:
        return float(bucket.labels["le"])
    except (LookupError, ValueError):
        return math.nan


def _sample(number: int, line: str) -> Sample:
    found = SAMPLE.fullmatch(line)
    try:
        value = float(found[3] if found else "")
    except ValueError:
        raise InvalidRequest(f"line {number} is no sample of a Prometheus exposition") from None
    assert found is not None  # noqa: S101  # for type checkers: no match has no value
    return Sample(found[1], dict(LABEL.findall(found[2] or "")), value)
