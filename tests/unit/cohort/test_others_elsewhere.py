"""Those who wait in other processes get their turn, however many wait in this one. Turns are counted, not seconds."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest

import leasehold
from leasehold._core import cohort as cohort_module
from leasehold._core.policy import MOST_PASSES
from leasehold.stores.memory import MemoryStore
from tests.support.crew import Crew, Hand, Loop
from tests.support.lock import StillClock, waiting
from tests.support.waiting import until

REMOTE, TTL = 8, 60
ROUNDS = 3  # so many turns of each who waits elsewhere
TURN = 0.0003  # seconds of a turn, so that it is turns that end what a cohort may do, and neither time nor fences


class Place(NamedTuple):
    """One who waits or holds: of which crew it is, and how many turns there were before it came."""

    hand: Hand
    crew: int
    came: int


class Crowd:
    """A coordinator with many threads, or tasks, and some with one thread each. Whoever has had its turn comes again at
    once."""

    def __init__(self, local: int, kind: str) -> None:
        self.clock = StillClock()
        self.store = MemoryStore(self.clock)
        self.everybody = local + REMOTE
        self.loop = Loop() if kind == "tasks" else None
        here: Any = (leasehold.connect if self.loop is None else leasehold.aio.connect)(self.store)
        self.holds = [here, *[leasehold.connect(self.store) for _ in range(REMOTE)]]
        self.crews = [Crew(hold, loop=self.loop if hold is here else None, ttl=TTL) for hold in self.holds]
        first = self.holds[1].lock("job", ttl=TTL).acquire()
        assert first is not None
        self.places = [Place(hand, 0, 0) for hand in self.crews[0].come(local)]
        self.places += [Place(hand, crew, 0) for crew in range(1, 1 + REMOTE) for hand in self.crews[crew].come()]
        self.turns = 0
        first.release()

    def turn(self) -> Place:
        """One turn, of whom it returns. It ends when the next one holds, and this one waits again."""
        holder = self._holder()
        self.clock.advance(TURN)
        assert holder.hand.let_go()
        self.places.remove(holder)
        self.turns += 1
        self._holder()
        again = self.crews[holder.crew].one_more()
        self.places.append(Place(again, holder.crew, self.turns))
        until(lambda: waiting(self.store, "job") == self.everybody - 1, "everybody else waits")
        return holder

    def _holder(self) -> Place:
        until(lambda: any(place.hand.lease is not None for place in self.places), "somebody holds")
        return next(place for place in self.places if place.hand.lease is not None)

    def end(self) -> None:
        """All of them."""
        if self.loop is None:
            self.holds[0].close()
        else:
            self.loop.do(self.holds[0].close)
        for hold in self.holds[1:]:
            hold.close()
        for crew in self.crews:
            crew.end()
        if self.loop is not None:
            self.loop.close()


@pytest.fixture
def crowd() -> Iterator[Callable[[int, str], Crowd]]:
    """Makes crowds with so many threads or tasks of one process. They end whatever happens."""
    made: list[Crowd] = []

    def make(local: int, kind: str) -> Crowd:
        made.append(Crowd(local, kind))
        return made[-1]

    yield make
    for one in made:
        one.end()


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["threads", "tasks"])
@pytest.mark.parametrize(
    ("bound", "count", "passed"),
    [
        (MOST_PASSES, 64, 63),  # each of the others once
        (MOST_PASSES // 8, 64, MOST_PASSES // 8),
        (MOST_PASSES // 2, 160, MOST_PASSES // 2),
        (MOST_PASSES, 288, MOST_PASSES),  # it does not grow with their number
        (MOST_PASSES * 2, 288, 287),
    ],
)
def test_many_of_one_process_do_not_starve_other_processes(
    crowd: Callable[[int, str], Crowd],
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
    bound: int,
    count: int,
    passed: int,
) -> None:
    """Threads or tasks of one process pass a lease on, and 8 other processes wait with one thread each: of these each
    gets its turn after one turn of the claim that its process lost to, the passes, and one turn of each other process.
    So nobody waits for longer than twice its fair share, which is a turn of everybody."""
    monkeypatch.setattr(cohort_module, "MOST_PASSES", bound)
    here = crowd(count, kind)
    turns = dict.fromkeys(range(1 + REMOTE), 0)
    overtaken: list[int] = []
    most = 1 + passed + REMOTE - 1
    while min(turns[crew] for crew in range(1, 1 + REMOTE)) < ROUNDS:
        before = here.turns
        place = here.turn()
        turns[place.crew] += 1
        if place.crew:
            overtaken.append(before - place.came)
        assert here.turns <= (ROUNDS + 1) * (most + 1), turns
    assert max(overtaken) == most, "they pass it on as often as they may, and not more often"
    assert most <= 2 * here.everybody and max(turns.values()) == turns[0] == ROUNDS * (1 + passed)
