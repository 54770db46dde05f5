"""Closed doors: minimum hold, lock-delay and eviction. A closed door has no owner, and lets nobody in."""

from __future__ import annotations

from leasehold._core import ops
from tests.support.tables import each
from tests.unit.core.desk import TTL, Desk, expect


def test_at_least_keeps_the_door_closed_after_release() -> None:
    """The resource is free, the door is not: a claim hears when it opens."""
    desk = Desk()
    fence = desk.granted("a")
    desk.renew("a", fence, closed_ms=4_000)
    desk.later(1_000)
    desk.release("a", fence)
    expect(desk.claim("b", wait=False), ops.Busy("", 3_000))
    desk.later(3_000)
    assert isinstance(desk.claim("b", wait=False), ops.Granted)


def test_at_least_holds_for_those_who_queue() -> None:
    """Neither the release nor a beat grants before the door opens; then anybody's op does."""
    desk = Desk()
    fence = desk.granted("a")
    desk.renew("a", fence, closed_ms=2_000)
    desk.claim("b")
    desk.release("a", fence)
    assert (desk.holder(), desk.pushes) == ("", [])
    desk.later(1_999)
    expect(desk.beat("b", 2), ops.Queued(0, 1, ""))
    desk.later(1)
    desk.look()
    assert (desk.holder(), desk.pushed()) == ("b", [("b", "granted", 2)])


def test_at_least_outlives_the_expiry_of_its_holder() -> None:
    """Longer than the lease: the door stays closed when the holder is gone."""
    desk = Desk()
    fence = desk.granted("a")
    desk.renew("a", fence, closed_ms=2 * TTL)
    desk.later(TTL)
    expect(desk.claim("b", wait=False), ops.Busy("", TTL))


def test_a_closed_door_mints_nothing() -> None:
    """Claims at a closed door are refused or queued, never fenced."""
    desk = Desk()
    fence = desk.granted("a")
    desk.renew("a", fence, closed_ms=4_000)
    desk.release("a", fence)
    desk.claim("b")
    desk.claim("c", wait=False)
    assert desk.last_fence() == fence


def test_a_handed_off_grant_closes_nothing() -> None:
    """The door is closed by the holder itself: a grant that reaches nobody leaves it open."""
    desk = Desk()
    fence = desk.granted("a")
    desk.claim("b")
    desk.release("a", fence)
    assert desk.holder() == "b"
    assert desk.state.closed_until_ms == 0


def test_a_shorter_minimum_does_not_open_the_door_sooner() -> None:
    """The door's time only grows."""
    desk = Desk()
    fence = desk.granted("a")
    desk.renew("a", fence, closed_ms=4_000)
    desk.renew("a", fence, closed_ms=1_000)
    desk.renew("a", fence)
    desk.release("a", fence)
    assert desk.look().closed_ms == 4_000


def test_a_renewal_that_is_refused_closes_nothing() -> None:
    """Only the holder closes the door."""
    desk = Desk()
    fence = desk.granted("a")
    desk.renew("b", fence, closed_ms=4_000)
    desk.release("a", fence)
    assert desk.look().closed_ms == 0


def test_the_holder_itself_is_not_kept_out() -> None:
    """While the door is closed the holder renews, extends and asks as usual."""
    desk = Desk()
    fence = desk.granted("a")
    desk.renew("a", fence, closed_ms=4_000)
    expect(desk.claim("a", beat=2), ops.Granted(fence, TTL))
    expect(desk.renew("a", fence, 5_000, exact=True), ops.Renewed(5_000))


def test_lock_delay_after_expiry() -> None:
    """An unclean end: the next grant waits for the delay, counted from the expiry, not from its discovery."""
    desk = Desk()
    desk.granted("a", delay_ms=3_000)
    desk.later(TTL + 500)
    expect(desk.claim("b", wait=False), ops.Busy("", 2_500))
    desk.later(2_500)
    assert isinstance(desk.claim("b", wait=False), ops.Granted)


def test_no_lock_delay_after_a_clean_release() -> None:
    """The next one is served at once."""
    desk = Desk()
    fence = desk.granted("a", delay_ms=3_000)
    desk.claim("b")
    desk.release("a", fence)
    assert desk.holder() == "b"


def test_lock_delay_that_is_over_before_anybody_looked_delays_nobody() -> None:
    """The delay counts from the expiry, not from its discovery."""
    desk = Desk()
    desk.granted("a", delay_ms=3_000)
    desk.later(TTL + 3_000)
    assert isinstance(desk.claim("b", wait=False), ops.Granted)


def test_a_withdrawn_holder_leaves_the_door_open() -> None:
    """An acquire that was given up after its at_least arrived held nothing: the next one need not wait."""
    desk = Desk()
    fence = desk.granted("a")
    desk.renew("a", fence, closed_ms=4_000)
    desk.claim("b")
    desk.withdraw("a")
    assert desk.holder() == "b"


# ---------------------------------------------------------------- eviction


@each(("owner", "step"), [("b", 0), ("a", 1), ("a", -1)])
def test_evict_compares_owner_and_fence(owner: str, step: int) -> None:
    """An eviction meant for an earlier holder does not hit the present one."""
    desk = Desk()
    fence = desk.granted("a")
    before = desk.state
    assert isinstance(desk.evict(owner, fence + step), ops.NotYours)
    assert desk.state == before


