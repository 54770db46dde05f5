"""Renewal, release, withdrawal, and the tombstones that make their repetition harmless."""

from __future__ import annotations

import pytest

from leasehold._core import ops
from leasehold._core.policy import tombstone_ms
from tests.support.tables import each
from tests.unit.core.desk import TTL, Desk, expect


def test_renew_sets_the_end_from_now() -> None:
    """A renewal gives the ttl from when it arrives: it sets, it does not add (trap 6)."""
    desk = Desk()
    fence = desk.granted("a")
    desk.later(4_000)
    expect(desk.renew("a", fence), ops.Renewed(TTL))
    assert desk.grant().expires_ms == desk.ms + TTL


def test_trap_44_renew_never_shortens() -> None:
    """A late Renew with less time leaves the end where it is, and says so."""
    desk = Desk()
    fence = desk.granted("a", 30_000)
    expect(desk.renew("a", fence, 5_000), ops.Renewed(30_000))
    assert desk.grant().expires_ms == desk.ms + 30_000


def test_exact_renew_shortens() -> None:
    """Only extend may bring the end nearer."""
    desk = Desk()
    fence = desk.granted("a", 30_000)
    expect(desk.renew("a", fence, 5_000, exact=True), ops.Renewed(5_000))
    desk.later(5_000)
    assert desk.look().holders == ()


def test_renew_keeps_the_fence() -> None:
    """Neither Renew nor extend moves the fence (trap 13)."""
    desk = Desk()
    fence = desk.granted("a")
    desk.later(1_000)
    desk.renew("a", fence)
    desk.renew("a", fence, exact=True)
    assert (desk.grant().fence, desk.last_fence()) == (fence, fence)


def test_trap_7_renew_never_brings_a_dead_lease_back() -> None:
    """At its expiry the lease is over, also when nobody else wants it."""
    desk = Desk()
    fence = desk.granted("a")
    desk.later(TTL)
    expect(desk.renew("a", fence), ops.NotYours("deleted"))
    expect(desk.renew("a", fence, exact=True), ops.NotYours("deleted"))
    assert desk.holder() == ""


def test_trap_7_renew_by_the_old_owner_does_not_touch_the_new_one() -> None:
    """After expiry somebody else holds: his end does not move."""
    desk = Desk()
    fence = desk.granted("a")
    desk.later(TTL)
    desk.granted("b")
    grant = desk.grant()
    expect(desk.renew("a", fence, 60_000), ops.NotYours("taken"))
    assert desk.grant() == grant


@each(("owner", "step"), [("b", 0), ("a", 1), ("a", -1), ("b", 1)])
def test_renew_names_owner_and_fence(owner: str, step: int) -> None:
    """Both must fit."""
    desk = Desk()
    fence = desk.granted("a")
    before = desk.state
    assert isinstance(desk.renew(owner, fence + step), ops.NotYours)
    assert desk.state == before


@each(("owner", "step"), [("b", 0), ("a", 1), ("a", -1), ("b", 1)])
def test_trap_8_release_by_another_or_of_another_fence_frees_nothing(owner: str, step: int) -> None:
    """Release compares owner and fence, and never deletes blindly."""
    desk = Desk()
    fence = desk.granted("a")
    before = desk.state
    assert isinstance(desk.release(owner, fence + step), ops.NotYours)
    assert desk.state == before


def test_trap_8_release_after_expiry_does_not_touch_the_next_holder() -> None:
    """The old owner learns that its lease is another's; the new one keeps it."""
    desk = Desk()
    fence = desk.granted("a")
    desk.later(TTL)
    desk.granted("b")
    expect(desk.release("a", fence), ops.NotYours("taken"))
    assert desk.holder() == "b"


def test_release_frees_at_once() -> None:
    """The next claim is granted, with a higher fence."""
    desk = Desk()
    fence = desk.granted("a")
    expect(desk.release("a", fence), ops.Released())
    assert desk.granted("b") > fence


def test_trap_11_a_retried_release_with_a_tombstone_gets_the_same_answer() -> None:
    """Released stays released, and nothing of the next holder is touched."""
    desk = Desk()
    fence = desk.granted("a")
    for _ in range(3):
        expect(desk.release("a", fence, forget_ms=60_000), ops.Released())
        desk.claim("b")
    assert desk.holder() == "b"


def test_trap_11_a_retried_release_that_says_so_gets_the_same_answer() -> None:
    """Without a tombstone ``again`` tells that finding nothing means that the first one arrived."""
    desk = Desk()
    fence = desk.granted("a")
    desk.release("a", fence)
    desk.granted("b")
    expect(desk.release("a", fence, again=True), ops.Released(found=False))
    assert desk.holder() == "b"


def test_trap_11_a_third_release_gets_the_answer_of_the_second() -> None:
    """What a repeated release did not find it has not released, though it leaves a tombstone."""
    desk = Desk()
    fence = desk.granted("a")
    desk.later(TTL)
    for _ in range(3):
        expect(desk.release("a", fence, forget_ms=60_000, again=True), ops.Released(found=False))
    expect(desk.release("a", fence), ops.NotYours("gone"))


