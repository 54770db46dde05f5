"""A hundred threads want one lock on Redis at the same moment."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

import leasehold

pytestmark = pytest.mark.slow
THREADS = 100


def test_a_hundred_threads_have_one_winner(redis_url: str) -> None:
    """One try each: one gets it, the others do not, and nothing is left of them."""
    together = threading.Barrier(THREADS)
    with leasehold.connect(redis_url) as hold, ThreadPoolExecutor(THREADS) as threads:

        def attempt(_: int) -> leasehold.Lease | None:
            together.wait()
            return hold.lock("crowd", ttl=60).try_acquire()

        leases = [lease for lease in threads.map(attempt, range(THREADS)) if lease is not None]
        assert len(leases) == 1
        view = hold.inspect("crowd")
        assert len(view.holders) == 1 and not view.waiters
        assert leases[0].release() is True


def test_a_hundred_threads_take_turns(redis_url: str) -> None:
    """All of them wait: each gets it once, never two at a time, and fences grow."""
    inside: list[int] = []
    fences: list[int] = []
    with leasehold.connect(redis_url) as hold, ThreadPoolExecutor(THREADS) as threads:

        def turn(number: int) -> None:
            with hold.lock("crowd", ttl=60) as lease:
                inside.append(number)
                fences.append(lease.fence)
                assert inside == [number]
                inside.remove(number)

        list(threads.map(turn, range(THREADS)))
    assert len(fences) == THREADS and fences == sorted(set(fences))
