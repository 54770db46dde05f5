"""A holding: every arrow of its state diagram, and every deadline to the millisecond, without a clock."""

from __future__ import annotations

import pytest

from leasehold._core import ops
from leasehold._core.holding import Holding, LocalGrant, deadline_after, renewal_after
from leasehold._core.policy import BUDGET_MS, RENEWAL_MS
from leasehold._core.renewals import apply_replies, due_renewals
from leasehold.errors import LeaseLost, NotHeld, OutcomeUnknown, StoreUnavailable
from tests.support.tables import each
from tests.unit.core.play import NAME, Latch

OWNER = "host:7:secret.1"
FENCE = 1_794_768_018_000_000
TTL = 30_000
SENT, AT = 100.0, 100.5
DEADLINE = SENT + 30 - 0.302  # 1 % and 2 ms of drift
STOP = DEADLINE - 5  # ttl / 6


def hold(
    ttl_ms: int = TTL,
    *,
    renews: bool = True,
    unanswered: bool = False,
    max_hold: float | None = None,
    max_idle: float | None = None,
) -> Holding:
    """A lease asked for at 100.0, granted in full, known at 100.5."""
    taken = LocalGrant(OWNER, FENCE, ttl_ms, SENT, ttl_ms, AT, unanswered)
    return Holding(NAME, taken, Latch(), renews=renews, max_hold=max_hold, max_idle=max_idle)


def renewal(holding: Holding, now: float) -> ops.Renew:
    """The renewal of that moment; there must be one."""
    renew = holding.begin_renewal(now)
    assert renew is not None
    return renew


def extend(holding: Holding, ttl_ms: int, now: float) -> ops.Renew:
    """An extend that was sent and has ended, however."""
    renew = holding.begin_extension(ttl_ms, now)
    holding.end_change()
    return renew


# ---------------------------------------------------------------- deadlines


def test_trap_23_the_deadline_counts_from_before_the_request() -> None:
    """Sent at 100.0, known at 100.5: the half second belongs to the store."""
    assert hold().deadline == pytest.approx(DEADLINE)


def test_the_deadline_is_lowered_by_the_drift_of_the_clock() -> None:
    """1 % and 2 ms: never later than what the store confirmed."""
    assert deadline_after(0.0, 10_000) == pytest.approx(10 - 0.1 - 0.002)
    assert deadline_after(0.0, 50) == pytest.approx(0.05 - 0.0005 - 0.002)


def test_renewal_is_due_a_third_of_the_ttl_after_the_stores_count_began() -> None:
    """With a full grant that is sent + ttl/3; with an older one it is sooner."""
    assert renewal_after(100.0, 30_000, 30_000) == pytest.approx(110.0)
    assert renewal_after(100.0, 30_000, 12_000) == pytest.approx(92.0)


def test_a_renewing_lease_must_stop_a_sixth_before_its_deadline() -> None:
    """It needs time to wind down when renewal does not succeed."""
    holding = hold()
    assert holding.stop_at == pytest.approx(STOP)
    assert holding.settle(STOP - 0.001) == "held"
    assert holding.settle(STOP + 0.001) == "lost"


def test_a_lease_that_does_not_renew_stops_at_its_deadline() -> None:
    """It knows its end, and nobody renews it."""
    holding = hold(renews=False)
    assert holding.stop_at == pytest.approx(DEADLINE)
    assert holding.renew_at == float("inf")
    assert holding.settle(DEADLINE - 0.001) == "held"
    assert holding.settle(DEADLINE + 0.001) == "lost"


def test_the_smallest_ttl_still_has_time_to_work() -> None:
    """50 ms: deadline after 47.5, stop after 39.2, first renewal after 16.7."""
    holding = hold(50)
    assert holding.deadline - SENT == pytest.approx(0.0475)
    assert holding.stop_at - SENT == pytest.approx(0.0475 - 0.05 / 6)
    assert holding.renew_at - SENT == pytest.approx(0.05 / 3)
    assert SENT < holding.renew_at < holding.stop_at < holding.deadline


