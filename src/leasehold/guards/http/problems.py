"""The responses to refused requests: ``application/problem+json``, as RFC 9457 defines it.

    type                                status
    urn:leasehold:stale-owner           409      a newer fence was presented: stop the work
    urn:leasehold:missing-token         409      the request needs a lease, and has no token
    urn:leasehold:read-only-token       409      a lease that may only read, and a request that writes
    urn:leasehold:malformed-token       400      headers that no lease has written
    urn:leasehold:other-resource        400      the fence of one resource, and a request about another
    urn:leasehold:guard-unavailable     503      the guard could not check the fence
    urn:leasehold:earlier-owner-inside  503      a request with an older fence has not ended yet

None of these requests was served. Texts name the kind of a resource and never its ids or its namespace.
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple, TypeVar

from leasehold._core import headers
from leasehold._core.names import parse_name
from leasehold.errors import InvalidRequest, LeaseholdError, StaleOwner, StoreUnavailable
from leasehold.guards.fence import MAX_FENCE, Fenced, label, shown_owner
from leasehold.guards.guard import raise_floors

URN = "urn:leasehold:"
STALE, MISSING, READ_ONLY = "stale-owner", "missing-token", "read-only-token"
MALFORMED, OTHER = "malformed-token", "other-resource"
UNAVAILABLE, OCCUPIED = "guard-unavailable", "earlier-owner-inside"

BAD_REQUEST, CONFLICT, UNABLE = 400, 409, 503
RETRY_AFTER = 1  # seconds
NOTHING_DONE = "Nothing was done."


class Problem(NamedTuple):
    """A refusal as an HTTP response: ``status``, ``headers`` and ``body``, for whatever framework sends it."""

    name: str
    status: int
    title: str
    detail: str
    more: dict[str, int | str | None] = {}  # noqa: RUF012 # never written to

    @property
    def body(self) -> bytes:
        """The JSON. Fences are whole numbers of up to 63 bits: parse them as 64-bit integers."""
        fields = {"type": URN + self.name, "title": self.title, "status": self.status, "detail": self.detail}
        known = {key: value for key, value in self.more.items() if value is not None}
        return json.dumps({**fields, **known}).encode()

    @property
    def headers(self) -> list[tuple[str, str]]:
        """Content type and length; Retry-After, if another try makes sense."""
        found = [("Content-Type", "application/problem+json"), ("Content-Length", str(len(self.body)))]
        return [*found, ("Retry-After", str(RETRY_AFTER))] if self.status == UNABLE else found


class RequestRefused(Exception):
    """Raised inside a middleware to refuse a request. It never leaves the middleware."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.detail)
        self.problem = problem


def problem(error: StaleOwner) -> Problem:
    """The response for a stale owner, for a framework that turns the errors of its handlers into responses itself.

    >>> stale = problem(StaleOwner("", fence=9, seen=10, resource="report-export:42"))
    >>> stale.status, stale.more
    (409, {'fence': 9, 'seen': 10, 'kind': 'report-export'})
    """
    if error.fence is not None and error.fence == error.seen:
        what = f"Fence {error.fence} was presented before: by another owner, or for the one write that it was good for."
    elif error.fence is None or error.seen is None:
        what = "A later owner has presented a newer fence."
    else:
        what = (
            f"Fence {error.fence} is older than {error.seen}, which a later owner has presented: the lease has ended."
        )
    detail = f"{what} {NOTHING_DONE} Roll back and stop the work: another owner does it now."
    more = {"fence": error.fence, "seen": error.seen, "kind": _kind(error.resource)}
    return Problem(STALE, CONFLICT, "The fencing token is stale", detail, more)


def missing(resource: str | None) -> Problem:
    """No token where one is needed."""
    detail = (
        f"This request needs a lease, and has no {headers.TOKEN}. {NOTHING_DONE} Acquire the lease and send what "
        "lease.headers() gives with each request."
    )
    return Problem(MISSING, CONFLICT, "A fencing token is missing", detail, {"kind": _kind(resource)})


def read_only(fence: int, resource: str) -> Problem:
    """A shared lease, and a method that writes."""
    detail = (
        f"The lease may read and not write ({headers.MODE}: {headers.SHARED}). {NOTHING_DONE} Acquire an exclusive "
        "one to write."
    )
    more = {"fence": fence, "kind": _kind(resource)}
    return Problem(READ_ONLY, CONFLICT, "The lease may only read", detail, more)


