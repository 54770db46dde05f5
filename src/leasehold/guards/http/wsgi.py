"""WSGIFencingMiddleware: the same door for Flask, Django, and every other WSGI application."""

from __future__ import annotations

import inspect
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from leasehold._core import headers
from leasehold._core.headers import Fencing
from leasehold.errors import InvalidRequest, StaleOwner
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
from leasehold.guards.http.problems import Problem, RequestRefused, occupied, problem
from leasehold.guards.http.resource import Resource

if TYPE_CHECKING:
    from datetime import timedelta
    from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

_NAMES = {
    f"HTTP_{name.upper().replace('-', '_')}": name
    for name in (headers.TOKEN, headers.RESOURCE, headers.OWNER, headers.MODE)
}
_SYNC = "a WSGI application cannot await: take the guard that is not for asyncio"
# Of the body of a refused request that much is read. A server that closes a connection with unread bytes resets it,
# and the client may never see why it was refused.
MOST_DRAINED = 16 * 1024 * 1024
CHUNK = 64 * 1024


class WSGIFencingMiddleware:
    """What ``FencingMiddleware`` does, for WSGI. ``resource`` may be a function of the environ.

    A server joins a header that was sent twice with a comma. Flask and Django answer the errors of their views by
    themselves: give them ``problem(error)`` as the response for StaleOwner. Reads and writes block in the server, so a
    client that hangs cannot be ended here: give the server, or a proxy in front of it, a limit to reading a body.
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
        answer = _Response(environ, start_response)
        with ExitStack() as stack:
            try:
                self._admit(environ, stack)
            except (RequestRefused, StaleOwner) as error:
                stack.close()  # a stale owner that stalls in the middle of its body must keep nobody out
                _drain(environ)
                return [answer.refuse(error)]
            try:
                chunks = self.app(environ, answer.start)
            except StaleOwner as error:
                return [answer.refuse(error)]
            if isinstance(chunks, (list, tuple)):  # the work is done, and servers count these
                return chunks
            return _Body(chunks, stack, answer.refuse)

    def _admit(self, environ: WSGIEnvironment, stack: ExitStack) -> None:
        fencing = self._admission.read(environ["REQUEST_METHOD"], _sent(environ), environ, _path(environ))
        if fencing is None:
            return
        visit = self._admission.active.enter(fencing.resource, fencing.fence, fencing.shared)
        stack.callback(self._admission.active.leave, visit)
        with unavailable_guard_refuses(fencing):
            self._check(fencing)
        self._wait_for_earlier(visit)
        environ[KEY] = fencing

    def _check(self, fencing: Fencing) -> None:
        answer = self._admission.check(fencing)
        if inspect.isawaitable(answer):
            getattr(answer, "close", bool)()  # else Python complains that nobody awaited it
            raise InvalidRequest(_SYNC)

    def _wait_for_earlier(self, visit: ActiveRequest) -> None:
        """Wait, with an end, until requests of earlier owners have ended."""
        free = threading.Event()
        if not self._admission.active.wait_for_earlier(visit, free.set) and not free.wait(self._admission.wait):
            raise RequestRefused(occupied(visit.fence, visit.resource))


class _Body:
    """A response that is still being made: its request is inside until the server closes it."""

    def __init__(self, chunks: Iterable[bytes], stack: ExitStack, refuse: Callable[[StaleOwner], bytes]) -> None:
        self._chunks, self._iterator, self._refuse = chunks, iter(chunks), refuse
        self._stack = stack.pop_all()  # last: from here on it is ours to leave

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
    """The response, which can be replaced until its first bytes are out."""

    def __init__(self, environ: WSGIEnvironment, start_response: StartResponse) -> None:
        self._environ, self._start_response = environ, start_response
        self._has_body = environ["REQUEST_METHOD"].upper() != "HEAD"
        self._begun = False

    def start(self, status: str, fields: list[tuple[str, str]], *exc_info: Any) -> Callable[[bytes], object]:
        """``start_response``, for the application."""
        self._begun = True
        return self._start_response(status, fields, *exc_info)

    def refuse(self, error: RequestRefused | StaleOwner) -> bytes:
        """In place of whatever was begun. When bytes of that are out, the server raises the error again."""
        if isinstance(error, StaleOwner) and not concerns(error, self._environ.get(KEY)):
            raise error
        found: Problem = error.problem if isinstance(error, RequestRefused) else problem(error)
        status = f"{found.status} {HTTPStatus(found.status).phrase}"
        self._start_response(status, found.headers, *([sys.exc_info()] if self._begun else []))
        return found.body if self._has_body else b""


def _drain(environ: WSGIEnvironment) -> None:
    """Read what the client is still sending. Without a length only a server that marks the end may be read from."""
    size = environ.get("CONTENT_LENGTH") or ""
    ends = bool(environ.get("wsgi.input_terminated"))
    left = min(int(size), MOST_DRAINED) if size.isdecimal() and len(size) < 20 else MOST_DRAINED * ends
    try:
        while left > 0 and (chunk := environ["wsgi.input"].read(min(left, CHUNK))):
            left -= len(chunk)
    except OSError:  # the client has gone
        return


def _sent(environ: WSGIEnvironment) -> Sent:
    return {name: [environ[key]] for key, name in _NAMES.items() if key in environ}


def _path(environ: WSGIEnvironment) -> str:
    """PEP 3333 hands over bytes as Latin-1."""
    path: str = environ.get("PATH_INFO", "")
    return path.encode("latin-1", "replace").decode("utf-8", "replace")