def test_evict_closes_the_door_for_what_remained() -> None:
    """By default the victim's own time must pass: it may not have heard."""
    desk = Desk()
    fence = desk.granted("a")
    desk.later(4_000)
    expect(desk.evict("a", fence), ops.Evicted(desk.last_fence(), 6_000))
    expect(desk.claim("b", wait=False), ops.Busy("", 6_000))


def test_evict_with_a_longer_delay_needs_no_force() -> None:
    """More caution is always allowed."""
    desk = Desk()
    fence = desk.granted("a")
    desk.evict("a", fence, delay_ms=60_000)
    assert desk.look().closed_ms == 60_000


def test_evict_with_a_shorter_delay_is_refused_without_force() -> None:
    """The victim may still be at work: nothing happens."""
    desk = Desk()
    fence = desk.granted("a")
    before = desk.state
    assert isinstance(desk.evict("a", fence, delay_ms=TTL - 1), ops.Rejected)
    assert desk.state == before


def test_evict_with_force_opens_the_door_at_once() -> None:
    """delay=0 and force: the next waiter is granted in the same step."""
    desk = Desk()
    fence = desk.granted("a")
    desk.claim("b")
    expect(desk.evict("a", fence, delay_ms=0, force=True), ops.Evicted(fence + 1, 0))
    assert desk.holder() == "b"
    assert desk.grant().fence > fence + 1


def test_evict_is_idempotent_by_request() -> None:
    """A retried request gets the same fence and what is left of the delay, and does nothing twice."""
    desk = Desk()
    fence = desk.granted("a")
    first = desk.evict("a", fence, request="r1")
    before = desk.state
    expect(desk.evict("a", fence, request="r1"), first)
    desk.later(1_000)
    expect(desk.evict("a", fence, request="r1"), ops.Evicted(fence + 1, TTL - 1_000))
    assert desk.state == before


def test_another_request_finds_the_victim_evicted() -> None:
    """Idempotent for that request, not for everybody."""
    desk = Desk()
    fence = desk.granted("a")
    desk.evict("a", fence, request="r1")
    expect(desk.evict("a", fence, request="r2"), ops.NotYours("evicted"))


def test_a_request_repeated_after_expiry_evicts_nobody() -> None:
    """What ended by itself was not evicted."""
    desk = Desk()
    fence = desk.granted("a")
    desk.later(TTL)
    expect(desk.evict("a", fence), ops.NotYours("deleted"))


def test_evict_tells_the_holder() -> None:
    """The push goes to where the holder hears news, not to where it waited."""
    desk = Desk()
    fence = desk.granted("a")
    desk.evict("a", fence)
    assert [(push.address, push.event, push.owner, push.fence) for push in desk.pushes] == [
        ("news@a", "evicted", "a", fence)
    ]


def test_evict_raises_the_fence() -> None:
    """A guard that is shown the new fence refuses the victim before anybody else holds."""
    desk = Desk()
    fence = desk.granted("a")
    desk.evict("a", fence)
    assert desk.last_fence() == fence + 1


def test_an_evicted_owner_stays_out() -> None:
    """Its tombstone answers its late claim."""
    desk = Desk()
    fence = desk.granted("a")
    desk.evict("a", fence, delay_ms=0, force=True)
    expect(desk.claim("a", beat=2), ops.NoClaim("evicted"))


def test_waiters_are_served_when_the_door_opens_after_an_eviction() -> None:
    """In order, by whoever looks, with a fence above the eviction's."""
    desk = Desk()
    fence = desk.granted("a")
    desk.claim("b")
    desk.evict("a", fence)
    assert (desk.holder(), desk.waiting()) == ("", ["b"])
    desk.later(TTL - 1)
    expect(desk.beat("b", 2), ops.Queued(0, 1, ""))
    desk.later(1)
    desk.look()
    assert desk.pushed() == [("b", "granted", 2)]
    assert desk.grant().fence > fence + 1


def test_evict_adds_the_lock_delay_of_the_victim() -> None:
    """An eviction is an unclean end: what the lock asked for comes on top of what remained."""
    desk = Desk()
    fence = desk.granted("a", delay_ms=3_000)
    expect(desk.evict("a", fence), ops.Evicted(fence + 1, TTL + 3_000))


def test_evict_keeps_a_minimum_hold() -> None:
    """Force shortens the delay, not what at_least promised."""
    desk = Desk()
    fence = desk.granted("a")
    desk.renew("a", fence, closed_ms=4_000)
    expect(desk.evict("a", fence, delay_ms=0, force=True), ops.Evicted(fence + 1, 4_000))


def test_a_repeated_eviction_speaks_of_its_own_door() -> None:
    """Somebody else holds meanwhile: his time is not the door's, and his fence is not the eviction's."""
    desk = Desk()
    fence = desk.granted("a")
    first = desk.evict("a", fence, request="r1", delay_ms=0, force=True)
    desk.granted("b")
    expect(desk.evict("a", fence, request="r1"), first)
    assert desk.holder() == "b"


def test_a_refusal_counts_the_door_that_the_holder_will_leave_closed() -> None:
    """Asking again when the lease could end is too early while at_least still runs."""
    desk = Desk()
    fence = desk.granted("a")
    desk.renew("a", fence, closed_ms=300_000)
    reply = desk.claim("b", wait=False)
    assert isinstance(reply, ops.Busy) and reply.retry_in_ms == 300_000
