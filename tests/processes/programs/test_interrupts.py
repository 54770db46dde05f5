"""Interrupts at chosen places where a lease once stayed held: it is free at once, long before its ttl is over."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

import leasehold
from leasehold._core.holding import Holding
from leasehold._runtime.connections import ConnectionPool
from leasehold._runtime.held_lease import HeldLease
from leasehold._runtime.registry import Attempt
from leasehold.primitives.lease import Lease
from leasehold.primitives.lock import Lock
from tests.model.interrupts.test_lock import at_entry, interrupt, interrupted
from tests.support.waiting import PATIENCE, until

LOCAL = pytest.mark.parametrize("url", ["memory", "sqlite"], indirect=True)


@LOCAL
@pytest.mark.parametrize(
    ("function", "nth"),
    [
        (Lock.__exit__, 1),  # the end of the body never begins
        (Lock.__exit__, 2),
        (Holding._raise_ttl, 1),  # in the middle of a re-entry
        (HeldLease.lease, 1),
        (Lock._lease, 1),
        (ConnectionPool.give_back, 1),  # on the way out of acquire
        (HeldLease.track_lease, 1),
        (Lease.__init__, 1),
    ],
    ids=lambda one: getattr(one, "__qualname__", str(one)),
)
def test_an_interrupt_gives_back_at_once(url: str, function: Callable[..., Any], nth: int) -> None:
    """Wherever it hits a with statement or a re-entry, the next one need not wait for the ttl."""
    with leasehold.connect(url) as hold, leasehold.connect(url) as other:
        assert hold.lock("warm").acquire(wait=0) is not None and hold.lock("warm").release()

        def body() -> None:
            with hold.rlock("job", ttl=60), hold.rlock("job", ttl=60):
                pass

        assert interrupted(body, at_entry(function.__code__, nth, interrupt))
        for whoever in (other, hold):
            lease = whoever.lock("job", ttl=60).acquire(wait=PATIENCE)
            assert lease is not None and lease.release()
        assert not hold._engine.pending and not hold._engine.registry


@pytest.mark.slow
@LOCAL
def test_an_interrupt_while_the_watchdog_is_started(url: str) -> None:
    """One that had begun all the same stays the only one, and ends with its coordinator."""
    before = set(threading.enumerate())
    with leasehold.connect(url) as hold:
        trace = at_entry(threading.Event.wait.__code__, 1, interrupt)  # where start() waits until it runs
        assert interrupted(lambda: hold.lock("job", ttl=60).acquire(wait=0), trace)
        lease = hold.lock("job", ttl=1.5).acquire(wait=PATIENCE)
        assert lease is not None
        first = lease.deadline
        until(lambda: lease.deadline > first or lease.state == "lost", "it is renewed")
        assert lease.state == "held"
        assert len([thread for thread in threading.enumerate() if thread not in before]) == 1
    assert set(threading.enumerate()) <= before


@pytest.mark.slow
def test_an_interrupt_leaves_no_connection_open(redis_url: str) -> None:
    """What a call had borrowed when it was interrupted is closed, and not kept for as long as the coordinator lives."""
    with leasehold.connect(redis_url) as hold:
        lock = hold.lock("job", ttl=60)
        for _ in range(5):
            with lock:
                pass
            assert interrupted(lock.try_acquire, at_entry(Attempt.__init__.__code__, 1, interrupt))
        assert len(hold._engine.connections._open) <= 1
