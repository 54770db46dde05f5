"""Clocks of servers, turned by hand: one that stands still, for a test and its servers alike, and one that runs."""

from __future__ import annotations

import ctypes
from pathlib import Path

from leasehold._core.types import Instant
from leasehold.stores.clock import ManualClock
from tests.support.servers.preload import SharedFile, library


class OneClock(ManualClock):
    """One line of time: what a store calls now is the wall, as it is for a server that has no other clock.

    ``advance`` moves everything. ``step_wall`` moves the wall, so the servers, and leaves local deadlines alone.
    """

    def __init__(self, start: float = 1_000.0, wall: float = 1_700_000_000.0) -> None:
        super().__init__(start, wall)
        self._shown = Shown()
        self._shown.wall_us.value = self._wall_us

    @property
    def path(self) -> Path:
        """The file that servers look at."""
        return self._shown.path

    def instant(self) -> Instant:
        """The store's time, and it is the wall's."""
        with self._lock:
            return Instant(self._wall_us // 1_000, self._wall_us)

    def advance(self, seconds: float) -> None:
        """Let time pass, here and on the servers."""
        with self._lock:
            self._now_us += round(seconds * 1_000_000)
            self._wall_us += round(seconds * 1_000_000)
            self._shown.wall_us.value = self._wall_us

    def step_wall(self, seconds: float) -> None:
        """Set the wall clock, and with it the servers, as an administrator or NTP does."""
        with self._lock:
            self._wall_us += round(seconds * 1_000_000)
            self._shown.wall_us.value = self._wall_us

    def environment(self) -> dict[str, str]:
        """What a server needs to see this clock."""
        return self._shown.environment()


class WallClock:
    """The wall of servers, which runs as it should until it is set. The test and its leases have the real one."""

    def __init__(self) -> None:
        self._shown = Shown()

    def set_off(self, seconds: float) -> None:
        """So much it is ahead of the real time from now on, or behind it."""
        self._shown.off_us.value = round(seconds * 1_000_000)

    @property
    def is_set(self) -> bool:
        """Whether it shows another time than the real one."""
        return self._shown.off_us.value != 0

    def environment(self) -> dict[str, str]:
        """What a server needs to see this clock."""
        return self._shown.environment()


class Shown(SharedFile):
    """What servers are shown: a file of two numbers (``clock.c``), each written in one piece."""

    def __init__(self) -> None:
        super().__init__("clock", 16)
        self.wall_us = ctypes.c_int64.from_buffer(self.page)
        self.off_us = ctypes.c_int64.from_buffer(self.page, 8)

    def environment(self) -> dict[str, str]:
        """What a server needs to see them."""
        return {"LD_PRELOAD": str(library("clock")), "LEASEHOLD_CLOCK": str(self.path)}
