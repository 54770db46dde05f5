"""What a function returns, by its annotation: which classes can be in it, and whether all of them can be kept.

It is looked at when the function is decorated, so that nothing has run when something is wrong. An annotation that
names what is defined further down in its module is looked at before the first call.
"""

from __future__ import annotations

import functools
import inspect
import sys
import types
import typing
from collections.abc import Callable, Collection, Mapping, MutableMapping, MutableSequence, MutableSet, Sequence, Set
from pathlib import Path, PurePath
from typing import Any

from leasehold.errors import InvalidRequest
from leasehold.patterns.classes import kind_of, parts_of
from leasehold.patterns.values import KNOWN, PLAIN, Codec, named
from leasehold.primitives.called import name_of

NOT_YET = (NameError, AttributeError)  # the latter: a module that is only half imported
ANYTHING = (Any, object, None, ..., typing.Never, typing.NoReturn, typing.LiteralString)
ABSTRACT = (Collection, Mapping, MutableMapping, MutableSequence, MutableSet, Sequence, Set, Path, PurePath)
ALWAYS = frozenset((*PLAIN, *KNOWN, *ABSTRACT, list))
UNIONS = (typing.Union, types.UnionType)


class Returned:
    """The Codec for what one function returns."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        self._codec: Codec | None = None
        try:
            self._codec = self._found(_locals_around())
        except NOT_YET:
            pass  # perhaps before the first call

    def codec(self) -> Codec:
        """Asked for before the function runs. InvalidRequest: its annotation says what nobody knows."""
        if self._codec is None:
            try:
                self._codec = self._found({})
            except NOT_YET as error:
                raise InvalidRequest(
                    f"the return annotation of {name_of(self._function)}() cannot be resolved ({error}): import what "
                    "it names at run time, and not only for type checkers, or give a serializer="
                ) from error
        return self._codec

    def _found(self, around: Mapping[str, Any]) -> Codec:
        raw, scope, inner = _annotation(self._function)
        holder = types.SimpleNamespace(__annotations__={"return": raw})
        local = {**around, **inner}
        try:
            hint = typing.get_type_hints(holder, scope, local)["return"]
            found = Walk(local)
            found.visit(hint)
        except NotKept as error:
            raise InvalidRequest(
                f"the result of {name_of(self._function)}() cannot be kept: its return annotation has {error}. "
                "Annotate what it really returns: types of the standard library, dataclasses, NamedTuples, enums, "
                "TypedDicts, models of Pydantic's, and lists, dicts, tuples and sets of them; or give a serializer= "
                "that can write it"
            ) from None
        except (TypeError, SyntaxError) as error:
            raise InvalidRequest(
                f"the return annotation of {name_of(self._function)}() cannot be read: {error}"
            ) from error
        names = named(found.classes)
        kinds = {cls: kind_of(cls, name) for cls, name in names.items()}
        return Codec({cls: kind for cls, kind in kinds.items() if kind is not None})


class NotKept(Exception):
    """Says which part."""


class Walk:
    """Through an annotation, and the annotations of the classes in it."""

    def __init__(self, local: Mapping[str, Any]) -> None:
        self._local = dict(local)
        self._seen: set[int] = set()
        self._kept: list[Any] = []  # so that no id in ``_seen`` is used twice
        self.classes: list[type] = []

    def visit(self, hint: Any) -> None:
        """Raises NotKept, or one of NOT_YET."""
        if id(hint) in self._seen or any(hint is one for one in ANYTHING):
            return
        self._seen.add(id(hint))
        self._kept.append(hint)
        origin = typing.get_origin(hint)
        if origin is typing.Literal:
            self._each(type(one) for one in typing.get_args(hint))
        elif origin in UNIONS:
            self._each(typing.get_args(hint))
        elif origin is not None:
            self._each((origin, *typing.get_args(hint)))
        elif isinstance(hint, type):
            self._class(hint)
        else:
            self._special(hint)

    def _each(self, hints: typing.Iterable[Any]) -> None:
        for hint in hints:
            self.visit(hint)

    def _special(self, hint: Any) -> None:
        """A type variable, a NewType, or a name for another type."""
        if isinstance(hint, typing.TypeVar):
            self._each(hint.__constraints__ or (hint.__bound__,))
        elif isinstance(hint, typing.NewType):
            self.visit(hint.__supertype__)
        elif hasattr(hint, "__value__"):  # type Name = ..., from Python 3.12 on
            self.visit(hint.__value__)
        elif isinstance(hint, typing.ForwardRef):
            raise NameError(f"name {hint.__forward_arg__!r} is not defined")
        else:
            raise NotKept(str(hint))

    def _class(self, cls: type) -> None:
        if cls in ALWAYS:
            return
        if not typing.is_typeddict(cls):
            if kind_of(cls) is None:
                raise NotKept(f"{cls.__module__}.{cls.__qualname__}")
            self.classes.append(cls)
        parts = parts_of(cls)
        hints = self._hints(cls) if parts else {}
        for part in parts:
            try:
                self.visit(hints.get(part, Any))
            except NotKept as error:
                raise NotKept(f"{error} ({cls.__name__}.{part})") from None

    def _hints(self, cls: type) -> dict[str, Any]:
        """By its module; and where it is a class inside of a function, by what can be seen there."""
        try:
            return typing.get_type_hints(cls)
        except NameError:
            return typing.get_type_hints(cls, localns={**self._local, cls.__name__: cls})


def _annotation(function: Any) -> tuple[Any, dict[str, Any], dict[str, Any]]:
    """The annotation as it was written, and the names that it can use: of the module, and from around the function.
    Without one anything may come."""
    while isinstance(function, functools.partial):
        function = function.func
    raw = getattr(function, "__annotations__", {}).get("return", Any)
    inner = inspect.unwrap(function)
    names = getattr(getattr(inner, "__code__", None), "co_freevars", ())
    around = {}
    for name, cell in zip(names, getattr(inner, "__closure__", None) or (), strict=False):
        try:
            around[name] = cell.cell_contents
        except ValueError:  # not defined yet
            continue
    return raw, getattr(inner, "__globals__", {}), around


def _locals_around() -> Mapping[str, Any]:
    """What can be seen where the user decorates: a class inside of a function is not in any module."""
    frame: types.FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_globals.get("__name__", "").partition(".")[0] == "leasehold":
        frame = frame.f_back
    return {} if frame is None or frame.f_locals is frame.f_globals else frame.f_locals
