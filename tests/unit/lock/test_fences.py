"""Fences only grow: whatever happens to the store's memory or to the wall clock (trap 14)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import leasehold
from leasehold._core.ops import Claim
from leasehold._core.ports import Store
from leasehold.stores.clock import ManualClock
from leasehold.stores.memory import MemoryStore
from leasehold.stores.sqlite import SQLiteStore
from tests.support.lock import STORES, Spy, look, sync_scene

DAY = 24 * 3600


def opener(kind: str, folder: Path, clock: ManualClock) -> Callable[[], Store]:
    """Opens the same store again and again, as a new process would."""
    if kind == "sqlite":
        return lambda: SQLiteStore(str(folder / "leases.db"), clock)
    store = MemoryStore(clock)
    return lambda: store


def fence(hold: Any, name: str = "job") -> int:
    """The fence of one more acquisition."""
    with hold.lock(name) as lease:
        assert isinstance(lease.fence, int)
        return lease.fence


def test_trap_14_a_wiped_store_goes_on_above() -> None:
    """The store forgets everything: the coordinator's floor and the clock keep the next fence above."""
    clock = ManualClock()
    spy, hold = sync_scene(clock)
    with hold:
        before = fence(hold)
        assert isinstance(spy.inner, MemoryStore)
        spy.inner._states.clear()
        clock.step_wall(-3600)
        assert fence(hold) == before + 1
        assert spy.of(Claim)[-1].floor == before


def test_trap_14_the_floor_carries_over_to_another_store() -> None:
    """What a coordinator has seen is its floor everywhere: one that is moved to an empty store with a slow clock."""
    clock, slow = ManualClock(), ManualClock(wall=1_600_000_000.0)
    first = MemoryStore(clock)
    spy = Spy(first)
    with leasehold.connect(spy) as hold:
        before = fence(hold)
        spy.inner = MemoryStore(slow)
        assert fence(hold) > before
        assert fence(hold, "another") > before


def test_a_wiped_store_and_a_new_coordinator_follow_the_clock() -> None:
    """Nobody remembers anything: the clock alone keeps fences growing, as no counter could."""
    clock = ManualClock()
    with leasehold.connect(MemoryStore(clock)) as hold:
        before = fence(hold)
    clock.advance(0.001)
    with leasehold.connect(MemoryStore(clock)) as hold:
        assert fence(hold) > before


@pytest.mark.parametrize("kind", STORES)
def test_trap_22_the_wall_clock_goes_back(kind: str, tmp_path: Path) -> None:
    """An administrator sets the clock back by a year: fences go on by one, for a coordinator with no floor too."""
    clock = ManualClock()
    again = opener(kind, tmp_path, clock)
    with leasehold.connect(again()) as hold:
        before = fence(hold)
    clock.step_wall(-365 * DAY)
    with leasehold.connect(again()) as hold:
        assert [fence(hold), fence(hold)] == [before + 1, before + 2]


@pytest.mark.parametrize("kind", STORES)
def test_the_record_outlives_its_day_of_silence(kind: str, tmp_path: Path) -> None:
    """A fence is remembered for a day by the wall; after that the clock is above it anyway."""
    clock = ManualClock()
    again = opener(kind, tmp_path, clock)
    with leasehold.connect(again()) as hold:
        before = fence(hold)
    clock.advance(DAY - 1)
    store = again()
    assert look(store, "job").fence == before
    clock.advance(2)
    assert look(store, "job").fence == 0
    with leasehold.connect(store) as hold:
        assert fence(hold) > before


@pytest.mark.parametrize("kind", STORES)
def test_a_fence_ahead_of_the_clock_is_remembered_until_the_clock_has_passed_it(kind: str, tmp_path: Path) -> None:
    """The wall was wrong by a year and is set right: the record stays for that year, and a day."""
    clock = ManualClock()
    again = opener(kind, tmp_path, clock)
    clock.step_wall(365 * DAY)
    with leasehold.connect(again()) as hold:
        ahead = fence(hold)
    clock.step_wall(-365 * DAY)
    clock.advance(300 * DAY)
    with leasehold.connect(again()) as hold:
        assert fence(hold) == ahead + 1


def test_the_wall_clock_ends_no_lease() -> None:
    """Trap 22: a step of the wall, back or forth, neither ends a lease nor lengthens one."""
    clock = ManualClock()
    _, hold = sync_scene(clock)
    with hold:
        lease = hold.lock("job", ttl=10, renew=False).acquire()
        assert lease is not None
        remaining = lease.remaining()
        for step in (10 * 365 * DAY, -20 * 365 * DAY):
            clock.step_wall(step)
            assert lease.state == "held" and lease.remaining() == remaining
            assert hold.lock("job").try_acquire() is None
        clock.advance(11)
        assert lease.state == "lost"


@pytest.mark.parametrize("kind", STORES)
def test_trap_14_a_refused_claim_mints_nothing(kind: str, tmp_path: Path) -> None:
    """Refused ten times, and the next fence is the next one."""
    clock = ManualClock()
    with leasehold.connect(opener(kind, tmp_path, clock)()) as hold:
        lease = hold.lock("job").acquire()
        assert lease is not None
        assert not any(hold.lock("job").try_acquire() for _ in range(10))
        lease.release()
        assert fence(hold) == lease.fence + 1


def test_fences_of_one_coordinator_grow_across_resources() -> None:
    """The floor is the highest fence seen anywhere: a lease acquired later never looks older."""
    clock = ManualClock()
    _, hold = sync_scene(clock)
    with hold:
        fences = [fence(hold, f"job{number}") for number in range(5)]
        assert fences == sorted(set(fences))


def test_trap_15_the_lease_tells_its_own_fence() -> None:
    """A lost lease goes on telling its own fence, not that of the resource's holder of now."""
    clock = ManualClock()
    _, hold = sync_scene(clock)
    with hold:
        old = hold.lock("job", ttl=1, renew=False).acquire()
        assert old is not None
        before = old.fence
        clock.advance(2)
        new = hold.lock("job").acquire()
        assert new is not None and before is not None
        assert old.fence == before < new.fence and old.headers()["X-Fencing-Token"] == str(before)


async def test_the_header_carries_the_fence_in_asyncio() -> None:
    """The same in the other flavour: digits, all of them (trap 17)."""
    async with leasehold.aio.connect(MemoryStore()) as hold, hold.lock("job") as lease:
        assert lease.headers()["X-Fencing-Token"] == str(lease.fence) and len(str(lease.fence)) == 16
