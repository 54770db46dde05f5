"""``linger=``: a lease that is released stays with its process for a moment, and goes back when somebody wants it."""

from __future__ import annotations

import asyncio
import gc
import os
import threading
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

import leasehold
from leasehold import InvalidRequest, LeaseLost, StaleOwner, StoreUnavailable
from leasehold._core import cohort as cohort_module
from leasehold._core.ops import Claim, Release, Renew
from leasehold._core.policy import PASS_SECONDS
from leasehold._runtime import cohorts
from leasehold._runtime.held_lease import HeldLease
from leasehold.guards.memory import FenceGuard
from leasehold.observe.events import Acquired, Released
from leasehold.stores.memory import MemoryStore
from tests.support.crew import Crew
from tests.support.lock import (
    Spy,
    StillClock,
    elsewhere,
    look,
    nothing_left,
    only,
    reply_lost,
    tick,
    unreachable,
    waiting,
)
from tests.support.tables import each
from tests.support.waiting import PATIENCE, until, until_async

TTL = 60
LINGER = 5
HOUR = 3600


class Stage:
    """A coordinator over a spied store whose clock stands still, and another one beside it."""

    def __init__(self) -> None:
        self.clock = StillClock()
        self.store = MemoryStore(self.clock)
        self.spy = Spy(self.store)
        self.hold = leasehold.connect(self.spy)
        self.other = leasehold.connect(self.store)

    def lock(self, **options: Any) -> Any:
        """The lock of all these tests."""
        return self.hold.lock("job", **{"ttl": TTL, "linger": LINGER, "wait": PATIENCE, **options})

    def use(self, **options: Any) -> tuple[int, str]:
        """One turn: its fence and its owner."""
        with self.lock(**options) as lease:
            self.settle(self.hold)
            return lease.fence, lease.owner

    def settle(self, hold: Any) -> None:
        """What it has to know before a lease of it lingers: the store can tell it of claims, and time has passed."""
        until(hold._engine.watchdog.hears, "it can be told")
        self.clock.advance(0.001)  # fences are reserved up to the clock

    def lingers(self) -> bool:
        """Does the store show a holder that nobody here is?"""
        return len(self.hold._engine.watchdog.lingering) == 1 and len(look(self.store, "job").holders) == 1

    def gone(self) -> bool:
        """Nothing is kept here, and nothing is left in the store."""
        engine = self.hold._engine
        left = engine.cohorts or engine.watchdog.lingering or engine.watchdog.passing
        return not left and nothing_left(self.store, "job")

    def asked(self) -> list[Renew]:
        """What was sent for more fences."""
        return [op for op in self.spy.of(Renew) if op.fences]


@pytest.fixture
def stage() -> Iterator[Stage]:
    """Ends whatever happens."""
    made = Stage()
    yield made
    made.spy.heal()
    made.hold.close()
    made.other.close()


# ---------------------------------------------------------------- taking it again


def test_taking_it_again_is_local(stage: Stage) -> None:
    """Ten turns: one claim and one question. Each has an owner and a fence of its own."""
    turns = [stage.use() for _ in range(10)]
    fences = [fence for fence, _ in turns]
    assert fences == sorted(set(fences)) and len({owner for _, owner in turns}) == 10
    assert len(stage.spy.of(Claim)) == len(stage.asked()) == 1 and not stage.spy.of(Release) and stage.lingers()


def test_each_lease_ends_with_its_release(stage: Stage) -> None:
    """What an earlier holder still has in its hands is released, and stays so."""
    first = stage.lock().acquire()
    stage.settle(stage.hold)
    assert first.release() is True and first.state == "released"
    second = stage.lock().acquire()
    assert (first.state, second.state) == ("released", "held") and second.owner != first.owner
    assert second.release() is True and second.remaining() == 0


def test_a_single_try_takes_it(stage: Stage) -> None:
    """It does not have to wait for it."""
    stage.use()
    lease = stage.lock().try_acquire()
    assert lease is not None and len(stage.spy.of(Claim)) == 1
    assert stage.lock().try_acquire() is None and lease.release()


def test_a_lock_without_linger_takes_it_and_gives_it_back(stage: Stage) -> None:
    """An equal lock may have what lingers; its release is a release."""
    stage.use()
    stage.use(linger=0)
    assert stage.gone() and len(stage.spy.of(Claim)) == 1


