"""What once went wrong beside the straight path: re-entry, threads that do not start, listeners, bodies that move."""

from __future__ import annotations

import asyncio
import gc
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest

import leasehold
from leasehold import InvalidRequest, LeaseholdError, StoreUnavailable
from leasehold._core.holding import Holding
from leasehold._core.ops import Claim, Renew, StoreOp
from leasehold._runtime.connections import ConnectionPool
from leasehold._runtime.held_lease import HeldLease
from leasehold._runtime.registry import Attempt
from leasehold.stores.memory import MemoryStore
from tests.support.lock import StillClock, async_scene, in_thread, nothing, nothing_left, sync_scene, tick
from tests.support.waiting import PATIENCE, until, until_async

REFUSED = "can't start new thread"


def refuse(thread: threading.Thread) -> None:
    """What Thread.start does when the system has no more."""
    raise RuntimeError(REFUSED)


# ---------------------------------------------------------------- re-entry beside a release


def test_a_release_cannot_come_between_the_look_and_the_entry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Re-entry is one step: a release that another thread begins meanwhile comes after it, and the body holds."""
    _, hold = sync_scene()
    with hold:
        lock = hold.rlock("job", ttl=30)
        lease = lock.acquire(wait=0)
        assert lease is not None
        require = Holding._require
        releasing = threading.Thread(target=lease.release, daemon=True)

        def slow(self: Holding, now: float) -> None:
            monkeypatch.setattr(Holding, "_require", require)
            require(self, now)
            releasing.start()
            releasing.join(0.1)  # it must wait for us

        monkeypatch.setattr(Holding, "_require", slow)
        with lock as inner:
            releasing.join(PATIENCE)
            assert inner.state == "held" and hold.lock("job").try_acquire() is None
        assert inner.state == "released" and not hold.lock("job").locked()


def test_what_was_given_back_just_before_is_not_entered(monkeypatch: pytest.MonkeyPatch) -> None:
    """A lease that another thread releases right before the re-entry is past: the body has one of its own."""
    _, hold = sync_scene()
    with hold:
        lock = hold.rlock("job", ttl=30)
        lease = lock.acquire(wait=0)
        assert lease is not None
        enter = HeldLease.enter_again

        def late(self: HeldLease, ttl_ms: int, now: float) -> bool:
            monkeypatch.setattr(HeldLease, "enter_again", enter)
            assert in_thread(lease.release)
            return enter(self, ttl_ms, now)

        monkeypatch.setattr(HeldLease, "enter_again", late)
        with lock as inner:
            assert lease.state == "released" and inner.state == "held"
            assert hold.lock("job").try_acquire() is None
        assert not hold.lock("job").locked()


# ---------------------------------------------------------------- threads that do not start


@pytest.mark.slow
@pytest.mark.parametrize("times", [1, 1000], ids=["once", "always"])
def test_a_watchdog_that_cannot_start(times: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """No thread, no lease: StoreUnavailable and nothing held. The next acquire works and is renewed."""
    spy, hold = sync_scene()
    start = threading.Thread.start
    left = [None] * times

    def unwilling(thread: threading.Thread) -> None:
        if left:
            left.pop()
            refuse(thread)
        start(thread)

    with hold:
        with monkeypatch.context() as patch:
            patch.setattr(threading.Thread, "start", unwilling)
            with pytest.raises(StoreUnavailable, match=REFUSED):
                hold.lock("first", ttl=30).acquire(wait=0)
        until(lambda: nothing_left(spy, "first"), "nothing is held")
        lease = hold.lock("second", ttl=1.5).acquire(wait=0)
        assert lease is not None
        until(lambda: spy.of(Renew), "it is renewed")
        assert lease.release()


def test_a_listener_that_raises_does_not_silence_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """A callback whose thread cannot be started is logged; whoever waits for the event still hears of the loss."""
    _, hold = sync_scene(StillClock())
    with hold:
        lease = hold.lock("job", ttl=5, max_hold=0.3).acquire(wait=0)
        assert lease is not None
        lease.on_lost(lambda error: None)
        lost = lease.lost
        with monkeypatch.context() as patch:
            patch.setattr(threading.Thread, "start", refuse)
            tick(hold, 0.5)
        assert lost.is_set() and lease.state == "lost"


@pytest.mark.parametrize("callback", [None, 7, "print"])
async def test_on_lost_takes_a_function(callback: Any) -> None:
    """What cannot be called is refused at once, in both flavours, and not when the lease is lost."""
    _, hold = sync_scene()
    with hold:
        lease = hold.lock("job").acquire(wait=0)
        assert lease is not None
        with pytest.raises(InvalidRequest, match="on_lost"):
            lease.on_lost(callback)
    _, ahold = async_scene()
    async with ahold:
        alease = await ahold.lock("job").acquire(wait=0)
        assert alease is not None
        with pytest.raises(InvalidRequest, match="on_lost"):
            alease.on_lost(callback)


# ---------------------------------------------------------------- bodies that end, or move


async def test_a_body_that_is_over_is_not_cancelled() -> None:
    """Once the ``async with`` inside an explicit lease has ended, the loss of that lease cancels nobody."""
    _, hold = async_scene(StillClock())
    async with hold:
        lock = hold.rlock("job", ttl=10, max_hold=0.3)
        lease = await lock.acquire(wait=0)
        assert lease is not None
        async with lock:
            pass
        tick(hold, 0.5)
        assert lease.state == "lost"
        for _ in range(5):
            await asyncio.sleep(0)
        task = asyncio.current_task()
        assert task is not None and task.cancelling() == 0


async def test_a_body_that_another_task_closes_is_released() -> None:
    """An async generator that is closed by another task than the one that entered its body gives its lock back."""
    spy, hold = async_scene()
    async with hold:
        lock = hold.lock("job", ttl=30)

        async def body() -> AsyncIterator[int]:
            async with lock:
                yield 1

        generator: Any = body()
        assert await anext(generator) == 1
        await asyncio.create_task(generator.aclose())
        assert nothing_left(spy, "job") and not lock._bodies


async def test_a_body_that_the_loop_closes_is_released() -> None:
    """A loop that was left early: the event loop closes the generator in a task of its own."""
    spy, hold = async_scene()
    async with hold:
        lock = hold.lock("job", ttl=30)

        async def body() -> AsyncIterator[int]:
            async with lock:
                yield 1
                yield 2

        async for _ in body():
            break
        gc.collect()
        await until_async(lambda: nothing_left(spy, "job"), "it is given back")
        assert not lock._bodies


def test_a_body_whose_thread_ended_is_told() -> None:
    """A generator's body goes on in another thread, but its lease ends with the thread that entered: it must know."""
    spy, hold = sync_scene(StillClock())
    with hold:
        lock = hold.lock("job", ttl=0.6)

        def body() -> Iterator[leasehold.Lease]:
            with lock as lease:
                yield lease

        generator: Any = body()
        lease = in_thread(lambda: next(generator))
        told: list[LeaseholdError] = []
        lease.on_lost(told.append)
        tick(hold, 1.0)
        assert lease.state == "lost" and lease.lost.is_set()
        until(lambda: told, "the callback is called")
        assert nothing_left(spy, "job")
        generator.close()


