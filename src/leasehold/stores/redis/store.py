"""The Redis store: the ledger as Lua, one round trip for each op, on thin connections of its own."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Sequence

from leasehold._core.light_typing import TYPE_CHECKING
from leasehold._core.ops import Push, Reply, StoreOp
from leasehold._core.ports import AsyncConnection, Clock, HolderPushes
from leasehold._core.types import Capabilities
from leasehold.errors import LeaseholdError
from leasehold.stores.clock import SystemClock
from leasehold.stores.redis.connection import RedisConnection, Server
from leasehold.stores.redis.target import Target, from_url
from leasehold.stores.redis.watchdog_connection import WatchdogConnection

if TYPE_CHECKING:
    from leasehold.stores.redis.loop_connection import LoopConnections


MOST_IDLE = 64


class RedisStore:
    """Implements ``core.ports.Store``. Making one connects to nothing; the first op does.

    Expiry and fences run on the server's clock; ``clock`` is for local deadlines."""

    name = "redis"
    capabilities = Capabilities(durable_fences=False, hosts=True)

    def __init__(self, target: str | Target, clock: Clock | None = None) -> None:
        self.clock: Clock = SystemClock() if clock is None else clock
        self._line = Server(from_url(target) if isinstance(target, str) else target)
        self._connections: weakref.WeakSet[RedisConnection] = weakref.WeakSet()
        self._batch = WatchdogConnection(self._line)
        self._idle: list[RedisConnection] = []
        self._loops: LoopConnections | None = None
        self._lock = threading.Lock()

    @property
    def target(self) -> Target:
        """Where its server is, for whoever keeps something beside it."""
        return self._line.target

    def execute(self, op: StoreOp) -> Reply:
        try:
            connection = self._idle.pop()
        except IndexError:
            connection = self.connection()
        try:
            return connection.execute(op)
        finally:
            if len(self._idle) < MOST_IDLE:
                self._idle.append(connection)
            else:
                connection.close()

    async def execute_async(self, op: StoreOp) -> Reply:
        return await self._on_loops().current().execute(op)

    def execute_many(self, ops: Sequence[StoreOp]) -> list[Reply | LeaseholdError]:
        return self._batch.execute_many(ops)

    def connection(self) -> RedisConnection:
        connection = RedisConnection(self._line, self._connections.discard)
        self._connections.add(connection)
        return connection

    def listen(self, notify: Callable[[Push], None]) -> AsyncConnection:
        return self._on_loops().current().listen(notify)

    def holder_pushes(self) -> HolderPushes:
        """The watchdog's connection. Coordinators that share this store share it as well."""
        return self._batch

    def before_fork(self) -> None:
        """A child closes its copies of the sockets; ours stay as they are."""

    def after_fork(self) -> None:
        """Nothing was closed."""

    def forked(self) -> None:
        for connection in list(self._connections):
            connection.forked()
        self._idle = []
        self._lock = threading.Lock()
        self._line.forked()
        self._batch.forked()
        if self._loops is not None:
            self._loops.forked()
            self._loops = None

    def close(self) -> None:
        self._line.closed = True
        for connection in list(self._connections):
            connection.close()
        self._batch.close()
        if self._loops is not None:
            self._loops.close()

    def _on_loops(self) -> LoopConnections:
        if self._loops is None:
            from leasehold.stores.redis.loop_connection import (
                LoopConnections,  # asyncio is loaded only by those who use it
            )

            with self._lock:  # two loops may begin at the same moment
                known: LoopConnections | None = self._loops
                self._loops = LoopConnections(self._line) if known is None else known
        return self._loops
