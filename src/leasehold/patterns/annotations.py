"""What a function returns, by its annotation: which classes can be in it, and whether all of them can be kept.

It is looked at when the function is decorated, so that nothing has run when something is wrong. An annotation that
names what is defined further down in its module is looked at before the first call.
"""

from __future__ import annotations

import functools
import inspect
import types
import typing
from collections.abc import Callable, Mapping
from typing import Any

from leasehold._runtime.sync import calling_frame
from leasehold.errors import InvalidRequest
from leasehold.patterns.hints import NOT_YET, AnnotationWalk, NotStorable
from leasehold.patterns.scope import Scope
from leasehold.patterns.values import Codec, format_of, type_names
from leasehold.primitives.decorated_function import name_of


class ReturnCodec:
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
        raw, module, inner = _annotation(self._function)
        holder = types.SimpleNamespace(__annotations__={"return": raw})
        local = {**around, **inner}
        try:
            hint = typing.get_type_hints(holder, module, local)["return"]
            found = AnnotationWalk(module, local)
            found.visit(hint)
        except NotStorable as error:
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
        names = type_names(found.classes)
        kinds = {cls: format_of(cls, name) for cls, name in names.items()}
        return Codec({cls: kind for cls, kind in kinds.items() if kind is not None}, Scope(module, local).find)


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
    frame = calling_frame()
    return {} if frame is None or frame.f_locals is frame.f_globals else frame.f_locals
