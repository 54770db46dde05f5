"""What the other primitives cost beside the plain lock, and how fair they are: ``python -m benchmarks.primitives``.

Three parts: pairs of acquire and release without contention; handoffs among 2, 16 and 64 waiters, with the commands
that one handoff costs the server; and crowds of unlike claims, readers beside writers and large claims beside small
ones, with how often each got its turn and how long it waited."""

from __future__ import annotations

import argparse
import multiprocessing
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import leasehold
from benchmarks.measure import interleave, parse_parts, show
from benchmarks.measure import pairs as repeated_pairs
from benchmarks.race import Locks, race, threads
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


def pairs(url: str, name: str) -> None:
    """Acquire and release, a new object for each, as people write it."""
    with leasehold.connect(url) as hold:
        held = [hold.semaphore("bench", 4, limit=3).acquire() for _ in range(2)]
        contenders = {one: repeated_pairs(partial(make, hold)) for one, make in ALONE.items()}
        show(f"One caller, no contention: {name}", "pairs/s", interleave(contenders, 300, 15), LOCK)
        for permit in held:
            if permit is not None:
                permit.release()


# ---------------------------------------------------------------- with others waiting

EXCLUSIVE: dict[str, Callable[[leasehold.Leasehold, int], Any]] = {
    LOCK: lambda hold, number: hold.lock("race", number),
    "rwlock, write": lambda hold, number: hold.rwlock("race", number).write(),
    "semaphore, limit 1": lambda hold, number: hold.semaphore("race", number, limit=1),
}


def handoffs(server: Server) -> None:
    """The commands for each handoff must not grow with the number of waiters."""
    print("\nThreads of one process that hand one thing on, Redis")
    print(f"  {'':<27}{'waiting':>8}{'handoffs/s':>12}{'fairness':>9}{'commands':>10}{'requests':>10}")
    with tempfile.TemporaryDirectory() as folder:
        for number, (name, make) in enumerate(EXCLUSIVE.items()):
            for parties in (2, 16, 64):
                server.empty()
                place = Path(folder) / f"{number}-{parties}"
                one = race(_peer(make), server.url(), place, parties, 1.0, crowd=threads, usage=server.usage)
                print(f"  {name:<27}{parties:>8}{one.handoffs_per_s:>12,.0f}{one.fairness:>9.2f}", end="")
                print(f"{one.commands:>10.1f}{one.requests:>10.1f}")


def _peer(make: Callable[[leasehold.Leasehold, int], Any]) -> Any:
    @contextmanager
    def peer(url: str) -> Iterator[Locks]:
        with leasehold.connect(url) as hold:
            yield lambda number: make(hold, number)

    return peer


# ---------------------------------------------------------------- unlike claims


class Party(NamedTuple):
    """One process of a crowd: its name, and what it claims again and again."""

    name: str
    mode: str
    stay: float = 0.001  # seconds that it holds


CROWDS: dict[str, list[Party]] = {
    "6 readers and 2 writers": [*[Party("reader", "read")] * 6, *[Party("writer", "write")] * 2],
    "1 reader and 7 writers": [Party("reader", "read"), *[Party("writer", "write")] * 7],
    "7 claims of 1 permit and 1 of 4, limit 4": [*[Party("small", "permits 1")] * 7, Party("big", "permits 4")],
}


def _claim(hold: leasehold.Leasehold, mode: str) -> Any:
    if mode.startswith("permits"):
        return hold.semaphore("crowd", "permits", limit=4, permits=int(mode.split()[1]))
    sides = hold.rwlock("crowd", "sides")
    return sides.read() if mode == "read" else sides.write()


def _play(url: str, party: Party, begin: float, seconds: float) -> list[float]:
    """How long it waited for each of its turns."""
    waits = []
    with leasehold.connect(url) as hold:
        time.sleep(max(begin - time.monotonic(), 0))  # all at once
        while time.monotonic() < begin + seconds:
            claimed = time.perf_counter()
            with _claim(hold, party.mode):
                waits.append(time.perf_counter() - claimed)
                time.sleep(party.stay)  # what it holds for
    return waits


def crowds(url: str, name: str, seconds: float = 3.0) -> None:
    """Turns and waits of each kind of party, in processes of their own that claim again at once."""
    for title, parties in CROWDS.items():
        print(f"\n{title}, each holds for 1 ms and claims again at once: {name}")
        print(f"  {'':<12}{'turns of each':>14}{'most / fewest':>15}{'wait p50 ms':>13}{'p99':>8}{'longest':>9}")
        spawn = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(len(parties), mp_context=spawn) as pool:
            begin = time.monotonic() + 2
            played = [pool.submit(_play, url, party, begin, seconds) for party in parties]
            results = [one.result() for one in played]
        for kind in dict.fromkeys(party.name for party in parties):
            _show_kind(kind, [waits for party, waits in zip(parties, results, strict=True) if party.name == kind])


def _show_kind(kind: str, each: list[list[float]]) -> None:
    turns = [len(one) for one in each]
    waits = sorted(wait * 1000 for one in each for wait in one)
    p99 = waits[int(len(waits) * 0.99)]
    fairness = max(turns) / max(min(turns), 1)
    print(f"  {kind:<12}{statistics.mean(turns):>14,.0f}{fairness:>15.2f}", end="")
    print(f"{statistics.median(waits):>13.1f}{p99:>8.1f}{waits[-1]:>9.1f}")


# ----------------------------------------------------------------


def main() -> None:
    """Everything, in about a minute and a half; progress goes to stderr."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.primitives", description="Every primitive, compared.")
    parts = parse_parts(parser, ("pairs", "handoffs", "crowds")).part
    with tempfile.TemporaryDirectory() as folder, Server() as server:
        stores = {"SQLite": f"sqlite:///{folder}/leases.db", "Redis": server.url()}
        for part in parts:
            print(f"{part} ...", file=sys.stderr)
            if part == "pairs":
                for name, url in {"memory": "memory://bench", **stores}.items():
                    pairs(url, name)
            elif part == "handoffs":
                handoffs(server)
            else:
                for name, url in stores.items():
                    crowds(url, name)


if __name__ == "__main__":
    main()
