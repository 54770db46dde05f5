"""FenceGuard for S3: read the state, decide by the rule, and write on the condition that nothing has changed since.

Two problems are S3's own. A client that did not get the response sends a put again, and the condition then fails
because of its own first try: so each write has a name. And an ETag is a digest of the bytes: an object that changed and
changed back looks unchanged, so bytes that the object had before are refused (``is_repeat``).
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
from leasehold.guards.fence import Fenced, Presented, label, utf8
from leasehold.guards.guard import BaseGuard
from leasehold.guards.s3.bucket import READ_OPTIONS, Bucket, Client, NotWritten
from leasehold.guards.s3.record import OURS, Found, ObjectState, compose, is_repeat, safe_name

if TYPE_CHECKING:
    from leasehold.observe.events import Observer

# ---------------------------------------------------------------- arguments
#
# They are checked before anything is sent.


LONGEST_KEY = 1024  # bytes, as S3 counts them

Body: TypeAlias = bytes | bytearray | memoryview | str | Callable[[str], bytes | str]
After: TypeAlias = Found | EllipsisType | None


def check_key(key: object, prefix: str) -> str:
    """A key that S3 accepts, outside the folder in which guards keep fences."""
    if not isinstance(key, str) or not 0 < len(utf8(key, "key")) <= LONGEST_KEY or "\0" in key:
        raise InvalidRequest(f"key is the name of an object: text of 1 to {LONGEST_KEY} bytes in UTF-8, without NUL")
    if key.startswith(prefix):
        raise InvalidRequest(f"keys under {prefix!r} are the guard's own: choose another, or give the guard a prefix")
    return str.__str__(key)  # str() of an Enum that is text would give another name


def check_prefix(prefix: object) -> str:
    """The folder for the guard's own objects. No key of the user may begin with it."""
    if not isinstance(prefix, str) or not 1 < len(utf8(prefix, "prefix")) <= 200 or not prefix.endswith("/"):
        raise InvalidRequest("prefix is a folder for the guard's own objects, such as '.leasehold/'")
    return str.__str__(prefix)


def body_of(body: object, name: str) -> bytes:
    """The bytes to store. A function is given the name of this write, and must put it into them."""
    content = body(name) if callable(body) else body
    if isinstance(content, str):
        content = utf8(content, "body")
    if not isinstance(content, bytes | bytearray | memoryview):
        raise InvalidRequest(f"body is bytes or text, or a function that gives them, not {type(content).__name__}")
    data = bytes(content)
    if callable(body) and name.encode() not in data:
        raise InvalidRequest("the function for the body is given a text that must stand in what it returns")
    return data


def check_after(after: object, key: str) -> None:
    if after is not ... and after is not None and not isinstance(after, Found):
        raise InvalidRequest(f"after is what get() or put() gave for this key, or None, not {type(after).__name__}")
    if isinstance(after, Found) and after.key != key:
        raise InvalidRequest("after is what was found under another key")


def check_more(more: Mapping[str, Any]) -> dict[str, Any]:
    """Further arguments for put_object. Those that the guard sets itself are refused."""
    for name in more:
        if name in _RESERVED:
            raise InvalidRequest(f"{name} is the guard's to set; leave it out")
        if isinstance(more[name], str) and not (
            more[name].isprintable() or name in READ_OPTIONS
        ):  # a key may be any bytes
            raise InvalidRequest(f"{name} becomes a header of HTTP: it cannot hold line breaks and the like")
    metadata = more.get("Metadata", {})
    if not isinstance(metadata, Mapping) or not all(
        isinstance(text, str) and text.isascii() and text.isprintable() for item in metadata.items() for text in item
    ):
        raise InvalidRequest("Metadata is a mapping of text to text: headers of HTTP, of ASCII without line breaks")
    if any(name.lower().startswith(OURS) for name in metadata):
        raise InvalidRequest(f"names of metadata that begin with {OURS!r} are the guard's own")
    return {**more, "Metadata": dict(metadata)}


