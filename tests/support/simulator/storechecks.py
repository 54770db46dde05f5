"""What the store may do, judged at every turn of the ledger: who is granted, in which order, and how a grant ends.

The promises are restated here from the states before and after a turn; how the ledger came to its decision does not
matter. ``Checks`` adds what holders believe.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from leasehold._core import ledger, ops
from leasehold._core.policy import patience_ms
from leasehold._core.rules import READ, SEMAPHORE, WRITE
from leasehold._core.types import Grant, Instant, State, Waiter
from tests.support.simulator.seatchecks import Place, SeatChecks, clash, fits, places
from tests.support.simulator.world import EPOCH_US

SLACK_MS = 20  # what a round trip and a late timer take in calm weather
ENDINGS = (ops.Release, ops.Withdraw, ops.Evict)


@dataclass(slots=True)
class StoreChecks(SeatChecks):
    """Remembers every grant that there ever was."""

    wiped_once: bool = False
    grants: int = 0
    endings: dict[tuple[str, int], str] = field(default_factory=dict)  # how a grant ended in the store
    ghosts: set[str] = field(default_factory=set)  # who was granted again, behind its own back
    _owners: dict[str, int] = field(default_factory=dict)  # who was ever granted, and its last fence
    _fence: dict[str, int] = field(default_factory=dict)  # resource -> the highest ever granted
    _moved_ms: dict[str, int] = field(default_factory=dict)  # resource -> when there was more room, or less, doors too
    # resource -> for how long one who has waited since then may be silent, also one who has left
    _longest_ms: dict[str, int] = field(default_factory=dict)

    def turn(self, op: ops.ResourceOp, now: Instant, before: State, outcome: ledger.Outcome) -> None:
        after, before = outcome.state, bounded(before, now.ms)
        if broken := clash(places(after.holders)):
            self.require(False, broken, op.resource, *(one.owner for one in after.holders))
        self._no_stall(op.resource, now, before)
        for grant in before.holders:
            self._went_on(op, now, grant, after)
        fresh = self._fresh(before, outcome)
        for owner, fence in fresh:
            self._granted(op.resource, owner, fence)
            self._in_order(op, owner, now, before, after)
        for grant in after.holders:
            if (grant.owner, grant.fence) in fresh:
                self.seated(op, now.ms, grant, after)
        self.resized(op)
        longest_ms = max([self._longest_ms.get(op.resource, 0), *_patience(before.queue)])
        if fresh or after.closed_until_ms or room_of(before) != room_of(after):
            self._moved_ms[op.resource] = max(now.ms, after.closed_until_ms)
            longest_ms = 0
        self._longest_ms[op.resource] = longest_ms

    def wiped(self) -> None:
        self.wiped_once = True
        self.forgot()

    def turned(self, ms: int) -> None:
        """Forward: leases end before their holders can know, which is documented. Back: nothing may be different but
        that what the store has lasts longer, and never longer than it was to last."""
        if ms > 0:
            self.wiped_once = True
            return
        self.set_back(-ms)
        self._moved_ms = {resource: moved_ms + ms for resource, moved_ms in self._moved_ms.items()}

    def _fresh(self, before: State, outcome: ledger.Outcome) -> list[tuple[str, int]]:
        """Who was granted in this turn, in the order of the fences: those who are gone again by its end as well."""
        old = {(one.owner, one.fence) for one in before.holders}
        new = {(one.owner, one.fence) for one in outcome.state.holders}
        if outcome.pushes:
            new |= {(one.owner, one.fence) for one in outcome.pushes if one.event == "granted"}
        return sorted(new - old, key=lambda one: one[1])

    def _granted(self, resource: str, owner: str, fence: int) -> None:
        """I2, with every grant that was ever seen."""
        self.grants += 1
        last = self._fence.get(resource, 0)
        self.require(fence > last, "I2 a fence did not grow:", owner, fence, "after", last)
        self._fence[resource] = fence
        if owner in self._owners:  # documented: its first grant has expired unseen; or nobody uses this one
            over = self.endings.get((owner, self._owners[owner])) == "expired"
            allowed = over or self.wiped_once or self.world.plan.weather.duplicated > 0
            self.require(allowed, "I2 an owner was granted twice:", owner)
            self.ghosts.add(owner)
        self._owners[owner] = fence

    def _went_on(self, op: ops.ResourceOp, now: Instant, grant: Grant, after: State) -> None:
        """I7, I8, I10: a grant ends by its time or by its own owner, only extend shortens it, and nothing of it changes
        but that a writer becomes a reader."""
        same = [one for one in after.holders if (one.owner, one.fence) == (grant.owner, grant.fence)]
        if same:
            shorter = same[0].expires_ms < grant.expires_ms
            exact = isinstance(op, ops.Renew) and op.exact
            self.require(not shorter or exact, "I8 shortened by accident:", grant.owner)
            self.require(grant.expires_ms > now.ms, "I8 brought back to life:", grant.owner)
            lowered = isinstance(op, ops.Renew) and op.shared and op.owner == grant.owner and grant.rule == WRITE
            kept = same[0].rule == grant.rule or (lowered and same[0].rule == READ)
            self.require(kept and same[0].slots == grant.slots, "I10 changed behind its back:", grant, same[0])
            return
        key = grant.owner, grant.fence
        self.endings[key] = "expired"
        if grant.expires_ms > now.ms:
            own = isinstance(op, ENDINGS) and op.owner == grant.owner
            self.require(own, "I7 ended by somebody else:", *key, op)
            self.endings[key] = type(op).__name__
        self.ended(op, now.ms, grant, self.endings[key])

    def _in_order(self, op: ops.ResourceOp, owner: str, now: Instant, before: State, after: State) -> None:
        """I15, I10: whoever stood before it and still waits had fallen silent, is out of reach or wants more than there
        is; without faults nobody is. Whether it would have fitted does not matter: a writer is not overtaken by
        readers, nor a big claim by small ones."""
        left = {(one.owner, one.since_us) for one in after.queue}  # who came back meanwhile has a new place
        for waiter in before.queue:
            if waiter.owner == owner:
                return
            overtaken = (
                (waiter.owner, waiter.since_us) in left
                and (not waiter.address or self.world.reachable(waiter.address))
                and (live(waiter, now) or self.world.plan.kind == "quiet")
                and not self._impossible(op, waiter)
            )
            self.require(not overtaken, "I15", owner, "overtook", waiter.owner)

    def _impossible(self, op: ops.ResourceOp, waiter: Waiter) -> bool:
        return waiter.rule == SEMAPHORE and waiter.permits > self.room(op, waiter.limit)[0]

    def _no_stall(self, resource: str, now: Instant, before: State) -> None:
        """I14, I10: in calm weather nothing that is free stays free for longer than L and a beat while somebody
        waits for it. A waiter that died a moment ago costs that much, and no more."""
        if not before.queue or not self.world.calm() or before.closed_until_ms > now.ms:
            return
        look = ops.Inspect(resource)
        waiting = [
            one for one in before.queue if live(one, now) and self._is_there(one) and not self._impossible(look, one)
        ]
        seats = [one for one in places(before.holders) if one.until_ms > now.ms]
        seats += [Place(*one[:3]) for one in before.doors if one.until_ms > now.ms]
        if not waiting or not fits(seats, waiting[0], self.room(look, waiting[0].limit)[0]):
            return
        longest = max([self._longest_ms.get(resource, 0), *_patience(before.queue)])
        over = [one for one in before.holders if one.expires_ms <= now.ms]
        since_ms = max(
            [max(one.expires_ms + one.delay_ms, one.closed_until_ms) for one in over]
            + [one.until_ms for one in before.doors if one.until_ms <= now.ms]
            + [self._moved_ms.get(resource, 0)]
            + [min((one.since_us - EPOCH_US) // 1000 for one in waiting)]
            + [self.world.instant(self.world.plan.calm_at).ms]
        )
        stalled = now.ms - since_ms > longest * 4 / 3 + SLACK_MS
        self.require(not stalled, "I14", resource, "was free for", now.ms - since_ms, "ms while somebody waited")

    def _is_there(self, waiter: Waiter) -> bool:
        return self.world.processes[waiter.owner.split(":")[0]].alive


def bounded(state: State, ms: int) -> State:
    """No end is further ahead than what it was set with, and nobody was heard of later than now."""
    late = [max(one.expires_ms - one.ttl_ms - ms, 0) for one in state.holders]
    if not any(late) and all(one.beat_ms <= ms for one in state.queue):
        return state
    holders = [
        one._replace(expires_ms=one.expires_ms - by, closed_until_ms=max(one.closed_until_ms - by, 0))
        for one, by in zip(state.holders, late, strict=True)
    ]
    queue = [one._replace(beat_ms=min(one.beat_ms, ms)) for one in state.queue]
    return state._replace(holders=tuple(holders), queue=tuple(queue))


def _patience(queue: Sequence[Waiter]) -> list[int]:
    return [patience_ms(one.ttl_ms) for one in queue]


def live(waiter: Waiter, now: Instant) -> bool:
    return now.ms - waiter.beat_ms <= patience_ms(waiter.ttl_ms)


def room_of(state: State) -> tuple[object, ...]:
    """What decides how much room there is, apart from time."""
    return [(one.fence, one.rule) for one in state.holders], state.doors, state.limit
