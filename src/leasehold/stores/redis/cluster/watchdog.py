"""The watchdog's connections to the nodes of a Cluster: what is due is sent to all nodes before any reply is read, so
that a node that hangs costs only its own leases. Pushes for holders arrive from every node that was used."""

from __future__ import annotations

import math
import select
import threading
import time
from collections.abc import Callable, Sequence

from leasehold._core.holding import Holding
from leasehold._core.light_typing import Any
from leasehold._core.ops import StoreOp
from leasehold.errors import LeaseholdError, StoreUnavailable
from leasehold.stores.redis import failures, protocol
from leasehold.stores.redis.cluster.connection import ASKING, ClusterConnection, NodeConnection
from leasehold.stores.redis.cluster.nodes import Cluster, Node, Redirected, slot_of
from leasehold.stores.redis.cluster.routing import PAUSE
from leasehold.stores.redis.connection import ReplyError
from leasehold.stores.redis.sockets import Broken, RedisSocket
from leasehold.stores.redis.watchdog_connection import (
    CONNECT_PAUSE,
    CONNECT_SECONDS,
    MANY,
    Outcomes,
    WatchdogConnection,
)

system: Any = select  # what it has depends on the system
EPOLL = hasattr(select, "epoll")
MOST_PASSES = 4  # over what was redirected; what is left is tried again with the next round
AVOIDED = 0.2  # seconds in which a node is not asked again after it left a request unanswered, at least


class Avoided(StoreUnavailable):
    """Nothing was sent: the node has just left another request unanswered."""


