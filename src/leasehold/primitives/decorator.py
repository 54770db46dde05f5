"""The decorator: a function whose every call runs under a lock, named from the arguments of the call.

Loaded at the first ``hold.locked``: it needs ``inspect``, which is slow to load. A call enters the lock with the same
``with`` or ``async with`` that people write, so that loss, cancellation and interrupts come out in the same way.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextvars import ContextVar
from enum import Enum

from leasehold._core.light_typing import Any, Final, Literal
from leasehold._core.templates import Template
from leasehold.errors import InvalidRequest, NotAcquired
from leasehold.primitives.decorated_function import (
    DecoratedFunction,
    Function,
    check_filled,
    check_function,
    check_kind,
    not_a_coroutine,
)
from leasehold.primitives.lock import AsyncLock, Lock

# ---------------------------------------------------------------- skipped
#
# SKIPPED: what a decorated function returns when somebody else was at it and ``on_busy`` is ``"skip"``.


_here: ContextVar[float | None] = ContextVar("leasehold_skipped_retry_in")
_anywhere: float | None = None


class Skipped(Enum):  # an Enum of one: type checkers narrow `result is SKIPPED`, and pickle and copy give itself
    """The type of :data:`leasehold.SKIPPED`, for annotations. There is one instance, and it is falsy.

    >>> import leasehold
    >>> leasehold.SKIPPED, bool(leasehold.SKIPPED)
    (SKIPPED, False)
    """

    SKIPPED = "SKIPPED"

    @property
    def retry_in(self) -> float | None:
        """In how many seconds a try is worth it at the latest, as in NotAcquired: of the last call that was skipped in
        this thread or task; where none was, the last of the whole process. None before any."""
        return _here.get(_anywhere)

    def __bool__(self) -> Literal[False]:
        return False

    def __repr__(self) -> str:
        return "SKIPPED"

    __str__ = __repr__


SKIPPED: Final = Skipped.SKIPPED


def skip(retry_in: float | None) -> Skipped:
    """A call is skipped now, in this thread or task."""
    global _anywhere
    _anywhere = retry_in
    _here.set(retry_in)
    return SKIPPED


# ---------------------------------------------------------------- locked


ON_BUSY = ("raise", "skip", "wait")


def default_wait(kind: object, on_busy: object) -> dict[str, Any]:
    """One try, unless waiting is what is to be done. Said before a lock is made: what is wrong shows there."""
    if not isinstance(on_busy, str) or on_busy not in ON_BUSY:
        raise InvalidRequest('on_busy must be "raise", "skip" or "wait"')
    check_kind(kind)
    return {} if on_busy == "wait" else {"wait": 0}


def decorator(
    make: Callable[..., Any], templates: Sequence[object], on_busy: str, lease_as: str | None, asynchronous: bool
) -> Callable[[Function], Function]:
    """``make`` gives the lock for the ids of a call; the rest is what ``hold.locked`` was given."""
    check_filled(lease_as)
    parsed = [Template(one) for one in templates]
    names = [name for one in parsed for name in one.names]
    if not names:
        make(*[one.text({}) for one in parsed])  # what is wrong with a name that is known is said now

    def decorate(function: Function) -> Function:
        check_function(function, asynchronous, "locked")
        called = DecoratedFunction(function, names, lease_as)

        def lock(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            values = called.values(args, kwargs)
            return make(*[one.text(values) for one in parsed])

        run = _on_loop if asynchronous else _on_thread
        return called.dress(run(function, lock, lease_as, on_busy == "skip"))

    return decorate


def _on_thread(function: Function, lock_of: Function, lease_as: str | None, skips: bool) -> Function:
    def run(*args: Any, **kwargs: Any) -> Any:
        lock: Lock = lock_of(args, kwargs)
        inside = False
        try:
            with lock as lease:
                inside = True
                if lease_as is not None:
                    kwargs[lease_as] = lease
                return not_a_coroutine(function(*args, **kwargs))
        except NotAcquired as busy:
            if inside or not skips:  # one that the body raised is the body's
                raise
            return skip(busy.retry_in)

    return run


def _on_loop(function: Function, lock_of: Function, lease_as: str | None, skips: bool) -> Function:
    async def run(*args: Any, **kwargs: Any) -> Any:
        lock: AsyncLock = lock_of(args, kwargs)
        inside = False
        try:
            async with lock as lease:
                inside = True
                if lease_as is not None:
                    kwargs[lease_as] = lease
                return await function(*args, **kwargs)
        except NotAcquired as busy:
            if inside or not skips:
                raise
            return skip(busy.retry_in)

    return run
