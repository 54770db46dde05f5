"""Responses: held back until they are stored, sent, kept as JSON, and replayed; and the problems of refused requests.

A response that is too large to keep is passed on as it comes. Neither it nor the work ends when the client disconnects.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Awaitable, Callable
from typing import Any

from leasehold.guards.http.asgi import Message, Send
from leasehold.guards.http.problems import BAD_REQUEST, CONFLICT, NOTHING_DONE, RETRY_AFTER, UNABLE, Problem

# ---------------------------------------------------------------- problems
#
# The responses to requests that cannot be served: ``application/problem+json``, in the form of the HTTP guards.
#
#     type                                       status
#     urn:leasehold:idempotency-key-missing      400     the request needs an Idempotency-Key, and has none
#     urn:leasehold:idempotency-key-malformed    400     a header that is not a key
#     urn:leasehold:caller-unknown               400     there is a key, and it is not known whose
#     urn:leasehold:idempotency-key-in-use       409     the same request is being served right now
#     urn:leasehold:response-not-kept            410     it was served, and its response was too large to keep
#     urn:leasehold:body-too-large               413     more than is read for a fingerprint
#     urn:leasehold:idempotency-key-reused       422     the same key came with another request before
#     urn:leasehold:keys-unavailable             503     it is not known whether it was served before
#     urn:leasehold:interrupted                  503     the service lost its lease while it served this request


HEADER = "Idempotency-Key"
GONE, TOO_LARGE, UNPROCESSABLE = 410, 413, 422
AGAIN = f"Repeat the request with the same {HEADER}"


def headers(problem: Problem) -> list[tuple[str, str]]:
    """The headers of a problem, with Retry-After also for a request that is being served."""
    more = [("Retry-After", str(RETRY_AFTER))] if problem.status == CONFLICT else []
    return [*problem.headers, *more]


MISSING = Problem(
    "idempotency-key-missing",
    BAD_REQUEST,
    f"{HEADER} is missing",
    f"This request needs an {HEADER}. {NOTHING_DONE} Send one that is new for each thing you want done, such as a "
    "random UUID, and the same one when you repeat the request.",
)
MALFORMED = Problem(
    "idempotency-key-malformed",
    BAD_REQUEST,
    f"{HEADER} cannot be understood",
    f"{NOTHING_DONE} Send {HEADER} once, with 1 to 255 visible ASCII characters, with or without double quotes "
    "around them.",
)
CALLER_UNKNOWN = Problem(
    "caller-unknown",
    BAD_REQUEST,
    "The client is not known",
    f"This request has an {HEADER} and nothing that says whose it is. {NOTHING_DONE} Repeat it with the "
    "credentials that the service asks for.",
)
IN_USE = Problem(
    "idempotency-key-in-use",
    CONFLICT,
    "The same request is being served",
    f"A request with this {HEADER} has not ended yet. {AGAIN} later, and you get its response.",
)
NOT_KEPT = Problem(
    "response-not-kept",
    GONE,
    "The response was not kept",
    "This request was served before, and is not served again. Its response was too large to keep: look up what it did.",
)
LARGE = Problem(
    "body-too-large",
    TOO_LARGE,
    "The body is too large",
    f"A request with an {HEADER} is read as a whole before it is served, and this one is too large for that. "
    f"{NOTHING_DONE}",
)
REUSED = Problem(
    "idempotency-key-reused",
    UNPROCESSABLE,
    f"{HEADER} was used for another request",
    f"This {HEADER} came with another method, path, query or body before. {NOTHING_DONE} Use a new key for a new "
    "request, and repeat an old one as it was.",
)
UNAVAILABLE = Problem(
    "keys-unavailable",
    UNABLE,
    "The service cannot look up its keys",
    f"The service cannot say whether this request was served before. {NOTHING_DONE} {AGAIN}.",
)
INTERRUPTED = Problem(
    "interrupted",
    UNABLE,
    "The request was interrupted",
    f"The service lost its hold on this key while it served the request, which may have been done, or be done by "
    f"another server now. {AGAIN}, and you get the response that counts.",
)


# ---------------------------------------------------------------- responses


Fields = list[tuple[bytes, bytes]]

BODILESS = (204, 304)
REPLAYED = (b"idempotency-replayed", b"true")
# Headers of the connection and not of the response (RFC 9110), or of the moment. A cookie belongs to the first client.
DROPPED_HEADERS = frozenset(
    (
        "connection", "content-length", "date", "idempotency-replayed", "keep-alive", "proxy-authenticate",
        "proxy-connection", "set-cookie", "te", "trailer", "transfer-encoding", "upgrade",
    )
)  # fmt: skip


class Response:
    """``send`` of one request. ``store`` is called when the response is complete, before its end is sent."""

    def __init__(self, send: Send, most: int, store: Callable[[Response], Awaitable[None]]) -> None:
        self._send, self._most, self._store = send, most, store
        self._held: list[Message] = []
        self._size = 0
        self._disconnected = False
        self.start: Message | None = None
        self.complete = False
        self.passes = False  # too large: from here on everything is passed on
        self.begun = False  # something was sent
        self.finished = asyncio.Event()

    @property
    def status(self) -> int:
        """The status of a response that has begun; else 0."""
        return 0 if self.start is None else int(self.start["status"])

    async def send(self, message: Message) -> None:
        """Take a message of the application."""
        if message["type"] == "http.response.start":
            message = self.start = {
                **message,
                "headers": list(message.get("headers", ())),
            }  # a list, for it is read twice
        elif message["type"] == "http.response.body":
            self._size += len(message.get("body", b""))
            self.complete = not message.get("more_body", False)
        self._held.append(message)
        self.passes = self.passes or self._size > self._most
        if self.complete:
            await self._store(self)
        if self.complete or self.passes:
            await self.deliver()
        if self.complete:
            self.finished.set()

    async def deliver(self) -> None:
        """Send what was held back. A client that has disconnected does not end the work."""
        held, self._held = self._held, []
        try:
            for message in held if not self._disconnected else ():
                self.begun = True
                await self._send(message)
        except OSError:  # what servers raise for a client that has disconnected
            self._disconnected = True

    def replace(self, problem: Problem) -> None:
        """Send this problem in place of what was held back."""
        self._held = messages(problem.status, _fields(problem), problem.body)

    def kept(self) -> dict[str, Any]:
        """The response as JSON, for the result store."""
        assert self.start is not None  # noqa: S101  # for the type checker: it is complete
        fields = [(bytes(name).decode("latin-1").lower(), bytes(value).decode("latin-1")) for name, value in
                  self.start["headers"]]  # fmt: skip
        named = {one.strip().lower() for name, value in fields if name == "connection" for one in value.split(",")}
        kept = [list(field) for field in fields if field[0] not in DROPPED_HEADERS and field[0] not in named]
        written = b"".join(message.get("body", b"") for message in self._held)
        body = None if self.passes else base64.b64encode(written).decode()
        return {"status": self.status, "headers": kept, "body": body}


async def replay(send: Send, kept: dict[str, Any]) -> None:
    """Send a stored response."""
    if kept["body"] is None:
        await refuse(send, NOT_KEPT._replace(more={"original_status": kept["status"]}))
        return
    body = base64.b64decode(kept["body"])
    fields = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in kept["headers"]]
    if kept["status"] not in BODILESS:
        fields.append((b"content-length", str(len(body)).encode()))
    for message in messages(kept["status"], [*fields, REPLAYED], body):
        await send(message)


async def refuse(send: Send, problem: Problem) -> None:
    """Send a problem. The server discards a request body that was not read."""
    for message in messages(problem.status, _fields(problem), problem.body):
        await send(message)


def messages(status: int, fields: Fields, body: bytes) -> list[Message]:
    """The messages of a whole response."""
    start: Message = {"type": "http.response.start", "status": status, "headers": fields}
    return [start, {"type": "http.response.body", "body": body, "more_body": False}]


def _fields(problem: Problem) -> Fields:
    return [(name.lower().encode(), value.encode()) for name, value in headers(problem)]
