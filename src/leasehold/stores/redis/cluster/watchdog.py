"""The watchdog's connections to the nodes of a Cluster: what is due is sent to all nodes before any reply is read, so
that a node that hangs costs only its own leases. Pushes for holders arrive from every node that was used."""

from __future__ import annotations

import math
import select
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial

from leasehold._core.holding import Holding
from leasehold._core.light_typing import Any
from leasehold._core.ops import Renew, Renewed, StoreOp
from leasehold.errors import LeaseholdError, StoreUnavailable
from leasehold.stores.redis import durable, failures, protocol
from leasehold.stores.redis.cluster.batch import Avoided, Batch, Part
from leasehold.stores.redis.cluster.connection import ClusterConnection, NodeConnection
from leasehold.stores.redis.cluster.nodes import Cluster, Node, Redirected, slot_of
from leasehold.stores.redis.cluster.routing import PAUSE
from leasehold.stores.redis.sockets import MOST_FOR_HOLDERS, Broken, RedisSocket
from leasehold.stores.redis.watchdog_connection import (
    CONNECT_PAUSE,
    CONNECT_SECONDS,
    MANY,
    Outcomes,
    WatchdogConnection,
    as_renewal,
)

system: Any = select  # what it has depends on the system
EPOLL = hasattr(select, "epoll")
MOST_ROUNDS = 4  # over what was redirected; what is left is tried again with the next round
AVOIDED = 0.2  # seconds in which a node is not asked again after it left a request unanswered, at least


