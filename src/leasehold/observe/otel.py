"""OpenTelemetryObserver: what happens to leases, as metrics and spans of OpenTelemetry.

    hold = leasehold.connect(url, observers=[OpenTelemetryObserver()])

The metrics are those of ``PrometheusObserver`` under the names that OpenTelemetry uses: an exporter for Prometheus
turns them into the same series. The spans are made by ``leasehold.observe.spans``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from leasehold.observe import metrics
from leasehold.observe.events import Event
from leasehold.observe.metrics import SharedMetrics, SignalSafeObserver

try:
    from opentelemetry.metrics import CallbackOptions, MeterProvider, Observation, get_meter_provider
    from opentelemetry.trace import TracerProvider, get_tracer_provider
except ModuleNotFoundError as missing:
    raise ModuleNotFoundError(
        "OpenTelemetryObserver needs opentelemetry-api: pip install 'leasehold[otel]'", name=missing.name
    ) from missing

from leasehold.observe.spans import Spans

__all__ = ["OpenTelemetryObserver"]

SCOPE = "leasehold"


class OpenTelemetryObserver(SignalSafeObserver):
    """Metrics for ``meter_provider`` and spans for ``tracer_provider``, or for those that the program has set."""

    wants_holder = True  # the span of a wait is linked to the holder's

    def __init__(
        self, tracer_provider: TracerProvider | None = None, meter_provider: MeterProvider | None = None
    ) -> None:
        super().__init__()
        self._traced = get_tracer_provider() if tracer_provider is None else tracer_provider
        self._metrics = _metrics_of(get_meter_provider() if meter_provider is None else meter_provider)
        self._spans = Spans(self._traced.get_tracer(SCOPE))

    def handle(self, event: Event) -> None:
        self._metrics.handle(event)
        self._spans.handle(event)

    def carry(self, number: int) -> Mapping[str, str]:
        """The context of the span around the lease, for those that will wait for it."""
        return self._spans.carry(number)

    def __eq__(self, other: object) -> bool:
        """Observers of the same providers are equal, as with ``PrometheusObserver``."""
        if not isinstance(other, OpenTelemetryObserver):
            return False
        return other._metrics is self._metrics and other._traced is self._traced

    def __hash__(self) -> int:
        return hash((id(self._metrics), id(self._traced)))


class OpenTelemetryMetrics(metrics.Metrics):
    """The metrics of one provider. ``leasehold.acquire`` here is ``leasehold_acquire_total`` in Prometheus."""

    def __init__(self, provider: MeterProvider) -> None:
        super().__init__()
        meter = provider.get_meter(SCOPE)
        self._counters = {
            name: meter.create_counter(f"leasehold.{name}", "{event}", one.help)
            for name, one in metrics.COUNTERS.items()
        }
        self._histograms = {
            name: meter.create_histogram(
                f"leasehold.{name}", "s", one.help, explicit_bucket_boundaries_advisory=one.buckets
            )
            for name, one in metrics.HISTOGRAMS.items()
        }
        for name, gauge in metrics.GAUGES.items():
            make = meter.create_observable_up_down_counter if gauge.summed else meter.create_observable_gauge
            make(f"leasehold.{name.removesuffix('_seconds')}", [_observed(gauge, self.gauges)], gauge.unit, gauge.help)

    def count(self, counter: str, *labels: str, by: int = 1) -> None:
        self._counters[counter].add(by, dict(zip(metrics.COUNTERS[counter].labels, labels, strict=True)))

    def measure(self, histogram: str, kind: str, seconds: float) -> None:
        self._histograms[histogram].record(seconds, {"kind": kind})


def _observed(gauge: metrics.Gauge, gauges: metrics.Gauges) -> Callable[[CallbackOptions], Iterable[Observation]]:
    return lambda options: [
        Observation(value, dict(zip(gauge.labels, labels, strict=True))) for labels, value in gauge.values(gauges)
    ]


_metrics_of = SharedMetrics(OpenTelemetryMetrics)
