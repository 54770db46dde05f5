"""The decorator: a function whose every call runs under a lock, named from the arguments of the call.

Loaded at the first ``hold.locked``: it needs ``inspect``, which is slow to load. A call enters the lock with the same
``with`` or ``async with`` that people write, so that loss, cancellation and interrupts come out in the same way.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from types import CoroutineType

from leasehold.core.templates import Template
from leasehold.core.typed import Any
from leasehold.errors import InvalidRequest, NotAcquired
from leasehold.primitives.lock import AsyncLock, Lock
from leasehold.primitives.skipped import skip

ON_BUSY = ("raise", "skip", "wait")
Function = Callable[..., Any]


def default_wait(kind: object, on_busy: object) -> dict[str, Any]:
    """One try, unless waiting is what is to be done. Said before a lock is made: what is wrong shows there."""
    if not isinstance(on_busy, str) or on_busy not in ON_BUSY:
        raise InvalidRequest('on_busy must be "raise", "skip" or "wait"')
    if isinstance(kind, str) and "{" in kind:
        raise InvalidRequest("the kind takes no fields: it is a label of few values; what varies is an id, after it")
    return {} if on_busy == "wait" else {"wait": 0}


def decorator(
    make: Callable[..., Any], templates: Sequence[object], on_busy: str, lease_as: str | None, asynchronous: bool
) -> Callable[[Function], Function]:
    """``make`` gives the lock for the ids of a call; the rest is what ``hold.locked`` was given."""
    _check_lease_as(lease_as)
    parsed = [Template(one) for one in templates]
    if not any(one.names for one in parsed):
        make(*[one.text({}) for one in parsed])  # what is wrong with a name that is known is said now

    def decorate(function: Function) -> Function:
        _check_function(function, asynchronous)
        call = Call(function, make, parsed, lease_as)
        run = _on_loop(call, on_busy == "skip") if asynchronous else _on_thread(call, on_busy == "skip")
        return _dress(run, function, call)

    return decorate


class Call:
    """What every call of one decorated function needs: its lock, and whether it is handed the lease."""

    __slots__ = ("_make", "_more", "_templates", "function", "lease_as", "signature")

    def __init__(
        self, function: Function, make: Callable[..., Any], templates: list[Template], lease_as: str | None
    ) -> None:
        self.function = function
        self.lease_as = lease_as
        self.signature: inspect.Signature | None = None
        self._make = make
        self._more = ""  # the name of **kwargs, if there is one
        self._templates = templates
        names = [name for one in templates for name in one.names]
        if names or lease_as is not None:
            self.signature = _without(_signature(function), lease_as)
            self._check_names(names, self.signature.parameters)

    def _check_names(self, names: list[str], parameters: Any) -> None:
        self._more = next((one.name for one in parameters.values() if one.kind is one.VAR_KEYWORD), "")
        unknown = [name for name in names if name not in parameters and (not self._more or name == self.lease_as)]
        if unknown:
            known = ", ".join(parameters) or "none"
            raise InvalidRequest(f"{{{unknown[0]}}} is no parameter of {_name(self.function)}(); there is: {known}")

    def lock(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The lock that this call runs under. Wrong arguments are a TypeError, as ever."""
        values: dict[str, Any] = {}
        if self.signature is not None:
            if self.lease_as in kwargs:
                raise TypeError(f"{_name(self.function)}() gets {self.lease_as!r} from its lock, not from its caller")
            try:
                bound = self.signature.bind(*args, **kwargs)
            except TypeError as error:
                raise TypeError(f"{_name(self.function)}(): {error}") from None
            bound.apply_defaults()
            values = {**bound.arguments.get(self._more, {}), **bound.arguments}
        return self._make(*[one.text(values) for one in self._templates])


def _on_thread(call: Call, skips: bool) -> Function:
    function, lease_as = call.function, call.lease_as

    def run(*args: Any, **kwargs: Any) -> Any:
        lock: Lock = call.lock(args, kwargs)
        inside = False
        try:
            with lock as lease:
                inside = True
                if lease_as is not None:
                    kwargs[lease_as] = lease
                return _not_a_coroutine(function(*args, **kwargs))
        except NotAcquired as busy:
            if inside or not skips:  # one that the body raised is the body's
                raise
            return skip(busy.retry_in)

    return run


def _on_loop(call: Call, skips: bool) -> Function:
    function, lease_as = call.function, call.lease_as

    async def run(*args: Any, **kwargs: Any) -> Any:
        lock: AsyncLock = call.lock(args, kwargs)
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


def _dress(run: Function, function: Function, call: Call) -> Function:
    """Name, document and signature of the function, as ``functools.wraps`` does it; a partial has those of its own."""
    named = function
    while isinstance(named, functools.partial):
        named = named.func
    functools.update_wrapper(run, named)
    run.__wrapped__ = function  # type: ignore[attr-defined] # what update_wrapper sets too
    if call.lease_as is not None:
        hints = getattr(run, "__annotations__", {})
        run.__annotations__ = {name: hint for name, hint in hints.items() if name != call.lease_as}
        run.__signature__ = call.signature  # type: ignore[attr-defined] # what inspect looks for
    return run


def _check_function(function: object, asynchronous: bool) -> None:
    """A kind of function that would not run under its lock is refused: it only looks protected."""
    wrapped = isinstance(function, (staticmethod, classmethod))
    if wrapped or not (inspect.isroutine(function) or isinstance(function, functools.partial)):
        raise InvalidRequest(
            f"locked() decorates a function or a method, not {type(function).__name__}: write it directly above the "
            "def, below @staticmethod, @classmethod, @property and the like"
        )
    name = _name(function)
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise InvalidRequest(
            f"{name}() is a generator function: a call only makes the generator, and its body would run after the lock "
            "is given back; take the lock inside it"
        )
    if inspect.iscoroutinefunction(function) and not asynchronous:
        raise InvalidRequest(f"{name}() is a coroutine function: decorate it with a coordinator of leasehold.aio")
    if not inspect.iscoroutinefunction(function) and asynchronous:
        raise InvalidRequest(f"{name}() is no coroutine function: make it async def, or use leasehold.connect()")


def _not_a_coroutine(result: Any) -> Any:
    """A function that only looks plain: the lock would be given back before its work begins."""
    if isinstance(result, CoroutineType):
        result.close()
        raise InvalidRequest("the decorated function returned a coroutine: use a coordinator of leasehold.aio for it")
    return result


def _signature(function: Function) -> inspect.Signature:
    try:
        return inspect.signature(function)
    except (TypeError, ValueError):
        raise InvalidRequest(f"the parameters of {_name(function)}() are not known: wrap it in a def") from None


def _without(signature: inspect.Signature, lease_as: str | None) -> inspect.Signature:
    """What callers see: without the parameter through which the lease comes."""
    if lease_as is None:
        return signature
    parameters = dict(signature.parameters)
    lease = parameters.pop(lease_as, None)
    if lease is None or lease.kind is not lease.KEYWORD_ONLY:
        raise InvalidRequest(
            'lease_as names a keyword-only parameter of the function: lease_as="lease" for def export(id, *, lease)'
        )
    return signature.replace(parameters=list(parameters.values()))


def _check_lease_as(lease_as: object) -> None:
    if lease_as is not None and not isinstance(lease_as, str):
        raise InvalidRequest(f"lease_as is the name of a parameter, not {type(lease_as).__name__}")


def _name(function: Any) -> str:
    return getattr(function, "__qualname__", None) or type(function).__name__
