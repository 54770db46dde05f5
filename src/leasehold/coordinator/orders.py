"""What operators ask of a coordinator, checked before anything is sent."""

from __future__ import annotations

import json
import os

from leasehold._core.durations import seconds
from leasehold._core.light_typing import TYPE_CHECKING, Any, NamedTuple
from leasehold._core.names import MAX_NAME_BYTES, Name, resource_names
from leasehold._core.policy import MAX_NOTE_BYTES, MAX_TTL_MS
from leasehold._core.types import public_owner
from leasehold._runtime.identity import new_owner
from leasehold.errors import InvalidRequest

if TYPE_CHECKING:
    from leasehold._core.durations import Duration
    from leasehold.primitives.base_lease import BaseLease
    from leasehold.primitives.base_lock import BaseLock
    from leasehold.primitives.election import BaseElection
    from leasehold.primitives.rwlock import AsyncReadWriteLock, ReadWriteLock

    Resource = str | BaseLock | BaseElection | BaseLease | ReadWriteLock | AsyncReadWriteLock

MOST_SAID = 300  # characters of a reason, and of a name


class Order(NamedTuple):
    """An eviction that was asked for, checked."""

    names: list[Name]
    fence: int
    request: str
    delay_ms: int | None
    force: bool
    note: str


def named(hold: Any, resource: Resource) -> list[Name]:
    """The name of what a lock, a lease or a text form means to this coordinator; a text may mean either of two."""
    if isinstance(resource, str):
        return resource_names(hold._namespace, resource, hold._id_key)
    known = getattr(resource, "_name", None) or getattr(getattr(resource, "_held", None), "name", None)
    if not isinstance(known, Name):
        raise InvalidRequest(
            f"a resource is a text form such as 'report-export:42', a lock or a lease, not {type(resource).__name__}"
        )
    return [known]


def pattern_of(hold: Any, pattern: object) -> tuple[str, str]:
    """Where to look, and what for: in this namespace, also when the pattern says so itself, as the names that a scan
    shows; without one, in the whole store."""
    if not isinstance(pattern, str) or not 0 < len(pattern) <= MAX_NAME_BYTES:
        raise InvalidRequest(f"a pattern is text such as 'report-export:*', of at most {MAX_NAME_BYTES} characters")
    here = f"{hold._namespace}/" if hold._namespace else ""
    return here, pattern if pattern.startswith(here) else here + pattern


def order(
    hold: Any,
    resource: Resource,
    fence: object,
    reason: object,
    by: object,
    delay: Duration | None,
    force: object,
) -> Order:
    if fence is None:
        raise InvalidRequest("evict needs the fence of the lease that is meant: inspect() says which it is")
    meant = check_fence(fence)
    who = public_owner(new_owner()) if by is None else _said(by, "by")
    note = json.dumps({"by": who, "reason": _said(reason, "reason")}, ensure_ascii=False)
    if len(note.encode()) > MAX_NOTE_BYTES:
        raise InvalidRequest(f"by and reason together take at most about {MAX_NOTE_BYTES - 30} bytes")
    delay_ms = None if delay is None else _delay_ms(delay)
    if not isinstance(force, bool):
        raise InvalidRequest(f"force must be True or False, not {type(force).__name__}")
    return Order(named(hold, resource), meant, os.urandom(16).hex(), delay_ms, force, note)


def _said(text: object, what: str) -> str:
    """What will stand in the audit trail: one line that says something."""
    if not isinstance(text, str) or not text.strip() or len(text) > MOST_SAID or not text.isprintable():
        raise InvalidRequest(f"{what} is one printable line for the audit trail, of at most {MOST_SAID} characters")
    return text.strip()


def _delay_ms(delay: Duration) -> int:
    ms = round(seconds(delay, "delay") * 1000)
    if ms > MAX_TTL_MS:
        raise InvalidRequest("delay must be at most 24 h")
    return ms


def check_fence(fence: object) -> int:
    """0 is the one of a client that knows nothing of fences, and only sets the key of the owner."""
    if isinstance(fence, bool) or not isinstance(fence, int):
        raise InvalidRequest(f"a fence is an int, not {type(fence).__name__}")
    if fence < 0:
        raise InvalidRequest("a fence is not below zero: inspect() says which it is")
    return fence


def check_pattern(pattern: object) -> str:
    """Of keys, as Redis understands it."""
    if not isinstance(pattern, str) or not pattern:
        raise InvalidRequest("a pattern of keys is text such as 'lock:*'")
    return pattern
