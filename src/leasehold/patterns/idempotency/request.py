"""A request: the key that it brought, and its body, read as a whole and handed on again."""

from __future__ import annotations

import asyncio
import hashlib
import inspect
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeAlias

from leasehold.errors import InvalidRequest
from leasehold.guards.http.asgi import Message, Receive
from leasehold.guards.http.problems import RequestRefused
from leasehold.patterns.idempotency import response

LONGEST_KEY = 255
LONGEST_LENGTH = 18  # digits
FIELD = response.HEADER.lower().encode()


def key_of(scope: Any) -> str | None:
    """What ``Idempotency-Key`` says: a string of structured fields, in double quotes, or the bare text that most
    clients send. Both mean the same key. Raises Refused."""
    sent = sent_as(scope, FIELD)
    if not sent:
        return None
    if len(sent) > 1:
        raise RequestRefused(response.MALFORMED)
    written = sent[0].strip(" \t")
    key = _unquoted(written[1:-1]) if len(written) > 1 and written[0] == written[-1] == '"' else _bare(written)
    if key is None or not 0 < len(key) <= LONGEST_KEY:
        raise RequestRefused(response.MALFORMED)
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
            raise RequestRefused(response.LARGE)
    chunks, size, more = [], 0, True
    while more:
        message = await receive()
        if message["type"] != "http.request":
            return None
        chunks.append(bytes(message.get("body", b"")))
        size, more = size + len(chunks[-1]), bool(message.get("more_body", False))
        if size > most:
            raise RequestRefused(response.LARGE)
    return b"".join(chunks)


class BufferedRequest:
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


# ---------------------------------------------------------------- caller
#
# Who asks: by a header, by a function of the scope, or nobody in particular.
#
# Keys of two callers are two keys. There is no rule that fits every service, and a wrong one gives somebody the
# response of somebody else: so it must be said.


TOKEN = frozenset("!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyz")  # what the name of a header is made of


class Global:
    """The type of ``GLOBAL``."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "GLOBAL"


GLOBAL: Final = Global()
"""For ``caller=``: all who ask are one. Whoever knows a key gets its response."""

Who: TypeAlias = Callable[[Any], str | Awaitable[str | None] | None]
Caller: TypeAlias = str | Who | Global


class Callers:
    """Which id a key has, for whoever asks."""

    def __init__(self, caller: object) -> None:
        self._everybody = isinstance(caller, Global)  # a copy of it, too
        self._who: Who = _of_everybody if self._everybody else _check(caller)

    async def key_id(self, scope: Any, key: str) -> str:
        """Under which id the key is known. It says neither who asks nor what the key is. Raises Refused when it is not
        known who asks."""
        said: object = self._who(scope)
        caller = await said if inspect.isawaitable(said) else said
        if caller is not None and not isinstance(caller, str):
            raise InvalidRequest(f"caller= must give a text that says who asks, or None, not {type(caller).__name__}")
        if not caller and not self._everybody:
            raise RequestRefused(response.NOBODY)
        written = f"{len(caller or '')}:{caller or ''}{key}".encode("utf-8", "surrogatepass")
        return hashlib.sha256(written).hexdigest()[:32]


def _of_everybody(_: Any) -> str:
    """Nobody else is called so: what a function gives is not empty."""
    return ""


def _check(caller: object) -> Who:
    if isinstance(caller, str):
        return _by_header(caller)
    if callable(caller):
        return caller
    given = "" if caller is None else f", not {type(caller).__name__}"
    raise InvalidRequest(
        "caller= says whose key it is, so that nobody gets the response of somebody else: the name of the header that "
        'tells who asks, such as "Authorization" or "X-API-Key", a function of the ASGI scope, or GLOBAL where all '
        f"callers may share their responses{given}"
    )


def _by_header(name: str) -> Who:
    """Its name is part of who asks: the same text in another header is somebody else."""
    low = name.lower()
    if not low or not TOKEN.issuperset(low):
        raise InvalidRequest(f"caller={name!r} is not the name of a header")
    field = low.encode()

    def who(scope: Any) -> str | None:
        said = [one for one in (value.strip(" \t") for value in sent_as(scope, field)) if one]
        return "\n".join([low, *said]) if said else None

    return who
