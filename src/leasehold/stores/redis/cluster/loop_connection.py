"""An event loop's connections to the nodes of a Cluster, shared by all tasks of that loop: one for each node that they
have used."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator, Sequence
from copy import copy

from leasehold._core.driver import drive_async
from leasehold._core.light_typing import TYPE_CHECKING, Any
from leasehold._core.ops import LISTINGS, WAKE, Group, Push, Renew, Reply, StoreOp
from leasehold.errors import LeaseholdError, StoreUnavailable
from leasehold.stores.concurrency import at_once
from leasehold.stores.redis import failures, protocol
from leasehold.stores.redis.cluster.addressing import ADDRESSED, at_node, prepare
from leasehold.stores.redis.cluster.connection import ASKING, MESSAGES, new_channel, within
from leasehold.stores.redis.cluster.nodes import Cluster, Node, Redirected, slot_of
from leasehold.stores.redis.cluster.routing import MAP, AskForMap, ReadMap, Routing, Send, Step, key_of, read_map
from leasehold.stores.redis.connection import ReplyError
from leasehold.stores.redis.loop_connection import LoopConnection
from leasehold.stores.redis.loop_socket import AsyncRedisSocket
from leasehold.stores.redis.protocol import pack
from leasehold.stores.redis.sockets import SLOW, Broken, NotSent
from leasehold.stores.redis.target import Target

if TYPE_CHECKING:
    from leasehold._core.claims import ClaimTemplate


class NodeLoopConnection(LoopConnection):
    """An event loop's connection to one node."""

    _server: Node

    def __init__(self, node: Node, notify: Callable[[Push], None], channel: str) -> None:
        super().__init__(node, notify, lambda connection: None)
        self.address = self._channel = channel
        self._subscribed = ""  # the channel of this node that the socket listens to
        self._tag = ""  # and the hash tag in it

    def connected(self) -> bool:
        return self._socket is not None

    async def execute_async(self, op: StoreOp) -> Reply:
        if type(op) in ADDRESSED:
            give_up = self._loop.time() + op.budget_ms / 1000
            op = within(await self._addressed(op, give_up), give_up - self._loop.time())
        return await super().execute_async(op)

    async def claim_async(self, template: ClaimTemplate, owner: str, floor: int, budget_ms: int) -> Reply:
        node = self._server
        if self._tag == node.tag and (self._tag or not node.sharded):  # it listens to the channel of this node
            prepare(template, node, budget_ms)
            return await super().claim_async(template, owner, floor, budget_ms)
        return await self.execute_async(template.claim(owner, floor, budget_ms))

    async def _after_error(self, reply: Any, op: StoreOp, give_up: float) -> Any:
        return await super()._after_error(reply, at_node(op, self._server), give_up)

    async def _addressed(self, op: StoreOp, give_up: float) -> StoreOp:
        """As ``NodeConnection._addressed``."""
        if type(op) not in ADDRESSED:
            return op
        if self._socket is None:
            await self._ready(give_up)
        if self._subscribed != self._server.channel(self._channel) and self._socket is not None:
            self._socket.doubt()
        return at_node(op, self._server)

    async def _shake_hands(self, socket: AsyncRedisSocket, target: Target) -> bool:
        pushes = await super()._shake_hands(socket, target)
        self._subscribed, self._tag = self._server.channel(self._channel), self._server.tag
        return pushes

    def _pushed(self, message: Any) -> None:
        if message[0] == b"sunsubscribe":  # its slot has moved
            if message[1] == self._subscribed.encode() and self._socket is not None:
                self._server.lose_channel()
                self._socket.doubt()
            self._notify(WAKE)
        elif message[0] in MESSAGES:
            push = protocol.push(self._channel, message[2])
            if push is not None:
                self._notify(push)

    async def send(self, op: StoreOp, asking: bool, give_up: float) -> Reply:
        op = within(op, give_up - self._loop.time())
        if not asking:
            return await self.execute_async(op)
        op = await self._addressed(op, give_up)
        await self._ready(give_up)
        if not self._gets_pushes:
            op = protocol.without_pushes(op)
        if type(op) is Renew and op.durability:
            return await self._for_waiting().renew_durably(op, give_up, (ASKING,))
        command = protocol.command(op)
        reply = await self._ask(command, give_up)
        if type(reply) is ReplyError and str(reply).startswith("NOSCRIPT"):
            reply = await self._ask(protocol.with_text(command), give_up)
        if type(reply) is ReplyError:
            raise self._server.refusal(reply) from reply
        return protocol.decode(reply, op)

    async def send_command(self, command: protocol.Command, asking: bool, give_up: float) -> Any:
        """A command that is not an op. An error reply is raised as it is, unless it is a redirection."""
        try:
            if not asking:
                return await self.execute_command(command, give_up - self._loop.time())
            reply = await self._ask(command, give_up)
            if type(reply) is ReplyError:
                raise reply
        except ReplyError as error:
            refused = self._server.refusal(error)
            if isinstance(refused, Redirected):
                raise refused from error
            raise
        return reply

    async def _ask(self, command: protocol.Command, give_up: float) -> Any:
        """For a node that does not own the slot yet. One right behind the other: ASKING is for the next command
        alone."""
        try:
            try:
                return await self._after_asking(command, give_up)
            except NotSent:
                return await self._after_asking(command, give_up)
        except Broken as error:
            raise failures.unanswered(self._server.name, error) from error

    async def _after_asking(self, command: protocol.Command, give_up: float) -> Any:
        socket = await self._ready(give_up)
        socket.request(pack(ASKING), give_up)
        return await socket.request(pack(command), give_up)


