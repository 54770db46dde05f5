"""A store whose clock is set back, or forward: no end is further ahead than it was when it was set (trap 49)."""

from __future__ import annotations

from leasehold._core import ledger, ops
from leasehold._core.holding import grant_spans
from leasehold._core.turn import Turn
from leasehold._core.types import State
from tests.support.tables import each
from tests.unit.core.desk import PATIENCE, ROOM, TTL, Desk

BACK = [-1_000, -20_000, -3_600_000, -86_400_000]


@each("step", BACK)
def test_a_killed_holder_blocks_for_a_ttl_and_not_for_the_step(step: int) -> None:
    """From the first look at it after the step; looking again does not prolong it."""
    desk = Desk()
    desk.later(-min(BACK))  # so that no clock is before zero
    desk.granted("a")
    desk.later(step)
    assert desk.claim("b", wait=False) == ops.Busy("?", TTL)
    desk.later(TTL - 1)
    assert desk.claim("c", wait=False) == ops.Busy("?", 1)
    desk.later(1)
    assert isinstance(desk.claim("d", wait=False), ops.Granted)


@each("step", BACK)
def test_what_remains_is_never_more_than_was_asked_for(step: int) -> None:
    """To whoever asks again, renews, watches or looks."""
    desk = Desk()
    fence = desk.granted("a")
    desk.later(step)
    assert desk.claim("a") == ops.Granted(fence, TTL)
    desk.later(step)
    assert desk.renew("a", fence) == ops.Renewed(TTL)
    desk.later(step)
    assert [one.expires_ms - desk.ms for one in desk.look().holders] == [TTL]


def test_trap_44_a_late_renewal_leaves_the_length_of_an_extend() -> None:
    """An end keeps the length that it was set with: an extend is not cut to the ttl of a renewal from before."""
    desk = Desk()
    fence = desk.granted("a")
    assert desk.renew("a", fence, 60 * TTL, exact=True, number=2) == ops.Renewed(60 * TTL)
    assert desk.renew("a", fence, TTL, number=1) == ops.Renewed(60 * TTL)
    desk.later(1_000)
    assert desk.grant().expires_ms - desk.ms == 60 * TTL - 1_000
    assert (desk.look().holders[0].ttl_ms, desk.grant().expires_ms - desk.ms) == (60 * TTL, 60 * TTL - 1_000)
    desk.later(-3_600_000)
    assert desk.look().holders[0].expires_ms - desk.ms == 60 * TTL


def test_at_least_is_not_longer_for_it() -> None:
    """What was left of the minimum hold at the last renewal is what is left after the step."""
    desk = Desk()
    fence = desk.granted("a")
    desk.renew("a", fence, closed_ms=2 * TTL)
    desk.later(-3_600_000)
    desk.look()
    desk.release("a", fence)
    assert desk.look().closed_ms == 2 * TTL
    desk.later(2 * TTL)
    assert isinstance(desk.claim("b", wait=False), ops.Granted)


@each("rule", ["mutex", "read", "semaphore"])
def test_a_door_is_closed_for_its_length(rule: str) -> None:
    """Of what one has alone, and of what is shared; however often somebody looks."""
    desk = Desk()
    desk.claim("a", rule=rule, delay_ms=5_000)
    desk.later(TTL)
    assert desk.look().closed_ms == (5_000 if rule == "mutex" else 0)
    desk.later(-3_600_000)
    assert isinstance(desk.claim("b", wait=False), ops.Busy)
    desk.later(4_999)
    assert isinstance(desk.claim("b", wait=False), ops.Busy)
    desk.later(1)
    assert isinstance(desk.claim("b", wait=False), ops.Granted)


def test_a_dead_waiter_is_forgotten_in_its_time() -> None:
    """It counts as heard of now, and does not come to life when the clock is where it was."""
    desk = Desk()
    desk.granted("a", 90_000)
    desk.claim("b", pushable=False)
    desk.later(-20_000)
    desk.look()
    assert desk.waiter("b").beat_ms == desk.ms
    desk.later(PATIENCE + 1)
    desk.claim("c")
    desk.release("a", desk.fence_of("a"))
    assert desk.holder() == "c"
    desk.later(9 * PATIENCE)
    assert desk.look().queue == ()


def test_forward_a_lease_ends_and_its_holder_is_told() -> None:
    """At its next renewal. After a leap over its tombstone nobody knows why any more."""
    desk = Desk()
    fence = desk.granted("a")
    desk.claim("a", beat=2)
    desk.later(20_000)
    assert desk.renew("a", fence) == ops.NotYours("expired")
    fence = desk.granted("b")
    desk.later(3_600_000)
    assert desk.renew("b", fence) == ops.NotYours("deleted")


def test_a_clock_that_only_runs_changes_nothing() -> None:
    """Nothing that was stored in its time is ever cut, whatever was asked for."""
    desk = Desk()
    fence = desk.granted("a")
    desk.renew("a", fence, 60 * TTL, number=1, closed_ms=70 * TTL)
    desk.renew("a", fence, TTL, number=2)
    desk.claim("b")
    desk.watch("w")
    for ms in (0, 1, 2_999):
        desk.later(ms)
        assert bounded(desk) == desk.state
    desk.evict("a", fence, delay_ms=80 * TTL)
    assert bounded(desk) == desk.state
    desk.later(TTL)
    assert bounded(desk) == desk.state


def bounded(desk: Desk) -> State:
    """The state, when only its clock is looked at."""
    turn = Turn(desk.state, desk.now(), ROOM, "", ledger.always_reachable)
    turn.bound()
    return turn.state()


@each("remaining_ms", [30_000, 50_000, 3_630_000])
def test_no_reply_is_believed_beyond_the_ttl(remaining_ms: int) -> None:
    """Whatever a store says that remains: the holder stops, ends and renews as if it were one ttl."""
    assert grant_spans(30_000, remaining_ms) == grant_spans(30_000, 30_000)
