"""What a Redis Cluster promises: each cell of its column, with real failovers and slots that move."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from itertools import cycle
from pathlib import Path

import pytest

import leasehold
from leasehold.stores.redis.protocol import keys
from tests.integration.guarantees.faults import backup, crash, evict, power_failure
from tests.support.guarantees import LONG, RESOURCE, Writer, show, show_a_frozen_holder, show_a_killed_holder
from tests.support.servers.clock import WallClock
from tests.support.servers.cluster import RedisCluster
from tests.support.servers.proxy import Proxy, Verdict
from tests.support.servers.redis import RedisServer
from tests.support.waiting import until

KEY = keys(RESOURCE)[0]
BUS = 10_000  # the port of the bus is so much above that of the clients
FIELDS = ("id", "address", "flags", "master", "ping", "pong", "epoch", "link")  # of a node; then come its slots
SENDER = slice(40, 80)  # of a message on the bus: the id of the node that sends it


def set_clock(server: RedisServer, seconds: float) -> None:
    """Its wall clock is so much ahead, or behind."""
    assert isinstance(server.clock, WallClock)
    server.clock.set_off(seconds)


@pytest.fixture
def master(redis_cluster: RedisCluster) -> RedisServer:
    """The one that decides about the lease."""
    return redis_cluster.node_of(KEY)


@pytest.fixture
def behind(redis_cluster: RedisCluster, master: RedisServer) -> RedisCluster:
    """The replica of that master learns nothing any more."""
    redis_cluster.cut_replication(master)
    return redis_cluster


# ---------------------------------------------------------------- holders


def test_a_killed_holder(redis_cluster: RedisCluster) -> None:
    """The next is granted when the ttl is over."""
    show_a_killed_holder("cluster", redis_cluster.url)


def test_a_frozen_holder(redis_cluster: RedisCluster) -> None:
    """It has lost its lease when it goes on, and its late write is refused."""
    show_a_frozen_holder("cluster", redis_cluster.url)


# ---------------------------------------------------------------- another primary


def test_failover_with_the_link_cut(behind: RedisCluster, master: RedisServer) -> None:
    """The new primary does not know the lease, and grants it again."""
    show("cluster", "failover", behind.url, lambda: behind.kill(master))


def test_a_primary_is_stopped_and_comes_back(behind: RedisCluster, master: RedisServer) -> None:
    """Its replica is promoted meanwhile, and grants the lease again."""
    slot = behind.slot_of(KEY)

    def stop() -> None:
        master.freeze()
        until(lambda: behind.owner(slot) is not master, "its replica is promoted")

    show("cluster", "server_pause", behind.url, stop, master.thaw)


def test_a_promoted_replica_whose_clock_is_behind(behind: RedisCluster, master: RedisServer) -> None:
    """Behind that of the primary before. Its fences are lower: the guard refuses them until the coordinator has learnt
    the higher one."""
    set_clock(master, 3600)
    show("cluster", "clock_back_and_loss", behind.url, lambda: behind.kill(master))


class Bus:
    """The network between the nodes, from which one of them can be cut off. Clients reach all of them."""

    def __init__(self, cluster: RedisCluster, stack: ExitStack) -> None:
        self._cluster = cluster
        self._ways = {node: stack.enter_context(Proxy(node.port + BUS)) for node in cluster.nodes}
        for node, way in self._ways.items():
            cluster.say(node, f"CONFIG SET cluster-announce-bus-port {way.port}")
        others = len(cluster.nodes) - 1
        until(lambda: all(way.count >= others for way in self._ways.values()), "all nodes use this network")

    def cut_off(self, node: RedisServer) -> None:
        """Nothing that it sends arrives, and nothing reaches it."""
        name = self._cluster.id_of(node).encode()
        self._ways[node].refuse()
        self._ways[node].cut()
        for other, way in self._ways.items():
            if other is not node:
                way.on_request = partial(_unless_from, name)

    def heal(self, node: RedisServer) -> None:
        """All nodes reach each other again."""
        self._ways[node].accept()
        for way in self._ways.values():
            way.on_request = None


def _unless_from(name: bytes, message: bytes) -> Verdict:
    return "cut_request" if message[SENDER] == name else "pass"


def test_a_minority_is_cut_off_and_healed() -> None:
    """A primary is cut off with a holder on its side; on the other side its replica grants the lease again."""
    with RedisCluster(3, 1, node_timeout_ms=1000) as cluster, ExitStack() as stack:
        bus, slot = Bus(cluster, stack), cluster.slot_of(KEY)
        master = cluster.owner(slot)
        [replica] = cluster.replicas_of(master)
        name, others = cluster.id_of(replica), [node for node in cluster.nodes if node is not master]
        far = ",".join(f"127.0.0.1:{node.port}" for node in others)
        cluster.cut_replication(master)

        def cut_off() -> None:
            bus.cut_off(master)
            until(lambda: all(_has_slots(name, node) for node in others), "its replica is promoted")

        show("cluster", "partition", cluster.url, cut_off, lambda: bus.heal(master), f"redis+cluster://{far}")


def test_a_client_leaves_a_primary_that_is_cut_off() -> None:
    """It can reach that primary, which only says that the Cluster is down. The others have another by now."""
    with RedisCluster(3, 1, node_timeout_ms=1000) as cluster, ExitStack() as stack:
        bus, slot = Bus(cluster, stack), cluster.slot_of(KEY)
        master = cluster.owner(slot)
        [replica] = cluster.replicas_of(master)
        name, others = cluster.id_of(replica), [node for node in cluster.nodes if node is not master]
        with leasehold.connect(cluster.url) as hold:
            with hold.lock(RESOURCE) as lease:
                before = lease.fence
            bus.cut_off(master)
            until(lambda: all(_has_slots(name, node) for node in others), "its replica is promoted")
            until(lambda: b"cluster_state:fail" in master.ask("CLUSTER INFO"), "it knows that it is cut off")
            granted = hold.lock(RESOURCE, wait=30).acquire()
            assert granted is not None and granted.fence > before
            assert granted.release() is True
            bus.heal(master)


def _has_slots(name: str, seen_by: RedisServer) -> bool:
    lines = seen_by.ask("CLUSTER NODES").decode().splitlines()
    return any(line.startswith(name) and len(line.split()) > len(FIELDS) for line in lines)


# ---------------------------------------------------------------- crashes


def test_kill_9_of_a_primary_without_persistence(redis_cluster: RedisCluster, master: RedisServer) -> None:
    """It is back, and empty, before anybody has noticed."""
    show("cluster", "crash_none", redis_cluster.url, lambda: crash(master))


def test_kill_9_of_a_primary_between_two_snapshots(redis_cluster: RedisCluster, master: RedisServer) -> None:
    """It is back with its last snapshot, which lacks the lease."""
    master.client().save()
    show("cluster", "crash_snapshot", redis_cluster.url, lambda: crash(master))


def test_kill_9_of_a_primary_under_appendfsync_everysec() -> None:
    """It is back without what was not on its disk yet."""
    with RedisCluster(3, 0, "--appendonly", "yes", "--appendfsync", "everysec") as cluster:
        show("cluster", "crash_everysec", cluster.url, power_failure(cluster.node_of(KEY)))


def test_kill_9_of_a_primary_under_appendfsync_always() -> None:
    """Its disk has the lease, and the replica that takes over has not."""
    with RedisCluster(3, 1, "--appendonly", "yes", "--appendfsync", "always", node_timeout_ms=1000) as cluster:
        master = cluster.node_of(KEY)
        cluster.cut_replication(master)
        show("cluster", "crash_always", cluster.url, lambda: cluster.kill(master))


# ---------------------------------------------------------------- slots


def test_a_slot_moves_during_a_thousand_handoffs(redis_cluster: RedisCluster) -> None:
    """Two hand the lease to each other while its slot goes round: one holds at a time, and fences grow."""
    data, busy, slot = Writer(), threading.Lock(), redis_cluster.slot_of(KEY)

    def work(hold: leasehold.Leasehold) -> None:
        for _ in range(500):
            with hold.lock(RESOURCE, ttl=LONG) as lease:
                assert busy.acquire(blocking=False), "two held it at the same time"
                assert data.write(lease), "a fence fell"
                busy.release()

    with ExitStack() as stack:
        holds = [stack.enter_context(leasehold.connect(redis_cluster.url)) for _ in range(2)]
        workers = stack.enter_context(ThreadPoolExecutor(2))
        handoffs = [workers.submit(work, hold) for hold in holds]
        moves, targets = 0, cycle(redis_cluster.masters)
        while not all(one.done() for one in handoffs):
            source, target = redis_cluster.owner(slot), next(targets)
            if source is not target:
                redis_cluster.move(slot, source, target)
                moves += 1
        for one in handoffs:
            one.result()
    assert moves > 0 and len(data.accepted) == 1000
    data.no_stale_write()


# ---------------------------------------------------------------- clocks and data of a primary


def test_the_clock_of_a_primary_is_set_forward(redis_cluster: RedisCluster, master: RedisServer) -> None:
    """The lease ends early on the server, and its holder does not know."""
    show("cluster", "clock_forward", redis_cluster.url, lambda: set_clock(master, LONG + 1))


def test_the_clock_of_a_primary_is_set_back(redis_cluster: RedisCluster, master: RedisServer) -> None:
    """The lease goes on, and the next one has a higher fence although the clock is behind."""
    show("cluster", "clock_back", redis_cluster.url, lambda: set_clock(master, -3600))


def test_a_lease_is_evicted_while_it_is_held(redis_cluster: RedisCluster, master: RedisServer) -> None:
    """The primary of its slot makes room with it."""
    show("cluster", "eviction", redis_cluster.url, lambda: evict(master))


def test_flushall_on_one_node_and_on_all(redis_cluster: RedisCluster, master: RedisServer) -> None:
    """The leases of its slots are gone, or all of them."""
    show("cluster", "flush", redis_cluster.url, master.client().flushall)

    def flush_all() -> None:
        for one in redis_cluster.masters:
            one.client().flushall()

    show("cluster", "flush", redis_cluster.url, flush_all)


def test_a_backup_is_put_back(redis_cluster: RedisCluster, master: RedisServer, tmp_path: Path) -> None:
    """On the primary of the slot, before anybody has noticed; its replica follows it."""
    show("cluster", "restore", redis_cluster.url, backup(master, tmp_path))
