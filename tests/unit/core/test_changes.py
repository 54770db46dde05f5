"""What a holder changes of its lease: from writing to reading, and what it says of itself; lost, late and repeated."""

from __future__ import annotations

import pytest

from leasehold._core import flows, ops
from leasehold._core.holding import Holding, LocalGrant
from leasehold._core.tickets import Transfer
from leasehold.errors import InvalidRequest, LeaseholdError, LeaseLost, NotHeld, OutcomeUnknown
from tests.support.tables import each
from tests.unit.core.desk import ROOM, Desk
from tests.unit.core.play import DOWN, FIRST, NAME, TTL, UNKNOWN, Latch, Play, Step
from tests.unit.core.test_flows_cancel import Interrupted, interrupt

CONFIRMED = Step(ops.Renew, ops.Renewed(TTL))


def hold(rule: str = "write") -> Holding:
    """A lease asked for at 100.0 and granted in full."""
    return Holding(NAME, LocalGrant(FIRST, 9, TTL, 100.0, TTL, 100.0, False, rule), Latch())


def renew(holding: Holding, now: float) -> ops.Renew:
    """What the watchdog sends, confirmed at once."""
    op = holding.begin_renewal(now)
    assert op is not None
    holding.apply_reply(op, now, ops.Renewed(op.ttl_ms), now)
    return op


# ---------------------------------------------------------------- downgrade


def test_downgrade_says_so_once_and_is_done() -> None:
    """One Renew, and renewals after it say nothing more of it."""
    holding = hold()
    play = Play(CONFIRMED)
    play.run(flows.downgrade(holding, 101.0))
    assert play.last(ops.Renew).shared
    assert holding.shared
    assert not renew(holding, 110.0).shared


def test_it_reads_before_the_store_has_heard_of_it() -> None:
    """Others may read beside it as soon as that has: whoever still wrote then would be a writer beside readers."""
    holding = hold()
    seen = []

    def answer(op: ops.Op) -> Step:
        seen.append(holding.shared)
        return CONFIRMED

    Play().follow(flows.downgrade(holding, 101.0), answer)
    assert seen == [True]


@pytest.mark.parametrize("error", [UNKNOWN, DOWN])
def test_a_downgrade_that_goes_unanswered_goes_on(error: LeaseholdError) -> None:
    """It only reads from then on; every renewal says so until one is confirmed."""
    holding = hold()
    with pytest.raises(type(error)):
        Play(Step(ops.Renew, error)).run(flows.downgrade(holding, 101.0))
    assert holding.shared
    lost = holding.begin_renewal(102.0)
    assert lost is not None
    assert lost.shared
    holding.renewal_failed(102.0)
    assert renew(holding, 103.0).shared
    assert not renew(holding, 104.0).shared


@pytest.mark.parametrize("confirmed_meanwhile", [False, True])
def test_a_downgrade_that_failed_may_be_repeated(confirmed_meanwhile: bool) -> None:
    """Whether the watchdog was quicker or not: who was never told that it succeeded is told now, and once."""
    holding = hold()
    with pytest.raises(OutcomeUnknown):
        Play(Step(ops.Renew, UNKNOWN)).run(flows.downgrade(holding, 101.0))
    if confirmed_meanwhile:
        renew(holding, 102.0)
    Play(CONFIRMED).run(flows.downgrade(holding, 103.0))
    with pytest.raises(InvalidRequest, match="reads already"):
        Play().run(flows.downgrade(holding, 104.0))


def test_a_downgrade_that_is_interrupted_goes_on() -> None:
    """Ctrl-C in the middle: it reads, and says so with the next renewal."""
    holding = hold()
    interrupt(flows.downgrade(holding, 101.0), [Step(ops.Renew)], 0, Interrupted())
    assert holding.shared
    assert renew(holding, 102.0).shared


@each(("rule", "why"), [("read", "reads already"), ("mutex", "no writer"), ("semaphore", "no writer")])
def test_only_a_writer_is_downgraded(rule: str, why: str) -> None:
    """Nothing is sent for any other."""
    with pytest.raises(InvalidRequest, match=why):
        Play().run(flows.downgrade(hold(rule), 101.0))


def test_what_is_lost_or_given_back_is_not_downgraded() -> None:
    """Nothing is sent, and it stays a writer's that was."""
    lost, released = hold(), hold()
    lost.lose("evicted")
    Play(Step(ops.Release, ops.Released())).run(flows.release(released, 101.0))
    with pytest.raises(LeaseLost):
        Play().run(flows.downgrade(lost, 101.0))
    with pytest.raises(NotHeld):
        Play().run(flows.downgrade(released, 101.0))


def test_trap_1_a_downgrade_of_what_is_not_ours_is_a_loss() -> None:
    """The store says so, and the caller hears it."""
    holding = hold()
    with pytest.raises(LeaseLost) as caught:
        Play(Step(ops.Renew, ops.NotYours("taken"))).run(flows.downgrade(holding, 101.0))
    assert caught.value.reason == "taken"
    assert holding.phase == "lost"


