"""An event loop's connection to all nodes of a Redlock, shared by all tasks of that loop."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence

from leasehold._core.driver import drive_async
from leasehold._core.light_typing import TYPE_CHECKING, Any
from leasehold._core.ops import Reply, StoreOp
from leasehold.errors import LeaseholdError
from leasehold.stores.redis import failures, protocol
from leasehold.stores.redis.loop_connection import AsyncRedisSocket, LoopConnection
from leasehold.stores.redis.protocol import Command, pack
from leasehold.stores.redis.redlock import commands
from leasehold.stores.redis.redlock.node_server import NodeServer
from leasehold.stores.redis.redlock.rounds import Answer, Leave, Round
from leasehold.stores.redis.sockets import SLOW, Broken, NotSent

if TYPE_CHECKING:
    from leasehold.stores.redis.redlock.store import RedlockStore

STALE_AFTER = 5.0  # seconds without a reply that is owed, after which a new connection is made
Done = Callable[["LoopExchange"], None]


class LoopExchange:
    """Some commands for one node, and what came of them. A reply that is no longer wanted keeps its place in the order:
    what is sent there next arrives after what was sent before."""

    def __init__(self, connection: LoopConnection, node: NodeServer, batch: Sequence[Command], done: Done) -> None:
        self._connection = connection
        self._node = node
        self._batch = batch
        self._done = done
        self._loop = asyncio.get_running_loop()
        self._replies: list[Any] = [None] * len(batch)
        self._left = 0
        self._task: asyncio.Task[None] | None = None
        self._sent = False
        self._sent_at = node.now()
        self._in_full = False
        self._wanted = True
        self.answer: Answer | None = None

    def start(self, packed: Sequence[bytes]) -> None:
        """Send it now, or as soon as there is a connection."""
        socket = self._connection.open_socket()
        if socket is not None:
            self._send(socket, range(len(packed)), packed)
        else:
            self._connect(range(len(packed)), packed)

    def abandon(self) -> Answer:
        """The caller waits no longer. What has not left is not sent any more."""
        self._wanted = False
        if self.answer is not None:
            return self.answer
        if self._sent:
            error: LeaseholdError = failures.unanswered(self._node.name, Broken(SLOW))
            return Answer(error, self._sent_at, self._node.now())
        if self._task is not None:
            self._task.cancel()
        error = failures.unreachable(self._node.name, Broken(SLOW))
        self.answer = Answer(error, self._sent_at, self._node.now())
        return self.answer

    def _connect(self, places: Sequence[int], packed: Sequence[bytes]) -> None:
        async def connect() -> None:
            try:
                socket = await self._connection.ready(self._loop.time() + self._node.target.connect_timeout)
            except LeaseholdError as error:
                self._fail(error)
            else:
                self._send(socket, places, packed)

        self._task = self._loop.create_task(connect())

    def _send(self, socket: AsyncRedisSocket, places: Sequence[int], packed: Sequence[bytes]) -> None:
        self._sent = True
        self._left = len(packed)
        give_up = self._loop.time() + STALE_AFTER
        for place, data in zip(places, packed, strict=True):
            future = socket.request(data, give_up)
            future.add_done_callback(lambda future, place=place: self._replied(place, future))  # type: ignore[misc]  # it is typed by the default

    def _replied(self, place: int, future: asyncio.Future[Any]) -> None:
        if self.answer is not None:
            return
        error = None if future.cancelled() else future.exception()
        if error is not None or future.cancelled():
            self._broke(error)
            return
        self._replies[place] = future.result()
        self._left -= 1
        if self._left:
            return
        missing = [at for at, reply in enumerate(self._replies) if commands.unknown_script(reply)]
        if missing and self._wanted and not self._in_full:
            self._in_full = True
            self._node.lost_scripts()
            self._connect(missing, [pack(commands.with_text(self._batch[at])) for at in missing])
        else:
            self._node.has_run(self._batch)
            self._finish(self._replies)

    def _broke(self, error: BaseException | None) -> None:
        if isinstance(error, NotSent):
            self._fail(failures.unreachable(self._node.name, error))
        else:
            self._fail(failures.unanswered(self._node.name, error or Broken("it was interrupted")))

    def _fail(self, error: LeaseholdError) -> None:
        self._finish(error)

    def _finish(self, outcome: list[Any] | LeaseholdError) -> None:
        if self.answer is None:
            self.answer = Answer(outcome, self._sent_at, self._node.now())
            self._done(self)


class RedlockLoopConnection:
    """Implements ``_core.ports.AsyncConnection`` for the running event loop."""

    address = ""

    def __init__(self, store: RedlockStore, forget: Callable[[RedlockLoopConnection], object]) -> None:
        self._store = store
        self._forget = forget
        self._loop = asyncio.get_running_loop()
        self._connections = [LoopConnection(node, lambda push: None, lambda connection: None) for node in store.nodes]
        self._leaving: dict[LoopExchange, Callable[[], None]] = {}  # withdrawals that are under way

    async def execute_async(self, op: StoreOp) -> Reply:
        try:
            reply: Reply = await drive_async(self._store.rounds.execute(op), self._perform)
            return reply
        except LeaseholdError as error:
            error.resource = op.resource or None
            raise

    async def _perform(self, request: Round | Leave) -> Sequence[Answer | None]:
        return self._leave(request) if isinstance(request, Leave) else await self._round(request)

    async def _round(self, request: Round) -> Sequence[Answer | None]:
        waiter: asyncio.Future[None] = self._loop.create_future()
        exchanges: list[LoopExchange | None] = []

        def check(_: object = None) -> None:
            if waiter.done():
                return
            try:
                answers = [one.answer if one is not None else None for one in exchanges]
                if request.enough(answers) or all(one is None or one.answer is not None for one in exchanges):
                    waiter.set_result(None)
            except LeaseholdError as error:  # by the rule of the flow
                waiter.set_exception(error)

        def time_out() -> None:
            if not waiter.done():
                waiter.set_result(None)

        timer = self._loop.call_later(request.seconds, time_out)
        try:
            self._submit(request.commands, exchanges, check)
            check()
            await waiter
        finally:
            timer.cancel()
            answers = [one.abandon() if one is not None else None for one in exchanges]
        return answers

    def _submit(self, batches: Sequence[Any], exchanges: list[LoopExchange | None], check: Done) -> None:
        """Nodes that get the same get the same bytes."""
        nodes = self._store.nodes
        batches = [batch if batch is None else node.taught(batch) for node, batch in zip(nodes, batches, strict=True)]
        for connection, node, batch in zip(self._connections, nodes, batches, strict=True):
            exchanges.append(None if batch is None else LoopExchange(connection, node, batch, check))
        packed: dict[int, list[bytes]] = {}
        for exchange, batch in zip(exchanges, batches, strict=True):
            if exchange is not None:
                if id(batch) not in packed:
                    packed[id(batch)] = [pack(command) for command in batch]
                exchange.start(packed[id(batch)])

    def _leave(self, request: Leave) -> Sequence[Answer | None]:
        until = time.monotonic() + request.seconds
        for place, op in enumerate(request.withdrawals):
            if op is not None:
                (command,) = self._store.nodes[place].taught([protocol.command(op)])
                exchange = LoopExchange(self._connections[place], self._store.nodes[place], [command], self._left)
                self._leaving[exchange] = self._store.withdrawals.later(place, op, until)
                exchange.start([pack(command)])
        return ()

    def _left(self, exchange: LoopExchange) -> None:
        later = self._leaving.pop(exchange, None)
        if later is not None and exchange.answer is not None and isinstance(exchange.answer.outcome, LeaseholdError):
            later()

    def close(self) -> None:
        """From any thread. What a node has not confirmed is repeated in the background."""
        self._forget(self)
        leaving, self._leaving = self._leaving, {}
        for later in list(leaving.values()):
            later()
        for connection in self._connections:
            connection.close()

    def forked(self) -> None:
        self._leaving = {}
        for connection in self._connections:
            connection.forked()
