"""Users of a lock as the first page shows it: default options, no observers, ``hold.lock(...)`` made anew each time.

Faults are injected into what such a user does. A test that made its lock in another way might never come near the code
that everybody runs.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Coroutine
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple, Protocol

import leasehold
from leasehold import LeaseholdError
from tests.support.waiting import PATIENCE

TTL = 600.0  # seconds: no lease expires during a test, so nothing that stays behind is hidden by expiry
KIND = "fault"
INJECTED = (KeyboardInterrupt, asyncio.CancelledError)
Body = Callable[[Any], Any]
OFTEN = 3  # uses of one name, after which it is known wherever names are remembered


class Use(NamedTuple):
    """One use of a lock: the fences with which its body was entered, and what it raised. The exception itself is not
    kept: its frames would keep the lease alive."""

    number: int
    fences: list[int]
    raised: type[BaseException] | None = None

    @property
    def resource(self) -> str:
        """The name of what was locked."""
        return f"{KIND}:{self.number}"


class User(Protocol):
    """A thread or a task with a coordinator of its own."""

    hold: Any

    def use(self, number: int, around: AbstractContextManager[Any] = ..., body: Body | None = None) -> Use:
        """``with hold.lock("fault", number, ttl=TTL)``, inside ``around``; ``body`` is called with the lease."""
        ...

    def close(self) -> None:
        """The program ends."""
        ...


def familiar(user: Any, number: int) -> int:
    """The number, used before: most names are. What is kept of a name makes its next use quicker, on another path."""
    for _ in range(OFTEN):
        assert user.use(number).raised is None
    return number


class ThreadUser:
    """The calling thread."""

    def __init__(self, url: str) -> None:
        self.hold = leasehold.connect(url)

    def use(self, number: int, around: AbstractContextManager[Any] | None = None, body: Body | None = None) -> Use:
        """See ``User``."""
        fences: list[int] = []
        raised = None
        try:
            with around or nullcontext(), self.hold.lock(KIND, number, ttl=TTL) as lease:
                fences.append(lease.fence)
                if body is not None:
                    body(lease)
        except (LeaseholdError, *INJECTED) as error:
            raised = type(error)
        return Use(number, fences, raised)

    def close(self) -> None:
        """Close the coordinator."""
        self.hold.close()


class LoopUser:
    """A task, on a loop that runs only while it is used."""

    def __init__(self, url: str) -> None:
        self.hold = leasehold.aio.connect(url)
        self.loop = asyncio.new_event_loop()

    def use(
        self,
        number: int,
        around: AbstractContextManager[Any] | None = None,
        body: Body | None = None,
        wrap: Callable[[Coroutine[Any, Any, None]], Coroutine[Any, Any, None]] | None = None,
    ) -> Use:
        """See ``User``; ``wrap`` may put something around the coroutine of the task."""
        fences: list[int] = []
        entering = self._enter(number, fences, body)
        task = self.loop.create_task(entering if wrap is None else wrap(entering))
        try:
            with around or nullcontext():
                self.loop.run_until_complete(task)
        except (LeaseholdError, *INJECTED):
            pass
        while not task.done():  # the interrupt hit the loop, or another task that this one waits for: it goes on
            self._finish(task)
        self.loop.run_until_complete(asyncio.sleep(0))  # the loop drops the task, too
        return Use(number, fences, _raised(task))

    async def together(self, numbers: list[int], body: Body) -> None:
        """Several tasks at once."""
        await asyncio.gather(*(self._enter(number, [], body) for number in numbers))

    def _finish(self, task: asyncio.Task[None]) -> None:
        try:
            done, _ = self.loop.run_until_complete(asyncio.wait([task], timeout=PATIENCE))
            assert done, "the task never ends"
        except INJECTED:
            pass

    async def _enter(self, number: int, fences: list[int], body: Body | None) -> None:
        async with self.hold.lock(KIND, number, ttl=TTL) as lease:
            fences.append(lease.fence)
            result = body(lease) if body is not None else None
            if inspect.isawaitable(result):
                await result

    def close(self) -> None:
        """Close the coordinator and its loop."""
        self.loop.run_until_complete(self.hold.close())
        self.loop.run_until_complete(self.loop.shutdown_asyncgens())
        self.loop.run_until_complete(self.loop.shutdown_default_executor())
        self.loop.close()


def _raised(task: asyncio.Task[None]) -> type[BaseException] | None:
    """What the task raised, without its frames, which would keep the lease alive."""
    if task.cancelled():
        return asyncio.CancelledError
    error = task.exception()
    if error is None:
        return None
    assert isinstance(error, (LeaseholdError, *INJECTED)), error
    error.__traceback__ = error.__context__ = None
    return type(error)


USERS: dict[str, Callable[[str], User]] = {"sync": ThreadUser, "asyncio": LoopUser}
