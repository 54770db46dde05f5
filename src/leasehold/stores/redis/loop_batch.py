"""Several ops of different resources on an event loop's connection to one server: all in one write."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from leasehold._core.light_typing import Any
from leasehold._core.ops import Reply, StoreOp
from leasehold.errors import LeaseholdError
from leasehold.stores.redis import durable, failures, protocol
from leasehold.stores.redis.batch import Outcomes, budget, unknown_script, with_texts
from leasehold.stores.redis.connection import NEVER, ReplyError
from leasehold.stores.redis.loop_connection import LoopConnection
from leasehold.stores.redis.server import SLOW_REPLY
from leasehold.stores.redis.sockets import Broken, NotSent


class LoopBatch:
    """A batch on a loop's connection. A task that is cancelled here leaves replies to come, which are read and
    dropped."""

    def __init__(self, connection: LoopConnection, ops: Sequence[StoreOp]) -> None:
        self._connection = connection
        self._server = connection._server
        self._loop = asyncio.get_running_loop()
        self._ops = list(ops)
        self._give_up = self._loop.time() + budget(ops)

    async def execute(self) -> Outcomes:
        """What has to be confirmed by replicas or the disk travels one by one: it blocks a connection of its own."""
        together = [at for at, op in enumerate(self._ops) if not durable.durability(op)]
        outcomes: list[Any] = [None] * len(self._ops)
        replies = await self._exchange(together, in_full=False) if together else []
        missing = [at for at, reply in zip(together, replies, strict=True) if unknown_script(reply)]
        again = await self._exchange(missing, in_full=True) if missing else []
        found = {**dict(zip(together, replies, strict=True)), **dict(zip(missing, again, strict=True))}
        for at, op in enumerate(self._ops):
            outcomes[at] = self._outcome(op, found[at]) if at in found else await self._alone(op)
        return outcomes

    async def _exchange(self, places: list[int], in_full: bool) -> list[Any]:
        """A reply for each of these, or the error in its place."""
        connection = self._connection
        try:
            socket = await connection.ready(self._give_up)
            if not connection._gets_pushes:
                self._ops = [protocol.without_pushes(op) for op in self._ops]
            ops = [self._ops[at] for at in places]
            requests = with_texts(ops) if in_full else [protocol.request(op) for op in ops]
            sent = self._loop.time()
            replies = await _all(socket.request_many(requests, self._give_up))
            if replies and all(isinstance(reply, NotSent) for reply in replies):  # once more on a new socket
                socket = await connection.ready(self._give_up)
                sent = self._loop.time()
                replies = await _all(socket.request_many(requests, self._give_up))
            if connection._check_at != NEVER and self._loop.time() - sent > SLOW_REPLY:
                await connection._check_late_reply(socket)
        except LeaseholdError as error:
            return [error] * len(places)
        return [self._unanswered(reply) if isinstance(reply, Broken) else reply for reply in replies]

    async def _alone(self, op: StoreOp) -> Reply | LeaseholdError:
        left_ms = max(int((self._give_up - self._loop.time()) * 1000), 1)
        try:
            return await self._connection.execute_async(op._replace(budget_ms=left_ms))
        except LeaseholdError as error:
            return error

    def _unanswered(self, broken: Broken) -> LeaseholdError:
        error = failures.unanswered(self._server.name, broken)
        error.__cause__ = broken
        return error

    def _outcome(self, op: StoreOp, reply: Any) -> Reply | LeaseholdError:
        if isinstance(reply, LeaseholdError):
            return reply
        if type(reply) is ReplyError:
            if failures.demoted(reply):
                self._connection._leave(self._connection._socket)
            error = self._server.refusal(reply)
            error.__cause__ = reply
            return error
        return protocol.decode(reply, op)


async def _all(replies: Sequence[asyncio.Future[Any]]) -> list[Any]:
    """Each reply, or why there is none."""
    found: list[Any] = []
    for reply in replies:
        try:
            found.append(await reply)
        except Broken as error:
            found.append(error)
    return found
