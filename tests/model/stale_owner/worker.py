"""A worker of the model: it holds a lease, or says that it does, and reads and writes a guarded counter.

Its arguments are FLAVOUR URL PLAN NAME; ``PLAN`` is JSON: the description of the target, and the file for what it did.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from itertools import count
from typing import Any, TypeVar

from leasehold._core.headers import Fencing
from leasehold.errors import Conflict, LeaseLost, OutcomeUnknown, StaleOwner, StoreUnavailable
from leasehold.guards.fence import Fenced
from leasehold.primitives.lock import Lock
from tests.model.stale_owner.evidence import DONE, NOTHING, PRESENTED, READ, REFUSED, TRY, UNKNOWN, Log
from tests.model.stale_owner.targets import Description, nothing, open_target
from tests.support.workers.worker import Answer, SyncWorker, say

PATIENCE = 15.0  # seconds for a target that somebody else keeps locked
STALE = -1  # what somebody writes who was refused when it read, and goes on all the same
R = TypeVar("R")


class GuardWorker(SyncWorker):
    """Reads, writes, and goes on writing when it should not."""

    def open(self, data: str) -> None:
        """The target, and the evidence."""
        plan = json.loads(data)
        self.target = open_target(Description(*plan["target"]))
        self.log = Log(plan["log"], self.name)
        self.numbers = count(1)

    # ------------------------------------------------------------ one step at a time

    def bare(self, fence: int, resource: str, owner: str) -> Answer:
        """No lease at all: a fence that came in a message."""
        self.lease = Fencing(fence, resource, owner)
        return {}

    def look(self) -> Answer:
        """Present, then read."""
        return self.insist(lambda: self.target.read(self.lease))

    def put(self, value: int, pause: bool = False) -> Answer:
        """Write what was worked out before; with ``pause`` it waits in the middle for another command."""
        return self.insist(lambda: self.put_once(self.lease, value, self.pause if pause else nothing))

    def look_and_put(self, value: int, pause: bool = False) -> Answer:
        """Both."""
        self.look()
        return self.put(value, pause)

    def add(self, pause: bool = False) -> Answer:
        """One transaction; with ``pause`` it waits between its read and its write for another command."""
        return self.insist(lambda: self.add_once(self.lease, self.pause if pause else nothing))

    def pause(self) -> None:
        """The test decides how it goes on."""
        say({"inside": True})
        self.commands.next()

    def insist(self, call: Callable[[], int]) -> Answer:
        """Again while the target says that it is busy and nothing has happened. What was read too early stays so."""
        busy, end = 0, time.monotonic() + PATIENCE
        while True:
            try:
                return {"value": call(), "busy": busy}
            except StoreUnavailable as error:
                if time.monotonic() > end or (self.target.optimistic and isinstance(error, Conflict)):
                    raise
            busy += 1
            time.sleep(0.01)

    # ------------------------------------------------------------ with evidence

    def put_once(self, lease: Fenced, value: int, midway: Callable[[], None] = nothing) -> int:
        """A guarded write."""

        def write(note: str) -> int:
            self.target.write(lease, value, note, midway)
            return value

        return self.attempt(lease, write)

    def add_once(self, lease: Fenced, midway: Callable[[], None]) -> int:
        """A guarded transaction."""
        return self.attempt(lease, lambda note: self.target.add_one(lease, note, midway))

    def attempt(self, lease: Fenced, write: Callable[[str], R]) -> R:
        """Tell of it before and after."""
        note = f"{self.name}.{next(self.numbers)}"
        outcome = UNKNOWN
        self.log.add(TRY, lease, note)
        try:
            result = write(note)
            outcome = DONE
            return result
        except StaleOwner:
            outcome = REFUSED
            raise
        except StoreUnavailable:
            outcome = NOTHING
            raise
        finally:
            self.log.add(outcome, lease, note)

    # ------------------------------------------------------------ a storm

    def storm(self, kind: str, ttl: float, work: float) -> Answer:
        """Turn after turn, among freezes and kills, until the next command comes."""
        lost = turns = 0
        while not self.commands.waiting():
            turns += 1
            try:
                self.obstinate(self.hold.lock(kind, ttl=ttl), work, self.target.one_step and turns % 2 == 0)
            except LeaseLost:
                lost += 1
            except (StoreUnavailable, OutcomeUnknown):
                continue
        return {"lost": lost}

    def obstinate(self, lock: Lock, work: float, in_one_step: bool) -> None:
        """One lease; when it is lost, another update all the same, as if nothing had happened."""
        try:
            with lock as lease, suppress(StaleOwner):
                self.turn(lease, work, in_one_step)
        except LeaseLost:
            with suppress(StaleOwner):
                self.turn(lease, work, in_one_step=False)
            raise

    def turn(self, lease: Fenced, work: float, in_one_step: bool) -> None:
        """Two updates, without a look at the lease: a local clock is no fence."""
        for _ in range(2):
            if in_one_step:
                self.insist(lambda: self.add_once(lease, lambda: time.sleep(work)))
                continue
            try:
                value = self.insist(lambda: self.target.read(lease))["value"] + 1
                self.log.add(READ if self.target.optimistic else PRESENTED, lease, "")
            except StaleOwner:
                value = STALE
            time.sleep(work)
            with suppress(Conflict):
                self.insist(partial(self.put_once, lease, value))


def main(arguments: Sequence[str]) -> None:
    """Begin."""
    worker: Any = GuardWorker(*arguments[1:])
    worker.serve()
