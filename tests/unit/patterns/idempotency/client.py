"""A client that drives an ASGI application by hand, and an application that counts what it does."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

import leasehold
from leasehold.patterns.idempotency import GLOBAL, IdempotencyMiddleware

Pairs = list[tuple[str, str]]
Work = Callable[[dict[str, Any], Any, Any], Awaitable[None]]


class Got(NamedTuple):
    """A response."""

    status: int
    headers: Pairs
    body: bytes

    def header(self, name: str) -> str | None:
        """What it says; joined, when it stands there twice."""
        return ", ".join(value for field, value in self.headers if field == name) or None

    @property
    def replayed(self) -> bool:
        """Is it from memory?"""
        return self.header("idempotency-replayed") == "true"

    @property
    def problem(self) -> str:
        """Which one, well formed in any case."""
        assert self.header("content-type") == "application/problem+json"
        assert self.header("content-length") == str(len(self.body))
        said = json.loads(self.body)
        assert said["status"] == self.status and said["title"] and said["detail"]
        assert (self.status in (409, 503)) == (self.header("retry-after") == "1")
        return str(said["type"]).removeprefix("urn:leasehold:")


class Shop:
    """An application: each request is counted, and answered as the test says."""

    def __init__(self, status: int = 201, headers: Pairs | None = None, body: bytes = b"", work: Work | None = None):
        self.status, self.headers, self.body, self.work = status, headers or [], body, work
        self.served: list[bytes] = []
        self.scopes: list[dict[str, Any]] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Reads the body, works, and answers in two parts."""
        self.scopes.append(dict(scope))
        if scope["type"] != "http":
            return
        message = await receive()
        assert message["type"] == "http.request" and not message["more_body"]
        self.served.append(message["body"])
        if self.work is not None:
            await self.work(scope, receive, send)
        await self.answer(send)

    async def answer(self, send: Any) -> None:
        """What is to be kept."""
        body = self.body or f"number {len(self.served)}".encode()
        fields = [(name.encode(), value.encode("latin-1")) for name, value in self.headers]
        await send({"type": "http.response.start", "status": self.status, "headers": fields})
        await send({"type": "http.response.body", "body": body[:3], "more_body": True})
        await send({"type": "http.response.body", "body": body[3:]})


class Client:
    """Requests to a shop behind the middleware. Who asks is of no account unless a test says so."""

    def __init__(self, hold: leasehold.AsyncLeasehold, shop: Any, **options: Any) -> None:
        self.app = IdempotencyMiddleware(shop, hold, **{"caller": GLOBAL, **options})
        self.sent: list[dict[str, Any]] = []  # what the last one was sent
        self.breaks: int | None = None  # after so many messages the client has gone

    async def post(
        self,
        key: str | None = "k-1",
        body: bytes | list[bytes] = b"body",
        headers: Pairs | None = None,
        method: str = "POST",
        path: str = "/pay",
        query: bytes = b"",
        **more: Any,
    ) -> Got:
        """One request."""
        keys = [] if key is None else [("Idempotency-Key", key)]
        fields = [(name.lower().encode(), value.encode("latin-1")) for name, value in [*keys, *(headers or [])]]
        scope = {"type": "http", "method": method, "path": path, "query_string": query, "headers": fields, **more}
        chunks = [body] if isinstance(body, bytes) else list(body)
        messages: list[dict[str, Any]] = [
            {"type": "http.request", "body": one, "more_body": number < len(chunks)}
            for number, one in enumerate(chunks, 1)
        ]
        sent: list[dict[str, Any]] = []
        self.sent = sent

        async def receive() -> dict[str, Any]:
            return messages.pop(0) if messages else {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            if self.breaks is not None and len(sent) >= self.breaks:
                raise OSError("the client has gone")
            sent.append(message)

        await self.app(scope, receive, send)
        return got(sent)


def got(sent: list[dict[str, Any]]) -> Got:
    """A response from its messages."""
    start, *rest = sent
    assert start["type"] == "http.response.start" and all(one["type"] == "http.response.body" for one in rest)
    fields = [(name.decode(), value.decode("latin-1")) for name, value in start["headers"]]
    return Got(start["status"], fields, b"".join(one["body"] for one in rest))
