"""A process that pays:    python -m tests.processes.patterns.once.worker sync|asyncio URL JOURNAL NAME

Each command is a line of JSON on stdin, each answer one on stdout. ``pay`` says that it runs, with its fence, and goes
on when it is told to. What it does is a line in the journal.
"""

from __future__ import annotations

import asyncio
import json
import sys
from concurrent.futures import ThreadPoolExecutor

import leasehold
from leasehold.errors import LeaseholdError
from tests.support.patterns.tools import note, say

TTL = 1.5


class Worker:
    """What both flavours do."""

    def __init__(self, url: str, journal: str, name: str) -> None:
        self.url, self.journal, self.name = url, journal, name

    def effect(self, fence: int | None) -> None:
        """What a payment is here."""
        note(self.journal, f"{self.name} {fence}")


class OnThreads(Worker):
    """Threads."""

    def serve(self) -> None:
        """Obey until there is nothing more."""
        hold = leasehold.connect(self.url)
        once = hold.once("payment", "{request_id}", ttl=TTL, fingerprint="{body}", lease_as="lease")

        @once
        def pay(request_id: str, body: str, *, lease: leasehold.Lease) -> str:
            self.effect(lease.fence)
            say({"running": lease.fence})
            sys.stdin.readline()
            return self.name

        @once
        def quick(request_id: str, body: str, *, lease: leasehold.Lease) -> str:
            self.effect(lease.fence)
            return self.name

        for line in sys.stdin:
            command = json.loads(line)
            try:
                if command["do"] == "pay":
                    say({"result": pay(command["id"], "body")})
                elif command["do"] == "crowd":
                    with ThreadPoolExecutor(command["count"]) as pool:
                        say({"results": list(pool.map(lambda _: quick("crowd", "body"), range(command["count"])))})
            except LeaseholdError as error:
                say({"error": type(error).__name__, "text": str(error)})


class OnLoop(Worker):
    """asyncio."""

    def serve(self) -> None:
        """Obey until there is nothing more."""
        asyncio.run(self.main())

    async def main(self) -> None:
        """On the loop."""
        lines = asyncio.StreamReader()
        await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
        async with leasehold.aio.connect(self.url) as hold:
            once = hold.once("payment", "{request_id}", ttl=TTL, fingerprint="{body}", lease_as="lease")

            @once
            async def pay(request_id: str, body: str, *, lease: leasehold.AsyncLease) -> str:
                self.effect(lease.fence)
                say({"running": lease.fence})
                await lines.readline()
                return self.name

            @once
            async def quick(request_id: str, body: str, *, lease: leasehold.AsyncLease) -> str:
                self.effect(lease.fence)
                await asyncio.sleep(0.01)
                return self.name

            while line := await lines.readline():
                command = json.loads(line)
                try:
                    if command["do"] == "pay":
                        say({"result": await pay(command["id"], "body")})
                    elif command["do"] == "crowd":
                        callers = [quick("crowd", "body") for _ in range(command["count"])]
                        say({"results": await asyncio.gather(*callers)})
                except LeaseholdError as error:
                    say({"error": type(error).__name__, "text": str(error)})


if __name__ == "__main__":
    (OnThreads if sys.argv[1] == "sync" else OnLoop)(*sys.argv[2:]).serve()
