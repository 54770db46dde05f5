"""What the other primitives cost beside the plain lock, and how fair they are.

Three pieces: pairs of acquire and release without contention; handoffs among 2, 16 and 64 waiters, with the commands
that one handoff costs the server; and crowds of unlike claims, readers beside writers and large claims beside small
ones, with how often each got its turn and how long it waited."""

from __future__ import annotations

import itertools
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import leasehold
from benchmarks import race
from benchmarks.processes import together
from benchmarks.race import BROKEN, Board, Broken, Locks
from benchmarks.report.rows import Figure, Result, Row
from benchmarks.rounds import Setup, measure, rates
from benchmarks.rounds import pairs as repeated_pairs
from benchmarks.server import Server

Make = Callable[[leasehold.Leasehold], Any]

LOCK = "lock"
ALONE: dict[str, Make] = {
    LOCK: lambda hold: hold.lock("bench", 1),
    "rwlock, write": lambda hold: hold.rwlock("bench", 2).write(),
    "rwlock, read": lambda hold: hold.rwlock("bench", 2).read(),
    "semaphore, limit 3": lambda hold: hold.semaphore("bench", 3, limit=3),
    "semaphore, 2 of 3 permits": lambda hold: hold.semaphore("bench", 3, limit=3, permits=2),
    "semaphore, limit 3, 2 of them held": lambda hold: hold.semaphore("bench", 4, limit=3),
    "all of two locks": lambda hold: hold.all(hold.lock("bench", 5), hold.lock("bench", 6)),
    "two locks, one after the other": lambda hold: _Nested(hold.lock("bench", 7), hold.lock("bench", 8)),
}


class _Nested:
    """What people write without ``all``."""

    def __init__(self, outer: leasehold.Lock, inner: leasehold.Lock) -> None:
        self._outer, self._inner = outer, inner

    def __enter__(self) -> None:
        self._outer.__enter__()
        self._inner.__enter__()

    def __exit__(self, *error: Any) -> None:
        self._inner.__exit__(*error)
        self._outer.__exit__(*error)


@contextmanager
def stores() -> Iterator[tuple[Server, dict[str, str]]]:
    """The URLs of the stores, by name, and the server of one of them."""
    with tempfile.TemporaryDirectory() as folder, Server() as server:
        yield server, {"SQLite": f"sqlite:///{folder}/leases.db", "Redis": server.url()}


def pairs(setup: Setup) -> Result:
    """Acquire and release, a new object for each, as people write it."""
    with stores() as (_, urls):
        each = [_pairs(setup, url, name) for name, url in {"memory": "memory://bench", **urls}.items()]
    return Result([row for rows in each for row in rows])


def _pairs(setup: Setup, url: str, store: str) -> list[Row]:
    with leasehold.connect(url) as hold:
        held = [hold.semaphore("bench", 4, limit=3).acquire() for _ in range(2)]
        contenders = {one: repeated_pairs(partial(make, hold)) for one, make in ALONE.items()}
        rows = rates(f"Primitives, one caller, {store}", "pairs/s", measure(setup, contenders), LOCK)
        for permit in held:
            if permit is not None:
                permit.release()
    return rows


# ---------------------------------------------------------------- with others waiting

EXCLUSIVE: dict[str, Callable[[leasehold.Leasehold, int], Any]] = {
    LOCK: lambda hold, number: hold.lock("race", number),
    "rwlock, write": lambda hold, number: hold.rwlock("race", number).write(),
    "semaphore, limit 1": lambda hold, number: hold.semaphore("race", number, limit=1),
}


def handoffs(setup: Setup) -> Result:
    """The commands for each handoff must not grow with the number of waiters."""
    result = Result([])
    with Server() as server:

        def run(name: str, folder: Path, parties: int) -> race.Result:
            server.empty()
            peer, seconds = _peer(EXCLUSIVE[name]), setup.effort.race_seconds
            return race.race(
                peer, server.url(), folder, parties, seconds, crowd=race.threads, usage=server.usage, fenced=True
            )

        for parties in setup.effort.few_waiters:
            found = race.compete(setup, {name: partial(run, name) for name in EXCLUSIVE}, parties)
            result += Result(race.race_rows(f"Primitives, {parties} threads, Redis", found, LOCK))
    return result


