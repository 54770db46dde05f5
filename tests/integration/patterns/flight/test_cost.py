"""What a call costs the server."""

from __future__ import annotations

from typing import Any

import pytest
import redis

import leasehold

pytestmark = pytest.mark.slow

COUNTED = ("evalsha", "eval")  # each read of the cache is one script


def requests(client: Any) -> int:
    """How many scripts the server was sent. A connection for pushes may be opened meanwhile: what it says at
    its beginning does not count."""
    stats: dict[str, dict[str, int]] = client.info("commandstats")
    return sum(stats.get(f"cmdstat_{name}", {}).get("calls", 0) for name in COUNTED)


def test_a_fresh_value_is_one_round_trip(redis_url: str) -> None:
    """One read of the cache: no lease, no second look."""
    with leasehold.connect(redis_url) as hold, redis.Redis.from_url(redis_url) as client:
        page = hold.single_flight("page", "{key}", stale=600)(lambda key: key)
        assert page("a") == "a"
        before = requests(client)
        assert [page("a") for _ in range(20)] == ["a"] * 20
        assert requests(client) - before == 20
