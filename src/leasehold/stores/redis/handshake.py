"""The first words on a new connection, the same for threads and event loops: log in, speak RESP3, listen for pushes,
and find out whether this server will do.

A generator yields lists of commands that leave together and receives their replies; what it returns says what the
connection can do. Whoever has the socket drives it.
"""

from __future__ import annotations

from collections.abc import Generator

import hiredis

from leasehold._core.light_typing import Any, NamedTuple
from leasehold.errors import LeaseholdError, StoreUnavailable, Unsupported
from leasehold.observe import log
from leasehold.stores.redis import failures
from leasehold.stores.redis.protocol import Command
from leasehold.stores.redis.target import Target

OLDEST = (6, 2)
ReplyError = hiredis.ReplyError


class Handshake(NamedTuple):
    """What a connection turned out to be."""

    pushes: bool  # it hears what is published to its channel


def handshake(target: Target, channel: str, first: bool) -> Generator[list[Command], list[Any], Handshake]:
    """``first``: also look once at how this server is set up."""
    speaks_resp3 = target.resp == 3 and (yield from _hello(target))
    if not speaks_resp3:
        yield from _resp2(target)
    selected, subscribed, memory = yield [
        ("SELECT", target.db) if target.db else ("PING",),  # a user need not be allowed more than it needs
        ("SUBSCRIBE", channel) if speaks_resp3 else ("PING",),
        ("INFO", "memory") if first else ("PING",),
    ]
    if target.db and isinstance(selected, ReplyError):
        raise StoreUnavailable(f"Redis at {target} has no database {target.db} for us: {selected}") from selected
    if first:
        _warn_of_eviction(target, memory)
    pushes = speaks_resp3 and not isinstance(subscribed, ReplyError)
    if not pushes:
        log.debug("Redis at %s: no pushes on this connection, so whoever is first in line asks again and again", target)
    return Handshake(pushes)


def _hello(target: Target) -> Generator[list[Command], list[Any], bool]:
    user, password = _login(target)
    hello: Command = ("HELLO", 3)
    if user or password:
        hello += ("AUTH", user, password)
    if target.client_name:
        hello += ("SETNAME", target.client_name)
    (reply,) = yield [hello]
    if isinstance(reply, ReplyError):
        if str(reply).startswith(("NOPROTO", "ERR unknown command")):
            return False
        raise _denied(target, reply)
    _check(target, reply)
    return True


def _resp2(target: Target) -> Generator[list[Command], list[Any], None]:
    """A server that was told to speak RESP2, or cannot do better."""
    user, password = _login(target)
    if user or password:
        (reply,) = yield [("AUTH", password) if user == "default" else ("AUTH", user, password)]
        if isinstance(reply, ReplyError):
            raise _denied(target, reply)
    if target.client_name:
        yield [("CLIENT", "SETNAME", target.client_name)]
    (reply,) = yield [("INFO", "server")]
    if isinstance(reply, ReplyError):
        if str(reply).startswith("NOAUTH"):
            raise _denied(target, reply)
        return  # this user may not ask; the scripts will tell
    fields = dict(line.split(":", 1) for line in reply.decode().splitlines() if ":" in line)
    _check(
        target, {b"version": fields.get("redis_version", "").encode(), b"mode": fields.get("redis_mode", "").encode()}
    )


def _check(target: Target, told: dict[bytes, Any]) -> None:
    version = told.get(b"version", b"").decode()
    numbers = tuple(int(part) for part in version.split(".")[:2] if part.isdigit())
    if numbers and numbers < OLDEST:
        raise Unsupported(f"Redis at {target} is version {version}: leases need 6.2 or newer")
    if told.get(b"mode") == b"cluster":
        raise Unsupported(f"Redis at {target} is a node of a Cluster: this version has no store for one")


def _login(target: Target) -> tuple[str, str]:
    try:
        return target.login()
    except Exception as error:  # somebody's credential provider
        raise StoreUnavailable(
            f"the credentials for Redis at {target} could not be had: {type(error).__name__}"
        ) from error


def _denied(target: Target, reply: BaseException) -> LeaseholdError:
    """A server may quote what it was sent: the reply itself is not shown."""
    error = failures.refusal(target.server, reply)
    if isinstance(error, StoreUnavailable):
        return error
    return StoreUnavailable(f"Redis at {target} refused the login ({str(reply).split(' ', 1)[0]})")


def _warn_of_eviction(target: Target, reply: Any) -> None:
    """A server that throws keys away when memory is short throws locks away (trap 38)."""
    if isinstance(reply, ReplyError):  # this user may not ask
        return
    fields = dict(line.split(":", 1) for line in reply.decode().splitlines() if ":" in line)
    policy = fields.get("maxmemory_policy", "noeviction")
    if policy != "noeviction" and fields.get("maxmemory", "0") != "0":
        log.warn(
            "Redis at %s has maxmemory-policy %s: when memory is short it deletes locks that are held. "
            "Set noeviction, or keep locks on another server",
            target,
            policy,
        )
