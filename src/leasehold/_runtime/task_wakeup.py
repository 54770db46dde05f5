"""How a task that waits in a cohort is woken: by whoever passes the lease on, or because it is time to look around.

A timer for each wait would cost a tenth of a turn. So the tasks of one loop share one, which runs while any of them
waits for longer than its period.
"""

from __future__ import annotations

import sys

from leasehold._core.light_typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import asyncio


class TaskWakeup:
    """Wakes a task of one loop. May be woken before it sleeps, and more than once."""

    __slots__ = ("_future", "_woken", "loop")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._future: Any = None  # while it sleeps
        self._woken = False

    def wake(self) -> None:
        """From any thread."""
        if sys.modules["asyncio"]._get_running_loop() is self.loop:  # quicker than an import, and it has a loop
            self.awaken()
            return
        try:
            self.loop.call_soon_threadsafe(self.awaken)
        except RuntimeError:  # the loop is closed
            pass

    def awaken(self) -> None:
        """On its loop."""
        self._woken = True
        future = self._future
        if future is not None and not future.done():
            future.set_result(None)

    async def sleep(self, seconds: float) -> None:
        """Until it is woken, at most for so long."""
        timer = self.loop.call_later(seconds, self.awaken)
        try:
            if not self._woken:
                self._future = self.loop.create_future()
                await self._future
            self._woken = False
        finally:
            timer.cancel()

    async def sleep_with(self, others: SharedTimer) -> None:
        """Until it is woken, or the timer that it shares with others wakes it."""
        others.sleeping[self] = others.round
        if not others.runs:
            others.start()
        try:
            if not self._woken:  # as above: another coroutine for these lines would be a fiftieth of a turn
                self._future = self.loop.create_future()
                await self._future
            self._woken = False
        finally:
            others.sleeping.pop(self, None)


class SharedTimer:
    """Wakes each task of one loop that has slept for its period, and not yet for two."""

    __slots__ = ("_loop", "_period", "round", "runs", "sleeping")

    def __init__(self, loop: asyncio.AbstractEventLoop, period: float) -> None:
        self._loop = loop
        self._period = period
        self.sleeping: dict[TaskWakeup, int] = {}  # the round in which each fell asleep
        self.round = 0
        self.runs = False

    def start(self) -> None:
        """One sleeps: it is to ring."""
        self.runs = True
        self._loop.call_later(self._period, self._ring)

    def _ring(self) -> None:
        due = [one for one, began in self.sleeping.items() if began < self.round]
        self.round += 1
        self.runs = bool(self.sleeping)
        if self.runs:
            self.start()
        for one in due:
            one.awaken()
