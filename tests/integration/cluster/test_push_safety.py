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
def test_a_waiter_that_listens_at_another_node_is_not_told(program: Callable[[], str]) -> None:
    """Its slot has moved, and it has not noticed yet. Messages to a channel of the Cluster reach every node."""
    with RedisCluster(executable=program()) as cluster:
        store = ClusterStore(cluster.url)
        is_not_told(Company("sync", cluster), store, "job:1", sharded=False)
        if cluster.nodes[0].version >= (7,):  # earlier ones have no channels of slots
            is_not_told(Company("sync", cluster), store, "job:2", sharded=True)
        store.close()


def is_not_told(company: Company, store: ClusterStore, resource: str, sharded: bool) -> None:
    """It waits for this resource, and listens at a node that does not decide about it."""
    here, there = company.node(resource), company.other(resource)
    tag = next(tag for tag in map(str, range(1000)) if company.cluster.node_of(f"{{{tag}}}") is there)
    address = SHARD % tag if sharded else NODE
    listener = Listener(there, address, sharded)
    granted = store.execute(Claim(resource, "us:1:first", 30_000))
    assert isinstance(granted, Granted)
    assert isinstance(store.execute(Claim(resource, "us:1:second", 30_000, address=address)), Queued)
    store.execute(Release(resource, "us:1:first", granted.fence))
    view = store.execute(Inspect(resource))
    assert isinstance(view, View) and not view.holders and len(view.queue) == 1
    speaker: Any = (there if sharded else here).client()
    speaker.execute_command("SPUBLISH" if sharded else "PUBLISH", address, "the end")
    assert b"granted" not in listener.heard()


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
