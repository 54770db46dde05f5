"""Interrupts and cancellation in the middle of a hand-over: at every line of it, and nothing stays held."""

from __future__ import annotations

import asyncio
import inspect
import linecache
import sys
import threading
from collections.abc import Callable, Coroutine
from types import FrameType
from typing import Any

import pytest

import leasehold
from leasehold._core import driver, flows
from leasehold._core.holding import Holding
from leasehold._runtime import sync
from leasehold._runtime.connections import ConnectionPool
from leasehold._runtime.engine import Engine
from leasehold._runtime.held_lease import HeldLease
from leasehold.primitives.base_lease import BaseLease
from leasehold.primitives.lease import Lease
from leasehold.primitives.lock import Lock
from leasehold.stores.memory import MemoryStore
from tests.support.lock import Spy, nothing_left
from tests.support.waiting import PATIENCE, until, until_async

GIVING: list[Callable[..., Any]] = [
    Lease.transfer, BaseLease._finish_transfer, BaseLease._finish_release, HeldLease.new_transfer,
    Holding.begin_transfer, Holding.end_transfer, Holding._begin_change, Holding.end_change, flows.transfer,
    sync.run, sync.drive, driver.drive, ConnectionPool.borrow, ConnectionPool.give_back, Engine.forget,
]  # fmt: skip
ADOPTING: list[Callable[..., Any]] = [
    Lock._acquire, Lock._adopt, flows.adopt, flows._adopted, sync.drive, driver.drive, ConnectionPool.borrow,
    ConnectionPool.give_back, Engine.register, BaseLease.__init__,
]  # fmt: skip


class Interrupter:
    """Raises KeyboardInterrupt where a signal is handled, the nth time: as a function begins, and at lines that call
    something."""

    def __init__(self, function: Callable[..., Any], nth: int) -> None:
        self._code = function.__code__
        self._nth = nth
        # A flow that was made and never begun is no more than a warning, and nothing can be done about it.
        self._at_entry = function is not sync.run and not inspect.iscoroutinefunction(function)
        self.fired = False

    def __call__(self, frame: FrameType, event: str, _: Any) -> Any:
        """The trace."""
        if frame.f_code is not self._code:
            return None
        if self._at_entry:
            self._count()
        return self._line

    def _line(self, frame: FrameType, event: str, _: Any) -> Any:
        line = linecache.getline(self._code.co_filename, frame.f_lineno) if event == "line" else ""
        if "(" in line and "with " not in line:  # never between the end of a body and its __exit__
            self._count()
        return self._line

    def _count(self) -> None:
        self._nth -= 1
        if self._nth == 0:
            sys.settrace(None)
            self.fired = True
            raise KeyboardInterrupt

    def run(self, step: Callable[[], Any]) -> Any:
        """The result of the step, or None when it was interrupted."""
        before = sys.gettrace()
        sys.settrace(self)
        try:
            return step()
        except KeyboardInterrupt:
            return None
        finally:
            sys.settrace(before)


def every_line(function: Callable[..., Any], trial: Callable[[Interrupter], None]) -> int:
    """One trial for each line that is reached; how many there were."""
    for nth in range(1, 80):
        interrupter = Interrupter(function, nth)
        trial(interrupter)
        if not interrupter.fired:
            return nth - 1
    raise AssertionError("it has no end")


@pytest.mark.slow
@pytest.mark.parametrize("function", GIVING, ids=lambda one: str(one.__qualname__))
def test_an_interrupted_giver(function: Callable[..., Any]) -> None:
    """Either the lease is still ours and is renewed, or it is free: never held by nobody with no ticket about."""

    def trial(interrupter: Interrupter) -> None:
        spy = Spy(MemoryStore())
        with leasehold.connect(spy) as hold:
            lease = hold.lock("job", ttl=60).acquire(wait=0)
            assert lease is not None
            ticket = interrupter.run(lease.transfer)
            if ticket is not None:
                assert hold.adopt(ticket).release() is True
            elif lease.state == "held":
                renewal = lease._held.begin_renewal(lease._held.renew_at)
                assert renewal is not None, "it will never be renewed again"
                lease.check()
                assert lease.release() is True
            else:
                until(lambda: nothing_left(spy, "job"), "it is given back long before its ttl")
            until(lambda: nothing_left(spy, "job"), "nothing is left")
            assert hold.lock("job").try_acquire() is not None, "the coordinator goes on"

    assert every_line(function, trial) > 0