def test_an_unconfirmed_downgrade_travels_with_extend_and_transfer() -> None:
    """Whoever adopts it must get a reader's lease."""
    holding = hold()
    with pytest.raises(OutcomeUnknown):
        Play(Step(ops.Renew, UNKNOWN)).run(flows.downgrade(holding, 101.0))
    extend = Play(Step(ops.Renew, UNKNOWN))
    with pytest.raises(OutcomeUnknown):
        extend.run(flows.extend(holding, TTL, 102.0))
    assert extend.last(ops.Renew).shared
    transfer = Play(CONFIRMED)
    transfer.run(flows.transfer(holding, Transfer("nonce"), 103.0))
    assert transfer.last(ops.Renew).shared


def test_a_late_confirmation_of_a_renewal_from_before_confirms_no_downgrade() -> None:
    """It did not say so."""
    holding = hold()
    before = holding.begin_renewal(100.5)
    assert before is not None
    with pytest.raises(OutcomeUnknown):
        Play(Step(ops.Renew, UNKNOWN)).run(flows.downgrade(holding, 101.0))
    holding.apply_reply(before, 100.5, ops.Renewed(TTL), 101.5)
    assert renew(holding, 102.0).shared


def test_no_renewal_is_sent_beside_a_downgrade() -> None:
    """As beside an extend, for as long as that may take."""
    holding = hold()
    holding.begin_downgrade(101.0)
    assert holding.begin_renewal(101.5) is None


# ---------------------------------------------------------------- saying


def test_say_says_it_once() -> None:
    """One Renew, and renewals after it say nothing more of it."""
    holding = hold("mutex")
    play = Play(CONFIRMED)
    play.run(flows.change_meta(holding, "leader", 101.0))
    assert play.last(ops.Renew).meta == "leader"
    assert renew(holding, 110.0).meta == ""


@pytest.mark.parametrize("error", [UNKNOWN, DOWN])
def test_what_was_said_without_an_answer_is_said_again(error: LeaseholdError) -> None:
    """Until it is confirmed, or something else is said."""
    holding = hold("mutex")
    with pytest.raises(type(error)):
        Play(Step(ops.Renew, error)).run(flows.change_meta(holding, "one", 101.0))
    assert renew(holding, 102.0).meta == "one"
    assert renew(holding, 103.0).meta == ""


def test_what_is_said_is_not_lost_when_a_later_renew_overtakes_it() -> None:
    """An extend beside it arrives first: the store ignores the late one, so the extend must have said it."""
    desk = Desk()
    desk.claim(FIRST)
    fence = desk.fence_of(FIRST)
    holding = Holding(NAME, LocalGrant(FIRST, fence, TTL, 100.0, TTL, 100.0, False), Latch())
    said = holding.begin_meta_change("leader", 101.0)
    extended = holding.begin_extension(60_000, 101.0)
    for op in (extended, said):
        reply = desk.ask(op._replace(resource=ROOM))
        assert isinstance(reply, ops.Renewed)
        holding.apply_reply(op, 101.0, reply, 101.1)
    assert desk.grant().meta == "leader"


def test_an_early_answer_confirms_nothing_that_was_said_after_it() -> None:
    """One, then two, then one again: the answer to the first one is not that to the third."""
    holding = hold("mutex")
    first = holding.begin_meta_change("one", 101.0)
    for meta in ("two", "one"):
        with pytest.raises(OutcomeUnknown):
            Play(Step(ops.Renew, UNKNOWN)).run(flows.change_meta(holding, meta, 101.5))
    holding.end_change()
    holding.apply_reply(first, 101.0, ops.Renewed(TTL), 101.6)
    assert renew(holding, 107.0).meta == "one"


def test_say_of_what_is_lost_is_a_loss() -> None:
    """Nothing is sent."""
    holding = hold("mutex")
    holding.lose("evicted")
    with pytest.raises(LeaseLost):
        Play().run(flows.change_meta(holding, "leader", 101.0))


def test_saying_lengthens_the_lease_as_any_renewal() -> None:
    """Its deadline counts from when it was sent."""
    holding = hold("mutex")
    Play(Step(ops.Renew, ops.Renewed(TTL), 0.5)).run(flows.change_meta(holding, "leader", 110.0))
    assert holding.deadline == pytest.approx(110 + 30 - 0.302)


def test_both_at_once_travel_together() -> None:
    """What is not confirmed of either is said with the other."""
    holding = hold()
    with pytest.raises(OutcomeUnknown):
        Play(Step(ops.Renew, UNKNOWN)).run(flows.change_meta(holding, "reader", 101.0))
    play = Play(CONFIRMED)
    play.run(flows.downgrade(holding, 102.0))
    op = play.last(ops.Renew)
    assert (op.shared, op.meta) == (True, "reader")
    after = renew(holding, 103.0)
    assert (after.shared, after.meta) == (False, "")