def check_read_options(more: Mapping[str, Any]) -> Mapping[str, Any]:
    unknown = sorted(set(more) - set(READ_OPTIONS))
    if unknown:
        raise InvalidRequest(f"get() takes {', '.join(READ_OPTIONS)} and no {unknown[0]}")
    return more


_RESERVED = {"Bucket", "Key", "Body", "IfMatch", "IfNoneMatch", "WriteOffsetBytes"}


# ---------------------------------------------------------------- guard


class Write(NamedTuple):
    """A write to carry out."""

    key: str
    body: bytes
    name: str
    more: dict[str, Any]
    after: After = ...
    repeat: bool = True
    deletes: bool = False


class FenceGuard(BaseGuard):
    """Refuses a stale owner at each object of a bucket. Give it your ``boto3.client("s3")``; threads may share it.

    ``attempts``: how often a write is tried when others write the same object at the same time. ``prefix``: the folder
    for the objects of ``check`` and ``verify``. ``downstream`` names what it protects, in logs and metrics; the
    observers of a lease's coordinator are notified of a refusal, ``observers`` are for a service without a lock client.

    The first write of a guard tests once whether the bucket honours conditions at all: see ``verify``."""

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
        name = secrets.token_hex(16)
        write = Write(key, body_of(body, name), name, check_more(more), after, repeat or callable(body))
        return self._carry_out(write, lease_or_fence, attempt)

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
        """Read a whole object; None if there is none. Raises StaleOwner if a newer owner has written it.

        Nothing is remembered, for that would be a write. A later write with ``after=`` the result is refused if the
        object was written in between, so that read, change and write are safe all the same."""
        attempt = self.present(lease_or_fence, resource, owner, shared)
        state = self._bucket.read(check_key(key, self.prefix), check_read_options(more))
        self._decide(lease_or_fence, attempt, state)
        if state.etag is None or not state.there:
            return None
        return Found(key, state.body, state.etag, state.record.fence, state.metadata, state.record.write)

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
        """Delete an object for ``get``. A small one takes its place, because the fence would be lost with the
        object."""
        attempt = self.present(lease_or_fence, resource, owner)
        key = check_key(key, self.prefix)
        check_after(after, key)
        self._carry_out(self._guard_write(key, after=after, deletes=True, **check_more(more)), lease_or_fence, attempt)

    # ------------------------------------------------------------ check

    def check(
        self,
        lease_or_fence: Fenced | int,
        *,
        resource: str | None = None,
        owner: str | None = None,
        shared: bool = False,
    ) -> None:
        """Accept and remember this fence, or raise StaleOwner. It is not one step with what you do next.

        The fence is kept in an object of its own under ``prefix``, one for each resource. It is independent of the
        fences of ``put``."""
        attempt = self.present(lease_or_fence, resource, owner, shared)
        key = f"{self.prefix}fences/{safe_name(attempt.resource)}.fence"
        if attempt.shared:
            # Not with HEAD: for that a bucket that does not exist looks like an empty one.
            self._decide(lease_or_fence, attempt, self._bucket.read(key, {}))
            return
        self._carry_out(self._guard_write(key), lease_or_fence, attempt)

    def verify(self) -> None:
        """Raise Unsupported if the bucket accepts conditional writes and ignores their conditions, as older stores do.

        The first write of a guard calls it. Two requests (three for the first guard of a bucket) on one small
        object under ``prefix``."""
        key, body = f"{self.prefix}probe", secrets.token_bytes(16)
        created = self._bucket.accepts(key, body, IfNoneMatch="*")
        if created and self._bucket.accepts(key, body, IfNoneMatch="*"):
            raise Unsupported(_IGNORES_CONDITIONS.format(where=self._bucket.where, condition="If-None-Match: *"))
        if self._bucket.accepts(key, body, IfMatch='"00000000000000000000000000000000"'):
            raise Unsupported(_IGNORES_CONDITIONS.format(where=self._bucket.where, condition="If-Match"))
        self._verified = True

    # ------------------------------------------------------------ one write

    def _guard_write(self, key: str, after: After = ..., deletes: bool = False, **more: Any) -> Write:
        """A write of an object of the guard's own. Nothing reads its bytes, so they are made unique."""
        name = secrets.token_hex(16)
        return Write(key, name.encode(), name, {"Metadata": {}, **more}, after, deletes=deletes)

    def _carry_out(self, write: Write, lease: Fenced | int, attempt: Presented) -> Found:
        if not self._verified:
            self.verify()
        state = self._bucket.head(write.key, write.more)
        for pause in chain(self._backoff, [0]):
            self._decide(lease, attempt, state, write)
            if self._recorded(write, attempt, state):
                return self._found(write, state.etag, attempt)
            try:
                return self._found(write, self._write(write, state, attempt), attempt)
            except NotWritten as error:
                failure = error
            time.sleep(0 if failure.unanswered else pause)  # others write it too: spread the tries
            state = self._read_again(write, state, attempt, failure)
            if state.record.write == write.name:
                return self._found(write, state.etag, attempt)
        raise self._conflict(attempt, "others write it all the time")

    def _read_again(self, write: Write, before: ObjectState, attempt: Presented, failure: NotWritten) -> ObjectState:
        """The state now. Our own write is recognised by its name; if it may be overwritten, the outcome is unknown."""
        try:
            now = self._bucket.head(write.key, write.more)
        except LeaseholdError:
            if not failure.maybe_written:
                raise
            raise self._bucket.unanswered(attempt) from failure.__cause__
        changed = now.etag != before.etag and now.record.write != write.name
        if (failure.maybe_written and changed) or (failure.unanswered and now.record.write != write.name):
            raise self._bucket.unanswered(attempt) from failure.__cause__
        return now

    def _decide(self, lease: Fenced | int, attempt: Presented, state: ObjectState, write: Write | None = None) -> None:
        """Raise an error unless the write, or a read without one, is allowed in this state."""
        last = state.record
        if last.resource and last.resource != safe_name(attempt.resource):
            raise InvalidRequest(
                f"this object is guarded by another resource than {label(attempt.resource)}: fences of two resources "
                "cannot be compared. Let one resource guard it, or use another key"
            )
        if not attempt.follows(last.fence, last.owner):
            raise self.refused(lease, attempt, last.fence)
        if write is None:
            return
        if not _unchanged(write.after, state):
            raise self._conflict(attempt, "the object is no longer what was read")
        if not write.repeat and is_repeat(write.body, attempt.fence, state):
            raise InvalidRequest(_REPEATED)

    def _recorded(self, write: Write, attempt: Presented, state: ObjectState) -> bool:
        """Is it a check whose fence is remembered already?"""
        return write.key.startswith(self.prefix) and state.record.fence == attempt.fence

    def _write(self, write: Write, state: ObjectState, attempt: Presented) -> str:
        metadata = {**write.more["Metadata"], **compose(attempt, write.name, state, write.deletes)}
        return self._bucket.write(write.key, write.body, state, {**write.more, "Metadata": metadata})

    def _found(self, write: Write, etag: str | None, attempt: Presented) -> Found:
        return Found(write.key, write.body, etag or "", attempt.fence, write.more["Metadata"], write.name)

    def _conflict(self, attempt: Presented, why: str) -> Conflict:
        return Conflict(
            f"another writer was faster at {label(attempt.resource)}: {why}. Nothing was written: read again, and "
            "start from there",
            resource=attempt.resource,
            owner=attempt.shown,
            fence=attempt.fence,
        )

    def __repr__(self) -> str:
        return f"<FenceGuard on {self._bucket.where}>"


def _unchanged(after: After, state: ObjectState) -> bool:
    if after is ...:
        return True
    if after is None:
        return not state.there
    return state.there and (after.etag, after.write) == (state.etag, state.record.write)


_IGNORES_CONDITIONS = (
    "{where} writes in spite of a condition that does not hold ({condition}): it cannot keep a stale owner out. Use a "
    "store with conditional writes, such as Amazon S3 or a current release of the one that you run"
)
_REPEATED = (
    "these bytes were in this object before. S3 knows a state by a digest of its bytes, and would take a stale owner "
    "that saw them then for one that sees them now. Put something unique into them (a function as body is given a text "
    "for that), or say repeat=True if you can live with that"
)
