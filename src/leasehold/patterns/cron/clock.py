"""The wall clock, by which ticks are due. Tests bring one of their own."""

from __future__ import annotations

import time
from typing import Protocol

LONGEST_NAP = 60.0  # seconds: then the clock is looked at again, for it may have been set


class Clock(Protocol):
    """What a cron goes by: seconds since 1970. ``real``: it can be compared with the clocks of others."""

    real: bool

    def now(self) -> float:
        """The time of now."""

    def nap(self, until: float) -> float:
        """For how many real seconds to sleep before looking again, when nothing is to be done until then."""


class WallClock:
    """That of this machine."""

    real = True

    def now(self) -> float:
        return time.time()

    def nap(self, until: float) -> float:
        return min(max(until - self.now(), 0.0), LONGEST_NAP)