def malformed(what: str) -> Problem:
    """Headers that cannot be understood. Their values are not repeated."""
    detail = f"{what} {NOTHING_DONE} Send what lease.headers() gives, each header once and as it is."
    return Problem(MALFORMED, BAD_REQUEST, "The fencing headers cannot be understood", detail)


def other_resource(presented: str, expected: str) -> Problem:
    """A fence of another resource than the one that the request is about."""
    detail = (
        f"{_difference(presented, expected)} {NOTHING_DONE} A fence says something about its own resource alone: "
        "acquire the lease of what you want to change. Namespace, kind and ids must agree."
    )
    return Problem(OTHER, BAD_REQUEST, "The fencing token is of another resource", detail)


def unavailable(resource: str) -> Problem:
    """The guard did not answer, and no request is served unchecked."""
    detail = (
        f"The service cannot check the fencing token at present. {NOTHING_DONE} Try again while you hold the lease."
    )
    return Problem(UNAVAILABLE, UNABLE, "The guard cannot be asked", detail, {"kind": _kind(resource)})


def occupied(fence: int, resource: str) -> Problem:
    """The request of an earlier owner takes longer than this one may wait."""
    detail = (
        f"A request of an earlier owner has not ended yet, and two at once could overwrite each other. {NOTHING_DONE} "
        "Try again while you hold the lease."
    )
    more = {"fence": fence, "kind": _kind(resource)}
    return Problem(OCCUPIED, UNABLE, "An earlier owner is still at work", detail, more)


def _kind(resource: str | None) -> str | None:
    return None if resource is None else parse_name(resource).kind[:100]


def _difference(presented: str, expected: str) -> str:
    mine, wanted = _kind(presented), _kind(expected)
    if mine == wanted:
        return f"The lease is of another {mine} than this request."
    return f"The lease is of the kind {mine}, and this request is about the kind {wanted}."


# ---------------------------------------------------------------- client
#
# What the response of a guarded service means for the client that sent the request.


E = TypeVar("E", bound=LeaseholdError)

REFUSALS = (400, 409, 503)
_MISTAKES = {URN + name for name in (MALFORMED, MISSING, OTHER, READ_ONLY)}
_LATER = {URN + name for name in (OCCUPIED, UNAVAILABLE)}


def check_response(status: int, body: bytes | str, lease: Fenced) -> None:
    """Raise the error that the guard of a service reports about this lease. Any other response raises nothing.

    StaleOwner: stop the work. The observers of the lease's coordinator are notified, and its next lease has a higher
    fence than the one that the service has seen. InvalidRequest: the request must be changed. StoreUnavailable:
    nothing was done, try again.

    >>> import leasehold
    >>> with leasehold.connect("memory://") as hold, hold.lock("report-export", 42) as lease:
    ...     check_response(409, b'{"type": "urn:leasehold:stale-owner", "seen": 1794768018952706}', lease)
    Traceback (most recent call last):
    leasehold.errors.StaleOwner: the service has refused a stale owner of report-export; roll back and stop the work
    """
    fields = _problem(body) if status in REFUSALS else {}
    kind, detail = fields.get("type"), str(fields.get("detail", ""))[:500]
    if kind == URN + STALE:
        raise _stale(fields, lease)
    if kind in _MISTAKES:
        raise _about(InvalidRequest, f"the service has refused the request: {detail}", lease)
    if kind in _LATER:
        raise _about(StoreUnavailable, f"the service could not serve the request: {detail}", lease)


def _problem(body: bytes | str) -> dict[str, Any]:
    try:
        fields = json.loads(body)
    except (ValueError, RecursionError):  # not JSON, not UTF-8, or too deep: not from a guard
        return {}
    return fields if isinstance(fields, dict) and isinstance(fields.get("type"), str) else {}


def _stale(fields: dict[str, Any], lease: Fenced) -> StaleOwner:
    seen = fields.get("seen")
    if not isinstance(seen, int) or isinstance(seen, bool) or not 0 < seen <= MAX_FENCE:
        seen = None
    notify = getattr(lease, "_fenced_off", None)  # only our own leases have it: notifies their coordinator's observers
    if notify is not None:
        notify(seen, "http")
    else:
        raise_floors(lease.fence, seen)
    what = f"the service has refused a stale owner of {label(lease.resource)}; roll back and stop the work"
    error = _about(StaleOwner, what, lease)
    error.seen = seen
    return error


def _about(kind: type[E], message: str, lease: Fenced) -> E:
    shown = None if lease.owner is None else shown_owner(lease.owner)
    return kind(message, resource=lease.resource, owner=shown, fence=lease.fence)
