"""The commands that only a Redlock sends, and batches of commands, which are packed once for all nodes."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from leasehold._core import ops
from leasehold._core.light_typing import Any
from leasehold.stores.redis import protocol
from leasehold.stores.redis.protocol import COUNT, Command, Script, keys, pack

MARKER = "lock:v1:redlock"
VOTE, RAISE_FENCE, MARK = Script("vote", 7), Script("raise_fence", 2), Script("mark", 1)
_own = {script.sha: script for script in (VOTE, RAISE_FENCE, MARK)}


class Batch:
    """Commands that leave in one write. The nodes get the same bytes."""

    __slots__ = ("_data", "commands", "scripts", "teaches")

    def __init__(self, commands: Sequence[Command], teaches: Collection[str] = ()) -> None:
        self.commands = commands
        self.scripts = {command[1] for command in commands if command[0] == "EVALSHA"}  # a node must know these
        self.teaches = teaches  # and knows these afterwards
        self._data = b""

    @property
    def data(self) -> bytes:
        if not self._data:
            self._data = b"".join(map(pack, self.commands))
        return self._data

    def with_texts(self, known: set[str]) -> Batch:
        """The same commands, with scripts in full that are not known: the first of each teaches it."""
        new: set[str] = set()
        found = []
        for command in self.commands:
            unknown = command[0] == "EVALSHA" and command[1] not in known and command[1] not in new
            if unknown:
                new.add(command[1])
            found.append(with_text(command) if unknown else command)
        return Batch(found, new)


def vote(op: ops.Claim, fence: int, longest_ttl_ms: int) -> Command:
    """The claim as one node gets it, with the fence that it is to give at least. It never queues: a place in one node's
    queue is of no use."""
    floor = max(op.floor, fence - 1)
    claim = protocol.command(op._replace(floor=floor, enqueue=False, address="", holder_address=""))
    return ("EVALSHA", VOTE.sha, COUNT + 1, *claim[3 : 3 + COUNT], MARKER, *claim[3 + COUNT :], longest_ttl_ms)


def raise_fence(resource: str, owner: str, fence: int) -> Command:
    return ("EVALSHA", RAISE_FENCE.sha, COUNT, *keys(resource), owner, fence)


def mark(longest_ttl_ms: int) -> Command:
    """In full: it is sent once for each connection, mostly to a server that does not know it."""
    return ("EVAL", MARK.text, 1, MARKER, longest_ttl_ms)


def with_text(command: Command) -> Command:
    """The same command for a node that does not have the script."""
    script = _own.get(command[1])
    return protocol.with_text(command) if script is None else ("EVAL", script.text, *command[2:])


def unknown_script(reply: Any) -> bool:
    return isinstance(reply, Exception) and str(reply).startswith("NOSCRIPT")
