"""The Redlock store: the same records on several independent masters, and a majority decides.

Each node is a Redis as ``RedisStore`` would use it, with the same keys and scripts. Nothing is pushed, and there is no
queue: a claim that is refused is made again, after a pause that differs from client to client.
"""

from __future__ import annotations

import random
import weakref
from collections.abc import Callable, Sequence
from contextlib import closing

from leasehold._core.light_typing import TYPE_CHECKING
from leasehold._core.ops import Push, Reply, StoreOp
from leasehold._core.ports import Clock
from leasehold._core.types import Capabilities
from leasehold.errors import LeaseholdError
from leasehold.stores.clock import SystemClock
from leasehold.stores.redis.redlock.connection import RedlockConnection
from leasehold.stores.redis.redlock.node_server import NodeServer
from leasehold.stores.redis.redlock.quorum import Quorum, check_nodes
from leasehold.stores.redis.redlock.rounds import Rounds
from leasehold.stores.redis.redlock.target import MAX_TTL_MS, from_url
from leasehold.stores.redis.redlock.withdrawals import Withdrawals
from leasehold.stores.redis.target import Target

if TYPE_CHECKING:
    from leasehold.stores.redis.redlock.loop_connection import RedlockLoopConnection

SHORTEST_PAUSE_MS, LONGEST_PAUSE_MS = 10, 60


class RedlockStore:
    """Implements ``_core.ports.Store``. Making one connects to nothing; the first op does."""

    name = "redlock"

    def __init__(
        self, nodes: str | Sequence[Target], clock: Clock | None = None, longest_ttl_ms: int = MAX_TTL_MS
    ) -> None:
        if isinstance(nodes, str):
            nodes, longest_ttl_ms = from_url(nodes)
        addresses = [str(target) for target in nodes]
        check_nodes(addresses)
        self.clock: Clock = SystemClock() if clock is None else clock
        self.capabilities = Capabilities(
            fair=False,
            push=False,
            durable_fences=False,
            hosts=True,
            shared=False,
            groups=False,
            handover=False,
            evictions=False,
            reservations=False,
            lingering=False,
            keyspace=True,
            longest_ttl_ms=longest_ttl_ms,
        )
        self._quorum = Quorum(addresses, longest_ttl_ms)
        self._random = random.Random()
        self.nodes = [
            NodeServer(target, place, self._quorum, longest_ttl_ms, self.clock.now)
            for place, target in enumerate(nodes)
        ]
        self.rounds = Rounds(self._quorum, longest_ttl_ms, self._pause_ms, self.clock.now)
        self.withdrawals = Withdrawals(self)
        self._connections: weakref.WeakSet[RedlockConnection] = weakref.WeakSet()
        self._loop_connections: set[RedlockLoopConnection] = set()
        self._watchdog = self.own_connection()

    @property
    def url(self) -> str:
        target = self.nodes[0].target
        database = f"/{target.db}" if target.db else ""
        hosts = ",".join([str(node.target) for node in self.nodes])
        return f"redlock://{hosts}{database}{'' if target.tls is None else '?tls=true'}"

    def _pause_ms(self) -> int:
        return self._random.randint(SHORTEST_PAUSE_MS, LONGEST_PAUSE_MS)

    def execute(self, op: StoreOp) -> Reply:
        with closing(self.connection()) as connection:
            return connection.execute(op)

    async def execute_async(self, op: StoreOp) -> Reply:
        with closing(self.listen(lambda push: None)) as connection:
            return await connection.execute_async(op)

    def execute_many(self, ops: Sequence[StoreOp]) -> list[Reply | LeaseholdError]:
        """For the watchdog; another thread waits until it is done."""
        return self._watchdog.execute_many(ops) if ops else []

    def connection(self) -> RedlockConnection:
        connection = RedlockConnection(self, self._connections.discard)
        self._connections.add(connection)
        return connection

    def own_connection(self) -> RedlockConnection:
        """One that does not count for ``max_connections``: renewals and withdrawals must go out."""
        connection = RedlockConnection(self, counts=False)
        self._connections.add(connection)
        return connection

    def listen(self, notify: Callable[[Push], None]) -> RedlockLoopConnection:
        from leasehold.stores.redis.redlock.loop_connection import RedlockLoopConnection  # for users of asyncio

        connection = RedlockLoopConnection(self, self._loop_connections.discard)
        self._loop_connections.add(connection)
        return connection

    def holder_pushes(self) -> None:
        """Nothing is ever pushed."""

    def before_fork(self) -> None:
        """A child closes its copies of the sockets; ours stay as they are."""

    def after_fork(self) -> None:
        """Nothing was closed."""

    def forked(self) -> None:
        for connection in list(self._connections):
            connection.forked()
        for node in self.nodes:
            node.forked()
        self.withdrawals.forked()
        self._random = random.Random()
        for loop_connection in self._loop_connections:
            loop_connection.forked()
        self._loop_connections = set()

    def close(self) -> None:
        for connection in list(self._connections):
            connection.close()
        for loop_connection in list(self._loop_connections):
            loop_connection.close()
        self.withdrawals.close()
        for node in self.nodes:
            node.closed = True
