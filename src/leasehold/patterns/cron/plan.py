"""What to do about the ticks that are due. Pure: the same books and the same time give the same plan.

A tick is due from its time on, by the clock of whoever looks, until the books say that it is settled: it was claimed,
or is known to be missed or skipped. So a clock that is late finds it done, and one that was set back too.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from leasehold.patterns.cron.schedule import Schedule
from leasehold.patterns.cron.state import MISSED, SKIPPED, Line, State

MOST = 1000  # ticks that are looked at, and that are made up for


class Policy(NamedTuple):
    """``grace``: for how many seconds a tick is due now, and not missed."""

    missed: str
    overlap: str
    grace: float


class Plan(NamedTuple):
    """``tick`` is to be run, if any is. ``last`` is what is settled with it, and ``lines`` tell what was not run.
    ``taken``: by what the books say, somebody holds the lease now."""

    last: int
    tick: int | None = None
    lines: tuple[Line, ...] = ()
    taken: bool = False


def decide(state: State | None, schedule: Schedule, policy: Policy, now: float, since: float) -> Plan | None:
    """None: nothing is due. ``since`` is when this process began: nothing is missed before a schedule was known."""
    known, floor = _floor(state, schedule, now, since)
    ticks = schedule.recent(floor, now, MOST)
    if not ticks:
        return None if known else Plan(max(int(now), floor))
    lines = _forgotten(schedule, floor, ticks)
    latest = next((tick for tick in reversed(ticks) if not _left_out(state, policy, tick)), None)
    for tick in ticks[-MOST:]:
        busy = state is not None and state.busy_at(tick)
        due = tick == latest and (busy or policy.missed != "skip" or now - tick <= policy.grace)
        if due or (policy.missed == "all" and not _left_out(state, policy, tick)):
            return Plan(tick, tick, _merged(lines))
        lines.append(Line(tick, SKIPPED if busy else MISSED))
    return Plan(ticks[-1], None, _merged(lines))


def glance(state: State | None, schedule: Schedule, policy: Policy, now: float, since: float) -> Plan | None:
    """What may be to be done, for those who only look: where many are to be made up for, only the first matters."""
    if policy.missed == "all":
        known, floor = _floor(state, schedule, now, since)
        first = schedule.after(floor)
        if first > now and known:
            return None
        if first <= now and not _left_out(state, policy, first):
            return Plan(first, first)
    return decide(state, schedule, policy, now, since)


def _floor(state: State | None, schedule: Schedule, now: float, since: float) -> tuple[bool, int]:
    """Is this the schedule that was followed until now? And up to when nothing is to be done."""
    settled = 0 if state is None else state.last
    if state is not None and state.schedule == schedule.text:
        return True, settled
    return False, max(settled, math.floor(min(since, now)))


def _left_out(state: State | None, policy: Policy, tick: int) -> bool:
    return policy.overlap == "skip" and state is not None and state.busy_at(tick)


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
