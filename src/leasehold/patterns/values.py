"""Users' values as JSON from which the same types come back: a type that JSON lacks is written with its name.

    [1, "a", null]                             as it is
    {"$": ["Decimal", "9.90"]}                 a type of the standard library
    {"$": ["class Receipt", {"total": 1}]}     a user's class

A name is looked up in a table: the types below, and the classes that the return annotation of the function names; then
among the names in the module of the function. Nothing is ever imported because of what is stored.
"""

from __future__ import annotations

import base64
import dataclasses
import enum
import inspect
import json
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from pathlib import Path, PurePath
from typing import Any, NamedTuple, is_typeddict
from uuid import UUID
from zoneinfo import ZoneInfo

TAG = "$"
FIELDS = "fields of "  # before the name of a model that is written by its fields, and not as Pydantic's JSON

Nested = Callable[[Any], Any]


class TypeFormat(NamedTuple):
    """How values of one type are written and read. ``write`` and ``read`` are given a function for the values inside.
    ``exact`` is another format, for values that do not come back equal from the first one."""

    name: str
    write: Callable[[Any, Nested], Any]
    read: Callable[[Any, Nested], Any]
    exact: TypeFormat | None = None


Find = Callable[[str], Mapping[type, TypeFormat]]


class UnknownType(TypeError):
    """A value of a type that is in no table, and that is not equal to a value of its base type."""


class Codec:
    """Writes and reads the results of one function. ``classes`` are those of its return annotation; ``find`` looks up
    another class by its name, together with the classes in its fields."""

    def __init__(self, classes: Mapping[type, TypeFormat] | None = None, find: Find | None = None) -> None:
        self.types = {**STANDARD_TYPES, **(classes or {})}
        self.names = _names(self.types)
        self.find = find

    def dumps(self, value: Any, exact: bool = False) -> str:
        """A value as JSON. Raises UnknownType, or what a user's class raises."""
        return json.dumps(Conversion(self, exact).write(value), ensure_ascii=False, separators=(",", ":"))

    def loads(self, text: str) -> Any:
        """The value in this JSON."""
        return self.read(json.loads(text))

    def read(self, written: Any) -> Any:
        """The value in parsed JSON. Parts of the argument may become parts of the value."""
        return Conversion(self).read(written)


class Conversion:
    """The writing or reading of one text. A class that was looked up is known from there on, with the classes in its
    fields: so a reader looks up the same classes at the same places as the writer, whatever it has read before."""

    def __init__(self, codec: Codec, exact: bool = False) -> None:
        self._types = codec.types
        self._find = codec.find
        self._exact = exact
        self._names = codec.names
        self._missed: set[type] = set()

    def write(self, value: Any) -> Any:
        kind = type(value)
        if kind in PLAIN:
            return value
        if kind is list:
            return [self.write(one) for one in value]
        if kind is dict and TAG not in value and all(type(key) is str for key in value):
            return {key: self.write(one) for key, one in value.items()}
        used = self._types.get(kind) or self._look_up(kind)
        if used is None:
            return self.write(as_base(value))
        if self._exact and used.exact is not None:
            used = used.exact
        return {TAG: [used.name, used.write(value, self.write)]}

    def read(self, written: Any) -> Any:
        if isinstance(written, list):
            return [self.read(one) for one in written]
        if not isinstance(written, dict):
            return written
        if TAG not in written:
            return {key: self.read(one) for key, one in written.items()}
        name, content = written[TAG]
        return self._named(name).read(content, self.read)

    def _look_up(self, kind: type) -> TypeFormat | None:
        if kind not in self._missed:
            self._learn(kind.__name__)
            self._missed.add(kind)
        return self._types.get(kind)

    def _named(self, name: str) -> TypeFormat:
        if name not in self._names:
            self._learn(name.rpartition(" ")[2])
        return self._names[name]

    def _learn(self, name: str) -> None:
        """Look up a class. A class is not added if its name stands for another class already."""
        found = {} if self._find is None else self._find(name)
        known = {used.name: cls for cls, used in self._types.items()}
        if found and all(known.get(new.name, cls) is cls for cls, new in found.items()):
            self._types = {**found, **self._types}
            self._names = _names(self._types)


def _names(types: Mapping[type, TypeFormat]) -> dict[str, TypeFormat]:
    formats = [one for used in types.values() for one in (used, used.exact) if one is not None]
    return {one.name: one for one in formats}


def names_a_class(text: str) -> bool:
    """Does JSON of a Codec contain the name of a user's class? Then it may come back as something else."""
    return f'"{TAG}":["class ' in text or f'"{TAG}":["{FIELDS}' in text


def is_tagged(text: str) -> bool:
    """Does JSON of a Codec contain the name of a type? Strings cannot look like one: their quotes are escaped."""
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
    """A ZoneInfo is kept by its name, any other time zone as its offset at that moment."""
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

# A value of a subclass of these is kept as its base type, and all callers get that, the first one too.
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
    """The value as its base type, if that is equal to it."""
    base = next((one for one in type(value).__mro__ if one in BASES), None)
    if base is None:
        raise UnknownType(f"{type(value).__name__} is neither of the types that are always kept nor in the annotation")
    plain = BASES[base](value)
    if type(plain) is not base or not bool(plain == value):
        raise UnknownType(f"{type(value).__name__} is not equal to the {base.__name__} that it derives from")
    return plain


def type_names(classes: Iterable[type]) -> dict[type, str]:
    """The name in a tag for each class: its own name; with its module where two classes share a name."""
    several = list(classes)
    often = Counter(one.__name__ for one in several)
    return {
        one: f"class {one.__name__}" if often[one.__name__] == 1 else f"class {one.__module__}.{one.__qualname__}"
        for one in several
    }


