"""Which classes the result of a function can contain, and the Codec that writes and reads them.

``ReturnCodec`` reads the return annotation when a function is decorated, so that a mistake is found before anything has
run. An annotation that names what is defined further down in its module is read before the first call.
``AnnotationWalk`` finds the classes in an annotation and in the annotations of their fields. ``Scope`` finds the
classes that no annotation names.
"""

from __future__ import annotations

import functools
import inspect
import sys
import types
import typing
from collections.abc import (
    Callable,
    Collection,
    Iterable,
    Iterator,
    Mapping,
    MutableMapping,
    MutableSequence,
    MutableSet,
    Sequence,
    Set,
)
from pathlib import Path, PurePath
from typing import Any

from leasehold._runtime.sync import calling_frame
from leasehold.errors import InvalidRequest
from leasehold.patterns.values import (
    PLAIN,
    STANDARD_TYPES,
    Codec,
    TypeFormat,
    field_names,
    format_of,
    is_model,
    is_serializer,
    model_can_write,
    model_field_types,
    type_names,
)
from leasehold.primitives.decorated_function import name_of


class ReturnCodec:
    """The Codec for the results of one function."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        self._codec: Codec | None = None
        try:
            self._codec = self._make_codec(_locals_around())
        except NOT_YET:
            pass  # tried again before the first call

    def codec(self) -> Codec:
        """The Codec, to be called before the function runs. InvalidRequest: the annotation has an unknown name."""
        if self._codec is None:
            try:
                self._codec = self._make_codec({})
            except NOT_YET as error:
                raise InvalidRequest(
                    f"the return annotation of {name_of(self._function)}() cannot be resolved ({error}): import what "
                    "it names at run time, and not only for type checkers, or give a serializer="
                ) from error
        return self._codec

    def _make_codec(self, around: Mapping[str, Any]) -> Codec:
        raw, module, inner = _annotation(self._function)
        holder = types.SimpleNamespace(__annotations__={"return": raw})
        local = {**around, **inner}
        try:
            hint = typing.get_type_hints(holder, module, local)["return"]
            walk = AnnotationWalk(module, local)
            walk.visit(hint)
        except NotStorable as error:
            raise InvalidRequest(
                f"the result of {name_of(self._function)}() cannot be kept: its return annotation has {error}. "
                "Annotate what it really returns: types of the standard library, dataclasses, NamedTuples, enums, "
                "TypedDicts, Pydantic models, and lists, dicts, tuples and sets of them; or give a serializer= "
                "that can write it"
            ) from None
        except (TypeError, SyntaxError) as error:
            raise InvalidRequest(
                f"the return annotation of {name_of(self._function)}() cannot be read: {error}"
            ) from error
        formats = {cls: format_of(cls, name) for cls, name in type_names(walk.classes).items()}
        return Codec({cls: one for cls, one in formats.items() if one is not None}, Scope(module, local).find)


def _annotation(function: Any) -> tuple[Any, dict[str, Any], dict[str, Any]]:
    """The annotation as it is written, and the names that it can use: of the module, and of enclosing functions. A
    function without an annotation may return anything."""
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
    """The local names where the function is decorated: a class inside a function is in no module."""
    frame = calling_frame()
    return {} if frame is None or frame.f_locals is frame.f_globals else frame.f_locals


# ---------------------------------------------------------------- classes in an annotation
#
# The field types of a Pydantic model are left to Pydantic, which knows many more types. Only what Pydantic itself
# cannot write and read again is refused there.


NOT_YET = (NameError, AttributeError)  # a name is not defined yet; AttributeError: in a partly imported module
ANYTHING = (Any, object, None, ..., typing.Never, typing.NoReturn, typing.LiteralString)
ABSTRACT = (Collection, Mapping, MutableMapping, MutableSequence, MutableSet, Sequence, Set, Path, PurePath)
ALWAYS = frozenset((*PLAIN, *STANDARD_TYPES, *ABSTRACT, list))
UNIONS = (typing.Union, types.UnionType)


class NotStorable(Exception):
    """A type that cannot be kept. The message says where it is."""


class AnnotationWalk:
    """Collects the classes in an annotation. The annotation can use the names in ``module`` and, around the function,
    ``local``."""

    def __init__(self, module: Mapping[str, Any], local: Mapping[str, Any]) -> None:
        self._module = dict(module)
        self._local = dict(local)
        self._model: tuple[Any, str] | None = None  # the Pydantic model that is being visited, and its field
        self._seen: set[tuple[int, bool]] = set()
        self._resolved: set[tuple[int, str]] = set()
        self._kept: list[Any] = []  # keeps the hints alive, so that no id in ``_seen`` is reused
        self.classes: list[type] = []

    def visit(self, hint: Any) -> None:
        """Visit an annotation. Raises NotStorable, or one of NOT_YET."""
        seen = id(hint), self._model is None
        if seen in self._seen or any(hint is one for one in ANYTHING):
            return
        self._seen.add(seen)
        self._kept.append(hint)
        origin = typing.get_origin(hint)
        if origin is typing.Literal:
            self._each(type(one) for one in typing.get_args(hint))
        elif origin is typing.Annotated:
            self._annotated(*typing.get_args(hint))
        elif origin in UNIONS:
            self._each(typing.get_args(hint))
        elif origin is not None:
            self._each((origin, *typing.get_args(hint)))
        elif isinstance(hint, type):
            self._class(hint)
        else:
            self._special(hint)

    def _each(self, hints: Iterable[Any]) -> None:
        for hint in hints:
            self.visit(hint)

    def _annotated(self, hint: Any, *more: Any) -> None:
        """A field with a serializer of its own is left to Pydantic."""
        if not any(is_serializer(one) for one in more):
            self.visit(hint)

    def _special(self, hint: Any) -> None:
        """A type variable, a NewType, a type alias, or a forward reference."""
        if isinstance(hint, typing.TypeVar):
            self._each(hint.__constraints__ or (hint.__bound__,))
        elif isinstance(hint, typing.NewType):
            self.visit(hint.__supertype__)
        elif hasattr(hint, "__value__"):  # type Name = ..., from Python 3.12 on
            self.visit(hint.__value__)
        elif isinstance(hint, typing.ForwardRef):
            self._named(hint)
        elif self._model is None:
            raise NotStorable(str(hint))

    def _named(self, reference: typing.ForwardRef) -> None:
        """A forward reference inside a recursive type, such as one for JSON: resolved once for each module."""
        known = id(self._module), reference.__forward_arg__
        if known in self._resolved:
            return
        self._resolved.add(known)
        holder = types.SimpleNamespace(__annotations__={"it": reference})
        try:
            hint = typing.get_type_hints(holder, self._module, self._local)["it"]
        except NOT_YET:
            if self._model is None:
                raise
        else:
            self.visit(hint)

    def _class(self, cls: type) -> None:
        if cls in ALWAYS:
            return
        if typing.is_typeddict(cls):
            self._parts(cls)
        elif format_of(cls) is not None:
            if cls not in self.classes:
                self.classes.append(cls)
            self._parts(cls)
        elif self._model is None or not model_can_write(cls, *self._model):
            raise NotStorable(f"{cls.__module__}.{cls.__qualname__}")

    def _parts(self, cls: Any) -> None:
        before = self._module, self._model
        fields = model_field_types(cls) if is_model(cls) else None
        hints = self._hints(cls) if fields is None else fields
        self._module = vars(sys.modules.get(cls.__module__, types))
        try:
            for part, hint in hints.items():
                self._model = before[1] if fields is None else (cls, part)
                self.visit(hint)
        except NotStorable as error:
            raise NotStorable(f"{error} ({cls.__name__}.{part})") from None
        finally:
            self._module, self._model = before

    def _hints(self, cls: type) -> dict[str, Any]:
        """The types of its fields, resolved in its module; for a class inside a function also by local names."""
        parts = field_names(cls)
        if not parts:
            return {}
        try:
            hints = typing.get_type_hints(cls)
        except NameError:
            hints = typing.get_type_hints(cls, localns={**self._local, cls.__name__: cls})
        return {part: hints.get(part, Any) for part in parts}


# ---------------------------------------------------------------- classes that no annotation names
#
# A result without an annotation is written with the names of its classes. The reader looks them up from where its
# function stands: around it, in its module, and in the modules that this one has imported. So a class may be in another
# module there. A class that the function cannot name is not found.


class Scope:
    """The classes within reach of a function. ``local`` are names around it, ``module`` those of its module, which may
    still grow."""

    def __init__(self, module: Mapping[str, Any], local: Mapping[str, Any]) -> None:
        self._module = module
        self._local = {name: one for name, one in local.items() if isinstance(one, type)}
        self._known: dict[type, dict[type, TypeFormat]] = {}

    def find(self, name: str) -> dict[type, TypeFormat]:
        """The formats of the class of that name and of those in its fields. Empty if it cannot be kept, or if two
        classes share a name: another program might take the one for the other."""
        cls = self._class(name)
        if cls is None:
            return {}
        formats = self._known.get(cls) or self._formats(cls)
        if formats:  # if empty, something in it may not be defined yet
            self._known[cls] = formats
        return formats

    def _formats(self, cls: type) -> dict[type, TypeFormat]:
        walk = AnnotationWalk(self._module, self._local)
        try:
            walk.visit(cls)
        except (NotStorable, TypeError, *NOT_YET):
            return {}
        names = type_names(walk.classes)
        formats = {one: format_of(one, known) for one, known in names.items() if known == f"class {one.__name__}"}
        return {one: used for one, used in formats.items() if used is not None} if len(formats) == len(names) else {}

    def _class(self, name: str) -> type | None:
        for space in (self._local, self._module):
            if _is_called(space.get(name), name):
                found: type = space[name]
                return found
        others = {one for one in self._imported(name) if _is_called(one, name)}
        return others.pop() if len(others) == 1 else None

    def _imported(self, name: str) -> Iterator[Any]:
        """Candidates that are imported under another name, or inside a module. Module attributes are read from
        ``vars``: ``getattr`` might load more modules."""
        for one in list(self._module.values()):
            if isinstance(one, types.ModuleType):
                yield vars(one).get(name)
            elif isinstance(one, type):
                yield one


def _is_called(thing: Any, name: str) -> bool:
    return isinstance(thing, type) and thing.__name__ == name


def codec_here() -> Codec:
    """The Codec for results without a function: classes are looked up from where the user called us."""
    frame = calling_frame()
    return Codec() if frame is None else Codec(find=Scope(frame.f_globals, frame.f_locals).find)