# ---------------------------------------------------------------- several loops


def test_several_loops_at_once() -> None:
    """One coordinator in loops that come and go in several threads: nothing but our own errors, if any."""
    hold = leasehold.aio.connect(MemoryStore())
    errors: list[BaseException] = []

    async def one(number: int) -> None:
        lease = await hold.lock("job", number).acquire(wait=PATIENCE)
        assert lease is not None
        await lease.release()

    def work(number: int) -> None:
        for _ in range(30):
            try:
                asyncio.run(one(number))
            except LeaseholdError:
                continue
            except BaseException as error:  # it is looked at below
                errors.append(error)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        threads = [threading.Thread(target=work, args=(number,), daemon=True) for number in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE)
    finally:
        sys.setswitchinterval(interval)
    asyncio.run(hold.close())
    assert errors == [] and not any(thread.is_alive() for thread in threads)


# ---------------------------------------------------------------- a fork in the middle of a call


class ForkingClock(StillClock):
    """Time that stands still, and a signal that is handled while it is read."""

    __slots__ = ("handlers",)

    def __init__(self) -> None:
        StillClock.__init__(self)
        self.handlers: list[Callable[[], None]] = []

    def now(self) -> float:
        """A handler runs once, when there is one."""
        while self.handlers:
            self.handlers.pop()()
        return StillClock.now(self)


def test_a_fork_after_the_reply_leaves_the_grant_to_the_parent() -> None:
    """A signal handler may fork when the reply has arrived already, and then only the parent may go on with it."""
    clock = ForkingClock()
    spy, hold = sync_scene(clock)

    def fork_soon(op: StoreOp) -> None:
        if isinstance(op, Claim):
            clock.handlers.append(hold._engine.forked)  # what a child does first

    with hold:
        spy.after = fork_soon
        with pytest.raises(StoreUnavailable, match="forked"):
            hold.lock("job", ttl=30).acquire(wait=0)
        spy.after = nothing
        assert not hold.lock("job").owned()


# ---------------------------------------------------------------- an interrupt at the very end of an acquire


@pytest.mark.parametrize("several", [False, True])
@pytest.mark.parametrize("place", [Attempt, ConnectionPool])
def test_an_interrupt_at_the_end_of_a_refused_acquire_leaves_nothing_pending(
    place: type, several: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An attempt that stayed pending would be kept, and withdrawn, until the coordinator is closed."""
    _, hold = sync_scene()
    with hold:
        busy = hold.lock("job", ttl=30).acquire(wait=0)
        wanted = hold.all(hold.lock("job"), hold.lock("other")) if several else hold.lock("job")

        def interrupt(*_: object) -> None:
            raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr(place, "forget_pushes" if place is Attempt else "give_back", interrupt)
            with pytest.raises(KeyboardInterrupt):
                wanted.try_acquire()
        assert not hold._engine.pending
        assert busy is not None and busy.release()
