"""Handing a lease over, step by step: what the giver sends, what the adopter sends, and what is left when it fails."""

from __future__ import annotations

import pytest

from leasehold._core import flows, ops
from leasehold._core.holding import LocalGrant
from leasehold._core.policy import tombstone_ms
from leasehold._core.tickets import Ticket, Transfer
from leasehold.errors import InvalidRequest, LeaseLost, NotHeld, OutcomeUnknown, StoreUnavailable
from tests.support.tables import each
from tests.unit.core.play import DOWN, NAME, TTL, UNKNOWN, Play, Step, ask, hold

TICKET = Ticket(NAME.text, 9, TTL, "ab" * 16)
ADOPTER = "host:8:secret.1"


def adopt(play: Play, floor: int = 0) -> LocalGrant:
    """Play the adopter."""
    return play.run(flows.adopt(ask(), TICKET, ADOPTER, lambda: floor, play.now))


# ---------------------------------------------------------------- the giver


def test_the_giver_renews_once_with_the_ticket() -> None:
    """One Renew that names the ticket; then it is no longer his, and nothing more is sent."""
    holding = hold()
    play = Play(Step(ops.Renew, ops.Renewed(TTL), 0.1), now=101.0)
    play.run(flows.transfer(holding, Transfer(TICKET.nonce), play.now))
    renew = play.last(ops.Renew)
    assert (renew.ticket, renew.exact, renew.fence) == (TICKET.nonce, False, 9)
    assert holding.phase == "released" and holding.begin_release(play.now) is None
    assert holding.begin_renewal(play.now) is None


@pytest.mark.parametrize("error", [DOWN, UNKNOWN])
def test_a_giver_without_an_answer_still_holds(error: Exception) -> None:
    """Nobody knows the ticket: it is unsure, is renewed, and can be handed over again."""
    holding = hold()
    play = Play(Step(ops.Renew, error, 0.5), now=101.0)
    with pytest.raises(type(error)):
        play.run(flows.transfer(holding, Transfer(TICKET.nonce), play.now))
    assert holding.phase == "unsure" and holding.begin_renewal(play.now) is not None
    again = Play(Step(ops.Renew, ops.Renewed(TTL)), now=102.0)
    again.run(flows.transfer(holding, Transfer("cd" * 16), again.now))
    assert holding.phase == "released"


def test_a_giver_who_held_it_no_longer_is_told() -> None:
    """The store says "not yours": that is a loss, not a hand-over."""
    holding = hold()
    play = Play(Step(ops.Renew, ops.NotYours("evicted")), now=101.0)
    with pytest.raises(LeaseLost) as caught:
        play.run(flows.transfer(holding, Transfer(TICKET.nonce), play.now))
    assert caught.value.reason == "evicted" and holding.phase == "lost"


def test_an_answer_that_comes_too_late_hands_nothing_over() -> None:
    """The confirmation took longer than the lease lasts: it is lost, and no ticket is given out."""
    holding = hold(1_000)
    play = Play(Step(ops.Renew, ops.Renewed(1_000), 2.0), now=100.1)
    with pytest.raises(LeaseLost):
        play.run(flows.transfer(holding, Transfer(TICKET.nonce), play.now))
    assert holding.phase == "lost"


def test_what_was_given_back_cannot_be_given_away() -> None:
    """transfer() after release() sends nothing."""
    holding = hold()
    Play(Step(ops.Release, ops.Released())).run(flows.release(holding, 101.0))
    with pytest.raises(NotHeld):
        Play().run(flows.transfer(holding, Transfer(TICKET.nonce), 102.0))


def test_a_renewal_that_was_overtaken_changes_nothing() -> None:
    """The watchdog's Renew was under way when the adopter came: its "not yours" is no loss (trap 43)."""
    holding = hold()
    late = holding.begin_renewal(100.5)
    assert late is not None
    Play(Step(ops.Renew, ops.Renewed(TTL)), now=101.0).run(flows.transfer(holding, Transfer(TICKET.nonce), 101.0))
    holding.apply_reply(late, 100.5, ops.NotYours("adopted"), 102.0)
    assert holding.phase == "released"


# ---------------------------------------------------------------- the adopter