def test_the_watchdog_looks_at_the_renewal_or_at_the_end() -> None:
    """Whichever is sooner; at nothing once the lease is over."""
    holding = hold()
    assert holding.check_at() == pytest.approx(110.0)
    assert hold(renews=False).check_at() == pytest.approx(DEADLINE)
    assert hold(max_hold=2).check_at() == pytest.approx(AT + 2)
    holding.lose("closed")
    assert holding.check_at() == float("inf")


def test_a_grant_with_too_little_left_is_not_usable() -> None:
    """A push that was read late: with the margin for a renewing lease, to the deadline for another."""
    late = LocalGrant(OWNER, FENCE, TTL, SENT, TTL, SENT + 27, False)
    assert not late.usable(renews=True)
    assert late.usable(renews=False)
    assert not LocalGrant(OWNER, FENCE, TTL, SENT, TTL, SENT + 30, False).usable(renews=False)
    assert LocalGrant(OWNER, FENCE, TTL, SENT, TTL, AT, False).usable(renews=True)


# ---------------------------------------------------------------- held, unsure, lost


def test_held_to_unsure_by_a_transport_error() -> None:
    """It says nothing about the lease (trap 1)."""
    holding = hold()
    holding.renewal_failed(110.0)
    assert holding.phase == "unsure"
    assert holding.settle(111.0) == "unsure"


def test_unsure_to_held_by_a_renewal() -> None:
    """The store answered after all: a new deadline, and the next renewal a third later."""
    holding = hold()
    holding.renewal_failed(110.0)
    op = renewal(holding, 112.0)
    holding.apply_reply(op, 112.0, ops.Renewed(TTL), 112.0)
    assert holding.settle(112.1) == "held"
    assert holding.deadline == pytest.approx(112 + 30 - 0.302)
    assert holding.renew_at == pytest.approx(122.0)


def test_trap_2_unsure_to_lost_when_the_time_to_stop_has_come() -> None:
    """Renewal did not succeed in time: lost, and that is the reason."""
    holding = hold()
    holding.renewal_failed(110.0)
    assert holding.settle(STOP + 0.001) == "lost"
    assert holding.reason == "renewal_failed"


def test_a_loss_has_the_last_failure_as_its_cause() -> None:
    """Not an earlier one, and none that a renewal has made good since; causes that go round in a circle have an end."""
    holding = hold()
    last = StoreUnavailable("the last")
    last.__cause__ = circle = OSError("below")
    circle.__cause__ = circle
    for error in (OutcomeUnknown("the first"), last):
        holding.renewal_failed(110.0, error)
    assert holding.loss().__cause__ is None
    holding.settle(STOP + 0.001)
    cause = holding.loss().__cause__
    assert isinstance(cause, StoreUnavailable) and str(cause) == "the last" and isinstance(cause.__cause__, OSError)


def test_a_cause_that_cannot_be_copied_ends_the_chain() -> None:
    """Somebody's own class of error, which wants more than its text."""

    class Odd(Exception):
        def __init__(self, *, code: int) -> None:
            super().__init__(f"code {code}")

    holding = hold()
    error = StoreUnavailable("away")
    error.__cause__ = Odd(code=7)
    holding.renewal_failed(110.0, error)
    holding.settle(STOP + 0.001)
    cause = holding.loss().__cause__
    assert isinstance(cause, StoreUnavailable) and cause.__cause__ is None


def test_held_to_lost_when_nobody_renewed() -> None:
    """No renewal was tried: it expired."""
    holding = hold()
    holding.settle(STOP + 0.001)
    assert (holding.phase, holding.reason) == ("lost", "expired")


def test_a_frozen_process_learns_by_looking() -> None:
    """An hour in SIGSTOP: the first look after it says lost, and so does every check."""
    holding = hold()
    assert holding.phase == "held"
    with pytest.raises(LeaseLost):
        holding.require(SENT + 3600)
    assert holding.phase == "lost"


@each("reason", ["expired", "taken", "deleted", "evicted"])
@each("unsure", [False, True])
def test_trap_1_not_yours_is_loss_now(reason: str, unsure: bool) -> None:
    """However much time there seemed to be, and with the store's reason."""
    holding = hold()
    if unsure:
        holding.renewal_failed(101.0)
    holding.refused(reason)
    assert (holding.phase, holding.reason) == ("lost", reason)


