"""A worker that can also give its lease away, adopt one, and act as an operator.

python -m tests.processes.handover.worker sync|asyncio URL JOURNAL NAME
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Sequence
from multiprocessing.connection import Connection
from typing import Any

from leasehold.errors import LeaseholdError
from tests.support.workers import worker
from tests.support.workers.worker import Answer, failure

SOON = 60.0  # seconds after which an event is said not to have come


def loss_of(lease: Any) -> Answer:
    """How the lease was lost; nothing while it is not."""
    try:
        lease.check()
    except LeaseholdError as error:
        return failure(error)
    return {}


def seen(found: Any) -> Answer:
    """An inspection, as JSON."""
    holder = found.holder
    return {
        "fence": holder and holder.fence,
        "waiters": len(found.waiters),
        "closed_for": found.closed_for,
        "notes": [[one.event, one.fence, one.by, one.reason] for one in found.notes],
    }


class SyncWorker(worker.SyncWorker):
    """Threads."""

    def transfer(self) -> Answer:
        """Give it away."""
        return {"ticket": self.lease.transfer()}

    def adopt(self, ticket: str, **more: Any) -> Answer:
        """Take it over."""
        self.lease = self.hold.adopt(ticket, **more)
        return self.entered()

    def adopt_from(self, variable: str, ttl: float) -> Answer:
        """With the ticket that this process was started with."""
        return self.adopt(os.environ[variable], ttl=ttl)

    def evict(self, kind: str, **more: Any) -> Answer:
        """Take somebody's away."""
        done = self.hold.evict(kind, **more)
        return {"owner": done.owner, "fence": done.fence, "closed_for": done.closed_for}

    def revoke(self, kind: str) -> Answer:
        """Ask for somebody's."""
        return {"reached": self.hold.revoke(kind)}

    def inspect(self, kind: str) -> Answer:
        """Look."""
        return seen(self.hold.inspect(kind))

    def until_lost(self) -> Answer:
        """Wait for the loss, and say how it came."""
        return {"lost": self.lease.lost.wait(SOON), **loss_of(self.lease)}

    def until_revoked(self) -> Answer:
        """Wait to be asked for it, and give it back."""
        return {"revoked": self.lease.revoked.wait(SOON), "released": self.lease.release()}

    def fork_and_transfer(self) -> Answer:
        """A child tries to give away what its parent holds."""

        def life(pipe: Connection) -> None:
            try:
                pipe.send({"ticket": self.lease.transfer()})
            except LeaseholdError as error:
                pipe.send(failure(error))

        pipe, pid = worker._fork(life)
        return {**worker._hear(pipe), **self.reap(pid)}


class AsyncWorker(worker.AsyncWorker):
    """asyncio."""

    async def transfer(self) -> Answer:
        """Give it away."""
        return {"ticket": await self.lease.transfer()}

    async def adopt(self, ticket: str, **more: Any) -> Answer:
        """Take it over."""
        self.lease = await self.hold.adopt(ticket, **more)
        return self.entered()

    async def evict(self, kind: str, **more: Any) -> Answer:
        """Take somebody's away."""
        done = await self.hold.evict(kind, **more)
        return {"owner": done.owner, "fence": done.fence, "closed_for": done.closed_for}

    async def revoke(self, kind: str) -> Answer:
        """Ask for somebody's."""
        return {"reached": await self.hold.revoke(kind)}

    async def until_lost(self) -> Answer:
        """Wait for the loss, and say how it came."""
        await asyncio.wait_for(self.lease.lost.wait(), SOON)
        return {"lost": True, **loss_of(self.lease)}

    async def until_revoked(self) -> Answer:
        """Wait to be asked for it, and give it back."""
        await asyncio.wait_for(self.lease.revoked.wait(), SOON)
        return {"revoked": True, "released": await self.lease.release()}


FLAVOURS: dict[str, type[SyncWorker] | type[AsyncWorker]] = {"sync": SyncWorker, "asyncio": AsyncWorker}


def main(arguments: Sequence[str]) -> None:
    """Begin."""
    flavour, url, data, name = arguments
    FLAVOURS[flavour](url, data, name).serve()


if __name__ == "__main__":
    main(sys.argv[1:])
