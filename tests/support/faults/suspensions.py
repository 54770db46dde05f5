"""Suspensions: where a task gives way to its event loop, so that a test can cancel it at each one."""

from __future__ import annotations

import asyncio
import types
from collections.abc import Callable, Coroutine, Generator
from typing import Any


class Suspensions:
    """Wraps a coroutine and cancels its task at the ``nth`` suspension; at none for 0.

    ``together``: not before what the task waits for is there, so that both arrive in the same turn of the loop.
    ``again``: at every later suspension as well, which are those of its clean-up.
    """

    def __init__(self, nth: int = 0, together: bool = False, again: bool = False) -> None:
        self.count = 0
        self.cancelled = 0
        self._nth = nth
        self._together = together
        self._again = again

    async def __call__(self, coroutine: Coroutine[Any, Any, None]) -> None:
        """What to give to the task in place of the coroutine."""
        await self._drive(coroutine, _cancel_of(asyncio.current_task()))

    @types.coroutine
    def _drive(self, coroutine: Coroutine[Any, Any, None], cancel: Callable[[], object]) -> Generator[Any, Any, None]:
        step = _sending(coroutine, None)
        while True:
            try:
                waiting = step()
            except StopIteration:
                return
            self.count += 1
            if self._nth and (self.count == self._nth or (self._again and self.count > self._nth)):
                self.cancelled += 1
                self._arrange(waiting, cancel)
            try:
                sent = yield waiting
                step = _sending(coroutine, sent)
            except BaseException as error:  # the cancellation, too
                step = _throwing(coroutine, error)

    def _arrange(self, waiting: Any, cancel: Callable[[], object]) -> None:
        if self._together and waiting is not None:  # before the task's own callback, which wakes it
            waiting.add_done_callback(lambda _: cancel())
        else:
            cancel()


def _cancel_of(task: asyncio.Task[Any] | None) -> Callable[[], object]:
    assert task is not None
    return task.cancel


def _sending(coroutine: Coroutine[Any, Any, None], sent: Any) -> Callable[[], Any]:
    return lambda: coroutine.send(sent)


def _throwing(coroutine: Coroutine[Any, Any, None], error: BaseException) -> Callable[[], Any]:
    return lambda: coroutine.throw(error)