class ClusterWatchdog(WatchdogConnection):
    """Implements the same as its base, over all nodes."""

    _connection: ClusterConnection  # type: ignore[assignment]  # it has all that the base uses
    _server: Cluster  # type: ignore[assignment]

    def __init__(self, cluster: Cluster) -> None:
        self._server = cluster
        self._connection = ClusterConnection(cluster, counts=False, most_pushes=MOST_FOR_HOLDERS)
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
        due = time.monotonic() >= self._connect_at  # first: the thread that connects sets this when it is connected
        if due and self._missing():
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
        of those is renewed alone: the others are not to suffer for a node that does not answer. So is each of a slot
        that moves, because it may be on either of two nodes."""
        cluster = self._server
        commands: list[protocol.Command] = []
        places: list[tuple[int, list[int]]] = []  # of each command: its batch, and where its leases are in that
        for number, batch in enumerate(batches):
            by_slot: dict[int, list[int]] = {}
            for at, one in enumerate(batch):
                by_slot.setdefault(cluster.slot(one.name.text), []).append(at)
            for together in by_slot.values():
                leases = [batch[at] for at in together]
                many = [(cluster.stored_name(one.name.text), *one.in_store(), one.ttl_ms, 0) for one in leases]
                commands.append(protocol.renewals(many))
                places.append((number, together))
        errors: list[list[LeaseholdError]] = [[] for _ in batches]
        left_out: list[list[int]] = [[] for _ in batches]
        for (number, together), reply in zip(places, self._exchange(commands, give_up)[0], strict=True):
            if isinstance(reply, LeaseholdError):
                errors[number] += [] if _moving(reply) else [reply]
                left_out[number] += together
            else:
                left_out[number] += [together[place - 1] for place in reply]
        return [
            wrong[-1] if wrong and len(out) == len(batch) else sorted(out)
            for batch, wrong, out in zip(batches, errors, left_out, strict=True)
        ]

    def _execute_all(self, ops: Sequence[StoreOp], give_up: float) -> Outcomes:
        """While a slot moves, scripts of several keys are refused: renewals that can do with one key are tried so."""
        outcomes = super()._execute_all(ops, give_up)
        moving: dict[int, Any] = {at: op for at, op in enumerate(ops) if _moving(outcomes[at]) and _simple(op)}
        if moving and time.monotonic() < give_up - PAUSE:
            commands = [protocol.renewals([as_renewal(op)]) for op in moving.values()]
            wanted = [op.durability for op in moving.values()]
            replies, doubts = self._exchange(commands, give_up, wanted)
            for (at, op), reply, doubt in zip(moving.items(), replies, doubts, strict=True):
                if reply == []:  # the places of those that were not renewed
                    outcomes[at] = doubt or Renewed(op.ttl_ms)
        return outcomes

    def _in_bulk(self, group: list[Any]) -> protocol.Command | None:
        """A renewal that has to be confirmed is sent with its one key at once: each refusal costs the connection on
        which the node still waits for its replicas."""
        if durable.durability(group[0]) and _simple(group[0]):
            return protocol.renewals(map(as_renewal, group))
        return super()._in_bulk(group)

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
        self, commands: list[protocol.Command], give_up: float, wanted: Sequence[str] = ()
    ) -> tuple[list[Any], list[LeaseholdError | None]]:
        """As in the base; each reply and each confirmation is that of the node that has the slot of its command. A map
        that is in doubt is right for most of them: they do not wait until it was read."""
        cluster, batch = self._server, Batch(self._server, commands, wanted)
        if not cluster.masters():
            self._read_map(None, give_up)
        for _ in range(MOST_ROUNDS):
            parts = batch.by_node()
            self._send_parts(parts, give_up)
            failed = batch.take(parts)
            if failed is not None or (batch.without_node and cluster.stale()):
                self._read_map(failed, (time.monotonic() + give_up) / 2)
            if not batch.left or time.monotonic() >= give_up - PAUSE:
                break
            if batch.paused:
                time.sleep(PAUSE)
        if cluster.stale():
            self._read_map(None, (time.monotonic() + give_up) / 2)
        return batch.outcomes, batch.doubts

    def _read_map(self, failed: Node | None, give_up: float) -> None:
        """Without a map every command fails."""
        if time.monotonic() >= give_up:
            return
        try:
            self._connection.read_map(failed, give_up)
        except LeaseholdError as error:
            self._server.unreadable = str(error)

    def _send_parts(self, parts: Sequence[Part], give_up: float) -> None:
        """Everything is sent before any reply is read; to nodes that we are connected to first, because connecting may
        take a while, and to those that did not answer lately last. What has arrived when the time is over counts.
        Confirmations come last: a node that lacks replicas does not delay the replies of the others."""
        sent = []
        began = time.monotonic()
        for part in sorted(parts, key=lambda part: (not self._connection.connected(part.node), part.node.down_at)):
            try:
                sent.append((part, *self._begin_exchange(part, give_up)))
            except LeaseholdError as error:
                part.fail(error)
        for part, connection, socket in sent:
            self._receive(part, connection, partial(part.receive, socket, give_up), began)
        for part, connection, socket in sent:
            if part.refused():  # nothing has to be confirmed, and the node may wait for long
                connection.drop()
            elif part.waits and not part.failed:
                self._receive(part, connection, partial(part.receive_confirmations, socket, give_up), began)

    def _receive(self, part: Part, connection: NodeConnection, receive: Callable[[], None], began: float) -> None:
        try:
            receive()
        except Broken as broken:
            connection.drop()
            self._avoid(part.node, began)
            part.fail(failures.unanswered(part.node.name, broken))

    def _begin_exchange(self, part: Part, give_up: float) -> tuple[NodeConnection, RedisSocket]:
        node, began = part.node, time.monotonic()
        if began < self._avoided.get(node, 0.0):
            raise Avoided(f"{node.name} did not answer a moment ago")
        connection = self._connection.at(node)
        connected = connection.connected()
        try:
            socket = connection.ready(give_up if connected else began + (give_up - began) / 2)
            part.send(socket, give_up)
        except Broken as broken:
            connection.drop()
            raise failures.unanswered(node.name, broken) from broken
        except StoreUnavailable:
            self._avoid(node, began)
            raise
        return connection, socket

    def _avoid(self, node: Node, began: float) -> None:
        self._server.doubt(node)
        now = time.monotonic()
        self._avoided[node] = now + max(now - began, AVOIDED)


def _simple(op: StoreOp) -> bool:
    """True for a renewal that only sets the end anew, even if that has to be confirmed."""
    return type(op) is Renew and protocol.plain(op._replace(durability=""))


def _moving(reply: object) -> bool:
    """True for the refusal of a command whose keys are on their way from one node to another."""
    return isinstance(reply, Redirected) and reply.word in ("ASK", "TRYAGAIN")
