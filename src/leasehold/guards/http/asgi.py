"""FencingMiddleware for ASGI: Starlette, FastAPI, Quart, Django, or an application of your own."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

from leasehold._core import headers
from leasehold._core.driver import drive_async
from leasehold._core.headers import Fencing
from leasehold.errors import StaleOwner
from leasehold.guards.guard import Guard
from leasehold.guards.http.admission import (
    KEY,
    METHODS,
    ActiveRequest,
    Admission,
    CheckFence,
    Sent,
    WaitForEarlier,
    concerns,
)
from leasehold.guards.http.problems import Problem, RequestRefused, problem
from leasehold.guards.http.resource import Resource

if TYPE_CHECKING:
    from datetime import timedelta

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Scope = MutableMapping[str, Any]
App = Callable[[Scope, Receive, Send], Awaitable[None]]
T = TypeVar("T")

_NAMES = {name.lower().encode(): name for name in (headers.TOKEN, headers.RESOURCE, headers.OWNER, headers.MODE)}
# Seconds. A client that does not hang may need a few turns of the event loop, also with wait=0.
LEAST_PATIENCE = 0.1


class FencingMiddleware:
    """Refuses a request whose fencing token is stale or missing, with 409 and a problem that says why.

    ``guard`` is any guard. Its memory decides how long a fence is remembered: a guard in a database outlives this
    process. ``methods`` need a token; on other methods a token is checked when there is one, so that a holder can
    present its fence before its first read. ``resource`` says what a request is about: None (its header says it), one
    name, ``{"/reports/{id:int}": "report-export:{id}"}``, or a function of the scope, which returns None for a request
    that is not guarded.

    Inside one process the check and the work are one step: a request waits, at most ``wait``, until the requests of
    earlier owners have ended, and is refused with 503 if they have not. So that a frozen client does not block newer
    owners, a handler for which a newer owner waits may itself wait for its client no longer than half of ``wait``:
    then ``receive`` gives ``http.disconnect``, ``send`` raises OSError. A handler that has read its whole request and
    is at work is not interrupted.

    Where several processes serve, check again in your transaction: ``guard.check(tx, fencing(request))``. A StaleOwner
    that your code raises about it becomes the same 409.

    Websockets and lifespan events pass through unguarded.
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
        response = _Response(send, scope["method"])
        try:
            fencing = self._admission.read(scope["method"], _sent(scope), scope, _path(scope))
            if fencing is None:
                await self.app(scope, receive, response.send)
            else:
                await self._guarded(fencing, scope, receive, response.send)
        except RequestRefused as error:
            await response.refuse(error.problem)
        except StaleOwner as error:
            if response.started or not concerns(error, scope.get(KEY)):
                raise
            await response.refuse(problem(error))

    async def _guarded(self, fencing: Fencing, scope: Scope, receive: Receive, send: Send) -> None:
        active, client = self._admission.active, ASGIClient(receive, send, self._patience)
        request = active.enter(fencing.resource, fencing.fence, fencing.shared, client.overtaken)
        try:
            await drive_async(self._admission.admit(request, fencing), self._perform)
            scope[KEY] = fencing
            await self.app(scope, client.receive, client.send)
        finally:
            active.leave(request)

    async def _perform(self, step: CheckFence | WaitForEarlier) -> bool | None:
        if isinstance(step, WaitForEarlier):
            return await self._wait(step.request)
        await self._check(step.fencing)
        return None

    async def _check(self, fencing: Fencing) -> None:
        """A blocking guard is called in a thread, so that it does not hold up the event loop. One that gives something
        to await does not block: from then on no thread is needed for it."""
        admission = self._admission
        check = admission.check
        result = check(fencing) if admission.asynchronous else await asyncio.to_thread(check, fencing)
        if inspect.isawaitable(result):
            admission.asynchronous = True
            await result

    async def _wait(self, request: ActiveRequest) -> bool:
        loop, free = asyncio.get_running_loop(), asyncio.Event()
        if self._admission.active.wait_for_earlier(request, lambda: call_soon(loop, free.set)):
            return True
        try:
            async with asyncio.timeout(self._admission.wait):
                return await free.wait()
        except TimeoutError:
            return False


