"""What the workers protect: a counter in its own database, behind a guard, and a record of who wrote when.

Everything that is judged afterwards is written in the same transaction as the write itself, so that a worker that
is killed takes no evidence with it.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from leasehold.errors import StaleOwner
from leasehold.guards.fence import Fenced
from leasehold.guards.sql import FenceGuard

GUARD = FenceGuard()
SCHEMA = """
CREATE TABLE counter (value INTEGER NOT NULL);
INSERT INTO counter VALUES (0);
CREATE TABLE writes (number INTEGER PRIMARY KEY AUTOINCREMENT, fence INTEGER, worker TEXT, value INTEGER);
CREATE TABLE refused (fence INTEGER, seen INTEGER, worker TEXT);
"""


def now() -> float:
    """Seconds on a clock that all processes of this machine share."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def create(path: str) -> None:
    """An empty journal."""
    with open_journal(path) as journal:
        journal.execute("PRAGMA journal_mode = WAL")
        journal.executescript(SCHEMA)
        GUARD.create(journal)
    journal.close()


def open_journal(path: str) -> sqlite3.Connection:
    """A connection that waits for its turn. Nothing is synced: a killed process loses no write that way."""
    journal = sqlite3.connect(path, timeout=20, isolation_level=None)
    journal.execute("PRAGMA synchronous = OFF")
    return journal


def increment(journal: sqlite3.Connection, lease: Fenced, worker: str, guarded: bool = True) -> int:
    """Read, add one, write. The guard is asked before the first read (trap 46); StaleOwner changes nothing."""
    journal.execute("BEGIN IMMEDIATE")
    try:
        if guarded:
            GUARD.check(journal, lease)
        (value,) = journal.execute("SELECT value FROM counter").fetchone()
        journal.execute("UPDATE counter SET value = ?", (value + 1,))
        journal.execute("INSERT INTO writes (fence, worker, value) VALUES (?, ?, ?)", (lease.fence, worker, value + 1))
    except BaseException as error:
        journal.execute("ROLLBACK")
        if isinstance(error, StaleOwner):
            journal.execute("INSERT INTO refused VALUES (?, ?, ?)", (error.fence, error.seen, worker))
        raise
    journal.execute("COMMIT")
    return int(value) + 1


class Record(NamedTuple):
    """What the journal says in the end."""

    value: int
    fences: list[int]  # of the writes that were committed, in the order of their commits
    values: list[int]
    workers: list[str]
    refused: int


def read(path: str) -> Record:
    """Everything, in the order of the commits."""
    journal = open_journal(path)
    try:
        (value,) = journal.execute("SELECT value FROM counter").fetchone()
        rows = journal.execute("SELECT fence, value, worker FROM writes ORDER BY number").fetchall()
        (refused,) = journal.execute("SELECT count(*) FROM refused").fetchone()
        assert journal.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    finally:
        journal.close()
    fences, values, workers = ([row[column] for row in rows] for column in range(3))
    return Record(value, fences, values, workers, refused)


# ---------------------------------------------------------------- judging


def lost_updates(record: Record) -> int:
    """Writes that another one overwrote without having seen (I4): each is the one before it, and one more."""
    missed = sum(after != before + 1 for before, after in pairwise([0, *record.values]))
    return missed + (record.value != [0, *record.values][-1])


def stale_writes(record: Record) -> int:
    """Committed writes whose fence is not above every earlier one's (I3): each holder writes once."""
    highest, stale = 0, 0
    for fence in record.fences:
        stale += fence <= highest
        highest = max(highest, fence)
    return stale


class Turn(NamedTuple):
    """One holder's time, as it knows it; and, when it had to wait, what stood before it when it came."""

    fence: int
    entered: float
    left: float
    worker: str
    behind: tuple[int, int] | None  # (fence of the holder, waiters ahead)


def turns_of(worker: str, rows: Sequence[Sequence[Any]]) -> list[Turn]:
    """What a worker reports."""
    return [Turn(row[0], row[1], row[2], worker, tuple(row[3]) if row[3] else None) for row in rows]


def overlaps(turns: Sequence[Turn]) -> int:
    """Pairs of neighbours in time who were inside together (I1)."""
    ordered = sorted(turns, key=lambda turn: turn.entered)
    return sum(one.left > other.entered for one, other in pairwise(ordered))


def overtakes(turns: Sequence[Turn]) -> int:
    """Waiters who were served earlier or later than their place in the queue said (I15): between the grant of the
    holder that they found and their own, exactly those who stood before them were granted."""
    place = {turn.fence: number for number, turn in enumerate(sorted(turns, key=lambda turn: turn.fence))}
    wrong = 0
    for turn in turns:
        if turn.behind is not None and turn.behind[0] in place:
            wrong += place[turn.fence] - place[turn.behind[0]] != turn.behind[1] + 1
    return wrong


def unfairness(turns: Sequence[Turn]) -> float:
    """Most grants of one worker over fewest of another, while all of them kept coming back."""
    by_worker: dict[str, list[Turn]] = {}
    for turn in turns:
        by_worker.setdefault(turn.worker, []).append(turn)
    begin = max(min(turn.entered for turn in own) for own in by_worker.values())
    end = min(max(turn.left for turn in own) for own in by_worker.values())
    counts = [sum(begin <= turn.entered <= end for turn in own) for own in by_worker.values()]
    return max(counts) / max(min(counts), 1)
