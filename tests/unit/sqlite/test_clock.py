"""The clocks of the stores that live on this machine."""

from __future__ import annotations

import time

from leasehold.stores.clock import ManualClock, SystemClock


def test_the_system_clock_counts_suspended_time() -> None:
    """now() is CLOCK_BOOTTIME in seconds, and instant() is the same moment in ms with the wall beside it."""
    clock = SystemClock()
    before = time.clock_gettime(time.CLOCK_BOOTTIME)
    now, instant = clock.now(), clock.instant()
    after = time.clock_gettime(time.CLOCK_BOOTTIME)
    assert before <= now <= after
    assert int(before * 1000) <= instant.ms <= int(after * 1000) + 1
    assert abs(instant.wall_us - time.time_ns() // 1000) < 5_000_000


def test_a_nap_ends_at_its_time() -> None:
    """nap() is what remains, and never negative."""
    clock = SystemClock()
    assert 9 < clock.nap(clock.now() + 10) <= 10
    assert clock.nap(clock.now() - 10) == 0


def test_the_manual_clock_moves_only_by_hand() -> None:
    """advance() moves both clocks, step_wall() the wall only; exact to the microsecond."""
    clock = ManualClock(start=5.0)
    first = clock.instant()
    clock.advance(1.25)
    assert clock.now() == 6.25
    assert clock.instant() == (first.ms + 1250, first.wall_us + 1_250_000)
    clock.step_wall(-3600)
    assert clock.instant() == (first.ms + 1250, first.wall_us + 1_250_000 - 3_600_000_000)


def test_waiters_look_soon_at_a_manual_clock() -> None:
    """Its time has nothing to do with real time, so nap() is short until it is reached."""
    clock = ManualClock(start=5.0)
    assert clock.nap(100.0) == 0.002
    clock.advance(95)
    assert clock.nap(100.0) == 0
