"""The idle sessions of a store, for its threads and event loops: each takes one for a call, and gives it back.

A waiter has no session while it waits, so a few serve many. A caller that finds all in use waits for one, in the order
of arrival: one that comes later takes none that is given back meanwhile.
"""

from __future__ import annotations

import asyncio
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial

from leasehold._core.light_typing import Any
from leasehold.errors import StoreUnavailable
from leasehold.stores.postgresql.session import Session

MOST = 10


class Sessions:
    """``connect`` opens a session before a time; it raises StoreUnavailable."""

    def __init__(self, connect: Callable[[float], Session], server: str, most: int = MOST) -> None:
        self._connect = connect
        self._server = server
        self._most = most
        self.closed = False
        self._start()

    def _start(self) -> None:
        self._lock = threading.RLock()
        self._idle: list[Session] = []
        self._used: weakref.WeakSet[Session] = weakref.WeakSet()  # one that an interrupt dropped is collected
        self._opening = 0
        self._waiting: deque[Callable[[], None]] = deque()

    # ------------------------------------------------------------ for a thread

    def take(self, give_up: float) -> Session:
        """Wait for one, if all are in use."""
        woken_before = False
        while True:
            woken = threading.Lock()
            woken.acquire()
            wake = woken.release
            found = self._find(wake, woken_before)
            if isinstance(found, Session):
                return found
            if found:
                return self._open(give_up)
            try:
                in_time = woken.acquire(timeout=max(give_up - time.monotonic(), 0))
            except BaseException:
                self._leave(wake)
                raise
            if not in_time:
                self._leave(wake)
                raise self._all_used()
            woken_before = True

    async def take_async(self, give_up: float) -> Session:
        loop = asyncio.get_running_loop()
        woken_before = False
        while True:
            woken: asyncio.Future[None] = loop.create_future()
            wake = partial(_wake, loop, woken)
            found = self._find(wake, woken_before)
            if isinstance(found, Session):
                return found
            if found:
                opening = loop.run_in_executor(None, self._open, give_up)
                try:
                    return await asyncio.shield(opening)
                except asyncio.CancelledError:
                    opening.add_done_callback(self._unwanted)
                    raise
            try:
                async with asyncio.timeout(give_up - time.monotonic()):  # wait_for may lose a cancellation
                    await woken
            except TimeoutError:
                self._leave(wake)
                raise self._all_used() from None
            except BaseException:
                self._leave(wake)
                raise
            woken_before = True

    def _find(self, wake: Callable[[], None], woken: bool) -> Session | bool:
        """An idle session; True when the caller may open one; False when it must wait until it is woken. Idle sessions
        are for those who were woken, as long as others wait."""
        with self._lock:
            self._check_open()
            while self._idle and (woken or not self._waiting):
                session = self._idle.pop()
                if session.usable():
                    self._used.add(session)
                    return session
                session.close()
            if len(self._used) + len(self._idle) + self._opening < self._most:
                self._opening += 1
                return True
            if woken:
                self._waiting.appendleft(wake)
            else:
                self._waiting.append(wake)
            return False

    def _open(self, give_up: float) -> Session:
        try:
            session = self._connect(give_up)
        except BaseException:
            with self._lock:
                self._opening -= 1
            self._wake_next()
            raise
        with self._lock:
            self._opening -= 1
            self._used.add(session)
        return session

    def _unwanted(self, opening: Any) -> None:
        """Its task was cancelled while it was opened."""
        if not opening.cancelled() and opening.exception() is None:
            self.give_back(opening.result())

    def give_back(self, session: Session) -> None:
        """One that was left in the middle of a request, or of a transaction, is closed. When the server takes no writes
        any more, all are closed: new ones may lead to another."""
        sound = not session.busy and session.idle and not session.read_only
        with self._lock:
            if session not in self._used:  # the store was closed, or this is a forked child
                return
            self._used.discard(session)
            if sound and not self.closed:
                self._idle.append(session)
            else:
                session.close()
            if session.read_only:
                self._close_idle()
        self._wake_next()

    def _wake_next(self) -> None:
        with suppress(IndexError):  # nobody waits
            while True:
                wake = self._waiting.popleft()
                try:
                    wake()
                except RuntimeError:  # its event loop is closed
                    continue
                return

    def _leave(self, wake: Callable[[], None]) -> None:
        """Give up waiting. One that was woken meanwhile wakes the next in its place."""
        try:
            self._waiting.remove(wake)
        except ValueError:
            self._wake_next()

    def _check_open(self) -> None:
        if self.closed:
            raise StoreUnavailable(f"the store of {self._server} is closed")

    def _all_used(self) -> StoreUnavailable:
        return StoreUnavailable(f"all {self._most} connections to {self._server} are in use (max_connections)")

    def _close_idle(self) -> None:
        idle, self._idle = self._idle, []
        for session in idle:
            session.close()

    # ------------------------------------------------------------ the end

    def close(self) -> None:
        self.closed = True
        with self._lock:
            sessions = [*self._idle, *[one for one in self._used if not one.busy]]
            self._idle = []
        for session in sessions:
            session.close()

    def forked(self) -> None:
        """In the child: nothing is sent over a connection of the parent."""
        for session in (*self._idle, *self._used):
            session.close_copy()
        self._start()


def _wake(loop: asyncio.AbstractEventLoop, woken: asyncio.Future[None]) -> None:
    def wake() -> None:
        if not woken.done():
            woken.set_result(None)

    loop.call_soon_threadsafe(wake)
