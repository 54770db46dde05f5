"""The classes that a function can name besides those of its annotation: around it, in its module, and in the modules
that this one has imported.

A result without an annotation is written with the names of its classes. Whoever reads it looks for them from where it
stands, so that a class may be in another module there. What is not within reach of the function is not looked for.
"""

from __future__ import annotations

import types
from collections.abc import Iterator, Mapping
from typing import Any

from leasehold._runtime.sync import calling_frame
from leasehold.patterns.hints import NOT_YET, AnnotationWalk, NotStorable
from leasehold.patterns.values import Codec, TypeFormat, format_of, type_names


class Scope:
    """``near`` are names from around a function, ``module`` those of its module, which may still grow."""

    def __init__(self, module: Mapping[str, Any], near: Mapping[str, Any]) -> None:
        self._module = module
        self._near = {name: one for name, one in near.items() if isinstance(one, type)}
        self._known: dict[type, dict[type, TypeFormat]] = {}

    def find(self, name: str) -> dict[type, TypeFormat]:
        """How the class of that name is kept, and those in its fields. Nothing, where it cannot be kept, or where two
        classes share a name: another program might take the one for the other."""
        cls = self._class(name)
        if cls is None:
            return {}
        kinds = self._known.get(cls) or self._kinds(cls)
        if kinds:  # else something in it may not be defined yet
            self._known[cls] = kinds
        return kinds

    def _kinds(self, cls: type) -> dict[type, TypeFormat]:
        walk = AnnotationWalk(self._module, self._near)
        try:
            walk.visit(cls)
        except (NotStorable, TypeError, *NOT_YET):
            return {}
        names = type_names(walk.classes)
        kinds = {one: format_of(one, known) for one, known in names.items() if known == f"class {one.__name__}"}
        return {one: kind for one, kind in kinds.items() if kind is not None} if len(kinds) == len(names) else {}

    def _class(self, name: str) -> type | None:
        for space in (self._near, self._module):
            if _is_called(space.get(name), name):
                found: type = space[name]
                return found
        others = {one for one in self._imported(name) if _is_called(one, name)}
        return others.pop() if len(others) == 1 else None

    def _imported(self, name: str) -> Iterator[Any]:
        """Under another name, or as a part of a module. Modules are not asked for it: that might load more of them."""
        for one in list(self._module.values()):
            if isinstance(one, types.ModuleType):
                yield vars(one).get(name)
            elif isinstance(one, type):
                yield one


def _is_called(thing: Any, name: str) -> bool:
    return isinstance(thing, type) and thing.__name__ == name


def codec_here() -> Codec:
    """For results without a function: classes are looked for from where we were called."""
    frame = calling_frame()
    return Codec() if frame is None else Codec(find=Scope(frame.f_globals, frame.f_locals).find)
