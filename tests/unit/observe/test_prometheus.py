"""PrometheusObserver: a scrape over HTTP is read for every series that is promised."""

from __future__ import annotations

import threading
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

import leasehold
from leasehold.observe.events import Contended, Leaking, Subject
from leasehold.observe.metrics import MOST_LABELS
from leasehold.observe.prometheus import PrometheusObserver
from leasehold.stores.memory import MemoryStore
from tests.support.observe.life import AT_LEAST, COUNTED, live
from tests.support.observe.stage import Listener, Stage, refuse
from tests.support.waiting import PATIENCE, until

COUNTERS = {
    "leasehold_acquire_total": {"kind", "store", "outcome"},
    "leasehold_release_total": {"kind", "outcome"},
    "leasehold_renew_total": {"kind", "outcome"},
    "leasehold_lost_total": {"kind", "reason"},
    "leasehold_stale_release_total": {"kind"},
    "leasehold_fencing_rejected_total": {"kind", "downstream"},
    "leasehold_unguarded_total": {"kind"},
    "leasehold_contention_total": {"kind"},
    "leasehold_antipattern_total": {"kind", "pattern"},
    "leasehold_single_flight_total": {"kind", "outcome"},
    "leasehold_once_total": {"kind", "outcome"},
    "leasehold_cron_total": {"kind", "outcome"},
    "leasehold_jobs_total": {"kind", "outcome"},
    "leasehold_election_terms_total": {"kind"},
}
BUCKETS = {
    "leasehold_acquire_wait_seconds": [0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 5, 30],
    "leasehold_hold_seconds": [0.01, 0.1, 1, 10, 60, 600, 3600],
}
HISTOGRAMS = {*BUCKETS, "leasehold_renew_slack_seconds", "leasehold_cron_duration_seconds"}
GAUGES = {
    "leasehold_held",
    "leasehold_waiters",
    "leasehold_oldest_held_seconds",
    "leasehold_keys_without_ttl",
    "leasehold_ttl_seconds",
    "leasehold_cron_last_success_timestamp_seconds",
    "leasehold_jobs_by_state",
    "leasehold_election_leading",
    "leasehold_election_leaderless_seconds",
}


