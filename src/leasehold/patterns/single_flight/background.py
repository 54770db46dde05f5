"""Rebuilds that nobody waits for: while an old value is served, one in the fleet makes the next.

At most one for each name in this process, and few in all: who finds no room leaves it to the next caller. One that came
to nothing is not repeated at once: somebody else is at it, or it would fail again.
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
from leasehold.patterns.single_flight.rebuild import outside_rebuilds

MOST_AT_ONCE = 32  # at once
MOST_PAUSES = 10_000
GRACE = 2.0  # seconds that close() waits for those under way
SHORTEST_PAUSE, LONGEST_PAUSE = 0.05, 1.0

Run = Callable[[], Coroutine[Any, Any, FlightResult]]


class BackgroundRebuilds(ABC):
    """Of one coordinator."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._epoch = engine.epoch
        self._under_way: dict[Any, Any] = {}  # by name: the thread or the task
        self._pauses: dict[Any, float] = {}  # by name: when it may be tried again, on the local clock

    def start(self, key: Any, shown: str, run: Run, ttl: float) -> None:
        """``run`` it, unless it runs already. ``shown`` is what a log may show of it."""
        if self._epoch != self._engine.epoch:  # a forked child: those of the parent go on there
            self._epoch, self._under_way = self._engine.epoch, {}
        if self._has_ended(self._under_way.get(key)):
            self._under_way.pop(key, None)
        if key in self._under_way or len(self._under_way) >= MOST_AT_ONCE or self._engine.closed or self._pausing(key):
            return
        mark = object()
        if self._under_way.setdefault(key, mark) is mark:
            try:
                self._begin(key, self._run(key, shown, run, ttl))
            except BaseException:
                self._under_way.pop(key, None)
                raise

    def _has_ended(self, work: Any) -> bool:
        """Has it ended without a word?"""
        return False

    @abstractmethod
    def _begin(self, key: Any, flow: Coroutine[Any, Any, None]) -> None: ...

    async def _run(self, key: Any, shown: str, run: Run, ttl: float) -> None:
        outside_rebuilds()
        try:
            landing = await run()
            error = landing.error
        except NotAcquired:
            self._pause(key, ttl)
            return
        except Exception as trouble:
            error = trouble
        finally:
            self._under_way.pop(key, None)
        if error is not None:
            self._pause(key, ttl)
            if not self._engine.closed:  # else that is why
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
    """Daemon threads, each with a copy of the caller's context."""

    def _begin(self, key: Any, flow: Coroutine[Any, Any, None]) -> None:
        context = copy_context()
        thread = threading.Thread(target=lambda: context.run(finish, flow), name="leasehold-rebuild", daemon=True)
        self._under_way[key] = thread
        try:
            thread.start()
        except RuntimeError as error:  # no more threads, or the interpreter ends: the caller has its value
            flow.close()
            self._under_way.pop(key, None)
            log.debug("single_flight could not start a thread: %r", error)

    def close(self) -> None:
        """Wait for those under way, but not long: the coordinator then takes away their leases."""
        end = time.monotonic() + GRACE
        for thread in list(self._under_way.values()):
            if isinstance(thread, threading.Thread) and thread is not threading.current_thread():
                thread.join(max(end - time.monotonic(), 0))


class TaskRebuilds(BackgroundRebuilds):
    """Tasks of the loop that asked first."""

    def _over(self, work: Any) -> bool:
        """Cancelled before it began, or with a loop that is no more."""
        return isinstance(work, asyncio.Task) and (work.done() or work.get_loop().is_closed())

    def _begin(self, key: Any, flow: Coroutine[Any, Any, None]) -> None:
        for name in [name for name, work in list(self._under_way.items()) if self._over(work)]:  # of other loops, too
            self._under_way.pop(name, None)
        self._under_way[key] = asyncio.create_task(flow, name="leasehold-rebuild")

    async def close(self) -> None:
        """Wait for those under way, but not long; then cancel them, and wait until they have stopped."""
        loop = asyncio.get_running_loop()
        tasks = [one for one in self._under_way.values() if isinstance(one, asyncio.Task) and one.get_loop() is loop]
        if not tasks:
            return
        _, late = await asyncio.wait(tasks, timeout=GRACE)
        for task in late:
            task.cancel()
        if late:
            await asyncio.wait(late, timeout=GRACE)
