"""One process of a fleet, whose clock is wrong: it notes each tick that it runs in a file."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from datetime import datetime
from typing import Any

import leasehold
from tests.support.patterns.cron.clocks import SharedClock
from tests.support.patterns.tools import note


def ran(given: dict[str, Any], tick: datetime) -> None:
    """Which tick, and by whom."""
    note(given["journal"], f"{int(tick.timestamp())} {os.getpid()}")


def ready() -> None:
    """From here on it attends to ticks."""
    sys.stdout.write("ready\n")
    sys.stdout.flush()


def on_thread(given: dict[str, Any], clock: SharedClock) -> None:
    """A cron in a thread, until the day is over."""
    with leasehold.connect(given["url"]) as hold:

        @hold.cron(given["expression"], "rollup", clock=clock, **given["options"])
        def rollup(tick: datetime) -> None:
            ran(given, tick)
            time.sleep(given["work"])

        rollup.start()
        ready()
        sys.stdin.readline()


async def on_loop(given: dict[str, Any], clock: SharedClock) -> None:
    """The same in a task."""
    async with leasehold.aio.connect(given["url"]) as hold:

        @hold.cron(given["expression"], "rollup", clock=clock, **given["options"])
        async def rollup(tick: datetime) -> None:
            ran(given, tick)
            await asyncio.sleep(given["work"])

        rollup.start()
        ready()
        await asyncio.to_thread(sys.stdin.readline)


def main() -> None:
    """What to do stands on the command line, as JSON; a line on standard input says that the day is over."""
    given = json.loads(sys.argv[1])
    clock = SharedClock(given["clock"], given["skew"])
    if given["flavour"] == "sync":
        on_thread(given, clock)
    else:
        asyncio.run(on_loop(given, clock))


if __name__ == "__main__":
    main()
