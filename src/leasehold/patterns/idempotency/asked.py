"""A request: the key that it brought, and its body, read as a whole and handed on again."""

from __future__ import annotations

import asyncio
from typing import Any

from leasehold.guards.http.asgi_client import Message, Receive
from leasehold.guards.http.problems import Refused
from leasehold.patterns.idempotency import problems

LONGEST_KEY = 255
LONGEST_LENGTH = 18  # digits
FIELD = problems.HEADER.lower().encode()


def key_of(scope: Any) -> str | None:
    """What ``Idempotency-Key`` says: a string of structured fields, in double quotes, or the bare text that most
    clients send. Both mean the same key. Raises Refused."""
    sent = sent_as(scope, FIELD)
    if not sent:
        return None
    if len(sent) > 1:
        raise Refused(problems.MALFORMED)
    written = sent[0].strip(" \t")
    key = _unquoted(written[1:-1]) if len(written) > 1 and written[0] == written[-1] == '"' else _bare(written)
    if key is None or not 0 < len(key) <= LONGEST_KEY:
        raise Refused(problems.MALFORMED)
    return key


def _bare(text: str) -> str | None:
    return text if all("!" <= letter <= "~" and letter != '"' for letter in text) else None


def _unquoted(text: str) -> str | None:
    """A backslash stands before a quote or another backslash, and nowhere else."""
    letters, rest = [], iter(text)
    for letter in rest:
        taken = next(rest, "") if letter == "\\" else letter
        if not " " <= letter <= "~" or letter == '"' or (letter == "\\" and taken not in ("\\", '"')):
            return None
        letters.append(taken)
    return None if "" in letters else "".join(letters)


def sent_as(scope: Any, name: bytes) -> list[str]:
    """What each header of that name said."""
    return [bytes(value).decode("latin-1") for field, value in scope["headers"] if bytes(field).lower() == name]


async def body_of(scope: Any, receive: Receive, most: int) -> bytes | None:
    """All of it. None: the client has gone. Raises Refused."""
    for said in sent_as(scope, b"content-length"):
        if said.isdecimal() and (len(said) > LONGEST_LENGTH or int(said) > most):
            raise Refused(problems.LARGE)
    chunks, size, more = [], 0, True
    while more:
        message = await receive()
        if message["type"] != "http.request":
            return None
        chunks.append(bytes(message.get("body", b"")))
        size, more = size + len(chunks[-1]), bool(message.get("more_body", False))
        if size > most:
            raise Refused(problems.LARGE)
    return b"".join(chunks)


class Handed:
    """The request as the application receives it. That its client has gone is not said before the response is
    complete: the work is done once, and its response is for whoever asks again."""

    def __init__(self, body: bytes, finished: asyncio.Event) -> None:
        self._body: bytes | None = body
        self._finished = finished

    async def receive(self) -> Message:
        """The body, once; then nothing, until the response is complete."""
        body, self._body = self._body, None
        if body is not None:
            return {"type": "http.request", "body": body, "more_body": False}
        await self._finished.wait()
        return {"type": "http.disconnect"}
