"""Permits in the ledger: never more than the limit, numbered slots, big claims, resizing, differing limits."""

from __future__ import annotations

import pytest

from leasehold._core import ops
from leasehold._core.policy import LIMIT_US
from tests.unit.core.desk import ROOM, TTL, WALL, Desk, expect

DAY_MS = 24 * 3600 * 1000


def full(limit: int) -> Desk:
    """``p0`` ... hold all there is."""
    desk = Desk()
    for number in range(limit):
        assert isinstance(desk.permit(f"p{number}", limit), ops.Granted)
    return desk


def test_as_many_as_the_limit_and_no_more() -> None:
    """The next one waits, or is told that it is busy (I9)."""
    desk = full(3)
    assert isinstance(desk.permit("x", 3), ops.Queued)
    assert isinstance(desk.permit("y", 3, wait=False), ops.Busy)
    assert len(desk.holding()) == 3


def test_slots_are_the_lowest_free_ones() -> None:
    """A slot that was given back is the next to be given, with a higher fence."""
    desk = full(3)
    fence = desk.fence_of("p2")
    desk.release("p1", desk.fence_of("p1"))
    reply = desk.permit("x", 3)
    assert isinstance(reply, ops.Granted)
    assert reply.slots == (1,)
    assert reply.fence > fence


def test_several_permits_are_several_slots() -> None:
    """All at once or none; the push says which."""
    desk = full(3)
    desk.permit("x", 3, permits=2)
    desk.release("p0", desk.fence_of("p0"))
    assert desk.waiting() == ["x"]
    desk.release("p2", desk.fence_of("p2"))
    assert desk.slots()["x"] == (0, 2)
    assert desk.pushes[0].slots == (0, 2)


def test_trap_31_a_big_claim_is_not_starved_by_small_ones() -> None:
    """Those who came later wait behind it, also when there is room for them."""
    desk = full(2)
    desk.permit("big", 2, permits=2)
    desk.release("p0", desk.fence_of("p0"))
    assert isinstance(desk.permit("small", 2), ops.Queued)
    assert isinstance(desk.permit("quick", 2, wait=False), ops.Busy)
    desk.release("p1", desk.fence_of("p1"))
    assert desk.holding() == ["big"]


def test_one_release_serves_as_many_as_fit() -> None:
    """A claim of three gives back, and three are granted in one turn."""
    desk = Desk()
    desk.permit("big", 3, permits=3)
    for waiter in ("a", "b", "c", "d"):
        desk.permit(waiter, 3)
    desk.release("big", desk.fence_of("big"))
    assert desk.holding() == ["a", "b", "c"]
    assert [one[0] for one in desk.pushed()] == ["a", "b", "c"]


def test_trap_31_a_crash_leaks_no_permit() -> None:
    """It expires, and its slot is given to the next."""
    desk = Desk()
    desk.permit("a", 1, ttl_ms=1_000)
    desk.permit("b", 1)
    desk.later(1_000)
    desk.look()
    assert desk.slots() == {"b": (0,)}


def test_i9_a_late_release_frees_nothing_of_others() -> None:
    """The permit has expired, its slot is somebody else's by now."""
    desk = Desk()
    desk.permit("a", 1, ttl_ms=1_000)
    fence = desk.fence_of("a")
    desk.later(1_000)
    desk.permit("b", 1)
    expect(desk.release("a", fence, forget_ms=60_000), ops.NotYours("taken"))
    expect(desk.release("a", fence, again=True), ops.NotYours("taken"))
    assert isinstance(desk.permit("c", 1, wait=False), ops.Busy)


def test_i9_a_late_renewal_brings_no_permit_back() -> None:
    """Also when there is room for it again (trap 7)."""
    desk = Desk()
    desk.permit("a", 2, ttl_ms=1_000)
    fence = desk.fence_of("a")
    desk.later(1_000)
    expect(desk.renew("a", fence), ops.NotYours("deleted"))
    assert desk.holding() == []


def test_trap_10_a_repeated_claim_gets_the_same_permit() -> None:
    """And takes no second one."""
    desk = Desk()
    first = desk.permit("a", 2)
    desk.later(400)
    again = desk.permit("a", 2)
    assert isinstance(first, ops.Granted)
    expect(again, first._replace(remaining_ms=TTL - 400))
    assert len(desk.holding()) == 1


def test_an_adopter_takes_over_the_slots() -> None:
    """No permit more, none less, a higher fence."""
    desk = full(2)
    desk.offer("p0", fence := desk.fence_of("p0"))
    reply = desk.adopt(fence, "heir")
    assert isinstance(reply, ops.Granted)
    assert (reply.slots, reply.rule) == ((0,), "semaphore")
    assert isinstance(desk.permit("x", 2), ops.Queued)
    assert desk.holding() == ["p1", "heir"]


# ---------------------------------------------------------------- more than there is


def test_more_permits_than_there_are_is_refused() -> None:
    """It could never be granted."""
    desk = Desk()
    expect(desk.permit("a", 2, permits=3), ops.Rejected("3 permits were asked for, and there are only 2"))
    assert desk.state == Desk().state


