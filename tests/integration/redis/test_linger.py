"""Leases that linger on a real Redis, many at the same time."""

from __future__ import annotations

import pytest

import leasehold
from tests.support.waiting import until

pytestmark = pytest.mark.slow
MANY = 1000
LONG = 600.0


def test_many_that_linger_are_wanted_at_once(redis_url: str) -> None:
    """Another process tries all of them: each goes back at once, though the pushes come while nobody reads them."""
    with leasehold.connect(redis_url) as hold, leasehold.connect(redis_url) as other:
        watchdog = hold._engine.watchdog
        with hold.lock("first", ttl=LONG):
            until(watchdog.hears, "it can be told")
        for number in range(MANY):
            with hold.lock("job", number, ttl=LONG, linger=LONG):
                pass
        assert len(watchdog.lingering) == MANY
        watchdog.pause()
        batch = other.acquire_many([other.lock("job", number, ttl=LONG) for number in range(MANY)])
        assert len(batch.refused) == MANY
        watchdog.pause(False)
        until(lambda: not watchdog.lingering, "all of them were given back")

        def all_free() -> bool:
            batch = other.acquire_many([other.lock("job", number, ttl=LONG) for number in range(MANY)])
            batch.release()
            return batch.complete

        until(all_free, "nobody holds them")
        assert not hold._engine.cohorts
