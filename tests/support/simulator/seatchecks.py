"""Who may hold beside whom, restated without a look at the rules of the ledger.

A place is what one holder has, or what is kept free after it: a rule and numbered slots. The same question is asked of
what the store grants and of what holders believe.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from leasehold._core import ops
from leasehold._core.rules import MUTEX, READ, SEMAPHORE
from leasehold._core.types import Grant, State, Waiter
from tests.support.simulator.world import World


class Violation(AssertionError):
    """A promise was broken."""


class Place(NamedTuple):
    """What somebody has, or what nobody may have yet."""

    rule: str
    slots: tuple[int, ...]
    until_ms: int = 0


def clash(places: Sequence[Place]) -> str:
    """The promise that is broken when these are taken at one time, or nothing."""
    rules = {one.rule for one in places}
    if len(places) < 2 or rules == {READ}:
        return ""
    if rules == {SEMAPHORE}:
        slots = [slot for one in places for slot in one.slots]
        return "I9 one slot was given twice:" if len(slots) > len(set(slots)) else ""
    return "I1 two holders at once:" if MUTEX in rules else "I10 a writer is not alone:"


def fits(seats: Sequence[Place], waiter: Waiter, limit: int) -> bool:
    """Is there room for it?"""
    if not seats or waiter.rule != SEMAPHORE:
        return not seats or {waiter.rule, *(one.rule for one in seats)} == {READ}
    taken = sum(len(one.slots) for one in seats)
    return {one.rule for one in seats} == {SEMAPHORE} and taken + waiter.permits <= limit


def places(grants: Iterable[Grant]) -> list[Place]:
    return [Place(one.rule, one.slots, one.expires_ms) for one in grants]


@dataclass(slots=True)
class SeatChecks:
    """Keeps its own books of limits, and of places that stay closed after their holder."""

    world: World = field(init=False)
    limits: dict[tuple[str, int], int] = field(default_factory=dict)  # a permit -> the limit that it was given under
    unused: set[str] = field(default_factory=set)  # who was granted something and never worked with it
    _resized: dict[str, int] = field(default_factory=dict)  # resource -> its limit, whatever claims say
    _closed: dict[str, list[Place]] = field(default_factory=dict)  # resource -> what must not be given yet

    def require(self, holds: bool, promise: str, *details: object) -> None:
        if not holds:
            raise Violation(" ".join([promise, *map(str, details)]))

    def room(self, op: ops.ResourceOp, own: int) -> tuple[int, int]:
        """The least and the most that a claim may go by in this turn: a Resize comes in the middle of its own."""
        before = self._resized.get(op.resource) or own
        after = op.limit if isinstance(op, ops.Resize) else before
        return min(before, after), max(before, after)

    def seated(self, op: ops.ResourceOp, ms: int, grant: Grant, after: State) -> None:
        """I1, I9, I10: there was room for this one, beside whoever came before it and beside every closed door."""
        for door in self._closed.get(op.resource, ()):
            behind = door.until_ms > ms and clash([door, Place(grant.rule, grant.slots)])
            self.require(not behind, "I1 through a closed door:", grant.owner, door)
        if grant.rule != SEMAPHORE:
            return
        self.limits[grant.owner, grant.fence] = most = self.room(op, grant.limit)[1]
        seats = places(one for one in after.holders if one.fence <= grant.fence)
        seats += [one for one in self._closed.get(op.resource, ()) if one.until_ms > ms]
        taken = {slot for one in seats for slot in one.slots}
        self.require(len(taken) <= most, "I9 more permits than the limit of", most, "in", op.resource, taken)

    def ended(self, op: ops.ResourceOp, ms: int, grant: Grant, how: str) -> None:
        """What this grant leaves closed: by at_least after a clean end, until its holder has surely stopped after any
        other. A grant that reached nobody closes nothing."""
        until_ms = grant.closed_until_ms
        if how in ("expired", "Evict"):
            until_ms = max(until_ms, grant.expires_ms + grant.delay_ms)
        bolted = how == "Release" and until_ms > ms and grant.owner in self.unused
        self.require(not bolted, "I6 closed by somebody who did nothing:", grant.owner)
        still = [one for one in self._closed.get(op.resource, ()) if one.until_ms > ms]
        if until_ms > ms and how != "Withdraw":
            still.append(Place(grant.rule, grant.slots, until_ms))
        self._closed[op.resource] = still

    def resized(self, op: ops.ResourceOp) -> None:
        if isinstance(op, ops.Resize):
            self._resized[op.resource] = op.limit

    def set_back(self, ms: int) -> None:
        """The store's clock was, by so much: what is closed stays closed for as long as before."""
        for resource, doors in self._closed.items():
            self._closed[resource] = [one._replace(until_ms=one.until_ms - ms) for one in doors]

    def forgot(self) -> None:
        """The store did."""
        self._closed.clear()
        self._resized.clear()
