"""What many permits cost a Redis, and what they leave there: in one server everybody waits for everybody."""

from __future__ import annotations

from typing import Any

import pytest

import leasehold
from leasehold import Leasehold
from leasehold._core.ops import Claim, Granted, Queued, Withdraw, Withdrawn
from tests.support.lock import elsewhere, look
from tests.support.servers.redis import RedisServer
from tests.support.waiting import PATIENCE, until

pytestmark = pytest.mark.slow

MANY = 300
SOME = 30


def renewed(hold: Leasehold, server: RedisServer, count: int) -> int:
    """How many scripts run when so many permits are renewed together, all of which stay held."""
    pool = hold.semaphore("pool", limit=count, ttl=30)
    permits = [pool.acquire(wait=PATIENCE) for _ in range(count)]
    with elsewhere(lambda: pool.acquire(wait=PATIENCE)) as waiter:
        until(lambda: look(hold._engine.store, "pool").queue, "somebody waits")
        server.client().config_resetstat()
        hold._engine.watchdog._renew([permit._held for permit in permits if permit is not None])
        seen = server.client().info("commandstats")
        assert [permit.state for permit in permits if permit is not None] == ["held"] * count
        assert all(permit.release() for permit in permits if permit is not None)
        assert waiter() is not None
    return sum(int(seen.get(f"cmdstat_{name}", {"calls": 0})["calls"]) for name in ("eval", "evalsha"))


def test_hundreds_are_renewed_in_few_steps_while_somebody_waits(redis_server: RedisServer, redis_url: str) -> None:
    """Each turn looks at all who hold: one for each of them would keep the server busy for longer than a renewal may
    take, and all would be lost."""
    with leasehold.connect(redis_url) as hold:
        assert renewed(hold, redis_server, MANY) < 10 + SOME  # beside those of whoever waits


def test_a_renewal_keeps_the_limit(redis_server: RedisServer, redis_url: str) -> None:
    """A stored limit is forgotten when nobody has used it for long, and whoever holds a permit uses it: one that is
    renewed alone as well as several that are renewed together."""
    client = redis_server.client()
    key = "lock:v1:{pool}:more"
    with leasehold.connect(redis_url) as hold:
        pool = hold.semaphore("pool", limit=5)
        pool.resize(3)
        permits = [pool.acquire(), pool.acquire()]
        for count in (1, 2):
            soon = client.time()[0] * 1000 + 60_000
            client.hset(key, ":limit", f"{soon} 3")
            hold._engine.watchdog._renew([permit._held for permit in permits[:count] if permit is not None])
            record: Any = client.hget(key, ":limit")
            until_ms, limit = record.split()
            assert int(until_ms) > soon and limit == b"3"


def test_every_key_has_an_end_also_when_the_last_of_a_turn_is_replaced(
    redis_server: RedisServer, redis_url: str
) -> None:
    """Whoever is granted as a turn begins, and withdraws with that very turn, makes room for the next."""
    client = redis_server.client()
    with leasehold.connect(redis_url) as hold:
        store = hold._engine.store
        listening: Any = client.pubsub()  # type: ignore[no-untyped-call]  # redis-py says nothing of it
        listening.subscribe("lock:v1:push:somewhere")

        long = Claim("pool", "h:1:first", 30_000, 1, 0, True, "semaphore", 1, 1, "lock:v1:push:somewhere")
        assert isinstance(store.execute(long._replace(owner="h:1:holder", ttl_ms=100)), Granted)
        assert isinstance(store.execute(long), Queued)
        assert isinstance(store.execute(long._replace(owner="h:1:second")), Queued)
        until(lambda: not client.exists("lock:v1:{pool}:owner"), "the first one's time is over")
        assert store.execute(Withdraw("pool", "h:1:first")) == Withdrawn("held")
        assert client.hkeys("lock:v1:{pool}:holders") == [b"h:1:second"]
        assert client.pttl("lock:v1:{pool}:holders") > 0
        assert hold.leaks() == []