class ClusterLoopConnection:
    """Implements ``_core.ports.AsyncConnection`` for the running event loop. ``notify`` is called there with each
    push."""

    def __init__(
        self,
        cluster: Cluster,
        notify: Callable[[Push], None],
        forget: Callable[[ClusterLoopConnection], object],
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._cluster = cluster
        self._notify = notify
        self._forget = forget
        self._at: dict[Node, NodeLoopConnection] = {}
        self._reading: asyncio.Task[None] | None = None
        self.address = new_channel()
        self._closed = False

    async def execute_async(self, op: StoreOp) -> Reply:
        cluster, now = self._cluster, self._loop.time()
        give_up = now + op.budget_ms / 1000
        try:
            if type(op) in LISTINGS:
                return await self._reply(self._routing(give_up).page(op), give_up)
            slot = None if type(op) is Group else cluster.usual_slot(op.resource, now)
            node = None if slot is None else cluster.owner(slot)
            if node is None or node not in self._at or cluster.doubted:
                return await self._reply(self._routing(give_up).op(op), give_up)
            try:
                return await self._at[node].execute_async(cluster.stored(op))
            except LeaseholdError as error:  # in here: an error that is kept would lead back to itself
                return await self._reply(self._routing(give_up).op(op, (node, error)), give_up)
        except LeaseholdError as error:
            error.resource = op.resource or None
            raise

    async def execute_batch_async(self, ops: Sequence[StoreOp]) -> list[Reply | LeaseholdError]:
        """All at the same time: those for one node leave in one write."""
        return await at_once(self.execute_async, ops)

    async def claim_async(self, template: ClaimTemplate, owner: str, floor: int, budget_ms: int) -> Reply:
        """The same for the first claim of an acquire, quicker: most of it is packed already."""
        cluster, now = self._cluster, self._loop.time()
        slot = None if cluster.by_namespace else cluster.usual_slot(template.request.name.text, now)
        node = None if slot is None else cluster.owner(slot)
        if node is None or node not in self._at or cluster.doubted:
            return await self.execute_async(template.claim(owner, floor, budget_ms))
        give_up = now + budget_ms / 1000
        try:
            return await self._at[node].claim_async(template, owner, floor, budget_ms)
        except LeaseholdError as error:
            op = template.claim(owner, floor, budget_ms)
            try:
                return await self._reply(self._routing(give_up).op(op, (node, error)), give_up)
            except LeaseholdError as final:
                final.resource = op.resource
                raise

    async def execute_command(self, command: protocol.Command, seconds: float) -> Any:
        """Send a command that is not an op, such as a script of a result store, to the node of its first key."""
        give_up = self._loop.time() + seconds
        return await self._drive(self._routing(give_up).to_slot(slot_of(key_of(command)), command), give_up)

    # ------------------------------------------------------------ routing

    def _routing(self, give_up: float) -> Routing:
        return Routing(self._cluster, give_up, self._loop.time, self._connected)

    async def _reply(self, flow: Generator[Step, Any, Any], give_up: float) -> Reply:
        reply: Reply = await self._drive(flow, give_up)
        return reply

    async def _drive(self, flow: Generator[Step, Any, Any], give_up: float) -> Any:
        async def perform(step: Any) -> Any:
            if isinstance(step, Send):
                node = self._node(step.node)
                send: Any = node.send_command if type(step.payload) is tuple else node.send
                return await send(step.payload, step.asking, give_up)
            if isinstance(step, ReadMap):
                return await self._read_map(step.failed, give_up)
            return await asyncio.sleep(step.seconds)

        return await drive_async(flow, perform)

    async def _read_map(self, failed: Node | None, give_up: float) -> None:
        """All tasks that need it wait for the same."""
        if self._reading is None:
            self._reading = self._loop.create_task(self._read(failed))
            self._reading.add_done_callback(self._was_read)
        try:
            async with asyncio.timeout_at(give_up):
                await asyncio.shield(self._reading)
        except LeaseholdError as error:  # all tasks that wait get this one, and each sets its own resource
            raise copy(error) from error.__cause__
        except TimeoutError as error:
            raise self._cluster.unreachable(Broken(SLOW)) from error
        except asyncio.CancelledError:
            if self._closed:  # perhaps cancelled by close(), and not the task that waits here
                self._check_open()
            raise

    async def _read(self, failed: Node | None) -> None:
        give_up = self._loop.time() + self._cluster.target.connect_timeout
        await drive_async(read_map(self._cluster, failed, give_up, self._loop.time), self._ask_for_map)

    def _was_read(self, task: asyncio.Task[None]) -> None:
        self._reading = None
        if not task.cancelled():
            task.exception()  # the tasks that waited for it may be gone, and asyncio would warn

    async def _ask_for_map(self, step: AskForMap) -> Any:
        return await self._node(step.node).execute_command(MAP, step.seconds)

    def _connected(self, node: Node) -> bool:
        return node in self._at and self._at[node].connected()

    def _node(self, node: Node) -> NodeLoopConnection:
        self._check_open()
        connection = self._at.get(node)
        if connection is None:
            connection = self._at[node] = NodeLoopConnection(node, self._notify, self.address)
        return connection

    def _check_open(self) -> None:
        if self._cluster.closed or self._closed:
            raise StoreUnavailable(f"the store of {self._cluster} is closed")

    # ------------------------------------------------------------ the end

    def close(self) -> None:
        """From any thread, also when the loop is closed already."""
        self._closed = True
        self._forget(self)
        reading = self._reading
        if reading is not None and not self._loop.is_closed():
            try:
                self._loop.call_soon_threadsafe(reading.cancel)
            except RuntimeError:  # closed meanwhile
                pass
        for connection in list(self._at.values()):
            connection.close()

    def forked(self) -> None:
        for connection in self._at.values():
            connection.forked()
