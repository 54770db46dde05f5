"""FencingMiddleware for ASGI: Starlette, FastAPI, Quart, Django, or an application of your own."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from leasehold._core import headers
from leasehold._core.headers import Fencing
from leasehold.errors import StaleOwner
from leasehold.guards.guard import Guard
from leasehold.guards.http.admission import (
    KEY,
    METHODS,
    ActiveRequest,
    Admission,
    Sent,
    concerns,
    unavailable_guard_refuses,
)
from leasehold.guards.http.asgi_client import ASGIClient, Message, Receive, Send, call_soon
from leasehold.guards.http.problems import Problem, RequestRefused, occupied, problem
from leasehold.guards.http.resource import Resource

if TYPE_CHECKING:
    from datetime import timedelta

Scope = MutableMapping[str, Any]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

_NAMES = {name.lower().encode(): name for name in (headers.TOKEN, headers.RESOURCE, headers.OWNER, headers.MODE)}
# A client that does not hang may need a turn of the loop, or a few, even where nobody is to wait.
LEAST_PATIENCE = 0.1


class FencingMiddleware:
    """Refuses a request whose fencing token is stale or missing, with 409 and a problem that says why.

    ``guard`` is any guard: what it remembers outlives this process, if it does. ``methods`` need a token; wherever one
    is presented it is checked, so that a holder presents its fence before its first read. ``resource`` says what a
    request is about: None (its header does), one name, ``{"/reports/{id:int}": "report-export:{id}"}``, or a function
    of the scope, whose None means that this request is not guarded.

    Inside one process the check and the work are one step: a request waits, at most ``wait``, until those of earlier
    owners have ended, and is else refused with 503. So that a frozen client keeps nobody out, a handler for which a
    newer owner waits may itself wait for its client no longer than half of ``wait``: then ``receive`` gives
    ``http.disconnect``, ``send`` raises OSError. One that has its whole request and is at work is not interrupted.

    Where several processes serve, check again in your transaction: ``guard.check(tx, fencing(request))``. A StaleOwner
    that your code raises about it becomes the same 409.

    Websockets and lifespan go through unguarded.
    """

    def __init__(
        self,
        app: App,
        guard: Guard,
        *,
        resource: Resource = None,
        methods: Iterable[str] = METHODS,
        wait: float | str | timedelta = 10,
    ) -> None:
        self.app = app
        self._admission = Admission(guard, resource, methods, wait)
        self._patience = max(self._admission.wait / 2, LEAST_PATIENCE)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        answer = _Response(send, scope["method"])
        try:
            fencing = self._admission.read(scope["method"], _sent(scope), scope, _path(scope))
            if fencing is None:
                await self.app(scope, receive, answer.send)
            else:
                await self._guarded(fencing, scope, receive, answer.send)
        except RequestRefused as error:
            await answer.refuse(error.problem)
        except StaleOwner as error:
            if answer.started or not concerns(error, scope.get(KEY)):
                raise
            await answer.refuse(problem(error))

    async def _guarded(self, fencing: Fencing, scope: Scope, receive: Receive, send: Send) -> None:
        inside, client = self._admission.active, ASGIClient(receive, send, self._patience)
        visit = inside.enter(fencing.resource, fencing.fence, fencing.shared, client.overtaken)
        try:
            with unavailable_guard_refuses(fencing):
                await self._check(fencing)
            await self._wait_for_earlier(visit)
            scope[KEY] = fencing
            await self.app(scope, client.receive, client.send)
        finally:
            inside.leave(visit)

    async def _check(self, fencing: Fencing) -> None:
        """A guard that is not awaited may take its time: it must not hold up everybody else on this loop."""
        answer = (
            self._admission.check(fencing)
            if self._admission.asynchronous
            else await asyncio.to_thread(self._admission.check, fencing)
        )
        if inspect.isawaitable(answer):
            await answer

    async def _wait_for_earlier(self, visit: ActiveRequest) -> None:
        """Wait, with an end, until requests of earlier owners have ended."""
        loop, free = asyncio.get_running_loop(), asyncio.Event()
        if self._admission.active.wait_for_earlier(visit, lambda: call_soon(loop, free.set)):
            return
        try:
            async with asyncio.timeout(self._admission.wait):
                await free.wait()
        except TimeoutError as error:
            raise RequestRefused(occupied(visit.fence, visit.resource)) from error


class _Response:
    """The response, which can be replaced until it has begun."""

    def __init__(self, send: Send, method: str) -> None:
        self._send, self._has_body = send, method.upper() != "HEAD"
        self.started = False

    async def send(self, message: Message) -> None:
        self.started = self.started or message["type"] == "http.response.start"
        await self._send(message)

    async def refuse(self, problem: Problem) -> None:
        """The server sees to a request body that nobody reads."""
        fields = [(name.lower().encode(), value.encode()) for name, value in problem.headers]
        await self._send({"type": "http.response.start", "status": problem.status, "headers": fields})
        body = problem.body if self._has_body else b""
        await self._send({"type": "http.response.body", "body": body, "more_body": False})


def _sent(scope: Scope) -> Sent:
    sent: dict[str, list[str]] = {}
    for name, value in scope["headers"]:
        known = _NAMES.get(bytes(name).lower())
        if known is not None:
            sent.setdefault(known, []).append(bytes(value).decode("latin-1"))
    return sent


def _path(scope: Scope) -> str:
    """Below where the application is mounted. A client may send a whole URL in place of a path, and some servers hand
    it on as it is."""
    path, root = str(scope["path"]), str(scope.get("root_path", "")).rstrip("/")
    if not path.startswith("/"):
        path = urlsplit(path).path
    return path[len(root) :] or "/" if root and f"{path}/".startswith(f"{root}/") else path
