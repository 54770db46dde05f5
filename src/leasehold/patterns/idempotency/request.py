"""A request: its key, its client, and its body, which is read as a whole and passed on to the application."""

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
    """The value of ``Idempotency-Key``: a string of structured fields, in double quotes, or the bare text that most
    clients send. Both mean the same key. Raises RequestRefused."""
    values = header_values(scope, FIELD)
    if not values:
        return None
    if len(values) > 1:
        raise RequestRefused(response.MALFORMED)
    written = values[0].strip(" \t")
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
        meant = next(rest, "") if letter == "\\" else letter
        if not " " <= letter <= "~" or letter == '"' or (letter == "\\" and meant not in ("\\", '"')):
            return None
        letters.append(meant)
    return None if "" in letters else "".join(letters)


def header_values(scope: Any, name: bytes) -> list[str]:
    """The value of each header of that name."""
    return [bytes(value).decode("latin-1") for field, value in scope["headers"] if bytes(field).lower() == name]


async def body_of(scope: Any, receive: Receive, most: int) -> bytes | None:
    """The whole body. None: the client has disconnected. Raises RequestRefused."""
    for length in header_values(scope, b"content-length"):
        if length.isdecimal() and (len(length) > LONGEST_LENGTH or int(length) > most):
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
    """The request as the application receives it. A disconnect of the client is not reported before the response is
    complete: the work is done once, and its response is for later repetitions."""

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
# Which client sends a request: known by a header, by a function of the scope, or not at all.
#
# Keys of two callers are two keys. No rule fits every service, and a wrong one gives one client the response of
# another: so the service must state its rule.


TOKEN = frozenset("!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyz")  # what the name of a header is made of


class Global:
    """The type of ``GLOBAL``."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "GLOBAL"


GLOBAL: Final = Global()
"""For ``caller=``: all clients are one. A client that knows a key gets its response."""

CallerOf: TypeAlias = Callable[[Any], str | Awaitable[str | None] | None]
Caller: TypeAlias = str | CallerOf | Global


class Callers:
    """Makes the id of a key, different for each caller."""

    def __init__(self, caller: object) -> None:
        self._global = isinstance(caller, Global)  # not ``is GLOBAL``: a copy counts too
        self._caller_of: CallerOf = _no_caller if self._global else _check(caller)

    async def key_id(self, scope: Any, key: str) -> str:
        """The id under which the key is stored. It reveals neither the caller nor the key. Raises RequestRefused if the
        caller is not known."""
        result: object = self._caller_of(scope)
        caller = await result if inspect.isawaitable(result) else result
        if caller is not None and not isinstance(caller, str):
            raise InvalidRequest(
                f"caller= must return a text that identifies the client, or None, not {type(caller).__name__}"
            )
        if not caller and not self._global:
            raise RequestRefused(response.CALLER_UNKNOWN)
        written = f"{len(caller or '')}:{caller or ''}{key}".encode("utf-8", "surrogatepass")
        return hashlib.sha256(written).hexdigest()[:32]


def _no_caller(_: Any) -> str:
    """The one caller of ``GLOBAL``. No other caller is empty."""
    return ""


def _check(caller: object) -> CallerOf:
    if isinstance(caller, str):
        return _by_header(caller)
    if callable(caller):
        return caller
    given = "" if caller is None else f", not {type(caller).__name__}"
    raise InvalidRequest(
        "caller= says whose key it is, so that no client gets the response of another: the name of the header that "
        'identifies the client, such as "Authorization" or "X-API-Key", a function of the ASGI scope, or GLOBAL where '
        f"all clients may share their responses{given}"
    )


def _by_header(name: str) -> CallerOf:
    """The header's name is part of the caller: the same text in another header is another caller."""
    low = name.lower()
    if not low or not TOKEN.issuperset(low):
        raise InvalidRequest(f"caller={name!r} is not the name of a header")
    field = low.encode()

    def caller_of(scope: Any) -> str | None:
        values = [text for value in header_values(scope, field) if (text := value.strip(" \t"))]
        return "\n".join([low, *values]) if values else None

    return caller_of
