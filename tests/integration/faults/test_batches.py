"""Faults in the middle of ``acquire_many`` and ``release_many``: nothing stays locked, whatever they hit."""

from __future__ import annotations

import asyncio
import gc
import os
import sys
from collections.abc import Callable, Coroutine, Iterator, Sequence, Set
from contextlib import AbstractContextManager, closing, nullcontext
from typing import Any

import pytest

import leasehold
from leasehold import LeaseholdError
from tests.integration.faults.test_cancellations import MOST, WAYS
from tests.support.faults.aftermath import SOON, left_behind
from tests.support.faults.places import Line, Places
from tests.support.faults.suspensions import Suspensions
from tests.support.faults.user import INJECTED, OFTEN, TTL, ThreadUser
from tests.support.waiting import until

pytestmark = [  # an interrupt came between the making of something and its use
    pytest.mark.filterwarnings("ignore:coroutine .* was never awaited"),
    pytest.mark.filterwarnings("ignore:unclosed"),
]
TWO = ("a", "b")
MISSES = 5  # uses in a row that had fewer places: there are no more
SOAK = pytest.param("sqlite", marks=pytest.mark.soak)  # the ledger in Python has more than a thousand places
OUTSIDE = "LeaseBatch.__enter__"
WARM = 60  # uses after which the path is what it stays
MOST_INTERRUPTS = 20  # of one name: a claim that was interrupted is remembered for a while, and makes the path longer


class ThreadBatches:
    """The calling thread, which takes two locks in one batch."""

    def __init__(self, url: str) -> None:
        self.hold: Any = leasehold.connect(url)
        self.names = TWO
        self.batches: list[Any] = []  # the last one, if it was returned

    def use(self, around: AbstractContextManager[Any] | None = None) -> type[BaseException] | None:
        """What ``with hold.acquire_many(...)`` raised."""
        self.batches.clear()
        try:
            with around or nullcontext():
                batch = self.hold.acquire_many([self.hold.lock(one, ttl=TTL) for one in self.names])
                self.batches.append(batch)
                with batch:
                    del batch
        except (LeaseholdError, *INJECTED) as error:
            return type(error)
        return None

    def close(self) -> None:
        """Close the coordinator."""
        self.hold.close()


class LoopBatches:
    """The same as a task."""

    def __init__(self, url: str) -> None:
        self.hold: Any = leasehold.aio.connect(url)
        self.loop = asyncio.new_event_loop()

    def use(
        self, wrap: Callable[[Coroutine[Any, Any, None]], Coroutine[Any, Any, None]] | None = None
    ) -> type[BaseException] | None:
        """What ``async with await hold.acquire_many(...)`` raised."""
        entering = self._enter()
        task = self.loop.create_task(entering if wrap is None else wrap(entering))
        try:
            self.loop.run_until_complete(task)
        except (LeaseholdError, *INJECTED) as error:
            return type(error)
        finally:
            self.loop.run_until_complete(asyncio.sleep(0))  # the loop drops the task, too
        return None

    async def _enter(self) -> None:
        async with await self.hold.acquire_many([self.hold.lock(one, ttl=TTL) for one in TWO]):
            await asyncio.sleep(0)

    def close(self) -> None:
        """Close the coordinator and its loop."""
        self.loop.run_until_complete(self.hold.close())
        self.loop.run_until_complete(self.loop.shutdown_asyncgens())
        self.loop.run_until_complete(self.loop.shutdown_default_executor())
        self.loop.close()


def expect_free(hold: Any, other: leasehold.Leasehold, where: str, names: Sequence[str] = TWO) -> None:
    """Another user gets both, and nothing is left behind."""
    taken: list[leasehold.Lease] = []
    for name in names:
        lock = other.lock(name, ttl=TTL)
        lease = lock.acquire(wait=0)
        if lease is None:
            gc.collect()  # frames may stand in a cycle with their exception
            lease = lock.acquire(wait=SOON)
        assert lease is not None, f"{name} stays locked after a fault in {where}"
        taken.append(lease)
    try:
        until(lambda: not left_behind(hold) or (gc.collect() and False), "nothing is left behind", SOON)
    except AssertionError as error:
        error.add_note(f"{left_behind(hold)} after a fault in {where}")
        raise
    assert other.release_many(taken) == [True] * 2


