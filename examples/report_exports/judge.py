"""The judge: stale writes and lost updates, counted in what was committed. It knows nothing of guards.

Each transaction has left a line in the table ``history``, together with what it wrote. A transaction that writes to a
report locks its row until the commit, so the numbers of the lines are the order in which these writes took effect.

A write is stale when a worker with a higher fence had begun or written there before. An update is lost when a worker
overwrote an edition without having read it: then there are fewer editions than were saved.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import psycopg

WRITES = {"saved": "reports", "state": "progress"}  # the table of each
PLACES = {**WRITES, "began": "reports"}


class Line(NamedTuple):
    """What one transaction did."""

    report: int
    what: str  # began, saved, state; lost: the worker noticed by itself; refused: by the guard
    fence: int
    worker: int


class Verdict(NamedTuple):
    """The counts of one run."""

    exports: int
    noticed: int  # leases lost, found out by the worker itself
    stale_tried: int
    stale_accepted: int
    updates_lost: int
    wrongly_refused: int  # although no newer owner had been there

    @property
    def clean(self) -> bool:
        """Whether everything is as it should be with a guard."""
        return not (self.stale_accepted or self.updates_lost or self.wrongly_refused)


def judge(lines: Iterable[Line], editions: Mapping[int, int]) -> Verdict:
    """Read the history in its order. ``editions`` is the edition of each report at the end."""
    highest: dict[tuple[int, str], tuple[int, int]] = {}  # the highest fence at each place, and its worker
    newest: dict[int, int] = {}
    count = dict.fromkeys(("saved", "state", "began", "lost", "refused"), 0)
    accepted = wrongly = 0
    for line in lines:
        count[line.what] += 1
        if line.what in PLACES:
            place, mine = (line.report, PLACES[line.what]), (line.fence, line.worker)
            last = highest.get(place, mine)
            accepted += line.what in WRITES and (mine[0] < last[0] or (mine[0] == last[0] and mine != last))
            highest[place] = max(mine, last)
            newest[line.report] = max(line.fence, newest.get(line.report, 0))
        elif line.what == "refused":
            wrongly += newest.get(line.report, 0) <= line.fence
    lost = count["saved"] - sum(editions.values())
    return Verdict(count["saved"], count["lost"], count["refused"] + accepted, accepted, lost, wrongly)


def verdict(connection: psycopg.Connection) -> Verdict:
    """The verdict on everything until now, from one snapshot."""
    with connection.transaction():
        connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        lines = connection.execute("SELECT report, what, fence, worker FROM history ORDER BY id").fetchall()
        editions = connection.execute("SELECT id, edition FROM reports").fetchall()
    return judge([Line(*line) for line in lines], dict(editions))
