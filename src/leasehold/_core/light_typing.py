"""The names of ``typing`` for a fast start: type checkers see ``typing`` itself, and at run time it is not loaded.

This saves a short command about 10 ms of CPU time out of 76 (Python 3.11): ``typing`` loads ``re``, and its NamedTuple
compiles a function for each class. ``python -m benchmarks startup`` measures it: see the line "with typing".

At run time most of these are placeholders that only annotations use. A NamedTuple works as that of ``typing`` does.

The few names of ``collections`` and ``functools`` that a lock needs are here as well. Their C parts are loaded in no
time; the rest of both takes 2.5 ms.
"""

from __future__ import annotations

TYPE_CHECKING = False
make_tuple = tuple.__new__  # a NamedTuple of all its fields, in their order, without the call of a Python function
FIRST = 20  # tuples of a class that are made before compiling a function for it pays

if TYPE_CHECKING:
    from collections import deque
    from collections.abc import (
        Awaitable,
        Callable,
        Coroutine,
        Generator,
        Iterable,
        Iterator,
        Mapping,
        Sequence,
        Set,
    )
    from functools import lru_cache
    from typing import (
        Any,
        Final,
        Generic,
        Literal,
        NamedTuple,
        NoReturn,
        ParamSpec,
        Protocol,
        TypeAlias,
        TypedDict,
        TypeVar,
        Unpack,
        cast,
        overload,
    )

    from typing_extensions import TypeVarTuple  # with a default, which that of typing has from Python 3.13 on
else:
    import sys
    from _collections import _tuplegetter, deque
    from _collections_abc import (  # which ``collections.abc`` renames
        Awaitable,
        Callable,
        Coroutine,
        Generator,
        Iterable,
        Iterator,
        Mapping,
        Sequence,
        Set,
    )
    from _functools import _lru_cache_wrapper

    Any = Final = NoReturn = TypeAlias = None

    class Protocol:
        """For type checkers."""

    class Generic:
        """For type checkers: a class with parameters."""

        def __class_getitem__(cls, _parameters):
            return cls

    class Unpack(Generic):
        """For type checkers."""

    class Literal(Generic):
        """For type checkers."""

    class TypedDict(dict):
        """For type checkers: a dict with known keys."""

        def __init_subclass__(cls, total=True):
            """``total``: whether all keys must be there."""

    def TypeVar(name, *_constraints, **_options):  # noqa: N802  # as it is called in typing
        return name

    ParamSpec = TypeVar

    def TypeVarTuple(name, **_options):  # noqa: N802  # as above
        return (name,)  # for a star

    def lru_cache(maxsize, typed=False):
        return lambda function: _lru_cache_wrapper(function, maxsize, typed, lambda *numbers: numbers)

    def cast(_kind, value):
        return value

    def overload(function):
        typing = sys.modules.get("typing")  # where it is loaded anyway, typing.get_overloads() works
        return function if typing is None else typing.overload(function)

    class _Fields(type):
        """Turns the annotations of a class into the named fields of a tuple."""

        def __new__(meta, name, bases, body):
            if getattr(bases[0], "_fields", ()):  # a subclass: as with typing, it has the fields of its base
                body["_slowly"] = iter(int, 1)  # endless: its own __new__ must stay
                return type.__new__(meta, name, bases, body)
            fields = tuple(body.get("__annotations__", ()))
            body["_field_defaults"] = {field: body[field] for field in fields if field in body}
            body["_fields"] = body["__match_args__"] = fields
            body["_slowly"] = iter(range(FIRST))
            body.setdefault("__doc__", f"{name}({', '.join(fields)})")
            body["__slots__"] = ()
            for place, field in enumerate(fields):
                body[field] = _tuplegetter(place, None)
            return type.__new__(meta, name, bases, body)

    class NamedTuple(tuple, metaclass=_Fields):
        """A tuple whose fields have names, as in ``typing``. A function that makes tuples of a class is compiled only
        once many of them are made: a short command would spend more time compiling than on everything else."""

        def __new__(cls, *values, **named):
            if next(cls._slowly, None) is None:
                cls.__new__ = _maker(cls)
                return cls(*values, **named)
            rest = cls._fields[len(values) :]
            known = {**cls._field_defaults, **named}
            if len(values) > len(cls._fields) or not known.keys() >= {*rest} or not {*rest} >= named.keys():
                raise TypeError(f"{cls.__name__} takes {', '.join(cls._fields)}")
            return tuple.__new__(cls, (*values, *[known[field] for field in rest]))

        @classmethod
        def _make(cls, values):
            made = tuple.__new__(cls, values)
            if len(made) != len(cls._fields):
                raise TypeError(f"{cls.__name__} takes {', '.join(cls._fields)}")
            return made

        def _replace(self, **changes):
            made = tuple.__new__(type(self), map(changes.pop, self._fields, self))
            if changes:
                raise ValueError(f"{type(self).__name__} has no field {list(changes)}")
            return made

        def _asdict(self):
            return dict(zip(self._fields, self, strict=True))

        def __repr__(self):
            return f"{type(self).__name__}({', '.join(f'{key}={value!r}' for key, value in self._asdict().items())})"

        def __getnewargs__(self):
            return tuple(self)

    def _maker(cls):
        names = ", ".join(cls._fields)
        code = f"lambda cls, {names}: new(cls, ({names}{',' if names else ''}))"
        # Compiled apart: eval() of a text makes CPython forget an interrupt that is about to end the program.
        made = eval(compile(code, __file__, "eval"), {"new": tuple.__new__})  # noqa: S307  # names of fields, no more
        made.__defaults__ = tuple(cls._field_defaults.values())
        return staticmethod(made)


__all__ = [
    "TYPE_CHECKING",
    "Any",
    "Awaitable",
    "Callable",
    "Coroutine",
    "Final",
    "Generator",
    "Generic",
    "Iterable",
    "Iterator",
    "Literal",
    "Mapping",
    "NamedTuple",
    "NoReturn",
    "ParamSpec",
    "Protocol",
    "Sequence",
    "Set",
    "TypeAlias",
    "TypeVar",
    "TypeVarTuple",
    "TypedDict",
    "Unpack",
    "cast",
    "deque",
    "lru_cache",
    "overload",
]
