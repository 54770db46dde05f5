"""Runs a function in several processes that all begin at the same moment, however long each takes to start.

Processes are forked from one that has imported everything and started no thread: eight of them start in an instant."""

from __future__ import annotations

import multiprocessing
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing.synchronize import Barrier
from typing import Any, TypeVar

Answer = TypeVar("Answer")

LONGEST_START = 60  # seconds
FORKED = multiprocessing.get_context("forkserver")
FORKED.set_forkserver_preload(["benchmarks.peers", "benchmarks.parts.embedded", "leasehold.aio"])
_barrier: Barrier | None = None  # of this process, when it is one of several


def together(function: Callable[..., Answer], each: Sequence[tuple[Any, ...]]) -> list[Answer]:
    """A process for each tuple of arguments; returns their answers."""
    barrier = FORKED.Barrier(len(each))
    with ProcessPoolExecutor(len(each), FORKED, initializer=_join, initargs=(barrier,)) as pool:
        futures = [pool.submit(_begin, function, arguments) for arguments in each]
        return [future.result() for future in futures]


def _join(barrier: Barrier) -> None:
    global _barrier
    _barrier = barrier


def _begin(function: Callable[..., Answer], arguments: tuple[Any, ...]) -> Answer:
    assert _barrier is not None
    try:
        _barrier.wait(LONGEST_START)
    except threading.BrokenBarrierError:
        raise RuntimeError(f"another process did not start within {LONGEST_START} s") from None
    return function(*arguments)