# ---------------------------------------------------------------- classes
#
# How instances of a user's class are written and read: an enum, a NamedTuple, a dataclass, a Pydantic model.


def format_of(cls: Any, name: str = "") -> TypeFormat | None:
    """The format for a class under a name; None: it cannot be kept."""
    if issubclass(cls, enum.Enum):
        return _enum(cls, name) if cls.__members__ else None
    if is_model(cls):
        return model_format(cls, name)
    if _is_named_tuple(cls):
        return TypeFormat(name, _attributes(cls._fields), lambda written, read: cls(**_values(written, read)))
    if dataclasses.is_dataclass(cls) and not _missing(cls):
        return _dataclass(cls, name)
    return None


def field_names(cls: Any) -> tuple[str, ...]:
    """The attributes whose annotations say what else it contains; none for a model, see ``model_field_types``."""
    if is_model(cls):
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
    if issubclass(cls, enum.Flag):  # a combination of flags may have no name
        return TypeFormat(name, lambda value, write: write(value.value), lambda written, read: cls(read(written)))
    return TypeFormat(name, lambda value, _: value.name, lambda written, _: cls[written])


def _dataclass(cls: Any, name: str) -> TypeFormat:
    """Made by its constructor. A field that the constructor does not take is set afterwards."""
    later = {field.name for field in dataclasses.fields(cls) if not field.init}

    def read(written: dict[str, Any], nested: Nested) -> Any:
        values = _values(written, nested)
        made = cls(**{field: one for field, one in values.items() if field not in later})
        for field in later & values.keys():
            object.__setattr__(made, field, values[field])  # works for a frozen one too
        return made

    return TypeFormat(name, _attributes(field_names(cls)), read)


def _missing(cls: Any) -> list[str]:
    """Required parameters of its constructor that are not fields, such as an InitVar."""
    several = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return [
        name
        for name, one in inspect.signature(cls).parameters.items()
        if name not in field_names(cls) and one.default is one.empty and one.kind not in several
    ]


# ---------------------------------------------------------------- models of Pydantic 2
#
# Pydantic is not imported: a model is recognised by its methods. It is written as the JSON that Pydantic makes of it.
# Where that does not give an equal model, because JSON has no bytes, or a field is of any type, or excluded, it is
# written by its fields, as a dataclass is.

EXTRA = "__pydantic_extra__"  # what a model was given beside its fields
PRIVATE = "__pydantic_private__"


def is_model(cls: Any) -> bool:
    """Is it a model class of Pydantic 2?"""
    return all(callable(getattr(cls, name, None)) for name in ("model_dump", "model_validate_json"))


def model_field_types(cls: Any) -> dict[str, Any]:
    """The types of its fields, by their names. Pydantic may now know classes that were defined after the model."""
    with suppress(Exception):
        cls.model_rebuild(raise_errors=False)
    return {name: field.annotation for name, field in cls.model_fields.items()}


def model_format(cls: Any, name: str) -> TypeFormat:
    """The format for a model: by the names of its fields if Pydantic can read these (from 2.11 on), else by aliases."""
    by_name = "by_name" in inspect.signature(cls.model_validate_json).parameters
    names = {"by_alias": False, "by_name": True} if by_name else {}

    def read(written: Any, _: Nested) -> Any:
        # From JSON, because a strict model accepts a date as text only there.
        return cls.model_validate_json(json.dumps(written), **names)

    def write(value: Any, _: Nested) -> Any:
        return value.model_dump(mode="json", round_trip=True, by_alias=not by_name, warnings=False)

    return TypeFormat(name, write, read, _by_fields(cls, f"{FIELDS}{name}") if by_name else None)


def _by_fields(cls: Any, name: str) -> TypeFormat:
    def read(written: dict[str, Any], nested: Nested) -> Any:
        values = {field: nested(one) for field, one in written.items()}
        given = values["root"] if getattr(cls, "__pydantic_root_model__", False) else values
        return cls.model_validate(given, by_alias=False, by_name=True)

    def write(value: Any, nested: Nested) -> Any:
        values = {field: getattr(value, field) for field in cls.model_fields}
        return {field: nested(one) for field, one in {**(getattr(value, EXTRA, None) or {}), **values}.items()}

    return TypeFormat(name, write, read)


def model_can_write(cls: Any, model: Any, field: str) -> bool:
    """Can a model with a value of this class in that field come back equal? Not with a secret, which is masked when it
    is written, nor with a class that Pydantic cannot write. A field with a serializer of its own can."""
    return _writes_itself(model, field) or not (hasattr(cls, "get_secret_value") or _is_unknown(cls, model))


def is_serializer(metadata: Any) -> bool:
    """Is this metadata of an ``Annotated`` a serializer?"""
    return hasattr(metadata, "when_used")


def _writes_itself(model: Any, field: str) -> bool:
    decorators = getattr(model, "__pydantic_decorators__", None)
    if decorators is None or decorators.model_serializers or model.model_config.get("json_encoders"):
        return True
    named = {name for one in decorators.field_serializers.values() for name in one.info.fields}
    return bool(named & {field, "*"}) or any(map(is_serializer, model.model_fields[field].metadata))


def _is_unknown(cls: Any, model: Any) -> bool:
    """Does Pydantic not know this class? Only possible where such classes are allowed; else it has refused them."""
    if not model.model_config.get("arbitrary_types_allowed"):
        return False
    try:
        sys.modules["pydantic"].TypeAdapter(cls)
    except Exception:  # Pydantic reports this by one of many errors
        return True
    return False
