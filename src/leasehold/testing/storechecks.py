"""What the store may do, judged at every turn of the ledger: who is granted, in which order, and how a grant ends.

The promises are restated here from the states before and after a turn; how the ledger came to its decision does not
matter. ``Checks`` adds what holders believe.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from leasehold.core import ledger, ops
from leasehold.core.policy import patience_ms
from leasehold.core.types import Grant, Instant, State, Waiter
from leasehold.testing.world import EPOCH_US, World

SLACK_MS = 20  # what a round trip and a late timer take in calm weather
ENDINGS = (ops.Release, ops.Withdraw, ops.Evict)


class Violation(AssertionError):
    """A promise was broken."""


@dataclass(slots=True)
class StoreChecks:
    """Remembers every grant that there ever was."""

    world: World = field(init=False)
    wiped_once: bool = False
    grants: int = 0
    ended: dict[tuple[str, int], str] = field(default_factory=dict)  # how a grant ended in the store
    ghosts: set[str] = field(default_factory=set)  # who was granted again, behind its own back
    _owners: set[str] = field(default_factory=set)  # who was ever granted
    _fence: dict[str, int] = field(default_factory=dict)  # resource -> the highest ever granted
    _freed_ms: dict[str, int] = field(default_factory=dict)  # resource -> since when it is free, door and all

    def require(self, holds: bool, promise: str, *details: object) -> None:
        if not holds:
            raise Violation(" ".join([promise, *map(str, details)]))

    def turn(self, op: ops.ResourceOp, now: Instant, before: State, outcome: ledger.Outcome) -> None:
        after = outcome.state
        self.require(len(after.holders) < 2, "I1 the store has two holders of", op.resource)
        self._no_stall(op.resource, now, before)
        for grant in before.holders:
            self._went_on(op, now, grant, after)
        pushed = [(one.owner, one.fence) for one in outcome.pushes if one.event == "granted"]
        old = [(one.owner, one.fence) for one in before.holders]
        for owner, fence in pushed + [(one.owner, one.fence) for one in after.holders]:
            if (owner, fence) not in old:
                old.append((owner, fence))
                self._granted(op.resource, owner, fence)
                self._in_order(owner, now, before, after)
        if (old and not after.holders) or after.closed_until_ms:
            self._freed_ms[op.resource] = max(now.ms, after.closed_until_ms)

    def wiped(self) -> None:
        self.wiped_once = True

    def _granted(self, resource: str, owner: str, fence: int) -> None:
        """I2, with every grant that was ever seen."""
        self.grants += 1
        last = self._fence.get(resource, 0)
        self.require(fence > last, "I2 a fence did not grow:", owner, fence, "after", last)
        self._fence[resource] = fence
        if owner in self._owners:  # documented: a duplicated claim may make a ghost that nobody uses
            allowed = self.wiped_once or self.world.plan.weather.duplicated > 0
            self.require(allowed, "I2 an owner was granted twice:", owner)
            self.ghosts.add(owner)
        self._owners.add(owner)

    def _went_on(self, op: ops.ResourceOp, now: Instant, grant: Grant, after: State) -> None:
        """I7, I8: a grant ends by its time or by its own owner, and only extend shortens it."""
        same = [one for one in after.holders if (one.owner, one.fence) == (grant.owner, grant.fence)]
        if same:
            shorter = same[0].expires_ms < grant.expires_ms
            exact = isinstance(op, ops.Renew) and op.exact
            self.require(not shorter or exact, "I8 shortened by accident:", grant.owner)
            self.require(grant.expires_ms > now.ms, "I8 brought back to life:", grant.owner)
            return
        key = grant.owner, grant.fence
        if grant.expires_ms <= now.ms:
            self.ended[key] = "expired"
            return
        own = isinstance(op, ENDINGS) and op.owner == grant.owner
        self.require(own, "I7 ended by somebody else:", *key, op)
        self.ended[key] = type(op).__name__

    def _in_order(self, owner: str, now: Instant, before: State, after: State) -> None:
        """I15: whoever stood before it and still waits had fallen silent or is out of reach; without faults nobody
        is."""
        left = {(one.owner, one.since_us) for one in after.queue}  # who came back meanwhile has a new place
        for waiter in before.queue:
            if waiter.owner == owner:
                return
            overtaken = (
                (waiter.owner, waiter.since_us) in left
                and (not waiter.address or self.world.reachable(waiter.address))
                and (live(waiter, now) or self.world.plan.kind == "quiet")
            )
            self.require(not overtaken, "I15", owner, "overtook", waiter.owner)

    def _no_stall(self, resource: str, now: Instant, before: State) -> None:
        """I14: in calm weather nothing that is free stays free for longer than L and a beat while somebody
        waits for it. A waiter that died a moment ago costs that much, and no more."""
        waiting = [one for one in before.queue if live(one, now) and self._is_there(one)]
        if not waiting or not self.world.calm() or any(one.expires_ms > now.ms for one in before.holders):
            return
        longest = max(patience_ms(one.ttl_ms) for one in before.queue)
        since_ms = max(
            [max(one.expires_ms + one.delay_ms, one.closed_until_ms) for one in before.holders]
            + [self._freed_ms.get(resource, 0)]
            + [min((one.since_us - EPOCH_US) // 1000 for one in waiting)]
            + [self.world.instant(self.world.plan.calm_at).ms]
        )
        stalled = now.ms - since_ms > longest * 4 / 3 + SLACK_MS
        self.require(not stalled, "I14", resource, "was free for", now.ms - since_ms, "ms while somebody waited")

    def _is_there(self, waiter: Waiter) -> bool:
        return self.world.processes[waiter.owner.split(":")[0]].alive


def live(waiter: Waiter, now: Instant) -> bool:
    return now.ms - waiter.beat_ms <= patience_ms(waiter.ttl_ms)
