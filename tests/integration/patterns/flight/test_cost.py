"""What a call costs the server."""

from __future__ import annotations

from typing import Any

import pytest
import redis

import leasehold

pytestmark = pytest.mark.slow


def requests(client: Any) -> int:
    """How often the server has read from anybody."""
    return int(client.info("stats")["total_reads_processed"])


def test_a_fresh_value_is_one_round_trip(redis_url: str) -> None:
    """One read of the cache: no lease, no second look."""
    with leasehold.connect(redis_url) as hold, redis.Redis.from_url(redis_url) as client:
        page = hold.single_flight("page", "{key}", stale=600)(lambda key: key)
        assert page("a") == "a"
        before = requests(client)
        assert [page("a") for _ in range(20)] == ["a"] * 20
        assert requests(client) - before - 1 == 20  # and one that asked
