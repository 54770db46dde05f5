"""The commands that only a Redlock sends, and the scripts of all of them in full."""

from __future__ import annotations

from leasehold._core import ops
from leasehold._core.light_typing import Any
from leasehold.stores.redis import protocol
from leasehold.stores.redis.protocol import COUNT, Command, Script, keys

MARKER = "lock:v1:redlock"
VOTE, RAISE_FENCE, MARK = Script("vote", 7), Script("raise_fence", 2), Script("mark", 1)
_own = {script.sha: script for script in (VOTE, RAISE_FENCE, MARK)}
_sha_by_text = {script.text: script.sha for script in (*_own.values(), *protocol.SCRIPTS)}


def vote(op: ops.Claim, longest_ttl_ms: int) -> Command:
    """The claim as one node gets it. It never queues: a place in one node's queue is of no use."""
    claim = protocol.command(op._replace(enqueue=False, address="", holder_address=""))
    return ("EVALSHA", VOTE.sha, COUNT + 1, *claim[3 : 3 + COUNT], MARKER, *claim[3 + COUNT :], longest_ttl_ms)


def raise_fence(op: ops.Claim, fence: int) -> Command:
    return ("EVALSHA", RAISE_FENCE.sha, COUNT, *keys(op.resource), op.owner, fence)


def mark(longest_ttl_ms: int) -> Command:
    """In full: it is sent once for each connection, mostly to a server that does not know it."""
    return ("EVAL", MARK.text, 1, MARKER, longest_ttl_ms)


def with_text(command: Command) -> Command:
    """The same command for a node that does not have the script."""
    script = _own.get(command[1])
    return protocol.with_text(command) if script is None else ("EVAL", script.text, *command[2:])


def sha(command: Command) -> str:
    """That of a script which is sent in full."""
    return _sha_by_text[command[1]]


def unknown_script(reply: Any) -> bool:
    return isinstance(reply, Exception) and str(reply).startswith("NOSCRIPT")
