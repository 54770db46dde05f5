"""The judge. What workers say that they did, line by line in one file, against what the target says that it did.

A line is appended in one call, so the file has one order for all processes, and a killed worker takes no line with it.
It tells of a write before it tries and again when it knows the outcome: who is killed in between leaves an open try,
which may have happened or not. Everything else must agree to the last write.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from leasehold.guards.fence import Fenced
from tests.model.stale_owner.targets import Write
from tests.support.workers import journal

PRESENTED, READ = "presented", "read"  # the fence was accepted when it read; was it remembered?
TRY, DONE, REFUSED, NOTHING, UNKNOWN = "try", "done", "refused", "nothing", "unknown"


class Line(NamedTuple):
    """Something that a worker did."""

    what: str
    resource: str
    fence: int
    note: str
    worker: str


class Log:
    """The end of the file, for one worker."""

    def __init__(self, path: str, worker: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._worker = worker

    def add(self, what: str, lease: Fenced, note: str) -> None:
        """One line, in one piece."""
        line = Line(what, lease.resource, lease.fence or 0, note, self._worker)
        os.write(self._file, json.dumps(line).encode() + b"\n")


def read_log(path: str, resource: str) -> list[Line]:
    """Every line about this resource, in order."""
    with Path(path).open(encoding="utf-8") as lines:
        return [line for line in (Line(*json.loads(text)) for text in lines) if line.resource == resource]


def last_line(path: str) -> Line | None:
    """The newest one, if there is any."""
    with Path(path).open("rb") as lines:
        lines.seek(-min(lines.seek(0, os.SEEK_END), 500), os.SEEK_END)
        newest = lines.read().splitlines()[-1:]
    return Line(*json.loads(newest[0])) if newest else None


class Verdict(NamedTuple):
    """What happened, counted."""

    writes: int  # that the target did
    tried: int  # stale writes
    accepted: int  # of those
    lost: int  # updates that another one overwrote without having seen, or that are gone
    phantoms: int  # writes that happened although their writer was told no, or that nobody tried

    def __str__(self) -> str:
        told = f"{self.writes} writes, {self.tried} stale tried, {self.accepted} accepted"
        return f"{told}, {self.lost} updates lost, {self.phantoms} phantoms"


def judge(lines: Sequence[Line], value: int, history: Sequence[Write]) -> Verdict:
    """Compare."""
    workers = {line.note: line.worker for line in lines}
    outcome = {line.note: line.what for line in lines if line.note}  # the last word on each
    stale = stale_in_order(history, workers) | stale_in_time(lines)
    refused = {note for note, what in outcome.items() if what == REFUSED}
    written = [write.note for write in history]
    record = journal.Record(value, [], [write.value for write in history], [], 0)
    gone = {note for note, what in outcome.items() if what == DONE} - set(written)
    phantoms = sum(outcome.get(note) in (None, REFUSED, NOTHING) for note in written)
    return Verdict(len(history), len(refused | stale), len(stale), journal.lost_updates(record) + len(gone), phantoms)


def stale_in_order(history: Sequence[Write], workers: dict[str, str]) -> set[str]:
    """Writes whose fence is below one that the target had taken before, or equal to another's (I3)."""
    stale, highest, holder = set(), 0, None
    for write in history:
        worker = workers.get(write.note)
        if write.fence < highest or (write.fence == highest and worker != holder):
            stale.add(write.note)
        else:
            highest, holder = write.fence, worker
    return stale


def stale_in_time(lines: Sequence[Line]) -> set[str]:
    """Writes that were accepted although, before they were tried, a newer fence had been: the target is not asked."""
    stale, highest = set(), 0
    before: dict[str, int] = {}
    for line in lines:
        if line.what in (PRESENTED, DONE):
            if line.what == DONE and line.fence < before.get(line.note, 0):
                stale.add(line.note)
            highest = max(highest, line.fence)
        elif line.what == TRY:
            before[line.note] = highest
    return stale
