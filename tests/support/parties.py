"""Parties: threads and tasks that a test tells what to do, one step at a time, in either flavour.

A party is one owner: a thread with a ``Leasehold``, or a task with an ``AsyncLeasehold``. Because both flavours have
the same names, a step is written once: ``party.do(lambda hold: hold.lock("x").acquire())``.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Any, Protocol

import pytest

from leasehold._core.ports import Store
from leasehold.coordinator import AsyncLeasehold, Leasehold
from tests.support.waiting import PATIENCE

Step = Callable[[Any], Any]
Body = Callable[[Any], Any]


class Party(Protocol):
    """Somebody who can hold a lease."""

    hold: Any

    def start(self, step: Step) -> Future[Any]:
        """Begin a step; the future tells how it ended."""
        ...

    def do(self, step: Step) -> Any:
        """A step, to its end."""
        ...

    def within(self, lock: Callable[[Any], Any], body: Body) -> Future[Any]:
        """``with lock(hold) as lease: body(lease)``."""
        ...

    def close(self) -> None: ...


class ThreadParty:
    """A thread of its own, with a coordinator of its own."""

    def __init__(self, store: Store, **options: Any) -> None:
        self.hold = Leasehold(store, **options)
        self._steps: SimpleQueue[tuple[Step, Future[Any]] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while (item := self._steps.get()) is not None:
            step, future = item
            try:
                future.set_result(step(self.hold))
            except BaseException as error:  # whatever a step raises belongs to whoever asked for it
                future.set_exception(error)
            del item, step, future  # a step that is over must not keep its leases alive

    def start(self, step: Step) -> Future[Any]:
        future: Future[Any] = Future()
        self._steps.put((step, future))
        return future

    def do(self, step: Step) -> Any:
        return self.start(step).result(PATIENCE)

    def within(self, lock: Callable[[Any], Any], body: Body) -> Future[Any]:
        def step(hold: Leasehold) -> Any:
            with lock(hold) as lease:
                return body(lease)

        return self.start(step)

    def close(self) -> None:
        self.hold.close()
        self._steps.put(None)
        self._thread.join(PATIENCE)


class TaskParty:
    """A task of its own on a loop of its own, in a thread, with a coordinator of its own."""

    def __init__(self, store: Store, **options: Any) -> None:
        self.hold = AsyncLeasehold(store, **options)
        self.loop = asyncio.new_event_loop()
        self._steps: asyncio.Queue[tuple[Step, Future[Any]] | None] = asyncio.Queue()
        self._thread = threading.Thread(target=self.loop.run_until_complete, args=[self._run()], daemon=True)
        self._thread.start()
        self._task: asyncio.Task[Any] | None = None

    async def _run(self) -> None:
        self._task = asyncio.current_task()
        while (item := await self._steps.get()) is not None:
            step, future = item
            try:
                result = step(self.hold)
                future.set_result(await result if inspect.isawaitable(result) else result)
            except BaseException as error:  # a cancelled step is over; the party lives on
                future.set_exception(error)
                while self._task is not None and self._task.uncancel():
                    continue
            # a step that is over must not keep its leases alive; the names are bound anew in the next turn
            item = step = future = result = None  # type: ignore[assignment]
        await self.hold.close()

    def start(self, step: Step) -> Future[Any]:
        future: Future[Any] = Future()
        self.loop.call_soon_threadsafe(self._steps.put_nowait, (step, future))
        return future

    def do(self, step: Step) -> Any:
        return self.start(step).result(PATIENCE)

    def within(self, lock: Callable[[Any], Any], body: Body) -> Future[Any]:
        async def enter(hold: AsyncLeasehold) -> Any:
            async with lock(hold) as lease:
                result = body(lease)
                return await result if inspect.isawaitable(result) else result

        def step(hold: AsyncLeasehold) -> Coroutine[Any, Any, Any]:
            return enter(hold)

        return self.start(step)

    def cancel(self) -> None:
        """Cancel the step that is under way."""
        if self._task is not None:
            self.loop.call_soon_threadsafe(self._task.cancel)

    def close(self) -> None:
        self.loop.call_soon_threadsafe(self._steps.put_nowait, None)
        self._thread.join(PATIENCE)
        self.loop.close()


FLAVOURS: dict[str, Callable[..., Party]] = {"sync": ThreadParty, "asyncio": TaskParty}


def mostly(flavour: str, argument: str = "flavour") -> pytest.MarkDecorator:
    """For a slow test of what both flavours decide in one place: it always runs in this flavour, in the other one only
    in the soak. ``argument`` is its parameter, or a fixture that is made in each flavour.

    Neighbours take turns, so that each flavour always meets each kind of trouble.
    """
    flavours = [one if one == flavour else pytest.param(one, marks=pytest.mark.soak) for one in FLAVOURS]
    return pytest.mark.parametrize(argument, flavours, indirect=argument != "flavour")
