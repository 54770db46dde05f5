"""Loss: what the holder may believe when renewals fail, are refused or come late; and how it gives back."""

from __future__ import annotations

import asyncio
import os
import pickle
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import leasehold
from leasehold import LeaseLost, OutcomeUnknown, StoreUnavailable
from leasehold._core.ops import Beat, Claim, Defer, Evict, Release, Renew, StoreOp, Withdraw
from leasehold._runtime import engine, shutdown
from leasehold.stores.clock import ManualClock
from leasehold.stores.memory import MemoryStore
from tests.support.lock import (
    Spy,
    StillClock,
    elsewhere,
    look,
    nothing_left,
    once,
    only,
    open_store,
    reply_lost,
    sync_scene,
    tick,
    unreachable,
)
from tests.support.parties import FLAVOURS, Party
from tests.support.waiting import PATIENCE, until

SOURCE = Path(leasehold.__file__).parent.parent


class Stage:
    """One holder in one flavour over a spied store, and a clock that only the test turns."""

    def __init__(self, flavour: str, clock: ManualClock | None = None) -> None:
        self.flavour = flavour
        self.clock = clock or StillClock()
        self.spy = Spy(MemoryStore(self.clock))
        self.party: Party = FLAVOURS[flavour](self.spy)
        self.hold = self.party.hold

    def acquire(self, **options: Any) -> Any:
        """A lease on the job."""
        return self.party.do(lambda hold: hold.lock("job", **options).acquire())

    def do(self, call: Callable[[], Any]) -> Any:
        """A call of the party's own, awaited where it must be."""
        return self.party.do(lambda _: call())

    def raises(self, kind: type[BaseException], call: Callable[[], Any]) -> Any:
        """The error that a call of the party must end with."""
        with pytest.raises(kind) as info:
            self.do(call)
        return info.value

    def pass_time(self, seconds: float, step: float = 0.05) -> None:
        """Let time pass, with a round of the watchdog after each step."""
        tick(self.hold, seconds, step)

    def store(self, op: StoreOp) -> Any:
        """Somebody else's op."""
        return self.spy.inner.execute(op)


@pytest.fixture(params=FLAVOURS)
def stage(request: pytest.FixtureRequest) -> Iterator[Stage]:
    """A stage in each flavour."""
    made = Stage(request.param)
    yield made
    made.spy.heal()
    made.party.close()


@pytest.fixture(params=FLAVOURS)
def turning(request: pytest.FixtureRequest) -> Iterator[Stage]:
    """The same on a clock that everybody watches: for those who wait."""
    made = Stage(request.param, ManualClock())
    yield made
    made.spy.heal()
    made.party.close()


@pytest.fixture
def thread_stage() -> Iterator[Stage]:
    """A stage in threads, where the flavour cannot matter."""
    made = Stage("sync")
    yield made
    made.spy.heal()
    made.party.close()


# ---------------------------------------------------------------- not yours


def evict(stage: Stage, lease: Any) -> None:
    """An operator throws the holder out."""
    stage.store(Evict("job", lease.owner, lease.fence, "request", delay_ms=0, force=True))


def delete(stage: Stage, lease: Any) -> None:
    """Somebody deletes the keys."""
    stage.spy.inner._states.clear()  # type: ignore[attr-defined]


def take(stage: Stage, lease: Any) -> None:
    """Somebody deletes the keys, and somebody else acquires."""
    delete(stage, lease)
    stage.clock.step_wall(1)
    stage.store(Claim("job", "other:1:x", 60_000))


def expire(stage: Stage, lease: Any) -> None:
    """The store's clock runs ahead of ours: by its count the time is over."""
    state = stage.spy.inner._states["job"]  # type: ignore[attr-defined]
    grant = state.holders[0]._replace(expires_ms=stage.clock.instant().ms - 1)
    stage.spy.inner._states["job"] = state._replace(holders=(grant,))  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("event", "reason"), [(evict, "evicted"), (delete, "deleted"), (take, "taken"), (expire, "deleted")]
)
def test_trap_01_not_yours_is_loss_now(stage: Stage, event: Callable[[Stage, Any], None], reason: str) -> None:
    """A renewal that is answered "not yours" is loss at once, with its reason, long before the deadline."""
    lease = stage.acquire(ttl=6)
    heard: list[LeaseLost] = []
    stage.do(lambda: lease.on_lost(heard.append))
    lost = stage.do(lambda: lease.lost)
    event(stage, lease)
    stage.pass_time(2.1)
    assert lease.deadline > stage.clock.now() + 3
    assert lease.state == "lost" and lease.remaining() == 0
    until(lambda: heard and lost.is_set(), "everybody is told")
    assert heard[0].reason == reason and heard[0].fence == lease.fence and len(heard) == 1
    assert stage.raises(LeaseLost, lambda: lease.extend(6)).reason == reason
    sent = len(stage.spy.ops)
    stage.pass_time(10)
    assert len(stage.spy.ops) == sent and stage.do(lease.release) is False


