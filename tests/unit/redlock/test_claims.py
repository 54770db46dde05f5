"""The rule of a claim: which grants count, which fence they give, and what is left behind."""

from __future__ import annotations

from typing import Any

import pytest

from leasehold._core import ops
from leasehold.errors import InvalidRequest, OutcomeUnknown, StoreUnavailable, Unsupported
from leasehold.stores.redis.redlock.answers import Leave, Round
from leasehold.stores.redis.redlock.quorum import Quorum, check_nodes
from leasehold.stores.redis.redlock.store import RedlockStore
from tests.support.tables import each
from tests.unit.redlock.conftest import BUSY, CLAIM, NOW_US, Play, answer, granted, vote

RENEWED = [[5, 30_000]]
NOT_YOURS = [[7, b"taken"]]
SLOW = OutcomeUnknown("it took too long")
DOWN = StoreUnavailable("it cannot be reached")


def test_one_round_is_enough_when_a_majority_gives_the_same_fence(play: Play) -> None:
    """They are all asked for it: a little ahead of their clocks, and never below what this process has seen."""
    for place in range(3):
        play.quorum.learn_clock(place, NOW_US, 9.999, 10.0)
    reply = play.run(CLAIM, [vote(granted(9)), SLOW, vote(granted(9))])
    assert reply == ops.Granted(9, 30_000)
    assert play.sent() == [[True, True, True]]
    assert 0 < floor_of(play) - NOW_US < 50_000
    play.run(CLAIM._replace(floor=NOW_US + 10**12), [vote(granted(9)), vote(granted(9)), SLOW])
    assert floor_of(play) == NOW_US + 10**12


def test_a_clock_that_is_off_does_not_raise_the_fence(play: Play) -> None:
    """Nor does one that was read long ago: fences would run away from the time of the others."""
    for place, off_us in enumerate([0, 0, 900_000]):
        play.quorum.learn_clock(place, NOW_US + off_us, 9.999, 10.0)
    assert 0 < play.quorum.next_fence(10.0) - NOW_US < 50_000
    assert play.quorum.next_fence(100.0) == 0


def floor_of(play: Play) -> int:
    """That of the last claim that was sent."""
    (request,) = [one for one in play.requests[-1:] if isinstance(one, Round)]
    assert request.batches[0] is not None
    return int(request.batches[0].commands[0][11])


def test_the_fence_is_the_highest_of_the_majority(play: Play) -> None:
    """It is written back to the nodes that gave a lower one, and an acquire takes two rounds."""
    reply = play.run(
        CLAIM,
        [vote(granted(5)), vote(granted(9)), vote(granted(7))],
        [RENEWED, None, RENEWED],
    )
    assert reply == ops.Granted(9, 30_000)
    assert play.sent() == [[True, True, True], [True, False, True]]


def test_a_lower_fence_beside_a_majority_is_raised_without_waiting(play: Play) -> None:
    """The lease is granted by then; a node that has not answered yet most likely gives the same fence."""
    reply = play.run(CLAIM, [vote(granted(9)), vote(granted(5)), vote(granted(9))], [None, SLOW, None])
    assert reply == ops.Granted(9, 30_000)
    assert play.sent() == [[True, True, True], [False, True, False]]
    assert [one.seconds for one in play.requests if isinstance(one, Round)] == [3.0, 0]


def test_a_fence_that_no_majority_confirms_is_given_up(play: Play) -> None:
    """The lease would be real, and its fence not safe: it is withdrawn everywhere."""
    with pytest.raises(StoreUnavailable, match="did not confirm its fence"):
        play.run(CLAIM, [vote(granted(5)), vote(granted(9)), DOWN], [NOT_YOURS, None, None])
    assert play.left() == [True, True, False]


def test_one_grant_of_three_is_withdrawn(play: Play) -> None:
    """Two nodes are held by another: that is a refusal, and the third is free again."""
    reply = play.run(CLAIM, [vote(BUSY), vote(granted(5)), vote(BUSY)])
    assert reply == ops.Busy("web-1:7", 12_000, 0, 25)
    assert play.left() == [False, True, False]


def test_an_unanswered_claim_is_withdrawn_with_a_tombstone(play: Play) -> None:
    """It may arrive after its withdrawal, over a connection that broke; a node that was not reached gets nothing."""
    with pytest.raises(StoreUnavailable, match=r"3 of 3 Redlock nodes do not count.* too few clocks"):
        play.run(CLAIM, [SLOW, vote(granted(5)), DOWN])
    (leave,) = [one for one in play.requests if isinstance(one, Leave)]
    late, given, unreached = leave.withdrawals
    assert late is not None and given is not None and unreached is None
    assert late.forget_ms == 60_000 and given.forget_ms == 0


def test_a_node_that_was_flushed_does_not_count(play: Play) -> None:
    """Its marker is younger than the longest ttl: it may have forgotten the lease of another."""
    young = NOW_US - 100_000_000
    with pytest.raises(StoreUnavailable, match=r"node2:6379: it was flushed or set up 100 s ago; .* in 200\.0 s"):
        play.run(CLAIM, [vote(granted(5)), DOWN, vote(granted(7), since_us=young)])


def test_a_node_that_was_restarted_does_not_count(play: Play) -> None:
    """However old its marker is: it may have lost its last writes."""
    play.quorum.introduce(2, "another run", 21, 10.0)
    with pytest.raises(StoreUnavailable, match="node2:6379: it was started 20 s ago"):
        play.run(CLAIM, [vote(granted(5)), DOWN, vote(granted(7))])


