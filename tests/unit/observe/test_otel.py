"""OpenTelemetryObserver: the twins of the Prometheus metrics, and spans that lead from a waiter to its holder."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from opentelemetry.metrics import NoOpMeterProvider
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF
from opentelemetry.trace import INVALID_SPAN, NoOpTracerProvider, StatusCode, get_current_span

import leasehold
from leasehold._core.ops import Claim, Inspect
from leasehold._core.ports import Store
from leasehold.observe import metrics
from leasehold.observe.events import Contended, Subject
from leasehold.observe.metrics import MOST_LABELS
from leasehold.observe.otel import OpenTelemetryObserver
from leasehold.stores.memory import MemoryStore
from tests.support.lock import elsewhere
from tests.support.observe.life import AT_LEAST, COUNTED, live
from tests.support.observe.stage import Listener, Stage, refuse
from tests.support.waiting import until
from tests.unit.observe.test_prometheus import BUCKETS, COUNTERS, GAUGES, HISTOGRAMS

SHOWN = {"kind", "id_hash", "owner_prefix", "store", "ttl_ms", "fence", "outcome", "holder"}


class Telemetry:
    """Providers whose spans and metrics a test can read."""

    def __init__(self, **options: Any) -> None:
        self.exporter = InMemorySpanExporter()
        self.tracers = TracerProvider(**options)
        self.tracers.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.reader = InMemoryMetricReader()
        self.meters = MeterProvider([self.reader])
        self.tracer = self.tracers.get_tracer("test")

    def observer(self) -> OpenTelemetryObserver:
        """One that tells these."""
        return OpenTelemetryObserver(self.tracers, self.meters)

    def spans(self, name: str = "leasehold hold") -> list[ReadableSpan]:
        """Those of that name that have ended."""
        return [span for span in self.exporter.get_finished_spans() if span.name == name]

    def span(self, name: str = "leasehold hold") -> ReadableSpan:
        """The only one."""
        (span,) = self.spans(name)
        return span

    def metrics(self) -> dict[str, Any]:
        """By name."""
        data: Any = self.reader.get_metrics_data()
        scopes = [scope for resource in data.resource_metrics for scope in resource.scope_metrics]
        return {metric.name: metric for scope in scopes for metric in scope.metrics}


@pytest.fixture
def telemetry() -> Iterator[Telemetry]:
    """Providers of one test."""
    made = Telemetry()
    yield made
    made.tracers.shutdown()
    made.meters.shutdown()


def of(span: ReadableSpan, name: str) -> Any:
    """One of its attributes."""
    return (span.attributes or {}).get(f"leasehold.{name}")


def identity(span: ReadableSpan) -> tuple[int, int]:
    """Its trace and itself."""
    context = span.get_span_context()
    assert context is not None
    return context.trace_id, context.span_id


def links(span: ReadableSpan) -> list[tuple[int, int]]:
    """Where it is linked to."""
    return [(link.context.trace_id, link.context.span_id) for link in span.links]


# ---------------------------------------------------------------- metrics


def test_the_twins_have_the_same_values(set_up: Callable[..., Stage], heard: Listener, telemetry: Telemetry) -> None:
    """After the same life, the same numbers under the same labels."""
    held = live(set_up(telemetry.observer()), heard)
    assert held
    found = telemetry.metrics()
    counted = {
        (name, *(value for _, value in sorted(point.attributes.items()))): point.value
        for name in metrics.COUNTERS
        for point in found[f"leasehold.{name}"].data.data_points
        if point.attributes["kind"] == "job"
    }
    assert counted.pop(AT_LEAST) >= 1
    assert counted == COUNTED
    counts = {
        name: [
            point.count for point in found[f"leasehold.{name}"].data.data_points if point.attributes["kind"] == "job"
        ]
        for name in metrics.HISTOGRAMS
    }
    assert counts == {"acquire_wait": [11], "hold": [9], "renew_slack": [3], "cron_duration": [1]}
    now = {point.attributes["kind"]: point.value for point in found["leasehold.held"].data.data_points}
    assert now == {"job": 0, "held": 1}
    assert [point.value for point in found["leasehold.keys_without_ttl"].data.data_points] == [3]


def test_an_exporter_makes_the_prometheus_names_of_them(
    set_up: Callable[..., Stage], heard: Listener, telemetry: Telemetry
) -> None:
    """Dots become underscores, seconds and sums get their suffix: dashboards and alerts work with either."""
    live(set_up(telemetry.observer()), heard)
    found, names, buckets = telemetry.metrics(), {}, {}
    for name, metric in found.items():
        grows = getattr(metric.data, "is_monotonic", False)
        exported = name.replace(".", "_") + ("_seconds" if metric.unit == "s" else "") + ("_total" if grows else "")
        assert metric.unit == "s" or metric.unit.startswith("{"), "any other unit becomes part of the name"
        names[exported] = {frozenset(point.attributes) for point in metric.data.data_points}
        buckets[exported] = [getattr(point, "explicit_bounds", ()) for point in metric.data.data_points]
    assert set(names) == {*COUNTERS, *HISTOGRAMS, *GAUGES}
    assert {name: names[name] for name in COUNTERS} == {name: {frozenset(one)} for name, one in COUNTERS.items()}
    assert all(list(bounds) == edges for name, edges in BUCKETS.items() for bounds in buckets[name])


def test_observers_of_one_provider_share_its_metrics(telemetry: Telemetry) -> None:
    """Several coordinators, each with an observer of its own: one sum."""
    one, other = telemetry.observer(), telemetry.observer()
    assert one == other and hash(one) == hash(other)
    assert one != OpenTelemetryObserver(NoOpTracerProvider(), telemetry.meters) and one != "one"
    for observer in (one, other):
        with leasehold.connect(MemoryStore(), observers=[observer]) as hold, hold.lock("job"):
            pass
    assert [point.value for point in telemetry.metrics()["leasehold.acquire"].data.data_points] == [2]


# ---------------------------------------------------------------- holding


def test_a_span_of_holding(telemetry: Telemetry) -> None:
    """From the grant to the end, under the caller's span, which stays the current one."""
    with (
        leasehold.connect(MemoryStore(), observers=[telemetry.observer()]) as hold,
        telemetry.tracer.start_as_current_span("export") as export,
    ):
        with hold.lock("job", "secret-id", ttl=30) as lease:
            assert get_current_span() is export, "the body must not see a span of ours"
            lease.extend(20)
        assert get_current_span() is export
    span = telemetry.span()
    assert span.parent is not None and span.parent.span_id == export.get_span_context().span_id
    shown = {name.removeprefix("leasehold."): value for name, value in (span.attributes or {}).items()}
    assert shown == {**lease.log_context(), "ttl_ms": 30_000, "store": "memory", "outcome": "released"}
    assert [event.name for event in span.events] == ["renewed"]
    assert span.status.status_code is StatusCode.UNSET
    assert not telemetry.spans("leasehold wait") and not telemetry.spans("leasehold lease")


