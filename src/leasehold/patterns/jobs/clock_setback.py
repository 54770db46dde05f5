"""When the clock of the database is set back, leases and pauses would last longer by that step (trap 49).

A row holds from when its times are counted (``counted_from``). If that is later than now, the clock was set back since:
what was so long from then becomes so long from now. So a lease ends no later than its own length after this is noticed,
and no live worker loses its job, because its heartbeats come sooner than that. In a table without this column only a
lease that ends later than any lease can is shortened, to the longest that there is.

Every few seconds a claim compares the clock of the database with its own. It checks the rows when that clock was set
back, and once in the beginning.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from leasehold._core.policy import MAX_TTL_MS
from leasehold._sql.run import StatementFlow
from leasehold._sql.statements import Statement
from leasehold.patterns.jobs.statements import JobStatements

if TYPE_CHECKING:
    from leasehold.patterns.jobs.base import BaseJobs
    from leasehold.patterns.jobs.flows import Flow

R = TypeVar("R")
SOONEST = 1.0  # seconds between two readings of the clock
UNSEEN = 1.0  # seconds by which it may be set back without consequences
DRIFT = 0.01  # and what it may lose by itself
LONGEST = MAX_TTL_MS / 1000
ENDS = {"running": "lease_until", "ready": "run_at"}


class ClockReadings:
    """When one worker read the database's clock, and what it showed: no I/O."""

    def __init__(self, lease: float) -> None:
        self._every = max(lease / 3, SOONEST)
        self._next = 0.0
        self._last: tuple[float, float] | None = None  # our own time when the reply came, and what the clock showed

    def due(self, now: float) -> bool:
        """Is it time to read the clock? One thread gets True and reads it, the others go on."""
        if now < self._next:
            return False
        self._next = now + self._every
        return True

    def set_back(self, sent: float, shown: float) -> bool:
        """Does the clock show less than it must since the last reading? True without one."""
        if self._last is None:
            return True
        replied, before = self._last
        return shown - before < (sent - replied) * (1 - DRIFT) - UNSEEN

    def keep(self, now: float, shown: float) -> None:
        """Remember this reading."""
        self._last = (now, shown)

    def failed(self) -> None:
        """The next claim reads the clock."""
        self._next = 0.0


def with_clock_check(jobs: BaseJobs, work: Callable[[Any], StatementFlow[R]], **more: Any) -> Flow[R]:
    """Work that searches for jobs. When it is time, the clock is read first, and times that are too far ahead are
    corrected."""
    readings: ClockReadings = jobs._clock_readings
    if not readings.due(sent := jobs._now()):
        return (yield from jobs._query(work, None, alone=True, **more))
    shown = 0.0

    def whole(statements: JobStatements) -> StatementFlow[R]:
        nonlocal shown
        shown = float((yield clock_shown(statements)).rows[0][0]) / statements.clock("lease_until").given(1.0)
        if readings.set_back(sent, shown):
            for correction in (ahead(statements, "running"), ahead(statements, "ready"), too_long(statements)):
                if correction is not None and (yield correction[0]).rows:
                    yield correction[1]
        return (yield from work(statements))

    try:
        found = yield from jobs._query(whole, None, alone=True, **more)
    except BaseException:  # it may have been rolled back
        readings.failed()
        raise
    readings.keep(jobs._now(), shown)
    return found


Correction = tuple[Statement, Statement]  # is there any row? and the change of all of them


def clock_shown(statements: JobStatements) -> Statement:
    """-> the time of the database, as a number."""
    clock = statements.clock("lease_until")
    return statements.cached("clock", lambda: f"SELECT {clock.number(clock.moment)}", (), True)


def ahead(statements: JobStatements, state: str) -> Correction | None:
    """Jobs in this state whose end is counted from later than now: it becomes as far from now."""
    if not statements.has("counted_from") or not statements.has(ENDS[state]):
        return None
    end, start = statements.clock(ENDS[state]), statements.clock("counted_from")
    column, counted = statements.column(ENDS[state]), statements.column("counted_from")
    late = f"{counted} > {start.later_by(str(start.given(UNSEEN)))}"
    length = f"({end.number(column)} - {start.number(counted)})"
    sets = f"{column} = {end.later_by(length)}, {counted} = {start.moment}"
    return _correction(statements, state, f"{column} > {end.now} AND {late}", sets)


def too_long(statements: JobStatements) -> Correction:
    """Jobs whose lease would last for longer than any lease may."""
    end, column = statements.clock("lease_until"), statements.column("lease_until")
    late = f"{column} > {end.later_by(str(end.given(LONGEST + UNSEEN)))}"
    return _correction(statements, "running", late, f"{column} = {end.later_by(str(end.given(LONGEST)))}", "too long")


def _correction(statements: JobStatements, state: str, late: str, sets: str, what: str = "ahead") -> Correction:
    """In MariaDB an UPDATE alone would wait for locked rows that it need not change."""
    where = f"WHERE {statements.column('state')} = {statements.state(state)} AND {late}"
    search = f"SELECT 1 FROM {statements.table} {where} LIMIT 1"  # noqa: S608 - quoted names
    change = f"UPDATE {statements.table} SET {sets} {where}"  # noqa: S608 - quoted names
    return (
        statements.cached((what, state, "search"), lambda: search, (), True),
        statements.cached((what, state), lambda: change, (), False),
    )