def test_another_thread_takes_it(stage: Stage) -> None:
    """It belongs to no thread while it lingers."""
    stage.use()
    with elsewhere(stage.use) as used:
        used()
    assert len(stage.spy.of(Claim)) == 1 and stage.lingers()


def test_a_reentrant_lock_lingers_after_its_outermost_body(stage: Stage) -> None:
    """Not before."""
    lock = stage.lock(reentrant=True)
    with lock:
        stage.settle(stage.hold)
        with lock:
            pass
        assert not stage.hold._engine.watchdog.lingering
    assert stage.lingers()


def test_those_who_wait_here_come_first(stage: Stage) -> None:
    """It passes from one to the next, and lingers after the last."""
    first = stage.lock().acquire()
    crew = Crew(stage.hold, ttl=TTL, linger=LINGER, wait=PATIENCE)
    hands = crew.come(3)
    stage.settle(stage.hold)
    assert first.release()
    hands[0].has_it()
    stage.clock.advance(0.001)
    for hand in hands:
        hand.has_it()
        assert hand.let_go() is True
    assert stage.lingers()
    crew.end()


def test_a_renewal_is_due(stage: Stage) -> None:
    """A release that finds the lease due for renewal asks the store, which renews it."""
    stage.use()
    for _ in range(4):
        tick(stage.hold, LINGER - 1, step=LINGER - 1)
        stage.use()
    assert len(stage.asked()) == 1
    tick(stage.hold, LINGER - 0.1, step=LINGER - 0.1)  # a third of the ttl is over
    stage.use()
    assert len(stage.asked()) == 2 and stage.lingers()
    (grant,) = look(stage.store, "job").holders
    assert grant.expires_ms - stage.clock.instant().ms > (TTL - 1) * 1000


