"""The invariants, each a method that raises ``Violation``. They restate the promises and trust nobody.

The strongest is ``beliefs``: as long as a holder may believe that it holds, the store has a grant with that owner
and fence which ends no earlier. All clocks are translated to true time for that; no client could do it.
A ``wiped`` store has broken its promises about the present (documented), so only fences and guards are judged then.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from leasehold.core import ledger, ops
from leasehold.core.holding import ALIVE, Holding
from leasehold.core.policy import forgotten_after_ms, patience_ms
from leasehold.core.types import Grant, Instant, State, Waiter
from leasehold.testing.process import Process
from leasehold.testing.world import EPOCH_US, World

SLACK_MS = 20  # what a round trip and a late timer take in calm weather
ENDINGS = (ops.Release, ops.Withdraw, ops.Evict)


class Violation(AssertionError):
    """A promise was broken."""


@dataclass(slots=True)
class Belief:
    """A holding from the grant until its release is sent, its process dies or its deadline passes."""

    process: Process
    holding: Holding
    over: bool = False

    def until(self) -> float:
        return self.process.true_time(self.holding.deadline)


@dataclass(slots=True)
class Checks:
    """Sees every turn of the ledger and every step of the workers."""

    world: World = field(init=False)
    wiped_once: bool = False
    grants: int = 0
    writes: int = 0
    beliefs: dict[str, list[Belief]] = field(default_factory=dict)
    _fence: dict[str, int] = field(default_factory=dict)  # resource -> the highest ever granted
    _written: dict[str, tuple[int, str]] = field(default_factory=dict)  # resource -> last accepted by its guard
    _owners: set[str] = field(default_factory=set)  # who was ever granted
    _ghosts: set[str] = field(default_factory=set)  # who was granted again, behind its own back
    _takers: set[str] = field(default_factory=set)  # who ever believed in a grant
    _ended: dict[tuple[str, int], str] = field(default_factory=dict)  # how a grant ended in the store
    _evicted: set[tuple[str, int]] = field(default_factory=set)
    _freed_ms: dict[str, int] = field(default_factory=dict)  # resource -> since when it is free, door and all

    def require(self, holds: bool, promise: str, *details: object) -> None:
        if not holds:
            raise Violation(" ".join([promise, *map(str, details)]))

    # ------------------------------------------------------------ what holders believe

    def took(self, process: Process, holding: Holding) -> None:
        self.require(holding.owner not in self._takers, "I2 an owner has one grant in its life:", holding.owner)
        self._takers.add(holding.owner)
        left = holding.deadline - process.local()
        self.require(left > 0, "trap 26: acquired what is over:", holding.owner, f"since {-left:.3f} s")
        self.beliefs.setdefault(holding.name.text, []).append(Belief(process, holding))

    def releasing(self, holding: Holding) -> None:
        for belief in self.beliefs[holding.name.text]:
            belief.over = belief.over or belief.holding is holding

    def believed(self) -> None:
        """I1 and its cause, after every event: who believes is alone, and the store agrees."""
        for resource, beliefs in self.beliefs.items():
            if not beliefs:
                continue
            now = self.world.now
            live = [one for one in beliefs if not one.over and one.process.alive and now < one.until()]
            self.beliefs[resource] = live
            if self.wiped_once:
                continue
            self.require(len(live) < 2, "I1 two holders at once:", *(one.holding.owner for one in live))
            for one in live:
                self._store_agrees(resource, one)

    def _store_agrees(self, resource: str, belief: Belief) -> None:
        holding, state = belief.holding, self.world.states[resource]
        key = holding.owner, holding.fence
        ends_ms = [one.expires_ms for one in state.holders if (one.owner, one.fence) == key]
        if key in self._evicted:  # out, but nobody else comes in before its time is over
            ends_ms = [state.closed_until_ms]
        self.require(bool(ends_ms), "I1 believed without a grant:", *key)
        over = belief.until() - self.world.true_time(ends_ms[0])
        self.require(over <= 0, "I1 believed beyond its expiry:", *key, f"by {over * 1000:.1f} ms")

    def told(self, process: Process, holding: Holding) -> None:
        """I11, for leases with a margin. An extend that shortens cuts into the margin, and may be told late."""
        on_time = not holding.renews or process.habits.extends or process.local() <= holding.deadline
        self.require(bool(on_time), "I11 loss was told after the deadline:", holding.owner)

    def waited(self, holding: Holding, time_passed: bool) -> None:
        """A watchdog that looks when it is told to, and then has nothing to do, would spin."""
        self.require(time_passed or holding.phase not in ALIVE, "the watchdog spins over", holding.owner)

    def accepted(self, resource: str, fence: int, owner: str) -> None:
        """I3, from the guard's own books: never lower, never equal from somebody else."""
        self.writes += 1
        last, by = self._written.get(resource, (0, ""))
        self.require(fence > last or (fence, owner) == (last, by), "I3 stale write accepted:", fence, "<", last)
        self._written[resource] = fence, owner

    def released(self, holding: Holding, believed: bool, ours: bool) -> None:
        """I7: however often it was asked, the answer is what happened in the store."""
        if self.wiped_once:
            return
        ended = self._ended.get((holding.owner, holding.fence), "")
        self.require(not ours or ended == "Release", "I7 released, says the answer; but it", ended or "holds")
        denied = believed and not ours and holding.owner not in self._ghosts
        self.require(not denied or ended != "Release", "I7 the release of", holding.owner, "was denied")

    def starved(self, process: Process, why: str) -> None:
        raise Violation(f"I12 {process.name} did not acquire in calm weather: {why}")

    # ------------------------------------------------------------ what the store does

    def turn(self, op: ops.StoreOp, now: Instant, before: State, outcome: ledger.Outcome) -> None:
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
            self._ghosts.add(owner)
        self._owners.add(owner)

    def _went_on(self, op: ops.StoreOp, now: Instant, grant: Grant, after: State) -> None:
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
            self._ended[key] = "expired"
            return
        own = isinstance(op, ENDINGS) and op.owner == grant.owner
        self.require(own, "I7 ended by somebody else:", *key, op)
        self._ended[key] = type(op).__name__
        if isinstance(op, ops.Evict):
            self._evicted.add(key)

    def _in_order(self, owner: str, now: Instant, before: State, after: State) -> None:
        """I15: whoever stood before it and still waits had fallen silent; without faults nobody does."""
        left = {(one.owner, one.since_us) for one in after.queue}  # who came back meanwhile has a new place
        for waiter in before.queue:
            if waiter.owner == owner:
                return
            overtaken = (waiter.owner, waiter.since_us) in left and (
                live(waiter, now) or self.world.plan.kind == "quiet"
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

    # ------------------------------------------------------------ the end of the world

    def nothing_left(self) -> None:
        """I6, I12: where no packet was lost nothing is left at once; else time alone takes care of it."""
        if self.world.plan.kind in ("quiet", "gentle"):
            for resource, state in self.world.states.items():
                self.require(not state.holders and not state.queue, "I6 left behind:", resource, state)
        ttl_ms = self.world.plan.longest_ttl_ms
        later = ttl_ms + forgotten_after_ms(ttl_ms) + patience_ms(ttl_ms) / 3
        at = self.world.instant(self.world.now + later / 1000 * 1.01)
        for resource, state in self.world.states.items():
            view = ledger.apply(state, at, ops.Inspect(resource), self.world.reachable).reply
            self.require(
                isinstance(view, ops.View) and not view.holders and not view.queue, "I6 a permanent ghost:", view
            )


def live(waiter: Waiter, now: Instant) -> bool:
    return now.ms - waiter.beat_ms <= patience_ms(waiter.ttl_ms)
