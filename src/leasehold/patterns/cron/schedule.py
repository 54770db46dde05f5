"""When ticks are: a cron expression in a time zone. Ticks are whole seconds since 1970, so that no two zones, and no
two hours of the same name, are compared."""

from __future__ import annotations

import math
from collections.abc import Iterator
from datetime import UTC, datetime, tzinfo
from typing import Any

from leasehold.errors import InvalidRequest, Unsupported

ALIASES = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
LONGEST = 200  # characters
FIRST_WINDOW = 60.0  # seconds
WIDER = 4
OF_THE_MACHINE = ("localtime", "posixrules")  # files of the database that administrators set
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
            window *= WIDER

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
    if not line or len(expression) > LONGEST or not line.isprintable():
        raise InvalidRequest(f"a cron expression is one line of at most {LONGEST} characters, {ADVICE}")
    if line.startswith("@") and line.lower() not in ALIASES:
        raise InvalidRequest(f"{line!r} is not known: there is {', '.join(ALIASES)}, or an expression {ADVICE}")
    return line


def zone_of(name: object) -> tzinfo:
    """By its name; UTC needs no database."""
    if not isinstance(name, str):
        raise InvalidRequest(f"timezone is a name such as 'Europe/Amsterdam', not {type(name).__name__}")
    if name == "UTC":
        return UTC
    if name in OF_THE_MACHINE:
        raise InvalidRequest(f"{name!r} may be another time zone on every host: write its name, 'Europe/Amsterdam'")
    from zoneinfo import ZoneInfo, available_timezones

    try:
        return ZoneInfo(name)
    except (LookupError, OSError, ValueError) as error:
        if not available_timezones():
            raise Unsupported("this system knows no time zones. Please type:  pip install tzdata") from error
        raise InvalidRequest(f"{name[:60]!r} is no time zone: write one such as 'Europe/Amsterdam' or 'UTC'") from error
