"""What is remembered of a cron: up to when all ticks are settled, and the last runs. One text on a result store."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any, NamedTuple

from leasehold.errors import InvalidRequest
from leasehold.patterns.serialization import document, read_document

MARK = "cron/1"
KEPT = 100  # lines
LONGEST_ERROR = 300  # characters

RUNNING, OK, ERROR, LOST, DIED, MISSED, SKIPPED = "running", "ok", "error", "lost", "died", "missed", "skipped"


class Run(NamedTuple):
    """One line of the history: a run of a tick, or ticks that were not run.

    ``outcome`` is ``ok``, ``error`` (see ``error``), ``running``, ``lost`` (the lease was lost before the run ended),
    ``died`` (its process was gone, or out of reach, until its lease had ended: how far it came is not known),
    ``skipped`` (due while an earlier run was running) or ``missed`` (no process was there). The latter two may stand
    for several ticks, from ``tick`` to ``until``: ``ticks`` says how many, None means more than a thousand."""

    tick: datetime
    outcome: str
    started: datetime | None = None
    ended: datetime | None = None
    by: str = ""
    fence: int = 0
    error: str = ""
    until: datetime | None = None
    ticks: int | None = 1


class RunRecord(NamedTuple):
    """A ``Run`` as it is stored: times are seconds since 1970, by the clock of the writer."""

    tick: int
    outcome: str
    started: float | None = None
    ended: float | None = None
    by: str = ""
    fence: int = 0
    error: str = ""
    until: int | None = None  # None: the tick itself
    ticks: int | None = 1

    def shown(self, moment: Callable[[float], datetime]) -> Run:
        """As a ``Run``. ``moment`` converts seconds to a datetime."""
        times = [None if one is None else moment(one) for one in (self.started, self.ended, self.until)]
        return Run(
            moment(self.tick), self.outcome, times[0], times[1], self.by, self.fence, self.error, times[2], self.ticks
        )


class CronState(NamedTuple):
    """``last``: every tick up to then was claimed, missed or skipped. ``at``: the time of the write, by the writer's
    clock."""

    schedule: str
    last: int
    at: float
    lines: tuple[RunRecord, ...] = ()

    def with_lines(self, more: Iterable[RunRecord]) -> CronState:
        """With more lines. The oldest are dropped, but not the last success: a process that was just started has it
        from here, and it matters most after a hundred failures."""
        lines = (*self.lines, *more)
        kept = lines[-KEPT:]
        if all(line.outcome != OK for line in kept):
            success = [line for line in lines[:-KEPT] if line.outcome == OK][-1:]
            kept = (*success, *kept[len(success) :])
        return self._replace(lines=kept)

    def ended(self, tick: int, fence: int, outcome: str, at: float | None = None, error: str = "") -> CronState:
        """With the outcome of the run that began under this fence."""
        lines = [
            line._replace(outcome=outcome, ended=at, error=error[:LONGEST_ERROR])
            if (line.tick, line.fence, line.outcome) == (tick, fence, RUNNING)
            else line
            for line in self.lines
        ]
        return self._replace(lines=tuple(lines))

    def with_dead_runs(self) -> CronState:
        """For the holder of the lease: a run that is recorded as running does not hold it, and so has died."""
        lines = [line._replace(outcome=DIED) if line.outcome == RUNNING else line for line in self.lines]
        return self._replace(lines=tuple(lines))

    def has_running(self) -> bool:
        """Is a run recorded as running?"""
        return any(line.outcome == RUNNING for line in self.lines)

    def busy_at(self, tick: int) -> bool:
        """Was a run running when this tick was due?"""
        return any(
            line.started is not None and line.ended is not None and line.started < tick <= line.ended
            for line in self.lines
        )

    def without_future(self, now: float) -> CronState:
        """Without the future ticks that a machine with a wrong clock has claimed."""
        known = [until for line in self.lines if (until := line.until or line.tick) <= now]
        return self._replace(last=max(known, default=int(now)))


def encode(state: CronState) -> str:
    """As text, without fields that have their default."""
    return document(MARK, {**state._asdict(), "lines": [_short(line) for line in state.lines]})


def decode(text: str, resource: str) -> CronState:
    """Read what ``encode`` wrote. InvalidRequest: something else uses this name."""
    fields = read_document(MARK, text, resource)
    try:
        return CronState(**{**fields, "lines": tuple(RunRecord(**one) for one in fields["lines"])})
    except (TypeError, KeyError) as error:
        raise InvalidRequest(
            "the name is used twice, by another version of the program: give each its own kind", resource=resource
        ) from error


def _short(line: RunRecord) -> dict[str, Any]:
    usual = RunRecord._field_defaults
    return {key: value for key, value in line._asdict().items() if key not in usual or value != usual[key]}
