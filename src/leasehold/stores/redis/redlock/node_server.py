"""One node as a server: its address, and the handshake that tells what this process must know of it."""

from __future__ import annotations

from collections.abc import Callable, Generator

import hiredis

from leasehold._core.light_typing import Any
from leasehold.errors import StoreUnavailable, Unsupported
from leasehold.stores.redis import failures
from leasehold.stores.redis.handshake import Handshake, _fields, _warn_of_eviction
from leasehold.stores.redis.protocol import Command
from leasehold.stores.redis.redlock import commands
from leasehold.stores.redis.redlock.commands import Batch
from leasehold.stores.redis.redlock.quorum import Quorum
from leasehold.stores.redis.server import Server
from leasehold.stores.redis.target import Target

ReplyError = hiredis.ReplyError
ALONE = "a Redlock needs independent masters"


class NodeServer(Server):
    """One of the nodes, as all connections to it share it."""

    def __init__(
        self, target: Target, place: int, quorum: Quorum, longest_ttl_ms: int, now: Callable[[], float]
    ) -> None:
        super().__init__(target)
        self.number = place
        self.quorum = quorum
        self.longest_ttl_ms = longest_ttl_ms
        self.now = now
        self._known: set[str] = set()  # scripts that this node has run since it started

    def taught(self, batch: Batch) -> Batch:
        """The same commands, with scripts in full that this node has not run yet. It could reply that it does not know
        one when nobody reads that any more."""
        return batch if batch.scripts <= self._known else batch.with_texts(self._known)

    def has_run(self, batch: Batch) -> None:
        """It has replied to these, and knows their scripts from now on."""
        self._known.update(batch.teaches)

    def lost_scripts(self) -> None:
        """It did not know one: SCRIPT FLUSH."""
        self._known = set()

    def introduce(self, run_id: str, uptime: int, now: float) -> None:
        """A connection was opened."""
        if self.quorum.nodes[self.number].run_id != run_id:
            self.lost_scripts()
        self.quorum.introduce(self.number, run_id, uptime, now)

    def handshake(self, target: Target, channel: str) -> Handshake:
        return NodeHandshake(target, not self.checked, self)


class NodeHandshake(Handshake):
    """No subscription, since nothing is pushed here. A restart breaks every connection, so that the run id and the
    uptime of a node are those of its last handshake."""

    def __init__(self, target: Target, first: bool, node: NodeServer) -> None:
        super().__init__(target, "", first)
        self._node = node

    def _set_up(self, resp3: bool) -> Generator[list[Command], list[Any], Any]:
        target, node = self._target, self._node
        sent = node.now()
        selected, server, memory, marked = yield from self._exchange(
            ("SELECT", target.db) if target.db else ("PING",),
            ("INFO", "server"),
            ("INFO", "memory") if self._first else ("PING",),
            commands.mark(node.longest_ttl_ms),
        )
        received = node.now()
        if target.db and isinstance(selected, ReplyError):
            raise StoreUnavailable(f"Redis at {target} has no database {target.db} for us: {selected}") from selected
        if isinstance(server, ReplyError):
            raise StoreUnavailable(f"Redis at {target} does not say how long it has been up: allow +info") from server
        fields = _fields(server)
        self._check_kind(fields.get("redis_mode", ""), "")  # a Sentinel knows no scripts
        if isinstance(marked, ReplyError):
            raise failures.refusal(target.server, marked) from marked
        if self._first:
            _warn_of_eviction(target, memory)
        _, now_us, longest_ttl_ms = marked
        node.introduce(fields["run_id"], int(fields["uptime_in_seconds"]), received)
        node.quorum.learn_clock(node.number, now_us, sent, received)
        node.quorum.learn_longest_ttl(node.number, longest_ttl_ms)
        return False

    def _check_kind(self, mode: str, role: str) -> None:
        if mode == "cluster":
            raise Unsupported(
                f"Redis at {self._target} is a node of a Cluster, whose masters fail over together: {ALONE}"
            )
        if mode == "sentinel":
            raise Unsupported(f"{self._target} is a Sentinel, which keeps no leases: {ALONE}")
        if role in ("replica", "slave"):
            raise Unsupported(f"Redis at {self._target} is a replica: {ALONE}")
