"""What lingers in a process, and the batches of that process: a batch takes it without the store, and gives it back."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import leasehold
from leasehold import OutcomeUnknown
from leasehold._core.ops import Claim, Release, StoreOp
from leasehold.observe.events import Acquired, Contended, Released
from leasehold.stores.memory import MemoryStore
from tests.support.crew import Crew, Loop
from tests.support.lock import Spy, StillClock, nothing_left, only, reply_lost
from tests.support.parties import FLAVOURS, Party
from tests.support.scene import fails
from tests.support.waiting import PATIENCE, until

TTL = 60
LINGER = 5


class Stage:
    """Somebody over a spied store whose clock stands still."""

    def __init__(self, flavour: str, **options: Any) -> None:
        self.clock = StillClock()
        self.spy = Spy(MemoryStore(self.clock))
        self.party: Party = FLAVOURS[flavour](self.spy, **options)
        self.engine = self.party.hold._engine

    def lock(self, name: str, **options: Any) -> Any:
        """One of the locks of all these tests."""
        return self.party.hold.lock(name, **{"ttl": TTL, "linger": LINGER, "wait": PATIENCE, **options})

    def keep(self, *names: str) -> int:
        """These linger from here on. Returns the last fence."""
        fence = 0
        for name in names:
            lease = self.party.do(lambda _: self.lock(name).acquire())  # noqa: B023 # called here
            until(self.engine.watchdog.hears, "it can be told")
            self.clock.advance(0.001)  # fences are reserved up to the clock
            fence = lease.fence
            assert self.release(lease)
        assert len(self.engine.watchdog.lingering) == len(names)
        self.spy.ops.clear()
        return fence

    def release(self, lease: Any) -> bool:
        """By itself, so that it may linger."""
        ours: bool = self.party.do(lambda _: lease.release())
        return ours

    def take(self, *names: str, **options: Any) -> Any:
        """One try at each."""
        return self.party.do(lambda hold: hold.acquire_many([self.lock(name, **options) for name in names]))

    def nothing_kept(self) -> bool:
        """No cohort is left here, and nothing is held or awaited in the store."""
        left = self.engine.cohorts or self.engine.watchdog.lingering or self.engine.watchdog.passing
        return not left and nothing_left(self.spy, "a") and nothing_left(self.spy, "b")


@pytest.fixture(params=FLAVOURS)
def stage(request: pytest.FixtureRequest) -> Iterator[Stage]:
    """In each flavour. Ends whatever happens."""
    made = Stage(request.param)
    yield made
    made.spy.heal()
    made.party.close()


def test_a_batch_takes_what_lingers(stage: Stage) -> None:
    """As a single try does: it is not held by anybody, and costs no claim."""
    before = stage.keep("a")
    batch = stage.take("b", "a")
    assert batch.complete and [lease.resource for lease in batch] == ["b", "a"] and batch[1].fence > before
    assert [claim.resource for claim in stage.spy.of(Claim)] == ["b"] and not stage.engine.watchdog.lingering
    assert stage.party.do(lambda _: stage.lock("a").owned()) and batch[1].state == "held"
    assert stage.party.do(lambda hold: hold.release_many(batch)) == [True, True]
    assert stage.nothing_kept()


def test_a_batch_of_nothing_else_asks_nobody(stage: Stage) -> None:
    """Both are at hand."""
    stage.keep("a", "b")
    batch = stage.take("a", "b")
    assert batch.complete and not stage.spy.ops and not stage.spy.batches


def test_its_lock_releases_it(stage: Stage) -> None:
    """As after lock.acquire(). Then it lingers again, without the store."""
    stage.keep("a")
    lock = stage.lock("a")
    batch = stage.party.do(lambda hold: hold.acquire_many([lock]))
    assert stage.party.do(lambda _: lock.release()) is True and batch[0].state == "released"
    assert not stage.spy.ops and len(stage.engine.watchdog.lingering) == 1


def test_a_lease_of_a_batch_lingers_when_it_is_released_by_itself(stage: Stage) -> None:
    """It was granted like any other."""
    stage.keep("b")  # so that the store can tell by now
    batch = stage.take("a")
    stage.clock.advance(0.001)
    assert stage.release(batch[0]) and len(stage.engine.watchdog.lingering) == 2 and not stage.spy.of(Release)


def test_a_lock_that_is_not_equal_does_not_take_it(stage: Stage) -> None:
    """Its claim is refused, and brings back what lingers, as that of a single try."""
    stage.keep("a")
    batch = stage.take("a", ttl=TTL / 2)
    assert list(batch.refused) == ["a"]
    until(stage.nothing_kept, "it was given back")
    assert stage.take("a", ttl=TTL / 2).complete


def test_an_interrupt_gives_it_back(stage: Stage) -> None:
    """With all that the batch has got by then."""
    stage.keep("a")

    def strike(op: StoreOp) -> None:
        raise KeyboardInterrupt

    stage.spy.after = only(Claim, strike)
    with pytest.raises(KeyboardInterrupt):
        stage.take("a", "b")
    stage.spy.heal()
    until(stage.nothing_kept, "both are free")


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_observers_see_it(flavour: str) -> None:
    """Acquired and Released, as for each other; nobody was in the way."""
    seen: list[Any] = []
    stage = Stage(flavour, observers=[seen.append])
    stage.keep("a")
    seen.clear()
    batch = stage.take("a", "b")
    assert stage.party.do(lambda _: batch.release()) is True
    assert not [one for one in seen if isinstance(one, Contended)]
    acquired: list[Any] = [one for one in seen if isinstance(one, Acquired)]
    released: list[Any] = [one for one in seen if isinstance(one, Released)]
    assert (
        {one.lease.fence for one in acquired}
        == {one.lease.fence for one in released}
        == {lease._held.fence for lease in batch}
    )
    assert len({one.lease.number for one in acquired}) == 2
    stage.party.close()


# ---------------------------------------------------------------- releases


def test_a_release_that_is_not_confirmed_leaves_no_cohort(stage: Stage) -> None:
    """Nobody of this process waits for a lease that is being given back."""
    stage.keep("a")
    batch = stage.take("a")
    stage.spy.after = only(Release, reply_lost)
    fails(OutcomeUnknown, stage.party.start(lambda hold: hold.release_many(batch)))
    assert not stage.engine.cohorts
    stage.spy.heal()


def test_those_who_wait_here_come_next(stage: Stage) -> None:
    """The lease goes back to the store with its batch, and the first of them claims."""
    stage.keep("a")
    batch = stage.take("a")
    loop = Loop() if isinstance(stage.party.hold, leasehold.AsyncLeasehold) else None
    crew = Crew(stage.party.hold, "a", loop=loop, ttl=TTL)
    hands = crew.come(2)
    assert stage.party.do(lambda hold: hold.release_many(batch)) == [True]
    for hand in hands:
        assert hand.has_it().fence > batch[0].fence and hand.let_go() is True
    until(stage.nothing_kept, "nothing is left")
    crew.end()
    if loop is not None:
        loop.close()
