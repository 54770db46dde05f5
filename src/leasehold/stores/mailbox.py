"""Pushes inside a process: where a thread, an event loop or a watchdog receives them, of stores that deliver by a call.

``deliver`` may be called on any thread.
"""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable, Sequence
from queue import Empty, SimpleQueue

from leasehold._core.light_typing import Any
from leasehold._core.ops import Push, Reply, StoreOp
from leasehold.errors import LeaseholdError

Outcomes = list[Reply | LeaseholdError]


class Mailbox:
    """Implements ``_core.ports.Connection`` for a thread and ``AsyncConnection`` for an event loop. ``closed`` is
    called with it when nothing is to be delivered any more."""

    def __init__(
        self,
        address: str,
        execute: Callable[[StoreOp], Reply],
        execute_async: Callable[[StoreOp], Awaitable[Reply]],
        closed: Callable[[Mailbox], None],
        execute_batch: Callable[[Sequence[StoreOp]], Outcomes],
        execute_batch_async: Callable[[Sequence[StoreOp]], Awaitable[Outcomes]],
    ) -> None:
        self.address = address
        self.execute, self.execute_async = execute, execute_async
        self.execute_batch, self.execute_batch_async = execute_batch, execute_batch_async
        self._closed = closed
        self._pushes: SimpleQueue[Push] = SimpleQueue()
        self._empty = threading.Lock()  # held while there is nothing to read
        self._empty.acquire()
        self._loop: Any = None
        self._notify: Callable[[Push], None] | None = None

    def deliver(self, push: Push) -> None:
        if self._notify is None:
            self._pushes.put(push)
            self._wake()
            return
        try:
            self._loop.call_soon_threadsafe(self._notify, push)
        except RuntimeError:  # the loop is closed, and no task waits there
            self.close()

    def next_push(self, seconds: float) -> Push | None:
        """It does not use the queue's own timeout: in CPython a signal handler that outlasts that makes it wait for
        ever."""
        self._empty.acquire(timeout=min(max(seconds, 0), threading.TIMEOUT_MAX))
        try:
            push = self._pushes.get_nowait()
        except Empty:
            return None
        if not self._pushes.empty():  # the lock was released once for all of them
            self._wake()
        return push

    def _wake(self) -> None:
        try:
            self._empty.release()
        except RuntimeError:  # released already
            pass

    def attach(self, notify: Callable[[Push], None]) -> None:
        """Call this on the running event loop with each push, from now on."""
        import asyncio

        self._loop = asyncio.get_running_loop()
        self._notify = notify

    def close(self) -> None:
        self._closed(self)


class HolderMailbox:
    """Implements ``_core.ports.HolderPushes``. The store knows it from the watchdog's first poll, with ``opened``,
    until it is closed: a store may outlive its coordinators, and must not collect them."""

    polled = False

    def __init__(
        self, address: str, opened: Callable[[HolderMailbox], None], closed: Callable[[HolderMailbox], None]
    ) -> None:
        self.address = address
        self._opened, self._closed = opened, closed
        self._pushes: SimpleQueue[Push] = SimpleQueue()
        self._ready: Callable[[], None] = _nothing

    def fileno(self, ready: Callable[[], None]) -> int:
        """There is nothing to poll: ``deliver`` calls ``ready``."""
        if self._ready is _nothing:
            self._ready = ready
            self._opened(self)
        return -1

    def deliver(self, push: Push) -> None:
        self._pushes.put(push)
        self._ready()

    def read(self) -> list[Push]:
        pushes = []
        while not self._pushes.empty():
            pushes.append(self._pushes.get_nowait())
        return pushes

    def close(self) -> None:
        self._closed(self)
        self._ready = _nothing


def _nothing() -> None:
    """The ``ready`` of holder pushes that no watchdog polls."""
