"""Those who wait in other processes get their turn, however many wait in this one. Turns are counted, not seconds."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import pytest

import leasehold
from leasehold._core.policy import MOST_PASSES
from leasehold.stores.memory import MemoryStore
from tests.support.crew import Crew, Hand
from tests.support.lock import waiting
from tests.support.waiting import until

LOCAL, REMOTE, TTL = 64, 8, 60
ROUNDS = 3  # so many turns of each who waits elsewhere


class Place(NamedTuple):
    """One who waits or holds: of which crew it is, and how many turns there were before it came."""

    hand: Hand
    crew: int
    came: int


class Crowd:
    """A coordinator with many threads and some with one each. Whoever has had its turn comes again at once."""

    def __init__(self) -> None:
        self.store = MemoryStore()
        self.holds = [leasehold.connect(self.store) for _ in range(1 + REMOTE)]
        self.crews = [Crew(hold, ttl=TTL) for hold in self.holds]
        first = self.holds[0].lock("job", ttl=TTL).acquire()
        assert first is not None
        self.places = [Place(hand, 0, 0) for hand in self.crews[0].come(LOCAL)]
        self.places += [Place(hand, crew, 0) for crew in range(1, 1 + REMOTE) for hand in self.crews[crew].come()]
        self.turns = 0
        first.release()

    def turn(self) -> Place:
        """One turn, of whom it returns. It ends when the next one holds, and this one waits again."""
        holder = self._holder()
        assert holder.hand.let_go()
        self.places.remove(holder)
        self.turns += 1
        self._holder()
        again = Hand(self.holds[holder.crew], "job", ttl=TTL)
        self.crews[holder.crew].hands.append(again)
        self.places.append(Place(again, holder.crew, self.turns))
        until(lambda: waiting(self.store, "job") == LOCAL + REMOTE - 1, "everybody else waits")
        return holder

    def _holder(self) -> Place:
        until(lambda: any(place.hand.lease is not None for place in self.places), "somebody holds")
        return next(place for place in self.places if place.hand.lease is not None)

    def end(self) -> None:
        """All of them."""
        for hold in self.holds:
            hold.close()
        for crew in self.crews:
            crew.end()


@pytest.fixture
def crowd() -> Iterator[Crowd]:
    """Ends whatever happens."""
    made = Crowd()
    yield made
    made.end()


@pytest.mark.slow
def test_many_threads_do_not_starve_other_processes(crowd: Crowd) -> None:
    """64 threads of one process pass a lease on, and 8 other processes wait with one thread each: of these each gets
    its turn after one turn of the claim that its process lost to, 64 passes, and one turn of each other process."""
    turns = dict.fromkeys(range(1 + REMOTE), 0)
    most = 1 + MOST_PASSES + REMOTE - 1
    while min(turns[crew] for crew in range(1, 1 + REMOTE)) < ROUNDS:
        before = crowd.turns
        place = crowd.turn()
        turns[place.crew] += 1
        assert not place.crew or before - place.came <= most, turns
        assert crowd.turns <= (ROUNDS + 1) * (most + 1), turns
    assert turns[0] > ROUNDS  # its threads passed it on
