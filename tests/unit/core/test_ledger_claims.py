"""Claims: who is granted at once, who waits, who is refused."""

from __future__ import annotations

from leasehold._core import ledger, ops
from leasehold._core.policy import MAX_FENCE, MAX_FLOOR_AHEAD_US
from tests.unit.core.desk import ROOM, TTL, WALL, Desk, expect


def test_a_claim_on_a_free_resource_is_granted_with_its_full_time() -> None:
    """A fresh grant carries the whole ttl, and tells nobody but the caller."""
    desk = Desk()
    expect(desk.claim("a"), ops.Granted(WALL, TTL))
    assert (desk.holder(), desk.waiting(), desk.pushes) == ("a", [], [])


def test_a_grant_keeps_what_the_claim_said() -> None:
    """The stored grant has the claim's ttl, end, news address and lock-delay."""
    desk = Desk()
    desk.claim("a", 7_000, delay_ms=500)
    grant = desk.grant()
    assert (grant.ttl_ms, grant.expires_ms, grant.since_us) == (7_000, desk.ms + 7_000, WALL)
    assert (grant.holder_address, grant.delay_ms, grant.slots, grant.rule) == ("news@a", 500, (0,), "mutex")


def test_trap_42_a_repeated_claim_gets_the_same_grant_and_what_remains() -> None:
    """The same fence, less time: asking twice never prolongs."""
    desk = Desk()
    fence = desk.granted("a")
    desk.later(9_000)
    expect(desk.claim("a", beat=2), ops.Granted(fence, 1_000))
    desk.later(999)
    expect(desk.claim("a", beat=3), ops.Granted(fence, 1))


def test_trap_42_a_repeated_claim_cannot_change_the_ttl() -> None:
    """A second claim that asks for more gets what the first one got."""
    desk = Desk()
    fence = desk.granted("a")
    expect(desk.claim("a", 60_000, beat=2), ops.Granted(fence, TTL))


def test_a_repeated_claim_of_a_waiter_is_a_sign_of_life() -> None:
    """It keeps its place, once, and the newer beat is noted."""
    desk = Desk()
    desk.granted("a")
    desk.claim("b")
    desk.claim("c")
    desk.later(100)
    expect(desk.claim("b", beat=2), ops.Queued(0, TTL - 100, "?"))
    assert desk.waiting() == ["b", "c"]
    assert (desk.waiter("b").beat, desk.waiter("b").beat_ms) == (2, desk.ms)


def test_a_second_claim_waits_and_hears_how_long() -> None:
    """Queued says how many stand ahead, and when the holder's time ends."""
    desk = Desk()
    desk.granted("host:7:secret.1")
    desk.later(2_500)
    expect(desk.claim("b"), ops.Queued(0, 7_500, "host:7"))
    expect(desk.claim("c"), ops.Queued(1, 7_500, "host:7"))


def test_the_secret_of_the_holder_is_never_told() -> None:
    """Queued and Busy name instance and process, not the owner token."""
    desk = Desk()
    desk.granted("host:7:secret.1")
    for reply in (desk.claim("b"), desk.claim("c", wait=False)):
        assert "secret" not in repr(reply)


def test_one_try_on_a_held_resource_is_busy() -> None:
    """wait=0 gets a no with the time to come back, and leaves nothing behind."""
    desk = Desk()
    desk.granted("host:7:secret.1")
    desk.later(1_000)
    before = desk.state
    expect(desk.claim("b", wait=False), ops.Busy("host:7", 9_000))
    assert desk.state == before


def test_one_try_on_a_free_resource_is_granted() -> None:
    """wait=0 takes what is free."""
    expect(Desk().claim("a", wait=False), ops.Granted(WALL, TTL))


def test_one_try_does_not_overtake_a_waiter_that_cannot_be_pushed() -> None:
    """Free, but somebody queues: wait=0 is refused."""
    desk = Desk()
    fence = desk.granted("a")
    desk.claim("b", pushable=False)
    desk.release("a", fence)
    assert desk.holder() == ""
    expect(desk.claim("c", wait=False), ops.Busy("", 0))
    assert desk.waiting() == ["b"]


def test_a_waiting_claim_does_not_overtake_a_waiter_that_cannot_be_pushed() -> None:
    """Free, but somebody queues: a claim stands behind."""
    desk = Desk()
    fence = desk.granted("a")
    desk.claim("b", pushable=False)
    desk.release("a", fence)
    expect(desk.claim("c"), ops.Queued(1, 0, ""))
    assert desk.waiting() == ["b", "c"]


def test_one_try_passes_a_waiter_that_is_silent() -> None:
    """A waiter whose beat is too old is passed over by wait=0 as well."""
    desk = Desk()
    fence = desk.granted("a")
    desk.claim("b", pushable=False)
    desk.later(3_001)
    desk.release("a", fence)
    assert isinstance(desk.claim("c", wait=False), ops.Granted)
    assert desk.waiting() == ["b"]


def test_a_refused_try_mints_nothing() -> None:
    """The stored fence is the same before and after a busy claim."""
    desk = Desk()
    fence = desk.granted("a")
    desk.later(10)
    desk.claim("b", wait=False)
    desk.claim("c")
    assert desk.last_fence() == fence


def test_an_unknown_rule_is_refused() -> None:
    """A claim under a rule that the ledger does not know changes nothing."""
    outcome = ledger.apply(ledger.EMPTY, Desk().now(), ops.Claim(ROOM, "a", TTL, rule="chaos"))
    assert isinstance(outcome.reply, ops.Rejected)
    assert outcome.state == ledger.EMPTY


def test_bad_floors_are_refused() -> None:
    """A floor below zero, near 2**53 or ten years ahead is a mistake, not a fence."""
    for floor in (-1, MAX_FENCE + 1, 2**53, WALL + MAX_FLOOR_AHEAD_US + 1):
        desk = Desk()
        assert isinstance(desk.claim("a", floor=floor), ops.Rejected), floor
        assert desk.state == ledger.EMPTY


def test_a_bad_floor_is_refused_to_an_adopter_too() -> None:
    """Adopt mints as well, and checks its floor."""
    desk = Desk()
    fence = desk.granted("a")
    desk.offer("a", fence)
    before = desk.state
    assert isinstance(desk.adopt(fence, "b", floor=-1), ops.Rejected)
    assert desk.state == before


def test_the_highest_floor_that_is_allowed_is_granted() -> None:
    """Exactly ten years ahead is still a clock."""
    floor = WALL + MAX_FLOOR_AHEAD_US
    assert Desk().granted("a", floor=floor) == floor + 1


def test_a_beat_with_a_bad_floor_keeps_the_waiters_good_one() -> None:
    """A floor that would be refused is never stored by a beat; the sign of life counts."""
    desk = Desk()
    desk.granted("a")
    desk.claim("b", floor=5)
    desk.later(10)
    desk.beat("b", 2, floor=2**53)
    assert (desk.waiter("b").floor, desk.waiter("b").beat_ms) == (5, desk.ms)


def test_resources_of_a_reply_are_the_ops_own() -> None:
    """A push names the resource of the op that caused it."""
    desk = Desk()
    fence = desk.granted("a")
    desk.claim("b")
    desk.release("a", fence)
    assert [push.resource for push in desk.pushes] == [ROOM]