class ClusterWatchdog(WatchdogConnection):
    """Implements the same as its base, over all nodes."""

    _connection: ClusterConnection  # type: ignore[assignment]  # it has all that the base uses
    _server: Cluster  # type: ignore[assignment]

    def __init__(self, cluster: Cluster) -> None:
        self._server = cluster
        self._connection = ClusterConnection(cluster, counts=False)
        self._begin()

    def _begin(self) -> None:
        self._ready = None
        self._lock = threading.RLock()
        self._connect_at = 0.0
        self._poller: Any = None  # one descriptor for the sockets of all nodes
        self._avoided: dict[Node, float] = {}  # until when
        self._server.on_wanted = self._call_ready

    # ------------------------------------------------------------ pushes

    def fileno(self, ready: Callable[[], None]) -> int:
        """Connects to the nodes that this process uses, in a thread of its own: the watchdog has deadlines to keep."""
        self._ready = ready
        if self._missing() and time.monotonic() >= self._connect_at:
            self._connect_at = math.inf  # one at a time
            try:
                threading.Thread(target=self._connect, args=(ready,), name="leasehold-pushes", daemon=True).start()
            except RuntimeError:  # no thread can be started now: the next renewal connects, or a later call of this
                self._connect_at = time.monotonic() + CONNECT_PAUSE
        return self._polled()

    def _missing(self) -> list[Node]:
        """Nodes that pushes may come from, and that we are not connected to."""
        return [node for node in self._server.nodes() if node.wanted and not self._connection.connected(node)]

    def _connect(self, ready: Callable[[], None]) -> None:
        """The lock is free while this waits for a node: a renewal that is due meanwhile connects by itself."""
        again = 0.0
        for node in self._missing():
            try:
                connection = self._connection.at(node)
                opened = connection.open(time.monotonic() + CONNECT_SECONDS)
                with self._lock:
                    connection.use(*opened)
            except LeaseholdError:  # the next renewal reports it
                again = time.monotonic() + CONNECT_PAUSE
                node.wanted = node in self._server.masters()  # one that has left the Cluster is not tried for ever
        self._connect_at = again
        ready()

    def _polled(self) -> int:
        """The descriptor to poll; a socket that was closed is no longer part of it."""
        if self._poller is None:
            self._poller = select.epoll() if EPOLL else system.kqueue()
        for descriptor in self._connection.descriptors():
            try:
                if EPOLL:
                    self._poller.register(descriptor, select.EPOLLIN)
                else:
                    self._poller.control([system.kevent(descriptor, system.KQ_FILTER_READ, system.KQ_EV_ADD)], 0)
            except OSError:  # it is registered, or was closed meanwhile
                pass
        return int(self._poller.fileno())

    def _call_ready(self) -> None:
        if self._ready is not None:
            self._ready()

    def close(self) -> None:
        self._ready = None
        self._connection.close()
        self._close_poller()

    def forked(self) -> None:
        self._close_poller()
        self._connection.forked()
        self._begin()

    def _close_poller(self) -> None:
        poller, self._poller = self._poller, None
        if poller is not None:
            poller.close()

    # ------------------------------------------------------------ one round

    def execute_many(self, ops: Sequence[StoreOp]) -> Outcomes:
        return super().execute_many([self._server.stored(op) for op in ops])

    def _renew_many(self, batches: Sequence[Sequence[Holding]], give_up: float) -> list[Sequence[int] | LeaseholdError]:
        """A command for each slot, all in one write for each node. Of a batch of which only some were not renewed, each
        of those is renewed alone: the others are not to suffer for a node that does not answer."""
        cluster = self._server
        commands: list[protocol.Command] = []
        places: list[tuple[int, list[int]]] = []  # of each command: its batch, and where its leases are in that
        for number, batch in enumerate(batches):
            by_slot: dict[int, list[int]] = {}
            for at, one in enumerate(batch):
                by_slot.setdefault(cluster.slot(one.name.text), []).append(at)
            for together in by_slot.values():
                leases = [batch[at] for at in together]
                many = [(cluster.stored_name(one.name.text), one.owner, one.fence, one.ttl_ms, 0) for one in leases]
                commands.append(protocol.renewals(many))
                places.append((number, together))
        errors: list[list[LeaseholdError]] = [[] for _ in batches]
        left_out: list[list[int]] = [[] for _ in batches]
        for (number, together), reply in zip(places, self._exchange(commands, give_up)[0], strict=True):
            if isinstance(reply, LeaseholdError):
                errors[number].append(reply)
                left_out[number] += together
            else:
                left_out[number] += [together[place - 1] for place in reply]
        return [
            wrong[-1] if wrong and len(out) == len(batch) else sorted(out)
            for batch, wrong, out in zip(batches, errors, left_out, strict=True)
        ]

    def _groups(self, ops: Sequence[StoreOp]) -> list[list[Any]]:
        groups: list[list[Any]] = []
        last = None
        for op in ops:
            slot = slot_of(f"{{{op.resource}}}") if protocol.plain(op) else None
            if slot is not None and slot == last and len(groups[-1]) < MANY:
                groups[-1].append(op)
            else:
                groups.append([op])
            last = slot
        return groups

    def _exchange(
        self, commands: list[protocol.Command], give_up: float, waits: Sequence[protocol.Command] = ()
    ) -> tuple[list[Any], list[list[Any]]]:
        """A reply or an error of ours for each, from whichever node has its slot. There are no ``waits``: the store of
        a Cluster has no ``durability``."""
        batch = Batch(self._server, commands)
        self._refresh(None, give_up)
        for _ in range(MOST_PASSES):
            parts = batch.by_node()
            replies = self._send_parts(parts, give_up)
            failed = batch.take(parts, replies)
            if failed is not None:
                self._refresh(failed, give_up)
            if not batch.left or time.monotonic() >= give_up - PAUSE:
                break
            if batch.paused:
                time.sleep(PAUSE)
        return batch.outcomes, [[] for _ in commands]

    def _refresh(self, failed: Node | None, give_up: float) -> None:
        """Read the map when it is in doubt. Without a map every command fails."""
        if failed is not None or self._server.stale():
            try:
                self._connection.read_map(failed, give_up)
            except LeaseholdError as error:
                self._server.unreadable = str(error)

    def _send_parts(self, parts: dict[Node, list[protocol.Command]], give_up: float) -> dict[Node, list[Any]]:
        """Everything is sent before any reply is read; to nodes that we are connected to first, because connecting may
        take a while. What has arrived when the time is over counts."""
        found: dict[Node, list[Any]] = {}
        sent = []
        began = time.monotonic()
        for node in sorted(parts, key=lambda node: not self._connection.connected(node)):
            try:
                sent.append((node, *self._begin_exchange(node, parts[node], give_up)))
            except LeaseholdError as error:
                found[node] = [error] * len(parts[node])
        for node, connection, socket in sent:
            replies = found[node] = []
            try:
                socket.receive_many(replies, len(parts[node]), give_up)
                socket.used = time.monotonic()
            except Broken as broken:
                connection.drop()
                self._avoid(node, began)
                replies += [failures.unanswered(node.name, broken)] * (len(parts[node]) - len(replies))
        return found

    def _begin_exchange(
        self, node: Node, commands: list[protocol.Command], give_up: float
    ) -> tuple[NodeConnection, RedisSocket]:
        began = time.monotonic()
        if began < self._avoided.get(node, 0.0):
            raise Avoided(f"{node.name} did not answer a moment ago")
        connection = self._connection.at(node)
        connected = connection.connected()
        try:
            socket = connection.ready(give_up if connected else began + (give_up - began) / 2)
            socket.send_many(commands, give_up)
        except Broken as broken:
            connection.drop()
            raise failures.unanswered(node.name, broken) from broken
        except StoreUnavailable:
            self._avoid(node, began)
            raise
        return connection, socket

    def _avoid(self, node: Node, began: float) -> None:
        self._server.doubt()
        now = time.monotonic()
        self._avoided[node] = now + max(now - began, AVOIDED)


