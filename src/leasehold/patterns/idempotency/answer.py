"""A response: held back until it is stored, given to its client, kept as JSON, and given again.

One that is too large to keep goes through as it comes. It does not end when its client has gone: the work does not,
either.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Awaitable, Callable
from typing import Any

from leasehold.guards.http.asgi_client import Message, Send
from leasehold.guards.http.problems import Problem
from leasehold.patterns.idempotency import problems

Fields = list[tuple[bytes, bytes]]

BODILESS = (204, 304)
REPLAYED = (b"idempotency-replayed", b"true")
# Of the connection and not of the response (RFC 9110), or of the moment. A cookie belongs to who was there first.
DROPPED_HEADERS = frozenset(
    (
        "connection", "content-length", "date", "idempotency-replayed", "keep-alive", "proxy-authenticate",
        "proxy-connection", "set-cookie", "te", "trailer", "transfer-encoding", "upgrade",
    )
)  # fmt: skip


class Answer:
    """``send`` of one request. ``whole`` is called when the response is complete, before the last of it goes out."""

    def __init__(self, send: Send, most: int, whole: Callable[[Answer], Awaitable[None]]) -> None:
        self._send, self._most, self._whole = send, most, whole
        self._held: list[Message] = []
        self._size = 0
        self._gone = False
        self.start: Message | None = None
        self.complete = False
        self.passes = False  # too large: from here on nothing is held back
        self.begun = False  # something has gone out
        self.finished = asyncio.Event()

    @property
    def status(self) -> int:
        """Of a response that has begun."""
        return 0 if self.start is None else int(self.start["status"])

    async def send(self, message: Message) -> None:
        """From the application."""
        if message["type"] == "http.response.start":
            message = self.start = {**message, "headers": list(message.get("headers", ()))}  # it is read twice
        elif message["type"] == "http.response.body":
            self._size += len(message.get("body", b""))
            self.complete = not message.get("more_body", False)
        self._held.append(message)
        self.passes = self.passes or self._size > self._most
        if self.complete:
            await self._whole(self)
        if self.complete or self.passes:
            await self.deliver()
        if self.complete:
            self.finished.set()

    async def deliver(self) -> None:
        """What was held back. A client that has gone is no reason for the work to end."""
        held, self._held = self._held, []
        try:
            for message in held if not self._gone else ():
                self.begun = True
                await self._send(message)
        except OSError:  # what servers raise for a client that has gone
            self._gone = True

    def replace(self, problem: Problem) -> None:
        """Say this in place of what was held back."""
        self._held = messages(problem.status, _fields(problem), problem.body)

    def kept(self) -> dict[str, Any]:
        """The response, for the shelf."""
        assert self.start is not None  # noqa: S101  # for the type checker: it is complete
        fields = [(bytes(name).decode("latin-1").lower(), bytes(value).decode("latin-1")) for name, value in
                  self.start["headers"]]  # fmt: skip
        named = {one.strip().lower() for name, value in fields if name == "connection" for one in value.split(",")}
        kept = [list(field) for field in fields if field[0] not in DROPPED_HEADERS and field[0] not in named]
        written = b"".join(message.get("body", b"") for message in self._held)
        body = None if self.passes else base64.b64encode(written).decode()
        return {"status": self.status, "headers": kept, "body": body}


async def replay(send: Send, kept: dict[str, Any]) -> None:
    """A response from the shelf."""
    if kept["body"] is None:
        await refuse(send, problems.NOT_KEPT._replace(more={"original_status": kept["status"]}))
        return
    body = base64.b64decode(kept["body"])
    fields = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in kept["headers"]]
    if kept["status"] not in BODILESS:
        fields.append((b"content-length", str(len(body)).encode()))
    for message in messages(kept["status"], [*fields, REPLAYED], body):
        await send(message)


async def refuse(send: Send, problem: Problem) -> None:
    """A problem. The server sees to a request body that nobody reads."""
    for message in messages(problem.status, _fields(problem), problem.body):
        await send(message)


def messages(status: int, fields: Fields, body: bytes) -> list[Message]:
    """A whole response."""
    start: Message = {"type": "http.response.start", "status": status, "headers": fields}
    return [start, {"type": "http.response.body", "body": body, "more_body": False}]


def _fields(problem: Problem) -> Fields:
    return [(name.lower().encode(), value.encode()) for name, value in problems.headers(problem)]
