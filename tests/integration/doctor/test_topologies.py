"""The examination of Sentinel, Cluster and Redlock: whole, with a part away, and with rights that it printed itself."""

from __future__ import annotations

from typing import Any

import pytest

import leasehold
from leasehold.doctor import checklist, rights
from tests.support.doctor import every_finding_helps, examined, found, only
from tests.support.servers.cluster import RedisCluster
from tests.support.servers.redlock import RedlockServers
from tests.support.servers.sentinel import RedisSentinel
from tests.support.waiting import until

pytestmark = pytest.mark.slow
FEW = "?max_ttl=3s"  # a node that has just started counts after this long


def problems(seen: Any) -> set[str]:
    """The checks that found one."""
    return {one.check for one in seen.report.findings if one.severity == "problem"}


# ---------------------------------------------------------------- Sentinel


def test_sentinels(redis_sentinel: RedisSentinel) -> None:
    """All answer and agree; a primary that may be cut off without noticing is warned of."""
    seen = examined(redis_sentinel.url)
    every_finding_helps(seen)
    assert problems(seen) == set() and seen.trial is not None
    assert found(seen, "quorum").keys() == {"ok"} and len(seen.report.of("quorum")) == 3
    assert found(seen, "min-replicas").keys() == {"warning"} and found(seen, "replicas").keys() == {"ok"}
    assert any(one.fix == rights.sentinel_line() for one in seen.report.of("permissions"))


def test_a_sentinel_that_is_gone(redis_sentinel: RedisSentinel) -> None:
    """One is a warning; with two gone there is no majority, and no failover."""
    first, second, _ = redis_sentinel.sentinels
    first.kill()
    seen = examined(redis_sentinel.url)
    assert found(seen, "sentinels")["warning"].place == f"127.0.0.1:{first.port}" and "quorum" not in problems(seen)
    second.kill()
    seen = until(lambda: "quorum" in problems(examined(redis_sentinel.url)) and examined(redis_sentinel.url))
    assert {"quorum", "reachable"} <= problems(seen)
    assert seen.trial is not None and seen.report.reachable  # the primary still serves


@pytest.mark.soak  # a failover and its end take seconds
def test_a_primary_without_a_replica(redis_sentinel: RedisSentinel) -> None:
    """Nothing could take over."""
    for replica in redis_sentinel.replicas:
        replica.kill()
    assert until(lambda: found(examined(redis_sentinel.url), "replicas").get("warning"))


# ---------------------------------------------------------------- Cluster


def test_a_cluster(redis_cluster: RedisCluster) -> None:
    """All slots are served; each master has its replica; hash tags are right."""
    seen = examined(redis_cluster.url)
    every_finding_helps(seen)
    assert seen.report.place.startswith("the Cluster at ")
    assert problems(seen) == set() and only(seen, "slots").severity == "ok" and seen.trial is not None
    assert found(seen, "replicas").keys() == {"ok"} and len(seen.report.of("version")) == 3
    point = checklist.points(seen)[8]
    assert (point.number, point.verdict) == (9, "pass") and "several slots" in point.reason


def test_the_line_of_a_cluster_is_enough(redis_cluster: RedisCluster) -> None:
    """A user who has it at each node takes and gives back leases there, and is told so."""
    line = rights.cluster_line("app")
    for node in redis_cluster.nodes:
        assert node.ask(line) == b"+OK\r\n"
    try:
        url = redis_cluster.url.replace("://", "://app:password@")
        with leasehold.connect(url) as one, leasehold.connect(url) as other:
            lease = one.lock("job", 7).acquire()
            assert lease is not None
            assert other.lock("job", 7).try_acquire() is None
            assert lease.release()
            with other.lock("job", 7, wait=5):
                pass
        seen = examined(url)
        assert problems(seen) == set() and found(seen, "permissions").keys() == {"ok"}
    finally:
        for node in redis_cluster.nodes:
            node.ask("ACL DELUSER app")


def test_a_cluster_without_a_master(redis_cluster: RedisCluster) -> None:
    """A master that is gone with its replica: its slots are served by nobody, or the state is fail."""
    lost = redis_cluster.masters[0]
    for replica in redis_cluster.replicas_of(lost):
        replica.kill()
    lost.kill()
    assert until(lambda: problems(examined(redis_cluster.url)) & {"slots", "cluster"})


# ---------------------------------------------------------------- Redlock


def test_redlock(redlock_servers: RedlockServers) -> None:
    """Five independent nodes: whole; one away is a warning; three are no majority, and the store is away."""
    url = redlock_servers.url + FEW
    seen = until(lambda: (one := examined(url)).trial and one, "the nodes count", every=0.2)
    every_finding_helps(seen)
    assert problems(seen) == set() and only(seen, "majority").severity == "ok"
    assert only(seen, "independence").severity == "ok"
    redlock_servers.nodes[0].server.kill()
    seen = until(lambda: (one := examined(url)).trial and one, "four of five are enough", every=0.2)
    assert only(seen, "majority").severity == "warning"
    for node in redlock_servers.nodes[1:3]:
        node.server.kill()
    seen = examined(url)
    assert {"majority", "reachable"} <= problems(seen) and not seen.report.reachable


def test_a_node_whose_clock_is_off(redlock_servers: RedlockServers) -> None:
    """It does not count, and is named."""
    node = redlock_servers.nodes[2]
    node.clock.set_off(30)
    seen = examined(redlock_servers.url + FEW)
    (finding,) = [one for one in seen.report.of("clock") if one.severity == "problem"]
    assert finding.place == node.address and "off the median" in finding.text


def test_two_addresses_of_one_server(redlock_servers: RedlockServers) -> None:
    """Its vote would count twice."""
    first, second, *_ = redlock_servers.nodes
    same = f"redlock://localhost:{first.server.port},127.0.0.1:{first.server.port},{second.address}"
    assert "problem" in found(examined(same + FEW), "independence")