def test_an_adopter_asks_once() -> None:
    """Adopt with fence, ticket and a new owner; the deadline counts from before the request (trap 23)."""
    play = Play(Step(ops.Adopt, ops.Granted(11, TTL), 2.0))
    taken = adopt(play, floor=77)
    op = play.last(ops.Adopt)
    assert (op.resource, op.fence, op.ticket, op.adopter) == (NAME.text, 9, TICKET.nonce, ADOPTER)
    assert (op.ttl_ms, op.floor, op.holder_address) == (TTL, 77, "news@me")
    assert (taken.owner, taken.fence, taken.unanswered) == (ADOPTER, 11, False)
    assert taken.deadline == pytest.approx(130 - 0.302)


def test_an_unanswered_adoption_is_repeated_as_the_same_adopter() -> None:
    """It may have happened: the same adopter gets the same grant, and releases with a tombstone later (trap 10)."""
    play = Play(Step(ops.Adopt, UNKNOWN, 1.0), Step(ops.Park), Step(ops.Adopt, ops.Granted(11, 20_000), 0.1))
    taken = adopt(play)
    assert [op.adopter for op in play.of(ops.Adopt)] == [ADOPTER] * 2
    assert taken.unanswered and taken.deadline == pytest.approx(play.sent_at[2] + 20 - 0.202)


def test_an_adopter_who_gives_up_leaves_nothing() -> None:
    """Never answered: what may have been adopted is withdrawn in the background, with a tombstone."""
    unanswered = [Step(ops.Adopt, UNKNOWN, 1.0), Step(ops.Park)]
    play = Play(*unanswered, *unanswered, Step(ops.Adopt, UNKNOWN, 1.0), Step(ops.Defer))
    with pytest.raises(OutcomeUnknown):
        adopt(play)
    later = play.last(ops.Defer)
    assert later.op == ops.Withdraw(NAME.text, ADOPTER, tombstone_ms(TTL)) and later.seconds == 30


def test_a_store_that_is_down_leaves_nothing_to_withdraw() -> None:
    """A definite no: the ticket is as good as before."""
    play = Play(Step(ops.Adopt, DOWN))
    with pytest.raises(StoreUnavailable):
        adopt(play)


def test_nothing_was_taken_must_be_true() -> None:
    """The first try may have arrived: then a definite no to the second is an unknown outcome, and is withdrawn."""
    play = Play(Step(ops.Adopt, UNKNOWN), Step(ops.Park), Step(ops.Adopt, DOWN), Step(ops.Defer))
    with pytest.raises(OutcomeUnknown):
        adopt(play)


def test_an_interrupted_adopter_leaves_nothing() -> None:
    """Cancelled while it asks: withdrawn, and the interrupt goes on its way (trap 9)."""
    play = Play(Step(ops.Adopt, KeyboardInterrupt()), Step(ops.Defer))
    with pytest.raises(KeyboardInterrupt):
        adopt(play)


@each(
    ("said", "reason"),
    [
        ("expired", "expired"),
        ("adopted", "taken"),
        ("released", "taken"),
        ("evicted", "evicted"),
        ("deleted", "deleted"),
    ],
)
def test_a_ticket_that_is_no_longer_good(said: str, reason: str) -> None:
    """Whoever comes too late is told why, and has nothing to withdraw."""
    with pytest.raises(LeaseLost, match="no longer good") as caught:
        adopt(Play(Step(ops.Adopt, ops.NotYours(said))))
    assert (caught.value.reason, caught.value.resource, caught.value.fence) == (reason, NAME.text, 9)


def test_a_floor_that_no_clock_reaches_is_refused() -> None:
    """The store refuses the request itself: InvalidRequest."""
    with pytest.raises(InvalidRequest):
        adopt(Play(Step(ops.Adopt, ops.Rejected("the fence floor is wrong"))))


def test_an_adoption_that_is_all_but_over_is_not_entered() -> None:
    """So little is left when the answer comes that it is given back."""
    play = Play(Step(ops.Adopt, ops.Granted(11, TTL), 29.0), Step(ops.Defer))
    with pytest.raises(LeaseLost) as caught:
        adopt(play)
    assert caught.value.reason == "expired" and isinstance(play.last(ops.Defer).op, ops.Withdraw)
