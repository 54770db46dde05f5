"""A real Redis Cluster: some masters, each with its share of the slots, without replicas."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any, Self

from tests.support.servers.redis import RedisServer
from tests.support.waiting import until

SLOTS = 16384


def _view(client: Any) -> dict[str, tuple[str, list[list[str]]]]:
    """What a node believes of each: its configuration epoch and its ranges of slots."""
    nodes = client.execute_command("CLUSTER NODES").values()
    return {node["node_id"]: (node["epoch"], sorted(node["slots"])) for node in nodes}


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

    def move(self, slot: int, source: RedisServer, target: RedisServer) -> None:
        """One slot with its keys, as ``redis-cli --cluster reshard`` moves it; then all nodes name the new owner.

        A node that learns of the move late, or two nodes that take the same configuration epoch, may name the old
        owner again for a moment. So the next move begins only when all nodes have the same view.
        """
        giving: Any = source.client()
        taking: Any = target.client()
        source_id, target_id = (one.execute_command("CLUSTER MYID").decode() for one in (giving, taking))
        taking.execute_command(f"CLUSTER SETSLOT {slot} IMPORTING {source_id}")
        giving.execute_command(f"CLUSTER SETSLOT {slot} MIGRATING {target_id}")
        while keys := giving.execute_command(f"CLUSTER GETKEYSINSLOT {slot} 100"):
            giving.execute_command("MIGRATE", "127.0.0.1", target.port, "", 0, 5000, "KEYS", *keys)
        for node in (target, source, *self.nodes):
            self._say(node, f"CLUSTER SETSLOT {slot} NODE {target_id}")
        clients = [node.client() for node in self.nodes]
        until(lambda: self._agree(clients, slot, target_id), "all nodes name the same owner of the slot")

    def _agree(self, clients: list[Any], slot: int, owner: str) -> bool:
        views = [_view(client) for client in clients]
        epochs = {epoch for epoch, _ in views[0].values()}
        return (
            all(view == views[0] for view in views)
            and len(epochs) == len(self.nodes)
            and any(int(part[0]) <= slot <= int(part[-1]) for part in views[0][owner][1])
        )

    def _knows_all(self, node: RedisServer) -> bool:
        said = node.ask("CLUSTER INFO")
        return b"cluster_state:ok" in said and f"cluster_slots_ok:{SLOTS}".encode() in said

    def _say(self, node: RedisServer, command: str) -> None:
        assert node.ask(command) == b"+OK\r\n", command
