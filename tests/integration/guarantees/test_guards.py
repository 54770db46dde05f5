"""The guards on Redis and S3 under the faults of the stores: a failover, a crash, a flush, a jump of a clock, a clock
that is behind, a pause. Two hold, or one holds too late; what the older fence writes is refused where the data is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

import leasehold
from leasehold.errors import StaleOwner
from leasehold.guards.redis import FenceGuard as RedisGuard
from leasehold.guards.s3 import FenceGuard as S3Guard
from leasehold.stores.redis.protocol import keys
from tests.integration.guarantees.faults import HOUR, crash, grow_old, reach
from tests.support.guarantees import LONG, RESOURCE, claim
from tests.support.servers.clock import WallClock
from tests.support.servers.redis import RedisServer
from tests.support.servers.redlock import RedlockServers
from tests.support.servers.sentinel import RedisSentinel
from tests.support.waiting import until

pytestmark = pytest.mark.slow
Write = Callable[[Any, str], object]


@pytest.fixture(params=["redis", "s3"])
def write(request: pytest.FixtureRequest) -> Write:
    """Writes to data behind a guard, which is on another server than the leases."""
    if request.param == "s3":
        s3: S3Guard = request.getfixturevalue("s3_guard")
        return lambda lease, text: s3.put("report", text.encode(), lease)
    server: RedisServer = request.getfixturevalue("own_redis")()
    redis = RedisGuard(server.client())
    return lambda lease, text: redis.set(redis.key("body", resource=RESOURCE), text, lease)


def refused(write: Write, lease: leasehold.Lease) -> None:
    """However often it is tried."""
    for _ in range(3):
        with pytest.raises(StaleOwner):
            write(lease, "late")


def two_hold(url: str, happens: Callable[[], object], write: Write) -> None:
    """The first does not renew, and so does not notice."""
    with leasehold.connect(url) as one, leasehold.connect(url) as other:
        first = claim(one, ttl=LONG, renew=False).lease
        write(first, "first")
        happens()
        second = claim(other, ttl=LONG, renew=False).lease
        assert first.remaining() > 0 < second.remaining() and second.fence > first.fence
        write(second, "second")
        refused(write, first)


# ---------------------------------------------------------------- the store loses a lease


def test_a_failover_that_lost_the_lease(redis_sentinel: RedisSentinel, write: Write) -> None:
    """The new primary does not know it."""
    redis_sentinel.cut_replication()
    two_hold(redis_sentinel.url, redis_sentinel.kill_primary, write)


def test_flushall(own_redis: Any, write: Write) -> None:
    """By mistake."""
    server = own_redis()
    two_hold(server.url, server.client().flushall, write)


def test_kill_9_without_persistence(own_redis: Any, write: Write) -> None:
    """It is back at once, and empty."""
    server = own_redis()
    two_hold(server.url, lambda: crash(server), write)


# ---------------------------------------------------------------- clocks


def test_the_clock_is_set_forward(own_redis: Any, write: Write) -> None:
    """The lease ends early on the server."""
    clock = WallClock()
    server = own_redis(clock=clock)
    two_hold(server.url, lambda: clock.set_off(LONG + 1), write)


def test_a_promoted_replica_whose_clock_is_behind(redis_sentinel: RedisSentinel, write: Write) -> None:
    """Its fences are lower: it is the new holder that is refused. From that its coordinator learns the floor of the
    next fence, which is accepted; from then on the old holder is refused."""
    redis_sentinel.cut_replication()
    [replica] = redis_sentinel.replicas
    assert isinstance(replica.clock, WallClock)
    replica.clock.set_off(-HOUR)
    with leasehold.connect(redis_sentinel.url) as one, leasehold.connect(redis_sentinel.url) as other:
        first = claim(one, ttl=LONG, renew=False).lease
        write(first, "first")
        redis_sentinel.kill_primary()
        second = claim(other, ttl=LONG, renew=False).lease
        assert second.fence < first.fence
        refused(write, second)
        second.release()
        third = claim(other, ttl=LONG, renew=False).lease
        assert third.fence > first.fence
        write(third, "third")
        refused(write, first)


@pytest.fixture
def nodes() -> Iterator[RedlockServers]:
    """Five that count."""
    with RedlockServers(5) as servers:
        yield grow_old(servers)


def test_the_clock_of_one_redlock_node_jumps(nodes: RedlockServers, write: Write) -> None:
    """The first has A, B and C. The clock of C jumps and is set right again, and the second gets C, D and E."""
    reach(nodes, 0, 1, 2)
    node = nodes.nodes[2]

    def jump() -> None:
        client = node.server.client()
        node.clock.set_off(HOUR + LONG + 1)
        until(lambda: not client.exists(keys(RESOURCE)[0]), "the lease has ended there")
        node.clock.set_off(HOUR)
        reach(nodes, 2, 3, 4)

    two_hold(nodes.url, jump, write)


# ---------------------------------------------------------------- a holder that is too late


def test_a_write_in_flight_while_its_holder_is_paused(nodes: RedlockServers, write: Write) -> None:
    """The holder has checked its lease, and its write arrives after that of the next holder."""
    with leasehold.connect(nodes.url) as one, leasehold.connect(nodes.url) as other:
        first = claim(one, ttl=1.5, renew=False).lease
        first.check()
        second = claim(other, ttl=LONG, renew=False)
        assert second.at >= first.deadline and second.lease.fence > first.fence
        write(second.lease, "second")
        refused(write, first)
