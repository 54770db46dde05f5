"""Ids as templates: ``"{site}"``, ``"{user.id}"``, ``"{order[number]}-{part}"``, filled in from a call's arguments.

The fields are those of ``str.format`` without conversions and format specs: an id that was cut or padded on its way
into a name would be another id. A value must be what an id may be, wherever it stands.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from string import Formatter

from leasehold._core.names import plain
from leasehold.errors import InvalidRequest

_FIELD = re.compile(r"([^\W\d]\w*)((?:\.[^\W\d]\w*|\[[^\[\]]+\])*)")
_STEP = re.compile(r"\.(\w+)|\[([^\[\]]+)\]")


class Template:
    """One id of a name, with or without fields. A mistake in it raises when it is made."""

    __slots__ = ("_parts", "fields", "names")

    def __init__(self, written: object) -> None:
        self._parts: list[str | Field] = _parse(written) if isinstance(written, str) else [plain(written, "id")]
        if not self._parts:
            raise InvalidRequest("id must not be empty")
        self.fields = [part for part in self._parts if isinstance(part, Field)]
        self.names = [field.name for field in self.fields]  # the parameters that it needs

    def text(self, values: Mapping[str, object]) -> str:
        """The id for a call with these arguments."""
        return "".join([part if isinstance(part, str) else part.text(values) for part in self._parts])


class NameTemplate:
    """The ids of a name, each a template. ``names`` are the parameters that they need."""

    __slots__ = ("_ids", "names")

    def __init__(self, ids: Iterable[object]) -> None:
        self._ids = [Template(written) for written in ids]
        self.names = [name for template in self._ids for name in template.names]

    def ids(self, values: Mapping[str, object]) -> list[str]:
        """The ids for a call with these arguments."""
        return [template.text(values) for template in self._ids]


class Field:
    """A place in a template where a value is filled in: a name, and the way from there."""

    __slots__ = ("_steps", "_written", "name")

    def __init__(self, written: str) -> None:
        match = _FIELD.fullmatch(written)
        if match is None:
            raise InvalidRequest(
                f"{{{written}}} is no field of a template: write {{name}}, {{name.attribute}} or {{name[key]}} with "
                "the name of a parameter, and {{ }} for braces that are meant"
            )
        self._written = written
        self.name = match[1]
        self._steps = [(attribute, key) for attribute, key in _STEP.findall(match[2])]

    def text(self, values: Mapping[str, object]) -> str:
        """Its value as text. Errors name the field and the type, never the value."""
        value = self.value(values)
        try:
            return plain(value, "id")
        except InvalidRequest as error:
            raise InvalidRequest(f"{{{self._written}}}: {error}") from None

    def value(self, values: Mapping[str, object]) -> object:
        """What stands there, of whatever type."""
        try:
            value: object = values[self.name]
            for attribute, key in self._steps:
                value = getattr(value, attribute) if attribute else _item(value, key)
        except (AttributeError, LookupError, TypeError) as error:
            raise InvalidRequest(f"{{{self._written}}} is not in the arguments: {type(error).__name__}") from error
        return value


def _parse(text: str) -> list[str | Field]:
    parts: list[str | Field] = []
    try:
        pieces = list(Formatter().parse(text))
    except ValueError as error:
        raise InvalidRequest(f"a template cannot be read: {error}; write {{{{ }}}} for braces that are meant") from None
    for literal, field, spec, conversion in pieces:
        if literal:
            parts.append(plain(literal, "id"))
        if spec or conversion:
            raise InvalidRequest(f"{{{field}}} has a conversion or a format spec: an id goes into a name as it is")
        if field is not None:
            parts.append(Field(field))
    return parts


def _item(value: object, key: str) -> object:
    """By number or by text, as ``str.format`` does it."""
    return value[int(key) if key.isdecimal() else key]  # type: ignore[index] # whatever it is: TypeError says no
