"""One process of a crowd: many threads and tasks that want the same lock, all on one CPU.

    python -m tests.support.workers.crowd URL THREADS TASKS TURNS

It says ``ready``, waits for a line on stdin, and then prints one line of JSON: its turns, the losses that it was told
of, and the errors that came out.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import threading
import time
from collections.abc import Callable, Sequence
from itertools import count
from typing import Any

import leasehold
from leasehold._core import ledger, ops
from leasehold._core.types import Instant, State
from leasehold.errors import LeaseholdError
from tests.support.workers import journal

TTL, WAIT, HELD = 30, 300, 0.001  # seconds
lengths = (TTL + number / 1000 for number in count())  # no two alike: each claims in the store for itself


class Crowd:
    """What is known of the waiters of this process."""

    def __init__(self, url: str, turns: int) -> None:
        self.url = url
        self.turns = turns
        self.taken: list[tuple[int, float, float, tuple[int, int] | None]] = []
        self.errors: list[str] = []
        self.queued: dict[str, tuple[int, int]] = {}

    def watch_queue(self) -> None:
        """Note, inside the store's own turn, behind whom each claim of ours is put."""
        real = ledger.apply

        def spy(
            state: State,
            now: Instant,
            op: ops.ResourceOp,
            reachable: Callable[[str], bool] = ledger.always_reachable,
            advanced: bool = False,
        ) -> ledger.Outcome:
            outcome = real(state, now, op, reachable, advanced)
            if isinstance(op, ops.Claim) and isinstance(outcome.reply, ops.Queued):
                owners = [waiter.owner for waiter in outcome.state.queue]
                self.queued[op.owner] = (outcome.state.fence, owners.index(op.owner))
            return outcome

        ledger.apply = spy

    def note(self, lease: Any, entered: float, left: float) -> None:
        """One turn is over."""
        self.taken.append((lease.fence, entered, left, self.queued.pop(lease.owner, None)))

    def in_thread(self, hold: leasehold.Leasehold) -> None:
        """One waiter, on a thread."""
        for _ in range(self.turns):
            try:
                with hold.lock("crowd", ttl=next(lengths), wait=WAIT) as lease:
                    entered = journal.now()
                    time.sleep(HELD)
                    left = journal.now()
                self.note(lease, entered, left)
            except LeaseholdError as error:
                self.errors.append(f"thread: {error!r}")

    async def in_task(self, hold: leasehold.AsyncLeasehold) -> None:
        """One waiter, in a task."""
        for _ in range(self.turns):
            try:
                async with hold.lock("crowd", ttl=next(lengths), wait=WAIT) as lease:
                    entered = journal.now()
                    await asyncio.sleep(HELD)
                    left = journal.now()
                self.note(lease, entered, left)
            except LeaseholdError as error:
                self.errors.append(f"task: {error!r}")

    async def all_tasks(self, tasks: int) -> None:
        """All waiters of the event loop."""
        async with leasehold.aio.connect(self.url) as hold:
            await asyncio.gather(*[self.in_task(hold) for _ in range(tasks)])


def main(arguments: Sequence[str]) -> None:
    """All of them, to the end."""
    url, threads, tasks, turns = arguments[0], *map(int, arguments[1:])
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    crowd = Crowd(url, turns)
    crowd.watch_queue()
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    sys.stdin.readline()
    with leasehold.connect(url) as hold:
        running = [threading.Thread(target=crowd.in_thread, args=[hold]) for _ in range(threads)]
        for thread in running:
            thread.start()
        if tasks:
            asyncio.run(crowd.all_tasks(tasks))
        for thread in running:
            thread.join()
    sys.stdout.write(json.dumps({"turns": crowd.taken, "errors": crowd.errors}) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