@pytest.mark.parametrize(
    ("event", "reason"), [(evict, "evicted"), (delete, "deleted"), (take, "taken"), (expire, "deleted")]
)
def test_a_refused_release_is_a_loss_too(stage: Stage, event: Callable[[Stage, Any], None], reason: str) -> None:
    """Leaving a body whose lease had gone unnoticed: LeaseLost with the reason that the store gives."""

    def body(lease: Any) -> None:
        event(stage, lease)

    future = stage.party.within(lambda hold: hold.lock("job", ttl=6), body)
    with pytest.raises(LeaseLost) as info:
        future.result(PATIENCE)
    assert info.value.reason == reason


def test_an_explicit_release_of_what_was_taken_is_false(stage: Stage) -> None:
    """``release()`` of a lease that had gone unnoticed answers False and touches nobody."""
    lease = stage.acquire(ttl=6)
    take(stage, lease)
    assert stage.do(lease.release) is False and lease.state == "lost"
    assert look(stage.spy, "job").holders[0].owner == "other:1:x"


def test_an_extend_of_what_was_taken_is_lost(stage: Stage) -> None:
    """``extend()`` of a lease that had gone unnoticed raises LeaseLost and brings nothing back (trap 7)."""
    lease = stage.acquire(ttl=6)
    take(stage, lease)
    assert stage.raises(LeaseLost, lambda: lease.extend(60)).reason == "taken"
    assert lease.state == "lost" and [one.owner for one in look(stage.spy, "job").holders] == ["other:1:x"]


# ---------------------------------------------------------------- transport errors


@pytest.mark.parametrize("hook", [unreachable, reply_lost])
def test_trap_02_unsure_and_then_held_again(stage: Stage, hook: Callable[[StoreOp], None]) -> None:
    """A transport error is no loss: unsure, tried again soon, and held again after a success."""
    lease = stage.acquire(ttl=6)
    stage.spy.before = only(Renew, hook)
    stage.pass_time(2.2)
    assert lease.state == "unsure" and lease.remaining() > 2
    stage.do(lease.check)
    stage.spy.heal()
    stage.pass_time(1)
    assert lease.state == "held" and lease.remaining() > 3.5
    assert not stage.do(lambda: lease.lost).is_set()


def test_trap_02_unsure_until_the_margin_then_lost(stage: Stage) -> None:
    """Retried until deadline − ttl/6, then lost (renewal_failed); no Renew after that, none with more patience
    than what remains."""
    lease = stage.acquire(ttl=6)
    deadline = lease.deadline
    sent: list[tuple[float, int]] = []

    def cut(op: StoreOp) -> None:
        sent.append((stage.clock.now(), op.budget_ms))
        unreachable(op)

    stage.spy.before = only(Renew, cut)
    while stage.clock.now() < deadline - 1.05:
        stage.pass_time(0.05)
    assert lease.state == "unsure" and 0 < lease.remaining() <= 0.06 and lease.deadline == deadline
    stage.pass_time(0.05)
    assert lease.state == "lost" and lease.remaining() == 0
    assert stage.raises(LeaseLost, lease.check).reason == "renewal_failed"
    stage.pass_time(10)
    stop = deadline - 1
    assert len(sent) >= 4
    assert all(at < stop and at + budget / 1000 <= stop + 0.001 for at, budget in sent)
    first, *_ = sent
    assert first[0] == pytest.approx(1002, abs=0.5)


def test_a_lease_that_does_not_renew_works_to_its_deadline(stage: Stage) -> None:
    """``renew=False``: there is no margin, and the end is "expired"."""
    lease = stage.acquire(ttl=6, renew=False)
    stage.pass_time(5.9)
    assert lease.state == "held"
    stage.pass_time(0.1)
    assert stage.raises(LeaseLost, lease.check).reason == "expired"


def test_loss_is_sticky_against_a_late_ok(stage: Stage) -> None:
    """The renewal's answer comes after the time to stop: lost, and the late OK does not bring it back."""
    lease = stage.acquire(ttl=6)
    seen: list[str] = []

    def late(op: StoreOp) -> None:
        stage.clock.advance(3.5)
        seen.append(lease.state)

    stage.spy.after = once(Renew, late)
    stage.pass_time(2.1)
    assert seen == ["lost"] and lease.state == "lost"
    stage.pass_time(3)
    assert lease.state == "lost" and len(stage.spy.of(Renew)) == 1
    assert stage.do(lease.release) is False
    assert nothing_left(stage.spy, "job")


