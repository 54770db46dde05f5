"""WSGIFencingMiddleware for WSGI: Flask, Django, or an application of your own."""

from __future__ import annotations

import inspect
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from leasehold._core import headers
from leasehold._core.driver import drive
from leasehold._core.headers import Fencing
from leasehold.errors import InvalidRequest, StaleOwner
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
    from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

_NAMES = {
    f"HTTP_{name.upper().replace('-', '_')}": name
    for name in (headers.TOKEN, headers.RESOURCE, headers.OWNER, headers.MODE)
}
_SYNC = "a WSGI application cannot await: take the guard that is not for asyncio"
# Bytes that are read of the body of a refused request. A server that closes a connection with unread bytes resets it,
# and the client may never see why it was refused.
MOST_DRAINED = 16 * 1024 * 1024
CHUNK = 64 * 1024


class WSGIFencingMiddleware:
    """What ``FencingMiddleware`` does, for WSGI. ``resource`` may be a function of the environ.

    A server joins a header that was sent twice with a comma. Flask and Django turn the errors of their views into
    responses themselves: give them ``problem(error)`` as the response for StaleOwner. Reads and writes block in the
    server, so this middleware cannot end a request whose client hangs: limit the time for reading a body in the server
    or in a proxy in front of it.
    """

    def __init__(
        self,
        app: WSGIApplication,
        guard: Guard,
        *,
        resource: Resource = None,
        methods: Iterable[str] = METHODS,
        wait: float | str | timedelta = 10,
    ) -> None:
        self.app = app
        self._admission = Admission(guard, resource, methods, wait)
        if self._admission.asynchronous:
            raise InvalidRequest(_SYNC)

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        """Serve one request."""
        response = _Response(environ, start_response)
        with ExitStack() as stack:
            try:
                self._admit(environ, stack)
            except (RequestRefused, StaleOwner) as error:
                stack.close()  # a stale owner that stalls in the middle of its body must not block newer ones
                _drain(environ)
                return [response.refuse(error)]
            try:
                chunks = self.app(environ, response.start)
            except StaleOwner as error:
                return [response.refuse(error)]
            if isinstance(chunks, (list, tuple)):  # the work is done; servers use their length
                return chunks
            return _Body(chunks, stack, response.refuse)

    def _admit(self, environ: WSGIEnvironment, stack: ExitStack) -> None:
        fencing = self._admission.read(environ["REQUEST_METHOD"], _sent(environ), environ, _path(environ))
        if fencing is None:
            return
        request = self._admission.active.enter(fencing.resource, fencing.fence, fencing.shared)
        stack.callback(self._admission.active.leave, request)
        drive(self._admission.admit(request, fencing), self._perform)
        environ[KEY] = fencing

    def _perform(self, step: CheckFence | WaitForEarlier) -> bool | None:
        if isinstance(step, WaitForEarlier):
            return self._wait(step.request)
        self._check(step.fencing)
        return None

    def _check(self, fencing: Fencing) -> None:
        result = self._admission.check(fencing)
        if inspect.isawaitable(result):
            getattr(result, "close", bool)()  # otherwise Python warns that it was never awaited
            raise InvalidRequest(_SYNC)

    def _wait(self, request: ActiveRequest) -> bool:
        free = threading.Event()
        return self._admission.active.wait_for_earlier(request, free.set) or free.wait(self._admission.wait)


class _Body:
    """A response that is still being produced: its request is active until the server closes it."""

    def __init__(self, chunks: Iterable[bytes], stack: ExitStack, refuse: Callable[[StaleOwner], bytes]) -> None:
        self._chunks, self._iterator, self._refuse = chunks, iter(chunks), refuse
        self._stack = stack.pop_all()  # last: from here on close() must leave

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        try:
            return next(self._iterator)
        except StaleOwner as error:
            self._iterator = iter(())
            return self._refuse(error)

    def close(self) -> None:
        """The response has ended."""
        try:
            getattr(self._chunks, "close", bool)()
        finally:
            self._stack.close()


class _Response:
    """The response, which can be replaced until its first bytes are sent."""

    def __init__(self, environ: WSGIEnvironment, start_response: StartResponse) -> None:
        self._environ, self._start_response = environ, start_response
        self._has_body = environ["REQUEST_METHOD"].upper() != "HEAD"
        self._begun = False

    def start(self, status: str, fields: list[tuple[str, str]], *exc_info: Any) -> Callable[[bytes], object]:
        """``start_response``, for the application."""
        self._begun = True
        return self._start_response(status, fields, *exc_info)

    def refuse(self, error: RequestRefused | StaleOwner) -> bytes:
        """Replace what the application began. If its first bytes were sent, the server raises the error again."""
        if isinstance(error, StaleOwner) and not concerns(error, self._environ.get(KEY)):
            raise error
        refusal: Problem = error.problem if isinstance(error, RequestRefused) else problem(error)
        status = f"{refusal.status} {HTTPStatus(refusal.status).phrase}"
        self._start_response(status, refusal.headers, *([sys.exc_info()] if self._begun else []))
        return refusal.body if self._has_body else b""


def _drain(environ: WSGIEnvironment) -> None:
    """Read what the client is still sending. Without a length that is safe only if the server marks the end."""
    size = environ.get("CONTENT_LENGTH") or ""
    terminated = bool(environ.get("wsgi.input_terminated"))
    left = min(int(size), MOST_DRAINED) if size.isdecimal() and len(size) < 20 else MOST_DRAINED * terminated
    try:
        while left > 0 and (chunk := environ["wsgi.input"].read(min(left, CHUNK))):
            left -= len(chunk)
    except OSError:  # the client has disconnected
        return


def _sent(environ: WSGIEnvironment) -> Sent:
    return {name: [environ[key]] for key, name in _NAMES.items() if key in environ}


def _path(environ: WSGIEnvironment) -> str:
    """The path. PEP 3333 passes its bytes as Latin-1."""
    path: str = environ.get("PATH_INFO", "")
    return path.encode("latin-1", "replace").decode("utf-8", "replace")