def test_a_block_of_fences_runs_out(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """The store is asked for more: others are overtaken so often at most."""
    monkeypatch.setattr(cohort_module, "MOST_PASSES", 3)
    fences = [stage.use()[0] for _ in range(10)]
    assert fences == sorted(set(fences)) and len(stage.asked()) == 4 and len(stage.spy.of(Claim)) == 1


def test_observers_see_every_turn(stage: Stage) -> None:
    """As if each had been granted by the store."""
    seen: list[Any] = []
    with leasehold.connect(stage.store, observers=[seen.append]) as hold:
        for _ in range(3):
            with hold.lock("seen", ttl=TTL, linger=LINGER):
                stage.settle(hold)
        assert len(hold._engine.watchdog.lingering) == 1
    got: list[Any] = [one.lease.fence for one in seen if isinstance(one, Acquired)]
    assert got == sorted(set(got)) == [one.lease.fence for one in seen if isinstance(one, Released)] and len(got) == 3


# ---------------------------------------------------------------- how it ends


def test_its_moment_is_over(stage: Stage) -> None:
    """It goes back to the store, and the next one claims."""
    first, _ = stage.use()
    tick(stage.hold, LINGER - 0.1, step=LINGER - 0.1)
    assert stage.lingers()
    tick(stage.hold, 0.2, step=0.2)
    assert stage.gone() and len(stage.spy.of(Release)) == 1
    assert stage.use()[0] > first and len(stage.spy.of(Claim)) == 2


def test_its_moment_begins_anew_with_each_release(stage: Stage) -> None:
    """However often it is taken."""
    for _ in range(3):
        stage.use()
        tick(stage.hold, LINGER - 0.1, step=LINGER - 0.1)
        assert stage.lingers()


def test_a_claim_of_somebody_else_brings_it_back(stage: Stage) -> None:
    """At once, by a push: the clock stands still."""
    mine, _ = stage.use()
    theirs = stage.other.lock("job", ttl=TTL, wait=PATIENCE).acquire()
    assert theirs is not None and theirs.fence > mine and theirs.release()
    until(stage.gone, "nothing is left")


def test_a_try_of_somebody_else_brings_it_back(stage: Stage) -> None:
    """That try is in vain; one after it is not."""
    stage.use()
    assert stage.other.lock("job", ttl=TTL).try_acquire() is None
    until(stage.gone, "it was given back")
    lease = stage.other.lock("job", ttl=TTL).try_acquire()
    assert lease is not None and lease.release()


def test_somebody_else_waits_while_it_is_used(stage: Stage) -> None:
    """It does not linger after that."""
    stage.use()
    lease = stage.lock().acquire()
    with elsewhere(lambda: stage.other.lock("job", ttl=TTL, wait=PATIENCE).acquire()) as theirs:
        until(lambda: waiting(stage.store, "job") == 1, "it waits")
        until(lambda: lease._held.cohort._others, "the holder was told")
        assert lease.release()
        found = theirs()
    assert found is not None and found.fence > lease.fence and found.release()


def test_somebody_else_has_waited_when_it_is_first_released(stage: Stage) -> None:
    """The store says so when it is asked."""
    mine = stage.lock().acquire()
    with elsewhere(lambda: stage.other.lock("job", ttl=TTL, wait=PATIENCE).acquire()) as theirs:
        stage.settle(stage.hold)
        until(lambda: waiting(stage.store, "job") == 1, "it waits")
        assert mine.release()
        found = theirs()
    assert found is not None and found.release() and len(stage.asked()) == 1


def test_another_lock_of_this_process_gets_it_from_the_store(stage: Stage) -> None:
    """With another ttl it is not equal: its claim brings back what lingers."""
    stage.use()
    stage.use(ttl=TTL / 2)
    assert len(stage.spy.of(Claim)) == 2


@pytest.mark.parametrize("special", [{"renew": False}, {"at_least": 1}, {"delay": 1}])
def test_a_lock_that_cannot_pass_does_not_take_it(stage: Stage, special: dict[str, Any]) -> None:
    """It needs a grant of its own, and its claim brings back what lingers."""
    stage.use()
    stage.use(linger=0, **special)
    assert len(stage.spy.of(Claim)) == 2


def test_two_coordinators_of_one_process(stage: Stage) -> None:
    """Each has what lingers for itself, and takes it from the other through the store."""
    fences = []
    for hold in (stage.hold, stage.other) * 3:
        with hold.lock("job", ttl=TTL, linger=LINGER, wait=PATIENCE) as lease:
            stage.settle(hold)
            fences.append(lease.fence)
    assert fences == sorted(set(fences))


def test_an_eviction_of_what_lingers(stage: Stage) -> None:
    """Nobody has lost anything. The next one claims, and is granted when the door opens."""
    mine, _ = stage.use()
    (grant,) = look(stage.store, "job").holders
    stage.other.evict("job", fence=grant.fence, reason="test", delay=0, force=True)
    until(lambda: not stage.hold._engine.watchdog.lingering, "it is not kept")
    assert stage.use()[0] > mine


def test_an_eviction_of_what_was_taken_again(stage: Stage) -> None:
    """Its holder learns of it, though the store knows another owner and fence."""
    stage.use()
    lease = stage.lock().acquire()
    (grant,) = look(stage.store, "job").holders
    stage.other.evict("job", fence=grant.fence, reason="test", delay=0, force=True)
    until(lambda: lease.state == "lost", "it is lost")
    with pytest.raises(LeaseLost, match="evicted"):
        lease.check()


def test_an_operator_asks_for_what_lingers(stage: Stage) -> None:
    """It is given back."""
    stage.use()
    stage.other.revoke("job")
    until(stage.gone, "it was given back")


def test_an_operator_asks_for_what_is_used(stage: Stage) -> None:
    """It does not linger after that."""
    stage.use()
    with stage.lock() as lease:
        stage.other.revoke("job")
        assert lease.revoked.wait(PATIENCE)
    assert stage.gone()


def test_close_gives_it_back(stage: Stage) -> None:
    """At once."""
    stage.use()
    stage.hold.close()
    assert nothing_left(stage.store, "job")


def test_one_that_is_released_in_the_midst_of_close(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """It does not linger any more: nobody would give it back."""
    stage.use()
    lease = stage.lock().acquire()
    watchdog = stage.hold._engine.watchdog
    give_back = watchdog.give_back

    def released_first(*what: Any) -> None:
        with elsewhere(lease.release):
            pass
        give_back(*what)

    monkeypatch.setattr(watchdog, "give_back", released_first)
    stage.hold.close()
    assert nothing_left(stage.store, "job") and not watchdog.lingering


def test_a_dropped_coordinator_gives_it_back() -> None:
    """Without close(), too."""
    store = MemoryStore()
    hold = leasehold.connect(store)
    with hold.lock("job", ttl=TTL, linger=LINGER):
        until(hold._engine.watchdog.hears, "it can be told")
    assert look(store, "job").holders
    del hold
    gc.collect()
    until(lambda: nothing_left(store, "job"), "it was given back")


def test_a_child_of_a_fork_has_nothing_that_lingers(stage: Stage) -> None:
    """It is the parent's, who goes on with it."""
    stage.use()
    child = os.fork()
    if not child:
        engine = stage.hold._engine
        os._exit(0 if not engine.cohorts and not engine.watchdog.lingering else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    stage.use()
    assert len(stage.spy.of(Claim)) == 1


def test_a_fork_while_it_is_taken(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """A signal handler may fork at any line. The parent has it then, and the child has nothing."""
    stage.use()
    children: list[int] = []

    def made_by_both(*fields: Any) -> HeldLease:
        held = HeldLease(*fields)
        children.append(os.fork())
        return held

    monkeypatch.setattr(cohorts, "HeldLease", made_by_both)
    try:
        mine = stage.lock().acquire()
        has_it = mine.state == "held"
    except StoreUnavailable:
        has_it = False
    if not children[0]:
        os._exit(int(has_it))
    assert has_it and os.waitstatus_to_exitcode(os.waitpid(children[0], 0)[1]) == 0
    assert mine.release() is True


def test_a_frozen_process(stage: Stage) -> None:
    """Its lease ends with its ttl, whatever lingers. When it goes on it takes nothing that is over."""
    mine, _ = stage.use()
    stage.hold._engine.watchdog.pause()
    stage.clock.advance(TTL + 1)
    theirs = stage.other.lock("job", ttl=TTL).try_acquire()
    assert theirs is not None and theirs.fence > mine
    assert stage.lock().try_acquire() is None
    assert theirs.release() and stage.use()[0] > theirs.fence
    stage.hold._engine.watchdog.pause(False)


def test_nobody_takes_it_near_its_end(stage: Stage) -> None:
    """Work could not begin with what is left of it."""
    stage.use(linger=TTL)
    stage.hold._engine.watchdog.pause()
    stage.clock.advance(TTL * 5 / 6)
    assert stage.lock(linger=TTL).try_acquire() is None and len(stage.spy.of(Claim)) == 2
    stage.hold._engine.watchdog.pause(False)
    until(stage.gone, "it was given back")


def test_a_dead_process() -> None:
    """Nobody gives it back: it ends with its ttl."""
    clock = StillClock()
    store = MemoryStore(clock)
    hold = leasehold.connect(store)
    with hold.lock("job", ttl=TTL, linger=LINGER):
        until(hold._engine.watchdog.hears, "it can be told")
        clock.advance(0.001)
    hold._engine.watchdog.pause()
    with leasehold.connect(store) as other:
        clock.advance(LINGER + 1)
        assert other.lock("job", ttl=TTL).try_acquire() is None
        clock.advance(TTL - LINGER)
        lease = other.lock("job", ttl=TTL).try_acquire()
        assert lease is not None and lease.release()
    hold._engine.watchdog.pause(False)
    hold.close()


# ---------------------------------------------------------------- trouble


def test_the_clock_of_the_store_is_set_back(stage: Stage) -> None:
    """While a block is open its fences are good; then none can be reserved, and it goes back each time."""
    first, _ = stage.use()
    stage.clock.step_wall(-HOUR)
    second, _ = stage.use()
    assert second > first and stage.lingers()
    tick(stage.hold, LINGER + 1, step=LINGER + 1)
    assert stage.gone()
    third, _ = stage.use()
    assert third > second and stage.gone()


def test_the_store_cannot_be_asked(stage: Stage) -> None:
    """It is given back, as far as that goes, and the program hears nothing of it."""
    stage.spy.before = only(Renew, unreachable)
    stage.use()
    assert stage.gone()


def test_the_answer_is_lost(stage: Stage) -> None:
    """The fences that it reserved are nobody's."""
    stage.spy.after = only(Renew, reply_lost)
    first, _ = stage.use()
    assert stage.gone()
    stage.spy.heal()
    assert stage.use()[0] > first


def test_a_guard_has_seen_a_later_fence(stage: Stage) -> None:
    """What lingers has only lower ones: a new claim is granted above it."""
    guard = FenceGuard()
    stage.use()
    with stage.lock() as lease:
        ahead = lease.fence + 10**9
        guard.check(ahead, resource=lease.resource, owner="another")
        with pytest.raises(StaleOwner):
            guard.check(lease)
    assert stage.use()[0] > ahead


def test_max_hold_counts_from_each_turn(stage: Stage) -> None:
    """What lingered before does not count."""
    for _ in range(4):
        with stage.lock(max_hold=10) as lease:
            stage.settle(stage.hold)
            tick(stage.hold, 5, step=1)
            lease.check()
        tick(stage.hold, 4, step=4)
    assert len(stage.spy.of(Claim)) == 1
    with pytest.raises(LeaseLost, match="max_hold"), stage.lock(max_hold=10):
        tick(stage.hold, 11, step=1)


def test_a_lease_that_was_extended_does_not_linger(stage: Stage) -> None:
    """It is no longer what an equal lock would get."""
    with stage.lock() as lease:
        stage.settle(stage.hold)
        lease.extend(TTL * 2)
    assert stage.gone() and not stage.asked()


def test_a_store_without_pushes() -> None:
    """Nobody can tell the process: a claim of somebody else waits until the moment is over, and no longer."""
    clock = StillClock()
    store = MemoryStore(clock)
    spy = Spy(store)
    spy.capabilities = spy.capabilities._replace(push=False)
    spy.holder_pushes = lambda: None
    with leasehold.connect(spy) as hold, leasehold.connect(store) as other:
        for _ in range(3):
            with hold.lock("job", ttl=TTL, linger=LINGER):
                clock.advance(0.001)
        assert len(spy.of(Claim)) == 1 and not any(op.tell for op in spy.of(Renew))
        assert other.lock("job", ttl=TTL).try_acquire() is None and hold._engine.watchdog.lingering
        tick(hold, LINGER + 0.1, step=LINGER + 0.1)
        found = other.lock("job", ttl=TTL).try_acquire()
        assert found is not None and found.release()


def test_a_store_without_pushes_is_asked_now_and_then() -> None:
    """As often as by those who pass a lease on: it may say that somebody waits."""
    clock = StillClock()
    spy = Spy(MemoryStore(clock))
    spy.holder_pushes = lambda: None
    with leasehold.connect(spy) as hold:
        for _ in range(4):
            with hold.lock("job", ttl=TTL, linger=LINGER):
                clock.advance(PASS_SECONDS + 0.001)
        assert len(spy.of(Claim)) == 1 and len(spy.of(Renew)) == 4


async def test_tasks_and_a_store_without_pushes() -> None:
    """The same in asyncio: it is taken again, and nobody else gets it before its moment is over."""
    clock = StillClock()
    store = MemoryStore(clock)
    spy = Spy(store)
    spy.capabilities = spy.capabilities._replace(push=False)
    spy.holder_pushes = lambda: None
    async with leasehold.aio.connect(spy) as hold, leasehold.aio.connect(store) as other:
        for _ in range(3):
            async with hold.lock("job", ttl=TTL, linger=LINGER):
                clock.advance(0.001)
        assert len(spy.of(Claim)) == 1 and not any(op.tell for op in spy.of(Renew))
        assert await other.lock("job", ttl=TTL).try_acquire() is None and hold._engine.watchdog.lingering
        tick(hold, LINGER + 0.1, step=LINGER + 0.1)
        found = await other.lock("job", ttl=TTL).try_acquire()
        assert found is not None and await found.release()


def test_nothing_lingers_while_the_store_cannot_tell(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """It can push, and is not heard yet, or not any more: a release is a release."""
    stage.use()
    assert stage.lingers()
    monkeypatch.setattr(stage.hold._engine.watchdog, "hears", lambda: False)
    with stage.lock():
        pass
    assert stage.gone()
    with stage.lock():
        stage.clock.advance(0.001)
    assert stage.gone() and len(stage.asked()) == 1


# ---------------------------------------------------------------- many


def test_many_threads_take_it_again_and_again() -> None:
    """Two coordinators, four threads each: one at a time, with growing fences, and nobody is left out."""
    store = MemoryStore()
    fences: list[int] = []
    inside = threading.Lock()

    def turns(hold: Any) -> None:
        for _ in range(50):
            with hold.lock("job", ttl=TTL, linger=LINGER, wait=PATIENCE) as lease:
                assert inside.acquire(blocking=False), "two at once"
                fences.append(lease.fence)
                inside.release()

    with leasehold.connect(store) as one, leasehold.connect(store) as other:
        threads = [threading.Thread(target=turns, args=[hold]) for hold in (one, other) * 4]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE)
    assert len(fences) == 400 and fences == sorted(set(fences))
    assert nothing_left(store, "job")


async def test_tasks_take_it_again() -> None:
    """The same in asyncio; and a claim of somebody else brings it back."""
    spy = Spy(MemoryStore())
    async with leasehold.aio.connect(spy) as hold, leasehold.aio.connect(spy.inner) as other:
        fences = []
        for _ in range(5):
            async with hold.lock("job", ttl=TTL, linger=LINGER) as lease:
                fences.append(lease.fence)
                await until_async(hold._engine.watchdog.hears, "it can be told")
        assert fences == sorted(set(fences)) and len(spy.of(Claim)) == 1
        async with other.lock("job", ttl=TTL, wait=PATIENCE) as lease:
            assert lease.fence > fences[-1]
        await until_async(lambda: nothing_left(spy, "job"), "nothing is left")


async def test_a_task_is_cancelled_while_it_asks() -> None:
    """It has done with the lease: it is given back."""
    spy = Spy(MemoryStore())
    async with leasehold.aio.connect(spy) as hold:
        lease = await hold.lock("job", ttl=TTL, linger=LINGER).acquire()
        assert lease is not None
        await until_async(hold._engine.watchdog.hears, "it can be told")

        async def stop() -> None:
            raise asyncio.CancelledError

        spy.suspend = stop
        with pytest.raises(asyncio.CancelledError):
            await lease.release()
        spy.suspend = None
        await until_async(lambda: nothing_left(spy, "job"), "it was given back")


def test_many_that_are_wanted_at_once_cost_one_look(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """What one reading of pushes costs grows with what is held, or with their number, and not with both."""
    stage.use()
    names = range(100)
    for name in names:
        with stage.hold.lock("other", name, ttl=TTL, linger=LINGER):
            stage.clock.advance(0.001)
    watchdog = stage.hold._engine.watchdog
    assert len(watchdog.lingering) == 1 + len(names)
    watchdog.pause()
    batch = stage.other.acquire_many([stage.other.lock("other", name, ttl=TTL) for name in names])
    assert len(batch.refused) == len(names)
    looks: list[int] = []
    leases = watchdog.leases

    def look_at_all() -> list[HeldLease]:
        looks.append(1)
        found: list[HeldLease] = leases()
        return found

    monkeypatch.setattr(watchdog, "leases", look_at_all)
    watchdog.pause(False)
    until(lambda: len(watchdog.lingering) == 1, "all of them are given back")
    assert len(looks) < 10


def test_a_lease_that_begins_to_linger_while_pushes_are_applied(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was held when the watchdog looked what the push is about, and goes back all the same."""
    stage.use()
    lease = stage.lock().acquire()
    watchdog = stage.hold._engine.watchdog
    apply = watchdog._apply

    def after_a_release(*what: Any) -> None:
        lease.release()
        assert stage.lingers()
        apply(*what)

    monkeypatch.setattr(watchdog, "_apply", after_a_release)
    assert stage.other.lock("job", ttl=TTL).try_acquire() is None
    until(lambda: lease.state == "released" and not stage.lingers(), "it is given back")


# ---------------------------------------------------------------- bad input


@each("wrong", [-1, float("nan"), float("inf"), "soon", True, TTL + 1, "2m", timedelta(0)])
def test_what_is_no_linger(wrong: Any) -> None:
    """Before anything is sent."""
    spy = Spy(MemoryStore())
    with leasehold.connect(spy) as hold:
        with pytest.raises(InvalidRequest, match="linger"):
            hold.lock("job", ttl=TTL, linger=wrong)
        assert not spy.ops


@each("other", [{"renew": False}, {"at_least": 1}, {"delay": 1}, {"durability": "replicas:1"}])
def test_what_cannot_linger(other: dict[str, Any]) -> None:
    """Such a lease needs the store for each turn."""
    with leasehold.connect("memory://") as hold, pytest.raises(InvalidRequest, match="linger and"):
        hold.lock("job", linger=1, **other)


def test_what_cannot_linger_in_a_durable_coordinator() -> None:
    """Its leases need the store for each turn, too. Nothing is sent."""
    with leasehold.connect("redis://127.0.0.1:1/0", durability="fsync") as hold:
        with pytest.raises(InvalidRequest, match="linger and the durability"):
            hold.lock("job", linger=1)
        hold.lock("job", linger=0)


@each("good", [0, 0.0, 1, 0.5, "500ms", timedelta(seconds=1), TTL])
def test_what_is_a_linger(good: Any) -> None:
    """Up to the ttl."""
    with leasehold.connect("memory://") as hold, hold.lock("job", ttl=TTL, linger=good):
        pass
