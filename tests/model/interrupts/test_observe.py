"""Interrupts: wherever Ctrl-C hits an acquire or a release, what was told to begin is told to end."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import pytest

import leasehold
from leasehold._core.holding import Holding
from leasehold._runtime.connections import ConnectionPool
from leasehold._runtime.engine import Engine
from leasehold._runtime.events import AcquireEvents, LeaseEvents
from leasehold._runtime.held_lease import HeldLease
from leasehold._runtime.watchdog import Watchdog
from leasehold.observe.events import Acquired
from leasehold.observe.observers import Observers
from leasehold.primitives.base_lease import BaseLease
from leasehold.primitives.base_lock import BaseLock
from leasehold.primitives.lease import Lease
from leasehold.stores.memory import MemoryStore
from tests.model.interrupts.test_lock import at_entry, interrupt, interrupted
from tests.support.observe.stage import Listener
from tests.support.waiting import until
from tests.unit.observe.test_events import ENDINGS

pytestmark = pytest.mark.slow  # every place, in both forms: seconds

PLACES: list[tuple[Callable[..., Any], int]] = [
    (AcquireEvents.granted, 1),
    (Observers.notify, 1),
    (HeldLease.__init__, 1),
    (Engine.register, 1),
    (Watchdog.add, 1),
    (Lease.__init__, 1),
    (ConnectionPool.give_back, 1),
    (BaseLock._enter, 1),
    (BaseLock._leave, 1),
    (Lease.__exit__, 1),
    (Lease.release, 1),
    (HeldLease.step_out, 1),
    (Holding.begin_release, 1),
    (MemoryStore.execute, 2),
    (Holding.end_release, 1),
    (ConnectionPool.give_back, 2),
    (BaseLease._finish_release, 1),
    (Engine.forget, 1),
    (HeldLease.drop_references, 1),
    (Watchdog.report_release, 1),
    (LeaseEvents.released, 1),
]


@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.parametrize(("function", "nth"), PLACES, ids=lambda part: getattr(part, "__qualname__", str(part)))
@pytest.mark.parametrize("explicit", [False, True], ids=["with", "explicit"])
def test_what_begins_ends(heard: Listener, function: Callable[..., Any], nth: int, explicit: bool) -> None:
    """Whatever was interrupted: by the time the coordinator is closed, every lease that was told of has ended."""
    hold = leasehold.connect(MemoryStore(), observers=[heard])
    lock = hold.lock("job", 1, ttl=30)

    def body() -> None:
        if explicit:
            lease = lock.acquire()
            assert lease
            with lease:
                pass
        else:
            with lock:
                pass

    hit = interrupted(body, at_entry(function.__code__, nth, interrupt))
    assert hit or explicit, "the place is there"
    gc.collect()
    hold.close()
    until(lambda: ended(heard), "every lease that was told of is over")


def ended(heard: Listener) -> bool:
    """Is every lease that was told of over?"""
    lives = [set(heard.names(event.lease.number)) for event in heard.of(Acquired)]
    return all(names & ENDINGS for names in lives)
