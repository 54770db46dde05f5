"""Events: each is told by its cause, in both flavours; every acquire ends with one, and every lease does."""

from __future__ import annotations

import asyncio
import gc
import inspect
import sqlite3
import threading
from collections.abc import Callable
from typing import Any

import pytest

import leasehold
from leasehold import LeaseLost, OutcomeUnknown, StaleOwner
from leasehold._core.ops import Claim, Defer, Evict, Inspect, Release, Renew, StoreOp
from leasehold._core.types import public_owner
from leasehold._runtime import identity
from leasehold.errors import InvalidRequest, StoreUnavailable
from leasehold.guards.sql import FenceGuard
from leasehold.observe import events
from leasehold.observe.events import (
    Acquired,
    Contended,
    FencedOff,
    Lost,
    NotRenewed,
    Refused,
    Released,
    Renewed,
    StaleRelease,
    Unguarded,
)
from leasehold.stores.memory import MemoryStore
from tests.support.lock import Spy, elsewhere, in_thread, nothing, once, only
from tests.support.observe.life import live
from tests.support.observe.stage import RIVAL, Listener, Stage, raising, refuse, subject
from tests.support.waiting import until

TTL = 6.0
ENDINGS = {"Released", "StaleRelease", "ReleaseUnknown", "Lost"}
ACQUIRES = {"Acquired", "Refused"}


def lives_are_whole(heard: Listener) -> None:
    """Every acquire has one end, every lease one or more, and nothing of a lease comes before its grant."""
    for number in {subject(event).number for event in heard.events} - {0}:
        names = heard.names(number)
        assert sum(name in ACQUIRES for name in names) == 1, names
        if "Acquired" in names:
            assert ENDINGS & set(names[names.index("Acquired") :]), names
            assert set(names[: names.index("Acquired")]) <= {"Contended"}, names


# ---------------------------------------------------------------- acquiring and giving back


def test_acquired_and_released(stage: Stage, heard: Listener) -> None:
    """What is told of a plain lease, field by field."""
    lease = stage.acquire("job", "one", ttl=TTL)
    stage.clock.advance(1.25)
    stage.do(lease.release)
    acquired, released = heard.events
    assert isinstance(acquired, Acquired) and isinstance(released, Released)
    about = acquired.lease
    assert about == released.lease
    assert (about.kind, about.ttl_ms, about.store, about.fence) == ("job", 6000, "memory", lease._held.fence)
    assert about.owner_prefix == public_owner(lease.owner) and about.id_hash == lease.log_context()["id_hash"]
    assert about.number > 0 and (acquired.waited, acquired.contended) == (0.0, False)
    assert released.held == pytest.approx(1.25)


def test_busy(stage: Stage, heard: Listener) -> None:
    """One try that found it taken: contended, and refused."""
    stage.rival()
    assert stage.do(stage.lock().try_acquire) is None
    contended, refused = heard.events
    assert isinstance(contended, Contended) and isinstance(refused, Refused)
    assert (contended.holder, contended.queued, contended.holder_meta) == ("rival:1", False, {})
    assert (refused.outcome, refused.holder, refused.contended) == ("busy", "rival:1", True)
    assert contended.lease == refused.lease
    assert (refused.lease.owner_prefix, refused.lease.fence) == (identity.process_prefix(), None)


def test_timeout(stage: Stage, heard: Listener) -> None:
    """The wait ran out, and how long it was is told."""
    stage.rival()
    waiting = stage.start(lambda: stage.lock().acquire(wait=0.5))
    stage.until(waiting.done, "the wait is over")
    contended, refused = heard.events
    assert isinstance(contended, Contended) and contended.queued
    assert isinstance(refused, Refused) and refused.outcome == "timeout" and refused.waited >= 0.5


def test_a_turn_that_comes(stage: Stage, heard: Listener) -> None:
    """Waiting and then holding is one number."""
    fence = stage.rival()
    waiting = stage.start(stage.lock(ttl=TTL).acquire)
    until(lambda: heard.of(Contended), "it waits")
    stage.clock.advance(0.5)
    stage.rival_leaves(fence)
    stage.until(waiting.done, "its turn has come")
    (acquired,) = heard.of(Acquired)
    assert acquired.contended and acquired.waited >= 0.5
    assert acquired.lease.number == heard.of(Contended)[0].lease.number


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (StoreUnavailable, "unavailable"),
        (asyncio.CancelledError, "cancelled"),
        (InvalidRequest, "unavailable"),
        (ZeroDivisionError, "unknown"),
    ],
)
def test_acquires_that_come_to_nothing(stage: Stage, heard: Listener, error: type[BaseException], outcome: str) -> None:
    """Whatever an acquire ends with, it is told: also a bug, of which nobody knows what it left."""
    stage.spy.before = only(Claim, raising(error))
    assert isinstance(stage.refused(stage.lock().acquire), error)
    assert [(type(event), getattr(event, "outcome", "")) for event in heard.events] == [(Refused, outcome)]


