"""One step at the server: which script is sent, and what its reply means. ``client`` sends it, for threads and for
asyncio."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, Generic, TypeVar

from leasehold.errors import InvalidRequest, LeaseholdError, OutcomeUnknown, StaleOwner, StoreUnavailable
from leasehold.guards.fence import Presented, label
from leasehold.stores.redis import clients, failures
from leasehold.stores.redis.lua import Script, assemble, make_script

# ---------------------------------------------------------------- scripts

FOLDER = Path(__file__).parent / "scripts"
BODIES = 256  # scripts of callers that are kept ready


CHECK, CALL = (make_script(assemble(FOLDER, name)) for name in ("check", "call"))
_BEFORE, _AFTER = assemble(FOLDER, "eval").split("\nBODY()")
_ON_ONE_LINE = " ".join(_BEFORE.split())


def around(body: object) -> Script:
    """A script that runs this body, which sees its own KEYS and ARGV, when the guard rule accepts the fence."""
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
        return make_script(f"{_ON_ONE_LINE} {body}{_AFTER}", own=False)
    except UnicodeEncodeError:
        raise InvalidRequest("the body holds a lone surrogate and cannot be written as UTF-8") from None


# ---------------------------------------------------------------- steps


R = TypeVar("R")
Command = tuple[Any, ...]

# The texts for error replies that mean something else to a guard than to the store.
NO = {
    **failures.NO,
    "ASK": "is a node of a Cluster: give the guard a client for all of it, such as redis.RedisCluster",
    "MOVED": "is a node of a Cluster: give the guard a client for all of it, such as redis.RedisCluster",
    "NOPERM": "does not allow this user what the guard needs, or your command; docs/guards/redis.md has the ACL line",
    "OOM": "has no memory left (maxmemory with noeviction): nothing was written",
}
OTHER_TYPE = "the key holds another type of value than this call is for: nothing was written"
OTHER_SLOT = (
    "this is a node of a Cluster, and the keys are in different slots: name them with guard.key('body', lease). "
    "Nothing was done"
)


class Step(Generic[R]):
    """A script to be sent, whose reply becomes an R. ``no`` has the texts for error replies."""

    no: Mapping[str, str] = NO
    __slots__ = ("_attempt", "_keys", "_read", "_refused", "_script", "_values")

    def __init__(
        self,
        attempt: Presented,
        refused: Callable[[int], StaleOwner],
        script: Script,
        keys: tuple[Any, ...],
        values: tuple[Any, ...],
        read: Callable[[Any], R],
    ) -> None:
        self._attempt, self._refused = attempt, refused
        self._script, self._keys, self._values, self._read = script, keys, values, read

    def commands(self) -> Iterator[Command]:
        """The script by its digest; then in full, for a server that does not have it: after a restart, a failover or
        SCRIPT FLUSH, or on another node."""
        yield ("EVALSHA", self._script.sha, len(self._keys), *self._keys, *self._values)
        yield ("EVAL", self._script.text, len(self._keys), *self._keys, *self._values)

    def judge(self, reply: Any) -> R:
        """The result for the caller. Raises StaleOwner."""
        if reply[0] == 0:
            raise self._refused(int(reply[1]))
        return self._read(reply[1] if len(reply) > 1 else None)

    def failure(self, server: str, error: Exception, retries: bool) -> LeaseholdError:
        """An error of the client as one of ours. An error reply to a script of our own means that nothing was changed:
        the one command that such a script is for comes last."""
        if isinstance(error, LeaseholdError):  # of a coordinator's own connection
            found = error
        else:
            found = self._explained(error) or clients.explained(server, error, retries, self.no)
        if isinstance(found, OutcomeUnknown):
            found = OutcomeUnknown(f"{str(found).rstrip('.')}. {self._again()}")
        found.resource, found.owner, found.fence = self._attempt.resource, self._attempt.shown, self._attempt.fence
        return found

    def forgotten(self, server: str) -> StoreUnavailable:
        """The server did not know a script that it was sent in full."""
        return StoreUnavailable(f"{server} {self.no['NOSCRIPT']}", resource=self._attempt.resource)

    def _explained(self, error: Exception) -> LeaseholdError | None:
        text, word = str(error), clients.first_word(error)
        if isinstance(error, UnicodeEncodeError) or _is(error, "DataError"):
            return InvalidRequest(f"the client cannot encode this, and sent nothing: {text[:200]}")
        if isinstance(error, UnicodeDecodeError):
            return OutcomeUnknown(
                "it was done, and the client cannot decode the reply: use one without decode_responses"
            )
        if text.startswith("FOREIGNRECORD"):
            name = label(self._attempt.resource)
            return StoreUnavailable(
                f"at the record's key of {name}, guard:v1:{{...}}, is something else: nothing was accepted. See who "
                "writes there, and delete it"
            )
        if text.startswith("BODYFAILED"):
            return OutcomeUnknown(f"the body ended with an error, and what it did before that stays: {text[11:211]}")
        if not self._script.own and "Error compiling script" in text:
            return InvalidRequest(f"the body is no Lua, and nothing was done: {text[-200:]}")
        if word == "CROSSSLOT":
            return InvalidRequest(OTHER_SLOT)
        if word == "WRONGTYPE" or "WRONGTYPE" in text:
            return InvalidRequest(OTHER_TYPE)
        return None

    def _again(self) -> str:
        if self._script.own:
            return "It may be repeated: the guard accepts the same owner again"
        return "Repeat it only if the body may run twice"


def _is(error: Exception, name: str) -> bool:
    return any(cls.__name__ == name for cls in type(error).__mro__)
