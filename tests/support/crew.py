"""Threads or tasks that wait for one lock of one coordinator, in known places, and let go when the test says so."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any

from tests.support.lock import waiting
from tests.support.waiting import PATIENCE, until, until_async


class Loop:
    """An event loop on a thread of its own, for tasks that a test looks at from outside."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def start(self, coroutine: Coroutine[Any, Any, Any]) -> Future[Any]:
        """A task of its own for it."""
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop)

    def do(self, step: Callable[[], Any]) -> Any:
        """A step in a task of its own, to its end. What it returns is awaited where that is possible."""

        async def run() -> Any:
            result = step()
            return await result if inspect.isawaitable(result) else result

        return self.start(run()).result(PATIENCE)

    def close(self) -> None:
        """When its tasks have ended."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(PATIENCE)
        self._loop.close()


class Hand:
    """A thread that acquires, holds until it is told to let go, and releases."""

    def __init__(self, hold: Any, name: str, **options: Any) -> None:
        self._hold = hold
        self._name = name
        self._options = options
        self.lease: Any = None
        self.error: BaseException | None = None
        self._go = threading.Event()
        self.released: Future[bool] = Future()
        self._start()

    def _start(self) -> None:
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self) -> None:
        try:
            self.lease = self._hold.lock(self._name, **self._options).acquire()
            if self.lease is None:
                self.released.set_result(False)
                return
            self._go.wait(2 * PATIENCE)  # for longer than a test waits for somebody else to get it
            self.released.set_result(self.lease.release())
        except BaseException as error:
            self.error = error
            self.released.set_exception(error)

    def has_it(self) -> Any:
        """Wait until it holds, and return its lease."""
        until(lambda: self.lease is not None or self.error is not None, "it holds")
        if self.error is not None:
            raise self.error
        return self.lease

    def let_go(self) -> bool:
        """Release it, and say whether it was ours until then."""
        self._go.set()
        return self.released.result(PATIENCE)

    def end(self) -> None:
        """Whatever it does, it ends."""
        self._go.set()
        self.thread.join(PATIENCE)


class TaskHand(Hand):
    """A task that does the same."""

    def __init__(self, loop: Loop, hold: Any, name: str, **options: Any) -> None:
        self._loop = loop
        super().__init__(hold, name, **options)

    def _start(self) -> None:
        self._task = self._loop.start(self._live())

    async def _live(self) -> None:
        try:
            self.lease = await self._hold.lock(self._name, **self._options).acquire()
            if self.lease is None:
                self.released.set_result(False)
                return
            await until_async(self._go.is_set, "it may let go")
            self.released.set_result(await self.lease.release())
        except BaseException as error:
            self.error = error
            self.released.set_exception(error)

    def end(self) -> None:
        """Whatever it does, it ends."""
        self._go.set()
        self._task.result(PATIENCE)


class Crew:
    """Hands that come one after the other: each stands in its place before the next one comes. They are tasks of the
    loop if there is one, else threads."""

    def __init__(
        self, hold: Any, name: str = "job", alike: bool = True, loop: Loop | None = None, **options: Any
    ) -> None:
        self._alike = alike  # they can pass a lease to each other
        self._loop = loop
        self._hold = hold
        self._name = name
        self._options = options
        self.hands: list[Hand] = []

    def come(self, count: int = 1, **options: Any) -> list[Hand]:
        """So many more; all that are new wait."""
        for _ in range(count):
            before = waiting(self._hold._engine.store, self._name)
            self.hands.append(self._hand({**self._options, **options}))
            until(lambda: waiting(self._hold._engine.store, self._name) == before + 1, "it waits")  # noqa: B023 # called here
            if not before:  # whoever comes before the first one leads would claim for itself
                until(lambda: self._hold._engine.cohorts or not self._alike, "it leads")
        return self.hands[-count:]

    def one_more(self) -> Hand:
        """It comes, and need not stand in its place yet."""
        self.hands.append(self._hand(self._options))
        return self.hands[-1]

    def _hand(self, options: dict[str, Any]) -> Hand:
        if self._loop is None:
            return Hand(self._hold, self._name, **options)
        return TaskHand(self._loop, self._hold, self._name, **options)

    def end(self) -> None:
        """All of them."""
        for hand in self.hands:
            hand.end()
