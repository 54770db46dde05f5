"""PrometheusObserver: what happens to leases, as metrics for prometheus-client.

    hold = leasehold.connect(url, observers=[PrometheusObserver()])

What is held now is computed at each scrape from the events before it. All observers of one registry share its metrics,
so that several coordinators can have one each.
"""

from __future__ import annotations

from collections.abc import Iterable

from leasehold._core.light_typing import Any
from leasehold.observe import metrics
from leasehold.observe.events import Event
from leasehold.observe.metrics import Gauges, SharedMetrics, SignalSafeObserver

try:
    from prometheus_client import REGISTRY, CollectorRegistry, Counter, Histogram
    from prometheus_client.core import GaugeMetricFamily, Metric
except ModuleNotFoundError as missing:
    raise ModuleNotFoundError(
        "PrometheusObserver needs prometheus-client: pip install 'leasehold[prometheus]'", name=missing.name
    ) from missing

__all__ = ["PrometheusObserver"]


class PrometheusObserver(SignalSafeObserver):
    """Counts into ``registry``, or into the one that prometheus-client uses by default."""

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        super().__init__()
        self._metrics = _metrics_of(REGISTRY if registry is None else registry)

    def handle(self, event: Event) -> None:
        self._metrics.handle(event)

    def __eq__(self, other: object) -> bool:
        """Observers of one registry are equal: where a lease and its guard have one each, a refusal is counted once."""
        return isinstance(other, PrometheusObserver) and other._metrics is self._metrics

    def __hash__(self) -> int:
        return hash(self._metrics)


class PrometheusMetrics(metrics.Metrics):
    """The metrics of one registry."""

    def __init__(self, registry: CollectorRegistry) -> None:
        super().__init__()
        self._known: dict[tuple[str, ...], Any] = {}  # ``labels()`` takes longer than all the rest
        self._counters = {
            name: Counter(f"leasehold_{name}_total", one.help, one.labels, registry=registry)
            for name, one in metrics.COUNTERS.items()
        }
        self._histograms = {
            name: Histogram(f"leasehold_{name}_seconds", one.help, ["kind"], buckets=one.buckets, registry=registry)
            for name, one in metrics.HISTOGRAMS.items()
        }
        registry.register(GaugeCollector(self.gauges))

    def count(self, counter: str, *labels: str, by: int = 1) -> None:
        key = (counter, *labels)
        series = self._known.get(key)
        if series is None:
            series = self._known[key] = self._counters[counter].labels(*labels)
        series.inc(by)

    def measure(self, histogram: str, kind: str, seconds: float) -> None:
        key = (histogram, kind, "seconds")
        series = self._known.get(key)
        if series is None:
            series = self._known[key] = self._histograms[histogram].labels(kind)
        series.observe(seconds)


class GaugeCollector:
    """Collects the gauges as they are at the moment of the scrape."""

    def __init__(self, gauges: Gauges) -> None:
        self._gauges = gauges

    def describe(self) -> Iterable[Metric]:
        """The names of the gauges, for the registry, without their values."""
        return [_family(name, gauge) for name, gauge in metrics.GAUGES.items()]

    def collect(self) -> Iterable[Metric]:
        for name, gauge in metrics.GAUGES.items():
            family = _family(name, gauge)
            for labels, value in gauge.values(self._gauges):
                family.add_metric(labels, value)
            if gauge.labels or family.samples:
                yield family


def _family(name: str, gauge: metrics.Gauge) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"leasehold_{name}", gauge.help, labels=gauge.labels)


_metrics_of = SharedMetrics(PrometheusMetrics)
