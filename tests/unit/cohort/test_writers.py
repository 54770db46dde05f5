"""Writers of one process pass the lease of a read-write lock on to each other, as locks do. Readers do not."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

import leasehold
from leasehold._core.ops import Claim, Renew
from leasehold.stores.clock import ManualClock
from leasehold.stores.memory import MemoryStore
from tests.support.crew import Loop
from tests.support.lock import Spy, elsewhere, nothing_left, waiting
from tests.support.waiting import PATIENCE, until

TTL = 60


class Stage:
    """A coordinator over a spied store, and another one that holds the lock first."""

    def __init__(self, kind: str) -> None:
        self.clock = ManualClock()
        self.spy = Spy(MemoryStore(self.clock))
        self.loop = Loop() if kind == "tasks" else None
        self.hold: Any = (leasehold.connect if self.loop is None else leasehold.aio.connect)(self.spy)
        self.other = leasehold.connect(self.spy.inner)
        self.turns: list[str] = []
        self.fences: list[int] = []
        self.ends: list[Callable[[], object]] = []

    def come(self, name: str, side: str = "write", **options: Any) -> None:
        """One more waits."""
        before = waiting(self.spy, "page")

        lock = getattr(self.hold.rwlock("page"), side)(ttl=TTL, **options)

        def holds(lease: Any) -> None:
            self.turns.append(name)
            self.fences.append(lease.fence)
            self.clock.advance(0.001)

        def turn() -> None:
            with lock as lease:
                holds(lease)
                if name.endswith("downgrades"):
                    lease.downgrade()

        async def turn_of_task() -> None:
            async with lock as lease:
                holds(lease)
                if name.endswith("downgrades"):
                    await lease.downgrade()

        if self.loop is None:
            thread = threading.Thread(target=turn, daemon=True)
            thread.start()
            self.ends.append(partial(thread.join, PATIENCE))
        else:
            self.ends.append(partial(self.loop.start(turn_of_task()).result, PATIENCE))
        until(lambda: waiting(self.spy, "page") == before + 1, "it waits")
        if side == "write":
            until(lambda: bool(self.hold._engine.cohorts), "it leads")

    def play(self, first: Any) -> None:
        """The first is released, and all get their turns."""
        self.clock.advance(0.001)
        assert first.release()
        for end in self.ends:
            end()
        assert len(self.turns) == len(self.ends)
        assert len(set(self.fences)) == len(self.fences) and nothing_left(self.spy, "page")
        assert not self.hold._engine.cohorts

    def claims(self) -> int:
        """How many were sent."""
        return len(self.spy.of(Claim))

    def claim(self, hold: Any, lock: Callable[[Any], Any]) -> Any:
        """Acquire it, of either coordinator, on a thread or in a task of its own."""
        if self.loop is None or hold is self.other:
            return lock(hold).acquire()
        return self.loop.do(lambda: lock(hold).acquire())

    def end(self) -> None:
        """All of them."""
        if self.loop is None:
            self.hold.close()
        else:
            self.loop.do(self.hold.close)
            self.loop.close()
        self.other.close()


@pytest.fixture(params=["threads", "tasks"])
def stage(request: pytest.FixtureRequest) -> Iterator[Stage]:
    """Of each kind. Ends whatever happens."""
    made = Stage(request.param)
    yield made
    made.end()


def test_writers_pass_it_on(stage: Stage) -> None:
    """Four of them: one claim, in the order of arrival, each with a fence of its own."""
    first = stage.other.rwlock("page").write(ttl=TTL).acquire()
    for name in "abcd":
        stage.come(name)
    stage.play(first)
    assert stage.turns == list("abcd") and stage.claims() == 1 and stage.fences == sorted(stage.fences)


def test_readers_claim_for_themselves(stage: Stage) -> None:
    """They hold beside each other, and each has a place in the store's queue."""
    first = stage.other.rwlock("page").write(ttl=TTL).acquire()
    for name in "abc":
        stage.come(name, "read")
    stage.play(first)
    assert sorted(stage.turns) == list("abc") and stage.claims() == 3


def test_a_reader_of_this_process_gets_its_turn(stage: Stage) -> None:
    """It waits in the store: each writer who waits here has one turn, and then it reads."""
    first = stage.other.rwlock("page").write(ttl=TTL).acquire()
    stage.come("a")
    stage.come("reader", "read")
    stage.come("b")
    stage.play(first)
    assert set(stage.turns) == {"a", "b", "reader"} and stage.claims() == 2


def test_a_writer_that_has_become_a_reader_passes_nothing_on(stage: Stage) -> None:
    """The next writer claims."""
    first = stage.other.rwlock("page").write(ttl=TTL).acquire()
    stage.come("a downgrades")
    stage.come("b")
    stage.play(first)
    assert stage.turns == ["a downgrades", "b"] and stage.claims() == 2
    assert not [op for op in stage.spy.of(Renew) if op.fences]


def test_a_lock_and_a_writer_do_not_pass_to_each_other(stage: Stage) -> None:
    """They exclude each other, but a lease of the one is none of the other."""
    first = stage.other.lock("page", ttl=TTL).acquire()
    assert first is not None
    stage.come("a")
    with elsewhere(lambda: stage.claim(stage.hold, lambda hold: hold.lock("page", ttl=TTL, wait=PATIENCE))) as locked:
        until(lambda: waiting(stage.spy, "page") == 2, "it waits")
        stage.clock.advance(0.001)
        assert first.release()
        lease = locked()
    assert lease is not None and stage.claims() == 2
    assert lease.release() if stage.loop is None else stage.loop.do(lease.release)


def test_writers_of_two_processes(stage: Stage) -> None:
    """Whoever waits elsewhere gets its turn."""
    first = stage.other.rwlock("page").write(ttl=TTL).acquire()
    stage.come("a")
    with elsewhere(lambda: stage.other.rwlock("page").write(ttl=TTL, wait=PATIENCE).acquire()) as theirs:
        until(lambda: waiting(stage.spy, "page") == 2, "it waits")
        stage.come("b")
        stage.clock.advance(0.001)
        assert first is not None and first.release()
        lease = theirs()
    assert lease is not None and lease.fence is not None
    assert lease.fence > max(stage.fences) and stage.turns == ["a", "b"] and lease.release()
