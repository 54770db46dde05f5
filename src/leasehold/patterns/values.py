"""Values of users as JSON from which the same types come back: what JSON does not know carries the name of its type.

    [1, "a", null]                             as it is
    {"$": ["Decimal", "9.90"]}                 a type of the standard library
    {"$": ["class Receipt", {"total": 1}]}     a class of the user's

A name is looked up in a table: the types below, and the classes that the return annotation of the function names; then
among the names that the module of the function has. Nothing is imported because of what is stored.
"""

from __future__ import annotations

import base64
import dataclasses
import enum
import inspect
import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from pathlib import Path, PurePath
from typing import Any, NamedTuple, is_typeddict
from uuid import UUID
from zoneinfo import ZoneInfo

from leasehold.patterns import models

TAG = "$"
FIELDS = "fields of "  # before the name of a class that is written by its fields, and could be written otherwise

Nested = Callable[[Any], Any]


class TypeFormat(NamedTuple):
    """How values of one type are written and read. Both are given a function for the values inside. ``exact`` is
    another way, for values that the first one does not give back as they were."""

    name: str
    write: Callable[[Any, Nested], Any]
    read: Callable[[Any, Nested], Any]
    exact: TypeFormat | None = None


Find = Callable[[str], Mapping[type, TypeFormat]]


class UnknownType(TypeError):
    """A value of a type that is in no table, and not equal to what it derives from."""


class Codec:
    """Writes and reads the values of one function. ``classes`` are those of its return annotation; ``find`` gives those
    that it can name besides, each together with the classes in its fields."""

    def __init__(self, classes: Mapping[type, TypeFormat] | None = None, find: Find | None = None) -> None:
        self.types = {**STANDARD_TYPES, **(classes or {})}
        self.names = _names(self.types)
        self.find = find

    def dumps(self, value: Any, exact: bool = False) -> str:
        """As JSON. Raises NotKnown, or whatever a class of the user's raises."""
        return json.dumps(Conversion(self, exact).written(value), ensure_ascii=False, separators=(",", ":"))

    def loads(self, text: str) -> Any:
        """The value again."""
        return self.read(json.loads(text))

    def read(self, written: Any) -> Any:
        """The same of JSON that is parsed already, and of which nobody else has parts."""
        return Conversion(self).read(written)


class Conversion:
    """One text that is written or read. A class that had to be found is known from there on, with the classes in its
    fields: whoever reads the text finds the same ones at the same places, whatever else it has read before."""

    def __init__(self, codec: Codec, exact: bool = False) -> None:
        self._types = codec.types
        self._find = codec.find
        self._exact = exact
        self._names = codec.names
        self._missed: set[type] = set()

    def written(self, value: Any) -> Any:
        kind = type(value)
        if kind in PLAIN:
            return value
        if kind is list:
            return [self.written(one) for one in value]
        if kind is dict and TAG not in value and all(type(key) is str for key in value):
            return {key: self.written(one) for key, one in value.items()}
        how = self._types.get(kind) or self._found(kind)
        if how is None:
            return self.written(as_base(value))
        if self._exact and how.exact is not None:
            how = how.exact
        return {TAG: [how.name, how.write(value, self.written)]}

    def read(self, written: Any) -> Any:
        if isinstance(written, list):
            return [self.read(one) for one in written]
        if not isinstance(written, dict):
            return written
        if TAG not in written:
            return {key: self.read(one) for key, one in written.items()}
        name, content = written[TAG]
        return self._named(name).read(content, self.read)

    def _found(self, kind: type) -> TypeFormat | None:
        if kind not in self._missed:
            self._learn(kind.__name__)
            self._missed.add(kind)
        return self._types.get(kind)

    def _named(self, name: str) -> TypeFormat:
        if name not in self._names:
            self._learn(name.rpartition(" ")[2])
        return self._names[name]

    def _learn(self, name: str) -> None:
        """A name that stands for another class already is left at that."""
        found = {} if self._find is None else self._find(name)
        taken = {how.name: cls for cls, how in self._types.items()}
        if found and all(taken.get(how.name, cls) is cls for cls, how in found.items()):
            self._types = {**found, **self._types}
            self._names = _names(self._types)


def _names(types: Mapping[type, TypeFormat]) -> dict[str, TypeFormat]:
    ways = [way for how in types.values() for way in (how, how.exact) if way is not None]
    return {way.name: way for way in ways}


def names_a_class(text: str) -> bool:
    """Does JSON of a Codec have the name of a user's class in it? Then it may come back as something else."""
    return f'"{TAG}":["class ' in text or f'"{TAG}":["{FIELDS}' in text


def is_tagged(text: str) -> bool:
    """Does JSON of a Codec have a name of a type in it? A quote inside of a string has a backslash before it."""
    return f'"{TAG}":' in text


# ---------------------------------------------------------------- the types of the standard library

PLAIN = frozenset((type(None), bool, int, float, str))


def _several(kind: type) -> TypeFormat:
    return TypeFormat(
        kind.__name__,
        lambda value, write: [write(one) for one in value],
        lambda written, read: kind(read(one) for one in written),
    )


def _as_text(name: str, read: Callable[[str], Any]) -> TypeFormat:
    return TypeFormat(name, lambda value, _: str(value), lambda written, _: read(written))


def _as_base64(kind: type) -> TypeFormat:
    return TypeFormat(
        kind.__name__,
        lambda value, _: base64.b64encode(value).decode(),
        lambda written, _: kind(base64.b64decode(written)),
    )