def test_a_reason_that_is_no_reason_of_loss_counts_as_taken() -> None:
    """``adopted``, ``released``: somebody else has it or had it given back."""
    holding = hold()
    holding.refused("adopted")
    assert holding.reason == "taken"


@pytest.mark.parametrize("reason", ["closed", "forked"])
def test_loss_that_is_decided_elsewhere(reason: str) -> None:
    """The coordinator was closed, the process forked."""
    holding = hold()
    holding.lose(reason)
    assert (holding.phase, holding.reason) == ("lost", reason)


def test_loss_is_sticky_against_a_late_ok() -> None:
    """The work was told to stop: no answer brings the lease back (trap 7)."""
    holding = hold()
    op = renewal(holding, 110.0)
    holding.settle(STOP + 1)
    holding.apply_reply(op, 110.0, ops.Renewed(TTL), 110.0)
    assert holding.settle(STOP + 1) == "lost"
    assert holding.deadline == pytest.approx(DEADLINE)


def test_the_first_reason_of_a_loss_stays() -> None:
    """Neither a refusal nor a transport error nor a closing rewrites it."""
    holding = hold()
    holding.refused("evicted")
    holding.refused("taken")
    holding.renewal_failed(101.0)
    holding.lose("closed")
    holding.settle(10_000)
    assert (holding.phase, holding.reason) == ("lost", "evicted")


def test_the_error_of_a_loss_carries_everything_but_the_secret() -> None:
    """Resource, reason, fence, and the public part of the owner."""
    holding = hold()
    holding.lose("evicted")
    error = holding.loss()
    assert (error.reason, error.resource, error.owner, error.fence) == (
        "evicted",
        "report:42",
        "host:7",
        FENCE,
    )
    assert "evicted" in str(error)
    assert "secret" not in str(error)


# ---------------------------------------------------------------- renewing


def test_trap_2_no_renewal_after_the_time_to_stop() -> None:
    """Never is a Renew sent for a lease whose end has come, and the lease is lost by asking."""
    holding = hold()
    assert holding.begin_renewal(STOP + 0.001) is None
    assert holding.phase == "lost"


@pytest.mark.parametrize("end", ["lose", "release"])
def test_no_renewal_of_a_lease_that_is_over(end: str) -> None:
    """Lost or being given back: nothing to renew."""
    holding = hold()
    if end == "lose":
        holding.lose("closed")
    else:
        holding.begin_release(101.0)
    assert holding.begin_renewal(102.0) is None


@each("ttl_ms", [50, 1_000, 3_000, 30_000, 3_600_000, 86_400_000])
def test_trap_2_a_renewals_budget_never_exceeds_what_remains(ttl_ms: int) -> None:
    """The call ends before the work must stop."""
    for part in (0.0, 0.3, 0.7, 0.95):
        holding = hold(ttl_ms)
        stop = holding.stop_at
        now = SENT + (stop - SENT) * part
        op = renewal(holding, now)
        assert op.budget_ms >= 1
        assert now + op.budget_ms / 1000 <= stop


@each("ttl_ms", [1_000, 3_000, 30_000])
def test_trap_2_a_lost_reply_leaves_time_for_another_try(ttl_ms: int) -> None:
    """The first renewal is sent after a third of the ttl: a second whole one fits before the work must stop."""
    holding = hold(ttl_ms)
    first = renewal(holding, holding.renew_at)
    holding.renewal_failed(holding.renew_at + first.budget_ms / 1000)
    second = renewal(holding, holding.renew_at)
    assert second.budget_ms == first.budget_ms


@pytest.mark.parametrize("ttl_ms", [3_600_000, 86_400_000])
def test_no_renewal_takes_longer_than_any_call_may(ttl_ms: int) -> None:
    """A lease of a day does not let one hung call hold up the watchdog, which has others to renew."""
    assert renewal(hold(ttl_ms), 110.0).budget_ms <= BUDGET_MS


def test_every_renew_from_the_first_change_on_has_a_higher_number() -> None:
    """Renewals and extends are counted together, so that the store can tell which one was overtaken (trap 44). Before
    the first extend all renewals are the same to the store."""
    holding = hold()
    ops_sent = [renewal(holding, 101.0), renewal(holding, 101.5), extend(holding, 20_000, 102.0)]
    ops_sent += [renewal(holding, 103.0), renewal(holding, 104.0), extend(holding, 20_000, 105.0)]
    assert [op.number for op in ops_sent] == [0, 0, 1, 2, 3, 4]


