"""Adoption: a lease given away with a ticket gets a new owner and a new fence in one step, once."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from leasehold._core import ops
from tests.support.tables import each
from tests.unit.core.desk import TTL, Desk, expect


def offered() -> tuple[Desk, int]:
    """``a`` holds and has given a ticket away; its fence."""
    desk = Desk()
    fence = desk.granted("a")
    desk.offer("a", fence)
    desk.later(1_000)
    return desk, fence


def test_adopt_sets_a_new_owner_and_mints_a_new_fence() -> None:
    """The adopter holds with its own full time, and a guard will refuse the giver."""
    desk, fence = offered()
    reply = desk.adopt(fence, "b", ttl_ms=20_000)
    expect(reply, ops.Granted(desk.last_fence(), 20_000))
    grant = desk.grant()
    assert (grant.owner, grant.ttl_ms, grant.holder_address) == ("b", 20_000, "news@b")
    assert grant.fence > fence


def test_adopt_leaves_no_gap() -> None:
    """Nobody in the queue is granted in between."""
    desk, fence = offered()
    desk.claim("c")
    desk.adopt(fence, "b")
    assert (desk.holder(), desk.waiting(), desk.pushes) == ("b", ["c"], [])


def test_the_giver_is_buried() -> None:
    """Its renewals and releases are not its own any more, and its late claim takes nothing."""
    desk, fence = offered()
    desk.adopt(fence, "b")
    expect(desk.renew("a", fence), ops.NotYours("adopted"))
    expect(desk.release("a", fence), ops.NotYours("adopted"))
    expect(desk.claim("a", beat=2), ops.NoClaim("adopted"))
    assert desk.holder() == "b"


def test_adopt_is_idempotent_for_its_adopter() -> None:
    """A repeated adoption gets the same fence and what remains."""
    desk, fence = offered()
    desk.adopt(fence, "b")
    new = desk.last_fence()
    desk.later(3_000)
    expect(desk.adopt(fence, "b"), ops.Granted(new, TTL - 3_000))
    assert desk.last_fence() == new


def test_adopt_is_refused_to_a_second() -> None:
    """A ticket works once."""
    desk, fence = offered()
    desk.adopt(fence, "b")
    expect(desk.adopt(fence, "c"), ops.NotYours("adopted"))
    assert desk.holder() == "b"


def test_the_ticket_does_not_pass_to_the_adopter() -> None:
    """Who adopted must offer anew before anybody can adopt from it."""
    desk, fence = offered()
    desk.adopt(fence, "b")
    expect(desk.adopt(desk.last_fence(), "c"), ops.NotYours("taken"))
    assert desk.holder() == "b"


@each("ticket", ["", "other", "ticket "])
def test_a_wrong_ticket_is_refused(ticket: str) -> None:
    """Nothing changes hands."""
    desk, fence = offered()
    before = desk.state
    expect(desk.adopt(fence, "b", ticket=ticket), ops.NotYours("taken"))
    assert desk.state == before


def test_a_lease_that_was_not_offered_cannot_be_adopted() -> None:
    """No ticket was given: an empty one does not fit."""
    desk = Desk()
    fence = desk.granted("a")
    expect(desk.adopt(fence, "b", ticket=""), ops.NotYours("taken"))


@pytest.mark.parametrize("step", [1, -1])
def test_adopt_compares_the_fence(step: int) -> None:
    """A ticket for another grant is no ticket."""
    desk, fence = offered()
    before = desk.state
    assert isinstance(desk.adopt(fence + step, "b"), ops.NotYours)
    assert desk.state == before


def test_a_ticket_does_not_fit_the_next_grant() -> None:
    """Whoever came after the giver has offered nothing."""
    desk, fence = offered()
    desk.release("a", fence)
    desk.granted("c")
    before = desk.state
    expect(desk.adopt(fence, "b"), ops.NotYours("taken"))
    assert desk.state == before


@each(
    ("ending", "reason"),
    [
        (lambda desk, fence: desk.release("a", fence, forget_ms=60_000), "released"),
        (lambda desk, fence: desk.withdraw("a", forget_ms=60_000), "withdrawn"),
        (lambda desk, fence: desk.evict("a", fence), "taken"),
        (lambda desk, fence: desk.release("a", fence), "deleted"),
        (lambda desk, fence: desk.lose_memory(), "deleted"),
    ],
)
def test_why_it_cannot_be_adopted(ending: Callable[[Desk, int], object], reason: str) -> None:
    """The reason is found by the fence alone: the bearer of a ticket knows no owner."""
    desk, fence = offered()
    ending(desk, fence)
    expect(desk.adopt(fence, "b"), ops.NotYours(reason))


def test_what_others_believe_of_a_fence_is_not_the_reason() -> None:
    """Somebody released what was never its own and left a record: the giver's own one counts."""
    desk, fence = offered()
    desk.release("x", fence, forget_ms=60_000, again=True)
    desk.later(TTL)
    expect(desk.adopt(fence, "b"), ops.NotYours("expired"))


def test_an_expired_lease_cannot_be_adopted() -> None:
    """Adoption does not bring the dead back (trap 7)."""
    desk, fence = offered()
    desk.later(TTL)
    expect(desk.adopt(fence, "b"), ops.NotYours("expired"))
    assert desk.holder() == ""


def test_an_adopter_that_is_over_cannot_adopt() -> None:
    """An owner has one grant in its life, however it came by it."""
    desk, fence = offered()
    desk.withdraw("b", forget_ms=60_000)
    expect(desk.adopt(fence, "b"), ops.NotYours("taken"))
    assert desk.holder() == "a"


def test_adopt_honours_the_adopters_floor() -> None:
    """The new fence is above everything that the adopter has seen."""
    desk, fence = offered()
    floor = fence + 10**9
    desk.adopt(fence, "b", floor=floor)
    assert desk.grant().fence == floor + 1


def test_a_renewal_keeps_the_ticket() -> None:
    """The watchdog's renewals do not withdraw the offer."""
    desk, fence = offered()
    desk.renew("a", fence)
    assert isinstance(desk.adopt(fence, "b"), ops.Granted)


def test_an_adopter_that_holds_or_waits_here_cannot_adopt() -> None:
    """One owner, one place: a waiter would be granted a second time later, a holder buried while it holds."""
    desk, fence = offered()
    desk.claim("b")
    before = desk.state
    expect(desk.adopt(fence, "b"), ops.NotYours("taken"))
    expect(desk.adopt(fence, "a"), ops.NotYours("taken"))
    assert desk.state == before


def test_a_numbered_renewal_of_the_adopter_starts_anew() -> None:
    """The giver may have counted far: its numbers say nothing about the adopter's."""
    desk, fence = offered()
    desk.renew("a", fence, number=9)
    desk.adopt(fence, "b")
    expect(desk.renew("b", desk.last_fence(), 1_000, exact=True, number=1), ops.Renewed(1_000))


def test_adoption_keeps_the_minimum_hold_and_the_lock_delay() -> None:
    """What was promised of the resource does not end with its first holder."""
    desk = Desk()
    fence = desk.granted("a", delay_ms=500)
    desk.renew("a", fence, closed_ms=8_000)
    desk.offer("a", fence)
    desk.adopt(fence, "b")
    desk.release("b", desk.last_fence())
    expect(desk.claim("c", wait=False), ops.Busy("", 8_000))
