"""What observers cost: pairs of acquire and release on the memory store, where nothing else takes long."""

from __future__ import annotations

import logging

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from prometheus_client import CollectorRegistry

import leasehold
from benchmarks.parts.embedded import lock_pairs
from benchmarks.report.rows import Result
from benchmarks.rounds import Run, Setup, measure, rates
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
        level, propagate = logger.level, logger.propagate
        logger.addHandler(handler)
        logger.setLevel(logging.DEBUG)
        logger.propagate = False
        try:
            run(count)
        finally:
            logger.propagate = propagate
            logger.setLevel(level)
            logger.removeHandler(handler)

    return with_log


def telemetry() -> Observer:
    """Spans are recorded and dropped; metrics are kept and not sent."""
    return OpenTelemetryObserver(TracerProvider(shutdown_on_exit=False), MeterProvider([InMemoryMetricReader()]))


def observers(setup: Setup) -> Result:
    """Each kind of observer, beside none."""
    contenders = {
        NONE: pairs(),
        "no observer, once more": pairs(),  # the difference is noise
        "an observer that does nothing": pairs(nothing),
        "Prometheus": pairs(PrometheusObserver(CollectorRegistry())),
        "OpenTelemetry, spans and metrics": pairs(telemetry()),
        "the log at DEBUG": logged(),
    }
    return Result(rates("Observers, a pair on memory://", "pairs/s", measure(setup, contenders), NONE, cpu=True))


PIECES = {"observers": observers}