def _peer(make: Callable[[leasehold.Leasehold, int], Any]) -> Any:
    @contextmanager
    def peer(url: str) -> Iterator[Locks]:
        with leasehold.connect(url) as hold:
            yield lambda number: make(hold, number)

    return peer


# ---------------------------------------------------------------- unlike claims


class Party(NamedTuple):
    """One process of a crowd: its name, what it claims again and again, and how much of the whole that is."""

    name: str
    mode: str
    weight: int


WHOLE, LIMIT = 1000, 4  # what a writer holds, and all permits
STAY = 0.001  # seconds that each party holds
READER, WRITER = Party("reader", "read", 1), Party("writer", "write", WHOLE)
SMALL, BIG = Party("small", "permits", 1), Party("big", "permits", LIMIT)
CROWDS: dict[str, tuple[int, list[Party]]] = {
    "6 readers and 2 writers": (WHOLE, [READER] * 6 + [WRITER] * 2),
    "1 reader and 7 writers": (WHOLE, [READER] + [WRITER] * 7),
    "7 claims of 1 permit and 1 of 4, limit 4": (LIMIT, [SMALL] * 7 + [BIG]),
}


def _claim(hold: leasehold.Leasehold, party: Party) -> Any:
    if party.mode == "permits":
        return hold.semaphore("crowd", "permits", limit=LIMIT, permits=party.weight)
    sides = hold.rwlock("crowd", "sides")
    return sides.read() if party.mode == "read" else sides.write()


def _play(url: str, path: Path, me: int, party: Party, limit: int, seconds: float) -> list[float]:
    """How long it waited for each of its turns."""
    waits, board = [], Board(path)
    with leasehold.connect(url) as hold:
        hold.inspect("crowd")  # connects
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            claimed = time.perf_counter()
            with _claim(hold, party):
                waits.append(time.perf_counter() - claimed)
                board.share(me, party.weight, limit)
                time.sleep(STAY)  # what it holds for
                board.share(me, 0, limit)
    return waits


def crowds(setup: Setup) -> Result:
    """Turns and waits of each kind of party, in processes of their own that hold for 1 ms and claim again at once."""
    rows: list[Row] = []
    with stores() as (_, urls):
        for number, (store, title) in enumerate(itertools.product(urls, CROWDS)):
            setup.step("crowd", number + 1, len(urls) * len(CROWDS))
            limit, parties = CROWDS[title]
            results = _crowd(setup, urls[store], parties, limit)
            for kind in dict.fromkeys(party.name for party in parties):
                waits = [waits for party, waits in zip(parties, results, strict=True) if party.name == kind]
                rows += _kind(f"{title}, {store}", kind, waits)
    return Result(rows)


def _crowd(setup: Setup, url: str, parties: list[Party], limit: int) -> list[list[float]]:
    """The waits of each party; all the time they check that readers and writers, or too many permits, never meet."""
    seconds = max(setup.effort.race_seconds * 3, 1.0)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "board")
        board = Board.new(path)
        waits = together(_play, [(url, path, me, party, limit, seconds) for me, party in enumerate(parties)])
    if board[BROKEN]:
        raise Broken(f"{board[BROKEN]} times more was held at once than the limit allows")
    return waits


def _kind(work: str, kind: str, each: list[list[float]]) -> list[Row]:
    turns = [len(one) for one in each]
    waits = sorted(wait * 1000 for one in each for wait in one)
    figures = {
        "turns of each": statistics.mean(turns),
        "most / fewest": max(turns) / max(min(turns), 1),
        "wait p50, ms": statistics.median(waits),
        "p99, ms": waits[int(len(waits) * 0.99)],
        "longest, ms": waits[-1],
    }
    return [Row(work, kind, unit, Figure(value, value, value)) for unit, value in figures.items()]


PIECES = {"pairs": pairs, "handoffs": handoffs, "crowds": crowds}