async def test_a_span_of_holding_in_asyncio(telemetry: Telemetry) -> None:
    """Each task's lease is under that task's span, and nothing leaks from one to the other."""
    async with leasehold.aio.connect(MemoryStore(), observers=[telemetry.observer()]) as hold:

        async def work(name: str) -> int:
            with telemetry.tracer.start_as_current_span(name) as around:
                async with hold.lock(name, 1):
                    await asyncio.sleep(0.01)
                    assert get_current_span() is around
                return around.get_span_context().span_id

        ids = await asyncio.gather(work("one"), work("two"))
    parents = {of(span, "kind"): span.parent.span_id for span in telemetry.spans() if span.parent}
    assert parents == {"one": ids[0], "two": ids[1]}
    assert get_current_span() is INVALID_SPAN


@pytest.mark.parametrize("loss", ["evicted", "expired", "closed"])
def test_a_span_that_ends_with_a_loss(set_up: Callable[..., Stage], telemetry: Telemetry, loss: str) -> None:
    """An error, unless the program asked for it."""
    stage = set_up(telemetry.observer())
    lease = stage.acquire(ttl=6, renew=loss != "expired")
    if loss == "evicted":
        stage.evict(lease)
    if loss == "closed":
        stage.do(stage.hold.close)
    stage.until(telemetry.spans, "the span ends")
    span = telemetry.span()
    assert of(span, "outcome") == loss and span.events[-1].name == "lost"
    assert span.status.status_code is (StatusCode.UNSET if loss == "closed" else StatusCode.ERROR)


def test_a_whole_life_in_spans(set_up: Callable[..., Stage], heard: Listener, telemetry: Telemetry) -> None:
    """Every span that begins ends, once, and shows nothing but what may be shown."""
    held = live(stage := set_up(telemetry.observer()), heard)
    stage.do(held.release)
    marks = {event.name for span in telemetry.spans() for event in span.events}
    assert marks == {"renewed", "unsure", "lost", "fenced_off", "limit_differs"}
    assert [of(span, "outcome") for span in telemetry.spans("leasehold wait")] == ["timeout", "acquired"]
    assert len(telemetry.spans()) == heard.names().count("Acquired")
    for span in telemetry.exporter.get_finished_spans():
        assert {name.removeprefix("leasehold.") for name in span.attributes or {}} <= SHOWN
    observer: Any = stage.engine.observers.observers[1]
    assert not observer._spans._holding and not observer._spans._waiting and not observer._spans._around


def test_a_refusal_marks_the_span(set_up: Callable[..., Stage], telemetry: Telemetry) -> None:
    """A guard that refused the lease is seen where it happened."""
    stage = set_up(telemetry.observer())
    lease = stage.acquire()
    refuse(stage, lease, downstream="reports")
    stage.do(lease.release)
    (event,) = telemetry.span().events
    assert event.name == "fenced_off" and (event.attributes or {})["leasehold.downstream"] == "reports"


