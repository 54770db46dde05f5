"""Wall clocks of servers, compared with each other and with that of this host.

A clock is read by asking for the time: the answer belongs to some moment between the question and the reply, so a
reading is uncertain by half of the time that this took. Only what is beyond that uncertainty is reported.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from statistics import median
from typing import NamedTuple

from leasehold.doctor.report import Finding, ok, warning

READINGS = 3  # of each clock: the one that was answered fastest counts
APART = 0.5  # seconds: more is a finding; a Redlock leaves out a node whose clock is farther from the others
SLEW = "Run chrony or ntpd on every host, let it slew the clock, and never step it while leases are held"


class Reading(NamedTuple):
    """How far a clock is ahead of this host's, in seconds; ``unsure`` is by how much that may be wrong."""

    ahead: float
    unsure: float


def read_clock(ask: Callable[[], float]) -> Reading:
    """``ask`` returns the server's time, in seconds since 1970."""
    return min((_read(ask) for _ in range(READINGS)), key=lambda one: one.unsure)


def _read(ask: Callable[[], float]) -> Reading:
    before = time.time()
    theirs = ask()
    after = time.time()
    return Reading(theirs - (before + after) / 2, abs(after - before) / 2)


def compare(readings: Mapping[str, Reading], matters: str, apart: float = APART) -> list[Finding]:
    """One finding about this host, and one about the servers among each other. ``matters``: why the latter do."""
    if not readings:
        return []
    found = [_with_this_host(readings, apart)]
    if len(readings) > 1:
        found.append(_among(readings, matters, apart))
    return found


def _with_this_host(readings: Mapping[str, Reading], apart: float) -> Finding:
    name, worst = max(readings.items(), key=lambda item: abs(item[1].ahead))
    if abs(worst.ahead) - worst.unsure <= apart:
        return ok("clock", f"clocks agree with this host within {_text(abs(worst.ahead) + worst.unsure)}")
    way = "ahead of" if worst.ahead > 0 else "behind"
    return warning(
        "clock",
        f"the clock of {name} is {_text(abs(worst.ahead))} {way} that of this host",
        "Leases do not depend on the clock of this host; fences, audit entries and logs have the server's time, and "
        "after a move to another store fences are compared with it",
        SLEW,
    )


def _among(readings: Mapping[str, Reading], matters: str, apart: float) -> Finding:
    first, last = min(readings, key=lambda one: readings[one].ahead), max(readings, key=lambda one: readings[one].ahead)
    spread = readings[last].ahead - readings[first].ahead
    if spread - readings[first].unsure - readings[last].unsure <= apart:
        return ok("clock", f"the clocks of {len(readings)} servers agree within {_text(spread)}")
    return warning("clock", f"the clock of {first} is {_text(spread)} behind that of {last}", matters, SLEW)


def off_median(readings: Mapping[str, Reading]) -> dict[str, float]:
    """How far each clock is from the median of all of them, for certain."""
    middle = median(one.ahead for one in readings.values())
    return {name: max(abs(one.ahead - middle) - one.unsure, 0.0) for name, one in readings.items()}


def _text(seconds: float) -> str:
    return f"{seconds * 1000:.0f} ms" if seconds < 1 else f"{seconds:.1f} s"