class _Response:
    """The response, which can be replaced until it has begun."""

    def __init__(self, send: Send, method: str) -> None:
        self._send, self._has_body = send, method.upper() != "HEAD"
        self.started = False

    async def send(self, message: Message) -> None:
        self.started = self.started or message["type"] == "http.response.start"
        await self._send(message)

    async def refuse(self, problem: Problem) -> None:
        """Send the problem instead. The server discards a request body that was not read."""
        fields = [(name.lower().encode(), value.encode()) for name, value in problem.headers]
        await self._send({"type": "http.response.start", "status": problem.status, "headers": fields})
        body = problem.body if self._has_body else b""
        await self._send({"type": "http.response.body", "body": body, "more_body": False})


# ---------------------------------------------------------------- client
#
# A worker that is frozen in the middle of its request would keep newer owners waiting for as long as its connection
# lives. So once a request is *overtaken*, its handler may wait for the client ``patience`` seconds in all. After that,
# an incomplete body ends in ``http.disconnect`` and a response that the client does not read in an OSError, as ASGI
# specifies for a client that has disconnected. Only waiting for the client ends this way: a handler that is at work is
# left alone, and its request stays active until it returns.


class ASGIClient:
    """``receive`` and ``send`` for the handler of one request."""

    def __init__(self, receive: Receive, send: Send, patience: float) -> None:
        self._receive, self._send, self._left = receive, send, patience
        self._loop = asyncio.get_running_loop()
        self._limits: set[asyncio.Timeout] = set()  # an application may receive and send at once
        self._overtaken: float | None = None
        self._complete = self._gone = False

    def overtaken(self) -> None:
        """A newer owner waits for this request to end. May be called from any thread."""
        call_soon(self._loop, self._hurry)

    async def receive(self) -> Message:
        """When the whole body was read, the application only waits for a disconnect, and that is not limited."""
        if self._complete:
            return await self._receive()
        if not self._gone:
            try:
                message = await self._bounded(self._receive)
                self._complete = not message.get("more_body", False)
                return message
            except _ClientHangs:
                self._gone = True
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        """Servers wait here while a client does not read."""
        await self._bounded(lambda: self._send(message))

    def _hurry(self) -> None:
        if self._overtaken is None:
            self._overtaken = self._loop.time()
            for limit in self._limits:
                limit.reschedule(self._overtaken + self._left)

    async def _bounded(self, call: Callable[[], Awaitable[T]]) -> T:
        """All waits for the client add up, so that one that sends byte by byte ends too. Work between two waits does
        not count."""
        began = self._loop.time()
        try:
            async with asyncio.timeout_at(None if self._overtaken is None else began + self._left) as limit:
                self._limits.add(limit)
                try:
                    return await call()
                finally:
                    self._limits.discard(limit)
        except TimeoutError as error:
            if not limit.expired():  # the server's own timeout
                raise
            raise _ClientHangs("a newer owner waits for this request to end, and its client hangs") from error
        finally:
            if self._overtaken is not None:
                self._left -= self._loop.time() - max(began, self._overtaken)


class _ClientHangs(ConnectionAbortedError):
    """The kind of error that servers raise for a client that has disconnected."""


def call_soon(loop: asyncio.AbstractEventLoop, call: Callable[[], None]) -> None:
    """Schedule a call on a loop, from any thread."""
    try:
        loop.call_soon_threadsafe(call)
    except RuntimeError:  # the loop is closed, so nothing waits on it any more
        return


def _sent(scope: Scope) -> Sent:
    sent: dict[str, list[str]] = {}
    for name, value in scope["headers"]:
        known = _NAMES.get(bytes(name).lower())
        if known is not None:
            sent.setdefault(known, []).append(bytes(value).decode("latin-1"))
    return sent


def _path(scope: Scope) -> str:
    """The path below the place where the application is mounted. A client may send a whole URL in place of a path, and
    some servers pass it on as it is."""
    path, root = str(scope["path"]), str(scope.get("root_path", "")).rstrip("/")
    if not path.startswith("/"):
        path = urlsplit(path).path
    return path[len(root) :] or "/" if root and f"{path}/".startswith(f"{root}/") else path
