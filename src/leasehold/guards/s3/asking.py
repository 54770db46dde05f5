"""Arguments of the guard for S3, checked before anything is sent."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import EllipsisType
from typing import Any, TypeAlias

from leasehold.errors import InvalidRequest
from leasehold.guards.s3.bucket import BOTH
from leasehold.guards.s3.record import OURS, Found

LONGEST_KEY = 1024  # bytes, as S3 counts them

Body: TypeAlias = bytes | bytearray | memoryview | str | Callable[[str], bytes | str]
After: TypeAlias = Found | EllipsisType | None


def check_key(key: object, prefix: str) -> str:
    """A key that S3 takes, outside the folder in which guards keep fences."""
    if not isinstance(key, str) or not 0 < len(utf8(key, "key")) <= LONGEST_KEY or "\0" in key:
        raise InvalidRequest(f"key is the name of an object: text of 1 to {LONGEST_KEY} bytes in UTF-8, without NUL")
    if key.startswith(prefix):
        raise InvalidRequest(f"keys under {prefix!r} are the guard's own: choose another, or give the guard a prefix")
    return str.__str__(key)  # str() of an Enum that is text would say another name


def check_prefix(prefix: object) -> str:
    """The folder of the guard: one that no key of the user can begin with by chance."""
    if not isinstance(prefix, str) or not 1 < len(utf8(prefix, "prefix")) <= 200 or not prefix.endswith("/"):
        raise InvalidRequest("prefix is a folder for the guard's own objects, such as '.leasehold/'")
    return str.__str__(prefix)


def body_of(body: object, write: str) -> bytes:
    """The bytes to store. A function is given the name of this write, and must have put it into them."""
    made = body(write) if callable(body) else body
    if isinstance(made, str):
        made = utf8(made, "body")
    if not isinstance(made, bytes | bytearray | memoryview):
        raise InvalidRequest(f"body is bytes or text, or a function that gives them, not {type(made).__name__}")
    data = bytes(made)
    if callable(body) and write.encode() not in data:
        raise InvalidRequest("the function for the body is given a text that must stand in what it returns")
    return data


def check_after(after: object, key: str) -> None:
    if after is not ... and after is not None and not isinstance(after, Found):
        raise InvalidRequest(f"after is what get() or put() gave for this key, or None, not {type(after).__name__}")
    if isinstance(after, Found) and after.key != key:
        raise InvalidRequest("after is what was found under another key")


def check_more(more: Mapping[str, Any]) -> dict[str, Any]:
    """More arguments for put_object; those that are the guard's own are refused."""
    for name in more:
        if name in _GUARDED:
            raise InvalidRequest(f"{name} is the guard's to set; leave it out")
        if isinstance(more[name], str) and not (more[name].isprintable() or name in BOTH):  # a key may be any bytes
            raise InvalidRequest(f"{name} becomes a header of HTTP: it cannot hold line breaks and the like")
    metadata = more.get("Metadata", {})
    if not isinstance(metadata, Mapping) or not all(
        isinstance(text, str) and text.isascii() and text.isprintable() for item in metadata.items() for text in item
    ):
        raise InvalidRequest("Metadata is a mapping of text to text: headers of HTTP, of ASCII without line breaks")
    if any(name.lower().startswith(OURS) for name in metadata):
        raise InvalidRequest(f"names of metadata that begin with {OURS!r} are the guard's own")
    return {**more, "Metadata": dict(metadata)}


def check_reading(more: Mapping[str, Any]) -> Mapping[str, Any]:
    unknown = sorted(set(more) - set(BOTH))
    if unknown:
        raise InvalidRequest(f"get() takes {', '.join(BOTH)} and no {unknown[0]}")
    return more


def utf8(text: str, what: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise InvalidRequest(f"{what} holds a lone surrogate and cannot be written as UTF-8") from None


_GUARDED = {"Bucket", "Key", "Body", "IfMatch", "IfNoneMatch", "WriteOffsetBytes"}
