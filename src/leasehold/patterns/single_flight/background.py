"""Rebuilds that no caller waits for: while a stale value is served, one process of the fleet rebuilds it.

There is at most one for each name in this process, and ``MOST_AT_ONCE`` in all: a caller that finds no room leaves it
to the next one. A rebuild that failed is not repeated at once: another process is at work, or it would fail again.
"""

from __future__ import annotations

import asyncio
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine
from contextvars import copy_context
from typing import Any

from leasehold._core.driver import finish
from leasehold._runtime.engine import Engine
from leasehold.errors import NotAcquired
from leasehold.observe import log
from leasehold.patterns.single_flight.flights import FlightResult
from leasehold.patterns.single_flight.rebuild import leave_rebuilds

MOST_AT_ONCE = 32
MOST_PAUSES = 10_000
GRACE = 2.0  # seconds that close() waits for running rebuilds
SHORTEST_PAUSE, LONGEST_PAUSE = 0.05, 1.0  # seconds

Run = Callable[[], Coroutine[Any, Any, FlightResult]]


class BackgroundRebuilds(ABC):
    """The background rebuilds of one coordinator."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._epoch = engine.epoch
        self._running: dict[Any, Any] = {}  # by name: the thread or the task
        self._pauses: dict[Any, float] = {}  # by name: when it may be tried again, by the local clock

    def start(self, key: Any, shown: str, run: Run, ttl: float) -> None:
        """Start a rebuild, unless one runs already or room is lacking. ``shown`` is the name without ids, for logs."""
        if self._epoch != self._engine.epoch:  # a forked child: the rebuilds of the parent go on there
            self._epoch, self._running = self._engine.epoch, {}
        if self._has_ended(self._running.get(key)):
            self._running.pop(key, None)
        if key in self._running or len(self._running) >= MOST_AT_ONCE or self._engine.closed or self._pausing(key):
            return
        mark = object()
        if self._running.setdefault(key, mark) is mark:
            try:
                self._begin(key, self._run(key, shown, run, ttl))
            except BaseException:
                self._running.pop(key, None)
                raise

    def _has_ended(self, work: Any) -> bool:
        """Has it ended without removing itself?"""
        return False

    @abstractmethod
    def _begin(self, key: Any, flow: Coroutine[Any, Any, None]) -> None: ...

    async def _run(self, key: Any, shown: str, run: Run, ttl: float) -> None:
        leave_rebuilds()
        try:
            result = await run()
            error = result.error
        except NotAcquired:
            self._pause(key, ttl)
            return
        except Exception as raised:
            error = raised
        finally:
            self._running.pop(key, None)
        if error is not None:
            self._pause(key, ttl)
            if not self._engine.closed:  # closing explains the failure
                log.warn("single_flight could not rebuild %s in the background: %r", shown, error, error=error)

    def _pausing(self, key: Any) -> bool:
        until = self._pauses.get(key)
        if until is None:
            return False
        if self._engine.clock.now() < until:
            return True
        self._pauses.pop(key, None)
        return False

    def _pause(self, key: Any, ttl: float) -> None:
        if len(self._pauses) >= MOST_PAUSES:
            self._pauses.clear()
        self._pauses[key] = self._engine.clock.now() + min(max(ttl / 10, SHORTEST_PAUSE), LONGEST_PAUSE)


class ThreadRebuilds(BackgroundRebuilds):
    """Rebuilds in daemon threads, each with a copy of the caller's context."""

    def _begin(self, key: Any, flow: Coroutine[Any, Any, None]) -> None:
        context = copy_context()
        thread = threading.Thread(target=lambda: context.run(finish, flow), name="leasehold-rebuild", daemon=True)
        self._running[key] = thread
        try:
            thread.start()
        except RuntimeError as error:  # no more threads, or the interpreter is shutting down: the caller has its value
            flow.close()
            self._running.pop(key, None)
            log.debug("single_flight could not start a thread: %r", error)

    def close(self) -> None:
        """Wait for running rebuilds, but not long: the coordinator then ends their leases."""
        end = time.monotonic() + GRACE
        for thread in list(self._running.values()):
            if isinstance(thread, threading.Thread) and thread is not threading.current_thread():
                thread.join(max(end - time.monotonic(), 0))


class TaskRebuilds(BackgroundRebuilds):
    """Rebuilds in tasks of the event loop whose caller started them."""

    def _has_ended(self, work: Any) -> bool:
        """It was cancelled before it began, or its loop is closed."""
        return isinstance(work, asyncio.Task) and (work.done() or work.get_loop().is_closed())

    def _begin(self, key: Any, flow: Coroutine[Any, Any, None]) -> None:
        for name in [
            name for name, work in list(self._running.items()) if self._has_ended(work)
        ]:  # also of other loops
            self._running.pop(name, None)
        self._running[key] = asyncio.create_task(flow, name="leasehold-rebuild")

    async def close(self) -> None:
        """Wait for running rebuilds, but not long; then cancel them, and wait until they have stopped."""
        loop = asyncio.get_running_loop()
        tasks = [one for one in self._running.values() if isinstance(one, asyncio.Task) and one.get_loop() is loop]
        if not tasks:
            return
        _, late = await asyncio.wait(tasks, timeout=GRACE)
        for task in late:
            task.cancel()
        if late:
            await asyncio.wait(late, timeout=GRACE)
