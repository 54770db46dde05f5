"""When ticks are: a cron expression in a time zone. Ticks are whole seconds since 1970, so that no two zones, and no
two hours of the same name, are compared."""

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
# The wall clock, by which ticks are due. Tests bring one of their own.


LONGEST_NAP = 60.0  # seconds: then the clock is looked at again, for it may have been set


class CronClock(Protocol):
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
HOST_ZONES = ("localtime", "posixrules")  # files of the database that administrators set
ADVICE = "such as '*/5 * * * *' (minute, hour, day of month, month, day of week) or '@daily'"


class Schedule:
    """One expression. Summer time is treated as Debian's cron does it: what falls into the hour that is left out runs
    right after it, and what falls into the hour that comes twice runs once, unless it is meant for every hour or
    minute."""

    __slots__ = ("_parts", "_simulator", "expression", "text", "timezone", "zone")

    def __init__(self, expression: str, timezone: str = "UTC") -> None:
        self._simulator, wrong = _cronsim()
        self.zone = zone_of(timezone)
        self.timezone = timezone
        self.expression = _one_line(expression)
        self._parts = ALIASES.get(self.expression.lower(), self.expression)
        self.text = f"{self._parts} {timezone}"  # the same schedule is written in the same way
        try:
            self.after(0.0)
        except (wrong, AssertionError, ValueError) as error:
            if isinstance(error, InvalidRequest):
                raise
            raise InvalidRequest(
                f"{self.expression!r} is no cron expression, or one that never fires ({error}): write one {ADVICE}"
            ) from error

    def after(self, moment: float) -> int:
        """The first tick that is later than this."""
        return next(self._ticks(moment))

    def recent(self, floor: float, moment: float, most: int) -> list[int]:
        """Those later than ``floor`` and not later than ``moment``; of many, at least the latest ``most``. It looks at
        a wider and wider window: years of minutes are not counted."""
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
        """As people read it, in the time zone of the schedule."""
        return datetime.fromtimestamp(tick, self.zone)

    def _ticks(self, moment: float) -> Iterator[int]:
        """All that are later. In an hour that comes twice the simulator begins before its beginning."""
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


def _one_line(expression: object) -> str:
    if not isinstance(expression, str):
        raise InvalidRequest(f"a cron expression is text {ADVICE}, not {type(expression).__name__}")
    line = " ".join(expression.split())
    if not line or len(expression) > LONGEST_EXPRESSION or not line.isprintable():
        raise InvalidRequest(f"a cron expression is one line of at most {LONGEST_EXPRESSION} characters, {ADVICE}")
    if line.startswith("@") and line.lower() not in ALIASES:
        raise InvalidRequest(f"{line!r} is not known: there is {', '.join(ALIASES)}, or an expression {ADVICE}")
    return line


def zone_of(name: object) -> tzinfo:
    """By its name; UTC needs no database."""
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


# ---------------------------------------------------------------- plan
#
# What to do about the ticks that are due. Pure: the same books and the same time give the same plan.
#
# A tick is due from its time on, by the clock of whoever looks, until the books say that it is settled: it was
# claimed, or is known to be missed or skipped. So a clock that is late finds it done, and one that was set back too.


MOST_TICKS = 1000  # ticks that are looked at, and that are made up for


class Policy(NamedTuple):
    """``grace``: for how many seconds a tick is due now, and not missed."""

    missed: str
    overlap: str
    grace: float


class DueTicks(NamedTuple):
    """``tick`` is to be run, if any is. ``last`` is what is settled with it, and ``lines`` tell what was not run.
    ``taken``: by what the books say, somebody holds the lease now."""

    last: int
    tick: int | None = None
    lines: tuple[RunRecord, ...] = ()
    busy: bool = False


def decide(state: CronState | None, schedule: Schedule, policy: Policy, now: float, since: float) -> DueTicks | None:
    """None: nothing is due. ``since`` is when this process began: nothing is missed before a schedule was known."""
    known, floor = _floor(state, schedule, now, since)
    ticks = schedule.recent(floor, now, MOST_TICKS)
    if not ticks:
        return None if known else DueTicks(max(int(now), floor))
    lines = _forgotten(schedule, floor, ticks)
    latest = next((tick for tick in reversed(ticks) if not _left_out(state, policy, tick)), None)
    for tick in ticks[-MOST_TICKS:]:
        busy = state is not None and state.busy_at(tick)
        due = tick == latest and (busy or policy.missed != "skip" or now - tick <= policy.grace)
        if due or (policy.missed == "all" and not _left_out(state, policy, tick)):
            return DueTicks(tick, tick, _merged(lines))
        lines.append(RunRecord(tick, SKIPPED if busy else MISSED))
    return DueTicks(ticks[-1], None, _merged(lines))


def next_due(state: CronState | None, schedule: Schedule, policy: Policy, now: float, since: float) -> DueTicks | None:
    """What may be to be done, for those who only look: where many are to be made up for, only the first matters."""
    if policy.missed == "all":
        known, floor = _floor(state, schedule, now, since)
        first = schedule.after(floor)
        if first > now and known:
            return None
        if first <= now and not _left_out(state, policy, first):
            return DueTicks(first, first)
    return decide(state, schedule, policy, now, since)


def _floor(state: CronState | None, schedule: Schedule, now: float, since: float) -> tuple[bool, int]:
    """Is this the schedule that was followed until now? And up to when nothing is to be done."""
    settled = 0 if state is None else state.last
    if state is not None and state.schedule == schedule.text:
        return True, settled
    return False, max(settled, math.floor(min(since, now)))


def _left_out(state: CronState | None, policy: Policy, tick: int) -> bool:
    return policy.overlap == "skip" and state is not None and state.busy_at(tick)


def _forgotten(schedule: Schedule, floor: float, ticks: list[int]) -> list[RunRecord]:
    """Those that are too many to look at."""
    first = schedule.after(floor)
    if first == ticks[-MOST_TICKS:][0]:
        return []
    return [RunRecord(first, MISSED, until=[first, *ticks[:-MOST_TICKS]][-1], ticks=None)]


def _merged(lines: list[RunRecord]) -> tuple[RunRecord, ...]:
    """Neighbours of one fate are one line."""
    merged: list[RunRecord] = []
    for line in lines:
        if merged and merged[-1].outcome == line.outcome:
            before = merged[-1]
            ticks = None if before.ticks is None else before.ticks + 1
            merged[-1] = before._replace(until=line.tick, ticks=ticks)
        else:
            merged.append(line)
    return tuple(merged)
