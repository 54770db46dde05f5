"""What to do about the ticks that are due. Pure: the same books and the same time give the same plan.

A tick is due from its time on, by the clock of whoever looks, until the books say that it is settled: it was claimed,
or is known to be missed or skipped. So a clock that is late finds it done, and one that was set back too.
"""

from __future__ import annotations

from typing import NamedTuple

from leasehold.patterns.cron.lines import MISSED, SKIPPED, Line, State
from leasehold.patterns.cron.schedule import Schedule

MOST = 1000  # ticks that are looked at, and that are made up for


class Policy(NamedTuple):
    """``grace``: for how many seconds a tick is due now, and not missed."""

    missed: str
    overlap: str
    grace: float


class Plan(NamedTuple):
    """``tick`` is to be run, if any is. ``last`` is what is settled with it, and ``lines`` tell what was not run."""

    last: int
    tick: int | None = None
    lines: tuple[Line, ...] = ()


def decide(state: State | None, schedule: Schedule, policy: Policy, now: float, since: float) -> Plan | None:
    """None: nothing is due. ``since`` is when this process began: nothing is missed before a schedule was known."""
    known = state is not None and state.schedule == schedule.text
    settled = 0 if state is None else state.last
    floor = settled if known else max(settled, min(since, now))
    ticks = schedule.recent(floor, now, MOST)
    if not ticks:
        return None if known else Plan(max(int(now), settled))
    fates = [(tick, state is not None and state.busy_at(tick)) for tick in ticks[-MOST:]]
    lines = _forgotten(schedule, floor, ticks)
    latest = max((tick for tick, busy in fates if not (busy and policy.overlap == "skip")), default=None)
    for tick, busy in fates:
        if tick == latest and (busy or policy.missed != "skip" or now - tick <= policy.grace):
            return Plan(tick, tick, _merged(lines))
        if policy.missed == "all" and not (busy and policy.overlap == "skip"):
            return Plan(tick, tick, _merged(lines))
        lines.append(Line(tick, SKIPPED if busy else MISSED))
    return Plan(ticks[-1], None, _merged(lines))


def _forgotten(schedule: Schedule, floor: float, ticks: list[int]) -> list[Line]:
    """Those that are too many to look at."""
    first = schedule.after(floor)
    if first == ticks[-MOST:][0]:
        return []
    return [Line(first, MISSED, until=[first, *ticks[:-MOST]][-1], ticks=None)]


def _merged(lines: list[Line]) -> tuple[Line, ...]:
    """Neighbours of one fate are one line."""
    merged: list[Line] = []
    for line in lines:
        if merged and merged[-1].outcome == line.outcome:
            before = merged[-1]
            ticks = None if before.ticks is None else before.ticks + 1
            merged[-1] = before._replace(until=line.tick, ticks=ticks)
        else:
            merged.append(line)
    return tuple(merged)
