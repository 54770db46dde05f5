"""A database whose clock was set back: what its table would then make wait for longer by the step (trap 49).

The row says from when on its times were counted (``counted_from``). If that is later than now, the clock was set back
since, and what was so long from then is so long from now. So a lease ends no later than its own length after the first
look, and no live worker is robbed, because its heartbeats come sooner than that. Where the table has no such column,
only a lease that ends later than any can is brought back, to the longest that there is.

Every few seconds a claim looks at the clock of the database beside its own. It looks at the rows when that was set
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
SOONEST = 1.0  # seconds between two looks at the clock
UNSEEN = 1.0  # seconds that it may be set back by without anybody minding
DRIFT = 0.01  # and what it may lose by itself
LONGEST = MAX_TTL_MS / 1000
ENDS = {"running": "lease_until", "ready": "run_at"}


class Glances:
    """What one worker has seen of the database's clock: no I/O."""

    def __init__(self, lease: float) -> None:
        self._every = max(lease / 3, SOONEST)
        self._next = 0.0
        self._seen: tuple[float, float] | None = None  # our own time when the answer had come, and what it said

    def due(self, now: float) -> bool:
        """Is it time? The thread that is told so looks, and the others go on."""
        if now < self._next:
            return False
        self._next = now + self._every
        return True

    def set_back(self, sent: float, shown: float) -> bool:
        """Does the clock show less than it must, since we have looked at it? Also when we have not."""
        if self._seen is None:
            return True
        answered, before = self._seen
        return shown - before < (sent - answered) * (1 - DRIFT) - UNSEEN

    def keep(self, now: float, shown: float) -> None:
        self._seen = (now, shown)

    def failed(self) -> None:
        """The next one looks."""
        self._next = 0.0


def glancing(jobs: BaseJobs, work: Callable[[Any], StatementFlow[R]], **more: Any) -> Flow[R]:
    """Some work that looks for jobs. When it is time, the clock is looked at first, and what is too far ahead is
    brought back."""
    glances: Glances = jobs._glances
    if not glances.due(sent := jobs._now()):
        return (yield from jobs._asking(work, None, alone=True, **more))
    shown = 0.0

    def whole(phrases: JobStatements) -> StatementFlow[R]:
        nonlocal shown
        shown = float((yield clock_shown(phrases)).rows[0][0]) / phrases.clock("lease_until").given(1.0)
        if glances.set_back(sent, shown):
            for bring in (ahead(phrases, "running"), ahead(phrases, "ready"), too_long(phrases)):
                if bring is not None and (yield bring[0]).rows:
                    yield bring[1]
        return (yield from work(phrases))

    try:
        found = yield from jobs._asking(whole, None, alone=True, **more)
    except BaseException:  # it may have been rolled back
        glances.failed()
        raise
    glances.keep(jobs._now(), shown)
    return found


Both = tuple[Statement, Statement]  # is there any? and what to do about all of them


def clock_shown(phrases: JobStatements) -> Statement:
    """-> the time, as a number."""
    clock = phrases.clock("lease_until")
    return phrases.said("clock", lambda: f"SELECT {clock.number(clock.moment)}", (), True)


def ahead(phrases: JobStatements, state: str) -> Both | None:
    """Those in this state whose end was counted from later than now: it is as far from now."""
    if not phrases.has("counted_from") or not phrases.has(ENDS[state]):
        return None
    end, start = phrases.clock(ENDS[state]), phrases.clock("counted_from")
    column, counted = phrases.column(ENDS[state]), phrases.column("counted_from")
    late = f"{counted} > {start.later_by(str(start.given(UNSEEN)))}"
    length = f"({end.number(column)} - {start.number(counted)})"
    sets = f"{column} = {end.later_by(length)}, {counted} = {start.moment}"
    return _both(phrases, state, f"{column} > {end.now} AND {late}", sets)


def too_long(phrases: JobStatements) -> Both:
    """Those whose lease would last for longer than any that can be asked for."""
    end, column = phrases.clock("lease_until"), phrases.column("lease_until")
    late = f"{column} > {end.later_by(str(end.given(LONGEST + UNSEEN)))}"
    return _both(phrases, "running", late, f"{column} = {end.later_by(str(end.given(LONGEST)))}", "too long")


def _both(phrases: JobStatements, state: str, late: str, sets: str, what: str = "ahead") -> Both:
    """An UPDATE alone would wait, in MariaDB, for rows of others that it need not change."""
    where = f"WHERE {phrases.column('state')} = {phrases.state(state)} AND {late}"
    look, change = f"SELECT 1 FROM {phrases.table} {where} LIMIT 1", f"UPDATE {phrases.table} SET {sets} {where}"  # noqa: S608 - quoted names
    return (
        phrases.said((what, state, "look"), lambda: look, (), True),
        phrases.said((what, state), lambda: change, (), False),
    )