def test_trap_11_a_retried_release_of_an_expired_lease_stays_not_yours() -> None:
    """``again`` does not turn an expiry that is remembered into a release."""
    desk = Desk()
    fence = desk.granted("a")
    desk.claim("a", beat=2)
    desk.later(TTL)
    expect(desk.release("a", fence), ops.NotYours("expired"))
    expect(desk.release("a", fence, again=True), ops.NotYours("expired"))


def test_an_unannounced_second_release_is_not_yours() -> None:
    """Two releases that know nothing of each other: the second had nothing."""
    desk = Desk()
    fence = desk.granted("a")
    desk.release("a", fence)
    expect(desk.release("a", fence), ops.NotYours("deleted"))


def test_withdraw_of_a_holder_frees_and_hands_on() -> None:
    """A claim that had won after all is given back."""
    desk = Desk()
    desk.granted("a")
    desk.claim("b")
    expect(desk.withdraw("a"), ops.Withdrawn("held"))
    assert (desk.holder(), desk.pushed()) == ("b", [("b", "granted", 1)])


def test_trap_25_withdraw_of_a_waiter_leaves_the_queue() -> None:
    """Those behind move up."""
    desk = Desk()
    desk.granted("a")
    desk.claim("b")
    desk.claim("c")
    expect(desk.withdraw("b"), ops.Withdrawn("queued"))
    assert (desk.holder(), desk.waiting()) == ("a", ["c"])


def test_withdraw_of_nothing_is_harmless() -> None:
    """An owner that the store does not know can withdraw as often as it likes."""
    desk = Desk()
    desk.granted("a")
    before = desk.state
    expect(desk.withdraw("b"), ops.Withdrawn("nothing"))
    assert desk.state == before


def test_trap_9_a_claim_delivered_after_its_withdrawal_takes_nothing() -> None:
    """The clean-up overtook the claim: with ``forget`` the late claim finds a tombstone."""
    desk = Desk()
    expect(desk.withdraw("a", forget_ms=60_000), ops.Withdrawn("nothing"))
    expect(desk.claim("a"), ops.NoClaim("withdrawn"))
    expect(desk.claim("a", wait=False), ops.NoClaim("withdrawn"))
    assert (desk.holder(), desk.waiting()) == ("", [])


def test_trap_10_a_claim_that_won_unseen_is_withdrawn_for_good() -> None:
    """A timed-out claim may have won: withdrawing frees it, and its duplicate takes nothing."""
    desk = Desk()
    desk.granted("a")
    expect(desk.withdraw("a", forget_ms=60_000), ops.Withdrawn("held"))
    expect(desk.claim("a"), ops.NoClaim("withdrawn"))
    assert isinstance(desk.claim("b"), ops.Granted)


def test_trap_9_a_claim_delivered_after_its_release_takes_nothing() -> None:
    """The same for a release that knew of an unanswered claim."""
    desk = Desk()
    fence = desk.granted("a")
    desk.release("a", fence, forget_ms=60_000)
    expect(desk.claim("a", beat=1), ops.NoClaim("released"))


@each("late", [1, 2, 3])
def test_an_owner_whose_claim_was_repeated_is_granted_once(late: int) -> None:
    """Whichever of its claims arrives after its own grant has run out: it is gone."""
    desk = Desk()
    desk.granted("a")
    expect(desk.claim("a", beat=2), ops.Granted(desk.grant().fence, TTL))
    desk.later(TTL)
    expect(desk.claim("a", beat=late), ops.NoClaim("expired"))
    assert desk.holder() == ""


def test_an_owner_whose_repeated_claim_came_first_is_granted_once() -> None:
    """The first claim was delayed, and the second was granted: the first finds how that ended."""
    desk = Desk()
    expect(desk.claim("a", beat=2), ops.Granted(desk.grant().fence, TTL))
    desk.later(TTL)
    expect(desk.claim("a", beat=1), ops.NoClaim("expired"))


def test_a_copy_of_the_only_claim_after_an_unseen_expiry_is_granted_anew() -> None:
    """The store has forgotten the first grant. The second has a higher fence, and the first stays dead."""
    desk = Desk()
    fence = desk.granted("a")
    desk.later(TTL)
    assert desk.granted("a") > fence
    expect(desk.renew("a", fence), ops.NotYours("taken"))
    expect(desk.release("a", fence), ops.NotYours("taken"))
    assert desk.holder() == "a"


def test_a_tombstone_ends() -> None:
    """It is kept for as long as was asked and not a millisecond more: memory does not grow for ever."""
    desk = Desk()
    desk.withdraw("a", forget_ms=60_000)
    desk.later(59_999)
    expect(desk.claim("a"), ops.NoClaim("withdrawn"))
    desk.later(1)
    assert isinstance(desk.claim("a"), ops.Granted)
    assert desk.state.ended == ()


