"""A process of the fleet: callers of one decorated function, as many as it is told, in threads or in tasks.

    python -m tests.processes.patterns.flight.worker sync|asyncio URL LOG NAME

Every call of the function is a line in LOG. A command on stdin is a line of JSON; the answer says what the callers got.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import leasehold
from leasehold.errors import LeaseholdError
from leasehold.patterns import RemoteError
from tests.support.patterns.tools import note, say


def told(error: Exception) -> str:
    """An error in a word."""
    return f"RemoteError of {error.kind}" if isinstance(error, RemoteError) else type(error).__name__


class Program:
    """What both flavours are told: how long each rebuild takes, and whether it fails."""

    def __init__(self, log: str) -> None:
        self.log = log
        self.takes: list[float] = []
        self.fails = self.gated = False

    def begin(self) -> tuple[int, float]:
        """A rebuild: which one, and how long it takes."""
        note(self.log, f"rebuild by {os.getpid()}")
        number = len(Path(self.log).read_text().splitlines())
        return number, self.takes[min(number, len(self.takes)) - 1]

    def gate(self) -> bool:
        """May it end? When the test waits for something first, it then makes this file."""
        return not self.gated or Path(self.log + ".go").exists()

    def end(self, number: int) -> str:
        """What comes of it."""
        if self.fails:
            raise ValueError(f"rebuild {number} failed")
        return f"rebuild {number}"

    def options(self, command: dict[str, Any]) -> dict[str, Any]:
        """What it is told, and how its function is decorated."""
        self.takes, self.fails, self.gated = command["takes"], command.get("fails", False), command.get("gated", False)
        return {"ttl": command["ttl"], "errors": command.get("errors"), "wait": 30}


class Threads(Program):
    """Callers in threads."""

    def __init__(self, url: str, log: str) -> None:
        super().__init__(log)
        self.hold = leasehold.connect(url)

    def page(self, key: str) -> str:
        """What is rebuilt."""
        number, takes = self.begin()
        time.sleep(takes)
        while not self.gate():
            time.sleep(0.005)
        return self.end(number)

    def storm(self, command: dict[str, Any]) -> dict[str, int]:
        """All callers at once."""
        page = self.hold.single_flight("page", "{key}", **self.options(command))(self.page)
        found: Counter[str] = Counter()
        barrier = threading.Barrier(command["callers"])

        def call() -> None:
            barrier.wait(30)
            try:
                value = page("hot")
            except (LeaseholdError, ValueError) as error:
                value = told(error)
            found[value] += 1

        threads = [threading.Thread(target=call) for _ in range(command["callers"])]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        return dict(found)


class Tasks(Program):
    """Callers in tasks."""

    def __init__(self, url: str, log: str) -> None:
        super().__init__(log)
        self.hold = leasehold.aio.connect(url)
        self.runner = asyncio.Runner()

    async def page(self, key: str) -> str:
        """What is rebuilt."""
        number, takes = self.begin()
        await asyncio.sleep(takes)
        while not self.gate():  # noqa: ASYNC110  # another process makes a file
            await asyncio.sleep(0.005)
        return self.end(number)

    def storm(self, command: dict[str, Any]) -> dict[str, int]:
        """All callers at once."""
        return self.runner.run(self._storm(command))

    async def _storm(self, command: dict[str, Any]) -> dict[str, int]:
        page = self.hold.single_flight("page", "{key}", **self.options(command))(self.page)

        async def call() -> str:
            try:
                value: str = await page("hot")
                return value
            except (LeaseholdError, ValueError) as error:
                return told(error)

        return dict(Counter(await asyncio.gather(*(call() for _ in range(command["callers"])))))


def main() -> None:
    """Until stdin ends."""
    flavour, url, log, _name = sys.argv[1:]
    program = (Threads if flavour == "sync" else Tasks)(url, log)
    say({"ready": True})
    for line in sys.stdin:
        say(program.storm(json.loads(line)))


if __name__ == "__main__":
    main()