class Scrape:
    """One page of metrics, as Prometheus reads it."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.families = {family.name: family for family in text_string_to_metric_families(text)}
        self.samples = [sample for family in self.families.values() for sample in family.samples]

    def of(self, name: str) -> list[Sample]:
        """The samples of that name."""
        return [sample for sample in self.samples if sample.name == name]

    def value(self, name: str, **labels: str) -> float | None:
        """One value; None when there is none."""
        found = [sample.value for sample in self.of(name) if sample.labels == labels]
        return found[0] if found else None


@pytest.fixture
def registry() -> CollectorRegistry:
    """One that nobody else counts into."""
    return CollectorRegistry()


@pytest.fixture
def scrape(registry: CollectorRegistry) -> Iterator[Callable[[], Scrape]]:
    """Ask for the page, over HTTP."""
    server, thread = start_http_server(0, addr="127.0.0.1", registry=registry)
    url = f"http://127.0.0.1:{server.server_port}/metrics"

    def get() -> Scrape:
        with urllib.request.urlopen(url, timeout=10) as answer:
            return Scrape(answer.read().decode())

    yield get
    server.shutdown()
    server.server_close()
    thread.join(60)


@pytest.mark.slow
def test_every_series(
    set_up: Callable[..., Stage], heard: Listener, registry: CollectorRegistry, scrape: Callable[[], Scrape]
) -> None:
    """After a life in which everything happens, each series has its name, its labels and its value. There are no
    others, but what prometheus-client adds: when each began."""
    held = live(set_up(PrometheusObserver(registry)), heard)
    assert held
    page = scrape()
    counted = {
        (
            sample.name[len("leasehold_") : -len("_total")],
            *(value for _, value in sorted(sample.labels.items())),
        ): sample.value
        for sample in page.samples
        if sample.name.endswith("_total") and sample.labels["kind"] == "job"
    }
    assert counted.pop(AT_LEAST) >= 1
    assert counted == COUNTED
    for name, labels in COUNTERS.items():
        assert {frozenset(sample.labels) for sample in page.of(name)} == {frozenset(labels)}
    for name, buckets in BUCKETS.items():
        edges = [sample.labels["le"] for sample in page.of(f"{name}_bucket") if sample.labels["kind"] == "job"]
        assert [float(edge) for edge in edges] == [*buckets, float("inf")]
    assert page.value("leasehold_acquire_wait_seconds_count", kind="job") == 11  # 9 acquired, a timeout, a cancel
    assert page.value("leasehold_hold_seconds_count", kind="job") == 9  # each lease once, however often it ended
    assert page.value("leasehold_renew_slack_seconds_count", kind="job") == 3
    assert page.value("leasehold_held", kind="held") == 1 and page.value("leasehold_held", kind="job") == 0
    assert page.value("leasehold_waiters", kind="job") == 0
    assert page.value("leasehold_oldest_held_seconds", kind="job") == 0
    assert (page.value("leasehold_oldest_held_seconds", kind="held") or -1) >= 0
    assert page.value("leasehold_keys_without_ttl") == 3
    assert page.value("leasehold_ttl_seconds", kind="held") == 3600
    assert page.value("leasehold_cron_last_success_timestamp_seconds", kind="job") == 1_794_000_000
    assert page.value("leasehold_cron_duration_seconds_sum", kind="job") == 2
    assert page.value("leasehold_jobs_by_state", kind="job", state="ready") == 4
    assert page.value("leasehold_election_leading", kind="job") == 1
    assert page.value("leasehold_election_leaderless_seconds", kind="job") == 0
    names = {sample.name for sample in page.samples if not sample.name.endswith("_created")}
    parts = {f"{name}_{part}" for name in HISTOGRAMS for part in ("bucket", "sum", "count")}
    assert names == {*COUNTERS, *parts, *GAUGES}


def test_who_waits_and_who_holds(set_up: Callable[..., Stage], registry: CollectorRegistry) -> None:
    """Gauges say what is so at the scrape: waiting, then held, then neither."""
    stage = set_up(PrometheusObserver(registry))

    def now(name: str) -> float | None:
        return registry.get_sample_value(f"leasehold_{name}", {"kind": "job"})

    fence = stage.rival()
    waiting = stage.start(stage.lock(ttl=6).acquire)
    stage.until(lambda: now("waiters") == 1, "it waits", step=0)
    assert now("held") == 0
    stage.rival_leaves(fence)
    stage.until(waiting.done, "it is granted")
    assert (now("waiters"), now("held")) == (0, 1)
    stage.do(waiting.result().release)
    assert (now("waiters"), now("held"), now("oldest_held_seconds")) == (0, 0, 0)


def test_keys_without_ttl_are_absent_until_somebody_looked(registry: CollectorRegistry) -> None:
    """0 would say that somebody has looked and found nothing."""
    observer = PrometheusObserver(registry)
    assert registry.get_sample_value("leasehold_keys_without_ttl") is None
    observer(Leaking(0))
    assert registry.get_sample_value("leasehold_keys_without_ttl") == 0


def test_observers_of_one_registry_share_its_metrics(registry: CollectorRegistry) -> None:
    """Several coordinators, each with an observer of its own, on one registry: no duplicates, one sum."""
    one, other = PrometheusObserver(registry), PrometheusObserver(registry)
    assert one == other and hash(one) == hash(other) and one != PrometheusObserver(CollectorRegistry())
    for observer in (one, other):
        with leasehold.connect(MemoryStore(), observers=[observer]) as hold, hold.lock("job"):
            pass
    labels = {"kind": "job", "store": "memory", "outcome": "acquired"}
    assert registry.get_sample_value("leasehold_acquire_total", labels) == 2


def test_a_guard_and_a_lease_with_one_registry_count_a_refusal_once(
    set_up: Callable[..., Stage], registry: CollectorRegistry
) -> None:
    """Both have an observer, and it is the same registry."""
    stage = set_up(PrometheusObserver(registry))
    refuse(stage, stage.acquire(), observers=[PrometheusObserver(registry)])
    labels = {"kind": "job", "downstream": "sql"}
    assert registry.get_sample_value("leasehold_fencing_rejected_total", labels) == 1


def test_a_registry_that_is_dropped_is_let_go(registry: CollectorRegistry) -> None:
    """Sharing keeps no registry alive."""
    from leasehold.observe import prometheus

    before = len(prometheus._metrics_of._made)
    PrometheusObserver(CollectorRegistry())
    assert len(prometheus._metrics_of._made) == before


def test_kinds_are_bounded(registry: CollectorRegistry) -> None:
    """Somebody fills the kind with ids: the rest is ``other``, and the page stays readable."""
    observer = PrometheusObserver(registry)
    for number in range(MOST_LABELS + 50):
        observer(Contended(Subject(f"kind-{number}", "", "", None, 0), "", False, 0.0, {}))
    kinds = {
        sample.labels["kind"] for family in registry.collect() for sample in family.samples if "kind" in sample.labels
    }
    assert len(kinds) == MOST_LABELS + 1
    assert registry.get_sample_value("leasehold_contention_total", {"kind": "other"}) == 50


def test_a_signal_handler_inside_an_event_waits_for_nothing(registry: CollectorRegistry) -> None:
    """An event in the middle of another on the same thread, as a signal handler makes it, comes after it."""
    observer = PrometheusObserver(registry)
    event = Contended(Subject("job", "", "", None, 0), "", False, 0.0, {})
    series: Any = observer._metrics._counters["contention"].labels("job")
    plain = series.inc
    spent: list[int] = []

    def handler(by: float = 1) -> None:
        with series._value._lock:  # as prometheus-client is while it counts
            if not spent:
                spent.append(1)
                observer(event)
        plain()

    series.inc = handler
    done = threading.Thread(target=observer, args=[event], daemon=True)
    done.start()
    done.join(PATIENCE)
    assert not done.is_alive(), "it waits for itself"
    assert registry.get_sample_value("leasehold_contention_total", {"kind": "job"}) == 2


@pytest.mark.slow
def test_on_redis(redis_url: str, registry: CollectorRegistry, scrape: Callable[[], Scrape]) -> None:
    """The same on a server, where the label ``store`` says so."""
    with (
        leasehold.connect(redis_url, observers=[PrometheusObserver(registry)]) as hold,
        hold.lock("job", 1, ttl=1.5),
    ):
        assert hold.lock("job", 1).try_acquire() is None
        until(lambda: scrape().value("leasehold_renew_total", kind="job", outcome="renewed"), "it is renewed")
        page = scrape()
    assert page.value("leasehold_acquire_total", kind="job", store="redis", outcome="acquired") == 1
    assert page.value("leasehold_acquire_total", kind="job", store="redis", outcome="busy") == 1
    assert page.value("leasehold_contention_total", kind="job") == 1
    assert page.value("leasehold_held", kind="job") == 1
    assert scrape().value("leasehold_release_total", kind="job", outcome="released") == 1
