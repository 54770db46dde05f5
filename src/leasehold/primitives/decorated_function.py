"""Decorated functions: ``hold.locked``, and what every pattern that decorates shares with it.

Loaded at the first use: it needs ``inspect``, which is slow to load. A call of a function that ``hold.locked``
decorates enters the lock with the same ``with`` or ``async with`` that a program would write, so that loss,
cancellation and interrupts have the same effect.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Sequence
from contextvars import ContextVar
from enum import Enum
from types import CoroutineType

from leasehold._core.light_typing import Any, Final, Literal
from leasehold._core.templates import NameTemplate
from leasehold.errors import InvalidRequest, NotAcquired
from leasehold.primitives.lock import AsyncLock, Lock

Function = Callable[..., Any]


class DecoratedFunction:
    """The values that each call of one decorated function has for the parameters that templates name.

    ``names`` are those of the templates. ``filled`` is a keyword-only parameter that the decorator fills in, and that
    callers do not see."""

    __slots__ = ("_keywords", "filled", "function", "signature")

    def __init__(self, function: Function, names: Iterable[str], filled: str | None = None) -> None:
        self.function = function
        self.filled = filled
        self.signature: inspect.Signature | None = None
        self._keywords = ""  # the name of the **kwargs parameter, if there is one
        needed = list(names)
        if needed or filled is not None:
            self.signature = _without(_signature(function), filled)
            self._check_names(needed, self.signature.parameters)

    def _check_names(self, names: list[str], parameters: Any) -> None:
        self._keywords = next((one.name for one in parameters.values() if one.kind is one.VAR_KEYWORD), "")
        unknown = [name for name in names if name not in parameters and (not self._keywords or name == self.filled)]
        if unknown:
            known = ", ".join(parameters) or "none"
            raise InvalidRequest(f"{{{unknown[0]}}} is no parameter of {name_of(self.function)}(); there is: {known}")

    def values(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        """The value of each parameter in this call, including defaults. Wrong arguments are a TypeError, as in any
        call."""
        if self.signature is None:
            return {}
        if self.filled in kwargs:
            raise TypeError(f"{name_of(self.function)}() gets {self.filled!r} from its lock, not from its caller")
        try:
            bound = self.signature.bind(*args, **kwargs)
        except TypeError as error:
            raise TypeError(f"{name_of(self.function)}(): {error}") from None
        bound.apply_defaults()
        return {**bound.arguments.get(self._keywords, {}), **bound.arguments}

    def dress(self, run: Function) -> Function:
        """``run`` with the name, docstring and signature of the function, as with ``functools.wraps``; a partial has
        those of its function."""
        named = self.function
        while isinstance(named, functools.partial):
            named = named.func
        functools.update_wrapper(run, named)
        run.__wrapped__ = self.function  # type: ignore[attr-defined] # what update_wrapper sets too
        if self.filled is not None:
            hints = getattr(run, "__annotations__", {})
            run.__annotations__ = {name: hint for name, hint in hints.items() if name != self.filled}
            run.__signature__ = self.signature  # type: ignore[attr-defined] # what inspect looks for
        return run


def check_function(function: object, asynchronous: bool, decorator: str) -> None:
    """Refuse a kind of function whose body would run outside the lock: it would only look protected."""
    wrapped = isinstance(function, (staticmethod, classmethod))
    if wrapped or not (inspect.isroutine(function) or isinstance(function, functools.partial)):
        raise InvalidRequest(
            f"{decorator}() decorates a function or a method, not {type(function).__name__}: write it directly above "
            "the def, below @staticmethod, @classmethod, @property and the like"
        )
    name = name_of(function)
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise InvalidRequest(
            f"{name}() is a generator function: a call only makes the generator, and its body would run after the lock "
            "is given back; take the lock inside it"
        )
    if inspect.iscoroutinefunction(function) and not asynchronous:
        raise InvalidRequest(f"{name}() is a coroutine function: decorate it with a coordinator of leasehold.aio")
    if not inspect.iscoroutinefunction(function) and asynchronous:
        raise InvalidRequest(f"{name}() is no coroutine function: make it async def, or use leasehold.connect()")


def not_a_coroutine(result: Any) -> Any:
    """Refuse the result of a plain function that returns a coroutine: the lock would be released before its work
    begins."""
    if isinstance(result, CoroutineType):
        result.close()
        raise InvalidRequest("the decorated function returned a coroutine: use a coordinator of leasehold.aio for it")
    return result


def check_kind(kind: object) -> None:
    if isinstance(kind, str) and "{" in kind:
        raise InvalidRequest("the kind takes no fields: it is a label of few values; what varies is an id, after it")


def name_of(function: Any) -> str:
    return getattr(function, "__qualname__", None) or type(function).__name__


def _signature(function: Function) -> inspect.Signature:
    try:
        return inspect.signature(function)
    except (TypeError, ValueError):
        raise InvalidRequest(f"the parameters of {name_of(function)}() are not known: wrap it in a def") from None


def _without(signature: inspect.Signature, filled: str | None) -> inspect.Signature:
    """The signature that callers see: without the parameter that is filled in."""
    if filled is None:
        return signature
    parameters = dict(signature.parameters)
    lease = parameters.pop(filled, None)
    if lease is None or lease.kind is not lease.KEYWORD_ONLY:
        raise InvalidRequest(
            'lease_as names a keyword-only parameter of the function: lease_as="lease" for def export(id, *, lease)'
        )
    return signature.replace(parameters=list(parameters.values()))


def check_filled(filled: object) -> None:
    if filled is not None and not isinstance(filled, str):
        raise InvalidRequest(f"lease_as is the name of a parameter, not {type(filled).__name__}")


# ---------------------------------------------------------------- skipped
#
# SKIPPED: what a decorated function returns when the lock is busy and ``on_busy`` is ``"skip"``.


_retry_in: ContextVar[float | None] = ContextVar("leasehold_skipped_retry_in")
_last_retry_in: float | None = None


class Skipped(Enum):  # an Enum of one: type checkers narrow `result is SKIPPED`, and pickle and copy give itself
    """The type of :data:`leasehold.SKIPPED`, for annotations. There is one instance, and it is falsy.

    >>> import leasehold
    >>> leasehold.SKIPPED, bool(leasehold.SKIPPED)
    (SKIPPED, False)
    """

    SKIPPED = "SKIPPED"

    @property
    def retry_in(self) -> float | None:
        """The ``retry_in`` of NotAcquired, in seconds, for the last call that was skipped in this thread or task; where
        none was, for the last one of the whole process. None before any."""
        return _retry_in.get(_last_retry_in)

    def __bool__(self) -> Literal[False]:
        return False

    def __repr__(self) -> str:
        return "SKIPPED"

    __str__ = __repr__


SKIPPED: Final = Skipped.SKIPPED


def skip(retry_in: float | None) -> Skipped:
    """Skip a call in this thread or task."""
    global _last_retry_in
    _last_retry_in = retry_in
    _retry_in.set(retry_in)
    return SKIPPED


# ---------------------------------------------------------------- locked


ON_BUSY = ("raise", "skip", "wait")


def default_wait(kind: object, on_busy: object) -> dict[str, Any]:
    """The default of ``wait``: one try, unless ``on_busy`` is to wait. Checked before a lock is made."""
    if not isinstance(on_busy, str) or on_busy not in ON_BUSY:
        raise InvalidRequest('on_busy must be "raise", "skip" or "wait"')
    check_kind(kind)
    return {} if on_busy == "wait" else {"wait": 0}


def decorator(
    make: Callable[..., Any], ids: Sequence[object], on_busy: str, lease_as: str | None, asynchronous: bool
) -> Callable[[Function], Function]:
    """The decorator that ``hold.locked`` returns. ``make`` gives the lock for the ids of a call."""
    check_filled(lease_as)
    template = NameTemplate(ids)
    if not template.names:
        make(*template.ids({}))  # a wrong name is reported now where it is known

    def decorate(function: Function) -> Function:
        check_function(function, asynchronous, "locked")
        decorated = DecoratedFunction(function, template.names, lease_as)

        def lock(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            return make(*template.ids(decorated.values(args, kwargs)))

        run = _run_on_loop if asynchronous else _run_on_thread
        return decorated.dress(run(function, lock, lease_as, on_busy == "skip"))

    return decorate


def _run_on_thread(function: Function, lock_of: Function, lease_as: str | None, skips: bool) -> Function:
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
            if inside or not skips:  # the body raised it
                raise
            return skip(busy.retry_in)

    return run


def _run_on_loop(function: Function, lock_of: Function, lease_as: str | None, skips: bool) -> Function:
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
