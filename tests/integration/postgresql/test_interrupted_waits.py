"""An interrupt on every line of a claim that waits in the queue, or gives back what another waits for."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

import leasehold
from leasehold import LeaseholdError
from tests.support.faults.places import Line, Places
from tests.support.servers.database import Database
from tests.support.waiting import PATIENCE, until

pytestmark = [  # an interrupt came between the making of something and its use
    pytest.mark.soak,
    pytest.mark.filterwarnings("ignore:coroutine .* was never awaited"),
    pytest.mark.filterwarnings("ignore:unclosed"),
]

TTL = 600.0  # seconds: nothing that stays behind is hidden by expiry
AWHILE = 0.03
MOST = 2000  # lines
WARM = 30


@pytest.fixture
def hold(postgres_database: Database) -> Iterator[Any]:
    """Whoever is interrupted."""
    with leasehold.connect(postgres_database.url) as hold:
        yield hold


@pytest.fixture
def other(postgres_database: Database) -> Iterator[Any]:
    """Somebody else."""
    with leasehold.connect(postgres_database.url) as other:
        yield other


def test_an_interrupt_on_every_line_of_a_wait(hold: Any, other: Any) -> None:
    """Nobody is left in the queue, and the lock is free when its holder has released it."""
    known: set[Line] = set()
    for number in range(-WARM, MOST):
        name = f"job{max(number, 0)}"
        kept = other.lock(name, ttl=TTL).acquire(wait=0)
        lock = hold.lock(name, ttl=TTL)
        places = Places(1 if number >= 0 else 0, known=known)
        try:
            with places:
                assert lock.acquire(wait=AWHILE) is None
        except (KeyboardInterrupt, LeaseholdError):
            pass
        until(lambda name=name: not other.inspect(name).waiters, f"nobody waits: {places.where}")  # type: ignore[misc]
        assert kept.release() is True
        if number >= 0:
            if not places.where:
                break
            known |= places.lines
    assert len(known) > 50


def release_to(
    other: Any, lock: Any, name: str, threads: ThreadPoolExecutor, places: Places
) -> tuple[Future[Any], int]:
    """The claim of another that waits when a ``with`` ends, which is interrupted there; and the fence of the first."""
    try:
        with lock as lease:
            fence: int = lease.fence
            waits = threads.submit(other.lock(name, ttl=TTL).acquire, wait=PATIENCE)
            until(lambda: other.inspect(name).waiters, "it waits")
            places.__enter__()
    except (KeyboardInterrupt, LeaseholdError):
        pass
    finally:
        places.__exit__()
    return waits, fence


def test_an_interrupt_on_every_line_of_a_handover(hold: Any, other: Any) -> None:
    """Whoever waits has it in the end, whether the release was interrupted before it was sent or after it."""
    known: set[Line] = set()
    with ThreadPoolExecutor(1) as threads:
        for number in range(-WARM, MOST):
            name = f"job{max(number, 0)}"
            places = Places(1 if number >= 0 else 0, known=known)
            waits, fence = release_to(other, hold.lock(name, ttl=TTL), name, threads, places)
            granted = waits.result(PATIENCE)
            assert granted.fence > fence, f"after an interrupt in {places.where}"
            assert granted.release() is True
            if number >= 0:
                if not places.where:
                    break
                known |= places.lines
    assert len(known) > 50
