"""Clocks that tests turn: one for threads, and one for many processes, each of which is wrong by some seconds."""

from __future__ import annotations

import mmap
import struct
import threading


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


class SharedClock:
    """The time that stands in a file, which one process writes and all read, wrong by ``skew``."""

    real = False
    LOOK_AGAIN = 0.005  # real seconds

    def __init__(self, path: str, skew: float = 0.0) -> None:
        with open(path, "r+b") as file:  # noqa: PTH123  # it is mapped
            self._page = mmap.mmap(file.fileno(), 8)
        self._skew = skew

    def now(self) -> float:
        """By this clock."""
        return float(struct.unpack("d", self._page)[0]) + self._skew

    def set(self, now: float) -> None:
        """For everybody."""
        self._page[:] = struct.pack("d", now)

    def nap(self, until: float) -> float:
        """Short: another process goes on."""
        return self.LOOK_AGAIN