@pytest.mark.parametrize(("at", "reason"), [(105.0, "deleted"), (140.0, "expired")])
def test_a_record_that_is_gone_was_deleted_before_the_deadline_and_has_expired_after_it(at: float, reason: str) -> None:
    """The store forgets a plain lease when it ends. A process that stood still learns by its own clock why."""
    holding = hold()
    op = renewal(holding, 104.0)
    holding.apply_reply(op, 104.0, ops.NotYours("deleted"), at)
    assert (holding.phase, holding.reason) == ("lost", reason)


def test_a_renewal_names_owner_fence_and_ttl_and_is_not_exact() -> None:
    """A watchdog's Renew never shortens."""
    op = renewal(hold(), 110.0)
    assert (op.resource, op.owner, op.fence, op.ttl_ms, op.exact) == (
        "report:42",
        OWNER,
        FENCE,
        TTL,
        False,
    )


def test_trap_44_a_confirmation_never_lowers_the_deadline() -> None:
    """Two renewals answered in the wrong order: the later deadline stays."""
    holding = hold()
    op = renewal(holding, 105.0)
    holding.apply_reply(op, 110.0, ops.Renewed(TTL), 110.0)
    holding.apply_reply(op, 105.0, ops.Renewed(TTL), 105.0)
    assert holding.deadline == pytest.approx(110 + 30 - 0.302)


def test_trap_44_a_renewal_sent_before_an_extend_is_ignored() -> None:
    """Its answer speaks of an end that extend has replaced."""
    holding = hold()
    op = renewal(holding, 110.0)
    extend(holding, 5_000, 111.0)
    lowered = holding.deadline
    holding.apply_reply(op, 110.0, ops.Renewed(TTL), 110.0)
    assert holding.deadline == lowered
    assert holding.ttl_ms == 5_000


def test_the_answer_of_a_renewal_sent_after_the_extend_counts() -> None:
    """It knows of the new end."""
    holding = hold()
    extend(holding, 60_000, 101.0)
    op = renewal(holding, 102.0)
    assert op.ttl_ms == 60_000
    holding.apply_reply(op, 102.0, ops.Renewed(60_000), 102.0)
    assert holding.deadline == pytest.approx(102 + 60 - 0.602)


def test_after_a_transport_error_renewal_is_tried_soon_again() -> None:
    """A twelfth of the ttl, at most a second, at least 5 ms: several tries fit before the margin."""
    for ttl_ms, pause in ((50, 0.005), (6_000, 0.5), (30_000, 1.0)):
        holding = hold(ttl_ms)
        holding.renewal_failed(SENT + 0.01)
        assert holding.renew_at == pytest.approx(SENT + 0.01 + pause)


def test_a_lease_that_does_not_renew_is_never_scheduled() -> None:
    """Neither an answer nor an error gives it a renewal time."""
    holding = hold(renews=False)
    op = extend(holding, TTL, 101.0)
    holding.apply_reply(op, 101.0, ops.Renewed(TTL), 101.0)
    holding.renewal_failed(102.0)
    assert holding.renew_at == float("inf")


def test_trap_6_want_longer_is_asked_for_by_the_next_renewal() -> None:
    """Re-entry with a longer ttl: the outer lease grows when it is renewed, not before."""
    holding = hold()
    holding._raise_ttl(60_000)
    assert holding.deadline == pytest.approx(DEADLINE)
    op = renewal(holding, 110.0)
    assert op.ttl_ms == 60_000
    holding.apply_reply(op, 110.0, ops.Renewed(60_000), 110.0)
    assert holding.ttl_ms == 60_000


def test_trap_6_want_shorter_changes_nothing() -> None:
    """A nested shorter lease does not cut the outer one."""
    holding = hold()
    holding._raise_ttl(1_000)
    assert renewal(holding, 110.0).ttl_ms == TTL
    assert holding.deadline == pytest.approx(DEADLINE)


# ---------------------------------------------------------------- extending