def test_a_waiter_that_has_become_impossible_keeps_nobody_waiting() -> None:
    """After shrinking it is passed over, and its next beat tells it why."""
    desk = full(3)
    desk.permit("big", 3, permits=3)
    desk.permit("small", 3)
    desk.resize(2)
    for owner in ("p0", "p1"):
        desk.release(owner, desk.fence_of(owner))
    assert "small" in desk.holding()
    expect(desk.beat("big", 2), ops.Rejected("3 permits were asked for, and there are only 2"))
    assert desk.waiting() == []


def test_a_waiter_that_becomes_possible_again_has_kept_its_place() -> None:
    """It was passed over while there was too little, and stands first when there is enough."""
    desk = full(3)
    desk.permit("big", 3, permits=3)
    desk.resize(2)
    desk.permit("small", 3)
    desk.resize(3)
    for owner in ("p0", "p1", "p2"):
        desk.release(owner, desk.fence_of(owner))
    assert desk.holding() == ["big"]


# ---------------------------------------------------------------- resizing


def test_a_stored_limit_counts_for_everybody() -> None:
    """Whatever their claims say, and they are told of it."""
    desk = Desk()
    expect(desk.resize(1), ops.Resized(0))
    granted = desk.permit("a", 5)
    queued = desk.permit("b", 5)
    busy = desk.permit("c", 5, wait=False)
    assert isinstance(granted, ops.Granted)
    assert isinstance(queued, ops.Queued)
    assert isinstance(busy, ops.Busy)
    assert (granted.limit, queued.limit, busy.limit) == (1, 1, 1)
    expect(desk.resize(2), ops.Resized(1))
    assert desk.holding() == ["a", "b"]
    assert desk.look().limit == 2


def test_shrinking_takes_no_permit_away() -> None:
    """Nobody new comes in until enough have left; then the lowest slots again."""
    desk = full(4)
    desk.permit("x", 4)
    desk.resize(2)
    for owner in ("p0", "p1"):
        desk.release(owner, desk.fence_of(owner))
    assert desk.holding() == ["p2", "p3"]
    desk.release("p3", desk.fence_of("p3"))
    assert desk.slots() == {"p2": (2,), "x": (0,)}


def test_growing_serves_those_who_wait() -> None:
    """In the same turn."""
    desk = full(1)
    desk.permit("a", 1)
    desk.permit("b", 1)
    desk.resize(3)
    assert desk.holding() == ["p0", "a", "b"]


def test_a_limit_is_kept_while_it_is_used_and_a_month_longer() -> None:
    """Permits that are renewed for months, with nobody new, are use: else the next claim would go by its own."""
    desk = Desk()
    desk.resize(1)
    desk.permit("a", 5, ttl_ms=DAY_MS)
    fence = desk.fence_of("a")
    for _ in range(80):
        desk.later(DAY_MS // 2)
        assert isinstance(desk.renew("a", fence, DAY_MS), ops.Renewed)
    assert isinstance(desk.permit("b", 5, wait=False), ops.Busy)
    desk.release("a", fence)
    desk.later(29 * DAY_MS)
    assert desk.look().limit == 1
    desk.later(2 * DAY_MS)
    assert desk.look().limit == 0
    assert desk.state == Desk().state


def test_trap_37_a_limit_of_nothing_leaves_nothing() -> None:
    """0 takes the stored limit back, and no record of it stays for ever."""
    desk = Desk()
    desk.resize(3)
    expect(desk.resize(0), ops.Resized(3))
    assert desk.state == Desk().state


def test_a_wall_clock_that_is_set_back_shortens_no_limit() -> None:
    """It is kept for longer, then."""
    desk = Desk()
    desk.resize(1)
    desk.wall_us = WALL - LIMIT_US
    assert desk.look().limit == 1


# ---------------------------------------------------------------- limits that differ


@pytest.mark.parametrize(("mine", "told"), [(3, 0), (5, 3)])
def test_whoever_goes_by_another_limit_is_told(mine: int, told: int) -> None:
    """``limit`` is what others go by, and 0 when it is the same."""
    desk = Desk()
    desk.permit("a", 3)
    reply = desk.permit("b", mine)
    assert isinstance(reply, ops.Granted)
    assert reply.limit == told


def test_each_claim_goes_by_its_own_limit() -> None:
    """With three held, five leave room and two do not."""
    desk = full(3)
    assert isinstance(desk.permit("low", 2, wait=False), ops.Busy)
    assert isinstance(desk.permit("high", 5, wait=False), ops.Granted)


def test_a_waiter_with_a_lower_limit_is_overtaken_by_nobody() -> None:
    """It waits until there is room by its own limit, and those with a higher one behind it."""
    desk = full(3)
    desk.permit("low", 1)
    assert isinstance(desk.permit("high", 9), ops.Queued)
    for owner in ("p0", "p1", "p2"):
        desk.release(owner, desk.fence_of(owner))
    assert desk.holding() == ["low", "high"]


def test_other_rules_know_of_no_limit() -> None:
    """A stored one is nothing to a mutex."""
    desk = Desk()
    desk.resize(1)
    reply = desk.ask(ops.Claim(ROOM, "a", TTL, permits=7))
    assert isinstance(reply, ops.Granted)
    assert reply.limit == 0
