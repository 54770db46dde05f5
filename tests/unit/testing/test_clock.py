"""The clock that tests turn: when it has been turned, everything that follows has happened."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from itertools import pairwise

import pytest

import leasehold
from leasehold import (
    AsyncLeasehold,
    InvalidRequest,
    Leasehold,
    LeaseLost,
    NotAcquired,
    OutcomeUnknown,
    StoreUnavailable,
)
from leasehold._core.ops import Renew, Reply, StoreOp
from leasehold.stores.memory import MemoryStore
from leasehold.testing import StandInStore, TurnableClock, freeze, outage
from leasehold.testing import clock as clock_module
from leasehold.testing.clock import alone
from tests.support.lock import elsewhere, look, nothing_left, waiting
from tests.support.waiting import until, until_async

Connect = Callable[..., Leasehold]


def waiters(store: StandInStore, count: int) -> Callable[[], bool]:
    """Do that many wait for the job?"""
    return lambda: waiting(store, "job") == count


def failure(kind: type[BaseException], call: Callable[[], object]) -> str:
    """What a call fails with."""
    with pytest.raises(kind) as info:
        call()
    return str(info.value)


class Waiting:
    """A thread that waits for a lock, and what came of it."""

    def __init__(self, hold: Leasehold, name: str, log: list[str], **options: object) -> None:
        self.lock = hold.lock("job", **options)  # type: ignore[arg-type]  # whatever a test asks for
        self.name, self.log = name, log
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self) -> None:
        """Acquire, and say so."""
        lease = self.lock.acquire()
        self.log.append(f"{self.name} {'got it' if lease else 'gave up'}")
        if lease is not None:
            lease.release()


# ---------------------------------------------------------------- turning


@pytest.mark.parametrize("duration", ["31s", 31, 31.0, timedelta(seconds=31)])
def test_any_duration_is_taken(hold: Leasehold, leasehold_clock: TurnableClock, duration: float) -> None:
    """Seconds, a timedelta or text, as everywhere else."""
    lease = hold.lock("job", ttl="30s", renew=False).acquire()
    before = leasehold_clock.now()
    leasehold_clock.advance(duration)
    assert lease and lease.state == "lost" and leasehold_clock.now() == before + 31


@pytest.mark.parametrize("duration", [-1, "soon", None, True, float("nan")])
def test_what_is_no_duration_is_refused(leasehold_clock: TurnableClock, duration: float) -> None:
    """Time does not go back, and nonsense turns nothing."""
    before = leasehold_clock.now()
    with pytest.raises(InvalidRequest):
        leasehold_clock.advance(duration)
    assert leasehold_clock.now() == before


def test_time_stands_still(hold: Leasehold) -> None:
    """However long a test takes, its leases have all their time."""
    lease = hold.lock("job", ttl=0.05, renew=False).acquire()
    time.sleep(0.1)
    assert lease and lease.state == "held" and lease.remaining() > 0.04


def test_those_who_look_after_leases_do_not_wait(
    hold: Leasehold, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A lease may be held for any real time on a clock that nobody turns."""
    monkeypatch.setattr(clock_module, "PATIENCE", 0.02)
    lease = hold.lock("job").acquire()
    time.sleep(0.1)
    assert lease and lease.state == "held" and caplog.text == ""


def test_leases_are_renewed_on_the_way(hold: Leasehold, leasehold_clock: TurnableClock) -> None:
    """An hour passes in one call, and a lease of 30 s is held at its end with most of its time left."""
    lease = hold.lock("job", ttl="30s").acquire()
    leasehold_clock.advance("1h")
    assert lease and lease.state == "held" and lease.remaining() > 10