def _moment(kind: type[datetime] | type[time]) -> TypeFormat:
    return TypeFormat(kind.__name__, _write_moment, lambda written, _: _read_moment(kind, *written))


def _write_moment(value: Any, _: Nested) -> list[Any]:
    """A time zone is kept by its name. What another library has for one is kept as the offset at that moment."""
    zone, offset = value.tzinfo, value.utcoffset()
    if isinstance(zone, ZoneInfo) and zone.key:
        return [value.replace(tzinfo=None).isoformat(), value.fold, zone.key]
    if zone is not None and offset is None:
        raise UnknownType("its time zone has no name and no offset")
    return [value.replace(tzinfo=None if offset is None else timezone(offset)).isoformat(), value.fold]


def _read_moment(kind: Any, text: str, fold: int, zone: str | None = None) -> Any:
    moment = kind.fromisoformat(text).replace(fold=fold)
    return moment if zone is None else moment.replace(tzinfo=ZoneInfo(zone))


STANDARD_TYPES: dict[type, TypeFormat] = {
    dict: TypeFormat(
        "dict",
        lambda value, write: [[write(key), write(one)] for key, one in value.items()],
        lambda written, read: {read(key): read(one) for key, one in written},
    ),
    tuple: _several(tuple),
    set: _several(set),
    frozenset: _several(frozenset),
    bytes: _as_base64(bytes),
    bytearray: _as_base64(bytearray),
    Decimal: _as_text("Decimal", Decimal),
    UUID: _as_text("UUID", UUID),
    type(Path()): _as_text("Path", Path),
    type(PurePath()): _as_text("PurePath", PurePath),
    datetime: _moment(datetime),
    time: _moment(time),
    date: TypeFormat("date", lambda value, _: value.isoformat(), lambda written, _: date.fromisoformat(written)),
    timedelta: TypeFormat(
        "timedelta",
        lambda value, _: [value.days, value.seconds, value.microseconds],
        lambda written, _: timedelta(*written),
    ),
}

# A subclass of these is kept as what it derives from, which everybody gets, the first caller too.
BASES: dict[type, Callable[[Any], Any]] = {
    int: int.__int__,
    float: float.__float__,
    str: str.__str__,
    list: lambda value: [*list.__iter__(value)],
    dict: lambda value: dict(dict.items(value)),
    tuple: lambda value: (*tuple.__iter__(value),),
    set: lambda value: {*set.__iter__(value)},
    frozenset: lambda value: frozenset([*frozenset.__iter__(value)]),
    bytes: lambda value: bytes.__getitem__(value, slice(None)),
    Decimal: Decimal,
    datetime: lambda value: datetime.combine(value.date(), value.timetz()),
    date: lambda value: date(value.year, value.month, value.day),
    timedelta: lambda value: timedelta(value.days, value.seconds, value.microseconds),
}


def as_base(value: Any) -> Any:
    """What it derives from, if that is equal to it."""
    base = next((one for one in type(value).__mro__ if one in BASES), None)
    if base is None:
        raise UnknownType(f"{type(value).__name__} is neither of the types that are always kept nor in the annotation")
    plain = BASES[base](value)
    if type(plain) is not base or not bool(plain == value):
        raise UnknownType(f"{type(value).__name__} is not equal to the {base.__name__} that it derives from")
    return plain


def type_names(classes: Iterable[type]) -> dict[type, str]:
    """The name in a tag for each class: its own; with its module where two have the same."""
    several = list(classes)
    often = Counter(one.__name__ for one in several)
    return {
        one: f"class {one.__name__}" if often[one.__name__] == 1 else f"class {one.__module__}.{one.__qualname__}"
        for one in several
    }


# ---------------------------------------------------------------- classes
#
# How instances of a user's class are written and read: an enum, a NamedTuple, a dataclass, a model of Pydantic's.


def format_of(cls: Any, name: str = "") -> TypeFormat | None:
    """How it is kept, and under which name; None: it cannot be."""
    if issubclass(cls, enum.Enum):
        return _enum(cls, name) if cls.__members__ else None
    if models.is_model(cls):
        return models.model_format(cls, name)
    if _is_named_tuple(cls):
        return TypeFormat(name, _attributes(cls._fields), lambda written, read: cls(**_values(written, read)))
    if dataclasses.is_dataclass(cls) and not _missing(cls):
        return _dataclass(cls, name)
    return None


def field_names(cls: Any) -> tuple[str, ...]:
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


def _enum(cls: type[enum.Enum], name: str) -> TypeFormat:
    if issubclass(cls, enum.Flag):  # several of them together have no name
        return TypeFormat(name, lambda value, write: write(value.value), lambda written, read: cls(read(written)))
    return TypeFormat(name, lambda value, _: value.name, lambda written, _: cls[written])


def _dataclass(cls: Any, name: str) -> TypeFormat:
    """Made by its constructor, as everywhere. A field that this does not take is set afterwards."""
    later = {field.name for field in dataclasses.fields(cls) if not field.init}

    def read(written: dict[str, Any], nested: Nested) -> Any:
        values = _values(written, nested)
        made = cls(**{field: one for field, one in values.items() if field not in later})
        for field in later & values.keys():
            object.__setattr__(made, field, values[field])  # also of a frozen one
        return made

    return TypeFormat(name, _attributes(field_names(cls)), read)


def _missing(cls: Any) -> list[str]:
    """What its constructor wants and no field holds, such as an InitVar."""
    several = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return [
        name
        for name, one in inspect.signature(cls).parameters.items()
        if name not in field_names(cls) and one.default is one.empty and one.kind not in several
    ]
