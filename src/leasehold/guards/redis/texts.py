"""The scripts as they are sent, by their digest or in full."""

from __future__ import annotations

import hashlib
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from leasehold.errors import InvalidRequest
from leasehold.stores.redis.lua import assemble

FOLDER = Path(__file__).parent / "scripts"
BODIES = 256  # of our callers, kept ready


class Script(NamedTuple):
    """As bytes: a client with an encoding of its own sends them as they are."""

    sha: bytes
    text: bytes
    own: bool = True  # False: somebody's body, which may do anything


def _script(text: str, own: bool = True) -> Script:
    sent = text.encode()
    return Script(hashlib.sha1(sent, usedforsecurity=False).hexdigest().encode(), sent, own)


CHECK, CALL = (_script(assemble(FOLDER, name)) for name in ("check", "call"))
_BEFORE, _AFTER = assemble(FOLDER, "eval").split("\nBODY()")
_ON_ONE_LINE = " ".join(_BEFORE.split())


def around(body: object) -> Script:
    """A script that runs this body, which sees its own KEYS and ARGV, when the rule says so."""
    if not isinstance(body, str) or not body.strip():
        raise InvalidRequest(
            "the body must be the text of a Lua script, such as \"return redis.call('INCR', KEYS[1])\""
        )
    if body.startswith("#!"):
        raise InvalidRequest(
            "the body cannot begin with #!: it becomes a part of the guard's script, which has no flags"
        )
    return _around(str.__str__(body))


@lru_cache(maxsize=BODIES)
def _around(body: str) -> Script:
    try:
        return _script(f"{_ON_ONE_LINE} {body}{_AFTER}", own=False)
    except UnicodeEncodeError:
        raise InvalidRequest("the body holds a lone surrogate and cannot be written as UTF-8") from None
