"""What operators see of a resource: who holds it, who waits, and what was done to it. Nothing here can act as an
owner: tokens end at ``<instance>:<pid>``."""

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
_MODES = {MUTEX: "exclusive", READ: "read", WRITE: "write", SEMAPHORE: "permit"}


class Holder(NamedTuple):
    """Somebody who holds. In ``expires_in`` seconds the store forgets the lease, unless it is renewed; its holder stops
    earlier, as ``lease.remaining()`` tells it. ``mode`` is ``exclusive``, ``read``, ``write`` or ``permit``; a permit
    has ``slots``. A client that only sets the key of the owner has the fence 0, and nobody knows since when it
    holds."""

    owner: str
    fence: int
    ttl: float
    expires_in: float
    since: datetime | None
    meta: dict[str, Any]
    mode: str = "exclusive"
    slots: tuple[int, ...] = ()


class Waiting(NamedTuple):
    """Somebody who waits. Not ``live``: it has been silent, and is passed over until it shows up again."""

    owner: str
    ttl: float
    since: datetime
    live: bool
    meta: dict[str, Any]


class Note(NamedTuple):
    """What an operator did: the audit trail of one resource."""

    at: datetime
    event: str
    owner: str  # whose lease it was
    fence: int
    by: str
    reason: str


class Inspection(NamedTuple):
    """One resource as the store sees it. ``fence`` is the last that was given; ``closed_for`` says for how many seconds
    nobody is granted; ``limit`` is what a semaphore was resized to, or None. ``unreadable`` says what of it is no
    record of ours, or damaged, and why: the rest is as the store has it, but who holds may not be known."""

    resource: str
    holders: tuple[Holder, ...]
    waiters: tuple[Waiting, ...]
    fence: int
    closed_for: float
    notes: tuple[Note, ...]
    limit: int | None = None
    unreadable: tuple[str, ...] = ()

    def __repr__(self) -> str:
        """Without the ids, which ``.resource`` says: a repr ends up in logs."""
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
        """Who holds it; the first of several."""
        return self.holders[0] if self.holders else None


class Eviction(NamedTuple):
    """What came of one: whose lease it was, a fence above his, and for how many seconds nobody is granted."""

    resource: str
    owner: str
    fence: int
    closed_for: float

    def __repr__(self) -> str:
        shown = parse_name(self.resource).shown
        return f"<Eviction of {self.owner} from {shown} fence={self.fence} closed_for={self.closed_for:.3f}s>"


def inspection(resource: str, view: ops.View) -> Inspection:
    """A view of the store, for people."""
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
    """One holder in a line; what everybody has who holds alone is not note."""
    how = "" if holder.mode == "exclusive" else f" {holder.mode}"
    slots = f" {','.join(map(str, holder.slots))}" if holder.slots else ""
    return f"{holder.owner}{how}{slots} fence={holder.fence} expires_in={holder.expires_in:.3f}s"


def _unreadable(record: types.Unreadable) -> str:
    blocks = "; until it is gone, nobody knows who holds" if record.blocks else ""
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
    return Note(_time(note.at_us), note.event, note.owner, note.fence, by, reason)


def _time(us: int) -> datetime:
    """Somebody who wrote nonsense into the store must not keep operators from seeing it."""
    try:
        return _EPOCH + timedelta(microseconds=us)
    except OverflowError:
        return _EPOCH


def _meta(text: str) -> dict[str, Any]:
    """What somebody wrote; nothing when it cannot be read."""
    try:
        found = json.loads(text) if text else {}
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
