"""A grant at the end of a wait behind other processes brings the fences for those who wait in the same process."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import pytest

import leasehold
from leasehold._core.ops import Claim, Renew
from leasehold._core.policy import MOST_PASSES, PASS_SECONDS
from leasehold.stores.clock import ManualClock
from leasehold.stores.memory import MemoryStore
from tests.support.crew import Crew, Hand, Loop
from tests.support.lock import Spy, look, nothing_left
from tests.support.waiting import until

TTL, HERE = 60, 4


class Street:
    """A coordinator with several who wait, and another one that holds. Those who wait here have come while others of
    theirs had their turns, so that the first of them knows that it does not claim for itself alone."""

    def __init__(self, kind: str, here: int = HERE) -> None:
        self.clock = ManualClock()
        self.spy = Spy(MemoryStore(self.clock))
        self.loop = Loop() if kind == "tasks" else None
        self.hold = (leasehold.connect if self.loop is None else leasehold.aio.connect)(self.spy)
        self.other = leasehold.connect(self.spy)
        self.crew = Crew(self.hold, loop=self.loop, ttl=TTL)
        self.others = Crew(self.other, alike=False, ttl=TTL)
        self.third = leasehold.connect(self.spy)
        self.strangers = Crew(self.third, alike=False, ttl=TTL)
        lease = self.other.lock("job", ttl=TTL).acquire()
        assert lease is not None
        first = self.crew.come(here)
        self.elsewhere = self.others.come()[0]
        lease.release()
        for hand in first[:-1]:
            self.turn(hand)
        first[-1].has_it()
        self.hands = self.crew.come(here)
        self.turn(first[-1])
        self.elsewhere.has_it()
        until(lambda: look(self.spy, "job").queue, "the first of those who came again claims")
        self.clock.advance(0.001)

    def turn(self, hand: Hand) -> int:
        """One turn, and its fence."""
        fence = int(hand.has_it().fence)
        self.clock.advance(0.001)
        assert hand.let_go()
        return fence

    def questions(self) -> int:
        """How often the store was asked for fences."""
        return len([op for op in self.spy.of(Renew) if op.fences])

    def end(self) -> None:
        """Everything. First the coordinators: nobody waits any longer then."""
        self.other.close()
        self.third.close()
        self.do(self.hold.close)
        for crew in (self.crew, self.others, self.strangers):
            crew.end()
        if self.loop is not None:
            self.loop.close()

    def do(self, step: Callable[[], Any]) -> None:
        """A step of this coordinator, on this thread or in a task."""
        if self.loop is None:
            step()
        else:
            self.loop.do(step)


@pytest.fixture(params=["threads", "tasks"])
def street(request: pytest.FixtureRequest) -> Iterator[Street]:
    """Ends whatever happens."""
    made = Street(request.param)
    yield made
    made.end()


def test_whoever_follows_has_a_fence_without_a_question(street: Street) -> None:
    """All of them have their turn, in order, with fences that grow and are the store's; then it goes back."""
    before = street.questions()
    assert street.elsewhere.let_go()
    (grant,) = look(street.spy, "job").holders
    fences = [street.turn(hand) for hand in street.hands]
    assert fences == list(range(grant.fence, grant.fence + HERE))
    assert street.questions() == before
    until(lambda: nothing_left(street.spy, "job"), "it was given back")


def test_the_next_grant_is_above_all_fences_that_were_brought(street: Street) -> None:
    """Also above those that nobody used."""
    last = [street.elsewhere.has_it().fence]
    assert street.elsewhere.let_go()
    last += [street.turn(hand) for hand in street.hands]
    street.clock.step_wall(-1)
    with street.other.lock("job", ttl=TTL) as lease:
        last.append(lease.fence)
    assert all(one < following for one, following in pairwise(last)), last


def test_who_comes_later_waits_for_those_elsewhere(street: Street) -> None:
    """Each who waits here when it is granted has one turn. Whoever comes after that has its own after the next one
    elsewhere."""
    again = street.strangers.come()[0]
    assert street.elsewhere.let_go()
    street.hands[0].has_it()
    late = street.crew.come()[0]
    for hand in street.hands:
        street.turn(hand)
    again.has_it()
    assert late.lease is None
    assert again.let_go()
    street.turn(late)


def test_it_is_passed_on_for_a_moment_only(street: Street) -> None:
    """As with fences that were asked for: those who have waited elsewhere meanwhile must not wait for longer."""
    again = street.strangers.come()[0]
    assert street.elsewhere.let_go()
    street.hands[0].has_it()
    street.clock.advance(PASS_SECONDS)
    street.turn(street.hands[0])
    again.has_it()
    assert all(hand.lease is None for hand in street.hands[1:])


def test_a_grant_that_brings_no_fences_is_like_any_other(street: Street) -> None:
    """The clock of the store was set back: there are none up to now. It goes back, and the next one claims."""
    street.clock.step_wall(-10)
    assert street.elsewhere.let_go()
    fences = [street.turn(hand) for hand in street.hands]
    assert fences == sorted(set(fences))


def test_only_who_is_followed_wants_more_than_its_own_fence(street: Street) -> None:
    """Nobody waits behind one that comes first, or alone: what the store remembers as its last fence is its own."""
    assert [op.limit for op in street.spy.of(Claim)] == [1, 1, 1, MOST_PASSES + 1]
