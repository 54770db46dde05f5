"""The other side: what a client makes of the answer of a guarded service."""

from __future__ import annotations

import json
from typing import Any, TypeVar

from leasehold._core.types import owner_prefix
from leasehold.errors import InvalidRequest, LeaseholdError, StaleOwner, StoreUnavailable
from leasehold.guards.fence import MAX_FENCE, Fenced
from leasehold.guards.guard import teach
from leasehold.guards.http.problems import MALFORMED, MISSING, OCCUPIED, OTHER, READ_ONLY, STALE, UNAVAILABLE, URN

E = TypeVar("E", bound=LeaseholdError)

REFUSALS = (400, 409, 503)
_MISTAKES = {URN + name for name in (MALFORMED, MISSING, OTHER, READ_ONLY)}
_LATER = {URN + name for name in (OCCUPIED, UNAVAILABLE)}


def check_response(status: int, body: bytes | str, lease: Fenced) -> None:
    """Raise what the guard of a service has said about this lease. Of any other response it says nothing.

    StaleOwner: stop the work. Whoever observes the coordinator of the lease is told, and its next lease has a higher
    fence than the one that the service has seen. InvalidRequest: the request must be changed. StoreUnavailable:
    nothing was done, try again.

    >>> import leasehold
    >>> with leasehold.connect("memory://") as hold, hold.lock("report-export", 42) as lease:
    ...     check_response(409, b'{"type": "urn:leasehold:stale-owner", "seen": 1794768018952706}', lease)
    Traceback (most recent call last):
    leasehold.errors.StaleOwner: the service has refused a stale owner of report-export; roll back and stop the work
    """
    said = _problem(body) if status in REFUSALS else {}
    kind, detail = said.get("type"), str(said.get("detail", ""))[:500]
    if kind == URN + STALE:
        raise _stale(said, lease)
    if kind in _MISTAKES:
        raise _about(InvalidRequest, f"the service has refused the request: {detail}", lease)
    if kind in _LATER:
        raise _about(StoreUnavailable, f"the service could not serve the request: {detail}", lease)


def _problem(body: bytes | str) -> dict[str, Any]:
    try:
        said = json.loads(body)
    except (ValueError, RecursionError):  # not JSON, not UTF-8, or too deep: somebody else's answer
        return {}
    return said if isinstance(said, dict) and isinstance(said.get("type"), str) else {}


def _stale(said: dict[str, Any], lease: Fenced) -> StaleOwner:
    seen = said.get("seen")
    if not isinstance(seen, int) or isinstance(seen, bool) or not 0 < seen <= MAX_FENCE:
        seen = None
    tell = getattr(lease, "_fenced_off", None)  # a lease of ours: its coordinator's observers
    if tell is not None:
        tell(seen, "http")
    else:
        teach(lease.fence, seen)
    kind = lease.resource.partition(":")[0]
    error = _about(StaleOwner, f"the service has refused a stale owner of {kind}; roll back and stop the work", lease)
    error.seen = seen
    return error


def _about(kind: type[E], message: str, lease: Fenced) -> E:
    shown = None if lease.owner is None else owner_prefix(lease.owner)
    return kind(message, resource=lease.resource, owner=None if shown == "?" else shown, fence=lease.fence)
