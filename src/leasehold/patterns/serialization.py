"""What patterns write to a result store, as text: a JSON document that names the pattern and contains a user's value.

A value is written by the Codec of its function, or by the user's serializer: an object with ``dumps`` and ``loads``.
The document says which kind of text that gave. JSON of a Codec is embedded as it is, so that the document is written
and read in one go; ``tagged`` says that it contains names of types. Bytes of a serializer are kept as base64.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from functools import partial
from typing import Any, Protocol

from leasehold.errors import InvalidRequest
from leasehold.guards.fence import label
from leasehold.patterns.annotations import ReturnCodec
from leasehold.patterns.results.result_store import check_text
from leasehold.patterns.values import (
    BASES,
    EXTRA,
    PRIVATE,
    Codec,
    as_base,
    field_names,
    is_model,
    is_tagged,
    names_a_class,
)

# ---------------------------------------------------------------- equality
#
# Is a value that was read again equal to the one that was written? Constructors and models may change it in between.
#
# ``==`` alone cannot tell: NaN is not equal to itself, nor are two dataclasses without ``eq``, nor a datetime with the
# name of a zone and the same moment with an offset, in the hour that a clock change repeats.


def is_same(one: Any, other: Any) -> bool:
    """Of the same type and equal, all the way down. A value of a subclass may have become one of its base type."""
    kind = type(other)
    if type(one) is not kind:
        return kind in BASES and is_same(as_base(one), other)
    if kind in (float, Decimal):
        return str(one) == str(other)
    if kind is datetime and one.tzinfo is not None and other.tzinfo is not None:
        return bool(one.astimezone(UTC) == other.astimezone(UTC))
    if kind is dict:
        one, other = list(one.items()), list(other.items())
    if kind in (list, tuple, dict):
        return len(one) == len(other) and all(map(is_same, one, other))
    parts = (*kind.model_fields, EXTRA, PRIVATE) if is_model(kind) else field_names(kind)
    if parts:
        return all(is_same(getattr(one, part, None), getattr(other, part, None)) for part in parts)
    return bool(one == other)


# ---------------------------------------------------------------- documents


MARK = "leasehold"  # the field that says which pattern wrote a document, and in which version
LARGE = 2**19  # characters


class Serializer(Protocol):
    """A module or an object such as ``json`` or ``pickle``. Anyone who can write to the result store can make
    ``pickle`` run code: use it only where you trust them all."""

    def dumps(self, value: Any, /) -> str | bytes:
        """The value as text or bytes."""

    def loads(self, written: Any, /) -> Any:
        """The value again, from what ``dumps`` gave."""


def check_serializer(serializer: object) -> Any:
    """Check the argument before anything runs. None: a Codec for each function."""
    if serializer is not None and not all(callable(getattr(serializer, name, None)) for name in ("dumps", "loads")):
        raise InvalidRequest(
            f"a serializer has dumps() and loads(), as the modules json and pickle do; {type(serializer).__name__} "
            "does not"
        )
    return serializer


def serializer_of(function: Callable[..., Any], given: Any) -> Callable[[], Any]:
    """A function that returns the serializer for the results of ``function``, to be called before that runs.
    InvalidRequest: no Codec can write them."""
    return ReturnCodec(function).codec if given is None else lambda: given


def dump_value(serializer: Any, value: object, what: str) -> tuple[str, Any]:
    """A value as JSON, for ``document``; and the value as every reader of that gets it. ``what`` names it in errors:
    "the result of page()"."""
    try:
        return _dump_and_verify(serializer, value, what, serializer.dumps)
    except InvalidRequest:
        if not isinstance(serializer, Codec):
            raise
    return _dump_and_verify(serializer, value, what, partial(serializer.dumps, exact=True))


def _dump_and_verify(serializer: Any, value: object, what: str, dumps: Callable[[Any], Any]) -> tuple[str, Any]:
    text = _dumped(serializer, value, what, dumps)
    try:
        again = load_value(serializer, json.loads(text))
    except InvalidRequest as error:
        why = f"it cannot be read again: {type(error.__cause__).__name__}"
        raise _refused(serializer, value, what, why) from error
    if isinstance(serializer, Codec) and names_a_class(text) and not _equal(value, again):
        raise _refused(serializer, value, what, "what is read again is not equal to it")
    return text, again


def _equal(value: object, again: object) -> bool:
    try:
        return is_same(value, again)
    except Exception:  # raised by the user's classes
        return False


def _dumped(serializer: Any, value: object, what: str, dumps: Callable[[Any], Any]) -> str:
    try:
        written = dumps(value)
    except Exception as error:
        reason = f": {error}" if isinstance(error, TypeError) else ""  # the text of other errors may show the value
        raise _refused(serializer, value, what, f"{type(error).__name__}{reason}") from error
    if isinstance(serializer, Codec):
        return f'{{"{"tagged" if is_tagged(written) else "json"}":{written}}}'
    if isinstance(written, str):
        return f'{{"text":{compact(written)}}}'
    if isinstance(written, (bytes, bytearray, memoryview)):
        return f'{{"base64":"{base64.b64encode(written).decode()}"}}'
    raise InvalidRequest(
        f"dumps() of {_name(serializer)} gave {type(written).__name__}, which is neither str nor bytes"
    )


def load_value(serializer: Any, written: Any) -> Any:
    """The value in the JSON of ``dump_value``, parsed. InvalidRequest: another serializer, or another version of a
    class, wrote it."""
    try:
        if isinstance(serializer, Codec):
            return written["json"] if "json" in written else serializer.read(written["tagged"])
        text = written["text"] if "text" in written else base64.b64decode(written["base64"])
        return serializer.loads(text)
    except Exception as error:
        raise InvalidRequest(
            f"what is stored cannot be read with {_name(serializer)} ({type(error).__name__}): it was written with "
            "another serializer or annotation, or by another version of the program"
        ) from error


def document(mark: str, fields: dict[str, Any], value: str | None = None) -> str:
    """The text for a result store: ``mark`` names the pattern, such as ``once/1``; ``value`` is the JSON of
    ``dump_value``. A text that no result store can hold is InvalidRequest here, before anything is written."""
    text = compact({MARK: mark, **fields})
    if value is not None:
        text = f'{text[:-1]},"value":{value}}}'
    checked = check_text(text)
    assert checked is not None  # noqa: S101  # for the type checker: only None gives None
    return checked


def may_be_too_large(text: str) -> bool:
    """May a database drop the connection on it, for its size alone?"""
    return len(text) >= LARGE


def read_document(mark: str, text: str, resource: str) -> dict[str, Any]:
    """The fields of a document, without its mark. A document of another pattern is refused: the two patterns would
    overwrite each other's."""
    try:
        fields = json.loads(text)
        found = fields.pop(MARK)
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        fields, found = {}, "something else"
    if found != mark:
        raise InvalidRequest(
            f"the name is used twice: {str(found)[:40]} has written there, and this is {mark}; give each its own kind "
            f"(this one is {label(resource)})",
            resource=resource,
        )
    return fields  # type: ignore[no-any-return]  # a dict: it has a mark


def compact(value: object) -> str:
    """JSON without spaces."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _refused(serializer: Any, value: object, what: str, why: str) -> InvalidRequest:
    advice = "return what it can write"
    if isinstance(serializer, Codec):
        advice = "name each class in the return annotation of the function, or in its module"
    return InvalidRequest(
        f"{what} is of type {type(value).__name__} and cannot be serialized with {_name(serializer)} ({why}): "
        f"{advice}, or give a serializer= that can write it"
    )


def _name(serializer: Any) -> str:
    if isinstance(serializer, Codec):
        return "json"
    return getattr(serializer, "__name__", None) or type(serializer).__name__
