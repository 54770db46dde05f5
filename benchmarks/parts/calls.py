"""How many Python calls a path through Leasehold takes, and through how many files.

Counts the calls of Python functions in ``leasehold``, not those of C functions, drivers or the standard library; to
resume a coroutine is a call, too. Each path is warm: it ran before. Only the thread of the caller is counted or, for a
renewal, that of the watchdog. It uses public names alone, so that it runs against older versions of Leasehold as well:
``PYTHONPATH=<their src> python -m benchmarks calls``.
"""

from __future__ import annotations

import asyncio
import itertools
import sqlite3
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import leasehold
from benchmarks.report.rows import Result, compare
from benchmarks.rounds import Setup
from benchmarks.server import Server
from leasehold.guards.sql import FenceGuard

PACKAGE = str(Path(leasehold.__file__).parent)
WORK = "Python calls in Leasehold"
WARM_UP, RUNS = 20, 5
TTL = 0.6  # seconds of a lease that is renewed: every 0.2 s
RENEWALS = 6
PAUSE = 0.05  # seconds without a call between two rounds of the watchdog


class Count(NamedTuple):
    """The calls of one execution, and the files that they are in."""

    calls: int
    files: int


class Profile:
    """Records the calls in Leasehold while it is installed: their time and file, by thread."""

    def __init__(self) -> None:
        self.calls: dict[int, list[tuple[float, str]]] = {}

    def __call__(self, frame: FrameType, event: str, _argument: object) -> None:
        """As ``sys.setprofile`` calls it."""
        if event == "call" and frame.f_code.co_filename.startswith(PACKAGE):
            made = (time.monotonic(), frame.f_code.co_filename)
            self.calls.setdefault(threading.get_ident(), []).append(made)

    def count(self) -> Count:
        """The calls of the current thread."""
        return counted(self.calls.get(threading.get_ident(), []))


def counted(calls: list[tuple[float, str]]) -> Count:
    return Count(len(calls), len({file for _, file in calls}))


def middle(counts: list[Count]) -> Count:
    """The usual execution: now and then one has to do more, such as to wake a thread."""
    return Count(*[statistics.median_low(column) for column in zip(*counts, strict=True)])


# ---------------------------------------------------------------- the caller's thread


@contextmanager
def profiled(counts: list[Count]) -> Iterator[None]:
    """Adds the count of its block."""
    profile = Profile()
    sys.setprofile(profile)
    try:
        yield
    finally:
        sys.setprofile(None)
    counts.append(profile.count())


def calls_of(call: Callable[[], object]) -> Count:
    """The calls of one execution, after some that are not counted."""
    for _ in range(WARM_UP):
        call()
    counts: list[Count] = []
    for _ in range(RUNS):
        with profiled(counts):
            call()
    return middle(counts)


async def awaited_calls_of(call: Callable[[], Awaitable[object]]) -> Count:
    """The same on an event loop."""
    for _ in range(WARM_UP):
        await call()
    counts: list[Count] = []
    for _ in range(RUNS):
        with profiled(counts):
            await call()
    return middle(counts)


def lock(url: str) -> Count:
    with leasehold.connect(url) as hold:

        def use() -> None:
            with hold.lock("a"):
                pass

        return calls_of(use)


def async_lock(url: str) -> Count:
    async def run() -> Count:
        async with leasehold.aio.connect(url) as hold:

            async def use() -> None:
                async with hold.lock("a"):
                    pass

            return await awaited_calls_of(use)

    return asyncio.run(run())


def guard_check() -> Count:
    """The transaction has begun before."""
    guard, db = FenceGuard(), sqlite3.connect(":memory:")
    guard.create(db)
    with leasehold.connect("memory://calls") as hold, hold.lock("a") as lease:
        return calls_of(lambda: guard.check(db, lease))


@contextmanager
def once(url: str) -> Iterator[Callable[[int], Any]]:
    with leasehold.connect(url) as hold:

        @hold.once("job", "{number}")
        def job(number: int) -> int:
            return number

        yield job


def first_once(url: str) -> Count:
    """Every call has a key of its own."""
    numbers = itertools.count()
    with once(url) as job:
        return calls_of(lambda: job(next(numbers)))


def repeated_once(url: str) -> Count:
    """Every call has the same key: its result is there."""
    with once(url) as job:
        return calls_of(lambda: job(-1))


# ---------------------------------------------------------------- the watchdog's thread


def renewal(url: str) -> Count:
    """The calls of one round in which one lease is renewed, on the watchdog's own thread."""
    profile = Profile()
    threading.setprofile(profile)  # for the threads that are started from now on
    try:
        with leasehold.connect(url) as hold, hold.lock("renewed", ttl=TTL):
            time.sleep(RENEWALS * TTL / 3)  # the watchdog renews meanwhile, on its own thread
    finally:
        threading.setprofile(None)
    watchdog = max(profile.calls.values(), key=lambda calls: sum("watchdog" in Path(file).name for _, file in calls))
    rounds: list[list[tuple[float, str]]] = [[]]
    for made in watchdog:
        if rounds[-1] and made[0] - rounds[-1][-1][0] > PAUSE:
            rounds.append([])
        rounds[-1].append(made)
    return middle([counted(one) for one in rounds[2:-1]])  # neither the first two, which are cold, nor the end


# ----------------------------------------------------------------


def calls(setup: Setup) -> Result:
    """Counts, not times: one execution of each path is enough."""
    with tempfile.TemporaryDirectory() as folder, Server() as server:
        memory, sqlite, redis = "memory://calls", f"sqlite:///{folder}/leases.db", server.url()
        paths: dict[str, Callable[[], Count]] = {
            "with hold.lock, memory": lambda: lock(memory),
            "with hold.lock, SQLite": lambda: lock(sqlite),
            "with hold.lock, Redis": lambda: lock(redis),
            "async with hold.lock, Redis": lambda: async_lock(redis),
            "one renewal, memory": lambda: renewal(memory),
            "one renewal, SQLite": lambda: renewal(sqlite),
            "one renewal, Redis": lambda: renewal(redis),
            "guard.check, sqlite3": guard_check,
            "@hold.once, first call, SQLite": lambda: first_once(sqlite),
            "@hold.once, repeated call, SQLite": lambda: repeated_once(sqlite),
        }
        found = {}
        for number, (name, count) in enumerate(paths.items()):
            setup.step("path", number + 1, len(paths))
            found[name] = count()
    rows = compare(WORK, "calls", {name: [count.calls] for name, count in found.items()})
    return Result(rows + compare(WORK, "files", {name: [count.files] for name, count in found.items()}))


PIECES = {"calls": calls}
