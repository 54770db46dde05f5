"""Several processes take turns on one lock. Counts true handoffs (to another process) and fairness, and checks while
it measures that nobody is inside with somebody else and that fences grow.

The score board is shared memory that only the holder touches: it is itself a test of the lock."""

from __future__ import annotations

import mmap
import multiprocessing
import struct
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, NamedTuple

import filelock

import leasehold

INSIDE, LAST, HANDOFFS, FENCE, BROKEN, TURNS = 0, 1, 2, 3, 4, 8


class Result(NamedTuple):
    """What a race gave."""

    handoffs_per_s: float
    fairness: float  # most turns of a process over fewest


class Board:
    """64-bit counters in shared memory."""

    def __init__(self, path: Path) -> None:
        with path.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), 1024)

    def __getitem__(self, slot: int) -> int:
        value: int = struct.unpack_from("q", self._map, slot * 8)[0]
        return value

    def __setitem__(self, slot: int, value: int) -> None:
        struct.pack_into("q", self._map, slot * 8, value)

    def turn(self, me: int, fence: int) -> None:
        """What the holder does: look whether it is alone, and count."""
        if self[INSIDE]:
            self[BROKEN] += 1
        self[INSIDE] = 1
        if self[LAST] != me:
            self[HANDOFFS] += 1
            self[LAST] = me
        if fence:
            self[BROKEN] += fence <= self[FENCE]
            self[FENCE] = fence
        self[TURNS + me] += 1
        self[INSIDE] = 0


def ours(folder: str) -> AbstractContextManager[Any]:
    return leasehold.connect(f"sqlite:///{folder}/leases.db").lock("race", ttl=30)


def theirs(folder: str) -> AbstractContextManager[Any]:
    return filelock.FileLock(f"{folder}/race.lock")


def run(make: Callable[[str], AbstractContextManager[Any]], folder: str, me: int, until: float) -> None:
    """One process: take turns until the time is over."""
    board = Board(Path(folder) / "board")
    lock = make(folder)
    while time.monotonic() < until:
        with lock as lease:
            board.turn(me, getattr(lease, "fence", 0))


def race(make: Callable[[str], AbstractContextManager[Any]], folder: Path, processes: int, seconds: float) -> Result:
    """Let them run, and read the board."""
    folder.mkdir()
    (folder / "board").write_bytes(bytes(1024))
    context = multiprocessing.get_context("spawn")
    until = time.monotonic() + 1.5 + seconds  # start-up takes most of the first second
    workers = [context.Process(target=run, args=(make, str(folder), me, until)) for me in range(1, processes + 1)]
    for worker in workers:
        worker.start()
    board = Board(folder / "board")
    time.sleep(max(until - seconds - time.monotonic(), 0))
    before, at = board[HANDOFFS], time.monotonic()
    turns = [board[TURNS + me] for me in range(1, processes + 1)]
    time.sleep(max(until - time.monotonic() - 0.05, 0))
    rate = (board[HANDOFFS] - before) / (time.monotonic() - at)
    gained = [board[TURNS + me] - turns[me - 1] for me in range(1, processes + 1)]
    for worker in workers:
        worker.join(30)
    if board[BROKEN]:
        raise RuntimeError(f"exclusion or fence order was broken {board[BROKEN]} times by {make.__name__}")
    return Result(rate, max(gained) / max(min(gained), 1))
