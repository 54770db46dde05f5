"""Patterns are written once, as coroutines, for threads and for asyncio.

What differs is said here: how a lock is entered, how a function is called, and what becomes of a result that may have
to be awaited. On a thread nothing ever suspends, so that a coroutine runs to its end in one go (``finish``).
"""

from __future__ import annotations

import inspect
import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import AbstractAsyncContextManager
from queue import Empty, SimpleQueue
from types import TracebackType
from typing import Any, TypeVar

from leasehold.errors import InvalidRequest
from leasehold.primitives.decorated_function import not_a_coroutine

R = TypeVar("R")


class Flavour(ABC):
    """For threads, or for asyncio."""

    asynchronous: bool

    @abstractmethod
    def entered(self, lock: Any) -> AbstractAsyncContextManager[Any]:
        """``async with flavour.entered(lock) as lease``: the lock's own ``with`` or ``async with``."""

    @abstractmethod
    async def settled(self, value: R | Awaitable[R]) -> R:
        """What a call gave that is done at once on a thread, and may have to be awaited on a loop."""

    @abstractmethod
    async def called(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> CallOutcome:
        """Call what the user wrote; its error is part of the outcome. Cancellation and interrupts are none."""

    @abstractmethod
    async def sleep(self, pause: float) -> None:
        """Seconds in which nothing is done."""

    @abstractmethod
    async def finished(self, flow: Coroutine[Any, Any, R], hurry: Callable[[], object]) -> R:
        """What must not end in the middle: a cancellation is raised when the flow has ended, which ``hurry`` asks for.
        Who is cancelled once more leaves it to itself."""

    @abstractmethod
    def event(self) -> Any:
        """Something that can be set, and waited for."""

    @abstractmethod
    async def waited(self, event: Any, seconds: float) -> bool:
        """Until it is set, at most for so long. Is it set?"""

    @abstractmethod
    def shell(self, flow: Callable[..., Coroutine[Any, Any, Any]]) -> Callable[..., Any]:
        """A coroutine function as people call it: a plain function for threads, itself for asyncio."""


class CallOutcome:
    """What a function returned, or the error that it raised."""

    __slots__ = ("error", "value")

    def __init__(self, value: Any = None, error: Exception | None = None) -> None:
        self.value = value
        self.error = error

    def get(self) -> Any:
        """As if the function had just been called."""
        if self.error is not None:
            raise self.error
        return self.value


class OnThread(Flavour):
    """Nothing suspends."""

    asynchronous = False

    def entered(self, lock: Any) -> AbstractAsyncContextManager[Any]:
        return LockAsContext(lock)

    async def settled(self, value: R | Awaitable[R]) -> R:
        if inspect.isawaitable(value):
            if isinstance(value, Coroutine):
                value.close()
            raise InvalidRequest("this coordinator is for threads, and was given something that must be awaited")
        return value

    async def called(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> CallOutcome:
        try:
            return CallOutcome(not_a_coroutine(function(*args, **kwargs)))
        except Exception as error:
            return CallOutcome(error=error)

    async def sleep(self, pause: float) -> None:
        time.sleep(pause)  # noqa: ASYNC251  # a thread has no loop to hold up

    async def finished(self, flow: Coroutine[Any, Any, R], hurry: Callable[[], object]) -> R:
        return await flow

    def event(self) -> Any:
        return Flag()

    async def waited(self, event: Any, seconds: float) -> bool:
        return bool(event.wait(seconds))

    def shell(self, flow: Callable[..., Coroutine[Any, Any, Any]]) -> Callable[..., Any]:
        def run(*args: Any, **kwargs: Any) -> Any:
            return finish(flow(*args, **kwargs))

        return run


class OnLoop(Flavour):
    """Of the running event loop."""

    asynchronous = True

    def entered(self, lock: Any) -> AbstractAsyncContextManager[Any]:
        return lock  # type: ignore[no-any-return]  # an AsyncLock is one

    async def settled(self, value: R | Awaitable[R]) -> R:
        return await value if inspect.isawaitable(value) else value

    async def called(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> CallOutcome:
        try:
            return CallOutcome(await function(*args, **kwargs))
        except Exception as error:
            return CallOutcome(error=error)

    async def sleep(self, pause: float) -> None:
        import asyncio  # loaded only by those who use it

        await asyncio.sleep(pause)

    async def finished(self, flow: Coroutine[Any, Any, R], hurry: Callable[[], object]) -> R:
        return await to_its_end(flow, hurry)

    def event(self) -> Any:
        import asyncio

        return asyncio.Event()

    async def waited(self, event: Any, seconds: float) -> bool:
        import asyncio

        try:
            return bool(await asyncio.wait_for(event.wait(), seconds))
        except TimeoutError:
            return False

    def shell(self, flow: Callable[..., Coroutine[Any, Any, Any]]) -> Callable[..., Any]:
        return flow


async def to_its_end(work: Awaitable[R], hurry: Callable[[], object] | None = None) -> R:
    """What must not end in the middle, on an event loop: see ``Flavour.finished``."""
    import asyncio

    task = asyncio.ensure_future(work)
    task.add_done_callback(_looked_at)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        if hurry is not None:
            hurry()
        await asyncio.wait([task])
        raise


def _looked_at(task: Any) -> None:
    """Its error is known, or matters less than that somebody wants the end: nobody warns about it."""
    if not task.cancelled():
        task.exception()


class Flag:
    """As an Event of threading, which a signal handler must not set: it may have interrupted those who wait for it."""

    __slots__ = ("_queue", "_set")

    def __init__(self) -> None:
        self._queue: SimpleQueue[None] = SimpleQueue()
        self._set = False

    def is_set(self) -> bool:
        return self._set

    def set(self) -> None:
        self._set = True
        self._queue.put(None)

    def wait(self, seconds: float | None) -> bool:
        if not self._set:
            try:
                self._queue.get(timeout=None if seconds is None else max(seconds, 0.0))
                self._queue.put(None)  # for others who wait
            except Empty:
                pass
        return self._set


class LockAsContext:
    """A lock of threads in the clothes of ``async with``."""

    __slots__ = ("_lock",)

    def __init__(self, lock: Any) -> None:
        self._lock = lock

    async def __aenter__(self) -> Any:
        return self._lock.__enter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        return self._lock.__exit__(kind, error, trace)  # type: ignore[no-any-return]  # whatever the lock says


def finish(flow: Coroutine[Any, Any, R]) -> R:
    """Run a coroutine that never suspends, on the calling thread."""
    try:
        flow.send(None)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]  # what the coroutine returns
    flow.close()
    raise RuntimeError("a pattern waited for something on a thread that only an event loop can give")