@pytest.fixture
def callbacks(monkeypatch: pytest.MonkeyPatch) -> None:
    """An interrupt in a weak reference's callback or in ``__del__`` only ends that: Python reports it and goes on. A
    report that is kept would keep what it was about."""
    monkeypatch.setattr(sys, "unraisablehook", lambda _: None)


def interrupt_everywhere(user: ThreadBatches, other: leasehold.Leasehold, known: Set[Line] = frozenset()) -> int:
    """Use a batch again and again, and interrupt each use one place later; how many places there are."""
    missed = found = 0
    for nth in range(1, 5000):
        if nth % MOST_INTERRUPTS == 0:
            user.names = (f"a{nth}", f"b{nth}")
            for _ in range(OFTEN):
                user.use()
        places = Places(nth, known=known)
        raised = user.use(places)
        if not places.where:  # it was over before: the paths of two uses are not always equally long
            missed += 1
            if missed == MISSES:
                return found
            continue
        missed, found = 0, nth
        assert raised is None or issubclass(raised, (LeaseholdError, *INJECTED))
        if places.where.startswith(OUTSIDE):  # the program has the batch, and has not entered it
            assert user.hold.release_many(user.batches[0]) == [True] * 2
        user.batches.clear()
        expect_free(user.hold, other, places.where, user.names)
    raise AssertionError("it never ends")


@pytest.mark.timeout(900)
@pytest.mark.usefixtures("callbacks")
@pytest.mark.parametrize("url", ["redis", SOAK], indirect=True)
def test_an_interrupt_at_every_place_of_its_own(url: str, other: leasehold.Leasehold) -> None:
    """Of a batch that is acquired, entered and released, on the lines that a single lock does not go through."""
    with closing(ThreadUser(url)) as single, Places() as places:
        for number in range(3):
            single.use(number)
    with closing(ThreadBatches(url)) as user:
        for _ in range(WARM):
            assert user.use() is None
        assert interrupt_everywhere(user, other, places.lines) > 100
        assert user.use() is None


@pytest.mark.soak
@pytest.mark.timeout(900)
@pytest.mark.usefixtures("callbacks")
@pytest.mark.parametrize("url", ["redis", "sqlite"], indirect=True)
def test_an_interrupt_at_every_place(url: str, other: leasehold.Leasehold) -> None:
    """The same on all lines."""
    with closing(ThreadBatches(url)) as user:
        for _ in range(WARM):
            assert user.use() is None
        assert interrupt_everywhere(user, other) > 300
        assert user.use() is None


@pytest.mark.parametrize("url", ["redis", "sqlite", "postgresql"], indirect=True)
@pytest.mark.parametrize("way", WAYS)
def test_a_cancellation_at_every_await(url: str, other: leasehold.Leasehold, way: str) -> None:
    """At the claims, in the body and at the releases; none is swallowed."""
    with closing(LoopBatches(url)) as user:
        assert user.use() is None
        for nth in range(1, MOST):
            suspensions = Suspensions(nth, **WAYS[way])
            raised = user.use(suspensions)
            if not suspensions.cancelled:
                break
            assert raised is asyncio.CancelledError, f"at suspension {nth}"
            expect_free(user.hold, other, f"suspension {nth}")
        assert 2 < nth < MOST and raised is None


@pytest.fixture
def parent(url: str) -> Iterator[leasehold.Leasehold]:
    """A coordinator that forks."""
    with leasehold.connect(url) as hold:
        yield hold


@pytest.mark.parametrize("url", ["redis", "sqlite"], indirect=True)
def test_a_fork_inside_the_body(url: str, parent: leasehold.Leasehold, other: leasehold.Leasehold) -> None:
    """The child's copies are lost, its end gives nothing back, and it takes batches of its own; the parent goes on."""
    with parent.acquire_many([parent.lock(one, ttl=TTL) for one in TWO]) as batch:
        child = os.fork()
        if child == 0:
            status = 1
            try:
                lost = [lease.state for lease in batch.acquired] == ["lost"] * 2
                refused = parent.acquire_many([parent.lock(one) for one in (*TWO, "c")])
                own = [lease.resource for lease in refused.acquired]
                status = 0 if lost and own == ["c"] and parent.release_many(batch) == [False] * 2 else 2
            finally:
                os._exit(status)
        assert os.waitpid(child, 0)[1] == 0
        assert batch.complete and all(lease.state == "held" for lease in batch.acquired)
        assert [other.inspect(one).holder is not None for one in TWO] == [True] * 2
    expect_free(parent, other, "a fork")