# ---------------------------------------------------------------- waiting


def wait_for_another(store: Store, holder: Telemetry, waiter: Telemetry, around: bool) -> None:
    """One holds, another waits; both are in a span of their own when ``around``."""
    heard = Listener()
    with (
        leasehold.connect(store, observers=[holder.observer()]) as first,
        leasehold.connect(store, observers=[waiter.observer(), heard]) as second,
    ):

        def work() -> None:
            if around:
                with waiter.tracer.start_as_current_span("second"), second.lock("job", 1):
                    return
            with second.lock("job", 1):
                return

        span = holder.tracer.start_as_current_span("first") if around else threading.Lock()
        with span, first.lock("job", 1):
            other = elsewhere(work)
            done = other.__enter__()
            until(lambda: heard.of(Contended), "it waits")
        done()
        other.__exit__(None, None, None)


@pytest.mark.parametrize("around", [True, False], ids=["in-a-span", "in-none"])
def test_a_span_of_waiting_leads_to_the_holder(telemetry: Telemetry, around: bool) -> None:
    """Its link is the span around the holder's: the holder's own, or one of ours. Either exists."""
    holder = Telemetry()
    wait_for_another(MemoryStore(), holder, telemetry, around)
    wait, held = telemetry.span("leasehold wait"), holder.span()
    target = holder.span("first" if around else "leasehold lease")
    assert links(wait) == [identity(target)]
    assert held.parent is not None and (held.parent.trace_id, held.parent.span_id) == identity(target)
    assert of(wait, "outcome") == "acquired" and of(wait, "holder") == of(held, "owner_prefix")
    mine = telemetry.span("second" if around else "leasehold lease")
    assert wait.parent is not None and wait.parent.span_id == identity(mine)[1]
    assert wait.start_time is not None and wait.end_time is not None
    after = telemetry.span()
    assert after.start_time is not None and wait.start_time <= wait.end_time <= after.start_time


@pytest.mark.slow
def test_a_span_of_waiting_leads_to_the_holder_over_redis(redis_url: str, telemetry: Telemetry) -> None:
    """The context travels in the holder's metadata, through the server."""
    from leasehold.stores.redis import RedisStore

    holder = Telemetry()
    wait_for_another(RedisStore(redis_url), holder, telemetry, around=True)
    assert links(telemetry.span("leasehold wait")) == [identity(holder.span("first"))]


def test_one_try_does_not_wait(set_up: Callable[..., Stage], telemetry: Telemetry) -> None:
    """Busy: there is no span of waiting; the span around it says why."""
    stage = set_up(telemetry.observer())
    stage.rival()
    assert stage.do(stage.lock().try_acquire) is None
    assert [of(span, "outcome") for span in telemetry.exporter.get_finished_spans()] == ["busy"]


@pytest.mark.parametrize("forged", ["00-zz", 7, None, "00-" + "0" * 32 + "-" + "0" * 16 + "-01", "x" * 1000])
def test_a_forged_context_is_no_link(set_up: Callable[..., Stage], telemetry: Telemetry, forged: object) -> None:
    """Anybody who can write to the store can be a holder."""
    stage = set_up(telemetry.observer())
    meta = json.dumps({"traceparent": forged})
    stage.spy.inner.execute(Claim("job:1", "rival:1:x.1", 600_000, meta=meta))
    waiting = stage.start(lambda: stage.lock().acquire(wait=0.2))
    stage.until(waiting.done, "the wait is over")
    assert links(telemetry.span("leasehold wait")) == []


@pytest.mark.parametrize(
    "tracers", [NoOpTracerProvider(), TracerProvider(sampler=ALWAYS_OFF)], ids=["none", "unsampled"]
)
def test_what_nobody_will_see_is_not_carried(set_up: Callable[..., Stage], tracers: Any) -> None:
    """Without an SDK, or when the trace is not sampled, a link would lead nowhere."""
    stage = set_up(OpenTelemetryObserver(tracers, NoOpMeterProvider()))
    lease = stage.acquire(meta={"host": "mine"})
    view: Any = stage.spy.inner.execute(Inspect("job:1"))
    assert json.loads(view.holders[0].meta) == {"host": "mine"}
    stage.do(lease.release)


def test_kinds_are_bounded(telemetry: Telemetry) -> None:
    """As with Prometheus: what comes after too many is ``other``."""
    observer = telemetry.observer()
    for number in range(MOST_LABELS + 50):
        observer(Contended(Subject(f"kind-{number}", "", "", None, 0), "", False, 0.0, {}))
    points = telemetry.metrics()["leasehold.contention"].data.data_points
    assert {point.attributes["kind"]: point.value for point in points}["other"] == 50
