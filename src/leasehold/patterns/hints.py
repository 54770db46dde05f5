"""A walk through an annotation, and the annotations of the classes in it: which classes it names, and which of them
nobody can keep.

What a model of Pydantic's has in its fields is Pydantic's business, which knows many more types than we do. Only what
it cannot write or read again either is in the way there.
"""

from __future__ import annotations

import sys
import types
import typing
from collections.abc import (
    Collection,
    Iterable,
    Mapping,
    MutableMapping,
    MutableSequence,
    MutableSet,
    Sequence,
    Set,
)
from pathlib import Path, PurePath
from typing import Any

from leasehold.patterns import models
from leasehold.patterns.values import PLAIN, STANDARD_TYPES, field_names, format_of

NOT_YET = (NameError, AttributeError)  # not defined yet; the latter: in a module that is only half imported
ANYTHING = (Any, object, None, ..., typing.Never, typing.NoReturn, typing.LiteralString)
ABSTRACT = (Collection, Mapping, MutableMapping, MutableSequence, MutableSet, Sequence, Set, Path, PurePath)
ALWAYS = frozenset((*PLAIN, *STANDARD_TYPES, *ABSTRACT, list))
UNIONS = (typing.Union, types.UnionType)


class NotStorable(Exception):
    """Says which part."""


class AnnotationWalk:
    """``around`` and ``local`` are the names that can be used in the annotation: of its module, and where it stands."""

    def __init__(self, around: Mapping[str, Any], local: Mapping[str, Any]) -> None:
        self._around = dict(around)
        self._local = dict(local)
        self._model: tuple[Any, str] | None = None  # the model of Pydantic's that we are in, and its field
        self._seen: set[tuple[int, bool]] = set()
        self._resolved: set[tuple[int, str]] = set()
        self._kept: list[Any] = []  # so that no id in ``_seen`` is used twice
        self.classes: list[type] = []

    def visit(self, hint: Any) -> None:
        """Raises NotKept, or one of NOT_YET."""
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
        """What a model writes in its own way is its business."""
        if not any(models.is_serializer(one) for one in more):
            self.visit(hint)

    def _special(self, hint: Any) -> None:
        """A type variable, a NewType, a name for another type, or a text that stands for one."""
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
        """A name that is left in a type which contains itself, such as one for JSON: once for each module is enough."""
        known = id(self._around), reference.__forward_arg__
        if known in self._resolved:
            return
        self._resolved.add(known)
        holder = types.SimpleNamespace(__annotations__={"it": reference})
        try:
            hint = typing.get_type_hints(holder, self._around, self._local)["it"]
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
        elif self._model is None or not models.model_can_write(cls, *self._model):
            raise NotStorable(f"{cls.__module__}.{cls.__qualname__}")

    def _parts(self, cls: Any) -> None:
        before = self._around, self._model
        fields = models.model_field_types(cls) if models.is_model(cls) else None
        hints = self._hints(cls) if fields is None else fields
        self._around = vars(sys.modules.get(cls.__module__, types))
        try:
            for part, hint in hints.items():
                self._model = before[1] if fields is None else (cls, part)
                self.visit(hint)
        except NotStorable as error:
            raise NotStorable(f"{error} ({cls.__name__}.{part})") from None
        finally:
            self._around, self._model = before

    def _hints(self, cls: type) -> dict[str, Any]:
        """By its module; and where it is a class inside of a function, by what can be seen there."""
        parts = field_names(cls)
        if not parts:
            return {}
        try:
            hints = typing.get_type_hints(cls)
        except NameError:
            hints = typing.get_type_hints(cls, localns={**self._local, cls.__name__: cls})
        return {part: hints.get(part, Any) for part in parts}
