"""Parts of the standard library for a fast start: SQLite, sockets and JSON, without what a short command does not use.

``sqlite3`` adds adapters for dates, and loads ``datetime`` for them; ``socket`` makes enums; ``json`` compiles
patterns, and loads ``re``. The C modules below do the work. Where a Python lacks one, the whole module is loaded.
"""

from __future__ import annotations

from leasehold._core.light_typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import socket
    import sqlite3
else:
    try:
        import _socket as socket
        import _sqlite3 as sqlite3
    except ImportError:
        import socket
        import sqlite3

__all__ = ["parse", "socket", "sqlite3", "suppress", "text"]


class _Defaults:
    """The settings that ``json`` decodes with by default."""

    strict = True
    object_hook = object_pairs_hook = None
    parse_float = float
    parse_int = int
    parse_constant = float


def _refuse(value: object) -> Any:
    raise TypeError(f"{type(value).__name__} cannot be written as JSON")


_scan: Any
_write: Any
try:
    from _json import encode_basestring_ascii, make_encoder, make_scanner

    _scan = make_scanner(_Defaults())  # type: ignore[arg-type]  # typeshed wants a scanner where json gives its decoder
    _write = make_encoder(None, _refuse, encode_basestring_ascii, None, ":", ",", False, False, True)
except (ImportError, TypeError, AttributeError):  # missing, or of a Python with other parameters
    import json

    _scan = json.JSONDecoder().raw_decode
    _write = json.JSONEncoder(separators=(",", ":"), check_circular=False).iterencode


def text(value: object) -> str:
    """A value as JSON without spaces. Plain ASCII: a lone surrogate in the metadata must not make a row unwritable."""
    return "".join(_write(value, 0))


def parse(text: str) -> Any:
    """The value; ValueError for a text that is no JSON, or has something after it."""
    try:
        value, end = _scan(text, 0)
    except StopIteration:
        raise ValueError("no JSON") from None
    if end != len(text):
        raise ValueError("more than one JSON value")
    return value


class suppress:  # noqa: N801  # as it is called in contextlib
    """Ignores these errors, as that of contextlib does."""

    def __init__(self, *errors: type[BaseException]) -> None:
        self._errors = errors

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: object) -> bool:
        return kind is not None and issubclass(kind, self._errors)
