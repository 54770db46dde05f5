"""Pieces of a benchmark that measure nothing: they fail, wait or look around. Another interpreter imports them."""

from __future__ import annotations

import gc
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from benchmarks.race import Broken, Lock, Locks
from benchmarks.report.rows import Figure, Result, Row
from benchmarks.rounds import Setup

FOREVER = 600  # seconds


def fine(_setup: Setup) -> Result:
    """Nothing is wrong."""
    return Result([Row("work", "lock", "turns", Figure(1.0, 1.0, float("inf")))], notes=["all is well"])


def steps(setup: Setup) -> Result:
    """It says what it does."""
    setup.step("round", 1, 2)
    setup.step("round", 2, 2)
    return Result([])


def state(setup: Setup) -> Result:
    """What it finds in its interpreter."""
    found = {
        "effort": setup.effort,
        "modules": [name for name in sys.modules if name.startswith(("benchmarks", "leasehold", "redis", "tests"))],
        "garbage collection": [gc.isenabled(), gc.get_freeze_count(), *gc.get_threshold()],
        "threads": threading.active_count(),
    }
    return Result([], notes=[json.dumps(found)])


def broken(_setup: Setup) -> Result:
    """A lock broke its promise."""
    raise Broken("two holders")


def unequipped(_setup: Setup) -> Result:
    """What it needs is missing."""
    raise SystemExit("redis-server is not installed")


def killed(_setup: Setup) -> Result:
    """It dies without a word."""
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("still alive")


def messy(setup: Setup) -> Result:
    """It leaves a program and a thread behind, which do not end by themselves."""
    program = subprocess.Popen(["sleep", str(FOREVER)])
    setup.step(str(program.pid), 1, 1)
    threading.Thread(target=time.sleep, args=(FOREVER,)).start()
    return Result([], notes=["done"])


def waiting(setup: Setup) -> Result:
    """It waits, with a folder and a program that it cleans up at the end. The step names both."""
    with tempfile.TemporaryDirectory() as folder, subprocess.Popen(["sleep", str(FOREVER)]) as program:
        try:
            setup.step(f"{folder} {program.pid}", 1, 1)
            time.sleep(FOREVER)
        finally:
            program.kill()
    raise AssertionError("nobody interrupted it")


def stubborn(setup: Setup) -> Result:
    """It does not hear an interrupt."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    return waiting(setup)


# ---------------------------------------------------------------- a contender


@contextmanager
def stuck(_place: str) -> Iterator[Locks]:
    """Nobody gets its lock."""

    @contextmanager
    def lock() -> Iterator[None]:
        time.sleep(FOREVER)
        yield

    def make(_number: int) -> Lock:
        return lock()

    yield make
