"""Who asks: by a header, by a function of the scope, or nobody in particular.

Keys of two callers are two keys. There is no rule that fits every service, and a wrong one gives somebody the response
of somebody else: so it must be said.
"""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeAlias

from leasehold.errors import InvalidRequest
from leasehold.guards.http.problems import Refused
from leasehold.patterns.idempotency import problems
from leasehold.patterns.idempotency.asked import sent_as

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
            raise Refused(problems.NOBODY)
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