def test_extend_shorter_lowers_the_deadline_before_it_is_sent() -> None:
    """Whether it arrives or not, nobody works past the shorter end."""
    holding = hold()
    op = extend(holding, 6_000, 101.0)
    assert (op.ttl_ms, op.exact) == (6_000, True)
    assert holding.deadline == pytest.approx(101 + 6 - 0.062)
    assert holding.stop_at == pytest.approx(101 + 6 - 0.062 - 1)


def test_extend_longer_is_believed_when_it_is_confirmed() -> None:
    """Sets, never adds (trap 6)."""
    holding = hold()
    op = extend(holding, 60_000, 101.0)
    assert holding.deadline == pytest.approx(DEADLINE)
    holding.apply_reply(op, 101.0, ops.Renewed(60_000), 101.0)
    assert holding.deadline == pytest.approx(101 + 60 - 0.602)


def test_later_renewals_use_the_ttl_of_the_extend() -> None:
    """Shorter as well as longer."""
    for ttl_ms in (5_000, 60_000):
        holding = hold()
        op = extend(holding, ttl_ms, 101.0)
        holding.apply_reply(op, 101.0, ops.Renewed(ttl_ms), 101.0)
        assert renewal(holding, 102.0).ttl_ms == ttl_ms


@each("ttl_ms", [50, 1_000, 30_000, 86_400_000])
@each("now", [101.0, 120.0, 123.0])
def test_trap_2_an_extends_budget_never_exceeds_what_remains(ttl_ms: int, now: float) -> None:
    """A call that outlives the lease would confirm what is over."""
    holding = hold()
    op = extend(holding, ttl_ms, now)
    assert 1 <= op.budget_ms <= BUDGET_MS
    assert now + op.budget_ms / 1000 <= holding.deadline


def test_trap_2_an_extends_budget_ends_when_the_work_must_stop() -> None:
    """Nobody renews beside it: one hung extend must not be what ends the lease."""
    holding = hold(6_000)
    op = holding.begin_extension(60_000, 101.9)
    assert 101.9 + op.budget_ms / 1000 <= holding.stop_at


def test_an_extend_has_the_usual_patience_where_there_is_time() -> None:
    """And half of what is left where there is not: then a renewal can still be tried."""
    assert extend(hold(), 60_000, 101.0).budget_ms == BUDGET_MS
    assert extend(hold(), 60_000, STOP - 2).budget_ms in (999, 1_000)


def test_no_renewal_goes_out_beside_an_extend() -> None:
    """While an extend is under way the watchdog keeps still; afterwards it goes on."""
    holding = hold()
    holding.begin_extension(20_000, 101.0)
    assert holding.begin_renewal(102.0) is None
    assert holding.phase == "held"
    holding.end_change()
    assert holding.begin_renewal(102.0) is not None


def test_the_watchdog_does_not_spin_beside_an_extend() -> None:
    """A renewal that must not be sent is not due either: else the watchdog looks again at once, for seconds."""
    holding = hold()
    holding.begin_extension(60_000, 109.0)
    assert holding.begin_renewal(111.0) is None
    assert holding.check_at() > 111.0


def test_a_shorter_extend_brings_the_renewal_nearer() -> None:
    """Whatever comes of the extend, somebody renews before the new end: it may have been cancelled."""
    holding = hold()
    extend(holding, 6_000, 101.0)
    assert holding.renew_at == pytest.approx(103.0)
    assert holding.renew_at < holding.stop_at


def test_extend_of_a_lost_lease_is_lost() -> None:
    """It does not come back, and nothing is sent (trap 7)."""
    holding = hold()
    with pytest.raises(LeaseLost) as caught:
        holding.begin_extension(60_000, STOP + 1)
    assert caught.value.reason == "expired"


def test_extend_of_a_released_lease_is_not_held() -> None:
    """Given back: not a loss, a mistake."""
    holding = hold()
    holding.begin_release(101.0)
    with pytest.raises(NotHeld) as caught:
        holding.begin_extension(60_000, 101.5)
    assert (caught.value.resource, caught.value.owner, caught.value.fence) == (
        "report:42",
        "host:7",
        FENCE,
    )


def test_require_says_nothing_while_it_is_ours() -> None:
    """Held and unsure may be acted upon."""
    holding = hold()
    holding.require(101.0)
    holding.renewal_failed(102.0)
    holding.require(103.0)


# ---------------------------------------------------------------- many at once