def test_an_acquire_whose_outcome_is_unknown(stage: Stage, heard: Listener) -> None:
    """The store took the claim and never answered."""
    stage.spy.after = only(Claim, raising(OutcomeUnknown))
    waiting = stage.start(lambda: stage.lock().acquire(wait=0.2))
    stage.until(waiting.done, "it gives up")
    assert [event.outcome for event in heard.of(Refused)] == ["unknown"]


def test_a_grant_that_could_not_be_kept(heard: Listener) -> None:
    """An interrupt right after the grant: acquired, and nobody knows whether it is given back by now."""
    stage = Stage("sync", [heard])
    plain = stage.engine.register

    def interrupted(*args: Any) -> None:
        stage.engine.register = plain
        raise KeyboardInterrupt

    stage.engine.register = interrupted
    assert isinstance(stage.refused(stage.lock().acquire), KeyboardInterrupt)
    assert heard.names() == ["Acquired", "ReleaseUnknown"]
    stage.close()


def test_entering_again_is_no_event(stage: Stage, heard: Listener) -> None:
    """Re-entry costs no round trip and is nobody's business; only the last release is one."""
    lock = stage.hold.rlock("job", 1)
    stage.do(lock.acquire)
    lease = stage.do(lock.acquire)
    stage.do(lease.release)
    assert heard.names() == ["Acquired"]
    stage.do(lease.release)
    assert heard.names() == ["Acquired", "Released"]


# ---------------------------------------------------------------- renewing


def test_renewed(stage: Stage, heard: Listener) -> None:
    """A renewal tells how much time was left until work would have had to stop."""
    lease = stage.acquire(ttl=TTL)
    stage.until(lambda: heard.of(Renewed), "it is renewed")
    (renewed,) = heard.of(Renewed)
    assert 0 < renewed.slack < TTL - TTL / 6 - TTL / 6
    assert renewed.lease.number == heard.of(Acquired)[0].lease.number
    stage.do(lease.release)


def test_extended(stage: Stage, heard: Listener) -> None:
    """An extend counts as a renewal, with its new ttl."""
    lease = stage.acquire(ttl=TTL)
    stage.do(lambda: lease.extend(60))
    assert [event.lease.ttl_ms for event in heard.of(Renewed)] == [60_000]


def test_an_extend_that_is_refused(stage: Stage, heard: Listener) -> None:
    """The store says that it is not ours: not renewed, and lost; an extend after that asks nobody."""
    lease = stage.acquire(ttl=TTL)
    stage.evict(lease)
    assert isinstance(stage.refused(lambda: lease.extend(60)), LeaseLost)
    assert isinstance(stage.refused(lambda: lease.extend(60)), LeaseLost)
    assert [event.outcome for event in heard.of(NotRenewed)] == ["not_owner"]
    assert [event.reason for event in heard.of(Lost)] == ["evicted"]


def test_an_extend_that_is_unanswered(stage: Stage, heard: Listener) -> None:
    """It is unsure then."""
    lease = stage.acquire(ttl=TTL)
    stage.spy.before = only(Renew, raising(StoreUnavailable))
    assert isinstance(stage.refused(lambda: lease.extend(60)), StoreUnavailable)
    assert heard.of(NotRenewed)[0].outcome == "failed" and not heard.of(Lost)


def test_not_renewed_and_lost(stage: Stage, heard: Listener) -> None:
    """A transport error makes it unsure, again and again, and then it is lost."""
    lease = stage.acquire(ttl=TTL)
    stage.spy.before = only(Renew, raising(StoreUnavailable))
    stage.until(lambda: heard.of(Lost), "it is lost")
    assert {event.outcome for event in heard.of(NotRenewed)} == {"failed"}
    (lost,) = heard.of(Lost)
    assert lost.reason == "renewal_failed" and TTL / 2 < lost.held < TTL and lease.state == "lost"


