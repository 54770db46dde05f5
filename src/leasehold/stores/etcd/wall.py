"""The wall clock of etcd as well as it is known: HTTP tells it with each reply, in whole seconds.

The clock of this machine is finer and mostly right, so it is used as long as it agrees with that.
"""

from __future__ import annotations

import datetime
import time

from leasehold.stores.clock import SystemClock

AGREES_US = 5_000_000
MONTHS = (b"jan", b"feb", b"mar", b"apr", b"may", b"jun", b"jul", b"aug", b"sep", b"oct", b"nov", b"dec")


class WallClock:
    """Read from any thread."""

    __slots__ = ("_clock", "_date", "_offset_us")

    def __init__(self) -> None:
        self._clock = SystemClock()
        self._date = b""
        self._offset_us: int | None = None  # from the time since boot to the server's wall clock

    def heard(self, date: bytes) -> None:
        """The header of a reply that has just arrived. It is looked at once a second."""
        if date != self._date:
            self._date = date
            heard = parse_date(date)
            if heard is not None:
                self._offset_us = heard * 1_000_000 - int(self._clock.now() * 1_000_000)

    def now_us(self) -> int:
        ours = time.time_ns() // 1_000
        if self._offset_us is None:
            return ours
        theirs = int(self._clock.now() * 1_000_000) + self._offset_us
        return ours if abs(ours - theirs) <= AGREES_US else theirs


def parse_date(text: bytes) -> int | None:
    """Seconds since 1970 of ``tue, 17 nov 2026 14:56:31 gmt``. None: that is no date of HTTP."""
    try:
        _, day, month, year, clock, zone = text.lower().split()
        hour, minute, second = map(int, clock.split(b":"))
        moment = datetime.datetime(
            int(year), MONTHS.index(month) + 1, int(day), hour, minute, min(second, 59), tzinfo=datetime.UTC
        )
    except ValueError:
        return None
    return int(moment.timestamp()) if zone == b"gmt" else None
