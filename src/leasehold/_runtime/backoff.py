"""Backoff: bounded, jittered retry as a value. It knows nothing about locks, only which errors are worth a retry."""

from __future__ import annotations

import os
import time
from collections.abc import Awaitable, Callable, Iterator
from types import CoroutineType

from leasehold._core.durations import seconds
from leasehold._core.light_typing import TYPE_CHECKING, Any, NoReturn, TypeAlias, TypeVar
from leasehold.errors import InvalidRequest, NotAcquired, StoreUnavailable

if TYPE_CHECKING:
    from leasehold._core.durations import Duration

R = TypeVar("R")
Errors: TypeAlias = type[Exception] | tuple[type[Exception], ...]

LONGEST = 24 * 3600.0
MOST_ATTEMPTS = 10_000  # more is no retry with an end, but a loop
PASSING: Errors = (NotAcquired, StoreUnavailable)  # nothing was taken, and the next try may succeed


class Backoff:
    """How often to try and how long to pause between tries; never changed, so one value serves many callers.

    ``attempts`` tries have ``attempts - 1`` pauses between them. Pause number n, counted from 0, is drawn from
    [s/2, s] where s is ``base * 2**n``, at most ``cap``. Iterating gives the pauses, drawn anew each time.

    The pauses do not follow an error's ``.retry_in``. That is the latest moment at which a try is worth it: a release
    comes sooner as a rule, and if all who were refused came back at that very moment, all but one would be refused
    again.

    >>> import leasehold
    >>> retry = leasehold.Backoff(base="50ms", cap=2, attempts=5)
    >>> len(list(retry))
    4
    >>> retry.call(lambda: "done")
    'done'
    """

    __slots__ = {
        "attempts": "How many tries.",
        "base": "The longest first pause, in seconds.",
        "cap": "The longest pause of all, in seconds.",
    }

    base: float
    cap: float
    attempts: int

    def __init__(self, base: Duration = 0.05, cap: Duration = 2, attempts: int = 5) -> None:
        object.__setattr__(self, "base", _pause(base, "base"))
        object.__setattr__(self, "cap", _pause(cap, "cap"))
        object.__setattr__(self, "attempts", _tries(attempts))

    def __iter__(self) -> Iterator[float]:
        step = min(self.base, self.cap)
        for _ in range(self.attempts - 1):
            yield jittered(step)
            step = min(step * 2, self.cap)

    def call(self, function: Callable[[], R], *, on: Errors = PASSING) -> R:
        """What ``function()`` returns, tried again after the errors in ``on``; the error of the last try is raised."""
        _check_errors(on)
        for pause in self:
            try:
                return _not_a_coroutine(function())
            except on:
                pass
            time.sleep(pause)
        return _not_a_coroutine(function())

    async def acall(self, function: Callable[[], Awaitable[R]], *, on: Errors = PASSING) -> R:
        """The same for a coroutine function: awaits ``function()``, and sleeps without blocking the loop."""
        import asyncio  # loaded only where it is used

        _check_errors(on)
        for pause in self:
            try:
                return await function()
            except on:
                pass
            await asyncio.sleep(pause)
        return await function()

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError("a Backoff is never changed: make another one")

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError("a Backoff is never changed: make another one")

    def _values(self) -> tuple[float, float, int]:
        return (self.base, self.cap, self.attempts)

    def __eq__(self, other: object) -> bool:
        return self._values() == other._values() if isinstance(other, Backoff) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._values())

    def __repr__(self) -> str:
        return f"Backoff(base={self.base:g}, cap={self.cap:g}, attempts={self.attempts})"

    def __reduce__(self) -> tuple[Any, ...]:
        return (type(self), self._values())


def _pause(value: object, what: str) -> float:
    number = round(seconds(value, what), 9)  # so that "700ms", which is 0.7000000000000001, equals 0.7
    if not 0 < number <= LONGEST:
        raise InvalidRequest(f"{what} must be above zero and at most 24 h")
    return number


def _tries(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise InvalidRequest(f"attempts must be an int, not {type(value).__name__}")
    if not 1 <= value <= MOST_ATTEMPTS:
        raise InvalidRequest(f"attempts must be between 1 and {MOST_ATTEMPTS}")
    return int(value)


def jittered(longest: float) -> float:
    """A pause drawn from [longest/2, longest]. Not by ``random``: workers that seed it alike would all pause alike."""
    return longest / 2 * (1 + int.from_bytes(os.urandom(7), "big") / (2**56 - 1))


def _check_errors(on: object) -> None:
    """Cancellation and interrupts are no errors to retry: they must end the loop at once."""
    several = on if isinstance(on, tuple) else (on,)
    if not several or not all(isinstance(one, type) and issubclass(one, Exception) for one in several):
        raise InvalidRequest("on takes an error class or a tuple of them, each an Exception")


def _not_a_coroutine(result: R) -> R:
    """A coroutine's errors would be raised at its await, after the retries."""
    if isinstance(result, CoroutineType):
        result.close()
        raise InvalidRequest("call() got a coroutine in place of a result: await acall() with this function")
    return result