@pytest.mark.parametrize("error", [None, StoreUnavailable])
def test_what_is_given_back_meanwhile_is_not_renewed(
    stage: Stage, heard: Listener, error: type[BaseException] | None
) -> None:
    """The answer to a renewal, if any, comes after the release (trap 43): nothing is told of it."""
    lease = stage.acquire(ttl=TTL)

    def release(op: StoreOp) -> None:
        stage.spy.heal()
        stage.spy.inner.execute(Release("job:1", lease.owner, lease._held.fence))
        lease._held.begin_release(stage.clock.now())
        if error is not None:
            raising(error)(op)

    stage.spy.before = only(Renew, release)
    stage.until(lambda: stage.spy.of(Renew), "a renewal is sent")
    until(lambda: lease._held not in stage.engine.watchdog.leases(), "the round is over")
    assert not heard.of(NotRenewed) and not heard.of(Lost) and not heard.of(Renewed)


# ---------------------------------------------------------------- losing


@pytest.mark.parametrize("reason", ["evicted", "expired", "max_hold", "max_idle", "closed"])
def test_lost(stage: Stage, heard: Listener, reason: str) -> None:
    """Each reason, told once."""
    options = {"max_hold": 3} if reason == "max_hold" else {"max_idle": 3} if reason == "max_idle" else {}
    lease = stage.acquire(ttl=TTL, renew=reason != "expired", **options)
    if reason == "evicted":
        stage.evict(lease)
    if reason == "closed":
        stage.do(stage.hold.close)
    stage.until(lambda: heard.of(Lost), "it is lost")
    assert [event.reason for event in heard.of(Lost)] == [reason]
    assert [event.outcome for event in heard.of(NotRenewed)] == (["not_owner"] if reason == "evicted" else [])
    lives_are_whole(heard)


def test_released_too_late(stage: Stage, heard: Listener) -> None:
    """Lost, and then a stale release, when the holder comes to give it back."""
    lease = stage.acquire(ttl=TTL, renew=False)
    stage.clock.advance(TTL)
    assert stage.do(lease.release) is False
    assert heard.names() == ["Acquired", "Lost", "StaleRelease"]
    assert heard.of(StaleRelease)[0].held >= TTL


def test_a_release_that_goes_unanswered(stage: Stage, heard: Listener) -> None:
    """Nobody knows; when it is repeated, somebody does."""
    lease = stage.acquire(ttl=TTL)
    stage.spy.after = only(Release, raising(OutcomeUnknown))
    assert isinstance(stage.refused(lease.release), OutcomeUnknown)
    assert heard.names() == ["Acquired", "ReleaseUnknown"]
    stage.spy.heal()
    assert stage.do(lease.release) is True
    assert heard.names() == ["Acquired", "ReleaseUnknown", "Released"]


@pytest.mark.parametrize("error", [KeyboardInterrupt, asyncio.CancelledError])
def test_a_release_that_is_interrupted(stage: Stage, heard: Listener, error: type[BaseException]) -> None:
    """It goes on in the background, and whoever observes knows that the lease is not held any more."""
    lease = stage.acquire(ttl=TTL)
    stage.spy.before = once(Release, raising(error))
    assert isinstance(stage.refused(lease.release), error)
    assert heard.names() == ["Acquired", "ReleaseUnknown"]


def test_a_release_that_meets_a_closing_coordinator(stage: Stage, heard: Listener) -> None:
    """The release finds it closed, and close() does not find the lease: still it has an end."""
    lease = stage.acquire(ttl=TTL)
    stage.engine.shut()
    assert stage.do(lease.release) is False
    lives_are_whole(heard)


def test_a_coordinator_that_is_closed_while_the_store_is_away(heard: Listener) -> None:
    """What was still to be given back in the background is told of at the end."""
    stage = Stage("sync", [heard])
    stage.spy.before = only(Release, raising(StoreUnavailable))
    kept = stage.lock(ttl=TTL)
    in_thread(lambda: kept.acquire() and None)  # the thread has ended: it is given back
    stage.until(lambda: stage.engine.watchdog._background_ops, "it is to be given back")
    stage.hold.close()
    lives_are_whole(heard)
    assert "ReleaseUnknown" in heard.names()
    stage.close()


def test_a_lease_that_its_thread_left_behind(heard: Listener) -> None:
    """The thread ended: it is given back in the background, and told."""
    stage = Stage("sync", [heard])
    kept = stage.lock(ttl=TTL)
    in_thread(lambda: kept.acquire() and None)
    stage.until(lambda: heard.of(Released), "it is given back")
    lives_are_whole(heard)
    stage.close()


