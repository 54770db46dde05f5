"""What observers cost: ``python -m benchmarks.observers``. Pairs of acquire and release on the memory store, where
nothing else takes long, with each observer in turn in one run, so that the ratios mean something."""

from __future__ import annotations

import logging
import sys

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from prometheus_client import CollectorRegistry

import leasehold
from benchmarks.embedded import lock_pairs
from benchmarks.measure import Run, interleave, show
from leasehold.observe.events import Event, Observer
from leasehold.observe.otel import OpenTelemetryObserver
from leasehold.observe.prometheus import PrometheusObserver
from leasehold.stores.memory import MemoryStore

NONE = "no observer"


def nothing(event: Event) -> None:
    """The cheapest observer: what is left is the cost of making and passing events."""


def pairs(*observers: Observer) -> Run:
    return lock_pairs(leasehold.connect(MemoryStore(), observers=observers))


def logged() -> Run:
    """Every record is made and formatted, and not written."""
    run, logger = pairs(), logging.getLogger("leasehold")

    class Formatted(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            self.format(record)

    handler = Formatted()

    def with_log(count: int) -> None:
        logger.addHandler(handler)
        logger.setLevel(logging.DEBUG)
        run(count)
        logger.setLevel(logging.WARNING)
        logger.removeHandler(handler)

    return with_log


def telemetry() -> Observer:
    """Spans are recorded and dropped; metrics are kept and not sent."""
    return OpenTelemetryObserver(TracerProvider(shutdown_on_exit=False), MeterProvider([InMemoryMetricReader()]))


def main() -> None:
    """In a few seconds."""
    logging.getLogger("leasehold").propagate = False
    print("observers ...", file=sys.stderr)
    contenders = {
        NONE: pairs(),
        "no observer, once more": pairs(),  # the difference is noise
        "an observer that does nothing": pairs(nothing),
        "Prometheus": pairs(PrometheusObserver(CollectorRegistry())),
        "OpenTelemetry, spans and metrics": pairs(telemetry()),
        "the log at DEBUG": logged(),
    }
    series = interleave(contenders, 2000, 15)
    show("Observers: acquire and release on memory://", "pairs/s", series, NONE, cpu=True)


if __name__ == "__main__":
    main()
