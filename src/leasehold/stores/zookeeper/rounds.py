"""Work that is done in rounds: each sends some requests together, and waits for all of their replies.

Work is a generator that yields calls. A thread and an event loop drive it in the same way, and differ only in how they
wait: see the latches.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import suppress

from leasehold._core.light_typing import Any, NamedTuple, Protocol, TypeAlias
from leasehold.errors import LeaseholdError, StoreUnavailable
from leasehold.stores.zookeeper import failures
from leasehold.stores.zookeeper.calls import Call
from leasehold.stores.zookeeper.session import Session

Work: TypeAlias = "Generator[list[Call], None, Any]"
PAUSE = 0.005  # seconds before another attempt


class Lost(Exception):
    """Nothing was changed, and the work can begin anew as soon as there is a connection."""


class Latch(Protocol):
    """Opens when it was counted down so many times."""

    def count(self) -> None:
        """From any thread."""


class Wait(NamedTuple):
    """For this latch, until then at the latest."""

    latch: Any
    until: float


def rounds(  # they are all that is needed
    session: Session,
    server: str,
    prepare: Callable[[], Work],
    works: Sequence[Callable[[], Work]],
    give_up: float,
    latch: Callable[[int], Any],
) -> Generator[Wait, None, list[Any]]:
    """Returns the result of each work, or its error."""
    results: dict[int, Any] = {}
    before = session.closings, session.refusals
    while len(results) < len(works):
        failure = yield from _ready(session, before, server, prepare, give_up, latch)
        if failure is not None:
            return [results.get(number, failure) for number in range(len(works))]
        missing = [number for number in range(len(works)) if number not in results]
        found = yield from _run(session, [works[number] for number in missing], give_up, latch)
        results |= {
            number: result for number, result in zip(missing, found, strict=True) if not isinstance(result, Lost)
        }
        if len(results) < len(works):
            yield Wait(latch(1), min(time.monotonic() + PAUSE, give_up))
    return [results[number] for number in range(len(works))]


def _ready(  # as above
    session: Session,
    before: tuple[int, int],
    server: str,
    prepare: Callable[[], Work],
    give_up: float,
    latch: Callable[[int], Any],
) -> Generator[Wait, None, LeaseholdError | None]:
    """Wait until there is a connection, and the tree is known to be ours. ``before``: closings and refusals."""
    closings, refusals = before
    while True:
        if session.refusals != refusals:  # the next request tries again
            return failures.login_refused(server)
        if not session.begin(closings):
            return StoreUnavailable(f"the store of {server} was closed meanwhile")
        if time.monotonic() >= give_up:
            return failures.unreachable(server, session.trouble)
        if not session.connected:
            opened = latch(1)
            session.when_connected(opened.count)
            try:
                yield Wait(opened, min(session.gone_at, give_up))
            finally:
                session.forget(opened.count)
        elif session.prepared == session.current():
            return None
        else:
            (result,) = yield from _run(session, [prepare], give_up, latch)
            if isinstance(result, LeaseholdError):
                return result
            if isinstance(result, Lost):
                yield Wait(latch(1), min(time.monotonic() + PAUSE, give_up))


def _run(
    session: Session, works: Sequence[Callable[[], Work]], give_up: float, latch: Callable[[int], Any]
) -> Generator[Wait, None, list[Any]]:
    """Each of them to its end: its result, its error, or Lost."""
    results: list[Any] = [None] * len(works)
    running = dict(enumerate(begin() for begin in works))
    while running:
        calls: list[Call] = []
        for number, work in list(running.items()):
            try:
                calls += next(work)
            except StopIteration as end:
                results[number] = end.value
                del running[number]
            except (LeaseholdError, Lost) as error:
                results[number] = error
                del running[number]
        if calls:
            yield from _exchange(session, calls, give_up, latch)
    return results


def _exchange(
    session: Session, calls: Sequence[Call], give_up: float, latch: Callable[[int], Any]
) -> Generator[Wait, None, None]:
    """Send them together, and wait. None of them is sent later, whatever happens."""
    try:
        if time.monotonic() < give_up:
            answered = latch(len(calls))
            for call in calls:
                call.finished = answered.count
            session.send(calls)
            yield Wait(answered, give_up)
    finally:
        for call in calls:
            call.give_up()
    session.saw(max(call.zxid for call in calls))


# ---------------------------------------------------------------- on a thread


class ThreadLatch:
    """For one thread that waits."""

    __slots__ = ("_left", "_lock")

    def __init__(self, counts: int) -> None:
        self._left = [True] + [False] * (counts - 1)  # whoever removes the True opens it
        self._lock = threading.Lock()
        self._lock.acquire()

    def count(self) -> None:
        with suppress(IndexError):
            if self._left.pop():
                self._lock.release()

    def wait(self, until: float) -> None:
        self._lock.acquire(timeout=max(until - time.monotonic(), 0))


def perform(work: Generator[Wait, None, list[Any]]) -> list[Any]:
    """On the calling thread, with ThreadLatch."""
    try:
        while True:
            latch, until = next(work)
            latch.wait(until)
    except StopIteration as end:
        results: list[Any] = end.value
        return results
    finally:
        work.close()  # after an interrupt: what was not sent never is


# ---------------------------------------------------------------- on an event loop


class LoopLatch:
    """For one task of the running loop."""

    __slots__ = ("_future", "_left", "_loop")

    def __init__(self, counts: int) -> None:
        self._left = [True] + [False] * (counts - 1)
        self._loop = asyncio.get_running_loop()
        self._future: asyncio.Future[None] = self._loop.create_future()

    def count(self) -> None:
        with suppress(IndexError):
            if self._left.pop():
                with suppress(RuntimeError):  # the loop is closed
                    self._loop.call_soon_threadsafe(self._open)

    def _open(self) -> None:
        if not self._future.done():
            self._future.set_result(None)

    async def wait(self, until: float) -> None:
        timer = self._loop.call_later(max(until - time.monotonic(), 0), self._open)
        try:
            await self._future
        finally:
            timer.cancel()


async def perform_async(work: Generator[Wait, None, list[Any]]) -> list[Any]:
    """In the running task, with LoopLatch."""
    try:
        while True:
            latch, until = next(work)
            await latch.wait(until)
    except StopIteration as end:
        results: list[Any] = end.value
        return results
    finally:
        work.close()