@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_a_lease_that_nobody_refers_to(stage: Stage, heard: Listener) -> None:
    """It is not renewed any more, and expires."""
    stage.do(lambda: _drop(stage))
    gc.collect()
    stage.until(lambda: heard.of(Lost), "it expires")
    assert heard.of(Lost)[0].reason == "expired"
    lives_are_whole(heard)


def _drop(stage: Stage) -> Any:
    """Acquire and keep nothing."""
    taken = stage.lock(ttl=TTL).acquire()

    async def later() -> None:
        await taken

    return later() if inspect.isawaitable(taken) else None


@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_a_coordinator_that_is_dropped_with_its_leases(heard: Listener) -> None:
    """Nobody closed it: its leases have an end all the same."""
    hold: Any = leasehold.connect(MemoryStore(), observers=[heard])
    lease = hold.lock("job", 1, ttl=60).acquire()
    assert lease
    del lease, hold
    gc.collect()
    until(lambda: ENDINGS & set(heard.names()), "its end is told")
    lives_are_whole(heard)


# ---------------------------------------------------------------- fences


def test_fenced_off(stage: Stage, heard: Listener) -> None:
    """A guard that refuses a lease tells the observers of the lease, with what it had seen."""
    lease = stage.acquire()
    refuse(stage, lease, downstream="reports")
    (event,) = heard.of(FencedOff)
    fence = lease._held.fence
    assert (event.downstream, event.seen, event.lease.fence, event.lease.kind) == ("reports", fence + 1, fence, "job")
    assert event.lease.number == heard.of(Acquired)[0].lease.number


def test_a_bare_fence_is_told_to_the_guards_observers(heard: Listener) -> None:
    """A service without a lock client has observers of its own; it shows no more of a resource than the rest does."""
    database = sqlite3.connect(":memory:")
    guard = FenceGuard(downstream="reports", observers=[heard])
    guard.create(database)
    database.execute("BEGIN")
    guard.check(database, 7, resource="acme/job:42")
    with pytest.raises(StaleOwner):
        guard.check(database, 6, resource="acme/job:42", owner="host:1:secret.1")
    (event,) = heard.of(FencedOff)
    assert (event.lease.kind, event.lease.owner_prefix, event.lease.fence, event.seen) == ("job", "host:1", 6, 7)
    assert len(event.lease.id_hash) == 12
    database.close()


@pytest.mark.parametrize("end", ["release", "close", "lost", "thread"])
def test_unguarded(set_up: Callable[..., Stage], heard: Listener, end: str) -> None:
    """Correctness was to be protected, and its fence was never seen: told once, however it ended."""
    stage = set_up()
    lease = stage.acquire(ttl=TTL, renew=end != "lost", protects="correctness")
    if end == "close":
        stage.do(stage.hold.close)
    elif end == "lost":
        stage.until(lambda: heard.of(Lost), "it is lost")
    elif end == "thread":
        lease._held.begin_release(stage.clock.now())
        stage.engine.watchdog.release_reporter(lease._held)(object())
    stage.do(lease.release)
    assert len(heard.of(Unguarded)) == 1


@pytest.mark.parametrize("use", ["fence", "headers", "guard", "efficiency"])
def test_not_unguarded(stage: Stage, heard: Listener, use: str) -> None:
    """Whoever reads the fence, or shows it to a guard, takes care; nobody else is asked to."""
    lease = stage.acquire(protects="efficiency" if use == "efficiency" else "correctness")
    if use == "fence":
        assert lease.fence
    elif use == "headers":
        assert lease.headers()
    elif use == "guard":
        refuse(stage, lease)
    stage.do(lease.release)
    assert not heard.of(Unguarded)


# ---------------------------------------------------------------- how it is told


class Curious(Listener):
    """Wants to know more of the holder."""

    wants_holder = True


