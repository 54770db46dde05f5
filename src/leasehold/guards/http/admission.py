"""The door of a service, for ASGI and WSGI: which requests need a fence, what they brought, and who goes in."""

from __future__ import annotations

import inspect
import threading
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from leasehold._core import headers
from leasehold._core.durations import seconds
from leasehold._core.headers import Fencing
from leasehold.errors import InvalidRequest, OutcomeUnknown, StaleOwner, StoreUnavailable
from leasehold.guards.fence import check_resource
from leasehold.guards.guard import Guard
from leasehold.guards.http import problems
from leasehold.guards.http.problems import RequestRefused
from leasehold.guards.http.resource import Resource, resource_of
from leasehold.observe import log

if TYPE_CHECKING:
    from datetime import timedelta

# ---------------------------------------------------------------- inside
#
# Who is at work on what: a newer fence goes in when those before it, with a lower one, have left.
#
# A check at the door and a write later on are two steps, and a newer owner could come between them. So each request
# is *inside* from before its check until its response has ended:
#
#     enter      before the check, which may take a while: whoever is checked after us must see us
#     line_up    after the check: who is inside with a lower fence? Those that come later are refused by the guard, and
#                these are told that they are overtaken: a newer owner waits for them to end
#     leave      whatever happened
#
# One only ever waits for lower fences, so nobody waits in a circle. Requests of one fence are one holder's, and run
# side by side. Readers keep nobody waiting: they change nothing, and several are valid at once.


class ActiveRequest:
    """One request, and those it waits for."""

    __slots__ = ("earlier", "fence", "overtaken", "resource", "shared", "wake")

    def __init__(self, resource: str, fence: int, shared: bool, overtaken: Callable[[], None]) -> None:
        self.resource, self.fence, self.shared, self.overtaken = resource, fence, shared, overtaken
        self.earlier: set[ActiveRequest] = set()
        self.wake: Callable[[], None] | None = None


class ActiveRequests:
    """The requests of one process, by resource. It holds nothing about a resource that nobody is at work on."""

    __slots__ = ("_lock", "_requests")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._requests: dict[str, set[ActiveRequest]] = {}

    def enter(
        self, resource: str, fence: int, shared: bool = False, overtaken: Callable[[], None] = lambda: None
    ) -> ActiveRequest:
        """From here on newer fences see it. ``overtaken`` is called, from any thread, for each that waits for it."""
        visit = ActiveRequest(resource, fence, shared, overtaken)
        with self._lock:
            self._requests.setdefault(resource, set()).add(visit)
        return visit

    def wait_for_earlier(self, visit: ActiveRequest, wake: Callable[[], None]) -> bool:
        """May it go in at once? Else ``wake`` is called, from any thread, when those before it have left."""
        with self._lock:
            others = self._requests.get(visit.resource, ())
            ahead = [other for other in others if other.fence < visit.fence and not other.shared]
            visit.earlier, visit.wake = set(ahead), wake if ahead else None
        for other in ahead:
            other.overtaken()
        return not ahead

    def leave(self, visit: ActiveRequest) -> None:
        """It has ended, one way or another. To leave twice is to leave once."""
        with self._lock:
            others = self._requests.get(visit.resource, set())
            others.discard(visit)
            if not others:
                self._requests.pop(visit.resource, None)
            woken = [wake for other in others if (wake := _without(other, visit)) is not None]
        for wake in woken:
            wake()

    def __len__(self) -> int:
        return sum(map(len, self._requests.copy().values()))


def _without(visit: ActiveRequest, left: ActiveRequest) -> Callable[[], None] | None:
    """How to wake it, when this was the last that it waited for."""
    if left not in visit.earlier:
        return None
    visit.earlier.discard(left)
    return None if visit.earlier else visit.wake


# ---------------------------------------------------------------- door


KEY = "leasehold.fencing"  # in the scope, and in the environ
METHODS = ("POST", "PUT", "PATCH", "DELETE")
LONGEST_OWNER = 512

Sent = Mapping[str, list[str]]  # by the name of the header, what each of them said


