"""A waiter that is passed over never learns of a grant that it does not have: two would hold the lock."""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Any

import pytest

from leasehold._core.ops import Claim, Granted, Inspect, Queued, Release, View
from leasehold.stores.redis.cluster.store import ClusterStore
from tests.support.redis.cluster import Company
from tests.support.servers.cluster import RedisCluster
from tests.support.servers.redis import EVERY, RedisServer

NODE, SHARD = "lock:v1:push:node:0123456789abcdef", "lock:v1:push:{%s}:0123456789abcdef"


@pytest.mark.parametrize("program", EVERY, ids=lambda find: find.__name__)
@pytest.mark.parametrize("kind", ["channel of the Cluster", "channel of a slot"])
def test_a_waiter_that_listens_at_another_node_is_not_told(program: Callable[[], str], kind: str) -> None:
    """Its slot has moved, and it has not noticed yet. Messages to a channel of the Cluster reach every node."""
    with RedisCluster(executable=program()) as cluster:
        company = Company("sync", cluster)
        here, there = company.node("job:1"), company.other("job:1")
        sharded = kind == "channel of a slot"
        if sharded and there.version < (7,):
            return  # it has none
        tag = next(tag for tag in map(str, range(1000)) if cluster.node_of(f"{{{tag}}}") is there)
        address = SHARD % tag if sharded else NODE
        listener = Listener(there, address, sharded)
        store = ClusterStore(cluster.url)
        granted = store.execute(Claim("job:1", "us:1:first", 30_000))
        assert isinstance(granted, Granted)
        assert isinstance(store.execute(Claim("job:1", "us:1:second", 30_000, address=address)), Queued)
        store.execute(Release("job:1", "us:1:first", granted.fence))
        view = store.execute(Inspect("job:1"))
        assert isinstance(view, View) and not view.holders and len(view.queue) == 1
        speaker: Any = (there if sharded else here).client()
        speaker.execute_command("SPUBLISH" if sharded else "PUBLISH", address, "the end")
        assert b"granted" not in listener.heard()
        store.close()


class Listener:
    """Listens to one channel at one node."""

    def __init__(self, node: RedisServer, channel: str, sharded: bool) -> None:
        self._socket = socket.create_connection(("127.0.0.1", node.port), timeout=20)
        self._heard = b""
        self._socket.sendall(f"{'SSUBSCRIBE' if sharded else 'SUBSCRIBE'} {channel}\r\n".encode())
        self._until(b":1\r\n")

    def _until(self, end: bytes) -> None:
        while end not in self._heard:
            self._heard += self._socket.recv(4096)

    def heard(self) -> bytes:
        """All messages up to the last."""
        self._until(b"the end")
        self._socket.close()
        return self._heard
