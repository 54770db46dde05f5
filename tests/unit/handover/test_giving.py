"""Giving away while other things happen to the same lease: threads, limits, closing, and a store that fails."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

import leasehold
from leasehold import InvalidRequest, LeaseLost, NotHeld, OutcomeUnknown, StoreUnavailable
from leasehold._core import ops
from leasehold._core.tickets import read
from leasehold.stores.clock import ManualClock
from leasehold.stores.memory import MemoryStore
from tests.support.lock import (
    Spy,
    elsewhere,
    in_thread,
    look,
    nothing_left,
    once,
    reply_lost,
    sync_scene,
    tick,
    unreachable,
)
from tests.support.tables import each
from tests.support.waiting import PATIENCE, until


@pytest.fixture
def spy() -> Spy:
    """A store that counts what is sent."""
    return Spy(MemoryStore())


@pytest.fixture
def hold(spy: Spy) -> Iterator[leasehold.Leasehold]:
    """A coordinator over it."""
    with leasehold.connect(spy) as made:
        yield made


def taken(hold: leasehold.Leasehold, *name: Any, **options: Any) -> leasehold.Lease:
    """A lease."""
    lease = hold.lock(*(name or ("job",)), **options).acquire(wait=0)
    assert lease is not None
    return lease


# ---------------------------------------------------------------- failing


@each(("when", "trouble", "error"), [
    ("before", unreachable, StoreUnavailable), ("before", reply_lost, OutcomeUnknown),
    ("after", reply_lost, OutcomeUnknown),
], ids=["down", "request lost", "reply lost"])  # fmt: skip
def test_a_transfer_that_fails_leaves_a_lease_that_is_renewed(when: str, trouble: Any, error: Any) -> None:
    """On a clock that the test turns: many ttls later it is still ours, and nobody can adopt it unasked."""
    clock = ManualClock()
    spy, hold = sync_scene(clock)
    with hold:
        lease = taken(hold, ttl=1.8)
        setattr(spy, when, once(ops.Renew, trouble))
        with pytest.raises(error):
            lease.transfer()
        assert lease.state in ("unsure", "held")  # the watchdog may have been quick
        tick(hold, 12)
        assert lease.state == "held" and lease.release() is True
    assert nothing_left(spy, "job")


@pytest.mark.slow
def test_a_failed_transfer_rouses_the_watchdog(spy: Spy, hold: leasehold.Leasehold) -> None:
    """It had put off its renewal until the transfer was over, and must not sleep until the lease is lost."""
    lease = taken(hold, ttl=1.8)
    entered, leave = threading.Event(), threading.Event()

    def slow(op: ops.StoreOp) -> None:
        if isinstance(op, ops.Renew) and op.ticket:
            entered.set()
            leave.wait(0.7)
            raise OutcomeUnknown("the test kept the reply")

    spy.before = slow
    with pytest.raises(OutcomeUnknown):
        lease.transfer()
    assert entered.is_set()
    renewed = len(spy.of(ops.Renew))
    until(lambda: len(spy.of(ops.Renew)) > renewed or lease.state == "lost", "it goes on")
    assert lease.state != "lost"


@pytest.mark.slow
def test_a_failed_transfer_is_followed_by_a_renewal(spy: Spy, hold: leasehold.Leasehold) -> None:
    """Soon, and not when the next one would have been due: nobody stays unsure for longer than need be."""
    lease = taken(hold, ttl=3600 / 2)
    spy.before = once(ops.Renew, unreachable)
    with pytest.raises(StoreUnavailable):
        lease.transfer()
    assert lease.state == "unsure"
    until(lambda: lease.state == "held", "it is renewed")


def test_a_transfer_may_take_half_of_what_is_left(spy: Spy, hold: leasehold.Leasehold) -> None:
    """Else a store that is silent would take the whole lease with it (trap 2)."""
    taken(hold, ttl=9).transfer()
    (renew,) = [op for op in spy.of(ops.Renew) if op.ticket]
    assert renew.budget_ms <= 9_000 * 5 / 6 / 2


# ---------------------------------------------------------------- beside others


def test_every_try_has_the_same_ticket(spy: Spy, hold: leasehold.Leasehold) -> None:
    """Whichever of them arrives last, what somebody was given is good."""
    lease = taken(hold, ttl=30)
    spy.after = once(ops.Renew, reply_lost)
    with pytest.raises(OutcomeUnknown):
        lease.transfer()
    ticket = lease.transfer()
    assert {op.ticket for op in spy.of(ops.Renew)} == {read(ticket).nonce}
    other = taken(hold, "other", ttl=30).transfer()
    assert read(other).nonce != read(ticket).nonce


def test_two_threads_give_one_lease_away(spy: Spy, hold: leasehold.Leasehold) -> None:
    """One has a ticket, and it works; the other is told that there is nothing to give."""
    lease = taken(hold, ttl=30)
    both = threading.Barrier(2)

    def together(op: ops.StoreOp) -> None:
        if isinstance(op, ops.Renew):
            both.wait(PATIENCE)

    spy.before = together

    def give() -> str | NotHeld:
        try:
            return lease.transfer()
        except NotHeld as error:
            return error

    with elsewhere(give) as one, elsewhere(give) as two:
        results = [one(), two()]
    (ticket,) = [one for one in results if isinstance(one, str)]
    spy.heal()
    assert hold.adopt(ticket).state == "held"


@pytest.mark.slow
def test_a_transfer_while_the_watchdog_renews(spy: Spy, hold: leasehold.Leasehold) -> None:
    """Its renewal was under way and is told "not yours" by then: no loss, and the adopter has it (trap 43)."""
    lease = taken(hold, ttl=1.5)
    lost = lease.lost
    under_way, go_on = threading.Event(), threading.Event()

    def hold_up(op: ops.StoreOp) -> None:
        if isinstance(op, ops.Renew) and not op.ticket and op.fence == lease._held.fence:
            under_way.set()
            go_on.wait(PATIENCE)

    spy.before = hold_up
    assert under_way.wait(PATIENCE)
    ticket = lease.transfer()
    with leasehold.connect(spy.inner) as other:
        adopted = other.adopt(ticket, ttl=30)
        go_on.set()
        another, renewed = taken(hold, "another", ttl=0.3), len(spy.batches)  # it may be lost: that is not looked at
        until(lambda: len(spy.batches) > renewed, "the watchdog came through")
        another.release()
        assert lease.state == "released" and not lost.is_set() and adopted.state == "held"
        assert [grant.fence for grant in look(spy, "job").holders] == [adopted.fence]


def test_a_transfer_while_another_thread_extends(spy: Spy, hold: leasehold.Leasehold) -> None:
    """The extend finds that it was given away; it neither fails the adopter nor brings the lease back."""
    lease = taken(hold, ttl=30)
    under_way, go_on = threading.Event(), threading.Event()

    def hold_up(op: ops.StoreOp) -> None:
        if isinstance(op, ops.Renew) and op.exact:
            under_way.set()
            go_on.wait(PATIENCE)

    spy.before = hold_up
    with elsewhere(lambda: lease.extend(20)) as extended:
        assert under_way.wait(PATIENCE)
        adopted = hold.adopt(lease.transfer())
        go_on.set()
        with pytest.raises(NotHeld):
            extended()
    assert lease.state == "released" and adopted.state == "held" and look(spy, "job").holders[0].fence == adopted.fence


def test_a_release_that_overtakes_a_transfer(spy: Spy, hold: leasehold.Leasehold) -> None:
    """Another thread gave it back meanwhile: no ticket is given out for what is free."""
    lease = taken(hold, ttl=30)

    def give_back(op: ops.StoreOp) -> None:
        in_thread(lease.release)

    spy.after = once(ops.Renew, give_back)
    with pytest.raises(NotHeld):
        lease.transfer()
    assert nothing_left(spy, "job") and lease.state == "released"


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_transfer_while_the_coordinator_closes(spy: Spy, hold: leasehold.Leasehold, when: str) -> None:
    """An error of ours, and nothing stays held: no ticket leaves a coordinator that gave everything back."""
    lease = taken(hold, ttl=30)
    setattr(spy, when, once(ops.Renew, lambda op: in_thread(hold.close)))
    with pytest.raises((LeaseLost, StoreUnavailable)):
        lease.transfer()
    assert lease.state == "lost" and nothing_left(spy, "job")


def test_a_transfer_after_close(spy: Spy, hold: leasehold.Leasehold) -> None:
    """Lost, and nothing is sent."""
    lease = taken(hold, ttl=30)
    hold.close()
    sent = len(spy.ops)
    with pytest.raises(LeaseLost) as info:
        lease.transfer()
    assert info.value.reason == "closed" and len(spy.ops) == sent
    with pytest.raises(StoreUnavailable, match="closed"):
        hold.adopt(leasehold.connect("memory://").lock("x").acquire().transfer())  # type: ignore[union-attr]  # it is free


# ---------------------------------------------------------------- kinds of leases


def test_a_second_transfer_is_refused(spy: Spy, hold: leasehold.Leasehold) -> None:
    """It is no longer ours to give, and nothing is sent."""
    lease = taken(hold, ttl=30)
    lease.transfer()
    sent = len(spy.ops)
    with pytest.raises(NotHeld):
        lease.transfer()
    assert len(spy.ops) == sent and not hold.lock("job").owned()


def test_what_was_entered_twice_is_not_given_away(spy: Spy, hold: leasehold.Leasehold) -> None:
    """Whoever entered it first believes in it; after the inner body is left it can be."""
    with hold.rlock("job", ttl=30) as lease:
        with hold.rlock("job", ttl=30) as inner:
            with pytest.raises(InvalidRequest, match="entered 2 times"):
                inner.transfer()
            assert not spy.of(ops.Renew) and inner.state == "held"
        ticket = lease.transfer()
    assert hold.adopt(ticket).state == "held"


def test_what_is_entered_again_meanwhile_is_not_given_away(spy: Spy, hold: leasehold.Leasehold) -> None:
    """Another thread gives it away while its own enters it again: the inner body keeps it."""
    lock = hold.rlock("job", ttl=30)
    with lock as lease:
        entered, leave = threading.Event(), threading.Event()

        def hold_up(op: ops.StoreOp) -> None:
            entered.set()
            leave.wait(60)

        spy.after = once(ops.Renew, hold_up)
        with elsewhere(lease.transfer) as given:
            assert entered.wait(60)
            with lock as inner:
                leave.set()
                with pytest.raises(InvalidRequest, match="entered 2 times"):
                    given()
                inner.check()
        lease.check()
    assert nothing_left(spy, "job")


def test_at_least_goes_with_the_lease() -> None:
    """The adopter may give back at once; the door stays closed for as long as the giver asked for."""
    clock = ManualClock()
    _, hold = sync_scene(clock)
    with hold:
        ticket = taken(hold, ttl=30, at_least=10).transfer()
        clock.advance(1)
        assert hold.adopt(ticket).release() is True
        assert hold.lock("job").try_acquire() is None and 8 < hold.inspect("job").closed_for <= 9
        clock.advance(9.1)
        assert hold.lock("job").try_acquire() is not None


def test_a_lease_that_does_not_renew_is_given_a_whole_ttl() -> None:
    """However little of it was left."""
    clock = ManualClock()
    _, hold = sync_scene(clock)
    with hold:
        lease = taken(hold, ttl=3, renew=False)
        clock.advance(2.9)
        ticket = lease.transfer()
        clock.advance(2.9)
        adopted = hold.adopt(ticket, renew=False)
        assert adopted.remaining() == pytest.approx(3 - 0.032)
        clock.advance(3)
        assert adopted.state == "lost"


def test_max_hold_is_the_holders_own() -> None:
    """The giver's ends with the giver: too late is too late, and the adopter says how long he may hold."""
    clock = ManualClock()
    _, hold = sync_scene(clock)
    with hold:
        lease = taken(hold, ttl=3, max_hold=5)
        tick(hold, 4)
        ticket = lease.transfer()
        tick(hold, 2)
        adopted = hold.adopt(ticket, max_hold=2)
        assert adopted.state == "held"
        tick(hold, 2.1)
        with pytest.raises(LeaseLost) as info:
            adopted.transfer()
        assert info.value.reason == "max_hold"
