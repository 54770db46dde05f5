"""The guards on Redis and S3 while the store of the leases loses one: a failover, a jump of a clock, a flush. Two hold,
and what the first writes after the second is refused where the data is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import leasehold
from leasehold.errors import StaleOwner
from leasehold.guards.redis import FenceGuard as RedisGuard
from leasehold.guards.s3 import FenceGuard as S3Guard
from tests.support.servers.redis import RedisServer
from tests.support.servers.sentinel import RedisSentinel

pytestmark = pytest.mark.slow
Write = Callable[[Any, str], object]
RESOURCE = "report"


@pytest.fixture(params=["redis", "s3"])
def write(request: pytest.FixtureRequest) -> Write:
    """Writes to data behind a guard, which is on another server than the leases."""
    if request.param == "s3":
        s3: S3Guard = request.getfixturevalue("s3_guard")
        return lambda lease, text: s3.put("report", text.encode(), lease)
    server: RedisServer = request.getfixturevalue("own_redis")()
    redis = RedisGuard(server.client())
    return lambda lease, text: redis.set(redis.key("body", resource=RESOURCE), text, lease)


def two_hold(url: str, happens: Callable[[], object], write: Write) -> None:
    """The first does not renew, and so does not notice."""
    with leasehold.connect(url) as one, leasehold.connect(url) as other:
        first = one.lock(RESOURCE, ttl=60, renew=False).acquire()
        assert first is not None
        write(first, "first")
        happens()
        second = _acquired(other)
        assert first.remaining() > 0 < second.remaining() and second.fence > first.fence
        write(second, "second")
        for _ in range(3):
            with pytest.raises(StaleOwner):
                write(first, "late")


def _acquired(hold: leasehold.Leasehold) -> leasehold.Lease:
    """While a failover is under way a try may fail."""
    for _ in range(100):
        try:
            lease = hold.lock(RESOURCE, ttl=60, renew=False).acquire(wait=5)
        except (leasehold.StoreUnavailable, leasehold.OutcomeUnknown):
            continue
        assert lease is not None
        return lease
    raise AssertionError("it was never granted")


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

    def crash() -> None:
        server.kill()
        server.start()

    two_hold(server.url, crash, write)
