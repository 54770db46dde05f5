"""What the simulator found in cohorts, each as small as it can be told."""

from __future__ import annotations

from contextlib import nullcontext

import pytest

from leasehold._core import ops
from leasehold._core.cohort import ASK, GIVE_BACK, PASS, Cohort, Member, prepare
from leasehold._core.holding import HELD, RELEASING, Holding, LocalGrant
from leasehold._core.names import Name
from leasehold._core.policy import MOST_PASSES

FENCE = 1_700_000_000_000_000


class Interrupted(BaseException):
    """As a cancelled task, or Ctrl-C."""


def held_by_a_cohort(waiting: int = 3, ttl_ms: int = 60_000) -> tuple[Cohort, Holding]:
    """A lease that was granted at 0, and so many who wait for it."""
    grant = LocalGrant("host:1:a", FENCE, ttl_ms, 0.0, ttl_ms, 0.0, False)
    holding = Holding(Name("r", "r"), grant, nullcontext())
    cohort = Cohort(("key",), None)
    cohort.granted(holding)
    cohort.waiting.extend(Member() for _ in range(waiting))
    return cohort, holding


def test_a_store_without_fences_to_reserve_passes_nothing() -> None:
    """Its clock was set back: there is no fence 0 to pass a lease with."""
    cohort, holding = held_by_a_cohort()
    assert cohort.decide(holding, 0.0, FENCE) == ASK
    cohort.reserved(ops.Renewed(60_000, 0, 0, False), 0.0)
    assert cohort.decide(holding, 0.0, FENCE) == GIVE_BACK


def test_a_release_that_is_cancelled_while_it_asks_gives_back() -> None:
    """Whoever releases has done with the lease, also when it does not wait for the end of that."""
    cohort, holding = held_by_a_cohort()
    flow = prepare(cohort, holding, 1.0, lambda: FENCE)
    assert isinstance(flow.send(None), ops.Renew)
    later = flow.throw(Interrupted())
    assert isinstance(later, ops.Defer)
    assert (later.op.owner, getattr(later.op, "fence", 0)) == ("host:1:a", FENCE)
    with pytest.raises(Interrupted):
        flow.send(ops.TimedReply(None, 1.0))
    assert holding.phase == RELEASING


def test_others_who_came_between_two_questions_are_overtaken_no_more_often() -> None:
    """They may have come just after the first one; the passes since then count."""
    cohort, holding = held_by_a_cohort(waiting=3 * MOST_PASSES)
    cohort.reserved(ops.Renewed(60_000, FENCE + 1, FENCE + MOST_PASSES, False), 0.0)
    for _ in range(MOST_PASSES - 2):
        assert cohort.decide(holding, 0.0, FENCE) == PASS
        assert cohort.next_holder() is not None
    cohort.reserved(ops.Renewed(60_000, FENCE + 101, FENCE + 100 + MOST_PASSES, True), 0.5)
    passes = 0
    while cohort.decide(holding, 0.5, FENCE) == PASS:
        assert cohort.next_holder() is not None
        passes += 1
    assert passes == 2
    assert holding.phase == HELD


def test_what_is_over_or_in_doubt_is_not_passed_on() -> None:
    """From the time to stop on, and between a renewal that failed and one that is confirmed."""
    _, holding = held_by_a_cohort()
    assert holding.may_pass(holding.stop_at - 0.001)
    assert not holding.may_pass(holding.stop_at)
    holding.renewal_failed(1.0)
    assert not holding.may_pass(1.0)


def test_asking_leaves_time_to_give_back() -> None:
    """An unanswered question must not turn a release that was in time into a loss."""
    _, holding = held_by_a_cohort()
    renew = holding.begin_reservation(MOST_PASSES, holding.stop_at - 0.2)
    assert renew is not None
    assert renew.fences == MOST_PASSES
    assert renew.budget_ms <= 100


@pytest.mark.parametrize("waiting", [0, 3])
@pytest.mark.parametrize(("ttl_ms", "left"), [(6_000, 1.5), (60_000, 2.0)])
def test_near_its_end_a_lease_goes_back_without_a_question(ttl_ms: int, left: float, waiting: int) -> None:
    """The question could take the time in which it could have been released. What is reserved already may be used."""
    cohort, holding = held_by_a_cohort(waiting, ttl_ms)
    near = holding.stop_at - left
    assert cohort.decide(holding, near - 0.001, FENCE, lingers=True) == ASK
    assert cohort.decide(holding, near + 0.001, FENCE, lingers=True) == GIVE_BACK
    cohort.reserved(ops.Renewed(60_000, FENCE + 1, FENCE + MOST_PASSES, False), holding.stop_at - 1)
    decision = cohort.decide(holding, holding.stop_at - 1, FENCE, lingers=True)
    assert decision == (PASS if waiting else GIVE_BACK), "one that lingers would be due for renewal"


def test_fences_that_arrive_after_the_next_grant_are_not_used() -> None:
    """The one who asked stood still until its lease was over, and the next of the cohort has a higher fence."""
    cohort, holding = held_by_a_cohort()
    flow = prepare(cohort, holding, 1.0, lambda: FENCE)
    assert isinstance(flow.send(None), ops.Renew)
    _, following = held_by_a_cohort()
    cohort.granted(following)
    with pytest.raises(StopIteration) as end:
        flow.send(ops.TimedReply(ops.Renewed(60_000, FENCE + 1, FENCE + MOST_PASSES, False), 1.0))
    assert end.value.value is False
    assert cohort.decide(following, 1.0, FENCE) == ASK, "nothing is reserved for the new grant"
