"""A function that somebody decorates: which parameters it has, what a call gives them, and how the outcome is dressed.

Shared by ``hold.locked`` and by the patterns that decorate.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable
from types import CoroutineType

from leasehold._core.light_typing import Any
from leasehold.errors import InvalidRequest

Function = Callable[..., Any]


class DecoratedFunction:
    """What every call of one decorated function needs: the values of the parameters that templates name.

    ``names`` are those of the templates. ``filled`` is a keyword-only parameter that the decorator fills in, and that
    callers do not see."""

    __slots__ = ("_more", "filled", "function", "signature")

    def __init__(self, function: Function, names: Iterable[str], filled: str | None = None) -> None:
        self.function = function
        self.filled = filled
        self.signature: inspect.Signature | None = None
        self._more = ""  # the name of **kwargs, if there is one
        needed = list(names)
        if needed or filled is not None:
            self.signature = _without(_signature(function), filled)
            self._check_names(needed, self.signature.parameters)

    def _check_names(self, names: list[str], parameters: Any) -> None:
        self._more = next((one.name for one in parameters.values() if one.kind is one.VAR_KEYWORD), "")
        unknown = [name for name in names if name not in parameters and (not self._more or name == self.filled)]
        if unknown:
            known = ", ".join(parameters) or "none"
            raise InvalidRequest(f"{{{unknown[0]}}} is no parameter of {name_of(self.function)}(); there is: {known}")

    def values(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        """What this call gives each parameter, defaults too. Wrong arguments are a TypeError, as ever."""
        if self.signature is None:
            return {}
        if self.filled in kwargs:
            raise TypeError(f"{name_of(self.function)}() gets {self.filled!r} from its lock, not from its caller")
        try:
            bound = self.signature.bind(*args, **kwargs)
        except TypeError as error:
            raise TypeError(f"{name_of(self.function)}(): {error}") from None
        bound.apply_defaults()
        return {**bound.arguments.get(self._more, {}), **bound.arguments}

    def dress(self, run: Function) -> Function:
        """``run`` with name, document and signature of the function, as ``functools.wraps`` does it; a partial has
        those of its own."""
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
    """A kind of function that would not run inside what decorates it is refused: it only looks protected."""
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
    """A function that only looks plain: the lock would be given back before its work begins."""
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
    """What callers see: without the parameter that is filled in."""
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