def test_many_are_renewed_in_one_step() -> None:
    """One lock for all of them; each that is due has its own Renew, and its own answer decides."""
    latch = Latch()
    lost, fine, refused, silent = [
        Holding(NAME, LocalGrant(OWNER, FENCE, TTL, SENT, TTL, AT, False), latch) for _ in range(4)
    ]
    lost.lose("closed")
    due, renews = due_renewals([lost, fine, refused, silent], 110.0, latch)
    assert due == [fine, refused, silent]
    assert [renew.budget_ms for renew in renews] == [renewal(hold(), 110.0).budget_ms] * 3
    error = OutcomeUnknown("no answer")
    unsure = apply_replies(due, renews, 110.0, [ops.Renewed(TTL), ops.NotYours("evicted"), error], 110.5, latch)
    assert unsure == [(silent, error)]
    assert [(one.phase, one.reason) for one in (lost, fine, refused, silent)] == [
        ("lost", "closed"),
        ("held", ""),
        ("lost", "evicted"),
        ("unsure", ""),
    ]
    assert fine.deadline == pytest.approx(DEADLINE + 10) and silent.deadline == pytest.approx(DEADLINE)


# ---------------------------------------------------------------- max_hold and max_idle


def test_trap_5_max_hold_ends_a_lease_that_renews_well() -> None:
    """Hung work is not renewed for ever."""
    holding = hold(max_hold=20)
    op = renewal(holding, 110.0)
    holding.apply_reply(op, 110.0, ops.Renewed(TTL), 110.0)
    assert holding.settle(AT + 19.999) == "held"
    assert holding.settle(AT + 20) == "lost"
    assert holding.reason == "max_hold"


def test_max_hold_counts_from_when_the_grant_was_known() -> None:
    """And extend does not move it."""
    holding = hold(max_hold=20)
    extend(holding, 60_000, 101.0)
    assert holding.stop_at == pytest.approx(AT + 20)


def test_max_idle_ends_a_lease_whose_work_shows_no_life() -> None:
    """The reason says so."""
    holding = hold(max_idle=4)
    assert holding.settle(AT + 3.999) == "held"
    assert holding.settle(AT + 4) == "lost"
    assert holding.reason == "max_idle"


def test_a_beat_of_the_work_puts_max_idle_off() -> None:
    """Counted from the last one."""
    holding = hold(max_idle=4)
    holding.beat(103.0)
    assert holding.settle(106.999) == "held"
    assert holding.settle(107.0) == "lost"


def test_a_beat_that_comes_too_late_changes_nothing() -> None:
    """Also when nobody had looked: the beat itself finds the lease lost."""
    holding = hold(max_idle=4)
    holding.beat(AT + 4.1)
    assert (holding.phase, holding.reason) == ("lost", "max_idle")


def test_the_reason_is_the_end_that_came_first() -> None:
    """A process that was frozen past all of them hears of the first."""
    for limits, reason in (
        ({"max_hold": 20.0, "max_idle": 4.0}, "max_idle"),
        ({"max_hold": 3.0, "max_idle": 4.0}, "max_hold"),
        ({"max_hold": 200.0, "max_idle": 400.0}, "expired"),
    ):
        holding = hold(max_hold=limits["max_hold"], max_idle=limits["max_idle"])
        holding.settle(10_000)
        assert holding.reason == reason


def test_no_renewal_outlives_max_hold() -> None:
    """Its budget ends with the permission to hold."""
    holding = hold(max_hold=12)
    assert renewal(holding, 110.0).budget_ms == RENEWAL_MS
    assert renewal(holding, 112.3).budget_ms == 200


# ---------------------------------------------------------------- giving back


def begun(holding: Holding, now: float) -> ops.Release:
    """A release that is on its way."""
    op = holding.begin_release(now)
    assert op is not None
    return op


def test_held_to_releasing_to_released() -> None:
    """True: it was ours until now."""
    holding = hold()
    op = begun(holding, 101.0)
    assert op == ops.Release("report:42", OWNER, FENCE)
    assert holding.phase == "releasing"
    assert holding.end_release(op, ops.Released()) is True
    assert holding.phase == "released"


