"""FenceGuard for S3: look, decide by the rule, and write on the condition that nothing has changed since.

Two traps are of S3's own making. A client that did not hear the answer sends a put again, and is then told that the
condition does not hold, by its own first try: so each write has a name. And an ETag is a digest of the bytes: one that
comes back cannot be told from one that never went away, so bytes that were there before are refused (``is_repeat``).
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterable, Mapping
from itertools import chain
from types import EllipsisType
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from leasehold._runtime.backoff import Backoff
from leasehold.errors import Conflict, InvalidRequest, LeaseholdError, Unsupported
from leasehold.guards.fence import Fenced, Presented, label
from leasehold.guards.guard import BaseGuard
from leasehold.guards.s3.bucket import BOTH, Bucket, Client, NotWritten
from leasehold.guards.s3.record import OURS, Found, ObjectState, compose, is_repeat, safe_name

if TYPE_CHECKING:
    from leasehold.observe.events import Observer

# ---------------------------------------------------------------- asking
#
# Arguments of the guard for S3, checked before anything is sent.


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


# ---------------------------------------------------------------- guard


class Write(NamedTuple):
    """One write, as it was asked for."""

    key: str
    body: bytes
    write: str
    more: dict[str, Any]
    after: After = ...
    repeat: bool = True
    deletes: bool = False


class FenceGuard(BaseGuard):
    """Refuses a stale owner at each object of a bucket. Give it your ``boto3.client("s3")``; threads may share it.

    ``attempts``: how often a write is tried when others write the same object at the same time. ``prefix``: the folder
    for the objects of ``check`` and ``verify``. ``downstream`` names in logs and metrics what it protects; the
    observers of a lease's coordinator hear of its refusal, ``observers`` are for a service without a lock client.

    Its first write asks the bucket, once, whether it keeps conditions at all: see ``verify``."""

    __slots__ = ("_backoff", "_bucket", "_verified", "prefix")

    def __init__(
        self,
        client: Client,
        bucket: str,
        *,
        prefix: str = ".leasehold/",
        downstream: str = "s3",
        observers: Iterable[Observer] = (),
        attempts: int = 10,
    ) -> None:
        super().__init__(downstream=downstream, observers=observers)
        self._bucket = Bucket(client, bucket)
        self._backoff = Backoff(base=0.02, cap=1, attempts=attempts)
        self._verified = False
        self.prefix = check_prefix(prefix)

    # ------------------------------------------------------------ objects

    def put(
        self,
        key: str,
        body: Body,
        lease_or_fence: Fenced | int,
        *,
        resource: str | None = None,
        owner: str | None = None,
        after: After = ...,
        repeat: bool = False,
        **more: Any,
    ) -> Found:
        """Write an object, unless a newer owner was here: then StaleOwner, and nothing has changed. Two requests.

        ``after``: what ``get`` found, None too; the object must still be so, else Conflict. Without it, whatever is
        there is replaced. ``more`` goes to ``put_object``, such as ``ContentType`` or ``Metadata``.

        ``body`` is bytes or text, and must not be what the object held before, else InvalidRequest: S3 could not tell
        the two states apart. The last 64 states are remembered; the very last may be repeated under the same fence. A
        function is given a text that is unique to this write, and returns a body that has it inside: it is never
        refused. ``repeat=True`` writes the same bytes again, and gives up the guarantee against an owner that saw them
        and stood still in the middle of a put."""
        attempt = self.present(lease_or_fence, resource, owner)
        key = check_key(key, self.prefix)
        check_after(after, key)
        if not isinstance(repeat, bool):
            raise InvalidRequest(f"repeat is True or False, not {type(repeat).__name__}")
        write = secrets.token_hex(16)
        order = Write(key, body_of(body, write), write, check_more(more), after, repeat or callable(body))
        return self._carry_out(order, lease_or_fence, attempt)

    def get(
        self,
        key: str,
        lease_or_fence: Fenced | int,
        *,
        resource: str | None = None,
        owner: str | None = None,
        shared: bool = False,
        **more: Any,
    ) -> Found | None:
        """Read an object, all of it; None when there is none. Raises StaleOwner when a newer owner has written it.

        Nothing is remembered, for that would be a write. What you write next with ``after=`` this is refused if
        anybody has written in between, so that read, change and write are safe all the same."""
        attempt = self.present(lease_or_fence, resource, owner, shared)
        seen = self._bucket.read(check_key(key, self.prefix), check_reading(more))
        self._judge(lease_or_fence, attempt, seen)
        if seen.etag is None or not seen.there:
            return None
        return Found(key, seen.body, seen.etag, seen.record.fence, seen.metadata, seen.record.write)

    def delete(
        self,
        key: str,
        lease_or_fence: Fenced | int,
        *,
        resource: str | None = None,
        owner: str | None = None,
        after: After = ...,
        **more: Any,
    ) -> None:
        """Delete an object for ``get``. A small one takes its place: with the object its fence would be forgotten."""
        attempt = self.present(lease_or_fence, resource, owner)
        key = check_key(key, self.prefix)
        check_after(after, key)
        self._carry_out(self._own(key, after=after, deletes=True, **check_more(more)), lease_or_fence, attempt)

    # ------------------------------------------------------------ the door

    def check(
        self,
        lease_or_fence: Fenced | int,
        *,
        resource: str | None = None,
        owner: str | None = None,
        shared: bool = False,
    ) -> None:
        """Accept and remember this fence, or raise StaleOwner. It is a door, and not one step with what you do next.

        The fence is kept in an object of its own under ``prefix``, one for each resource; those of ``put`` are not
        looked at, nor do they look at this one."""
        attempt = self.present(lease_or_fence, resource, owner, shared)
        key = f"{self.prefix}fences/{safe_name(attempt.resource)}.fence"
        if attempt.shared:
            # Not by a look: to that a bucket which does not exist answers as one in which nobody has been.
            self._judge(lease_or_fence, attempt, self._bucket.read(key, {}))
            return
        self._carry_out(self._own(key), lease_or_fence, attempt)

    def verify(self) -> None:
        """Raise Unsupported if the bucket takes conditional writes and ignores their conditions, as older stores do.

        The first write of a guard does it too. Two requests (three for the first guard of a bucket) on one small
        object under ``prefix``."""
        key, body = f"{self.prefix}probe", secrets.token_bytes(16)
        created = self._bucket.accepts(key, body, IfNoneMatch="*")
        if created and self._bucket.accepts(key, body, IfNoneMatch="*"):
            raise Unsupported(_DEAF.format(where=self._bucket.where, condition="If-None-Match: *"))
        if self._bucket.accepts(key, body, IfMatch='"00000000000000000000000000000000"'):
            raise Unsupported(_DEAF.format(where=self._bucket.where, condition="If-Match"))
        self._verified = True

    # ------------------------------------------------------------ one write

    def _own(self, key: str, after: After = ..., deletes: bool = False, **more: Any) -> Write:
        """A write whose bytes are nobody's business, and therefore unique."""
        write = secrets.token_hex(16)
        return Write(key, write.encode(), write, {"Metadata": {}, **more}, after, deletes=deletes)

    def _carry_out(self, order: Write, lease: Fenced | int, attempt: Presented) -> Found:
        if not self._verified:
            self.verify()
        seen = self._bucket.look(order.key, order.more)
        for pause in chain(self._backoff, [0]):
            self._judge(lease, attempt, seen, order)
            if self._recorded(order, attempt, seen):
                return self._found(order, seen.etag, attempt)
            try:
                return self._found(order, self._write(order, seen, attempt), attempt)
            except NotWritten as lost:
                failure = lost
            time.sleep(0 if failure.silent else pause)  # others write it, too: spread
            seen = self._look_again(order, seen, attempt, failure)
            if seen.record.write == order.write:
                return self._found(order, seen.etag, attempt)
        raise self._conflict(attempt, "others write it all the time")

    def _look_again(self, order: Write, before: ObjectState, attempt: Presented, lost: NotWritten) -> ObjectState:
        """What there is now. Our own write is known by its name; where it may be lost, the outcome is unknown."""
        try:
            now = self._bucket.look(order.key, order.more)
        except LeaseholdError:
            if not lost.doubt:
                raise
            raise self._bucket.unanswered(attempt) from lost.__cause__
        changed = now.etag != before.etag and now.record.write != order.write
        if (lost.doubt and changed) or (lost.silent and now.record.write != order.write):
            raise self._bucket.unanswered(attempt) from lost.__cause__
        return now

    def _judge(self, lease: Fenced | int, attempt: Presented, seen: ObjectState, order: Write | None = None) -> None:
        """May it be done, with what there is now?"""
        last = seen.record
        if last.resource and last.resource != safe_name(attempt.resource):
            raise InvalidRequest(
                f"this object is guarded by another resource than {label(attempt.resource)}: fences of two resources "
                "cannot be compared. Let one resource guard it, or use another key"
            )
        if not attempt.follows(last.fence, last.owner):
            raise self.refused(lease, attempt, last.fence)
        if order is None:
            return
        if not _unchanged(order.after, seen):
            raise self._conflict(attempt, "the object is no longer what was read")
        if not order.repeat and is_repeat(order.body, attempt.fence, seen):
            raise InvalidRequest(_REPEATED)

    def _recorded(self, order: Write, attempt: Presented, seen: ObjectState) -> bool:
        """Is it a check whose fence is known already?"""
        return order.key.startswith(self.prefix) and seen.record.fence == attempt.fence

    def _write(self, order: Write, seen: ObjectState, attempt: Presented) -> str:
        metadata = {**order.more["Metadata"], **compose(attempt, order.write, seen, order.deletes)}
        return self._bucket.write(order.key, order.body, seen, {**order.more, "Metadata": metadata})

    def _found(self, order: Write, etag: str | None, attempt: Presented) -> Found:
        return Found(order.key, order.body, etag or "", attempt.fence, order.more["Metadata"], order.write)

    def _conflict(self, attempt: Presented, why: str) -> Conflict:
        return Conflict(
            f"somebody else was faster at {label(attempt.resource)}: {why}. Nothing was written: read again, and "
            "start from there",
            resource=attempt.resource,
            owner=attempt.shown,
            fence=attempt.fence,
        )

    def __repr__(self) -> str:
        return f"<FenceGuard on {self._bucket.where}>"


def _unchanged(after: After, seen: ObjectState) -> bool:
    if after is ...:
        return True
    if after is None:
        return not seen.there
    return seen.there and (after.etag, after.write) == (seen.etag, seen.record.write)


_DEAF = (
    "{where} writes in spite of a condition that does not hold ({condition}): it cannot keep a stale owner out. Use a "
    "store with conditional writes, such as Amazon S3 or a current release of the one that you run"
)
_REPEATED = (
    "these bytes were in this object before. S3 knows a state by a digest of its bytes, and would take a stale owner "
    "that saw them then for one that sees them now. Put something unique into them (a function as body is given a text "
    "for that), or say repeat=True if you can live with that"
)
