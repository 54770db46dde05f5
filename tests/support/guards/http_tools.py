"""A guarded service in both flavours, driven by hand, and a guard that is asked over HTTP."""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import Any, NamedTuple

import httpx

from leasehold._core import headers
from leasehold._core.headers import Fencing
from leasehold.guards.fence import Fenced, presented
from leasehold.guards.guard import Guard
from leasehold.guards.http import FencingMiddleware, WSGIFencingMiddleware, check_response
from leasehold.guards.http.admission import ActiveRequests
from leasehold.guards.memory import FenceGuard

RESOURCE = "acme/report-export:42"
A, B = "host-1:11#" + "a1" * 16, "host-2:22#" + "b2" * 16

Pairs = list[tuple[str, str]]
Work = Callable[[Any], object]  # what the application does, with the scope or the environ


class Answer(NamedTuple):
    """A response."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def problem(self) -> dict[str, Any]:
        """What it says, when it is a refusal: well formed in any case."""
        assert self.headers["content-type"] == "application/problem+json"
        assert int(self.headers["content-length"]) == len(self.body)
        said: dict[str, Any] = json.loads(self.body)
        assert said["status"] == self.status and said["type"].startswith("urn:leasehold:")
        assert said["title"] and said["detail"]
        assert (self.status == 503) == ("retry-after" in self.headers)
        return said

    @property
    def kind(self) -> str:
        """Which of the problems."""
        return str(self.problem["type"]).removeprefix("urn:leasehold:")


def token(fence: object, resource: str | None = RESOURCE, owner: str | None = A, mode: str | None = None) -> Pairs:
    """The headers of a lease."""
    written = {headers.TOKEN: str(fence), headers.RESOURCE: resource, headers.OWNER: owner, headers.MODE: mode}
    return [(name, value) for name, value in written.items() if value is not None]


def nothing(_: Any) -> None:
    """The work of an application that only answers."""


class ASGIService:
    """An application behind the middleware; each call is a request of its own."""

    def __init__(self, guard: Guard, work: Work = nothing, **options: Any) -> None:
        self.work = work
        self.served: list[Any] = []
        self.middleware = FencingMiddleware(self._app, guard, **options)

    async def _app(self, scope: Any, receive: Any, send: Any) -> None:
        self.served.append(scope.get("leasehold.fencing"))
        done = self.work(scope)
        if isinstance(done, Awaitable):
            await done
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/plain")]})
        await send({"type": "http.response.body", "body": b"done"})

    @property
    def inside(self) -> ActiveRequests:
        """Who is at work."""
        return self.middleware._admission.active

    def send(self, method: str, sent: Pairs, path: str = "/reports/42", root: str = "") -> Answer:
        """One request."""
        return asyncio.run(self.request(method, sent, path, root))

    async def request(self, method: str, sent: Pairs, path: str = "/reports/42", root: str = "") -> Answer:
        """One request, awaited."""
        return await request(self.middleware, method, sent, path, root)


async def request(app: Any, method: str, sent: Pairs, path: str = "/reports/42", root: str = "") -> Answer:
    """One request to an ASGI application, as a server would make it."""
    fields = [(name.lower().encode(), value.encode("latin-1")) for name, value in sent]
    scope = {"type": "http", "method": method, "path": root + path, "root_path": root, "headers": fields}
    messages: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: dict[str, Any]) -> None:
        messages.append(message)

    await app(scope, receive, send)
    start, *rest = messages
    assert [start["type"], *{one["type"] for one in rest}] == ["http.response.start", "http.response.body"]
    answered = {name.decode(): value.decode() for name, value in start["headers"]}
    return Answer(start["status"], answered, b"".join(one["body"] for one in rest))


class WSGIService:
    """The same for WSGI."""

    def __init__(self, guard: Guard, work: Work = nothing, **options: Any) -> None:
        self.work = work
        self.served: list[Any] = []
        self.middleware = WSGIFencingMiddleware(self._app, guard, **options)

    def _app(self, environ: Any, start_response: Any) -> Iterable[bytes]:
        self.served.append(environ.get("leasehold.fencing"))
        self.work(environ)
        start_response("200 OK", [("Content-Type", "text/plain")])
        return [b"done"]

    @property
    def inside(self) -> ActiveRequests:
        """Who is at work."""
        return self.middleware._admission.active

    def send(self, method: str, sent: Pairs, path: str = "/reports/42", root: str = "") -> Answer:
        """One request."""
        return serve(self.middleware, method, sent, path, root)


def serve(app: Any, method: str, sent: Pairs, path: str = "/reports/42", root: str = "") -> Answer:
    """One request to a WSGI application, as a server would make it: what is sent twice is joined with a comma."""
    environ: dict[str, Any] = {
        "REQUEST_METHOD": method,
        "SCRIPT_NAME": root,
        "PATH_INFO": path.encode().decode("latin-1"),
        "CONTENT_LENGTH": "0",
        "wsgi.input": io.BytesIO(),
    }
    for name, value in sent:
        key = f"HTTP_{name.upper().replace('-', '_')}"
        environ[key] = f"{environ[key]},{value}" if key in environ else value
    answered: list[tuple[str, Pairs]] = []

    def start_response(status: str, fields: Pairs, exc_info: Any = None) -> Callable[[bytes], object]:
        assert exc_info is not None or not answered
        answered.append((status, fields))
        return lambda data: None

    chunks = app(environ, start_response)
    try:
        found = b"".join(chunks)
    finally:
        getattr(chunks, "close", bool)()
    status, fields = answered[-1]
    return Answer(int(status[:3]), {name.lower(): value for name, value in fields}, found)


Service = ASGIService | WSGIService


def memory() -> FenceGuard:
    """A guard that has seen fence 10 of A."""
    guard = FenceGuard()
    guard.check(10, resource=RESOURCE, owner=A)
    return guard


class HTTPGuard:
    """A guard as the client of a service sees it: every check is a request, and every refusal an error again."""

    def __init__(self, client: httpx.Client) -> None:
        self.client = client

    def check(
        self,
        lease_or_fence: Fenced | int,
        *,
        resource: str | None = None,
        owner: str | None = None,
        shared: bool = False,
    ) -> None:
        """A write of an exclusive lease, a read of a shared one."""
        attempt = presented(lease_or_fence, resource, owner, shared)
        who = owner if isinstance(lease_or_fence, int) else lease_or_fence.owner
        sent = headers.encode(attempt.fence, attempt.resource, who or "", shared)
        if who is None:
            del sent[headers.OWNER]
        response = self.client.request("GET" if shared else "POST", "/reports/42", headers=sent)
        lease = Fencing(attempt.fence, attempt.resource, who) if isinstance(lease_or_fence, int) else lease_or_fence
        check_response(response.status_code, response.content, lease)
        assert response.status_code == 200, response.text


def wsgi_guard() -> Iterator[HTTPGuard]:
    """One that is asked through the WSGI middleware, without a socket."""
    service = WSGIService(FenceGuard())
    with httpx.Client(transport=httpx.WSGITransport(service.middleware), base_url="http://service") as client:
        yield HTTPGuard(client)
    assert len(service.inside) == 0
