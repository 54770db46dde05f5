"""A thread's connections to the nodes of a Cluster: one for each node that it has used."""

from __future__ import annotations

import os
import select
import time
from collections import deque
from collections.abc import Callable, Generator, Sequence

from leasehold._core.driver import drive
from leasehold._core.light_typing import TYPE_CHECKING, Any
from leasehold._core.ops import LISTINGS, WAKE, Group, Push, Renew, Reply, StoreOp
from leasehold.errors import LeaseholdError, OutcomeUnknown, StoreUnavailable
from leasehold.stores.place import here
from leasehold.stores.redis import failures, protocol
from leasehold.stores.redis.cluster.addressing import ADDRESSED, at_node, prepare
from leasehold.stores.redis.cluster.nodes import ADDRESS, Cluster, Node, Redirected, slot_of
from leasehold.stores.redis.cluster.routing import MAP, AskForMap, ReadMap, Routing, Send, Step, key_of, read_map
from leasehold.stores.redis.connection import RedisConnection, ReplyError
from leasehold.stores.redis.sockets import MOST_PUSHES, SLOW, Broken, NotSent, RedisSocket

if TYPE_CHECKING:
    from leasehold._core.claims import ClaimTemplate

MESSAGES = (b"message", b"smessage")
ASKING = ("ASKING",)


def new_channel() -> str:
    """The address of a thread or an event loop, the same for every node: each makes a channel of its own of it, where
    it can. It ends with the place of this process."""
    return f"{ADDRESS}{os.urandom(10).hex()}{here()}"


def within(op: StoreOp, seconds: float) -> StoreOp:
    """The same op, if no more time is left."""
    left_ms = max(int(seconds * 1000), 1)
    return op._replace(budget_ms=left_ms) if op.budget_ms > left_ms else op


class NodeConnection(RedisConnection):
    """A thread's connection to one node."""

    __slots__ = ("_subscribed", "_tag")
    _server: Node

    def __init__(self, node: Node, channel: str, pushes: deque[Any], counts: bool = True) -> None:
        super().__init__(node, counts=counts)
        self.listen(channel)
        self._pushes = pushes
        self._subscribed = ""  # the channel of this node that the socket listens to
        self._tag = ""  # and the hash tag in it

    def listen(self, channel: str) -> None:
        """Subscribe to this one from the next socket on."""
        self.address = self._channel = channel

    def use(self, socket: RedisSocket, gets_pushes: bool) -> RedisSocket:
        self._subscribed, self._tag = self._server.channel(self._channel), self._server.tag
        return super().use(socket, gets_pushes)

    def connected(self) -> bool:
        return self._socket is not None

    def addressed(self, op: StoreOp, give_up: float) -> StoreOp:
        return super().addressed(self._addressed(op, give_up), give_up)

    def execute(self, op: StoreOp) -> Reply:
        if type(op) in ADDRESSED:
            give_up = time.monotonic() + op.budget_ms / 1000
            op = within(self._addressed(op, give_up), give_up - time.monotonic())
        return super().execute(op)

    def claim(self, template: ClaimTemplate, owner: str, floor: int, budget_ms: int) -> Reply:
        node = self._server
        if self._tag == node.tag and (self._tag or not node.sharded):  # it listens to the channel of this node
            prepare(template, node, budget_ms)
            return super().claim(template, owner, floor, budget_ms)
        return self.execute(template.claim(owner, floor, budget_ms))

    def _after_error(self, reply: Any, op: StoreOp, give_up: float) -> Any:
        return super()._after_error(reply, at_node(op, self._server), give_up)

    def _addressed(self, op: StoreOp, give_up: float) -> StoreOp:
        """With the channels of this node. The socket listens there: its channel is another one after the slots have
        moved, and before they are known."""
        if type(op) not in ADDRESSED:
            return op
        self.connect(give_up)  # it shows which channels this node has
        if self._subscribed != self._server.channel(self._channel):
            self.drop()
        return at_node(op, self._server)

    def _parse(self, message: Any) -> Push | None:
        if message[0] == b"sunsubscribe":  # its slot has moved
            if message[1] == self._subscribed.encode() and self._socket is not None:
                self._server.lose_channel()
                self.drop()
            return WAKE
        return protocol.push(self._channel, message[2]) if message[0] in MESSAGES else None

    def send(self, op: StoreOp, asking: bool, give_up: float) -> Reply:
        op = within(op, give_up - time.monotonic())
        if not asking:
            return self.execute(op)
        op = self._addressed(op, give_up)
        self.ready(give_up)
        if not self._gets_pushes:
            op = protocol.without_pushes(op)
        if type(op) is Renew and op.durability:
            return self._renew_durably(op, give_up, (ASKING,))
        command = protocol.command(op)
        reply = self._ask(command, give_up)
        if type(reply) is ReplyError and str(reply).startswith("NOSCRIPT"):
            reply = self._ask(protocol.with_text(command), give_up)
        if type(reply) is ReplyError:
            raise self._server.refusal(reply) from reply
        return protocol.decode(reply, op)

    def send_command(self, command: protocol.Command, asking: bool, give_up: float) -> Any:
        """A command that is not an op. An error reply is raised as it is, unless it is a redirection."""
        try:
            if not asking:
                return self.execute_command(command, give_up - time.monotonic())
            self.ready(give_up)
            reply = self._ask(command, give_up)
            if type(reply) is ReplyError:
                raise reply
        except ReplyError as error:
            refused = self._server.refusal(error)
            if isinstance(refused, Redirected):
                raise refused from error
            raise
        return reply

    def _ask(self, command: protocol.Command, give_up: float) -> Any:
        """For a node that does not own the slot yet. In one write: ASKING is for the next command alone."""
        try:
            try:
                return self.connect(give_up).exchange_many([ASKING, command], give_up)[1]
            except NotSent:
                self.drop()
                return self.connect(give_up).exchange_many([ASKING, command], give_up)[1]
        except Broken as error:
            self.drop()
            raise failures.unanswered(self._server.name, error) from error


