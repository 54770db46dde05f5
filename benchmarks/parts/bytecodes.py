"""What the Python side of a pair on Redis is made of: bytecodes and calls, by the folder that they are in.

Counts do not depend on the load of the machine. A bytecode takes 15 to 20 ns on the machine of docs/performance.md, so
the table shows where the processor time of the client goes, and what a change would save.
"""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import leasehold
from benchmarks.report.rows import Result, compare
from benchmarks.rounds import Setup
from benchmarks.server import Server

WORK = "One pair on Redis, by folder"
WARM_UP, PAIRS = 50, 20
PACKAGE = f"{Path(leasehold.__file__).parent}/"
FOLDERS = {
    "coordinator/": "coordinator and primitives: options, the walk of an acquire",
    "primitives/": "coordinator and primitives: options, the walk of an acquire",
    "_core/": "_core: what a lease is, and when it ends",
    "_runtime/": "_runtime: registers, watchdog, idle connections",
    "stores/": "stores/redis: packing, sending, parsing",
    "observe/": "observe: are there observers?",
}
ELSEWHERE = "the standard library: threading, asyncio, selectors"


class Counts:
    """Bytecodes and calls while it is installed, in everything but this file."""

    def __init__(self) -> None:
        self.bytecodes: Counter[str] = Counter()
        self.calls: Counter[str] = Counter()

    def __call__(self, frame: FrameType, event: str, _argument: object) -> Any:
        """As ``sys.settrace`` calls it."""
        file = frame.f_code.co_filename
        if file == __file__:
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        if event in ("call", "opcode"):
            inside = file.removeprefix(PACKAGE)
            folder = inside.partition("/")[0] + "/" if inside != file else ""
            counter = self.calls if event == "call" else self.bytecodes
            counter[FOLDERS.get(folder, ELSEWHERE)] += 1
        return self


@contextmanager
def counted(counts: Counts) -> Iterator[None]:
    sys.settrace(counts)
    try:
        yield
    finally:
        sys.settrace(None)


def threads(url: str) -> Counts:
    """One thread."""
    counts = Counts()
    with leasehold.connect(url) as hold:

        def pairs(number: int) -> None:
            for _ in range(number):
                with hold.lock("job", 1):
                    pass

        pairs(WARM_UP)
        with counted(counts):
            pairs(PAIRS)
    return counts


def tasks(url: str) -> Counts:
    """One asyncio task, and the event loop that runs it."""
    counts = Counts()

    async def run() -> None:
        async with leasehold.aio.connect(url) as hold:

            async def pairs(number: int) -> None:
                for _ in range(number):
                    async with hold.lock("job", 1):
                        pass

            await pairs(WARM_UP)
            with counted(counts):
                await pairs(PAIRS)

    asyncio.run(run())
    return counts


def bytecodes(setup: Setup) -> Result:
    """Both flavours in one table."""
    ways: dict[str, Callable[[str], Counts]] = {"threads": threads, "asyncio": tasks}
    rows = []
    with Server() as server:
        for number, (way, count) in enumerate(ways.items()):
            setup.step("flavour", number + 1, len(ways))
            found = count(server.url())
            for unit, counter in ((f"bytecodes, {way}", found.bytecodes), (f"calls, {way}", found.calls)):
                folders = {
                    name: [round(counter[name] / PAIRS)] for name in (*dict.fromkeys(FOLDERS.values()), ELSEWHERE)
                }
                rows += compare(WORK, unit, {**folders, "all": [round(counter.total() / PAIRS)]})
    return Result(rows)


PIECES = {"bytecodes": bytecodes}
