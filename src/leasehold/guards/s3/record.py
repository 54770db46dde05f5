"""What a guard keeps in the metadata of an object, and what it returns of an object. Pure.

leasehold-fence      the fence of the last writer, in decimal
leasehold-owner      a digest of its owner; absent when that is not known
leasehold-resource   what the fence belongs to, percent-encoded; a long one is cut and ends in a digest
leasehold-write      a random name of this write: a client that lost the reply can see that it happened
leasehold-past       four bytes of a digest for each of the last 64 ETags that the object had before
leasehold-deleted    "1": the object is gone for readers, and remains only to keep its fence
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import blake2b, md5
from typing import NamedTuple
from urllib.parse import quote

from leasehold._core.headers import parse_fence
from leasehold.errors import StoreUnavailable
from leasehold.guards.fence import UNKNOWN_OWNER, Presented

OURS = "leasehold-"
REMEMBERED = 64  # earlier ETags: 512 bytes of the 2 KB that S3 allows for metadata
LONGEST_NAME = 200  # of a resource in a key or in metadata; file systems under a store often allow 255
_SHORT = 8  # hex digits
_HEX = frozenset("0123456789abcdef")


class Record(NamedTuple):
    """The guard's part of an object's metadata. ``fence`` is None if no guard has written the object."""

    fence: int | None = None
    owner: str = UNKNOWN_OWNER
    resource: str = ""
    write: str = ""
    past: str = ""
    deleted: bool = False


class ObjectState(NamedTuple):
    """What is stored under a key. ``etag`` is None if there is nothing."""

    etag: str | None = None
    record: Record = Record()
    metadata: Mapping[str, str] = {}
    body: bytes = b""

    @property
    def there(self) -> bool:
        """Is there an object for readers?"""
        return self.etag is not None and not self.record.deleted


@dataclass(frozen=True, slots=True)
class Found:
    """An object as it was read or written. ``put(..., after=found)`` writes only if the object has not changed since.

    ``fence`` is None if no guard has written it; ``metadata`` is your own, without the guard's part."""

    key: str
    body: bytes = field(repr=False)
    etag: str
    fence: int | None
    metadata: Mapping[str, str]
    write: str = field(default="", repr=False)


def parse(metadata: Mapping[str, str]) -> Record:
    """The guard's part of metadata as the server returned it. Raises StoreUnavailable if no guard can have written
    it."""
    ours = {name.lower().removeprefix(OURS): text for name, text in metadata.items() if name.lower().startswith(OURS)}
    if not ours:
        return Record()
    fence = parse_fence(ours.get("fence", ""))
    owner, past = ours.get("owner", UNKNOWN_OWNER), ours.get("past", "")
    if fence is None or not _HEX.issuperset(owner + past) or len(past) % _SHORT:
        raise StoreUnavailable(
            "the leasehold- metadata of this object were not written by a guard: its fence cannot be known, and "
            "nothing was written. Find out who wrote them, and remove them or the object"
        )
    return Record(fence, owner, ours.get("resource", ""), ours.get("write", ""), past, ours.get("deleted") == "1")


def compose(attempt: Presented, write: str, before: ObjectState, deleted: bool = False) -> dict[str, str]:
    """The guard's metadata for a write that follows ``before``."""
    ours = {
        "fence": str(attempt.fence),
        "owner": attempt.owner,
        "resource": safe_name(attempt.resource),
        "write": write,
        "past": _remember(before),
        "deleted": "1" if deleted else "",
    }
    return {OURS + name: text for name, text in ours.items() if text}


def user_metadata(metadata: Mapping[str, str]) -> dict[str, str]:
    """Metadata without the guard's part."""
    return {name: text for name, text in metadata.items() if not name.lower().startswith(OURS)}


def is_repeat(body: bytes, fence: int, before: ObjectState) -> bool:
    """Would these bytes bring back an ETag that an owner of an older fence may have seen?

    An ETag is a digest of the bytes alone (or unique, where S3 encrypts with KMS; then this is never so). A stale owner
    that is paused between its read and its write would take the object for the one that it read. To repeat the last
    write under the same fence is harmless: no older owner has seen the object in that state."""
    etag = md5(body, usedforsecurity=False).hexdigest()
    if etag == _bare(before.etag or ""):
        return before.record.fence != fence
    return _short(etag) in _split(before.record.past)


def safe_name(resource: str) -> str:
    """A resource as part of a key: letters, digits and ``_.-~%``. Different resources have different names."""
    name = quote(resource, safe="")
    if len(name) <= LONGEST_NAME:
        return name
    digest = blake2b(resource.encode(), digest_size=16).hexdigest()
    return f"{name[: LONGEST_NAME - 33]}+{digest}"  # no short name has a plus


def _remember(before: ObjectState) -> str:
    if before.etag is None:
        return before.record.past
    newest = _short(before.etag)
    known = [one for one in _split(before.record.past) if one != newest]
    return "".join([*known, newest][-REMEMBERED:])


def _split(past: str) -> list[str]:
    return [past[start : start + _SHORT] for start in range(0, len(past), _SHORT)]


def _short(etag: str) -> str:
    return blake2b(_bare(etag).encode(), digest_size=_SHORT // 2).hexdigest()


def _bare(etag: str) -> str:
    return etag.removeprefix("W/").strip('"').lower()