@pytest.mark.slow
@pytest.mark.parametrize("function", ADOPTING, ids=lambda one: str(one.__qualname__))
def test_an_interrupted_adopter(function: Callable[..., Any]) -> None:
    """What it may have adopted is free within its ttl, and at once where a flow was hit; what it has not adopted is
    good for another with the same ticket."""
    ttl = 60 if inspect.iscoroutinefunction(function) else 0.3

    def trial(interrupter: Interrupter) -> None:
        spy = Spy(MemoryStore())
        with leasehold.connect(spy) as hold, leasehold.connect(spy.inner) as other:
            lease = other.lock("job", ttl=60).acquire(wait=0)
            assert lease is not None
            ticket = lease.transfer()
            adopted = interrupter.run(lambda: hold.adopt(ticket, ttl=ttl))
            if adopted is not None:
                assert adopted.release() is True
            if not nothing_left(spy, "job"):
                free_or_good(other, ticket)
            until(lambda: nothing_left(spy, "job"), "nothing is left")
            assert hold.lock("job").try_acquire() is not None, "the coordinator goes on"

    assert every_line(function, trial) > 0


def free_or_good(hold: leasehold.Leasehold, ticket: str) -> None:
    """Either the ticket still works, or whoever had it gives back in the background."""
    try:
        assert hold.adopt(ticket).release() is True
    except leasehold.LeaseLost:
        return


# ---------------------------------------------------------------- asyncio


class Steps:
    """Awaits of a flow, counted, so that a test can cancel at each."""

    def __init__(self, cancel_at: int) -> None:
        self.count = 0
        self.cancel_at = cancel_at
        self.fired = False
        self.task: asyncio.Task[Any] | None = None

    async def __call__(self) -> None:
        """Await; at the chosen one the task is cancelled."""
        if asyncio.current_task() is not self.task:
            return
        self.count += 1
        if self.count == self.cancel_at:
            self.fired = True
            assert self.task is not None
            self.task.cancel()
        await asyncio.sleep(0)


async def cancelled_at(nth: int, spy: Spy, step: Coroutine[Any, Any, Any]) -> tuple[bool, Any]:
    """Was it cancelled at its nth await? And its result."""
    spy.suspend = steps = Steps(nth)

    async def run() -> Any:
        return await step

    steps.task = asyncio.ensure_future(run())
    try:
        return steps.fired, await steps.task
    except asyncio.CancelledError:
        return steps.fired, None
    finally:
        spy.suspend = None


@pytest.mark.parametrize("nth", [1, 2, 3])
async def test_a_cancelled_giver(nth: int) -> None:
    """At each await of transfer(): the lease is still ours and is renewed, and nobody has its ticket."""
    spy = Spy(MemoryStore())
    async with leasehold.aio.connect(spy) as hold:
        lease = await hold.lock("job", ttl=60).acquire(wait=0)
        assert lease is not None
        fired, ticket = await cancelled_at(nth, spy, lease.transfer())
        assert fired == (nth < 3) == (ticket is None)
        if ticket is None:
            lease.check()
            assert lease._held.begin_renewal(lease._held.renew_at) is not None
            ticket = await lease.transfer()
        assert await (await hold.adopt(ticket)).release() is True
    assert nothing_left(spy, "job")


@pytest.mark.parametrize("nth", [1, 2, 3])
async def test_a_cancelled_adopter(nth: int) -> None:
    """At each await of adopt(): nothing is kept by a task that is gone."""
    spy = Spy(MemoryStore())
    async with leasehold.aio.connect(spy) as hold:
        lease = await hold.lock("job", ttl=60).acquire(wait=0)
        assert lease is not None
        fired, adopted = await cancelled_at(nth, spy, hold.adopt(await lease.transfer()))
        assert fired == (nth < 3) == (adopted is None) and not hold._engine.pending
        if adopted is None:
            await until_async(lambda: nth == 1 or nothing_left(spy, "job"), "it is given back")
        else:
            assert await adopted.release() is True


async def test_a_cancelled_body_that_was_giving_away() -> None:
    """Cancelled inside ``async with``, in the middle of transfer(): the body ends, and the lease with it."""
    spy = Spy(MemoryStore())
    async with leasehold.aio.connect(spy) as hold:

        async def body() -> str:
            async with hold.lock("job", ttl=60) as lease:
                return await lease.transfer()

        fired, ticket = await cancelled_at(4, spy, body())
        assert fired and ticket is None
        await until_async(lambda: nothing_left(spy, "job"), "nothing is left")


# ---------------------------------------------------------------- what must not pile up


def test_hand_overs_leave_no_threads() -> None:
    """Hundreds of them, some refused: no thread, no lease and no attempt is left behind."""
    store = MemoryStore()
    with leasehold.connect(store) as hold, leasehold.connect(store) as other:
        assert hold.lock("warm").try_acquire() and other.lock("warm", 2).try_acquire()
        threads = threading.active_count()
        for number in range(100):
            lease = hold.lock("job", number, ttl=30).acquire(wait=0)
            assert lease is not None
            ticket = lease.transfer()
            adopted = other.adopt(ticket)
            with pytest.raises(leasehold.LeaseLost):
                hold.adopt(ticket)
            assert adopted.release() is True
        assert threading.active_count() <= threads
        for engine in (hold._engine, other._engine):
            assert not engine.pending and len(engine.registry) <= 1
            until(lambda engine=engine: len(engine.watchdog.leases()) <= 1, "none is looked after", PATIENCE)  # type: ignore[misc]  # its own default