def test_renewals_happen_when_they_are_due(
    hold: Leasehold, leasehold_clock: TurnableClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a third of the ttl or a little earlier, each at its own time, not all at the end."""
    lease = hold.lock("job", ttl="30s").acquire()
    start, seen = leasehold_clock.now(), []
    execute = MemoryStore.execute

    def spied(store: MemoryStore, op: StoreOp) -> Reply:
        if isinstance(op, Renew):
            seen.append(leasehold_clock.now() - start)
        return execute(store, op)

    monkeypatch.setattr(MemoryStore, "execute", spied)
    leasehold_clock.advance("35s")
    assert lease and len(seen) >= 3
    assert all(7.5 <= round(later - sooner, 3) <= 10 for sooner, later in pairwise([0, *seen]))


def test_callbacks_have_been_called(hold: Leasehold, leasehold_clock: TurnableClock) -> None:
    """When the clock has been turned past the end, ``on_lost`` has run, and ``lost`` is set."""
    lease = hold.lock("job", ttl="30s", renew=False).acquire()
    assert lease
    heard: list[str] = []

    def slowly(error: LeaseLost) -> None:
        time.sleep(0.05)
        heard.append(error.reason)

    lease.on_lost(slowly)
    lost = lease.lost
    leasehold_clock.advance("31s")
    assert heard == ["expired"] and lost.is_set()


def test_a_callback_that_blocks_stops_nobody(
    hold: Leasehold, leasehold_clock: TurnableClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It gets a moment, and then the test goes on without it."""
    monkeypatch.setattr(clock_module, "FOR_CALLBACKS", 0.02)
    lease = hold.lock("job", renew=False).acquire()
    assert lease
    gate = threading.Event()
    lease.on_lost(lambda error: gate.wait(60))
    leasehold_clock.advance("31s")
    assert lease.state == "lost"
    gate.set()


def test_every_coordinator_hears_of_it(connect_leasehold: Connect, leasehold_clock: TurnableClock) -> None:
    """All that live on the clock, however they were made."""
    leases = [connect_leasehold().lock("job", number, max_hold="20s").acquire() for number in range(3)]
    leasehold_clock.advance("21s")
    assert [lease._held.phase for lease in leases if lease] == ["lost"] * 3  # told, not found out by looking


# ---------------------------------------------------------------- those who wait, in threads


def test_a_waiter_takes_over_when_the_time_is_over(
    hold: Leasehold, connect_leasehold: Connect, leasehold_store: StandInStore, leasehold_clock: TurnableClock
) -> None:
    """By the time that the clock has been turned it has the lock: nobody polls, nobody sleeps."""
    first = hold.lock("job", ttl="30s", renew=False).acquire()
    with elsewhere(lambda: connect_leasehold().lock("job").acquire()) as result:
        until(lambda: look(leasehold_store, "job").queue, "it waits")
        leasehold_clock.advance("31s")
        assert first and [one.owner == first.owner for one in look(leasehold_store, "job").holders] == [False]
        assert result()


def test_waiters_are_served_in_order(
    hold: Leasehold, connect_leasehold: Connect, leasehold_store: StandInStore, leasehold_clock: TurnableClock
) -> None:
    """Turned far at once, the queue keeps its order, and whoever gives up does so in between."""
    lease = hold.lock("job", ttl="30s", max_hold="60s").acquire()
    log: list[str] = []
    for place, (name, wait) in enumerate([("one", None), ("two", "20s"), ("three", None)]):
        Waiting(connect_leasehold(), name, log, wait=wait)
        until(waiters(leasehold_store, place + 1), "it waits")
    leasehold_clock.advance("19s")
    assert log == []
    leasehold_clock.advance("2s")
    until(lambda: log == ["two gave up"], "its time is over")
    leasehold_clock.advance("2m")  # max_hold ends the work, and the ttl the grant
    until(lambda: log == ["two gave up", "one got it", "three got it"], "served in order")
    assert lease and lease.state == "lost"


def test_a_waiter_that_is_sent_for_has_come(
    hold: Leasehold, connect_leasehold: Connect, leasehold_store: StandInStore, leasehold_clock: TurnableClock
) -> None:
    """The holder's release arrives while the clock is turned, and is pushed: the waiter has taken the lock by then."""
    lease = hold.lock("job").acquire()
    assert lease
    other = connect_leasehold()
    with elsewhere(lambda: other.lock("job").acquire()) as result:
        until(waiters(leasehold_store, 1), "it waits")
        with outage(hold), pytest.raises(OutcomeUnknown):  # it goes on in the background
            lease.release()
        leasehold_clock.advance("100ms")
        assert not other._engine.pending
        assert result()


def test_who_waits_at_the_end_of_the_test_is_let_go() -> None:
    """The store ends: the thread hears that its coordinator is closed, and no thread of ours is left."""
    store = StandInStore()
    lease = leasehold.connect(store).lock("job").acquire()
    before = threading.active_count()
    waiter = leasehold.connect(store)
    with elsewhere(lambda: failure(StoreUnavailable, waiter.lock("job").acquire)) as result:
        until(lambda: look(store, "job").queue, "it waits")
        store.end()
        assert "closed" in result()
    assert lease and lease.state == "lost" and nothing_left(store, "job")
    assert threading.active_count() < before


# ---------------------------------------------------------------- a test that waits itself


def test_waiting_costs_no_time(hold: Leasehold, connect_leasehold: Connect, leasehold_clock: TurnableClock) -> None:
    """A test that waits for a busy lock would wait for ever: time passes by itself, and no more than it must."""
    other = connect_leasehold().lock("job").acquire()
    start = leasehold_clock.now()
    with pytest.raises(NotAcquired), hold.lock("job", wait="10m"):
        pass
    assert other and other.state == "held" and leasehold_clock.now() == pytest.approx(start + 600, abs=0.1)


def test_waiting_ends_with_the_lease_of_a_dead_holder(
    hold: Leasehold, connect_leasehold: Connect, leasehold_clock: TurnableClock
) -> None:
    """Whoever was frozen is replaced when its ttl is over, not before and not much later."""
    first = connect_leasehold().lock("job", ttl="30s").acquire()
    assert first
    start = leasehold_clock.now()
    with freeze(first), hold.lock("job") as second:
        assert leasehold_clock.now() == pytest.approx(start + 30, abs=0.1)
        assert second.fence and first.fence and second.fence > first.fence


def test_a_thread_that_works_in_real_time_is_waited_for(hold: Leasehold, connect_leasehold: Connect) -> None:
    """The lock is with a thread that gives it back after real work: the test gets it then."""
    taken = threading.Event()

    def work() -> bool:
        with connect_leasehold().lock("job"):
            taken.set()
            time.sleep(0.05)
        return True

    with elsewhere(work) as result:
        assert taken.wait(60)
        with hold.lock("job") as lease:
            assert lease.state == "held"
        assert result()


def test_a_test_that_can_never_go_on_fails(hold: Leasehold, monkeypatch: pytest.MonkeyPatch) -> None:
    """Waiting for ever for oneself is a bug of the test: it says so in place of hanging, and leaves nothing."""
    monkeypatch.setattr(clock_module, "PATIENCE", 0.1)
    lease = hold.lock("job").acquire()
    with pytest.raises(AssertionError, match="waited for"):
        hold.lock("job").acquire()
    assert lease and lease.state == "held"


def test_a_thread_that_nobody_turns_the_clock_for_fails(
    hold: Leasehold, connect_leasehold: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same in a thread, where time does not pass by itself."""
    monkeypatch.setattr(clock_module, "PATIENCE", 0.1)
    lease = hold.lock("job").acquire()
    other = connect_leasehold()
    with elsewhere(lambda: failure(AssertionError, other.lock("job").acquire)) as result:
        assert "waited for" in result()
    assert lease and lease.state == "held"


def test_time_passes_for_nobody_else() -> None:
    """Only the thread that a clock was made on is its test."""
    assert alone(threading.current_thread())
    with elsewhere(lambda: alone(threading.main_thread())) as result:
        assert result() is False


# ---------------------------------------------------------------- asyncio


async def test_a_body_is_interrupted(async_hold: AsyncLeasehold, leasehold_clock: TurnableClock) -> None:
    """The body of ``async with`` is cancelled at its next await, which becomes LeaseLost on the way out."""

    async def work() -> None:
        async with async_hold.lock("job", max_hold="20s"):
            leasehold_clock.advance("21s")
            await asyncio.sleep(60)

    with pytest.raises(LeaseLost) as info:
        await work()
    assert info.value.reason == "max_hold"


async def test_other_tasks_have_heard_of_it(async_hold: AsyncLeasehold, leasehold_clock: TurnableClock) -> None:
    """After ``advance_async`` bodies in other tasks have been interrupted, and callbacks have run."""
    heard: list[str] = []
    inside = asyncio.Event()

    async def work() -> None:
        async with async_hold.lock("job", max_hold="20s") as lease:
            lease.on_lost(lambda error: heard.append("callback"))
            inside.set()
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                heard.append("body")
                raise

    task = asyncio.create_task(work())
    await inside.wait()
    await leasehold_clock.advance_async("21s")
    assert sorted(heard) == ["body", "callback"]
    with pytest.raises(LeaseLost):
        await task


async def test_waiting_tasks_are_served_in_order(
    async_hold: AsyncLeasehold, leasehold_store: StandInStore, leasehold_clock: TurnableClock
) -> None:
    """Tasks that wait have their turns while the clock is turned: the queue keeps its order."""
    log: list[str] = []

    async def wait(name: str, wait: str | None) -> None:
        lease = await async_hold.lock("job", wait=wait).acquire()
        log.append(f"{name} {'got it' if lease else 'gave up'}")
        if lease:
            await lease.release()

    lease = await async_hold.lock("job", ttl="30s", max_hold="60s").acquire()
    tasks = []
    for place, (name, patience) in enumerate([("one", None), ("two", "20s"), ("three", None)]):
        tasks.append(asyncio.create_task(wait(name, patience)))
        await until_async(waiters(leasehold_store, place + 1), "it waits")
    await leasehold_clock.advance_async("21s")
    assert log == ["two gave up"]
    await leasehold_clock.advance_async("2m")
    await asyncio.gather(*tasks)
    assert log == ["two gave up", "one got it", "three got it"] and lease and lease.state == "lost"


async def test_a_waiting_task_has_taken_over(
    async_hold: AsyncLeasehold,
    leasehold_store: StandInStore,
    leasehold_clock: TurnableClock,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """When ``advance_async`` returns, and not a few turns of the loop later, however seldom the task looks."""
    monkeypatch.setattr(clock_module, "POLL_SOON_FOR", -1.0)
    lease = await async_hold.lock("job", renew=False).acquire()
    task = asyncio.create_task(async_hold.lock("job").acquire())
    await until_async(waiters(leasehold_store, 1), "it waits")
    await leasehold_clock.advance_async("30.001s")
    assert task.done() and await task
    assert lease and lease.state == "lost"


async def test_waiting_tasks_find_themselves_at_the_end(
    async_hold: AsyncLeasehold, leasehold_store: StandInStore, leasehold_clock: TurnableClock
) -> None:
    """``advance`` on the loop itself lets nobody run, and does not wait for those who cannot."""
    lease = await async_hold.lock("job", renew=False).acquire()
    task = asyncio.create_task(async_hold.lock("job").acquire())
    await until_async(lambda: look(leasehold_store, "job").queue, "it waits")
    leasehold_clock.advance("1h")
    assert lease and lease.state == "lost" and not task.done()
    assert await task


async def test_waiting_in_the_only_task_costs_no_time(
    async_hold: AsyncLeasehold, connect_leasehold: Connect, leasehold_clock: TurnableClock
) -> None:
    """As in threads: a test that waits itself cannot turn the clock, so it turns."""
    other = connect_leasehold().lock("job").acquire()
    start = leasehold_clock.now()
    assert other and await async_hold.lock("job").acquire(wait="10m") is None
    assert leasehold_clock.now() == pytest.approx(start + 600, abs=0.1)


async def test_a_task_that_nobody_turns_the_clock_for_fails(
    async_hold: AsyncLeasehold, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With other tasks about, time does not pass by itself: say so in place of hanging."""
    monkeypatch.setattr(clock_module, "PATIENCE", 0.1)
    lease = await async_hold.lock("job").acquire()
    with pytest.raises(AssertionError, match="waited for"):
        await asyncio.gather(async_hold.lock("job").acquire(), asyncio.sleep(0))
    assert lease and lease.state == "held"


async def test_threads_are_waited_for_from_a_task(
    async_hold: AsyncLeasehold,
    connect_leasehold: Connect,
    leasehold_store: StandInStore,
    leasehold_clock: TurnableClock,
) -> None:
    """Threads and tasks on one store: both have had their turn."""
    lease = await async_hold.lock("job", renew=False).acquire()
    log: list[str] = []
    Waiting(connect_leasehold(), "thread", log)
    await until_async(lambda: look(leasehold_store, "job").queue, "it waits")
    await leasehold_clock.advance_async("31s")
    await until_async(lambda: log == ["thread got it"], "it has said so")
    assert lease and lease.state == "lost"
