"""The Redis store: the ledger as Lua, one round trip for each op, on thin connections of its own.

It keeps no idle connections. A coordinator has a pool of them for its threads and one connection for each event loop
(``_runtime``); the store knows the open ones only to close them, and to abandon them in a forked child.
"""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Callable, Sequence
from contextlib import closing

from leasehold._core.holding import Holding
from leasehold._core.light_typing import TYPE_CHECKING, Any
from leasehold._core.ops import Push, Reply, StoreOp
from leasehold._core.ports import Clock, HolderPushes
from leasehold._core.types import Capabilities
from leasehold.errors import LeaseholdError
from leasehold.stores.clock import SystemClock
from leasehold.stores.redis.connection import RedisConnection
from leasehold.stores.redis.failures import TooManyConnections
from leasehold.stores.redis.protocol import Command
from leasehold.stores.redis.server import Server
from leasehold.stores.redis.target import Target, from_url
from leasehold.stores.redis.watchdog_connection import WatchdogConnection

if TYPE_CHECKING:
    from leasehold.stores.redis.loop_connection import LoopConnection

MOST_BEYOND_LIMIT = 16


class RedisStore:
    """Implements ``_core.ports.Store``. Making one connects to nothing; the first op does.

    Expiry and fences run on the server's clock; ``clock`` is for local deadlines."""

    name: str
    capabilities = Capabilities(durable_fences=False, hosts=True, durability=True, keyspace=True)
    retries = False  # a command that may have been sent is never sent again

    def __init__(self, server: str | Target | Server, clock: Clock | None = None) -> None:
        self.clock: Clock = SystemClock() if clock is None else clock
        target = from_url(server) if isinstance(server, str) else server
        self._server = Server(target) if isinstance(target, Target) else target
        self.name = self._server.store_name
        self._connections: weakref.WeakSet[RedisConnection] = weakref.WeakSet()
        self._loop_connections: set[LoopConnection] = set()
        self._watchdog = self._watchdog_connection()
        self._beyond_limit = self._permits()

    @property
    def url(self) -> str:
        return self._server.url

    @property
    def where(self) -> str:
        """The address of its server, for messages of a result store beside the leases."""
        return f"at {self._server.place}"

    def execute(self, op: StoreOp) -> Reply:
        with closing(self.connection()) as connection:
            return connection.execute(op)

    async def execute_async(self, op: StoreOp) -> Reply:
        with closing(self.listen(lambda push: None)) as connection:
            return await connection.execute_async(op)

    def execute_many(self, ops: Sequence[StoreOp]) -> list[Reply | LeaseholdError]:
        return self._watchdog.execute_many(ops)

    def renew_many(
        self, batches: Sequence[Sequence[Holding]], budget_ms: int
    ) -> Sequence[Sequence[int] | LeaseholdError]:
        return self._watchdog.renew_many(batches, budget_ms)

    def connection(self) -> RedisConnection:
        connection = self._thread_connection()
        self._connections.add(connection)
        return connection

    # ------------------------------------------------------------ what a store on several servers overrides

    def _thread_connection(self, counts: bool = True) -> RedisConnection:
        return RedisConnection(self._server, self._connections.discard, counts)

    def _loop_connection(self, notify: Callable[[Push], None]) -> LoopConnection:
        from leasehold.stores.redis.loop_connection import LoopConnection  # only users of asyncio load it

        return LoopConnection(self._server, notify, self._loop_connections.discard)

    def _watchdog_connection(self) -> WatchdogConnection:
        return WatchdogConnection(self._server)

    # ------------------------------------------------------------ the same for all

    def execute_beyond_limit(self, command: Command, seconds: float, refused: TooManyConnections) -> Any:
        """Send one command of a result store although ``max_connections`` are open, over a connection that is closed
        again. The threads that have the others may wait for the lease whose result this is. There are as many such
        connections as ``max_connections`` allows, and at most 16; the command waits for one."""
        give_up = time.monotonic() + seconds
        permits = self._beyond_limit  # a fork in between replaces it
        if not permits.acquire(timeout=seconds):
            raise refused
        try:
            with closing(self._thread_connection(counts=False)) as connection:
                self._connections.add(connection)
                return connection.execute_command(command, give_up - time.monotonic())
        finally:
            permits.release()

    def _permits(self) -> threading.Semaphore:
        most = self._server.target.max_connections or MOST_BEYOND_LIMIT
        return threading.Semaphore(min(most, MOST_BEYOND_LIMIT))

    def listen(self, notify: Callable[[Push], None]) -> LoopConnection:
        connection = self._loop_connection(notify)
        self._loop_connections.add(connection)
        return connection

    def holder_pushes(self) -> HolderPushes:
        """The watchdog's connection. Coordinators that share this store share it as well."""
        return self._watchdog

    def before_fork(self) -> None:
        """A child closes its copies of the sockets; ours stay as they are."""

    def after_fork(self) -> None:
        """Nothing was closed."""

    def forked(self) -> None:
        for connection in list(self._connections):
            connection.forked()
        self._server.forked()
        self._beyond_limit = self._permits()
        self._watchdog.forked()
        for loop_connection in self._loop_connections:
            loop_connection.forked()
        self._loop_connections = set()

    def close(self) -> None:
        self._server.close()
        for connection in list(self._connections):
            connection.close()
        self._watchdog.close()
        for loop_connection in list(self._loop_connections):
            loop_connection.close()