def test_the_holders_metadata(set_up: Callable[..., Stage], heard: Listener) -> None:
    """For whoever wants it and waits, one look more; a look that fails harms nobody; one try stays one."""
    curious = Curious()
    stage = set_up(curious)
    stage.rival()
    for trouble, known in ((None, {"host": "other"}), (StoreUnavailable, {}), (OutcomeUnknown, {})):
        stage.spy.before = only(Inspect, raising(trouble)) if trouble else nothing
        waiting = stage.start(lambda: stage.lock().acquire(wait=0.2))
        stage.until(waiting.done, "the wait is over")
        assert waiting.result() is None and curious.of(Contended)[-1].holder_meta == known
    assert len(stage.spy.of(Inspect)) == 3 and "other" not in repr(curious.events)
    assert not any(look.queue for look in stage.spy.of(Inspect))  # each of a thousand must not list the thousand
    assert stage.do(stage.lock().try_acquire) is None
    assert curious.of(Contended)[-1].holder_meta == {} and len(stage.spy.of(Inspect)) == 3


def test_a_holder_that_has_just_left(set_up: Callable[..., Stage]) -> None:
    """Between the reply and the look it was handed to us: our own metadata is not the holder's."""
    curious = Curious()
    stage = set_up(curious)
    fence = stage.rival()
    stage.spy.before = once(Inspect, lambda op: stage.rival_leaves(fence))
    waiting = stage.start(stage.lock(meta={"host": "mine"}).acquire)
    stage.until(waiting.done, "it is granted")
    assert curious.of(Contended)[0].holder_meta == {} and len(stage.spy.of(Inspect)) == 1
    stage.do(waiting.result().release)


def test_nobody_asks_when_nobody_is_curious(stage: Stage) -> None:
    """Listening alone costs no round trip."""
    stage.rival()
    assert stage.do(stage.lock().try_acquire) is None
    assert not stage.spy.of(Inspect)


def test_every_life_is_whole(stage: Stage, heard: Listener) -> None:
    """After a life in which everything happens, everything that began has ended."""
    held = live(stage, heard)
    stage.do(held.release)
    lives_are_whole(heard)
    told = {type(event).__name__ for event in heard.events}
    assert told == {kind.__name__ for kind in events.__dict__["Event"].__args__}


class Prober:
    """Looks, whenever it is told something, whether others can go on meanwhile."""

    def __init__(self, patience: float = 2.0) -> None:
        self.patience = patience
        self.stage: Stage | None = None
        self.told: set[str] = set()
        self.stuck: set[str] = set()

    def __call__(self, event: events.Event) -> None:
        """Another thread must get every lock that there is."""
        stage, name = self.stage, type(event).__name__
        if stage is not None and name not in self.told:
            self.told.add(name)
            if not in_thread(lambda: others_go_on(stage, self.patience)):
                self.stuck.add(name)


def others_go_on(stage: Stage, patience: float) -> bool:
    """Are the locks of the runtime and of the store free?"""
    inner: Any = stage.spy.inner
    background_ops = stage.engine.watchdog._background_ops
    locks = [stage.engine.watchdog.transitions, stage.engine.watchdog._starting, background_ops._lock, inner._lock]
    got = [lock.acquire(timeout=patience) for lock in locks]
    for lock, taken in zip(locks, got, strict=True):
        if taken:
            lock.release()
    return all(got)


def test_nothing_is_told_under_a_lock(set_up: Callable[..., Stage], heard: Listener) -> None:
    """A slow observer holds up nobody else: no lock is held while it is told."""
    prober = Prober()
    stage = set_up(prober)
    prober.stage = stage
    live(stage, heard)
    stage.do(stage.hold.close)
    assert prober.told == {kind.__name__ for kind in events.__dict__["Event"].__args__}
    assert not prober.stuck


def test_the_prober_can_fail(set_up: Callable[..., Stage]) -> None:
    """A lock that is held is noticed."""
    prober = Prober(patience=0.05)
    stage = prober.stage = set_up(prober)
    with stage.engine.watchdog.transitions:
        prober(events.Leaking(0))
    assert prober.stuck == {"Leaking"}


def test_an_observer_may_call_back(set_up: Callable[..., Stage]) -> None:
    """It should not; but nothing waits for itself when it does."""
    threads = leasehold.connect(MemoryStore())

    def busybody(event: events.Event) -> None:
        lock = threads.lock("called-back", 1)
        lease = lock.try_acquire()
        if lease:
            lease.release()

    stage = set_up(busybody)
    threads = leasehold.connect(stage.spy)
    lease = stage.acquire(ttl=TTL)
    stage.evict(lease)
    stage.until(lambda: lease.state == "lost", "it is lost")
    assert stage.do(lease.release) is False
    threads.close()


