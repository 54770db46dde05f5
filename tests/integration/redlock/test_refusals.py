"""What cannot be a Redlock is refused, saying why: by the URL at once, by the servers in the first call."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis
import redis.asyncio

import leasehold
from leasehold import InvalidRequest, StoreUnavailable, Unsupported
from leasehold.coordinator.stores import open_store
from tests.integration.redlock.stage import Stage, aged
from tests.support.parties import FLAVOURS, mostly
from tests.support.servers.redis import RedisServer
from tests.support.servers.redlock import RedlockServers
from tests.support.servers.sentinel import RedisSentinel
from tests.support.waiting import until

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("redlock://a", "3, 5 or 7 independent masters, not 1: of fewer than three none may fail"),
        ("redlock://a,b", "not 2: of fewer"),
        ("redlock://a,b,c,d", "not 4: one less survives as many failures"),
        ("redlock://a,b,c,d,e,f,g,h", "3, 5 or 7 independent masters, not 8: each further one makes every call dearer"),
        ("redlock://a,b,c,d,e,f,g,h,i", "3, 5 or 7 independent masters, not 9"),
        ("redlock://a,b,a:6379", "a:6379 is named twice"),
        ("redlock://a,,c", "empty host"),
        ("redlock://a,b,c?max_ttl=soon", "max_ttl 'soon' is not a duration"),
        ("redlock://a,b,c?max_ttl=2d", "max_ttl must be between 50 ms and 24 h"),
        ("redlock://a,b,c?max_tll=3", "unknown option"),
        ("redlock://a,b,c?tls=maybe", "tls must be true or false"),
        ("redlock://a,b,c?ssl_ca_certs=ca.pem", "ssl_"),
        ("redlock://a:port,b,c", "bad host or port"),
    ],
)
@pytest.mark.parametrize("connect", [leasehold.connect, leasehold.aio.connect])
def test_a_wrong_url(connect: Callable[..., Any], url: str, why: str) -> None:
    """Nothing is opened, and no password is shown."""
    with pytest.raises(InvalidRequest) as caught:
        connect(url.replace("://", "://user:s3cr3t@"))
    assert why in str(caught.value) and "s3cr3t" not in str(caught.value)


@pytest.mark.parametrize("connect", [leasehold.connect, leasehold.aio.connect])
def test_a_longer_ttl_than_max_ttl(connect: Callable[..., Any]) -> None:
    """Refused when the lock is made."""
    hold = connect("redlock://a,b,c?max_ttl=60")
    hold.lock("job", ttl=60)
    with pytest.raises(InvalidRequest, match=r"60 s here \(max_ttl\)"):
        hold.lock("job", ttl=61)
    with pytest.raises(InvalidRequest, match="max_ttl"):
        hold.election("job", ttl=61)


@pytest.mark.parametrize(
    "make",
    [
        lambda hold: hold.semaphore("job", limit=2),
        lambda hold: hold.rwlock("job"),
        lambda hold: hold.all(hold.lock("a"), hold.lock("b")),
        lambda hold: hold.single_flight("job"),
        lambda hold: hold.once("job"),
    ],
    ids=["semaphore", "rwlock", "all", "single_flight", "once"],
)
@pytest.mark.parametrize("connect", [leasehold.connect, leasehold.aio.connect])
def test_what_a_majority_cannot_do_is_refused_at_construction(connect: Callable[..., Any], make: Any) -> None:
    """Unsupported, before anything is sent. A pattern needs a result store of its own."""
    with pytest.raises(Unsupported, match="redlock"):
        make(connect("redlock://a,b,c"))


@pytest.fixture(params=["sync", "asyncio"])
def two_and(request: pytest.FixtureRequest) -> Iterator[Callable[[str], Any]]:
    """Two nodes, and a third at the given address: the first call to them."""
    stages = []
    with aged(RedlockServers(3)) as servers:

        def call(third: str) -> Any:
            url = ",".join([*(node.address for node in servers.nodes[:2]), third])
            stage = Stage(servers, request.param, f"redlock://{url}")
            stages.append(stage)
            return stage.party().do(lambda hold: hold.lock("job").acquire(wait=0))

        call.servers = servers  # type: ignore[attr-defined]  # for the test
        yield call
        for stage in stages:
            stage.close()


def test_the_same_server_twice(two_and: Any) -> None:
    """By another name: its run id shows it."""
    port = two_and.servers.nodes[0].server.port
    with pytest.raises(Unsupported, match="are the same server, and would count as two"):
        two_and(f"localhost:{port}")


def test_a_replica(two_and: Any) -> None:
    """Its master has what it has."""
    node = two_and.servers.nodes[2]
    node.server.client().replicaof("127.0.0.1", two_and.servers.nodes[0].server.port)
    with pytest.raises(Unsupported, match="is a replica: a Redlock needs independent masters"):
        two_and(node.address)


def test_a_node_of_a_cluster(two_and: Any) -> None:
    """One Cluster is not N masters."""
    with RedisServer(None, "--cluster-enabled", "yes") as server, pytest.raises(Unsupported, match="of a Cluster"):
        two_and(f"127.0.0.1:{server.port}")


def test_a_sentinel(two_and: Any, redis_sentinel: RedisSentinel) -> None:
    """It keeps no leases, whatever it watches."""
    ((host, port), *_) = redis_sentinel.addresses
    with pytest.raises(Unsupported, match=rf"{host}:{port} is a Sentinel, which keeps no leases: a Redlock needs"):
        two_and(f"{host}:{port}")


def test_a_user_that_may_not_ask_how_old_a_node_is(two_and: Any) -> None:
    """Without INFO nobody knows whether it lacks leases: it does not count, and the others do."""
    node = two_and.servers.nodes[2]
    assert node.server.ask("ACL SETUSER default -info") == b"+OK\r\n"
    assert two_and(node.address) is not None


@pytest.mark.parametrize("kind", [redis.Redis, redis.asyncio.Redis], ids=["sync", "asyncio"])
def test_clients_of_each_node(kind: Any) -> None:
    """Their settings are used, and they stay open."""
    with aged(RedlockServers(3)) as servers:
        clients = [kind(port=node.server.port) for node in servers.nodes]
        with leasehold.connect(clients) as hold, hold.lock("job", ttl=5) as lease:
            assert sum(node.server.client().exists("lock:v1:{job}:owner") for node in servers.nodes) >= 2
            assert lease.fence > 0
        with pytest.raises(InvalidRequest, match="not 2"):
            leasehold.connect(clients[:2])
        with pytest.raises(Unsupported, match="Pipeline"):
            leasehold.connect([*clients[:2], redis.Redis().pipeline()])


@pytest.mark.parametrize("flavour", ["sync", "asyncio"])
def test_urls_of_each_node(flavour: str) -> None:
    """Each node has its own URL, or a client in its place: a lease is granted, renewed, refused to another and
    released."""
    with aged(RedlockServers(3)) as servers:
        urls: list[Any] = [f"redis://{node.address}/0" for node in servers.nodes]
        mixed: list[Any] = [
            urls[0],
            redis.Redis(port=servers.nodes[1].server.port),
            f"valkey://{servers.nodes[2].address}",
        ]
        one, two = [FLAVOURS[flavour](open_store(nodes)) for nodes in (urls, mixed)]
        lease = one.do(lambda hold: hold.lock("job", ttl=30).acquire(wait=0))
        assert sum(node.server.client().exists("lock:v1:{job}:owner") for node in servers.nodes) >= 2
        assert two.do(lambda hold: hold.lock("job", ttl=30).acquire(wait=0)) is None
        one.do(lambda _: lease.extend(20))
        assert one.do(lambda _: lease.release()) is True
        assert two.do(lambda hold: hold.lock("job", ttl=30).acquire(wait=10)).fence > lease.fence
        for party in (one, two):
            party.close()


@mostly("sync")
def test_new_nodes_count_after_max_ttl(flavour: str) -> None:
    """Nobody knows that they have never granted anything: the error says when they count."""
    with RedlockServers(3) as servers:
        stage = Stage(servers, flavour)
        party = stage.party("?max_ttl=1.5")
        with pytest.raises(StoreUnavailable, match=r"it was started . s ago and may lack leases; it counts again in"):
            party.do(lambda hold: hold.lock("job", ttl=1.5).acquire(wait=0))

        def granted() -> Any:
            try:
                return party.do(lambda hold: hold.lock("job", ttl=1.5).acquire(wait=0))
            except StoreUnavailable:
                return None

        assert until(granted, "they count").fence > 0
        stage.close()