def test_unsure_to_releasing() -> None:
    """Doubt is no reason to keep it."""
    holding = hold()
    holding.renewal_failed(101.0)
    assert holding.begin_release(102.0) is not None
    assert holding.phase == "releasing"


@each(("said", "reason"), [("expired", "expired"), ("deleted", "deleted"), ("adopted", "taken")])
def test_a_release_that_finds_it_gone_is_a_loss(said: str, reason: str) -> None:
    """It was lost while the work believed in it: False, and lost with the store's reason."""
    holding = hold()
    assert holding.end_release(begun(holding, 101.0), ops.NotYours(said)) is False
    assert (holding.phase, holding.reason) == ("lost", reason)


def test_trap_43_renewal_answers_are_ignored_while_releasing() -> None:
    """Release overtook a batched Renew: "not yours" is then no loss, and an OK brings nothing back."""
    holding = hold()
    op = renewal(holding, 110.0)
    holding.begin_release(110.1)
    holding.refused("deleted")
    holding.apply_reply(op, 110.0, ops.Renewed(TTL), 110.0)
    holding.renewal_failed(110.2)
    holding.lose("closed")
    assert (holding.phase, holding.reason) == ("releasing", "")
    assert holding.settle(10_000) == "releasing"


def test_trap_11_an_unanswered_release_is_repeated_as_such() -> None:
    """The second one says that there was a first, and its answer counts."""
    holding = hold()
    first, second = begun(holding, 101.0), begun(holding, 102.0)
    assert not first.again and second.again
    assert holding.end_release(second, ops.Released()) is True


@each(("said", "phase"), [("deleted", "released"), ("taken", "released"), ("evicted", "lost")])
def test_trap_11_a_release_that_a_second_one_overtook(said: str, phase: str) -> None:
    """Of two that are under way the second was first: nothing is known of the lease then, and it was ours all the same.
    What the store remembers of it counts, and so does what it says to the second."""
    holding = hold()
    first, _ = begun(holding, 101.0), begun(holding, 101.0)
    assert holding.end_release(first, ops.NotYours(said)) is (phase == "released")
    assert holding.phase == phase
    holding = hold()
    _, second = begun(holding, 101.0), begun(holding, 101.0)
    assert holding.end_release(second, ops.NotYours(said)) is False and holding.phase == "lost"


def test_nothing_is_sent_for_what_was_released() -> None:
    """Given back once."""
    holding = hold()
    holding.end_release(begun(holding, 101.0), ops.Released())
    assert holding.begin_release(102.0) is None
    assert holding.phase == "released"


@each("reason", ["taken", "deleted", "evicted", "forked"])
def test_nothing_is_sent_for_what_is_not_ours_in_the_store(reason: str) -> None:
    """The store said so itself; and a forked child sends nothing for its parent (trap 32)."""
    holding = hold()
    holding.lose(reason)
    assert holding.begin_release(101.0) is None


@each("reason", ["expired", "renewal_failed", "max_hold", "max_idle", "closed"])
def test_what_was_lost_for_a_local_reason_is_still_given_back(reason: str) -> None:
    """It may be ours in the store for a while: the next waiter need not wait. The answer is False all the same."""
    holding = hold()
    holding.lose(reason)
    assert holding.end_release(begun(holding, 101.0), ops.Released()) is False
    assert (holding.phase, holding.reason) == ("lost", reason)


def test_a_release_after_the_deadline_is_false() -> None:
    """Slept past the ttl: the lease is lost before the release is sent."""
    holding = hold()
    assert holding.end_release(begun(holding, SENT + 31), ops.Released()) is False
    assert holding.phase == "lost"


def test_trap_9_a_release_with_a_claim_under_way_leaves_a_tombstone() -> None:
    """For max(ttl, 60 s): a claim that is delivered late takes nothing."""
    for ttl_ms, forget_ms in ((TTL, 60_000), (3_600_000, 3_600_000)):
        op = hold(ttl_ms, unanswered=True).begin_release(101.0)
        assert op is not None
        assert op.forget_ms == forget_ms


def test_trap_9_a_tombstone_is_sent_even_for_what_was_taken() -> None:
    """The late claim is still under way, whoever holds now."""
    holding = hold(unanswered=True)
    holding.refused("taken")
    op = holding.begin_release(101.0)
    assert op is not None
    assert op.forget_ms == 60_000
