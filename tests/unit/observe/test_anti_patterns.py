"""Anti-patterns: each is reported by the leases that show it, once, and not by those of a healthy program."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

import leasehold
from leasehold.observe import anti_patterns
from leasehold.observe.anti_patterns import (
    ADVICE,
    LONG_SAMPLES,
    NO_ID_SAMPLES,
    RETRIES,
    SHORT_SAMPLES,
    SHORTEST_PAUSE,
    AntiPatterns,
)
from leasehold.observe.events import (
    Acquired,
    AntiPattern,
    Candidacy,
    CronSucceeded,
    Event,
    Lost,
    Refused,
    Released,
    StaleRelease,
    Subject,
    Unguarded,
)
from leasehold.observe.prometheus import PrometheusObserver
from leasehold.stores.clock import ManualClock
from leasehold.stores.memory import MemoryStore
from tests.support.observe.stage import Listener, Stage
from tests.support.tables import each

KIND = "report"


@pytest.fixture(autouse=True)
def nothing_reported() -> Iterator[None]:
    """What other tests have shown is forgotten."""
    anti_patterns._reported.clear()
    yield
    anti_patterns._reported.clear()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> ManualClock:
    """The time between two tries."""
    made = ManualClock()
    monkeypatch.setattr("leasehold.observe.anti_patterns.time.monotonic", made.now)
    return made


def lease(id_hash: str = "0123456789ab", ttl: float = 30, kind: str = KIND, **more: Any) -> Subject:
    """A lease that an event is about."""
    return Subject(kind, id_hash, "host:1", 1, round(ttl * 1000), "memory", **more)


def shown(*told: Event) -> list[str]:
    """The patterns that these events show, in order."""
    detector = AntiPatterns()
    found = [detector.find(event) for event in told]
    return [one.pattern for one in found if one is not None]


def released(count: int, held: float, **more: Any) -> list[Event]:
    """So many leases, each held for so long."""
    return [Released(lease(number=number, **more), held) for number in range(count)]


# ---------------------------------------------------------------- ttls


def test_a_ttl_that_is_too_long() -> None:
    """More than ten times p99.9 of holding; once, and not before there are enough leases to know."""
    assert shown(*released(LONG_SAMPLES - 1, held=1, ttl=300)) == []
    assert shown(*released(LONG_SAMPLES * 2, held=1, ttl=300)) == ["ttl_too_long"]


@each(
    ("why", "told"),
    [
        ("it is ten times as long, no more", released(LONG_SAMPLES * 2, held=30, ttl=300)),
        ("a minute is never too long", released(LONG_SAMPLES * 2, held=0.001, ttl=60)),
        (
            "one in a thousand needs it",
            [*released(5, held=200, ttl=300), *released(LONG_SAMPLES * 2, held=1, ttl=300)],
        ),
    ],
)
def test_ttls_that_are_not_too_long(why: str, told: list[Event]) -> None:
    """They are left alone."""
    assert shown(*told) == [], why


@pytest.mark.parametrize("end", [Released, StaleRelease])
def test_a_ttl_that_is_too_short(end: Callable[..., Event]) -> None:
    """With renew=False the work takes longer than the ttl in more than one of a hundred leases."""
    late = [end(lease(renews=False, number=number), 31) for number in (1, 2)]
    assert shown(*late, *released(SHORT_SAMPLES, held=1, renews=False)) == ["ttl_too_short"]
    assert shown(late[0], *released(SHORT_SAMPLES, held=1, renews=False)) == [], "p99 is below the ttl"


def test_leases_that_expire_are_late_once() -> None:
    """A lease that nothing renews is lost at its deadline, and released later: that is one lease."""
    told: list[Event] = []
    for number in range(SHORT_SAMPLES):
        ends = number % 100 == 0
        told += [Lost(lease(renews=False, number=number), "expired", 30)] if ends else []
        told += [StaleRelease(lease(renews=False, number=number), 31)] if ends else []
        told += [] if ends else released(1, held=1, renews=False)
    assert shown(*told) == [], "one in a hundred"


def test_renewed_leases_may_be_held_for_longer_than_their_ttl() -> None:
    """That is what renewals are for."""
    assert shown(*released(SHORT_SAMPLES * 2, held=31)) == []


# ---------------------------------------------------------------- names


def waited(count: int, contended: bool, **more: Any) -> list[Event]:
    """So many grants, after a wait or without."""
    return [Acquired(lease(**more), 1.0 if contended else 0.0, contended) for _ in range(count)]


def test_a_global_lock() -> None:
    """Callers wait for one lock that has no id."""
    few = [*waited(NO_ID_SAMPLES, contended=False, id_hash=""), *waited(10, contended=True, id_hash="")]
    assert shown(*few) == [], "one in eleven"
    assert shown(*few, *waited(5, contended=True, id_hash="")) == ["no_id"]


@each(
    ("why", "told"),
    [
        ("it has an id", waited(NO_ID_SAMPLES * 2, contended=True)),
        ("a semaphore is there to be waited for", waited(NO_ID_SAMPLES * 2, True, id_hash="", rule="semaphore")),
        ("so is a leader", [Candidacy(KIND, "", "stands"), *waited(NO_ID_SAMPLES * 2, True, id_hash="")]),
        ("nobody waits", waited(NO_ID_SAMPLES * 2, contended=False, id_hash="")),
    ],
)
def test_locks_that_are_not_global(why: str, told: list[Event]) -> None:
    """They are left alone."""
    assert shown(*told) == [], why


# ---------------------------------------------------------------- retries


def refusals(clock: ManualClock, count: int, pause: float, outcome: str = "busy", waited: float = 0.0) -> list[str]:
    """What so many refusals in a row show, with a pause before each try."""
    detector, found = AntiPatterns(), []
    for _ in range(count):
        clock.advance(pause + waited)
        found.append(detector.find(Refused(lease(), outcome, waited, "host:2", contended=True)))
    return [one.pattern for one in found if one is not None]


@pytest.mark.parametrize(("outcome", "waited"), [("busy", 0.0), ("timeout", 5.0)])
def test_a_retry_loop(clock: ManualClock, outcome: str, waited: float) -> None:
    """Refused, and at once tried again, twenty times. A wait that ran out is no pause."""
    assert refusals(clock, RETRIES - 1, 0.1, outcome, waited) == []
    assert refusals(clock, RETRIES * 2, 0.1, outcome, waited) == ["retry_loop"]


def test_tries_that_are_no_loop(clock: ManualClock) -> None:
    """A pause between two tries, an unreachable store, or a grant in between."""
    assert refusals(clock, RETRIES * 2, SHORTEST_PAUSE) == []
    assert refusals(clock, RETRIES * 2, 0.1, "unavailable") == []
    cron: list[Event] = [CronSucceeded(KIND, "", 0.0), *[Refused(lease(), "busy", 0.0, "", contended=True)] * RETRIES]
    assert shown(*cron) == [], "a cron, whose ticks another host runs"
    detector = AntiPatterns()
    told = [Refused(lease(), "busy", 0.0, "", contended=True)] * (RETRIES - 1)
    assert [detector.find(event) for event in [*told, *waited(1, contended=False), *told]] == [None] * (2 * RETRIES - 1)


async def test_tasks_that_each_try_once_are_no_loop() -> None:
    """Requests that skip what is busy are many callers, not one that insists."""
    detector = AntiPatterns()

    async def request() -> AntiPattern | None:
        await asyncio.sleep(0)
        return detector.find(Refused(lease(), "busy", 0.0, "", contended=True))

    assert await asyncio.gather(*[request() for _ in range(RETRIES * 2)]) == [None] * RETRIES * 2


# ---------------------------------------------------------------- reports


def test_a_report_reaches_observers_log_and_metrics(
    set_up: Callable[..., Stage], flavour: str, heard: Listener, caplog: pytest.LogCaptureFixture
) -> None:
    """A loop of tries against a lease of another holder: one event, one warning that says what to do, one count."""
    registry = CollectorRegistry()
    stage = set_up(PrometheusObserver(registry))
    stage.rival()

    def insist() -> None:
        assert [stage.lock().try_acquire() for _ in range(RETRIES * 2)] == [None] * RETRIES * 2

    async def insist_in_a_task() -> None:
        assert [await stage.lock().try_acquire() for _ in range(RETRIES * 2)] == [None] * RETRIES * 2

    stage.do(insist if flavour == "sync" else insist_in_a_task)
    (found,) = heard.of(AntiPattern)
    assert (found.lease.kind, found.pattern, found.advice) == ("job", "retry_loop", ADVICE["retry_loop"])
    labels = {"kind": "job", "pattern": "retry_loop"}
    assert registry.get_sample_value("leasehold_antipattern_total", labels) == 1
    (record,) = [one for one in caplog.records if getattr(one, "event", "") == "anti_pattern"]
    assert record.levelno == logging.WARNING and "pattern=retry_loop" in record.getMessage()
    assert record.getMessage().endswith(ADVICE["retry_loop"])


def test_unguarded_is_reported_once_for_each_kind_and_process() -> None:
    """Also when several coordinators see it; each kind has its own."""
    told: list[Event] = []
    for kind in (KIND, KIND, "other"):
        with leasehold.connect(MemoryStore(), observers=[told.append]) as hold:
            for number in range(3):
                lock = hold.lock(kind, number, protects="correctness")
                assert lock.acquire()
                lock.release()
    found = [event for event in told if isinstance(event, AntiPattern)]
    assert [(one.lease.kind, one.pattern) for one in found] == [(KIND, "unguarded"), ("other", "unguarded")]
    assert len([event for event in told if isinstance(event, Unguarded)]) == 9


def test_without_observers_nothing_is_counted() -> None:
    """The statistics exist only where there is an observer to report to."""
    with leasehold.connect(MemoryStore()) as hold:
        assert hold._engine.observers._anti_patterns is None


def test_kinds_and_callers_are_bounded() -> None:
    """A program that puts ids into the kind, or tries from a thousand threads, does not fill the memory."""
    detector = AntiPatterns()
    for number in range(anti_patterns.MOST_KINDS + 10):
        detector.find(Refused(lease(kind=f"kind-{number}"), "busy", 0.0, "", contended=True))
    assert len(detector._kinds) == anti_patterns.MOST_KINDS
    for number in range(anti_patterns.MOST_CALLERS + 10):
        detector.find(Refused(lease(f"{number:012x}", kind="kind-0"), "busy", 0.0, "", contended=True))
    assert len(detector._kinds["kind-0"].refusals) <= anti_patterns.MOST_CALLERS
