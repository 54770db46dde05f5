"""What annotations are made of, for programs that start fast: the same names as in ``typing``, which is loaded by type
checkers alone. With ``re`` and all that it brings, it would cost a short command half of its time.

At run time most of these are names that nobody looks at. A NamedTuple is a real one, made by ``collections``.
"""

from __future__ import annotations

TYPE_CHECKING = False

if TYPE_CHECKING:
    from typing import Any, Generic, NamedTuple, Protocol, TypeAlias, TypeVar, cast
else:
    from collections import namedtuple

    Any = TypeAlias = None

    class Protocol:
        """A shape, for type checkers."""

    class Generic:
        """A class with parameters, for type checkers."""

        def __class_getitem__(cls, _parameters):
            return cls

    def TypeVar(name, *_constraints, **_options):  # noqa: N802  # as it is called in typing
        return name

    def cast(_kind, value):
        return value

    class _Fields(type):
        """Turns the annotations of a class into the fields of a tuple, and keeps its methods."""

        def __new__(meta, name, bases, body):
            if not bases:
                return type.__new__(meta, name, bases, body)
            fields = body.get("__annotations__", {})
            defaults = [body.pop(field) for field in fields if field in body]
            made = namedtuple(name, fields, defaults=defaults, module=body["__module__"])
            for key, value in body.items():
                setattr(made, key, value)
            return made

    class NamedTuple(metaclass=_Fields):
        """A tuple whose places have names."""


__all__ = ["TYPE_CHECKING", "Any", "Generic", "NamedTuple", "Protocol", "TypeAlias", "TypeVar", "cast"]