def test_the_longest_ttl_of_any_client_decides(play: Play) -> None:
    """Another client may hold a lease of an hour: a node that is up for 100 s may have forgotten it."""
    young = NOW_US - 400_000_000
    first = vote(granted(5), longest_ms=3_500_000)
    with pytest.raises(StoreUnavailable, match="node2"):
        play.run(CLAIM, [first, DOWN, vote(granted(7), since_us=young)])


@pytest.mark.parametrize("off_us", [600_000, -600_000, 31_000_000])
def test_a_node_whose_clock_is_off_does_not_count(play: Play, off_us: int) -> None:
    """More than half a second off the median."""
    play.quorum.learn_clock(2, NOW_US, 10.0, 10.001)
    with pytest.raises(StoreUnavailable, match="node1:6379: its clock is"):
        play.run(CLAIM, [vote(granted(5)), vote(granted(9), off_us=off_us), DOWN])


def test_a_clock_that_is_a_little_off_counts(play: Play) -> None:
    """Less than half a second."""
    reply = play.run(CLAIM, [vote(granted(5)), vote(granted(9), off_us=400_000), DOWN], [RENEWED, None, None])
    assert reply == ops.Granted(9, 30_000)


def test_two_clocks_that_differ_are_both_in_doubt(play: Play) -> None:
    """Without a third nobody knows which of them is right."""
    with pytest.raises(StoreUnavailable) as caught:
        play.run(CLAIM, [vote(granted(5)), vote(granted(9), off_us=31_000_000), DOWN])
    assert str(caught.value).count("its clock is") == 2


def test_a_majority_is_enough_to_decide(play: Play) -> None:
    """Neither a grant nor a refusal waits for the last node, except in the first call of all."""

    def decided(*outcomes: Any) -> bool:
        request: Any = next(play.rounds.execute(CLAIM))
        return answer(request, outcomes)

    assert not decided(vote(granted(5)), None, None)
    assert decided(vote(granted(5)), None, vote(granted(6)))
    assert decided(vote(BUSY), vote(BUSY), None)
    assert not decided(vote(BUSY), vote(granted(5)), None)
    assert not decided(DOWN, vote(granted(5)), None)
    play.quorum.met = False
    assert not decided(vote(granted(5)), vote(granted(6)), None)


def test_a_wrong_node_is_refused_in_the_first_call(play: Play) -> None:
    """Whatever the others say. One that becomes wrong later only does not count."""
    wrong = Unsupported("it is a replica")
    assert play.run(CLAIM, [vote(granted(5)), vote(granted(6)), wrong], [RENEWED, None, None]).fence == 6
    play.quorum.met = False
    with pytest.raises(Unsupported, match="a replica"):
        play.run(CLAIM, [vote(granted(5)), vote(granted(6)), wrong])


def test_the_same_server_twice_is_refused() -> None:
    """Two addresses may lead to one server: then its vote would count twice."""
    quorum = Quorum(["a:1", "b:1", "c:1"], 300_000)
    quorum.introduce(0, "one", 5, 0.0)
    quorum.introduce(1, "two", 5, 0.0)
    with pytest.raises(Unsupported, match="c:1 and a:1 are the same server"):
        quorum.introduce(2, "one", 5, 0.0)


@pytest.mark.parametrize(
    ("ttl_ms", "budget_ms", "seconds"), [(30_000, 5000, 3.0), (500, 5000, 0.05), (60_000, 800, 0.8)]
)
def test_a_node_is_waited_for_a_tenth_of_the_ttl(play: Play, ttl_ms: int, budget_ms: int, seconds: float) -> None:
    """And never longer than what remains to the caller."""
    play.run(CLAIM._replace(ttl_ms=ttl_ms, budget_ms=budget_ms), [vote(BUSY)] * 3)
    (first,) = [one for one in play.requests if isinstance(one, Round)]
    assert first.seconds == seconds


def test_a_refused_claim_comes_back_by_chance() -> None:
    """After 10 to 60 ms, another time for each try and each client: who had split the nodes would split them again."""
    one, two = RedlockStore("redlock://a,b,c"), RedlockStore("redlock://a,b,c")
    pauses = [[store.rounds._pause() for _ in range(200)] for store in (one, two)]
    assert pauses[0] != pauses[1]
    for drawn in pauses:
        assert min(drawn) >= 10 and max(drawn) <= 60
        assert len(set(drawn)) > 20 and max(drawn) - min(drawn) > 30


def test_a_refusal_says_when_to_try_again(play: Play) -> None:
    """After what was drawn by chance, not when the holder's time is over: a release wakes nobody."""
    reply = play.run(CLAIM, [vote(BUSY)] * 3)
    assert isinstance(reply, ops.Busy) and reply.again_ms == play.rounds._pause()


@each("count", [0, 1, 2, 4, 6, 8, 9, 11])
def test_an_even_number_of_nodes_is_refused(count: int) -> None:
    """And fewer than three, and more than seven."""
    with pytest.raises(InvalidRequest, match=f"not {count}:"):
        check_nodes([f"node{place}:6379" for place in range(count)])


def test_a_ttl_above_max_ttl_is_refused(play: Play) -> None:
    """Before anything is sent: a node that lost its memory would count again before such a lease is over."""
    assert isinstance(play.run(CLAIM._replace(ttl_ms=300_001)), ops.Rejected)
    assert not play.requests
