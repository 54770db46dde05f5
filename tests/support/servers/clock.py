"""Clocks of servers, turned by hand: one that stands still, for a test and its servers alike, and one that runs."""

from __future__ import annotations

import ctypes
import mmap
import subprocess
import tempfile
import weakref
from functools import cache
from pathlib import Path

from leasehold._core.types import Instant
from leasehold.stores.clock import ManualClock
from tests.support.servers.process import home, temporary


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

    def environment(self) -> dict[str, str]:
        """What a server needs to see this clock."""
        return self._shown.environment()


class Shown:
    """What servers are shown: a file of two numbers (``clock.c``), each written in one piece."""

    def __init__(self) -> None:
        with tempfile.NamedTemporaryFile(prefix="clock-", dir=home(), delete=False) as file:
            file.truncate(16)
            Path(file.name).chmod(0o644)  # for a server that runs as somebody else
            page = mmap.mmap(file.fileno(), 16)
        self.wall_us, self.off_us = ctypes.c_int64.from_buffer(page), ctypes.c_int64.from_buffer(page, 8)
        self.path = Path(file.name)
        weakref.finalize(self, self.path.unlink, missing_ok=True).atexit = False  # the folder goes anyway

    def environment(self) -> dict[str, str]:
        """What a server needs to see them."""
        return {"LD_PRELOAD": str(_library()), "LEASEHOLD_CLOCK": str(self.path)}


@cache
def _library() -> Path:
    library = temporary() / "clock.so"  # not in memory, where programs may be forbidden
    library.parent.chmod(0o711)
    source = Path(__file__).with_suffix(".c")
    subprocess.run(["cc", "-O2", "-shared", "-fPIC", "-o", library, source], check=True)
    return library
