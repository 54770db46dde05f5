"""One process of a fleet, whose clock is fast and wrong: it notes each tick that it runs in a file."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from datetime import datetime
from typing import Any

import leasehold
from tests.patterns.cron.clocks import FastClock


def note(path: str, tick: datetime, skew: float) -> None:
    """One line, in one piece, however many write."""
    line = f"{int(tick.timestamp())} {os.getpid()} {skew}\n".encode()
    journal = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(journal, line)
    os.close(journal)


def on_thread(given: dict[str, Any], clock: FastClock) -> None:
    """A cron in a thread, until the day is over."""
    with leasehold.connect(given["url"]) as hold:

        @hold.cron(given["expression"], "rollup", clock=clock, **given["options"])
        def rollup(tick: datetime) -> None:
            note(given["journal"], tick, given["skew"])
            time.sleep(given["work"])

        rollup.start()
        sys.stdin.readline()


async def on_loop(given: dict[str, Any], clock: FastClock) -> None:
    """The same in a task."""
    async with leasehold.aio.connect(given["url"]) as hold:

        @hold.cron(given["expression"], "rollup", clock=clock, **given["options"])
        async def rollup(tick: datetime) -> None:
            note(given["journal"], tick, given["skew"])
            await asyncio.sleep(given["work"])

        rollup.start()
        await asyncio.to_thread(sys.stdin.readline)


def main() -> None:
    """What to do stands on the command line, as JSON; when the day begins is told when all are ready, and a line after
    that says that it is over."""
    given = json.loads(sys.argv[1])
    leasehold.connect(given["url"]).cron(given["expression"], "loaded")  # whatever must be imported
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    begin = float(sys.stdin.readline())
    clock = FastClock(begin, given["start"], given["end"], given["speed"], given["skew"])
    if given["flavour"] == "sync":
        on_thread(given, clock)
    else:
        asyncio.run(on_loop(given, clock))


if __name__ == "__main__":
    main()
