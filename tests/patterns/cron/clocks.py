"""Clocks that tests turn: one by hand, and one that runs fast and is wrong by some seconds."""

from __future__ import annotations

import threading
import time


class TurnedClock:
    """Stands still until the test moves it. Those who sleep look again soon."""

    real = False

    def __init__(self, now: float) -> None:
        self._now = now
        self._lock = threading.Lock()

    def now(self) -> float:
        """By this clock."""
        with self._lock:
            return self._now

    def set(self, now: float) -> None:
        """As an administrator does, back or forth."""
        with self._lock:
            self._now = now

    def nap(self, until: float) -> float:
        """Short: the test goes on in another thread or task."""
        return 0.002


class FastClock:
    """A day in seconds, the same in all processes of this machine but for ``skew``."""

    real = False
    SHORTEST, LONGEST = 0.002, 0.05  # real seconds

    def __init__(self, begin: float, start: float, end: float, speed: float, skew: float = 0.0) -> None:
        self._begin, self._start, self._end, self._speed, self._skew = begin, start, end, speed, skew

    def now(self) -> float:
        """``start``, when the clock of the machine showed ``begin``, and so much faster from there, until ``end``."""
        passed = self._start + (time.monotonic() - self._begin) * self._speed
        return min(max(passed, self._start), self._end) + self._skew

    def nap(self, until: float) -> float:
        """In real seconds."""
        return min(max((until - self.now()) / self._speed, self.SHORTEST), self.LONGEST)
