"""When ticks are, and what to do about those that are due: a cron expression in a time zone, and a policy.

Ticks are whole seconds since 1970, so that times of two zones, or of an hour that comes twice, compare correctly."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from datetime import UTC, datetime, tzinfo
from typing import Any, NamedTuple, Protocol

from leasehold.errors import InvalidRequest, Unsupported
from leasehold.patterns.cron.state import MISSED, SKIPPED, CronState, RunRecord

# ---------------------------------------------------------------- clock
#
# Ticks are due by the wall clock. Tests bring a clock of their own.


LONGEST_NAP = 60.0  # seconds: then the clock is read again, for it may have been set


class CronClock(Protocol):
    """The clock of a cron: seconds since 1970. ``real``: it can be compared with the clocks of other machines."""

    real: bool

    def now(self) -> float:
        """The current time."""

    def nap(self, until: float) -> float:
        """For how many real seconds to sleep before reading the clock again, if there is nothing to do until then."""


class WallClock:
    """The clock of this machine."""

    real = True

    def now(self) -> float:
        return time.time()

    def nap(self, until: float) -> float:
        return min(max(until - self.now(), 0.0), LONGEST_NAP)


# ---------------------------------------------------------------- schedule


ALIASES = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
LONGEST_EXPRESSION = 200  # characters
FIRST_WINDOW = 60.0  # seconds
WINDOW_GROWTH = 4
HOST_ZONES = ("localtime", "posixrules")  # files of the zone database that each administrator sets
ADVICE = "such as '*/5 * * * *' (minute, hour, day of month, month, day of week) or '@daily'"


class Schedule:
    """A cron expression in a time zone. Summer time is treated as in Debian's cron: a tick in the hour that is left out
    runs right after it, and a tick in the hour that comes twice runs once, unless it is meant for every hour or
    minute."""

    __slots__ = ("_parts", "_simulator", "expression", "text", "timezone", "zone")

    def __init__(self, expression: str, timezone: str = "UTC") -> None:
        self._simulator, wrong = _cronsim()
        self.zone = zone_of(timezone)
        self.timezone = timezone
        self.expression = _normalized(expression)
        self._parts = ALIASES.get(self.expression.lower(), self.expression)
        self.text = f"{self._parts} {timezone}"  # equal schedules have equal texts
        try:
            self.after(0.0)
        except (wrong, AssertionError, ValueError) as error:
            if isinstance(error, InvalidRequest):
                raise
            raise InvalidRequest(
                f"{self.expression!r} is no cron expression, or one that never fires ({error}): write one {ADVICE}"
            ) from error

    def after(self, moment: float) -> int:
        """The first tick after this moment."""
        return next(self._ticks(moment))

    def recent(self, floor: float, moment: float, most: int) -> list[int]:
        """The ticks after ``floor`` and up to ``moment``; of many, at least the latest ``most``. The window grows step
        by step, so that years of minutes are not enumerated."""
        window = FIRST_WINDOW
        while True:
            begin = max(floor, moment - window)
            found = []
            for tick in self._ticks(begin):
                if tick > moment:
                    break
                found.append(tick)
            if len(found) >= most or begin <= floor:
                return found
            window *= WINDOW_GROWTH

    def moment(self, tick: float) -> datetime:
        """A tick as a datetime in the time zone of the schedule."""
        return datetime.fromtimestamp(tick, self.zone)

    def _ticks(self, moment: float) -> Iterator[int]:
        """All ticks after a moment. In an hour that comes twice the simulator also gives earlier ones."""
        begun = False
        for found in self._simulator(self._parts, self.moment(math.floor(moment))):
            tick = int(found.timestamp())
            if tick > moment:
                begun = True
                yield tick
        if not begun:
            raise InvalidRequest(f"the cron expression {self.expression!r} never fires: there is no such day")

    def __repr__(self) -> str:
        return f"<Schedule {self.text}>"


def _cronsim() -> tuple[Any, type[Exception]]:
    try:
        from cronsim import CronSim, CronSimError
    except ModuleNotFoundError as error:
        raise Unsupported("cron needs cronsim. Please type:  pip install 'leasehold[cron]'") from error
    return CronSim, CronSimError


def _normalized(expression: object) -> str:
    if not isinstance(expression, str):
        raise InvalidRequest(f"a cron expression is text {ADVICE}, not {type(expression).__name__}")
    line = " ".join(expression.split())
    if not line or len(expression) > LONGEST_EXPRESSION or not line.isprintable():
        raise InvalidRequest(f"a cron expression is one line of at most {LONGEST_EXPRESSION} characters, {ADVICE}")
    if line.startswith("@") and line.lower() not in ALIASES:
        raise InvalidRequest(f"{line!r} is not known: there is {', '.join(ALIASES)}, or an expression {ADVICE}")
    return line


def zone_of(name: object) -> tzinfo:
    """The time zone of that name. UTC needs no zone database."""
    if not isinstance(name, str):
        raise InvalidRequest(f"timezone is a name such as 'Europe/Amsterdam', not {type(name).__name__}")
    if name == "UTC":
        return UTC
    if name in HOST_ZONES:
        raise InvalidRequest(f"{name!r} may be another time zone on every host: write its name, 'Europe/Amsterdam'")
    from zoneinfo import ZoneInfo, available_timezones

    try:
        return ZoneInfo(name)
    except (LookupError, OSError, ValueError) as error:
        if not available_timezones():
            raise Unsupported("this system knows no time zones. Please type:  pip install tzdata") from error
        raise InvalidRequest(f"{name[:60]!r} is no time zone: write one such as 'Europe/Amsterdam' or 'UTC'") from error


# ---------------------------------------------------------------- due ticks
#
# What to do about the ticks that are due. Pure: the same state and the same time give the same result.
#
# A tick is due from its time on, by the clock of the process that decides, until the state says that it is settled: it
# was claimed, or recorded as missed or skipped. So a process whose clock is late or was set back finds it settled.


MOST_TICKS = 1000  # ticks that are considered, and at most made up for


class Policy(NamedTuple):
    """What to do about ticks that were not run in time. ``grace``: the seconds after which a tick counts as missed."""

    missed: str
    overlap: str
    grace: float


class DueTicks(NamedTuple):
    """``tick`` is to be run, if there is one. Everything up to ``last`` is settled with it; ``lines`` record the ticks
    that are not run. ``busy``: according to the state, another process holds the lease now."""

    last: int
    tick: int | None = None
    lines: tuple[RunRecord, ...] = ()
    busy: bool = False


def decide(state: CronState | None, schedule: Schedule, policy: Policy, now: float, since: float) -> DueTicks | None:
    """What is due; None: nothing. ``since`` is when this process began: no tick before that counts as missed for a new
    schedule."""
    known, floor = _floor(state, schedule, now, since)
    ticks = schedule.recent(floor, now, MOST_TICKS)
    if not ticks:
        return None if known else DueTicks(max(int(now), floor))
    lines = _too_old(schedule, floor, ticks)
    latest = next((tick for tick in reversed(ticks) if not _is_skipped(state, policy, tick)), None)
    for tick in ticks[-MOST_TICKS:]:
        busy = state is not None and state.busy_at(tick)
        due = tick == latest and (busy or policy.missed != "skip" or now - tick <= policy.grace)
        if due or (policy.missed == "all" and not _is_skipped(state, policy, tick)):
            return DueTicks(tick, tick, _merged(lines))
        lines.append(RunRecord(tick, SKIPPED if busy else MISSED))
    return DueTicks(ticks[-1], None, _merged(lines))


def next_due(state: CronState | None, schedule: Schedule, policy: Policy, now: float, since: float) -> DueTicks | None:
    """What seems to be due, for a process without the lease: if many ticks are made up for, only the first matters."""
    if policy.missed == "all":
        known, floor = _floor(state, schedule, now, since)
        first = schedule.after(floor)
        if first > now and known:
            return None
        if first <= now and not _is_skipped(state, policy, first):
            return DueTicks(first, first)
    return decide(state, schedule, policy, now, since)


def _floor(state: CronState | None, schedule: Schedule, now: float, since: float) -> tuple[bool, int]:
    """Is this the schedule that was followed until now? And up to when is everything settled?"""
    settled = 0 if state is None else state.last
    if state is not None and state.schedule == schedule.text:
        return True, settled
    return False, max(settled, math.floor(min(since, now)))


def _is_skipped(state: CronState | None, policy: Policy, tick: int) -> bool:
    return policy.overlap == "skip" and state is not None and state.busy_at(tick)


def _too_old(schedule: Schedule, floor: float, ticks: list[int]) -> list[RunRecord]:
    """One record for the ticks that are too many to consider."""
    first = schedule.after(floor)
    if first == ticks[-MOST_TICKS:][0]:
        return []
    return [RunRecord(first, MISSED, until=[first, *ticks[:-MOST_TICKS]][-1], ticks=None)]


def _merged(lines: list[RunRecord]) -> tuple[RunRecord, ...]:
    """Neighbours with the same outcome become one line."""
    merged: list[RunRecord] = []
    for line in lines:
        if merged and merged[-1].outcome == line.outcome:
            before = merged[-1]
            ticks = None if before.ticks is None else before.ticks + 1
            merged[-1] = before._replace(until=line.tick, ticks=ticks)
        else:
            merged.append(line)
    return tuple(merged)
