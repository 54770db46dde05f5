"""One test for threads and asyncio, on every store: calls look the same, and time passes as the store's clock does."""

from __future__ import annotations

import asyncio
import functools
import time
from collections.abc import Callable
from typing import Any

import leasehold
from leasehold import aio
from tests.support.waiting import PATIENCE


class Side:
    """One flavour on one store. ``other()`` is another process, as far as the store can tell."""

    def __init__(self, target: Any, flavour: str, advance: Callable[[float], None]) -> None:
        self._target = target
        self.asynchronous = flavour == "asyncio"
        self._runner = asyncio.Runner() if self.asynchronous else None
        self._opened: list[Any] = []
        self.advance = advance
        self.hold = self.other()

    def other(self, **options: Any) -> Any:
        """Another coordinator on the same store."""
        hold = (aio if self.asynchronous else leasehold).connect(self._target, **options)
        self._opened.append(hold)
        return hold

    def run(self, result: Any) -> Any:
        """What a call gave, awaited where it must be."""
        return self._runner.run(result) if self._runner is not None and asyncio.iscoroutine(result) else result

    def flown(self, function: Callable[..., Any], *ids: Any, hold: Any = None, **options: Any) -> Any:
        """A plain function under single_flight, as plain functions are called; also its forget and refresh."""
        flown = (hold or self.hold).single_flight(*(ids or ("page", "{key}")), **options)(self.fit(function))

        def plainly(call: Callable[..., Any]) -> Callable[..., Any]:
            return lambda *args, **kwargs: self.run(call(*args, **kwargs))

        plain: Any = plainly(flown)
        plain.forget, plain.refresh = plainly(flown.forget), plainly(flown.refresh)
        return plain

    def fit(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The same as a coroutine function, where that is asked for."""
        if not self.asynchronous:
            return function

        @functools.wraps(function)
        async def run(*args: Any, **kwargs: Any) -> Any:
            await asyncio.sleep(0)
            return function(*args, **kwargs)

        return run

    def settle(self, what: Callable[[], Any], text: str) -> None:
        """Until what goes on in the background has come so far."""
        end = time.monotonic() + PATIENCE
        while not what():
            assert time.monotonic() < end, text
            if self._runner is None:
                time.sleep(0.002)
            else:
                self._runner.run(asyncio.sleep(0.002))

    def close(self) -> None:
        """Every coordinator, and the loop."""
        for hold in self._opened:
            self.run(hold.close())
        if self._runner is not None:
            self._runner.close()


class Counted:
    """A function to rebuild with: it counts, and gives or raises what it is told."""

    def __init__(self) -> None:
        self.calls = 0
        self.error: Exception | None = None
        self.gives: Callable[[], Any] = lambda: self.calls

    def __call__(self, key: str) -> Any:
        """One rebuild."""
        self.calls += 1
        if self.error is not None:
            raise self.error
        return self.gives()

    def function(self) -> Callable[[str], Any]:
        """As people write it."""

        def page(key: str) -> Any:
            return self(key)

        return page
