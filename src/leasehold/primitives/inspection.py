"""A resource as operators see it: its holders, its queue and its audit trail. Nothing here can act as an owner: owner
tokens are cut after ``<instance>:<pid>``."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

from leasehold._core import ops, types
from leasehold._core.light_typing import Any, NamedTuple
from leasehold._core.names import parse_name
from leasehold._core.policy import patience_ms
from leasehold._core.rules import MUTEX, READ, SEMAPHORE, WRITE
from leasehold._core.types import public_owner

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MOST_LENGTH = 366 * 86400  # seconds: more is no length of a lease
_MODES = {MUTEX: "exclusive", READ: "read", WRITE: "write", SEMAPHORE: "permit"}


class Holder(NamedTuple):
    """A holder. Its lease expires in ``expires_in`` seconds, unless it is renewed; the holder itself stops earlier, by
    ``lease.remaining()``. ``mode`` is ``exclusive``, ``read``, ``write`` or ``permit``; a permit has ``slots``. The
    holder of a client that only sets the key of the owner has the fence 0, and ``since`` is None."""

    owner: str
    fence: int
    ttl: float
    expires_in: float
    since: datetime | None
    meta: dict[str, Any]
    mode: str = "exclusive"
    slots: tuple[int, ...] = ()


class Waiting(NamedTuple):
    """A waiter. When it is not ``live`` it has been silent, and is passed over until it beats again."""

    owner: str
    ttl: float
    since: datetime
    live: bool
    meta: dict[str, Any]


class Note(NamedTuple):
    """An entry of the audit trail: what an operator did. ``event`` is ``evicted``, or ``asked`` for a request to
    release. ``remaining`` is how many seconds were left of the lease when it was evicted; None when it is not recorded.
    ``reason`` is empty when none was given."""

    at: datetime
    event: str
    owner: str  # whose lease it was
    fence: int
    by: str
    reason: str
    remaining: float | None = None


class Inspection(NamedTuple):
    """One resource as the store sees it. ``fence`` is the last one that was granted; ``closed_for`` is for how many
    seconds no lease is granted; ``limit`` is what a semaphore was resized to, or None. ``unreadable`` lists the records
    that are not Leasehold's, or damaged, and why: the rest is as the store has it, but holders may be missing."""

    resource: str
    holders: tuple[Holder, ...]
    waiters: tuple[Waiting, ...]
    fence: int
    closed_for: float
    notes: tuple[Note, ...]
    limit: int | None = None
    unreadable: tuple[str, ...] = ()

    def __repr__(self) -> str:
        """Without the ids, which ``.resource`` has: a repr ends up in logs."""
        by = ", ".join(map(_holder_text, self.holders))
        waiting = f"{len(self.waiters)} waiting" if self.waiters else "nobody waits"
        limit = f", limit={self.limit}" if self.limit else ""
        held = f"held by {by}" if by else "unreadable" if self.unreadable else "free"
        unreadable = f", {len(self.unreadable)} unreadable" if self.unreadable else ""
        return f"<Inspection {parse_name(self.resource).shown} {held}, {waiting}{limit}{unreadable}>"

    @property
    def held(self) -> bool:
        return bool(self.holders)

    @property
    def holder(self) -> Holder | None:
        """The holder; the first of several."""
        return self.holders[0] if self.holders else None


class Eviction(NamedTuple):
    """The outcome of ``evict``: whose lease it was, a fence above its own, and for how many seconds none is granted."""

    resource: str
    owner: str
    fence: int
    closed_for: float

    def __repr__(self) -> str:
        shown = parse_name(self.resource).shown
        return f"<Eviction of {self.owner} from {shown} fence={self.fence} closed_for={self.closed_for:.3f}s>"


def inspection(resource: str, view: ops.View) -> Inspection:
    """A view of the store, for operators."""
    return Inspection(
        resource,
        tuple([_holder(one, view.now_ms) for one in view.holders]),
        tuple([_waiting(one, view.now_ms) for one in view.queue]),
        view.fence,
        view.closed_ms / 1000,
        tuple([_note(one) for one in view.notes]),
        view.limit or None,
        tuple([_unreadable(one) for one in view.unreadable]),
    )


def _holder_text(holder: Holder) -> str:
    """One holder in a line; the usual mode is left out."""
    how = "" if holder.mode == "exclusive" else f" {holder.mode}"
    slots = f" {','.join(map(str, holder.slots))}" if holder.slots else ""
    return f"{holder.owner}{how}{slots} fence={holder.fence} expires_in={holder.expires_in:.3f}s"


def _unreadable(record: types.Unreadable) -> str:
    blocks = "; until it is gone, it is not known who holds" if record.blocks else ""
    return f"{record.what} {record.why}{blocks}"


def _holder(grant: types.Grant, now_ms: int) -> Holder:
    expires_in = max(grant.expires_ms - now_ms, 0) / 1000
    began = _time(grant.since_us)
    since = None if began == _EPOCH else began
    mode, slots = _MODES.get(grant.rule, grant.rule), grant.slots if grant.rule == SEMAPHORE else ()
    owner, ttl = public_owner(grant.owner), grant.ttl_ms / 1000
    return Holder(owner, grant.fence, ttl, expires_in, since, _meta(grant.meta), mode, slots)


def _waiting(waiter: types.Waiter, now_ms: int) -> Waiting:
    live = now_ms - waiter.beat_ms <= patience_ms(waiter.ttl_ms)
    owner = public_owner(waiter.owner)
    return Waiting(owner, waiter.ttl_ms / 1000, _time(waiter.since_us), live, _meta(waiter.meta))


def _note(note: types.AuditNote) -> Note:
    text = _meta(note.text)
    by, reason = str(text.get("by", "")), str(text.get("reason", ""))
    return Note(_time(note.at_us), note.event, note.owner, note.fence, by, reason, _length(text.get("remaining")))


def _length(found: object) -> float | None:
    """Seconds in a note, which any program may have written."""
    return float(found) if isinstance(found, (int, float)) and 0 <= found < MOST_LENGTH else None


def _time(us: int) -> datetime:
    """A time in the store that is no time must not keep operators from seeing the rest."""
    try:
        return _EPOCH + timedelta(microseconds=us)
    except OverflowError:
        return _EPOCH


def _meta(text: str) -> dict[str, Any]:
    """The JSON in the store; empty when it cannot be read."""
    try:
        found = json.loads(text) if text else {}
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
