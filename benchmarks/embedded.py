"""The embedded store against filelock and against bare SQLite: ``python -m benchmarks.embedded``.

Leases here are fenced, queued and renewed by the watchdog; filelock is bare mutual exclusion. The floor is the two
transactions that a lease needs at least, without any decision in them."""

from __future__ import annotations

import asyncio
import sqlite3
import statistics
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import filelock

import leasehold
from benchmarks.measure import Run, Series, interleave, pairs, show
from benchmarks.race import Locks, Result, race


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
    lock = filelock.FileLock(path)
    return pairs(lambda: lock)


def asyncio_pairs(url: str) -> Run:
    async def run(count: int) -> None:
        async with leasehold.aio.connect(url) as hold:
            for _ in range(count):
                async with hold.lock("bench", 43, ttl=30):
                    pass

    return lambda count: asyncio.run(run(count))


def threads(hold: leasehold.Leasehold, waiters: int) -> Run:
    """Threads of one process that hand one lock on, ``count`` times in total."""

    def run(count: int) -> None:
        def turns() -> None:
            for _ in range(count // waiters):
                with hold.lock("threads", waiters, ttl=30):
                    pass

        crowd = [threading.Thread(target=turns) for _ in range(waiters)]
        for one in crowd:
            one.start()
        for one in crowd:
            one.join()

    return run


@contextmanager
def ours(folder: str) -> Iterator[Locks]:
    with leasehold.connect(f"sqlite:///{folder}/leases.db") as hold:
        yield lambda number: hold.lock("race", number, ttl=30)


@contextmanager
def theirs(folder: str) -> Iterator[Locks]:
    yield lambda number: filelock.FileLock(f"{folder}/race-{number}.lock")


def processes(folder: Path, count: int, rounds: int, seconds: float) -> None:
    """True handoffs between processes, and how many turns each process got."""
    results: dict[str, list[Result]] = {"Leasehold, sqlite": [], "filelock": []}
    for number in range(rounds):
        for name, peer in {"Leasehold, sqlite": ours, "filelock": theirs}.items():
            place = folder / f"{peer.__name__}-{number}"
            results[name].append(race(peer, str(place), place, count, seconds))
    series = {name: Series(name) for name in results}
    for name, many in results.items():
        series[name].rates = [one.handoffs_per_s for one in many]
    show(f"{count} processes on one lock, nothing done inside", "handoffs/s", series, "filelock")
    for name, many in results.items():
        fairness = statistics.median(one.fairness for one in many)
        print(f"  fairness of {name}: {fairness:.2f} (most turns of a process over fewest; 1 is fair)")


def main() -> None:
    """Everything, in about a minute; progress goes to stderr."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        url = f"sqlite:///{folder}/leases.db"
        with leasehold.connect(url) as hold, leasehold.connect("memory://bench") as memory:
            print("uncontended pairs ...", file=sys.stderr)
            contenders = {
                "filelock": filelock_pairs(folder / "file.lock"),
                "Leasehold, sqlite": lock_pairs(hold),
                "Leasehold, sqlite, asyncio": asyncio_pairs(url),
                "Leasehold, memory": lock_pairs(memory),
                "floor: two bare SQLite transactions": floor(folder / "floor.db"),
            }
            series = interleave(contenders, 500, 15)
            show("One caller, no contention: acquire and release", "pairs/s", series, "filelock")
            print("threads ...", file=sys.stderr)
            crowd = {f"{n} threads": threads(hold, n) for n in (2, 16, 64)}
            show("Threads of one process on one lock", "turns/s", interleave(crowd, 640, 5), "2 threads")
        print("processes ...", file=sys.stderr)
        processes(folder, 8, 3, 2.0)


if __name__ == "__main__":
    main()
