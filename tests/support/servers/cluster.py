"""A real Redis Cluster: some masters, each with its share of the slots, without replicas."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any, Self

from tests.support.servers.redis import RedisServer
from tests.support.waiting import until

SLOTS = 16384


class RedisCluster:
    """It starts with ``with``. Redis 7, whose nodes can be given a range of slots."""

    def __init__(self, size: int = 3) -> None:
        self.nodes = [
            RedisServer(None, "--cluster-enabled", "yes", "--cluster-node-timeout", "2000") for _ in range(size)
        ]
        self._stack = ExitStack()

    @property
    def port(self) -> int:
        """Of the first node, which leads to the others."""
        port: int = self.nodes[0].port
        return port

    def client(self, **more: Any) -> Any:
        """A client for the test itself."""
        import redis

        return self._stack.enter_context(redis.RedisCluster(host="127.0.0.1", port=self.port, **more))

    def wipe(self) -> None:
        """No keys and no scripts."""
        for node in self.nodes:
            node.wipe()

    def __enter__(self) -> Self:
        for number, node in enumerate(self.nodes):
            self._stack.enter_context(node)
            first, last = (SLOTS * at // len(self.nodes) for at in (number, number + 1))
            self._say(node, f"CLUSTER ADDSLOTSRANGE {first} {last - 1}")
            self._say(node, f"CLUSTER SET-CONFIG-EPOCH {number + 1}")
            self._say(self.nodes[0], f"CLUSTER MEET 127.0.0.1 {node.port}")
        for node in self.nodes:
            until(lambda node=node: self._knows_all(node), "every node of the Cluster knows every other")  # type: ignore[misc]  # a lambda's default
        return self

    def __exit__(self, *failure: object) -> None:
        self._stack.close()

    def _knows_all(self, node: RedisServer) -> bool:
        said = node.ask("CLUSTER INFO")
        return b"cluster_state:ok" in said and f"cluster_slots_ok:{SLOTS}".encode() in said

    def _say(self, node: RedisServer, command: str) -> None:
        assert node.ask(command) == b"+OK\r\n", command
