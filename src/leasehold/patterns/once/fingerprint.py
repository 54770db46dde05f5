"""Fingerprints: a digest that is the same for the same body, whatever the order of its keys.

Values are first brought into a canonical form. Two different values never have the same form: text, bytes and numbers
each have a prefix of their own. A value without such a form is refused by the name of its type; a body is never shown.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import math
from collections.abc import Callable, Mapping
from datetime import date, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

from leasehold._core.templates import Template
from leasehold.errors import InvalidRequest
from leasehold.primitives.decorated_function import not_a_coroutine

LARGE = 2**63  # from here on numbers are written in hexadecimal: Python limits the length of decimal ones


class Fingerprint:
    """The argument ``fingerprint=`` of ``once``: a template, a function of the arguments, or nothing."""

    __slots__ = ("_key", "_template", "function", "names")

    def __init__(self, written: object, key: bytes) -> None:
        self._key = key
        self.function: Callable[..., Any] | None = None
        self._template: Template | None = None
        if isinstance(written, str):
            self._template = _template(written)
        elif callable(written):
            self.function = written
        elif written is not None:
            raise InvalidRequest(
                f"fingerprint is a template such as '{{body}}', or a function of the arguments, not "
                f"{type(written).__name__}"
            )
        self.names = [] if self._template is None else self._template.names

    def of(
        self, resource: str, values: Mapping[str, object], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> str | None:
        """The digest for one call; None if nothing is compared."""
        if self._template is not None:
            return self._digest(resource, [field.value(values) for field in self._template.fields])
        if self.function is not None:
            return self._digest(resource, _called(self.function, args, kwargs))
        return None

    def _digest(self, resource: str, value: object) -> str:
        """The digest covers the name, so that a reader of the results cannot tell that two keys have equal bodies."""
        written = json.dumps([resource, canonical(value)], separators=(",", ":"), sort_keys=True).encode()
        if self._key:
            return hmac.new(self._key, written, hashlib.sha256).hexdigest()
        return hashlib.sha256(written).hexdigest()


def _called(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    try:
        return not_a_coroutine(function(*args, **kwargs))
    except Exception as error:
        raise InvalidRequest(
            f"the fingerprint cannot be computed: the function that was given for it raised {type(error).__name__}"
        ) from error


def canonical(value: object) -> Any:
    """A form that JSON can write, the same for equal values and another for all others."""
    try:
        return _canonical(value)
    except RecursionError:
        raise InvalidRequest("the fingerprint cannot be computed: the value is too deep, or holds itself") from None
    except InvalidRequest:
        raise
    except Exception as error:  # such as one of a user's own mapping
        raise InvalidRequest(
            f"the fingerprint cannot be computed of {type(value).__name__}: reading it raised {type(error).__name__}"
        ) from error


def _canonical(value: object) -> Any:
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return "s" + _utf8(str.__str__(value))
    if isinstance(value, int):
        return int(value) if abs(value) < LARGE else f"i{int(value):x}"
    if isinstance(value, float):
        return _finite(value, math.isfinite(value))
    if isinstance(value, (bytes, bytearray, memoryview)):
        return "b" + base64.b64encode(bytes(value)).decode()
    if isinstance(value, Mapping):
        return {_name(key): _canonical(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_canonical(each) for each in value]
    return _plain(value)


def _plain(value: object) -> str:
    """Small values of the standard library, each with one text form."""
    if isinstance(value, Decimal):
        return f"d{_finite(value, value.is_finite())}"
    if isinstance(value, UUID):
        return f"u{value}"
    if isinstance(value, (date, datetime)):
        return f"t{value.isoformat()}"
    raise InvalidRequest(
        f"the fingerprint cannot be computed of {type(value).__name__}: name what identifies the request by fields "
        "that are text, bytes, numbers, dates, or lists and dicts of them, or give a function that returns such"
    )


def _finite(value: Any, finite: bool) -> Any:
    if not finite:
        raise InvalidRequest("the fingerprint cannot be computed of NaN or infinity, which equal nothing or everything")
    return value


def _name(key: object) -> str:
    if not isinstance(key, str):
        raise InvalidRequest(f"the fingerprint cannot be computed of a dict with keys of {type(key).__name__}: use str")
    return _utf8(str.__str__(key))


def _utf8(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InvalidRequest("the fingerprint cannot be computed of text that holds a lone surrogate") from None
    return text


def _template(written: str) -> Template:
    template = Template(written)
    if not template.names:
        raise InvalidRequest(
            "fingerprint names no parameter: it would be the same for every body; write '{body}', or leave it out"
        )
    return template
