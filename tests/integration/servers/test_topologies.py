"""Several servers that are one store: they start, fail over, are put right again, and leave nothing behind."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import redis.sentinel

from tests.support.servers import process
from tests.support.servers.certificates import Certificates
from tests.support.servers.clock import WallClock
from tests.support.servers.cluster import RedisCluster
from tests.support.servers.redis import EVERY, RedisServer, impatient, valkey
from tests.support.servers.redlock import RedlockServers
from tests.support.servers.replicas import RedisReplicas
from tests.support.servers.sentinel import RedisSentinel
from tests.support.waiting import until

Sentinel: Any = redis.sentinel.Sentinel  # it comes without types

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


@pytest.mark.soak  # tests/integration/cluster uses each of them
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
    with RedisCluster(3, 1, tls=certificates, login=("joe", "secret"), node_timeout_ms=1000) as cluster:
        cluster.client().set("key", "value")
        source = cluster.node_of("key")
        target = next(node for node in cluster.masters if node is not source)
        cluster.move(cluster.slot_of("key"), source, target)
        assert cluster.client().get("key") == b"value"
        with pytest.raises(redis.AuthenticationError):
            source.client(username=None, password=None, retry=None).ping()
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


def test_a_node_whose_clock_was_set_starts_anew(redis_cluster: RedisCluster) -> None:
    """It would remember moments that have not come yet, and neither vote nor serve until they have."""
    node, *others = redis_cluster.masters
    processes = [one.pid for one in others]
    before = node.pid
    assert isinstance(node.clock, WallClock)
    node.clock.set_off(3600)
    redis_cluster.wipe()
    assert node.pid != before and [one.pid for one in others] == processes
    assert abs(int(node.client().time()[0]) - time.time()) < 60


@pytest.mark.soak  # tests/integration/cluster has many
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


@pytest.mark.soak
def test_masters_of_a_cluster_die_one_after_another(redis_cluster: RedisCluster) -> None:
    """Also a replica that was elected a moment ago, and whose votes are old, is believed when it takes over."""
    for _ in range(5):
        cluster, first = redis_cluster, redis_cluster.masters[0]
        second = cluster.kill(first)
        cluster.wipe()
        assert cluster.failover(second) is first and cluster.kill(first) is second
        cluster.wipe()


# ---------------------------------------------------------------- replicas


@pytest.mark.parametrize("program", EVERY, ids=lambda find: find.__name__)
def test_each_program_can_have_replicas(program: Callable[[], str]) -> None:
    """They have what the primary confirms, and nothing is left of them."""
    with nothing_left() as servers, RedisReplicas(2, executable=program()) as replicas:
        servers.extend(replicas.servers)
        client = replicas.primary.client()
        client.set("key", "value")
        assert client.wait(2, 0) == 2
        assert [replica.client().get("key") for replica in replicas.replicas] == [b"value"] * 2


def test_a_cut_link_confirms_nothing(redis_replicas: RedisReplicas) -> None:
    """All servers answer, WAIT counts the replicas that are left, and after healing all are in step."""
    client, (near, far) = redis_replicas.primary.client(), redis_replicas.replicas
    redis_replicas.cut_replication(far)
    client.set("key", "value")
    assert client.wait(1, 0) == 1 and client.wait(2, 1) == 1
    assert near.client().get("key") == b"value" and far.client().get("key") is None
    redis_replicas.heal()
    assert far.client().get("key") == b"value"
    redis_replicas.cut_replication()
    client.set("key", "another")
    assert client.wait(1, 1) == 0
    redis_replicas.wipe()
    assert client.set("key", "value") and client.wait(2, 0) == 2


def test_replicas_with_tls_and_a_login(certificates: Certificates) -> None:
    """A link that needs both can be cut and healed as any other."""
    with RedisReplicas(tls=certificates, login=("joe", "secret")) as replicas:
        replicas.cut_replication()
        replicas.primary.client().set("key", "value")
        assert replicas.replicas[0].client().get("key") is None
        replicas.heal()
        assert replicas.replicas[0].client().get("key") == b"value"


def test_valkey_confirms_what_is_on_disk() -> None:
    """WAITAOF counts the primary and the replicas that have written to their files."""
    with RedisReplicas(executable=valkey(), appendonly=True) as replicas:
        client: Any = replicas.primary.client()
        client.set("key", "value")
        assert client.execute_command("WAITAOF", 1, 1, 0) == [1, 1]


# ---------------------------------------------------------------- Sentinel


def at(service: RedisSentinel) -> redis.Redis:
    """A client of the primary that the Sentinels name."""
    of_sentinels, of_servers = service.arguments()
    sentinel = Sentinel(service.addresses, sentinel_kwargs=of_sentinels, **of_servers)
    host, port = sentinel.discover_master(service.service)
    for client in sentinel.sentinels:
        client.close()
    return redis.Redis(host, port, **of_servers)


@pytest.mark.soak  # tests/integration/sentinel has many
def test_failovers_of_sentinels(redis_sentinel: RedisSentinel) -> None:
    """In peace and by a crash: the replica takes over with the data, and whoever comes back is its replica."""
    service = redis_sentinel
    first, (second,) = service.primary, service.replicas
    first.client().set("key", "value")
    assert service.failover() is second and service.replicas == [first]
    with at(service) as client:
        assert client.get("key") == b"value" and client.set("key", "another") and client.wait(1, 0) == 1
    assert service.kill_primary() is first and first.client().get("key") == b"another"
    service.restart(second)
    assert service.primary is first and second.client().role()[0] == b"slave"


def test_a_failover_with_the_link_cut_loses_what_was_written(redis_sentinel: RedisSentinel) -> None:
    """The last writes of the primary die with it."""
    old, (replica,) = redis_sentinel.primary, redis_sentinel.replicas
    redis_sentinel.cut_replication()
    old.client().set("key", "value")
    assert redis_sentinel.kill_primary() is replica and replica.client().get("key") is None


def test_a_frozen_primary_comes_back(redis_sentinel: RedisSentinel) -> None:
    """It believes that it is the primary until a Sentinel tells it; without Sentinels it goes on believing."""
    old = redis_sentinel.primary
    old.freeze()
    new = redis_sentinel.await_another(old)
    for sentinel in redis_sentinel.sentinels:
        sentinel.freeze()
    old.thaw()
    assert old.client().set("key", "value") and new.client().get("key") is None
    redis_sentinel.wipe()
    assert redis_sentinel.primary is new and old.client().role()[0] == b"slave"


@pytest.mark.soak  # tests/integration/sentinel uses such servers
def test_sentinels_with_tls_and_logins(certificates: Certificates) -> None:
    """Both layers have a login of their own, and nothing is left of them."""
    service = RedisSentinel(tls=certificates, login=("joe", "secret"), sentinel_login=("ann", "hidden"))
    with nothing_left() as servers, service:
        servers.extend([*service.servers, *service.sentinels])
        service.primary.client().set("key", "value")
        service.failover()
        with at(service) as client:
            assert client.get("key") == b"value"
        for server in servers:
            with pytest.raises(redis.AuthenticationError):
                server.client(username=None, password=None, retry=None).ping()


def test_two_replicas_on_valkey() -> None:
    """The one that is not promoted follows the new primary."""
    with RedisSentinel(2, executable=valkey(), login=("secret",), sentinel_login=("hidden",)) as service:
        old = service.primary
        new = service.kill_primary()
        service.settle()
        (other,) = [server for server in service.servers if server not in (old, new)]
        assert other.client().role()[2] == new.port


# ---------------------------------------------------------------- Redlock


def test_independent_masters_leave_nothing(certificates: Certificates) -> None:
    """Each has a run id of its own, behind TLS and a login, and an address that leads through its network."""
    service = RedlockServers(3, tls=certificates, login=("joe", "secret"))
    with nothing_left() as servers, service:
        servers.extend(node.server for node in service.nodes)
        assert len({client.info("server")["run_id"] for client in service.clients()}) == 3
        assert [node.link.count for node in service.nodes] == [1, 1, 1]
        urls = [redis.Redis.from_url(node.url, **certificates.arguments()) for node in service.nodes]
        for client in urls:
            with client:
                assert client.ping()
        assert [node.link.count for node in service.nodes] == [2, 2, 2]


def test_one_clock_jumps(redlock_servers: RedlockServers) -> None:
    """A key of one node expires; those of the others stay."""
    for client in redlock_servers.clients():
        client.set("key", "value", px=30_000)
    redlock_servers.nodes[2].clock.set_off(31)
    assert [client.exists("key") for client in redlock_servers.clients()] == [1, 1, 0, 1, 1]
    redlock_servers.wipe()
    times = [client.time()[0] for client in redlock_servers.clients()]
    assert max(times) - min(times) < 31


def test_one_network_is_bad(redlock_servers: RedlockServers) -> None:
    """Cut off, slow, or deaf: the others notice nothing, and the next test finds a good one."""
    cut, held, slow, _, good = redlock_servers.nodes
    cut.cut_off()
    with pytest.raises(redis.ConnectionError):
        cut.client(retry=None).ping()
    client = held.client(retry=None)
    client.ping()
    held.link.hold_replies()
    with impatient(client), pytest.raises(redis.TimeoutError):
        client.set("key", "value")
    assert held.server.client().get("key") == b"value"
    slow.link.delay(replies=0.01)
    assert slow.client().ping() and good.client().ping()
    redlock_servers.wipe()
    assert all(client.set("key", "value", nx=True) for client in redlock_servers.clients())


def test_nodes_restart_with_their_data_or_without() -> None:
    """A file brings the data back, unless the disk is lost too; FLUSHALL loses that of one."""
    with RedlockServers(3, "--appendfsync", "always", appendonly=True) as servers:
        kept, lost, flushed = servers.nodes
        for client in servers.clients():
            client.set("key", "value")
        kept.restart()
        lost.restart(keep=False)
        flushed.flush()
        assert [client.get("key") for client in servers.clients()] == [b"value", None, None]
        kept.server.kill()
        lost.server.freeze()
        servers.wipe()
        assert all(client.ping() for client in servers.clients())
