"""Which requests a guarded service lets through: shared by the middlewares for ASGI and WSGI.

A check and a later write are two steps, and a newer owner could come between them. So each request is *active* from
before its check until its response has ended, and a request with a newer fence waits for the active ones with a lower
fence:

    enter              before the check, which may take a while: a request that is checked later must see this one
    wait_for_earlier   after the check: which requests with a lower fence are active? The guard refuses any that come
                       later; the active ones learn that they are overtaken, and this one waits for them to end
    leave              whatever happened

A request waits only for lower fences, so no requests wait for each other in a circle. Requests of one fence belong to
one holder and run side by side. No request waits for readers: they change nothing, and several are valid at once.
"""

from __future__ import annotations

import inspect
import threading
from collections.abc import Awaitable, Callable, Generator, Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

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


class ActiveRequest:
    """One request, and the earlier ones that it waits for."""

    __slots__ = ("earlier", "fence", "overtaken", "resource", "shared", "wake")

    def __init__(self, resource: str, fence: int, shared: bool, overtaken: Callable[[], None]) -> None:
        self.resource, self.fence, self.shared, self.overtaken = resource, fence, shared, overtaken
        self.earlier: set[ActiveRequest] = set()
        self.wake: Callable[[], None] | None = None


class ActiveRequests:
    """The active requests of one process, by resource. A resource without one takes no memory."""

    __slots__ = ("_lock", "_requests")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._requests: dict[str, set[ActiveRequest]] = {}

    def enter(
        self, resource: str, fence: int, shared: bool = False, overtaken: Callable[[], None] = lambda: None
    ) -> ActiveRequest:
        """From here on newer requests see this one. ``overtaken`` is called, from any thread, once for each request
        that begins to wait for it."""
        request = ActiveRequest(resource, fence, shared, overtaken)
        with self._lock:
            self._requests.setdefault(resource, set()).add(request)
        return request

    def wait_for_earlier(self, request: ActiveRequest, wake: Callable[[], None]) -> bool:
        """May it run at once? Otherwise ``wake`` is called, from any thread, when the earlier ones have left."""
        with self._lock:
            others = self._requests.get(request.resource, ())
            earlier = [other for other in others if other.fence < request.fence and not other.shared]
            request.earlier, request.wake = set(earlier), wake if earlier else None
        for other in earlier:
            other.overtaken()
        return not earlier

    def leave(self, request: ActiveRequest) -> None:
        """It has ended, one way or another. A second call does nothing."""
        with self._lock:
            others = self._requests.get(request.resource, set())
            others.discard(request)
            if not others:
                self._requests.pop(request.resource, None)
            woken = [wake for other in others if (wake := _without(other, request)) is not None]
        for wake in woken:
            wake()

    def __len__(self) -> int:
        return sum(map(len, self._requests.copy().values()))


def _without(request: ActiveRequest, left: ActiveRequest) -> Callable[[], None] | None:
    """How to wake a request, if ``left`` was the last one that it waited for."""
    if left not in request.earlier:
        return None
    request.earlier.discard(left)
    return None if request.earlier else request.wake


# ---------------------------------------------------------------- admission


KEY = "leasehold.fencing"  # in the scope, and in the environ
METHODS = ("POST", "PUT", "PATCH", "DELETE")
LONGEST_OWNER = 512

Sent = Mapping[str, list[str]]  # the values of each fencing header, by its name


class CheckFence(NamedTuple):
    """A step of ``Admission.admit``: call ``Admission.check``."""

    fencing: Fencing


class WaitForEarlier(NamedTuple):
    """A step of ``Admission.admit``: ``wait_for_earlier``, at most for ``Admission.wait`` seconds. Its result says
    whether the earlier requests have ended."""

    request: ActiveRequest


class Admission:
    """What both middlewares decide, and the requests that are active in them."""

    def __init__(self, guard: Guard, resource: Resource, methods: Iterable[str], wait: float | str | timedelta) -> None:
        self._guard = _checked(guard)
        self.asynchronous = inspect.iscoroutinefunction(guard.check)
        self.methods = check_methods(methods)
        self.wait = min(seconds(wait, "wait"), threading.TIMEOUT_MAX)
        self.active = ActiveRequests()
        self._resource_of = resource_of(resource)

    def read(self, method: str, sent: Sent, request: Mapping[str, Any], path: str) -> Fencing | None:
        """What this request presents; None when it needs no fence and has none. Raises RequestRefused."""
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

    def admit(self, request: ActiveRequest, fencing: Fencing) -> Generator[CheckFence | WaitForEarlier, Any, None]:
        """The flow of one request up to its handler. Raises StaleOwner or RequestRefused."""
        try:
            yield CheckFence(fencing)
        except (StoreUnavailable, OutcomeUnknown) as error:  # unchecked means refused
            log.warn("a request was refused, because its guard could not be asked: %s", error)
            raise RequestRefused(problems.unavailable(fencing.resource)) from error
        if not (yield WaitForEarlier(request)):
            raise RequestRefused(problems.occupied(fencing.fence, fencing.resource))

    def check(self, fencing: Fencing) -> Awaitable[None] | None:
        """Let the guard check what was presented."""
        return self._guard.check(fencing.fence, resource=fencing.resource, owner=fencing.owner, shared=fencing.shared)


def concerns(error: StaleOwner, fencing: Fencing | None) -> bool:
    """Is it this request's lease that is stale? A stale lease on another resource is the application's own affair: the
    client would stop its work for nothing."""
    return fencing is None or error.resource in (None, fencing.resource)


def presented(sent: Sent, resource: str | None) -> Fencing:
    """What the fencing headers of a request present. ``resource`` is what the request is about, if the service knows
    it. Raises RequestRefused."""
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


def _resource(sent: Sent, expected: str | None) -> str:
    written = _one(sent, headers.RESOURCE)
    if written is None:
        if expected is None:
            raise RequestRefused(problems.malformed(f"{headers.RESOURCE} is missing: fences grow for each resource."))
        return expected
    try:
        resource = check_resource(headers.parse_resource(written))
    except InvalidRequest as error:
        raise RequestRefused(problems.malformed(f"{headers.RESOURCE} is not the text form of a resource.")) from error
    if expected is not None and resource != expected:
        raise RequestRefused(problems.other_resource(resource, expected))
    return resource


def _owner(sent: Sent) -> str | None:
    owner = _one(sent, headers.OWNER)
    if owner is not None and not 0 < len(owner) <= LONGEST_OWNER:
        raise RequestRefused(problems.malformed(f"{headers.OWNER} has 1 to {LONGEST_OWNER} characters, or is absent."))
    return owner


def _checked(guard: Guard) -> Guard:
    """The guard must take a bare fence. One that works inside a transaction must first know how to begin one."""
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