class Admission:
    """What both middlewares decide, and what they share."""

    def __init__(self, guard: Guard, resource: Resource, methods: Iterable[str], wait: float | str | timedelta) -> None:
        self._guard = _checked(guard)
        self.asynchronous = inspect.iscoroutinefunction(guard.check)
        self.methods = check_methods(methods)
        self.wait = min(seconds(wait, "wait"), threading.TIMEOUT_MAX)
        self.active = ActiveRequests()
        self._resource_of = resource_of(resource)

    def read(self, method: str, sent: Sent, request: Mapping[str, Any], path: str) -> Fencing | None:
        """What this request presents; None when it needs no fence and has none. Raises Refused."""
        resource = None if self._resource_of is None else self._resource_of(request, path)
        if resource is None and self._resource_of is not None:
            return None
        needed = method.upper() in self.methods
        if not sent.get(headers.TOKEN):
            if needed:
                raise RequestRefused(problems.missing(resource))
            if any(sent.values()):
                raise RequestRefused(problems.malformed(f"There are fencing headers, and no {headers.TOKEN}."))
            return None
        fencing = presented(sent, resource)
        if fencing.shared and needed:
            raise RequestRefused(problems.read_only(fencing.fence, fencing.resource))
        return fencing

    def check(self, fencing: Fencing) -> Awaitable[None] | None:
        """The guard's word."""
        return self._guard.check(fencing.fence, resource=fencing.resource, owner=fencing.owner, shared=fencing.shared)


@contextmanager
def unavailable_guard_refuses(fencing: Fencing) -> Iterator[None]:
    """A guard that cannot say yes has said no."""
    try:
        yield
    except (StoreUnavailable, OutcomeUnknown) as error:
        log.warn("a request was refused, because its guard could not be asked: %s", error)
        raise RequestRefused(problems.unavailable(fencing.resource)) from error


def concerns(error: StaleOwner, fencing: Fencing | None) -> bool:
    """Is it this request's lease that is stale? That of another resource is the application's own, and no news for the
    client: it would stop its work for nothing."""
    return fencing is None or error.resource in (None, fencing.resource)


def presented(sent: Sent, resource: str | None) -> Fencing:
    """The headers of a lease. ``resource`` is what the request is about, where the service knows. Raises Refused."""
    fence = headers.parse_fence(_one(sent, headers.TOKEN) or "")
    if fence is None:
        raise RequestRefused(
            problems.malformed(f"{headers.TOKEN} is a fence in decimal digits, between 1 and 2**63 - 1.")
        )
    mode = _one(sent, headers.MODE)
    if mode not in (None, headers.SHARED):
        raise RequestRefused(problems.malformed(f"{headers.MODE} is {headers.SHARED!r}, or absent."))
    return Fencing(fence, _resource(sent, resource), _owner(sent), mode is not None)


def _one(sent: Sent, name: str) -> str | None:
    values = sent.get(name, [])
    if len(values) > 1:
        raise RequestRefused(problems.malformed(f"{name} was sent more than once."))
    return values[0] if values else None


def _resource(sent: Sent, asked: str | None) -> str:
    written = _one(sent, headers.RESOURCE)
    if written is None:
        if asked is None:
            raise RequestRefused(problems.malformed(f"{headers.RESOURCE} is missing: fences grow for each resource."))
        return asked
    try:
        said = check_resource(headers.parse_resource(written))
    except InvalidRequest as error:
        raise RequestRefused(problems.malformed(f"{headers.RESOURCE} is not the text form of a resource.")) from error
    if asked is not None and said != asked:
        raise RequestRefused(problems.other_resource(said, asked))
    return said


def _owner(sent: Sent) -> str | None:
    owner = _one(sent, headers.OWNER)
    if owner is not None and not 0 < len(owner) <= LONGEST_OWNER:
        raise RequestRefused(problems.malformed(f"{headers.OWNER} has 1 to {LONGEST_OWNER} characters, or is absent."))
    return owner


def _checked(guard: Guard) -> Guard:
    """A guard that can be asked about a bare fence. One that needs a transaction cannot, until it is told which."""
    check: object = getattr(guard, "check", None)
    if not callable(check):
        raise InvalidRequest(f"guard must have check(), as leasehold.guards.Guard says, not {type(guard).__name__}")
    try:
        inspect.signature(check).bind(1, resource="a", owner=None, shared=False)
    except TypeError as error:
        raise InvalidRequest(
            f"check() of this {type(guard).__name__} does not take a bare fence with resource=, owner= and shared=; a "
            "guard that works inside a transaction must first be told how to begin one: guard.within(engine.begin)"
        ) from error
    return guard


def check_methods(methods: Iterable[object]) -> frozenset[str]:
    given = [] if isinstance(methods, str) else list(methods)
    found = {one.upper() for one in given if isinstance(one, str) and one.isascii() and one.replace("-", "").isalpha()}
    if not given or len(found) < len(set(given)):
        raise InvalidRequest("methods are the names of HTTP methods that need a fence, such as ('POST', 'DELETE')")
    return frozenset(found)
