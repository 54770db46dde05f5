"""What a majority says to a renewal, a release, a withdrawal, and to one that looks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from leasehold._core import ops
from leasehold.errors import LeaseholdError, OutcomeUnknown, StoreUnavailable, Unsupported
from leasehold.stores.redis.redlock.answers import Round
from tests.unit.redlock.conftest import NOW_US, Play

TIME = [str(NOW_US // 1_000_000).encode(), b"0"]
LATE = [str(NOW_US // 1_000_000 + 31).encode(), b"0"]
YES, NO = [5, 30_000], [7, b"deleted"]
RENEW = ops.Renew("job", "web-2:8:secret.1", 9, 30_000)
RELEASE = ops.Release("job", "web-2:8:secret.1", 9)
WITHDRAW = ops.Withdraw("job", "web-2:8:secret.1")
SLOW = OutcomeUnknown("it took too long")
DOWN = StoreUnavailable("it cannot be reached")


@pytest.mark.parametrize(
    ("replies", "outcome"),
    [
        ([[YES, TIME], [YES, TIME], SLOW], ops.Renewed(30_000)),
        ([[YES, TIME], [NO, TIME], [YES, TIME]], ops.Renewed(30_000)),
        ([[NO, TIME], [NO, TIME], [YES, TIME]], ops.NotYours("deleted")),
        ([[YES, TIME], [NO, TIME], SLOW], OutcomeUnknown),
        ([[YES, TIME], DOWN, DOWN], OutcomeUnknown),
        ([DOWN, DOWN, DOWN], StoreUnavailable),
        ([[YES, TIME], [YES, LATE], DOWN], OutcomeUnknown),
        ([[YES, TIME], [YES, LATE], [YES, TIME]], ops.Renewed(30_000)),
    ],
)
def test_a_majority_renews(play: Play, replies: list[Any], outcome: Any) -> None:
    """A node whose clock is off does not count; a lease that no majority has is lost; anything else is in doubt."""
    if isinstance(outcome, type):
        with pytest.raises(outcome):
            play.run(RENEW, replies)
    else:
        assert play.run(RENEW, replies) == outcome


def test_a_renewal_may_take_a_tenth_of_the_ttl(play: Play) -> None:
    """And never more than its budget."""
    play.run(RENEW, [[YES, TIME], [YES, TIME], DOWN])
    play.run(RENEW._replace(budget_ms=50), [[YES, TIME], [YES, TIME], DOWN])
    assert [one.seconds for one in play.requests if isinstance(one, Round)] == [3.0, 0.05]


def test_a_renewal_mends_the_fence_of_a_node(play: Play) -> None:
    """One that gave it another fence than the majority refuses to renew it. One that has forgotten it gets nothing, and
    nothing is sent for a lease that is lost."""
    other = [[7, b"taken"], TIME]
    assert play.run(RENEW, [[YES, TIME], other, [YES, TIME]], [None, [YES], None]) == ops.Renewed(30_000)
    with pytest.raises(OutcomeUnknown):  # the next one finds it
        play.run(RENEW, [[YES, TIME], other, SLOW], [None, [YES], None])
    assert play.sent() == [[True, True, True], [False, True, False]] * 2
    play.run(RENEW, [[YES, TIME], [NO, TIME], [YES, TIME]])
    play.run(RENEW, [[YES, TIME], other, other])
    assert play.sent()[4:] == [[True, True, True]] * 2


def test_a_release_withdraws_what_had_another_fence(play: Play) -> None:
    """Also when that is known late, and where nobody knows whether the release has arrived."""
    assert play.run(RELEASE, [[[6, 1]], [[6, 1]], SLOW]) == ops.Released(True)
    assert [len(followed(play, reply)) for reply in ([6, 1], [7, b"taken"])] == [0, 1]
    assert followed(play, SLOW) == followed(play, DOWN) == [WITHDRAW]


def followed(play: Play, outcome: Any) -> Sequence[ops.Withdraw]:
    """What is withdrawn on a node where the last round had this outcome."""
    request = play.requests[-1]
    assert isinstance(request, Round) and request.follow is not None
    return request.follow(2, outcome if isinstance(outcome, LeaseholdError) else [outcome])


def test_a_release_that_no_majority_knows_is_a_loss(play: Play) -> None:
    """Two of three have forgotten it."""
    assert play.run(RELEASE, [[[6, 1]], [NO], [NO]]) == ops.NotYours("deleted")


def test_a_withdrawal_is_over_when_every_node_has_it(play: Play) -> None:
    """A single grant that stays would keep others out."""
    assert play.run(WITHDRAW, [[[8, b"held"]], [[8, b"nothing"]], [[8, b"nothing"]]]) == ops.Withdrawn("held")
    with pytest.raises(OutcomeUnknown):
        play.run(WITHDRAW, [[[8, b"held"]], [[8, b"nothing"]], DOWN])


def view(owner: str | None, fence: int = 9) -> list[Any]:
    """What a node shows."""
    held = [] if owner is None else [
        [owner.encode(), b"%d" % fence, b"30000", b"1800000030000", b"0", b"0", b"0", b"0", b"mutex", b"0", b"0", b"-",
         b"-", b"0", b"0", b""]
    ]  # fmt: skip
    return [[9, 1_800_000_000_000, 0, fence, held, [], [], [], 0, []]]


def test_a_holder_is_who_has_a_majority(play: Play) -> None:
    """With the fence that most nodes know, or the highest; an owner on one node is none."""
    assert play.run(ops.Inspect("job"), [view("a:1:x", 7), view("a:1:x", 9), DOWN]).holders[0].fence == 9
    late = [view("a:1:x", 9), view("a:1:x", 7), view("a:1:x", 7)]
    assert play.run(ops.Inspect("job"), late).holders[0].fence == 7
    assert play.run(ops.Inspect("job"), [view("a:1:x"), view(None), view("b:1:x")]).holders == ()
    with pytest.raises(LeaseholdError, match="2 of 3 Redlock nodes"):
        play.run(ops.Inspect("job"), [view("a:1:x"), DOWN, SLOW])


def test_a_listing_is_read_from_all_nodes(play: Play) -> None:
    """Each goes on from its own cursor until it has been read. What this login may not read on one is told."""
    first = play.run(ops.Scan("*"), [[[13, b"7", [b"a"], 0]], [[13, b"0", [b"a", b"b"], 1]], DOWN])
    assert (first.items, first.cursor, first.withheld) == (("a", "b"), "7,,", True)
    last = play.run(ops.Scan("*", first.cursor), [[[13, b"0", [b"c"], 0]], None, None])
    assert (last.items, last.cursor, last.withheld) == (("c",), "", False)


@pytest.mark.parametrize(
    "op",
    [
        ops.Resize("job", 3),
        ops.Revoke("job", "a:1:x", 9),
        ops.Adopt("job", 9, "ticket", "b:1:x", 30_000),
        ops.Evict("job", "a:1:x", 9, "request"),
    ],
)
def test_what_no_majority_can_decide_is_sent_to_no_node(play: Play, op: Any) -> None:
    """Unsupported, and nothing was requested."""
    with pytest.raises(Unsupported):
        play.run(op)
    assert not play.requests
