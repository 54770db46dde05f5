"""The clocks of the stores that live on this machine: the real one, and one that tests turn by hand."""

from __future__ import annotations

import threading
import time

from leasehold._core.light_typing import make_tuple
from leasehold._core.types import Instant

__all__ = ["ManualClock"]

# A suspended machine must not believe that it still holds a lease (decision 2). BOOTTIME counts while it sleeps, and so
# do the monotonic clocks of macOS and of Windows, which has no clock_gettime.
CLOCK_ID: int = getattr(time, "CLOCK_BOOTTIME", 0) or getattr(time, "CLOCK_MONOTONIC", 0)
LOOK_AGAIN = 0.002  # real seconds after which a waiter reads a clock again that another thread turns


class SystemClock:
    """Time since boot for deadlines, and the wall clock for fences."""

    __slots__ = ()
    goes_on = True

    if CLOCK_ID:

        def now(self) -> float:
            return time.clock_gettime(CLOCK_ID)

        def instant(self) -> Instant:
            return make_tuple(Instant, (time.clock_gettime_ns(CLOCK_ID) // 1_000_000, time.time_ns() // 1_000))

    else:

        def now(self) -> float:
            return time.monotonic()

        def instant(self) -> Instant:
            return Instant(time.monotonic_ns() // 1_000_000, time.time_ns() // 1_000)

    def nap(self, until: float) -> float:
        return max(until - self.now(), 0.0)


class ManualClock:
    """Time that stands still until a test moves it. Many threads may read it while one moves it."""

    __slots__ = ("_lock", "_now_us", "_wall_us")
    goes_on = False

    def __init__(self, start: float = 1_000.0, wall: float = 1_700_000_000.0) -> None:
        self._lock = threading.Lock()
        self._now_us = round(start * 1_000_000)
        self._wall_us = round(wall * 1_000_000)

    def now(self) -> float:
        with self._lock:
            return self._now_us / 1_000_000

    def instant(self) -> Instant:
        with self._lock:
            return Instant(self._now_us // 1_000, self._wall_us)

    def nap(self, until: float) -> float:
        return 0.0 if until <= self.now() else LOOK_AGAIN

    def advance(self, seconds: float) -> None:
        """Let time pass, on the wall clock too."""
        with self._lock:
            self._now_us += round(seconds * 1_000_000)
            self._wall_us += round(seconds * 1_000_000)

    def step_wall(self, seconds: float) -> None:
        """Set the wall clock only, as an administrator or NTP does."""
        with self._lock:
            self._wall_us += round(seconds * 1_000_000)