def test_trap_23_the_deadline_counts_from_before_the_request(stage: Stage) -> None:
    """A claim that takes two seconds leaves two seconds less to work in."""
    stage.spy.after = once(Claim, lambda op: stage.clock.advance(2))
    lease = stage.acquire(ttl=6, renew=False)
    assert lease.remaining() == pytest.approx(6 * 0.99 - 0.002 - 2)


def test_a_grant_that_came_too_late_is_not_entered(stage: Stage) -> None:
    """The answer took longer than the lease lasts: it is given up, and the next claim has a new owner (trap 26)."""
    stage.spy.after = once(Claim, lambda op: stage.clock.advance(7))
    lease = stage.acquire(ttl=6, renew=False)
    first, second = stage.spy.of(Claim)
    assert first.owner != second.owner == lease.owner
    assert len(look(stage.spy, "job").holders) == 1 and lease.remaining() > 5


def test_a_frozen_process_learns_at_its_next_look(stage: Stage) -> None:
    """Nobody tells a process that was stopped past its deadline: state, check and remaining say so themselves."""
    lease = stage.acquire(ttl=6)
    stage.clock.advance(60)
    assert lease.remaining() == 0 and lease.state == "lost"
    assert stage.raises(LeaseLost, lease.check).reason == "expired"
    lost = stage.do(lambda: lease.lost)
    until(lost.is_set, "the event is set")


# ---------------------------------------------------------------- the watchdog's rhythm


def test_the_watchdog_renews_every_third(thread_stage: Stage) -> None:
    """About every ttl/3, never more often than every ttl/4, for as long as it is held."""
    lease = thread_stage.acquire(ttl=6)
    thread_stage.pass_time(60)
    assert 30 <= len(thread_stage.spy.of(Renew)) <= 40 and lease.state == "held"
    assert {renew.ttl_ms for renew in thread_stage.spy.of(Renew)} == {6000}
    thread_stage.do(lease.release)
    count = len(thread_stage.spy.of(Renew))
    thread_stage.pass_time(12)
    assert len(thread_stage.spy.of(Renew)) == count


def test_leases_that_fall_due_together_travel_together(thread_stage: Stage) -> None:
    """Two hundred leases are renewed in a few batches, not two hundred calls."""
    leases = thread_stage.party.do(lambda hold: [hold.lock("job", number, ttl=6).acquire() for number in range(200)])
    thread_stage.spy.batches.clear()
    thread_stage.pass_time(6)
    sizes = [len(batch) for batch in thread_stage.spy.batches]
    assert sum(sizes) >= 400 and len(sizes) <= 6 and max(sizes) == 200
    assert all(lease.state == "held" for lease in leases)


def test_one_bad_lease_in_a_batch_harms_no_other(thread_stage: Stage) -> None:
    """Each lease of a batch has its own answer: one unreachable, one lost, one fine."""
    a, b, c = thread_stage.party.do(lambda hold: [hold.lock(name, ttl=6).acquire() for name in "abc"])

    def cut(op: StoreOp) -> None:
        if op.resource == "a":
            unreachable(op)

    thread_stage.spy.before = only(Renew, cut)
    thread_stage.store(Release("b", b.owner, b.fence))
    thread_stage.pass_time(2.1)
    assert (a.state, b.state, c.state) == ("unsure", "lost", "held")


