"""The commands of one round of renewals, on their way to several nodes: what goes to which of them, what a redirection
means, and which renewals were confirmed."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

from leasehold._core.light_typing import Any
from leasehold.errors import LeaseholdError, StoreUnavailable
from leasehold.stores.redis import durable, protocol
from leasehold.stores.redis.cluster.connection import ASKING
from leasehold.stores.redis.cluster.nodes import Cluster, Node, Redirected, slot_of
from leasehold.stores.redis.connection import ReplyError
from leasehold.stores.redis.sockets import RedisSocket


class Avoided(StoreUnavailable):
    """Nothing was sent: the node has just left another request unanswered."""


class Part:
    """What is sent to one node in one write: commands, and behind them what waits for their confirmation."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self._commands: list[protocol.Command] = []
        self._places: list[int] = []  # of each command in its batch; -1 for ASKING
        self._wanted: list[str] = []  # what has to confirm each
        self.waits: dict[str, protocol.Command] = {}
        self._replies: list[Any] = []
        self.failed = False

    def add(self, at: int, command: protocol.Command, asking: bool, wanted: str) -> None:
        if asking:
            self._commands.append(ASKING)
            self._places.append(-1)
            self._wanted.append("")
        self._commands.append(command)
        self._places.append(at)
        self._wanted.append(wanted)

    def send(self, socket: RedisSocket, give_up: float) -> None:
        self.waits = durable.confirmations(self._wanted, give_up - time.monotonic())
        socket.send_many([*self._commands, *self.waits.values()], give_up)

    def receive(self, socket: RedisSocket, give_up: float) -> None:
        """The replies to the commands."""
        socket.receive_many(self._replies, len(self._commands), give_up, more=bool(self.waits))
        socket.used = time.monotonic()

    def receive_confirmations(self, socket: RedisSocket, give_up: float) -> None:
        """The replies to what waits for them."""
        socket.receive_many(self._replies, len(self._commands) + len(self.waits), give_up)
        socket.used = time.monotonic()

    def refused(self) -> bool:
        """True when confirmations are under way and nothing was done that they could confirm."""
        if self.failed or not self.waits:
            return False
        replies = [reply for wanted, reply in zip(self._wanted, self._replies, strict=True) if wanted]
        return all(type(reply) is ReplyError for reply in replies)

    def fail(self, error: LeaseholdError) -> None:
        """For all that no reply has come to."""
        self.failed = True
        self._replies += [error] * (len(self._commands) + len(self.waits) - len(self._replies))

    def outcomes(self) -> Iterator[tuple[int, Any, LeaseholdError | None]]:
        """Of each command: its place in the batch, its reply or error, and why that is not confirmed."""
        confirmed = dict(zip(self.waits, self._replies[len(self._commands) :], strict=False))  # fewer when refused
        for at, wanted, reply in zip(self._places, self._wanted, self._replies, strict=False):
            doubt = None
            if wanted and not isinstance(reply, (ReplyError, LeaseholdError)):
                doubt = durable.doubt(self.node.name, wanted, confirmed[wanted])
            if at >= 0:
                yield at, reply, doubt


class Batch:
    """Commands on their way to several nodes. ``outcomes`` has the last reply or error of each, and ``doubts`` why that
    was not confirmed by what is ``wanted``."""

    def __init__(self, cluster: Cluster, commands: list[protocol.Command], wanted: Sequence[str]) -> None:
        self._cluster = cluster
        self._commands = commands
        self._wanted = wanted or [""] * len(commands)
        self._slots = [slot_of(command[3]) for command in commands]
        self._asking: dict[int, Node] = {}
        self._in_full: set[int] = set()
        self._unserved: list[int] = []
        self.outcomes: list[Any] = [None] * len(commands)
        self.doubts: list[LeaseholdError | None] = [None] * len(commands)
        self.left: list[int] = list(range(len(commands)))
        self.paused = False  # the keys of a slot are on two nodes: wait a moment
        self.without_node = False  # some have no node that answers, as far as we know

    def by_node(self) -> list[Part]:
        """What is left to send. The first command of a script that a node does not have goes there in full, and so does
        the first that has to be confirmed: a node that lacks replicas would let us wait before we could send it
        again."""
        parts: dict[Node, Part] = {}
        taught = set()
        self._unserved = []
        for at in self.left:
            node = self._asking.get(at) or self._cluster.owner(self._slots[at])
            if node is None:
                self.outcomes[at] = self._cluster.unserved(self._slots[at])
                self._unserved.append(at)
                continue
            command = self._commands[at]
            if (at in self._in_full or self._wanted[at]) and (node, command[1]) not in taught:
                taught.add((node, command[1]))
                command = protocol.with_text(command)
            if node not in parts:
                parts[node] = Part(node)
            parts[node].add(at, command, at in self._asking, self._wanted[at])
        return list(parts.values())

    def take(self, parts: Sequence[Part]) -> Node | None:
        """Note the replies. Returns a node that could not be reached."""
        failed = None
        self.left, self.paused = self._unserved, False
        self.without_node = bool(self._unserved)
        for part in parts:
            for at, reply, doubt in part.outcomes():
                self._asking.pop(at, None)
                self.outcomes[at] = self._outcome(at, part.node, reply)
                self.doubts[at] = doubt
                if isinstance(reply, Avoided):
                    self.without_node = True
                    self.left.append(at)
                elif isinstance(reply, StoreUnavailable):
                    failed = part.node
                    self.left.append(at)
        return failed

    def _outcome(self, at: int, node: Node, reply: Any) -> Any:
        if type(reply) is not ReplyError:
            return reply
        if str(reply).startswith("NOSCRIPT") and at not in self._in_full:
            self._in_full.add(at)
            self.left.append(at)
            return node.refusal(reply)
        error = node.refusal(reply)
        error.__cause__ = reply
        if isinstance(error, Redirected):
            if error.word == "MOVED" and error.address is not None:
                self._cluster.moved(self._slots[at], error.address)
            elif error.word == "ASK" and error.address is not None:
                self._asking[at] = self._cluster.announced(error.address)
            elif error.word == "CLUSTERDOWN":
                self._cluster.doubt(node)
                return error
            else:
                self.paused = True
            self.left.append(at)
        return error
