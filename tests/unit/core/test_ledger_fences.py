"""Fences: max(last + 1, server time in µs, floor + 1), whatever happens to the store's memory or clock."""

from __future__ import annotations

from leasehold._core import ops
from leasehold._core.policy import DAY_US
from tests.unit.core.desk import TTL, WALL, Desk, expect


def turn_over(desk: Desk, owner: str, floor: int = 0) -> int:
    """Acquire and release; the fence that there was."""
    fence = desk.granted(owner, floor=floor)
    desk.release(owner, fence)
    return fence


def test_a_first_fence_is_the_servers_clock() -> None:
    """Nothing is known: the wall in µs."""
    assert Desk().granted("a") == WALL


def test_fences_grow_within_one_microsecond() -> None:
    """The clock stands still: last + 1."""
    desk = Desk()
    assert [turn_over(desk, owner) for owner in "abc"] == [WALL, WALL + 1, WALL + 2]


def test_fences_follow_the_clock() -> None:
    """They jump with it: a counter would restart."""
    desk = Desk()
    turn_over(desk, "a")
    desk.later(5)
    assert turn_over(desk, "b") == WALL + 5_000


def test_trap_22_fences_grow_when_the_wall_clock_goes_back() -> None:
    """A server whose clock is set back by an hour counts on from the last fence."""
    desk = Desk()
    fence = turn_over(desk, "a")
    desk.wall_us -= 3_600_000_000
    assert turn_over(desk, "b") == fence + 1


def test_trap_22_expiry_does_not_look_at_the_wall_clock() -> None:
    """A wall that jumps ends no lease and prolongs none."""
    desk = Desk()
    fence = desk.granted("a")
    desk.wall_us += 10 * DAY_US
    expect(desk.claim("a", beat=2), ops.Granted(fence, TTL))
    desk.wall_us -= 20 * DAY_US
    desk.ms += TTL
    expect(desk.renew("a", fence), ops.NotYours("expired"))


def test_trap_14_a_floor_above_the_clock_wins() -> None:
    """The highest fence that the client has seen anywhere is a floor."""
    floor = WALL + 3_600_000_000
    assert Desk().granted("a", floor=floor) == floor + 1


def test_a_floor_below_the_clock_changes_nothing() -> None:
    """The greatest of the three."""
    assert Desk().granted("a", floor=WALL - 1) == WALL
    assert Desk().granted("a", floor=WALL) == WALL + 1


def test_trap_14_fences_survive_the_loss_of_all_memory() -> None:
    """FLUSHALL: the clock alone keeps them growing."""
    desk = Desk()
    fence = turn_over(desk, "a")
    desk.lose_memory()
    desk.later(1)
    assert desk.granted("b") > fence


def test_trap_14_memory_lost_and_clock_behind() -> None:
    """Even then the floor of a client that saw the fence keeps them growing."""
    desk = Desk()
    fence = turn_over(desk, "a")
    desk.lose_memory()
    desk.wall_us -= 60_000_000
    assert desk.granted("b", floor=fence) == fence + 1


def test_trap_37_the_record_ends_a_day_after_the_last_fence() -> None:
    """Memory does not grow with every name: by then the clock is above every fence."""
    desk = Desk()
    turn_over(desk, "a")
    desk.wall_us = WALL + DAY_US - 1
    desk.look()
    assert desk.last_fence() == WALL
    desk.wall_us += 1
    desk.look()
    assert (desk.state.fence, desk.state.fence_until_us) == (0, 0)


def test_the_record_of_a_fence_ahead_of_the_clock_is_kept_until_the_clock_is_past_it() -> None:
    """Absolute, at max(now, last) + 1 day: else a forgotten high fence would be followed by a lower one."""
    desk = Desk()
    fence = turn_over(desk, "a", floor=WALL + 5 * DAY_US)
    desk.wall_us = WALL + 2 * DAY_US
    assert turn_over(desk, "b") == fence + 1
    desk.wall_us = fence + 1 + DAY_US
    desk.look()
    assert desk.last_fence() == 0
    assert desk.granted("c") > fence + 1


def test_the_record_is_kept_while_somebody_holds() -> None:
    """A lease that is renewed for days still has its fence on record."""
    desk = Desk()
    fence = desk.granted("a")
    desk.wall_us += 3 * DAY_US
    desk.look()
    assert desk.last_fence() == fence


def test_a_clock_that_goes_back_does_not_shorten_the_record() -> None:
    """The end of the record only moves forward."""
    desk = Desk()
    turn_over(desk, "a")
    until_us = desk.state.fence_until_us
    desk.wall_us -= 3_600_000_000
    turn_over(desk, "b")
    assert desk.state.fence_until_us >= until_us


def test_trap_13_asking_again_keeps_the_fence() -> None:
    """Repeated claims, beats and renewals all speak of one fence."""
    desk = Desk()
    fence = desk.granted("a")
    desk.later(50)
    expect(desk.claim("a", beat=2), ops.Granted(fence, TTL - 50))
    expect(desk.beat("a", 3), ops.Granted(fence, TTL - 50))
    desk.renew("a", fence)
    assert (desk.grant().fence, desk.last_fence()) == (fence, fence)


def test_trap_15_the_last_fence_is_not_the_holders() -> None:
    """After an eviction the resource has a newer fence than anybody holds."""
    desk = Desk()
    fence = desk.granted("a")
    desk.evict("a", fence)
    view = desk.look()
    assert (view.holders, view.fence) == ((), fence + 1)