def test_the_watchdog_survives_a_bug(thread_stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    """An error that no store may raise ends neither the watchdog nor the other leases."""
    lease = thread_stage.acquire(ttl=6)
    watchdog = thread_stage.hold._engine.watchdog

    def bug(op: StoreOp) -> None:
        raise ZeroDivisionError("a bug of the test's")

    def roused() -> bool:
        watchdog.dropped.wake()
        return "a bug of the test's" in caplog.text

    thread_stage.spy.before = once(Renew, bug)
    thread_stage.clock.advance(2.1)
    until(roused, "the bug is logged")
    assert watchdog._thread is not None and watchdog._thread.is_alive()
    thread_stage.pass_time(20)
    assert lease.state == "held"


# ---------------------------------------------------------------- overtaking


def test_trap_43_release_overtakes_a_batched_renew(stage: Stage) -> None:
    """The lease is given back while its Renew is under way: "not yours" is then no loss."""
    lease = stage.acquire(ttl=6)
    heard: list[LeaseLost] = []
    stage.do(lambda: lease.on_lost(heard.append))
    answers: list[bool] = []
    stage.spy.before = once(Renew, lambda op: answers.append(stage.do(lease.release)))
    stage.pass_time(2.1)
    assert answers == [True] and lease.state == "released"
    stage.pass_time(1)
    assert not heard and not stage.do(lambda: lease.lost).is_set()


def test_trap_43_a_renew_that_overtakes_a_release(stage: Stage) -> None:
    """The other way round: the Renew succeeds while the release is under way; it is ignored."""
    lease = stage.acquire(ttl=6)
    watchdog = stage.hold._engine.watchdog
    stage.clock.advance(2)
    stage.spy.before = once(Release, lambda op: watchdog.round())
    assert stage.do(lease.release) is True and lease.state == "released"
    assert nothing_left(stage.spy, "job")


def test_trap_44_a_late_renew_shortens_nothing(stage: Stage) -> None:
    """``extend`` overtakes a renewal: the late answer, which speaks of less, changes neither side."""
    lease = stage.acquire(ttl=6)
    stage.spy.before = once(Renew, lambda op: stage.do(lambda: lease.extend(60)))
    stage.pass_time(2.1)
    assert lease.remaining() > 45 and lease.ttl == 60
    view = look(stage.spy, "job")
    assert view.holders[0].expires_ms - view.now_ms > 55_000


def test_trap_44_a_late_renew_lengthens_no_shorter_extend(stage: Stage) -> None:
    """``extend`` to less while a renewal is under way: nobody believes in more than the store has."""
    lease = stage.acquire(ttl=60)
    stage.spy.after = once(Renew, lambda op: stage.do(lambda: lease.extend(2)))
    stage.pass_time(20.1, step=0.1)
    view = look(stage.spy, "job")
    assert lease.deadline <= stage.clock.now() + (view.holders[0].expires_ms - view.now_ms) / 1000
    stage.pass_time(4)
    assert lease.state == "held" and lease.ttl == 2


def extend(lease: Any, ttl: float, hold: Any) -> Any:
    """A step of a party."""
    return lease.extend(ttl)


def test_trap_06_extend_sets_and_renewals_follow(stage: Stage) -> None:
    """After ``extend`` the watchdog renews by the new ttl, longer or shorter."""
    lease = stage.acquire(ttl=6)
    for ttl in (30, 3):
        stage.party.do(partial(extend, lease, ttl))
        stage.spy.ops.clear()
        stage.pass_time(40, step=0.25)
        assert lease.state == "held"
        assert {renew.ttl_ms for renew in stage.spy.of(Renew)} == {ttl * 1000}
        assert 40 / ttl * 3 * 0.8 <= len(stage.spy.of(Renew)) <= 40 / ttl * 4 + 1


@pytest.mark.parametrize("hook", [unreachable, reply_lost])
@pytest.mark.parametrize("ttl", [3, 60])
def test_an_extend_that_fails_promises_nothing(stage: Stage, hook: Callable[[StoreOp], None], ttl: int) -> None:
    """The error is ours, the lease is unsure, and its deadline is the sooner of the two ends."""
    lease = stage.acquire(ttl=6)
    before = lease.deadline
    stage.spy.before = only(Renew, hook)
    stage.raises((StoreUnavailable, OutcomeUnknown), lambda: lease.extend(ttl))  # type: ignore[arg-type]
    assert lease.state == "unsure" and lease.deadline <= min(before, stage.clock.now() + ttl)
    stage.spy.heal()
    stage.pass_time(1)
    assert lease.state == "held" and lease.ttl == ttl


# ---------------------------------------------------------------- why


def refused(op: StoreOp) -> None:
    """As a store says it: an error of ours, whose cause is the driver's."""
    raise StoreUnavailable("the store is away") from ConnectionRefusedError(111, "Connection refused")


def explained(error: BaseException | None) -> bool:
    """Is it a loss with its cause, and the cause of that, without a frame that would keep anything?"""
    assert isinstance(error, LeaseLost) and error.reason == "renewal_failed"
    cause = error.__cause__
    assert isinstance(cause, StoreUnavailable) and str(cause) == "the store is away" and cause.__traceback__ is None
    root = cause.__cause__
    assert isinstance(root, ConnectionRefusedError) and root.errno == 111 and root.__traceback__ is None
    again = pickle.loads(pickle.dumps(error))  # noqa: S301 - our own
    assert (again.reason, str(again)) == (error.reason, str(error))
    return True


def test_a_loss_tells_why_renewals_failed(stage: Stage) -> None:
    """Whoever looks and whoever is called hears the last failure: it is the cause of the loss."""
    lease = stage.acquire(ttl=6)
    heard: list[LeaseLost] = []
    stage.do(lambda: lease.on_lost(heard.append))
    stage.spy.before = only(Renew, refused)
    stage.pass_time(6)
    until(lambda: heard, "it is told")
    assert explained(heard[0]) and explained(stage.raises(LeaseLost, lease.check))


def test_leaving_a_lost_body_tells_why_renewals_failed(stage: Stage) -> None:
    """At the end of ``with``; in asyncio the cancellation that this was stays in view as the context."""

    def body(lease: Any) -> Any:
        stage.spy.before = only(Renew, refused)
        stage.pass_time(6)
        return asyncio.sleep(PATIENCE) if stage.flavour == "asyncio" else None

    error = stage.party.within(lambda hold: hold.lock("job", ttl=6), body).exception(PATIENCE)
    assert explained(error)
    if stage.flavour == "asyncio":
        assert isinstance(error.__context__, asyncio.CancelledError)  # type: ignore[union-attr]  # it is explained


def test_leaving_a_lost_body_of_several_tells_why_renewals_failed(stage: Stage) -> None:
    """The same of ``hold.all``."""

    def body(leases: Any) -> None:
        stage.spy.before = only(Renew, refused)
        stage.pass_time(6)

    several = stage.party.within(lambda hold: hold.all(hold.lock("job", ttl=6), hold.lock("other", ttl=60)), body)
    assert explained(several.exception(PATIENCE))


def test_a_failed_extend_keeps_nobody() -> None:
    """The error that its caller saw has frames, and those the lease: what is remembered of it has none (trap 3)."""
    clock = StillClock()
    spy, hold = sync_scene(clock)
    lease = hold.lock("job", ttl=60).acquire()
    assert lease is not None
    spy.before = only(Renew, refused)
    with suppress(StoreUnavailable):
        lease.extend(60)
    held, shell = lease._held, weakref.ref(lease)
    del lease
    assert shell() is None
    held.settle(clock.now() + 60)
    assert explained(held.loss())
    spy.heal()
    hold.close()


def test_a_loss_for_another_reason_has_no_such_cause(stage: Stage) -> None:
    """Neither when renewals failed before and went well again, nor when somebody else has it."""
    lease = stage.acquire(ttl=6)
    stage.spy.before = once(Renew, refused)
    stage.pass_time(3)
    assert lease.state == "held" and lease._held._last_failure is None
    evict(stage, lease)
    stage.pass_time(3)
    error = stage.raises(LeaseLost, lease.check)
    assert error.reason == "evicted" and error.__cause__ is None


# ---------------------------------------------------------------- giving back


def test_leaving_while_the_store_is_unreachable(stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    """Nothing is raised; the release goes on in the background, and frees the lock when the store is back."""
    future = stage.party.within(lambda hold: hold.lock("job", ttl=60), lambda lease: cut_the_wire(stage))
    assert future.result(PATIENCE) == "done"
    assert "release_unknown" in caplog.text and look(stage.spy, "job").holders
    stage.pass_time(1)
    assert look(stage.spy, "job").holders
    stage.spy.heal()
    stage.pass_time(2)
    assert nothing_left(stage.spy, "job")
    assert not stage.hold._engine.watchdog._background_ops and not stage.hold._engine.watchdog.leases()


def cut_the_wire(stage: Stage) -> str:
    """From now on the store cannot be reached."""
    stage.spy.before = unreachable
    return "done"


def test_the_background_gives_up_with_the_ttl(stage: Stage) -> None:
    """The store never comes back: after the ttl nothing is sent any more, and nothing is kept."""
    stage.party.within(lambda hold: hold.lock("job", ttl=6), lambda lease: cut_the_wire(stage)).result(PATIENCE)
    stage.pass_time(8)
    sent = len(stage.spy.of(Release))
    assert 3 <= sent <= 30 and not stage.hold._engine.watchdog._background_ops
    stage.pass_time(10)
    assert len(stage.spy.of(Release)) == sent


@pytest.mark.parametrize("hook", [unreachable, reply_lost])
@pytest.mark.parametrize("healed", ["before the background", "after the background"])
def test_trap_11_an_unconfirmed_release_can_be_repeated(
    stage: Stage, hook: Callable[[StoreOp], None], healed: str
) -> None:
    """``release()`` raises OutcomeUnknown; repeated, it answers True, whoever was first: it or the background."""
    lease = stage.acquire(ttl=60)
    if hook is reply_lost:
        stage.spy.after = only(Release, hook)
    else:
        stage.spy.before = only(Release, hook)
    error = stage.raises(OutcomeUnknown, lease.release)
    assert error.fence == lease.fence and isinstance(error.__cause__, leasehold.LeaseholdError)
    until(lambda: len(stage.spy.of(Release)) >= 2, "the background tries")
    stage.raises(OutcomeUnknown, lease.release)
    stage.spy.heal()
    if healed == "after the background":
        stage.pass_time(3)
        assert nothing_left(stage.spy, "job") and not stage.hold._engine.watchdog._background_ops
    assert stage.do(lease.release) is True
    assert lease.state == "released" and nothing_left(stage.spy, "job") and stage.do(lease.release) is False


def test_trap_11_a_repeated_release_frees_nobody_else(stage: Stage) -> None:
    """The release had arrived and somebody else holds by now: the repeated one answers True and touches nothing."""
    lease = stage.acquire(ttl=60)
    stage.spy.after = once(Release, reply_lost)
    stage.raises(OutcomeUnknown, lease.release)
    stage.store(Claim("job", "other:1:x", 60_000))
    assert stage.do(lease.release) is True
    stage.pass_time(1)
    assert [one.owner for one in look(stage.spy, "job").holders] == ["other:1:x"]


def test_after_an_unconfirmed_release_the_lock_can_be_acquired_anew(stage: Stage) -> None:
    """A re-entrant lock whose release was not confirmed is not "released for ever" for its thread or task."""
    lease = stage.party.do(lambda hold: hold.rlock("job", ttl=60).acquire())
    stage.spy.before = once(Release, unreachable)
    stage.raises(OutcomeUnknown, lease.release)
    until(lambda: nothing_left(stage.spy, "job"), "the background gives it back")
    again = stage.party.do(lambda hold: hold.rlock("job", ttl=60).acquire(wait=0))
    assert again is not None and again.fence > lease.fence and again.state == "held"


# ---------------------------------------------------------------- acquire in doubt


def turned(stage: Stage, seconds: float) -> bool:
    """A little more virtual time."""
    stage.clock.advance(seconds)
    return False


def started(stage: Stage, wait: float | None) -> Any:
    """An acquire that is over, after as much virtual time as it takes."""
    future = stage.party.start(lambda hold: hold.lock("job", ttl=6).acquire(wait=wait))
    until(lambda: future.done() or turned(stage, 0.05), "the acquire ends")
    return future


@pytest.mark.parametrize("wait", [0, 60, None])
def test_trap_10_an_acquire_whose_reply_is_lost(turning: Stage, wait: float | None) -> None:
    """It may have won: the same owner asks again and gets the same grant, or an error of ours and nothing is left."""
    turning.spy.after = once(Claim, reply_lost)
    future = started(turning, wait)
    if wait == 0:
        assert isinstance(future.exception(), OutcomeUnknown)
        until(lambda: nothing_left(turning.spy, "job"), "withdrawn")
        return
    lease = future.result()
    first, second = turning.spy.of(Claim)
    assert first.owner == second.owner == lease.owner and len(look(turning.spy, "job").holders) == 1
    assert lease.fence == look(turning.spy, "job").fence


@pytest.mark.slow
@pytest.mark.parametrize("wait", [0, 2, 60, None])
def test_trap_10_an_acquire_that_is_never_answered(turning: Stage, wait: float | None) -> None:
    """It ends with OutcomeUnknown after a bounded time, and when the store is back nothing is left of it."""
    turning.spy.after = only(Claim, reply_lost)
    began = turning.clock.now()
    assert isinstance(started(turning, wait).exception(), OutcomeUnknown)
    assert turning.clock.now() - began < 15
    turning.spy.heal()
    owners = {op.owner for op in turning.spy.of(Claim)}
    until(lambda: {op.owner for op in turning.spy.of(Withdraw)} == owners, "withdrawn")
    until(lambda: nothing_left(turning.spy, "job"), "nothing is left")


def test_trap_10_a_claim_that_is_delivered_late_takes_nothing(turning: Stage) -> None:
    """The claim was still in a socket buffer when its sender gave up: it finds a tombstone."""
    kept: list[StoreOp] = []

    def hold_back(op: StoreOp) -> None:
        kept.append(op)
        reply_lost(op)

    turning.spy.before = only(Claim, hold_back)
    assert isinstance(started(turning, 1).exception(), OutcomeUnknown)
    turning.spy.heal()
    until(lambda: not turning.hold._engine.watchdog._background_ops, "withdrawn")
    for op in kept:
        turning.store(op)
    assert nothing_left(turning.spy, "job")


@pytest.mark.parametrize("wait", [0, 2, None])
def test_an_unreachable_store_is_said_at_once(turning: Stage, wait: float | None) -> None:
    """Nothing was taken: StoreUnavailable, no retry, nothing in the background."""
    turning.spy.before = unreachable
    error = turning.raises(StoreUnavailable, lambda: turning.hold.lock("job").acquire(wait=wait))
    assert len(turning.spy.ops) == 1 and "wire" in str(error)
    assert not turning.hold._engine.watchdog._background_ops


def test_a_waiter_bears_with_a_store_that_is_away(turning: Stage) -> None:
    """A place in the queue outlives an outage: the waiter goes on afterwards, with the same owner."""
    turning.store(Claim("job", "other:1:x", 60_000))
    future = turning.party.start(lambda hold: hold.lock("job", ttl=6).acquire())
    until(lambda: look(turning.spy, "job").queue, "it waits")
    owner = look(turning.spy, "job").queue[0].owner
    turning.spy.before = unreachable
    beats = len(turning.spy.of(Beat))
    until(lambda: len(turning.spy.of(Beat)) >= beats + 3 or turned(turning, 0.1), "it tries")
    turning.spy.heal()
    holder = look(turning.spy, "job").holders[0]
    turning.store(Release("job", holder.owner, holder.fence))
    until(lambda: future.done() or turned(turning, 0.05), "it is granted")
    assert future.result().owner == owner


# ---------------------------------------------------------------- being told


def test_loss_wakes_whoever_waits_for_it(thread_stage: Stage) -> None:
    """``lease.lost.wait()`` in another thread returns at the loss."""
    lease = thread_stage.acquire(ttl=6)
    with elsewhere(lambda: lease.lost.wait(PATIENCE)) as woken:
        evict(thread_stage, lease)
        thread_stage.pass_time(2.1)
        assert woken() is True


def test_a_callback_that_raises_or_blocks_harms_nobody(thread_stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    """Each callback has a thread of its own: one raises, one blocks, the third is called, others are renewed."""
    lease = thread_stage.acquire(ttl=6)
    other = thread_stage.party.do(lambda hold: hold.lock("other", ttl=6).acquire())
    gate = threading.Event()
    heard: list[str] = []

    def harmful(error: LeaseLost) -> None:
        raise ValueError("a callback that raises")

    for callback in (harmful, lambda error: gate.wait(PATIENCE), lambda error: heard.append(error.reason)):
        lease.on_lost(callback)
    evict(thread_stage, lease)
    thread_stage.pass_time(20)
    until(lambda: heard == ["evicted"] and "a callback that raises" in caplog.text, "called and logged")
    assert other.state == "held"
    gate.set()


def test_a_loss_is_told_once_and_to_those_who_ask_late(thread_stage: Stage) -> None:
    """Every callback runs once, however often the state is looked at; a late one runs at once."""
    lease = thread_stage.acquire(ttl=6, renew=False)
    heard: list[str] = []
    lease.on_lost(lambda error: heard.append("early"))
    thread_stage.clock.advance(7)
    assert [lease.state for _ in range(3)] == ["lost"] * 3
    thread_stage.pass_time(1)
    lease.on_lost(lambda error: heard.append("late"))
    until(lambda: sorted(heard) == ["early", "late"], "both are told")
    assert lease.lost.is_set()


def test_released_is_not_lost(stage: Stage) -> None:
    """A lease that was given back is told to nobody as a loss, also after its ttl."""
    lease = stage.acquire(ttl=6)
    heard: list[LeaseLost] = []
    stage.do(lambda: lease.on_lost(heard.append))
    lost = stage.do(lambda: lease.lost)
    stage.do(lease.release)
    stage.pass_time(20, step=0.5)
    assert lease.state == "released" and not lost.is_set() and not heard


def test_the_log_tells_of_a_loss_and_of_no_secret(stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    """``lease_lost`` at WARNING with kind, hash and fence; never the id or the owner's secret."""
    lease = stage.party.do(lambda hold: hold.lock("job", "s3cret", ttl=6, renew=False).acquire())
    stage.pass_time(7)
    assert lease.state == "lost"
    records = [record for record in caplog.records if record.name == "leasehold.lease"]
    assert [record.levelname for record in records] == ["WARNING"]
    assert "lease_lost" in caplog.text and f"fence={lease.fence}" in caplog.text and "reason=expired" in caplog.text
    assert "s3cret" not in caplog.text and lease.owner not in caplog.text
    assert lease.owner.rpartition(":")[2].partition(".")[0] not in caplog.text


# ---------------------------------------------------------------- the end of the process


def test_interpreter_exit_gives_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """The hook that runs at exit frees what is held, tells the holder, and goes on when one coordinator fails."""
    monkeypatch.setattr(shutdown, "begun", False)  # and again afterwards: this process goes on
    spy, hold = sync_scene()
    broken_spy, broken = sync_scene()
    lease, other = hold.lock("job").acquire(), broken.lock("job").acquire()
    assert lease is not None and other is not None
    broken_spy.before = unreachable
    before = engine._engines
    try:
        engine._engines = weakref.WeakSet([broken._engine, hold._engine])
        engine._at_exit()
    finally:
        engine._engines = before
    assert nothing_left(spy, "job") and lease.state == other.state == "lost"


def script(text: str, *arguments: str) -> str:
    """What a new interpreter prints that runs this."""
    # Python 3.12 and newer warn of every fork beside a thread; that is what these scripts are about.
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", text, *arguments]
    environment = {**os.environ, "PYTHONPATH": str(SOURCE)}
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=30, env=environment)
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


def test_a_process_that_ends_gives_back(tmp_path: Path) -> None:
    """An interpreter that just ends, with a lease in hand and a thread that waits, leaves the lock free."""
    text = """
import sys, threading, time, leasehold
hold = leasehold.connect(f"sqlite:///{sys.argv[1]}/leases.db")
lease = hold.lock("job", ttl=600).acquire()
threading.Thread(target=hold.lock("job", ttl=600).acquire, daemon=True).start()
while not hold.inspect("job").waiters:
    time.sleep(0.002)
"""
    assert script(text, str(tmp_path)) == ""
    with leasehold.connect(open_store("sqlite", tmp_path)) as hold:
        assert hold.lock("job").try_acquire() is not None


FORK = """
import os, sys, time, leasehold
from leasehold._core.ops import Inspect
from leasehold._runtime.identity import new_owner

hold = leasehold.connect(sys.argv[1])
with hold.lock("job", ttl=3) as lease:
    end = lease.deadline
    event, owner = lease.lost, lease.owner
    told = []
    lease.on_lost(told.append)
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            says = [lease.state, hold.lock("job").owned(), bool(told)]
            try:
                lease.check()
            except leasehold.LeaseLost as error:
                says.append(error.reason)
            says.append(lease.release())
            says.append(new_owner().split(".")[0] != owner.split(".")[0])
            mine = hold.lock("other", ttl=5).try_acquire()
            says += [bool(mine), str(os.getpid()) in mine.owner, mine.release()]
            os.write(writer, repr(says).encode())
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    print(os.read(reader, 10_000).decode())
    while lease.deadline == end and lease.state != "lost":
        time.sleep(0.01)
    print(lease.state, event.is_set(), len(told), hold.lock("job").locked())
print(lease.state, hold.lock("job").locked())
"""


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["memory", "sqlite"])
def test_trap_32_fork(kind: str, tmp_path: Path) -> None:
    """The child's leases are lost (forked), it has another secret and can start anew; the parent goes on renewing."""
    url = "memory://" if kind == "memory" else f"sqlite:///{tmp_path}/leases.db"
    child, parent, after = script(FORK, url).splitlines()
    assert child == repr(["lost", False, False, "forked", False, True, True, True, True])
    assert parent == "held False 0 True" and after == "released False"


FORK_AND_WAIT = """
import os, leasehold

hold = leasehold.connect("memory://")
asked, unasked = hold.lock("asked").acquire(), hold.lock("unasked").acquire()
event = asked.lost
if os.fork() == 0:
    os.write(1, repr([event.is_set(), asked.lost.is_set(), unasked.lost.is_set()]).encode())
    os._exit(0)
os.wait()
"""


def test_trap_32_a_child_that_waits_for_the_loss() -> None:
    """In the child ``lost`` is set, whether or not the parent had looked at it before the fork."""
    assert script(FORK_AND_WAIT) == repr([True, True, True])


FORK_AND_LEAVE = """
import os, sys, leasehold

hold = leasehold.connect(sys.argv[1])
try:
    with hold.lock("job", ttl=60) as lease:
        child = os.fork()
except leasehold.LeaseLost as error:
    os.write(1, f"child {error.reason}\\n".encode())
    os._exit(0)
assert child
os.waitpid(child, 0)
print("parent", lease.state)
"""


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
def test_trap_32_a_child_that_leaves_the_body(kind: str, tmp_path: Path) -> None:
    """A child that runs out of its parent's ``with`` gets LeaseLost (forked) and releases nothing."""
    url = "memory://" if kind == "memory" else f"sqlite:///{tmp_path}/leases.db"
    assert sorted(script(FORK_AND_LEAVE, url).splitlines()) == ["child forked", "parent released"]


def test_close_tries_what_the_watchdog_was_trying() -> None:
    """A withdrawal that fails in the watchdog's hands while everything is given back is sent once more."""
    spy, hold = sync_scene()
    other = leasehold.connect(spy.inner)
    mine = other.lock("job").acquire()
    assert mine is not None
    begun, go = threading.Event(), threading.Event()

    def first_fails(op: StoreOp) -> None:
        if isinstance(op, Withdraw) and not begun.is_set():
            begun.set()
            go.wait(PATIENCE)
            unreachable(op)

    spy.before = first_fails
    hold._engine.watchdog.run_later(Defer(Withdraw("job", mine.owner), 30))
    assert begun.wait(PATIENCE)
    threading.Timer(0.2, go.set).start()  # when close() has passed it by
    hold.close()
    assert nothing_left(spy, "job")
    other.close()
