"""The invariants, each a method that raises ``Violation``. They restate the promises and trust nobody.

Those about the store alone are in ``storechecks``. The strongest is ``believed``: as long as a holder may believe that
it holds, the store has a grant with that owner and fence which ends no earlier. All clocks are translated to true time
for that; no client could do it. A store that was wiped has broken its promises about the present (documented), so only
fences and guards are judged from then on.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from leasehold.core import ledger, ops
from leasehold.core.holding import ALIVE, Holding
from leasehold.core.policy import forgotten_after_ms, patience_ms
from leasehold.testing.process import Process
from leasehold.testing.storechecks import StoreChecks, Violation


@dataclass(slots=True)
class Belief:
    """A holding from the grant until its release is sent, its process dies or its deadline passes."""

    process: Process
    holding: Holding
    over: bool = False

    def until(self) -> float:
        return self.process.true_time(self.holding.deadline)


@dataclass(slots=True)
class Checks(StoreChecks):
    """Sees every turn of the ledger and every step of the workers."""

    writes: int = 0
    beliefs: dict[str, list[Belief]] = field(default_factory=dict)
    _takers: set[str] = field(default_factory=set)  # who ever believed in a grant
    _written: dict[str, tuple[int, str]] = field(default_factory=dict)  # resource -> last accepted by its guard

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
        if self.ended.get(key) == "Evict":  # out, but nobody else comes in before its time is over
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
        ended = self.ended.get((holding.owner, holding.fence), "")
        self.require(not ours or ended == "Release", "I7 released, says the answer; but it", ended or "holds")
        denied = believed and not ours and holding.owner not in self.ghosts
        self.require(not denied or ended != "Release", "I7 the release of", holding.owner, "was denied")

    def starved(self, process: Process, why: str) -> None:
        raise Violation(f"I12 {process.name} did not acquire in calm weather: {why}")

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
