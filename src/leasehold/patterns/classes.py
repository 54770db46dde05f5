"""How instances of a user's class are written and read: an enum, a NamedTuple, a dataclass, a model of Pydantic's."""

from __future__ import annotations

import dataclasses
import enum
import inspect
from typing import Any, is_typeddict

from leasehold.patterns import models
from leasehold.patterns.values import Kind, Nested


def kind_of(cls: Any, name: str = "") -> Kind | None:
    """How it is kept, and under which name; None: it cannot be."""
    if issubclass(cls, enum.Enum):
        return _enum(cls, name) if cls.__members__ else None
    if models.is_model(cls):
        return models.kind(cls, name)
    if _is_named_tuple(cls):
        return Kind(name, _attributes(cls._fields), lambda written, read: cls(**_values(written, read)))
    if dataclasses.is_dataclass(cls) and not _missing(cls):
        return _dataclass(cls, name)
    return None


def parts_of(cls: Any) -> tuple[str, ...]:
    """The attributes whose annotations say what else can be in it. Models have other ways to say so."""
    if models.is_model(cls):
        return ()
    if dataclasses.is_dataclass(cls):
        return tuple(field.name for field in dataclasses.fields(cls))
    if is_typeddict(cls):
        return tuple(cls.__required_keys__ | cls.__optional_keys__)
    return tuple(cls._fields) if _is_named_tuple(cls) else ()


def _is_named_tuple(cls: Any) -> bool:
    return issubclass(cls, tuple) and isinstance(getattr(cls, "_fields", None), tuple)


def _attributes(names: tuple[str, ...]) -> Any:
    return lambda value, write: {name: write(getattr(value, name)) for name in names}


def _values(written: dict[str, Any], read: Nested) -> dict[str, Any]:
    return {name: read(one) for name, one in written.items()}


def _enum(cls: type[enum.Enum], name: str) -> Kind:
    if issubclass(cls, enum.Flag):  # several of them together have no name
        return Kind(name, lambda value, write: write(value.value), lambda written, read: cls(read(written)))
    return Kind(name, lambda value, _: value.name, lambda written, _: cls[written])


def _dataclass(cls: Any, name: str) -> Kind:
    """Made by its constructor, as everywhere. A field that this does not take is set afterwards."""
    later = {field.name for field in dataclasses.fields(cls) if not field.init}

    def read(written: dict[str, Any], nested: Nested) -> Any:
        values = _values(written, nested)
        made = cls(**{field: one for field, one in values.items() if field not in later})
        for field in later & values.keys():
            object.__setattr__(made, field, values[field])  # also of a frozen one
        return made

    return Kind(name, _attributes(parts_of(cls)), read)


def _missing(cls: Any) -> list[str]:
    """What its constructor wants and no field holds, such as an InitVar."""
    several = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return [
        name
        for name, one in inspect.signature(cls).parameters.items()
        if name not in parts_of(cls) and one.default is one.empty and one.kind not in several
    ]
