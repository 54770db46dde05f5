"""The embedded store on SQLite against filelock and against bare SQLite.

Leases here are fenced, queued and renewed by the watchdog; filelock is bare mutual exclusion. The floor is the two
transactions that a lease needs at least, without any decision in them."""

from __future__ import annotations

import asyncio
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import leasehold
from benchmarks import race
from benchmarks.race import Locks, Peer
from benchmarks.report.rows import Result, Row
from benchmarks.rounds import Run, Setup, measure, pairs, rates

OURS, FILELOCK = "Leasehold, SQLite", "filelock"
ALONE, PROCESSES = "Embedded store, one caller", "Embedded store, 8 processes on one lock"


def threads_work(count: int) -> str:
    """The title of its table."""
    return f"Embedded store, {count} threads of one process on one lock"


def floor(path: Path) -> Run:
    """Two transactions that read and write one row."""
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = NORMAL")
    connection.execute("CREATE TABLE resources (name TEXT PRIMARY KEY, state TEXT) WITHOUT ROWID")
    connection.execute("INSERT INTO resources VALUES ('a', '')")

    def run(count: int) -> None:
        for text in ("x" * 200, "y" * 50) * count:
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("SELECT state FROM resources WHERE name = 'a'").fetchone()
            connection.execute("UPDATE resources SET state = ? WHERE name = 'a'", (text,))
            connection.execute("COMMIT")

    return run


def lock_pairs(hold: leasehold.Leasehold) -> Run:
    return pairs(lambda: hold.lock("bench", 42, ttl=30))


def filelock_pairs(path: Path) -> Run:
    """With one object: a new one for each pair is slower."""
    import filelock

    lock = filelock.FileLock(path)
    return pairs(lambda: lock)


def new_filelock_pairs(path: Path) -> Run:
    """A new object for each pair, as for Leasehold."""
    import filelock

    return pairs(lambda: filelock.FileLock(path))


def asyncio_pairs(url: str) -> Run:
    async def run(count: int) -> None:
        async with leasehold.aio.connect(url) as hold:
            for _ in range(count):
                async with hold.lock("bench", 43, ttl=30):
                    pass

    return lambda count: asyncio.run(run(count))


@contextmanager
def ours(folder: str) -> Iterator[Locks]:
    with leasehold.connect(f"sqlite:///{folder}/leases.db") as hold:
        yield lambda number: hold.lock("race", number, ttl=30)


@contextmanager
def in_memory(name: str) -> Iterator[Locks]:
    with leasehold.connect(f"memory://{Path(name).name.replace(' ', '-')}") as hold:
        yield lambda number: hold.lock("race", number, ttl=30)


@contextmanager
def theirs(folder: str) -> Iterator[Locks]:
    import filelock

    yield lambda number: filelock.FileLock(f"{folder}/race-{number}.lock")


def alone(setup: Setup) -> Result:
    """One caller, no contention."""
    with tempfile.TemporaryDirectory() as name, leasehold.connect("memory://bench") as memory:
        folder = Path(name)
        url = f"sqlite:///{folder}/leases.db"
        with leasehold.connect(url) as hold:
            contenders = {
                FILELOCK: filelock_pairs(folder / "file.lock"),
                "filelock, a new object each time": new_filelock_pairs(folder / "new.lock"),
                OURS: lock_pairs(hold),
                f"{OURS}, asyncio": asyncio_pairs(url),
                "Leasehold, memory": lock_pairs(memory),
                "floor: two bare SQLite transactions": floor(folder / "floor.db"),
            }
            return Result(rates(ALONE, "pairs/s", measure(setup, contenders), FILELOCK, cpu=True))


def threads(setup: Setup) -> Result:
    """Threads of one process on one lock, on SQLite and in memory."""

    def run(peer: Peer, folder: Path, parties: int) -> race.Result:
        return race.race(peer, str(folder), folder, parties, setup.effort.race_seconds, crowd=race.threads, fenced=True)

    racers: dict[str, race.Racer] = {OURS: partial(run, ours), "Leasehold, memory": partial(run, in_memory)}
    rows: list[Row] = []
    for count in setup.effort.few_waiters:
        found = race.compete(setup, racers, count)
        rows += race.race_rows(threads_work(count), found, server=False)
    return Result(rows)


def processes(setup: Setup) -> Result:
    """True handoffs between processes, with exclusion, fences and the order of turns checked."""

    def run(peer: Peer, folder: Path, parties: int) -> race.Result:
        return race.race(peer, str(folder), folder, parties, setup.effort.race_seconds, fenced=peer is ours)

    racers: dict[str, race.Racer] = {FILELOCK: partial(run, theirs), OURS: partial(run, ours)}
    found = race.compete(setup, racers, 8)
    return Result(race.race_rows(PROCESSES, found, FILELOCK, server=False))


PIECES = {"alone": alone, "threads": threads, "processes": processes}
