"""Several servers that are one store: they start, fail over, are put right again, and leave nothing behind."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
import redis

from tests.support.servers import process
from tests.support.servers.certificates import Certificates
from tests.support.servers.cluster import RedisCluster
from tests.support.servers.redis import EVERY, RedisServer
from tests.support.waiting import until

pytestmark = pytest.mark.slow


@contextmanager
def nothing_left() -> Iterator[list[RedisServer]]:
    """The servers that are put into this list leave no process and no file."""
    before, servers = set(process.home().iterdir()), list[RedisServer]()
    yield servers
    left = set(process.home().iterdir()) - before
    assert servers and not any(server.runs for server in servers)
    assert not [path for path in left if not path.name.startswith("clock-")]  # a clock goes with its last reference


# ---------------------------------------------------------------- Cluster


@pytest.mark.parametrize("program", EVERY, ids=lambda find: find.__name__)
def test_each_program_can_be_a_cluster(program: Callable[[], str]) -> None:
    """Keys are on all masters, and nothing is left of it."""
    with nothing_left() as servers, RedisCluster(executable=program()) as cluster:
        servers.extend(cluster.nodes)
        client = cluster.client()
        for number in range(30):
            client.set(f"key:{number}", number)
            assert cluster.node_of(f"key:{number}").client().get(f"key:{number}") == str(number).encode()
        assert cluster.masters == cluster.nodes and all(node.client().dbsize() for node in cluster.nodes)


def test_a_cluster_with_tls_and_logins(certificates: Certificates) -> None:
    """Nodes trust each other, replicas follow, slots move, and a client needs both."""
    with RedisCluster(3, 1, tls=certificates, login=("joe", "secret")) as cluster:
        cluster.client().set("key", "value")
        source = cluster.node_of("key")
        target = next(node for node in cluster.masters if node is not source)
        cluster.move(cluster.slot_of("key"), source, target)
        assert cluster.client().get("key") == b"value"
        with pytest.raises(redis.AuthenticationError):
            source.client(username=None, password=None).ping()
        replica = cluster.failover(target)
        assert cluster.node_of("key") is replica and cluster.client().get("key") == b"value"


def test_a_slot_moves_in_steps(redis_cluster: RedisCluster) -> None:
    """In the middle of it the owner answers ASK and TRYAGAIN; at the end all know the new owner."""
    cluster, (one, other) = redis_cluster, ("{tag}one", "{tag}other")
    source = cluster.node_of(one)
    target = next(node for node in cluster.masters if node is not source)
    cluster.client().mset({one: 1, other: 2})
    move = cluster.begin_move(cluster.slot_of(one), source, target)
    assert source.ask(f"MGET {one} {other}").startswith(b"*2")
    move.keys(one)
    assert source.ask(f"GET {one}").startswith(b"-ASK")
    assert source.ask(f"MGET {one} {other}").startswith(b"-TRYAGAIN")
    assert target.ask(f"GET {one}").startswith(b"-MOVED")
    move.end()
    assert cluster.node_of(one) is target and cluster.client().mget(one, other) == [b"1", b"2"]


def test_a_move_that_does_not_end_is_undone(redis_cluster: RedisCluster) -> None:
    """The next test finds no slot on its way."""
    source, target = redis_cluster.masters[:2]
    key = next(f"key:{number}" for number in range(1000) if redis_cluster.node_of(f"key:{number}") is source)
    slot = redis_cluster.slot_of(key)
    redis_cluster.begin_move(slot, source, target)
    redis_cluster.wipe()
    assert redis_cluster.owner(slot) is source
    assert not any(b"[" in node.ask("CLUSTER NODES") for node in redis_cluster.nodes)


def test_failovers_of_a_cluster(redis_cluster: RedisCluster) -> None:
    """In peace and by a crash: a replica takes over with the data, and whoever comes back is a replica."""
    cluster = redis_cluster
    cluster.client().set("key", "value")
    first = cluster.node_of("key")
    second = cluster.failover(first)
    assert cluster.node_of("key") is second and cluster.replicas_of(second) == [first]
    until(lambda: first.ask("DBSIZE") == b":1\r\n", "the replica has the key")
    assert cluster.kill(second) is first and cluster.client().get("key") == b"value"
    cluster.wipe()
    assert cluster.replicas_of(first) == [second] and cluster.client().get("key") is None