@each("ttl_ms", [1_000, 60_000, 120_000])
def test_an_expired_lease_is_remembered_for_its_ttl_and_at_least_a_minute(ttl_ms: int) -> None:
    """The tombstone of a repeated claim's expiry stands for max(ttl, 60 s)."""
    desk = Desk()
    fence = desk.granted("a", ttl_ms)
    desk.claim("a", beat=2)
    desk.later(ttl_ms)
    expect(desk.renew("a", fence), ops.NotYours("expired"))
    desk.later(tombstone_ms(ttl_ms) - 1)
    expect(desk.renew("a", fence), ops.NotYours("expired"))
    desk.later(1)
    expect(desk.renew("a", fence), ops.NotYours("deleted"))


def test_the_first_outcome_of_an_owner_stays() -> None:
    """A later ending prolongs the tombstone and never rewrites it."""
    desk = Desk()
    desk.granted("a", 1_000)
    desk.claim("a", beat=2)
    desk.later(1_000)
    desk.withdraw("a", forget_ms=500_000)
    desk.later(400_000)
    expect(desk.claim("a"), ops.NoClaim("expired"))


def test_a_shorter_tombstone_does_not_cut_a_longer_one() -> None:
    """Its time can only grow."""
    desk = Desk()
    desk.withdraw("a", forget_ms=60_000)
    desk.withdraw("a", forget_ms=1_000)
    desk.later(59_999)
    expect(desk.claim("a"), ops.NoClaim("withdrawn"))


def test_trap_1_reason_expired() -> None:
    """Time ran out, whoever holds now; remembered where the claim was repeated."""
    desk = Desk()
    fence = desk.granted("a")
    desk.claim("a", beat=2)
    desk.later(TTL)
    desk.granted("b")
    expect(desk.renew("a", fence), ops.NotYours("expired"))


def test_trap_1_reason_taken() -> None:
    """Nothing is remembered of this owner, and somebody has a newer fence."""
    desk = Desk()
    fence = desk.granted("a")
    desk.withdraw("a")
    desk.granted("b")
    expect(desk.renew("a", fence), ops.NotYours("taken"))


def test_trap_1_reason_deleted() -> None:
    """The store lost its memory: the grant is not there, and nobody has a newer one."""
    desk = Desk()
    fence = desk.granted("a")
    desk.lose_memory()
    expect(desk.renew("a", fence), ops.NotYours("deleted"))


def test_trap_1_reason_evicted() -> None:
    """An operator took it away."""
    desk = Desk()
    fence = desk.granted("a")
    desk.evict("a", fence)
    expect(desk.renew("a", fence), ops.NotYours("evicted"))
    expect(desk.release("a", fence), ops.NotYours("evicted"))


def test_trap_43_a_renewal_after_the_release_finds_nothing() -> None:
    """Release overtook a batched Renew: not yours, and nothing comes back to life."""
    desk = Desk()
    fence = desk.granted("a")
    desk.release("a", fence, forget_ms=60_000)
    expect(desk.renew("a", fence), ops.NotYours("released"))
    assert desk.holder() == ""


def test_trap_44_an_exact_renewal_that_was_overtaken_shortens_nothing() -> None:
    """An extend to 5 s went unanswered, the next one to 60 s was confirmed; then the first is delivered."""
    desk = Desk()
    fence = desk.granted("a")
    expect(desk.renew("a", fence, 60_000, exact=True, number=2), ops.Renewed(60_000))
    desk.later(1_000)
    expect(desk.renew("a", fence, 5_000, exact=True, number=1), ops.Renewed(59_000))
    expect(desk.renew("a", fence, 5_000, exact=True, number=2), ops.Renewed(5_000))


@pytest.mark.parametrize("lost", [True, False])
def test_trap_11_a_refused_release_with_a_tombstone_gets_the_same_answer_again(lost: bool) -> None:
    """The tombstone that a release leaves does not turn its own retry into a success."""
    desk = Desk()
    fence = desk.granted("a")
    if lost:
        desk.lose_memory()
    else:
        desk.withdraw("a")
        desk.granted("b")
    reason = "deleted" if lost else "taken"
    for again in (False, False, True):
        expect(desk.release("a", fence, forget_ms=60_000, again=again), ops.NotYours(reason))


def test_a_release_of_another_fence_does_not_bury_the_holder() -> None:
    """A tombstone for an owner that holds would answer its own claim with Gone."""
    desk = Desk()
    fence = desk.granted("a")
    assert isinstance(desk.release("a", fence + 1, forget_ms=60_000), ops.NotYours)
    expect(desk.claim("a", beat=2), ops.Granted(fence, TTL))
    assert desk.state.ended == ()


def test_an_ending_with_a_tombstone_also_ends_a_place_in_the_queue() -> None:
    """Nobody is buried and waits at the same time: a tombstone says that nothing more is granted."""
    desk = Desk()
    fence = desk.granted("a")
    desk.claim("b")
    desk.release("b", 1, forget_ms=60_000)
    assert desk.waiting() == []
    desk.release("a", fence)
    assert desk.holder() == ""
