"""A response: held back until it is stored, given to its client, kept as JSON, and given again.

One that is too large to keep goes through as it comes. It does not end when its client has gone: the work does not,
either.
"""

from __future__ import annotations

import asyncio
import base64
from typing import Any

from leasehold.guards.http.patience import Message, Send
from leasehold.guards.http.problems import Problem
from leasehold.patterns.idempotency import problems

REPLAYED = (b"idempotency-replayed", b"true")
# Of the connection and not of the response (RFC 9110), or of the moment. A cookie belongs to who was there first.
NOT_KEPT = frozenset(
    (
        "connection", "content-length", "date", "idempotency-replayed", "keep-alive", "proxy-authenticate",
        "proxy-connection", "set-cookie", "te", "trailer", "transfer-encoding", "upgrade",
    )
)  # fmt: skip


class Answer:
    """``send`` of one request."""

    def __init__(self, send: Send, most: int) -> None:
        self._send, self._most = send, most
        self._messages: list[Message] = []
        self._size = 0
        self.start: Message | None = None
        self.complete = False
        self.passes = False  # too large: from here on nothing is held back
        self._gone = False
        self.finished = asyncio.Event()

    @property
    def status(self) -> int:
        """Of a response that has begun."""
        return 0 if self.start is None else int(self.start["status"])

    async def send(self, message: Message) -> None:
        """From the application."""
        if message["type"] == "http.response.start":
            self.start = message
        elif message["type"] == "http.response.body":
            self._size += len(message.get("body", b""))
            self.complete = not message.get("more_body", False)
        self._messages.append(message)
        if self._size > self._most:
            self.passes = True
            await self._pass()
        if self.complete:
            self.finished.set()

    async def _pass(self) -> None:
        held, self._messages = self._messages, []
        try:
            for message in held if not self._gone else ():
                await self._send(message)
        except OSError:  # what servers raise for a client that has gone
            self._gone = True

    async def deliver(self) -> None:
        """What was held back, now that it is stored."""
        held, self._messages = self._messages, []
        for message in held:
            await self._send(message)

    def kept(self) -> dict[str, Any]:
        """The response, for the shelf."""
        assert self.start is not None  # noqa: S101  # for the type checker: it is complete
        fields = [(bytes(name).decode("latin-1").lower(), bytes(value).decode("latin-1")) for name, value in
                  self.start.get("headers", ())]  # fmt: skip
        named = {one.strip().lower() for name, value in fields if name == "connection" for one in value.split(",")}
        kept = [field for field in fields if field[0] not in NOT_KEPT and field[0] not in named]
        written = b"".join(message.get("body", b"") for message in self._messages)
        body = None if self.passes else base64.b64encode(written).decode()
        return {"status": self.status, "headers": kept, "body": body}


async def replay(send: Send, kept: dict[str, Any]) -> None:
    """A response from the shelf."""
    if kept["body"] is None:
        await refuse(send, problems.NOT_KEPT._replace(more={"original_status": kept["status"]}))
        return
    body = base64.b64decode(kept["body"])
    fields = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in kept["headers"]]
    if kept["status"] not in (204, 304):
        fields.append((b"content-length", str(len(body)).encode()))
    await _respond(send, kept["status"], [*fields, REPLAYED], body)


async def refuse(send: Send, problem: Problem) -> None:
    """A problem. The server sees to a request body that nobody reads."""
    fields = [(name.lower().encode(), value.encode()) for name, value in problems.headers(problem)]
    await _respond(send, problem.status, fields, problem.body)


async def _respond(send: Send, status: int, fields: list[tuple[bytes, bytes]], body: bytes) -> None:
    await send({"type": "http.response.start", "status": status, "headers": fields})
    await send({"type": "http.response.body", "body": body, "more_body": False})
