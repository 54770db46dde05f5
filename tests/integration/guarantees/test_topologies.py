"""What holds on one Redis holds on several: without notifications, with a crowd, and after healing."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import leasehold
from leasehold import OutcomeUnknown, StoreUnavailable
from leasehold.coordinator.stores import open_store
from leasehold.stores.redis import protocol
from leasehold.stores.redis.protocol import keys
from tests.integration.guarantees.faults import grow_old, reach
from tests.support.guarantees import LONG, RESOURCE
from tests.support.parties import FLAVOURS, Party
from tests.support.servers.cluster import RedisCluster
from tests.support.servers.redis import RedisServer
from tests.support.servers.redlock import RedlockServers
from tests.support.servers.sentinel import RedisSentinel
from tests.support.waiting import PATIENCE, until

pytestmark = pytest.mark.slow
KEY, QUEUE = keys(RESOURCE)[0], keys(RESOURCE)[2]
CROWD = 100
BUSY = 10.0  # seconds that a busy machine may need besides


class Topology:
    """Servers that are one store, and the one of them that decides about the lease."""

    def __init__(self, url: str, decides: Callable[[], RedisServer]) -> None:
        self.url = url
        self.decides = decides

    def waiting(self, count: int) -> bool:
        """Whether so many wait."""
        return int(self.decides().client().llen(QUEUE)) == count


@pytest.fixture(params=["sentinel", "cluster"])
def topology(request: pytest.FixtureRequest) -> Topology:
    """Those on which waiters queue and are notified. One Redis has these tests too; on Redlock nobody is notified."""
    if request.param == "cluster":
        cluster: RedisCluster = request.getfixturevalue("redis_cluster")
        return Topology(cluster.url, lambda: cluster.node_of(KEY))
    sentinel: RedisSentinel = request.getfixturevalue("redis_sentinel")
    return Topology(sentinel.url, lambda: sentinel.primary)


@pytest.fixture(params=FLAVOURS)
def party(request: pytest.FixtureRequest, topology: Topology) -> Iterator[Callable[[], Party]]:
    """Makes parties of one flavour."""
    made: list[Party] = []

    def make() -> Party:
        made.append(FLAVOURS[request.param](open_store(topology.url)))
        return made[-1]

    yield make
    for one in made:
        one.close()


def test_all_notifications_are_dropped(
    topology: Topology, party: Callable[[], Party], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The servers believe that they were heard; each waiter finds its grant by its own next beat, in order (I13)."""
    dropped = []
    monkeypatch.setattr(protocol, "push", lambda *message: dropped.append(message))
    holder = party()
    lease = holder.do(lambda hold: hold.lock(RESOURCE, ttl=30).acquire())
    waiters, granted, fences = [party() for _ in range(3)], [], [lease.fence]
    for place, one in enumerate(waiters, start=1):
        granted.append(one.start(lambda hold: hold.lock(RESOURCE, ttl=1.5).acquire(wait=PATIENCE)))
        until(lambda: topology.waiting(place), "it waits")  # noqa: B023 # called here
    holder.do(lambda _: lease.release())
    for one, grant in zip(waiters, granted, strict=True):
        found = grant.result(PATIENCE)
        fences.append(found.fence)
        one.do(lambda _: found.release())  # noqa: B023 # called here
    assert fences == sorted(set(fences)) and dropped


def test_a_hundred_threads_have_one_winner(topology: Topology) -> None:
    """One try each: one gets it, the others do not."""
    ready = threading.Barrier(CROWD)
    with leasehold.connect(topology.url) as hold, ThreadPoolExecutor(CROWD) as threads:

        def attempt(_: int) -> Any:
            ready.wait(PATIENCE)
            while True:
                try:
                    return hold.lock(RESOURCE, ttl=LONG).try_acquire()
                except StoreUnavailable:  # nothing was taken: a busy machine has connected this thread too late
                    continue

        winners = [lease for lease in threads.map(attempt, range(CROWD)) if lease is not None]
        assert len(winners) == 1 and winners[0].release() is True
    assert topology.waiting(0)


# ---------------------------------------------------------------- after healing


def first_grant(url: str, healed: Callable[[], object], within: float) -> None:
    """A coordinator that knew the store before the trouble is granted again, this soon after healing; the rest is for a
    busy machine (I16). How long the servers elect is theirs: it is waited for, not timed."""
    with leasehold.connect(url) as hold:
        with hold.lock("before", ttl=LONG) as lease:
            before = lease.fence
        healed()
        began = time.monotonic()
        while True:
            try:
                found = hold.lock(RESOURCE, ttl=LONG).acquire(wait=within + BUSY)
                break
            except (StoreUnavailable, OutcomeUnknown):
                assert time.monotonic() - began < within + BUSY, "no grant after healing"
        assert found is not None and found.fence > before
        assert time.monotonic() - began < within + BUSY


def test_recovery_of_one_redis(own_redis: Any) -> None:
    """It was killed, and is started again: 13 ms."""
    server = own_redis()

    def restart() -> None:
        server.kill()
        server.start()

    first_grant(server.url, restart, 2 * 0.013)


def test_recovery_of_sentinels(redis_sentinel: RedisSentinel) -> None:
    """The primary was killed, and another has taken over: a failover takes 2 s."""
    first_grant(redis_sentinel.url, redis_sentinel.kill_primary, 2 * 2.03)


def test_recovery_of_a_cluster(redis_cluster: RedisCluster) -> None:
    """A primary was killed, and its replica has taken over: a failover takes 2.2 s."""
    first_grant(redis_cluster.url, lambda: redis_cluster.kill(redis_cluster.node_of(KEY)), 2 * 2.149)


def test_recovery_of_a_redlock() -> None:
    """A majority was cut off, and is back: at once."""
    with RedlockServers(3) as servers:

        def heal() -> None:
            reach(servers, 0)
            with leasehold.connect(servers.url) as hold, pytest.raises(StoreUnavailable):
                hold.lock(RESOURCE).try_acquire()
            reach(servers, 0, 1, 2)

        first_grant(grow_old(servers).url, heal, 2 * 0.055)