class Batch:
    """Commands on their way to several nodes. ``outcomes`` has the last reply or error of each."""

    def __init__(self, cluster: Cluster, commands: list[protocol.Command]) -> None:
        self._cluster = cluster
        self._commands = commands
        self._slots = [slot_of(command[3]) for command in commands]
        self._asking: dict[int, Node] = {}
        self._in_full: set[int] = set()
        self._order: dict[Node, list[tuple[int, bool]]] = {}
        self.outcomes: list[Any] = [None] * len(commands)
        self.left: list[int] = list(range(len(commands)))
        self.paused = False  # the keys of a slot are on two nodes: wait a moment

    def by_node(self) -> dict[Node, list[protocol.Command]]:
        """What is left to send. The first command of a script that a node does not have goes there in full."""
        parts: dict[Node, list[protocol.Command]] = {}
        self._order = {}
        taught = set()
        for at in self.left:
            node = self._asking.get(at) or self._cluster.owner(self._slots[at])
            if node is None:
                self.outcomes[at] = self._cluster.unserved(self._slots[at])
                continue
            command = self._commands[at]
            if at in self._in_full and (node, command[1]) not in taught:
                taught.add((node, command[1]))
                command = protocol.with_text(command)
            asking = at in self._asking
            parts.setdefault(node, []).extend([ASKING, command] if asking else [command])
            self._order.setdefault(node, []).extend([(at, False), (at, True)] if asking else [(at, True)])
        return parts

    def take(self, parts: dict[Node, list[protocol.Command]], replies: dict[Node, list[Any]]) -> Node | None:
        """Note the replies. Returns a node that could not be reached."""
        failed = None
        self.left, self.paused = [], False
        for node in parts:
            for (at, counts), reply in zip(self._order[node], replies[node], strict=True):
                if counts:
                    self._asking.pop(at, None)
                    self.outcomes[at] = self._outcome(at, node, reply)
                    if type(self.outcomes[at]) is StoreUnavailable and type(reply) is StoreUnavailable:
                        failed = node
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
