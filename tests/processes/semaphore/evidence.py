"""Who had which slots, from when until when: written by workers that may be killed at any moment, and judged later.

Each entry is one transaction with a guard for every slot. A turn that was ended by the worker says so; that of a killed
one counts until the deadline that its permit had when it entered, before which the store gives its slots to nobody.
All times are on the clock that the processes of this machine share, and every turn is counted shorter than it was, so
whatever overlaps here did overlap.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from itertools import combinations, pairwise
from typing import NamedTuple

from leasehold import Permit
from leasehold.guards.sql import FenceGuard
from tests.support.workers.journal import now, open_journal

GUARD = FenceGuard()
SCHEMA = """
CREATE TABLE turns (number INTEGER PRIMARY KEY AUTOINCREMENT, fence INTEGER, slots TEXT, entered REAL, until REAL,
                    ended INTEGER NOT NULL DEFAULT 0);
"""


class Turn(NamedTuple):
    """One permit in use. ``ended``: its worker lived to say so."""

    fence: int
    slots: tuple[int, ...]
    entered: float
    until: float
    ended: bool


def create(path: str) -> None:
    """No evidence yet."""
    with open_journal(path) as journal:
        journal.execute("PRAGMA journal_mode = WAL")
        journal.executescript(SCHEMA)
        GUARD.create(journal)
    journal.close()


def count(journal: sqlite3.Connection) -> int:
    """How many have entered."""
    found: int = journal.execute("SELECT count(*) FROM turns").fetchone()[0]
    return found


def enter(journal: sqlite3.Connection, permit: Permit) -> int:
    """From now on; StaleOwner when somebody else has one of its slots by now. Its number."""
    journal.execute("BEGIN IMMEDIATE")
    with journal:
        for resource in permit.slot_resources:
            GUARD.check(journal, permit, resource=resource)
        row = (permit.fence, json.dumps(permit.slots), now(), permit.deadline)
        added = journal.execute("INSERT INTO turns (fence, slots, entered, until) VALUES (?, ?, ?, ?)", row)
    assert added.lastrowid is not None
    return added.lastrowid


def leave(journal: sqlite3.Connection, number: int, permit: Permit) -> None:
    """Until now, or until it was over."""
    until = min(now(), permit.deadline)
    journal.execute("UPDATE turns SET until = ?, ended = 1 WHERE number = ?", (until, number))


def read(path: str) -> list[Turn]:
    """Every turn, in the order in which they were entered."""
    journal = open_journal(path)
    try:
        rows = journal.execute("SELECT fence, slots, entered, until, ended FROM turns ORDER BY number").fetchall()
    finally:
        journal.close()
    turns = [
        Turn(fence, tuple(json.loads(slots)), begun, until, bool(ended)) for fence, slots, begun, until, ended in rows
    ]
    return [turn for turn in turns if turn.entered < turn.until]


# ---------------------------------------------------------------- judging


def most_at_once(turns: Sequence[Turn]) -> int:
    """The most permits that were valid at one moment."""
    changes = [(turn.entered, len(turn.slots)) for turn in turns] + [(turn.until, -len(turn.slots)) for turn in turns]
    most = held = 0
    for _, change in sorted(changes):  # at one moment, those who leave come first
        held += change
        most = max(most, held)
    return most


def shared_slots(turns: Sequence[Turn]) -> int:
    """Pairs of turns that had a slot in common at one moment."""
    return sum(
        one.entered < other.until and other.entered < one.until and bool(set(one.slots) & set(other.slots))
        for one, other in combinations(turns, 2)
    )


def falling_fences(turns: Sequence[Turn]) -> int:
    """Turns whose fence is not above that of the turn before it in the same slot."""
    by_slot: dict[int, list[int]] = {}
    for turn in turns:
        for slot in turn.slots:
            by_slot.setdefault(slot, []).append(turn.fence)
    return sum(after <= before for fences in by_slot.values() for before, after in pairwise(fences))
