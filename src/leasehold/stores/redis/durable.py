"""Renewals that replicas, or the disk, must confirm: WAIT or WAITAOF follows them on the same connection.

Redis confirms what this connection has written, so both go out on one socket. It blocks that connection until enough
have confirmed, or the time is over; an event loop therefore uses one of its own for this.
"""

from __future__ import annotations

from collections.abc import Iterable

import hiredis

from leasehold._core.durability import copies
from leasehold._core.light_typing import Any
from leasehold._core.ops import Renew, StoreOp
from leasehold.errors import LeaseholdError, StoreUnavailable, Unsupported
from leasehold.stores.redis import failures
from leasehold.stores.redis.protocol import Command

REPLICATION = ("INFO", "replication")
REPLICATION_SECONDS = 0.25  # at most, for what an error says of the replicas
MOST_NAMED = 10  # replicas in a message
SHARE = 0.8  # of the time that is left: the reply must arrive before the caller gives up


def durability(op: StoreOp) -> str:
    """What has to confirm this op; empty for most."""
    return op.durability if type(op) is Renew else ""


def confirmation(wanted: str, seconds: float) -> Command:
    """The command that waits for it, at most that long."""
    ms = max(int(seconds * 1000 * SHARE), 1)  # 0 would wait for ever
    replicas, fsync = copies(wanted)
    return ("WAITAOF", 1, 0, ms) if fsync else ("WAIT", replicas, ms)


def confirmations(wanted: Iterable[str], seconds: float) -> dict[str, Command]:
    """Those that wait for all of these, one after the other, at most that long together."""
    each = sorted({one for one in wanted if one})
    return {one: confirmation(one, seconds / len(each)) for one in each}


def refused(reply: Any) -> bool:
    """True for the error reply to a renewal that leaves nothing to wait for. A server that does not know the script is
    sent it in full, and waited for again."""
    return isinstance(reply, hiredis.ReplyError) and not str(reply).startswith("NOSCRIPT")


def short(wanted: str, reply: Any) -> bool:
    """True when the reply says that too few replicas have confirmed."""
    replicas, fsync = copies(wanted)
    return not fsync and isinstance(reply, int) and reply < replicas


def doubt(server: str, wanted: str, reply: Any, replication: Any = b"") -> LeaseholdError | None:
    """Why the reply to a confirmation, or what came in its place, does not confirm the renewals before it."""
    if isinstance(reply, LeaseholdError):
        return reply
    try:
        check(server, wanted, reply, replication)
    except LeaseholdError as error:
        return error
    return None


def check(server: str, wanted: str, reply: Any, replication: Any = b"") -> None:
    """Raise unless its reply says that enough have confirmed. ``replication``: the reply to INFO, for the message."""
    replicas, fsync = copies(wanted)
    if isinstance(reply, hiredis.ReplyError):
        text = str(reply)
        if fsync and "unknown command" in text:
            raise Unsupported(f'{server} has no WAITAOF: durability="fsync" needs Redis 7.2 or Valkey') from reply
        if fsync and "appendonly is disabled" in text:
            raise Unsupported(
                f'{server} writes no append-only file: durability="fsync" needs appendonly yes'
            ) from reply
        raise failures.refusal(server, reply) from reply
    if fsync:
        if reply[0] < 1:
            raise StoreUnavailable(f"{server} did not write to its disk in time: the lease was not confirmed")
    elif reply < replicas:
        raise StoreUnavailable(
            f"{server} has {_replicas(reply)} that confirmed the lease in time, and {wanted!r} asks for {replicas}: "
            f"{_replicas(replicas - reply)} missing, or too slow{_described(replication, replicas)}"
        )


def _described(replication: Any, wanted: int) -> str:
    """Each replica that the server knows, and how many more are wanted; empty when it has not said."""
    if not isinstance(replication, bytes):
        return ""
    lines = dict(line.partition(":")[::2] for line in replication.decode(errors="replace").splitlines())
    if "connected_slaves" not in lines:
        return ""
    found = [
        _one(dict(part.partition("=")[::2] for part in text.split(",")))
        for name, text in lines.items()
        if name.removeprefix("slave").isdigit()
    ]
    missing = wanted - len(found)
    words = [*found[:MOST_NAMED]]
    if len(found) > MOST_NAMED:
        words.append(f"{len(found) - MOST_NAMED} more")
    if missing > 0:
        words.append(f"{missing} of {wanted} {'is' if missing == 1 else 'are'} not connected")
    return f". The primary says: {'; '.join(words)}"


def _one(fields: dict[str, str]) -> str:
    host, port = fields.get("ip", "?"), fields.get("port", "?")
    address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    return f"replica {address} is {fields.get('state', '?')}, lag {fields.get('lag', '?')} s"


def _replicas(count: int) -> str:
    return "1 replica" if count == 1 else f"{count or 'no'} replicas"
