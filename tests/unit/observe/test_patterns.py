"""What patterns report: single flights, idempotency keys, crons, jobs and elections, by the events that they cause."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

import leasehold
from leasehold import LeaseLost, NotAcquired, StaleOwner, aio
from leasehold._core.driver import finish
from leasehold.errors import StoreUnavailable
from leasehold.observe.events import (
    Candidacy,
    CronPassedOver,
    CronRan,
    CronSucceeded,
    FlightServed,
    JobMoved,
    JobsCounted,
    OnceServed,
)
from leasehold.observe.prometheus import PrometheusObserver
from leasehold.patterns import AsyncJobs, Jobs, KeyReused
from leasehold.patterns.cron.cron import CronOptions
from leasehold.patterns.cron.history import history
from leasehold.patterns.cron.schedule import Schedule
from leasehold.patterns.cron.state import KEPT, Run
from leasehold.stores.clock import ManualClock
from leasehold.stores.memory import MemoryStore
from tests.support.observe.stage import Listener
from tests.support.waiting import PATIENCE, until


@pytest.fixture
def clock() -> ManualClock:
    """The clock of the store, and of results."""
    return ManualClock()


@pytest.fixture
def hold(clock: ManualClock, heard: Listener) -> Iterator[leasehold.Leasehold]:
    """A coordinator whose events are heard."""
    with leasehold.connect(MemoryStore(clock), observers=[heard]) as made:
        yield made


def outcomes(heard: Listener, kind: Any) -> list[str]:
    """What was told, in order."""
    return [event.outcome for event in heard.of(kind)]


# ---------------------------------------------------------------- single flight


def test_single_flight(hold: leasehold.Leasehold, clock: ManualClock, heard: Listener) -> None:
    """A rebuild, a hit, a stale hit that causes a rebuild in the background, an error and its repetition."""
    broken: list[bool] = []

    @hold.single_flight("page", "{key}", ttl=30, fresh=60, stale=600, errors=20)
    def page(key: str) -> str:
        if broken:
            raise ValueError(key)
        return key

    page("home")
    page("home")
    assert outcomes(heard, FlightServed) == ["rebuilt", "hit"]
    clock.advance(61)
    page("home")
    until(lambda: len(heard.of(FlightServed)) == 4, "it is rebuilt in the background")
    assert outcomes(heard, FlightServed)[2:] == ["stale", "rebuilt"]
    broken.append(True)
    for _ in range(2):
        with pytest.raises(Exception, match="about"):
            page("about")
    assert outcomes(heard, FlightServed)[4:] == ["error", "error_hit"]
    (first, *_) = heard.of(FlightServed)
    assert first.kind == "page" and len(first.id_hash) == 12


def test_callers_that_share_a_flight(hold: leasehold.Leasehold, heard: Listener) -> None:
    """One rebuilds, the other gets its value."""
    entered, leave = threading.Event(), threading.Event()

    @hold.single_flight("page", "{key}", fresh=60)
    def page(key: str) -> str:
        entered.set()
        assert leave.wait(PATIENCE)
        return key

    callers = [threading.Thread(target=page, args=["home"], daemon=True) for _ in range(2)]
    callers[0].start()
    assert entered.wait(PATIENCE)
    callers[1].start()
    until(lambda: not callers[1].is_alive() or threading.active_count() > 2, "both are there")
    leave.set()
    for one in callers:
        one.join(PATIENCE)
    assert outcomes(heard, FlightServed)[0] == "rebuilt"
    assert outcomes(heard, FlightServed)[1] in ("shared", "hit"), "a hit, if it came late"


async def test_single_flight_in_asyncio(clock: ManualClock, heard: Listener) -> None:
    """Two tasks at once: one rebuilds, the other shares it; then a hit."""
    async with aio.connect(MemoryStore(clock), observers=[heard]) as hold:

        @hold.single_flight("page", "{key}", fresh=60)
        async def page(key: str) -> str:
            await asyncio.sleep(0)
            return key

        await asyncio.gather(page("home"), page("home"))
        await page("home")
    assert outcomes(heard, FlightServed) == ["rebuilt", "shared", "hit"]


# ---------------------------------------------------------------- once


def test_once(hold: leasehold.Leasehold, heard: Listener) -> None:
    """The first run, a replay, another request under the same key, and one whose first attempt left nothing."""

    @hold.once("payment", "{request}", fingerprint="{amount}")
    def pay(request: str, amount: int) -> int:
        if amount == 13:
            raise KeyboardInterrupt
        return amount

    assert (pay("r-1", 5), pay("r-1", 5)) == (5, 5)
    with pytest.raises(KeyReused):
        pay("r-1", 6)
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            pay("r-2", 13)
    assert outcomes(heard, OnceServed) == ["first", "replay", "conflict", "first", "again"]
    assert heard.of(OnceServed)[0].kind == "payment" and len(heard.of(OnceServed)[0].id_hash) == 12


async def test_once_in_asyncio(clock: ManualClock, heard: Listener) -> None:
    """The same, awaited."""
    async with aio.connect(MemoryStore(clock), observers=[heard]) as hold:

        @hold.once("payment", "{request}")
        async def pay(request: str) -> str:
            return request

        assert (await pay("r-1"), await pay("r-1")) == ("r-1", "r-1")
    assert outcomes(heard, OnceServed) == ["first", "replay"]


# ---------------------------------------------------------------- cron


class CronTime:
    """A clock of crons that a test sets."""

    real = False

    def __init__(self) -> None:
        self.moment = 1_794_000_000.0

    def now(self) -> float:
        """Seconds since 1970."""
        return self.moment

    def nap(self, until: float) -> float:
        """No test sleeps on it."""
        return 0.0


class Minutes:
    """A cron of each minute, run step by step."""

    def __init__(self, hold: Any, heard: Listener) -> None:
        self.time = CronTime()
        self.heard = heard
        schedule = Schedule("* * * * *", "UTC")
        self.options = CronOptions(hold, ("rollup", "eu"), schedule, {"ttl": 30}, missed="skip", clock=self.time)
        self.since = self.time.now()

    def run(self, minutes: float, outcome: str | None = "ok", took: float = 2.0) -> None:
        """So much later: run what is due, with this outcome; None: the process dies."""
        self.time.moment += minutes * 60
        known = self.options.run_history
        with self.options.lock(0) as lease:
            claimed = finish(known.claim(lease, self.since))
            assert claimed is not None
            self.time.moment += took
            if outcome is not None:
                assert finish(known.settle(claimed, outcome))

    def runs(self) -> list[Run]:
        """The whole history, the newest first."""
        known = self.options.run_history
        return finish(history(known.flavour, known.results, self.options.lock(None), KEPT + 10))


def test_cron_runs(hold: leasehold.Leasehold, heard: Listener) -> None:
    """How a run ended, how long it took, and when one was last a success."""
    cron = Minutes(hold, heard)
    cron.run(1)
    cron.run(1, "error", took=5)
    ran = heard.of(CronRan)
    assert [(one.kind, one.outcome, one.took) for one in ran] == [("rollup", "ok", 2.0), ("rollup", "error", 5.0)]
    success = 1_794_000_000 + 62
    assert {one.ended for one in heard.of(CronSucceeded)} == {success}


def test_another_process_knows_of_the_last_success(
    hold: leasehold.Leasehold, clock: ManualClock, heard: Listener
) -> None:
    """One that was just started has run nothing, and reads it from the history."""
    cron = Minutes(hold, heard)
    cron.run(1)
    before = heard.of(CronSucceeded)[-1]
    heard.clear()
    finish(cron.options.run_history.due(cron.since))
    assert heard.events == [before]


def test_the_last_success_outlives_the_history(hold: leasehold.Leasehold, heard: Listener) -> None:
    """A cron that has failed for longer than its history reaches back is overdue also for a process that was just
    started; the next success takes its place."""
    cron = Minutes(hold, heard)
    cron.run(1)
    (success,) = {one.ended for one in heard.of(CronSucceeded)}
    for _ in range(KEPT + 10):
        cron.run(1, "error", took=0)
    heard.clear()
    finish(cron.options.run_history.due(cron.since))
    assert [one.ended for one in heard.of(CronSucceeded)] == [success]
    runs = cron.runs()
    assert [one.outcome for one in runs] == ["error"] * (KEPT - 1) + ["ok"]
    cron.run(1)
    for _ in range(KEPT):
        cron.run(1, "error", took=0)
    (later,) = [one for one in cron.runs() if one.outcome == "ok"]
    assert later.tick > runs[0].tick


def test_cron_ticks_that_are_not_run(hold: leasehold.Leasehold, heard: Listener) -> None:
    """Missed while no process was there, and a run whose process died: each is reported once."""
    cron = Minutes(hold, heard)
    cron.run(1, None)
    cron.run(10)
    told = [(one.outcome, one.ticks) for one in heard.of(CronPassedOver)]
    assert sorted(told) == [("died", 1), ("missed", 9)]
    heard.clear()
    cron.run(1)
    assert heard.of(CronPassedOver) == []


@pytest.mark.slow
def test_a_cron_that_runs(heard: Listener) -> None:
    """The decorated function, on a real clock."""
    with leasehold.connect("memory://", observers=[heard]) as hold:

        @hold.cron("* * * * * *", "heartbeat")
        def beat() -> None:
            beat.stop(wait=0)

        beat.run()
    assert outcomes(heard, CronRan) == ["ok"]


# ---------------------------------------------------------------- jobs


def test_jobs(tmp_path: Path, heard: Listener) -> None:
    """Claimed, completed, failed, released, dead; and counted, when the program counts."""
    jobs = Jobs(str(tmp_path / "app.db"), retry=leasehold.Backoff(base=0.001, cap=0.001, attempts=2), observers=[heard])
    jobs.create()
    jobs.enqueue_many([1, 2, 3, 4])
    first, second, third, fourth = jobs.claim_many(4)
    first.complete()
    first.complete()  # repeated: it is told once
    second.fail("no paper")
    third.release()
    fourth.fail("never", retry=False)
    told = outcomes(heard, JobMoved)
    assert told == ["claimed"] * 4 + ["completed", "failed", "released", "dead"]
    assert {event.kind for event in heard.of(JobMoved)} == {"jobs"}
    counts = jobs.counts()
    assert [(one.kind, one.counts) for one in heard.of(JobsCounted)] == [("jobs", counts)]


def test_jobs_that_are_taken_over(tmp_path: Path, heard: Listener) -> None:
    """Of several that are claimed at once, those whose worker's lease ran out are told apart; and a worker that comes
    too late is refused."""
    path = str(tmp_path / "app.db")
    jobs = Jobs(path, observers=[heard])
    jobs.create()
    jobs.enqueue_many(range(6))
    lost = jobs.claim_many(3)
    with sqlite3.connect(path) as database:
        database.execute("UPDATE jobs SET lease_until = 0 WHERE state = 'running'")
    heard.clear()
    assert len(jobs.claim_many(5)) == 5
    assert sorted(outcomes(heard, JobMoved)) == ["claimed"] * 2 + ["taken_over"] * 3
    heard.clear()
    for late in (lost[0].complete, lost[1].heartbeat):
        with pytest.raises(StaleOwner):
            late()
    assert outcomes(heard, JobMoved) == ["refused", "refused"]


def test_a_job_whose_last_worker_vanished(tmp_path: Path, heard: Listener) -> None:
    """It is dead, and was not claimed."""
    path = str(tmp_path / "app.db")
    jobs = Jobs(path, retry=leasehold.Backoff(attempts=1), observers=[heard])
    jobs.create()
    jobs.enqueue()
    assert jobs.claim()
    with sqlite3.connect(path) as database:
        database.execute("UPDATE jobs SET lease_until = 0")
    heard.clear()
    assert jobs.claim() is None
    assert outcomes(heard, JobMoved) == ["dead"]


def test_jobs_with_a_coordinator_have_its_observers(tmp_path: Path, hold: leasehold.Leasehold, heard: Listener) -> None:
    """Each is told once, also when it was given twice."""
    jobs = Jobs(str(tmp_path / "app.db"), hold=hold, observers=[heard])
    jobs.create()
    jobs.enqueue()
    job = jobs.claim()
    assert job is not None
    job.complete()
    assert outcomes(heard, JobMoved) == ["claimed", "completed"]


async def test_jobs_in_asyncio(tmp_path: Path, heard: Listener) -> None:
    """The same, awaited."""
    import aiosqlite

    jobs = AsyncJobs(lambda: aiosqlite.connect(tmp_path / "app.db"), observers=[heard])
    await jobs.create()
    await jobs.enqueue()
    job = await jobs.claim()
    assert job is not None
    await job.complete()
    await jobs.counts()
    assert outcomes(heard, JobMoved) == ["claimed", "completed"] and len(heard.of(JobsCounted)) == 1


# ---------------------------------------------------------------- elections


def states(heard: Listener) -> list[str]:
    """The candidates of this process, in order."""
    return [event.state for event in heard.of(Candidacy)]


def test_a_term(hold: leasehold.Leasehold, heard: Listener) -> None:
    """A candidate stands, leads, and has left."""
    with hold.election("scheduler").campaign():
        assert states(heard) == ["stands", "leads"]
    assert states(heard) == ["stands", "leads", "left"]
    assert heard.of(Candidacy)[0].kind == "scheduler"


def test_a_follower(hold: leasehold.Leasehold, heard: Listener) -> None:
    """Another leads: the candidate follows, until it gives up."""
    with hold.election("scheduler").campaign():
        heard.clear()

        def stand() -> None:
            with pytest.raises(NotAcquired):
                hold.election("scheduler").campaign(wait=0).__enter__()

        thread = threading.Thread(target=stand)
        thread.start()
        thread.join(PATIENCE)
        assert states(heard) == ["stands", "follows", "left"]


def test_a_term_that_is_lost(hold: leasehold.Leasehold, clock: ManualClock, heard: Listener) -> None:
    """The candidate that led knows of no leader any more."""
    with pytest.raises(LeaseLost), hold.election("scheduler", ttl=3).campaign():
        clock.advance(4)
    assert states(heard) == ["stands", "leads", "stands"]


async def test_a_term_in_asyncio(clock: ManualClock, heard: Listener) -> None:
    """The same, awaited."""
    async with aio.connect(MemoryStore(clock), observers=[heard]) as hold, hold.election("scheduler").campaign():
        assert states(heard) == ["stands", "leads"]
    assert states(heard) == ["stands", "leads", "left"]


def test_leaderless_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    """They count from the moment at which the candidate last knew of a leader, and not while it follows or leads."""
    clock, registry = ManualClock(), CollectorRegistry()
    monkeypatch.setattr("leasehold.observe.metrics.time.monotonic", clock.now)
    observer = PrometheusObserver(registry)

    def after(state: str, seconds: float, number: str = "") -> tuple[float | None, float | None]:
        observer(Candidacy("scheduler", number, state))
        clock.advance(seconds)
        names = ("election_leaderless_seconds", "election_leading")
        return tuple(registry.get_sample_value(f"leasehold_{one}", {"kind": "scheduler"}) for one in names)  # type: ignore[return-value]  # two

    assert after("stands", 5) == (5, 0)
    assert after("stands", 5) == (10, 0), "it goes on"
    assert after("follows", 5) == (0, 0)
    assert after("leads", 5) == (0, 1)
    assert after("leads", 5, "0123456789ab") == (0, 2), "another election of the same kind"
    assert after("stands", 5) == (5, 1), "the one without a leader counts"
    assert after("left", 5) == (0, 1)
    assert after("left", 5, "0123456789ab") == (None, None), "it is no candidate any more"
    assert registry.get_sample_value("leasehold_election_terms_total", {"kind": "scheduler"}) == 2


def test_a_store_that_is_away_leaves_a_candidate_without_a_leader(clock: ManualClock, heard: Listener) -> None:
    """It did not give up: its program may stand again."""
    from leasehold._core.ops import Claim
    from tests.support.lock import Spy, only
    from tests.support.observe.stage import raising

    spy = Spy(MemoryStore(clock))
    with leasehold.connect(spy, observers=[heard]) as hold:
        spy.before = only(Claim, raising(StoreUnavailable))
        with pytest.raises(StoreUnavailable):
            hold.election("scheduler").campaign().__enter__()
        spy.heal()
    assert states(heard) == ["stands", "stands"]
