"""The few operations that patterns do differently on a thread and on an event loop.

A pattern is written once, as a coroutine. The driver (``leasehold._core.driver``) only says how a coroutine is run: for
threads ``finish`` runs it to its end, for asyncio the user awaits it. A ``Flavour`` says what the coroutine awaits: the
user's lock, function or result store is a blocking one on a thread and an awaitable one on an event loop. On a thread
none of these methods ever suspends, which is what ``finish`` needs.
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

from leasehold._core.driver import finish
from leasehold.errors import InvalidRequest
from leasehold.primitives.decorated_function import not_a_coroutine

R = TypeVar("R")


class Flavour(ABC):
    """What a pattern awaits: ``OnThread`` for ``Leasehold``, ``OnLoop`` for ``AsyncLeasehold``.

    It stands beside the driver because a pattern does not yield requests: it enters locks and calls the user's code,
    and on an event loop both must happen in the user's own task, so that cancellation and context variables reach
    them."""

    asynchronous: bool

    @abstractmethod
    def enter(self, lock: Any) -> AbstractAsyncContextManager[Any]:
        """``async with flavour.enter(lock) as lease``: the lock's own ``with`` or ``async with``."""

    @abstractmethod
    async def resolve(self, value: R | Awaitable[R]) -> R:
        """The result of a call: ``value`` itself on a thread; on an event loop it is awaited if it has to be."""

    @abstractmethod
    async def call(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> CallOutcome:
        """Call the user's function. An error is part of the outcome; cancellation and interrupts are raised."""

    @abstractmethod
    async def sleep(self, pause: float) -> None:
        """Do nothing for ``pause`` seconds."""

    @abstractmethod
    async def uninterrupted(self, flow: Coroutine[Any, Any, R], hurry: Callable[[], object]) -> R:
        """Run a flow that must not be cut short. A cancellation calls ``hurry``, which asks the flow to end soon, and
        is raised when the flow has ended. A second cancellation no longer waits for the flow."""

    @abstractmethod
    def event(self) -> Any:
        """A new event, for ``waited``."""

    @abstractmethod
    async def waited(self, event: Any, seconds: float) -> bool:
        """Wait until the event is set, at most for ``seconds``. Is it set?"""

    @abstractmethod
    def wrap(self, flow: Callable[..., Coroutine[Any, Any, Any]]) -> Callable[..., Any]:
        """A coroutine function in the form that users call: a plain function for threads, itself for asyncio."""


class CallOutcome:
    """What a function returned, or the error that it raised."""

    __slots__ = ("error", "value")

    def __init__(self, value: Any = None, error: Exception | None = None) -> None:
        self.value = value
        self.error = error

    def get(self) -> Any:
        """Return the value or raise the error, as the function did."""
        if self.error is not None:
            raise self.error
        return self.value


class OnThread(Flavour):
    """Blocks the calling thread and never suspends."""

    asynchronous = False

    def enter(self, lock: Any) -> AbstractAsyncContextManager[Any]:
        return LockAsContext(lock)

    async def resolve(self, value: R | Awaitable[R]) -> R:
        if inspect.isawaitable(value):
            if isinstance(value, Coroutine):
                value.close()
            raise InvalidRequest("this coordinator is for threads, and was given something that must be awaited")
        return value

    async def call(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> CallOutcome:
        try:
            return CallOutcome(not_a_coroutine(function(*args, **kwargs)))
        except Exception as error:
            return CallOutcome(error=error)

    async def sleep(self, pause: float) -> None:
        time.sleep(pause)  # noqa: ASYNC251  # there is no event loop to block

    async def uninterrupted(self, flow: Coroutine[Any, Any, R], hurry: Callable[[], object]) -> R:
        return await flow

    def event(self) -> Any:
        return Flag()

    async def waited(self, event: Any, seconds: float) -> bool:
        return bool(event.wait(seconds))

    def wrap(self, flow: Callable[..., Coroutine[Any, Any, Any]]) -> Callable[..., Any]:
        def run(*args: Any, **kwargs: Any) -> Any:
            return finish(flow(*args, **kwargs))

        return run


class OnLoop(Flavour):
    """Awaits on the running event loop. asyncio is imported late: a program without it does not load it."""

    asynchronous = True

    def enter(self, lock: Any) -> AbstractAsyncContextManager[Any]:
        return lock  # type: ignore[no-any-return]  # an AsyncLock is one

    async def resolve(self, value: R | Awaitable[R]) -> R:
        return await value if inspect.isawaitable(value) else value

    async def call(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> CallOutcome:
        try:
            return CallOutcome(await function(*args, **kwargs))
        except Exception as error:
            return CallOutcome(error=error)

    async def sleep(self, pause: float) -> None:
        import asyncio

        await asyncio.sleep(pause)

    async def uninterrupted(self, flow: Coroutine[Any, Any, R], hurry: Callable[[], object]) -> R:
        import asyncio

        task = asyncio.ensure_future(flow)
        task.add_done_callback(_retrieve_error)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            hurry()
            await asyncio.wait([task])
            raise

    def event(self) -> Any:
        import asyncio

        return asyncio.Event()

    async def waited(self, event: Any, seconds: float) -> bool:
        import asyncio

        try:
            async with asyncio.timeout(seconds):  # ``wait_for`` of Python 3.11 can swallow a cancellation
                return bool(await event.wait())
        except TimeoutError:
            return False

    def wrap(self, flow: Callable[..., Coroutine[Any, Any, Any]]) -> Callable[..., Any]:
        return flow


def _retrieve_error(task: Any) -> None:
    """Mark the error of a task as seen. The caller has it, or was cancelled, which matters more; asyncio would warn
    about it."""
    if not task.cancelled():
        task.exception()


class Flag:
    """An event for threads that a signal handler may set.

    ``threading.Event`` would deadlock there: the handler may have interrupted its own thread inside ``wait``."""

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
                self._queue.put(None)  # for the next waiter
            except Empty:
                pass
        return self._set


class LockAsContext:
    """Adapts a thread lock to ``async with``."""

    __slots__ = ("_lock",)

    def __init__(self, lock: Any) -> None:
        self._lock = lock

    async def __aenter__(self) -> Any:
        return self._lock.__enter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        return self._lock.__exit__(kind, error, trace)  # type: ignore[no-any-return]  # what the lock returns