class ClusterConnection:
    """Implements ``_core.ports.Connection``. One thread uses it at a time."""

    __slots__ = ("__weakref__", "_at", "_closed", "_cluster", "_counts", "_forget", "_pushes", "address")

    def __init__(
        self,
        cluster: Cluster,
        forget: Callable[[ClusterConnection], object] = lambda connection: None,
        counts: bool = True,
        most_pushes: int = MOST_PUSHES,
    ) -> None:
        self._cluster = cluster
        self._forget = forget
        self._counts = counts  # for max_connections, which is for each node
        self._pushes: deque[Any] = deque(maxlen=most_pushes)
        self._at: dict[Node, NodeConnection] = {}
        self.address = new_channel()
        self._closed = False  # set by any thread

    def execute(self, op: StoreOp) -> Reply:
        cluster, now = self._cluster, time.monotonic()
        give_up = now + op.budget_ms / 1000
        try:
            if type(op) in LISTINGS:
                return self._reply(self._routing(give_up).page(op), give_up)
            slot = None if type(op) is Group else cluster.usual_slot(op.resource, now)
            node = None if slot is None else cluster.owner(slot)
            if node is None or node not in self._at or cluster.doubted:
                return self._reply(self._routing(give_up).op(op), give_up)
            try:
                return self._at[node].execute(cluster.stored(op))
            except LeaseholdError as error:  # in here: an error that is kept would lead back to itself
                return self._reply(self._routing(give_up).op(op, (node, error)), give_up)
        except LeaseholdError as error:
            error.resource = op.resource or None
            raise

    def execute_batch(self, ops: Sequence[StoreOp]) -> list[Reply | LeaseholdError]:
        """All in one write for each node, and sent to all nodes before any reply is read. What goes another way is sent
        by itself: when the owner of its slot or the setting of its namespace is not known, or when its node has not
        done it and another one may."""
        from leasehold.stores.redis.batch import ServerBatch, budget  # loaded only by programs that use it

        give_up = time.monotonic() + budget(ops)
        outcomes: list[Any] = [None] * len(ops)
        sent: list[tuple[Node, list[int], ServerBatch]] = []
        for node, places in self._by_node(ops).items():
            batch = ServerBatch(self.at(node), [self._cluster.stored(ops[at]) for at in places], give_up)
            batch.send()
            sent.append((node, places, batch))
        for node, places, batch in sent:
            for at, outcome in zip(places, batch.receive(), strict=True):
                outcomes[at] = None if isinstance(outcome, StoreUnavailable) else outcome
                if isinstance(outcome, OutcomeUnknown):
                    self._cluster.doubt(node)
        for at, op in enumerate(ops):
            if outcomes[at] is None:
                outcomes[at] = self._alone(op, give_up)
        return outcomes

    def _by_node(self, ops: Sequence[StoreOp]) -> dict[Node, list[int]]:
        """Where each is to be sent, of those for which that is known."""
        cluster, now = self._cluster, time.monotonic()
        found: dict[Node, list[int]] = {}
        for at, op in enumerate(ops if not cluster.doubted else ()):
            cluster.usual_slot(op.resource, now)  # from time to time the settings are checked again
            node = None if cluster.unchecked(op.resource) else cluster.owner(cluster.slot(op.resource))
            if node is not None:
                found.setdefault(node, []).append(at)
        return found

    def _alone(self, op: StoreOp, give_up: float) -> Reply | LeaseholdError:
        try:
            return self.execute(within(op, give_up - time.monotonic()))
        except LeaseholdError as error:
            return error

    def claim(self, template: ClaimTemplate, owner: str, floor: int, budget_ms: int) -> Reply:
        """The same for the first claim of an acquire, quicker: most of it is packed already."""
        cluster, now = self._cluster, time.monotonic()
        slot = None if cluster.by_namespace else cluster.usual_slot(template.request.name.text, now)
        node = None if slot is None else cluster.owner(slot)
        if node is None or node not in self._at or cluster.doubted:
            return self.execute(template.claim(owner, floor, budget_ms))
        give_up = now + budget_ms / 1000
        try:
            return self._at[node].claim(template, owner, floor, budget_ms)
        except LeaseholdError as error:
            op = template.claim(owner, floor, budget_ms)
            try:
                return self._reply(self._routing(give_up).op(op, (node, error)), give_up)
            except LeaseholdError as final:
                final.resource = op.resource
                raise

    def execute_command(self, command: protocol.Command, seconds: float) -> Any:
        """Send a command that is not an op, such as a script of a result store, to the node of its first key."""
        give_up = time.monotonic() + seconds
        return self._drive(self._routing(give_up).to_slot(slot_of(key_of(command)), command), give_up)

    # ------------------------------------------------------------ routing

    def _routing(self, give_up: float) -> Routing:
        return Routing(self._cluster, give_up, time.monotonic, self.connected)

    def _reply(self, flow: Generator[Step, Any, Any], give_up: float) -> Reply:
        reply: Reply = self._drive(flow, give_up)
        return reply

    def _drive(self, flow: Generator[Step, Any, Any], give_up: float) -> Any:
        def perform(step: Any) -> Any:
            if isinstance(step, Send):
                node = self.at(step.node)
                send: Any = node.send_command if type(step.payload) is tuple else node.send
                return send(step.payload, step.asking, give_up)
            if isinstance(step, ReadMap):
                return self.read_map(step.failed, give_up)
            return time.sleep(step.seconds)

        return drive(flow, perform)

    def read_map(self, failed: Node | None, give_up: float) -> None:
        """One thread reads it, and the others wait for it."""
        cluster = self._cluster
        lock, before = cluster.reading, cluster.read_at  # a fork replaces the lock
        if not lock.acquire(timeout=max(give_up - time.monotonic(), 0)):
            raise cluster.unreachable(Broken(SLOW))
        try:
            if cluster.read_at == before or not cluster.masters():
                drive(read_map(cluster, failed, give_up, time.monotonic), self._ask_for_map)
        finally:
            lock.release()

    def _ask_for_map(self, step: AskForMap) -> Any:
        return self.at(step.node).execute_command(MAP, step.seconds)

    def connected(self, node: Node) -> bool:
        return node in self._at and self._at[node].connected()

    def at(self, node: Node) -> NodeConnection:
        """The connection to this node. It connects when it is first used."""
        if self._closed:
            raise StoreUnavailable(f"the store of {self._cluster} is closed")
        connection = self._at.get(node)
        if connection is None:
            connection = self._at[node] = NodeConnection(node, self.address, self._pushes, self._counts)
        return connection

    # ------------------------------------------------------------ pushes

    def next_push(self, seconds: float) -> Push | None:
        """From whichever node it comes."""
        give_up = time.monotonic() + seconds
        while not self._pushes:
            nodes = [one for one in list(self._at.values()) if one.connected()]
            left = max(give_up - time.monotonic(), 0)
            if len(nodes) == 1:
                return nodes[0].next_push(left)
            if not nodes:
                time.sleep(left)
                return None
            for one in nodes:
                one.receive()
            if not all(one.connected() for one in nodes):  # closed by the server, or by another thread of ours
                return WAKE
            if not self._pushes:
                if not left:
                    return None
                poll = select.poll()
                for one in nodes:
                    poll.register(one.fileno(), select.POLLIN)
                poll.poll(left * 1000)
        return self._parse(self._pushes.popleft())

    def read(self) -> list[Push]:
        """All pushes that have arrived, without waiting."""
        self.receive()
        pushes = [self._parse(self._pushes.popleft()) for _ in range(len(self._pushes))]
        return [push for push in pushes if push is not None]

    def _parse(self, message: Any) -> Push | None:
        if message[0] != b"sunsubscribe":
            return protocol.push(self.address, message[2]) if message[0] in MESSAGES else None
        for one in list(self._at.values()):  # the one whose channel it was drops its socket
            one._parse(message)
        return WAKE

    def receive(self) -> bool:
        """Take in what has arrived. True if there are pushes to read."""
        for one in list(self._at.values()):
            one.receive()
        return bool(self._pushes)

    def descriptors(self) -> list[int]:
        """Of the sockets that are open."""
        found = [one.fileno() for one in list(self._at.values())]
        return [descriptor for descriptor in found if descriptor >= 0]

    # ------------------------------------------------------------ the end

    def close(self) -> None:
        self._closed = True
        self._forget(self)
        for one in list(self._at.values()):
            one.close()

    def forked(self) -> None:
        """In the child: close these copies of the descriptors, send nothing, and take a new address."""
        self.address = new_channel()
        for one in self._at.values():
            one.forked()
            one.listen(self.address)