def test_a_callback_into_its_own_coordinator(heard: Listener) -> None:
    """Acquiring, releasing and closing from inside an event, on whichever thread it is told."""
    again: list[str] = []

    def busybody(event: events.Event) -> None:
        if isinstance(event, Lost) and not again:
            again.append(threading.current_thread().name)
            with stage.hold.lock("called-back", 1, wait=0):
                pass
            stage.hold.close()

    stage = Stage("sync", [heard, busybody])
    lease = stage.acquire(ttl=TTL, renew=False)
    stage.clock.advance(TTL)
    until(lambda: "called-back" in {subject(event).kind for event in heard.events}, "it called back")
    assert again == ["leasehold-watchdog"] and lease.state == "lost"
    stage.close()


def test_a_slow_observer_keeps_nothing_from_being_given_back(heard: Listener) -> None:
    """close() gives back everything before it tells anybody."""
    gate = threading.Event()

    def slow(event: events.Event) -> None:
        if isinstance(event, Lost):
            gate.wait(60)

    spy = Spy(MemoryStore())
    hold = leasehold.connect(spy, observers=[slow])
    leases = [hold.lock("job", number).acquire() for number in range(5)]
    assert all(leases)
    with elsewhere(hold.close) as closed:
        until(lambda: len(spy.of(Release)) == 5, "all are given back")
        gate.set()
        closed()


def test_a_slow_observer_costs_nobody_its_lease(heard: Listener) -> None:
    """The work of a lost lease hears of it, and others are renewed, before any observer of the loss is told."""
    order: list[str] = []
    stage = Stage("sync", [lambda event: order.append(type(event).__name__)])
    lost, kept = stage.acquire("job", 1, ttl=TTL), stage.acquire("job", 2, ttl=TTL)
    lost._held.listen(lambda: order.append("the work"))
    stage.spy.before = only(Renew, lambda op: order.append("renewal"))
    order.clear()
    with stage.engine.watchdog.transitions:
        for lease in (lost, kept):
            lease._held.renew_at = stage.clock.now()
            stage.engine.watchdog.check_again(lease._held)
        lost._held._lose("evicted")
    until(lambda: "Lost" in order, "the loss is told")
    assert order.index("the work") < order.index("renewal") < order.index("Lost")
    assert kept.state == "held"
    stage.close()


def test_every_event_is_documented() -> None:
    """The table at the top of the file names each event and nothing else, and each carries what the others do."""
    kinds = events.__dict__["Event"].__args__
    table = [line.split()[0] for line in (events.__doc__ or "").splitlines() if line.startswith("    ")]
    assert table == [kind.__name__ for kind in kinds]
    firsts = {"lease": "of a lease", "kind": "of a pattern"}
    assert all(kind._fields[0] in firsts for kind in kinds if kind is not events.Leaking)


def test_evictions_by_others_are_told_apart(stage: Stage, heard: Listener) -> None:
    """Numbers belong to leases: what happens to one is not told of another."""
    first, second = stage.acquire("job", 1, ttl=TTL), stage.acquire("job", 2, ttl=TTL)
    stage.spy.inner.execute(Evict(first.resource, first.owner, first._held.fence, "r", delay_ms=0, force=True))
    stage.until(lambda: heard.of(Lost), "one is lost")
    assert [event.lease.number for event in heard.of(Lost)] == [heard.of(Acquired)[0].lease.number]
    assert second.state == "held" and RIVAL not in repr(heard.events)


def test_given_back_once_by_whoever_comes_first(stage: Stage, heard: Listener) -> None:
    """close() while the watchdog is just giving back what a thread has left behind: one release, and none too late."""
    under_way, go_on = threading.Event(), threading.Event()
    lease = stage.acquire(ttl=TTL)

    def hang(op: StoreOp) -> None:
        under_way.set()
        assert go_on.wait(60)

    stage.spy.before = only(Release, hang)
    held = lease._held
    release = held.begin_release(stage.clock.now())
    stage.engine.forget(held)
    stage.engine.watchdog.run_later(Defer(release, TTL), stage.engine.watchdog.release_reporter(held))
    assert under_way.wait(60)
    looked = threading.Event()

    def close() -> None:
        stage.engine.watchdog.give_back([], "closed")
        looked.set()

    with elsewhere(close) as closed:
        until(lambda: looked.is_set() or len(stage.spy.of(Release)) > 1, "close() has looked at what is left")
        go_on.set()
        closed()
    until(lambda: heard.of(Released), "it is told")
    assert len(stage.spy.of(Release)) == 1 and not heard.of(StaleRelease)
