"""The invariants, each a method that raises ``Violation``. They restate the promises and trust nobody.

Those about the store alone are in ``storechecks``. The strongest is ``believed``: as long as a holder may believe that
it holds, the store has a grant with that owner and fence which ends no earlier, and nobody believes beside it who must
not. All clocks are translated to true time for that; no client could do it. A store that was wiped has broken its
promises about the present (documented), so only fences and guards are judged from then on.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import partial

from leasehold._core import ledger, ops
from leasehold._core.holding import ALIVE, Holding
from leasehold._core.policy import WATCH_MS, forgotten_after_ms, patience_ms
from leasehold._core.rules import READ, SEMAPHORE
from leasehold._core.types import Instant, State
from tests.support.simulator.process import Process
from tests.support.simulator.seatchecks import Place, Violation, clash
from tests.support.simulator.sights import Sights
from tests.support.simulator.storechecks import StoreChecks

MOMENT = 0.05  # seconds, for what is sent in the background and is not lost


@dataclass(slots=True)
class Belief:
    """A holding from the grant until its release is sent, its process dies or its deadline passes."""

    process: Process
    holding: Holding
    over: bool = False
    agreed: tuple[State, float, str] | None = None  # what was compared last: the same again need not be

    def until(self) -> float:
        return self.process.true_time(self.holding.deadline)

    def stands(self, now: float) -> bool:
        return not self.over and self.process.alive and now < self.until()


def grant_of(holding: Holding) -> tuple[str, int]:
    """The owner and the fence of the store's grant: those of another lease where this one was passed on."""
    return holding.granted_as or (holding.owner, holding.fence)


@dataclass(slots=True)
class Checks(StoreChecks):
    """Sees every turn of the ledger and every step of the workers."""

    writes: int = 0
    beliefs: dict[str, list[Belief]] = field(default_factory=dict)
    sights: Sights = field(init=False)
    _takers: set[str] = field(default_factory=set)  # who ever believed in a grant
    _written: dict[str, tuple[int, str]] = field(default_factory=dict)  # resource -> last accepted by its guard

    def turn(self, op: ops.ResourceOp, now: Instant, before: State, outcome: ledger.Outcome) -> None:
        StoreChecks.turn(self, op, now, before, outcome)
        self.sights.turn(op.resource, before, outcome.state)

    def wiped(self) -> None:
        StoreChecks.wiped(self)
        self.sights.wiped()

    # ------------------------------------------------------------ what holders believe

    def took(self, process: Process, holding: Holding) -> None:
        self.require(holding.owner not in self._takers, "I2 an owner has one grant in its life:", holding.owner)
        self._takers.add(holding.owner)
        left = holding.deadline - process.local()
        self.require(left > 0, "trap 26: acquired what is over:", holding.owner, f"since {-left:.3f} s")
        self.beliefs.setdefault(holding.name.text, []).append(Belief(process, holding))

    def sent(self, op: ops.ResourceOp | ops.Group) -> None:
        """A holder believes no longer when it gives back; and what gives back behind its back is no excuse."""
        for step in op.steps if isinstance(op, ops.Group) else (op,):
            if not isinstance(step, (ops.Release, ops.Withdraw)):
                continue
            for belief in self.beliefs.get(step.resource, ()):
                ours = grant_of(belief.holding)[0] == step.owner
                belief.over = belief.over or (ours and belief.holding.phase not in ALIVE)

    def believed(self) -> None:
        """I1, I9, I10 and their cause, after every event: who believes has nobody beside it who must not be there, and
        the store agrees."""
        now = self.world.now
        for resource, beliefs in self.beliefs.items():
            if not beliefs:
                continue
            live = [one for one in beliefs if one.stands(now)]
            self.beliefs[resource] = live
            for one in live:
                self._within_the_ttl(one)
            if self.wiped_once:
                continue
            if len(live) > 1:
                self._side_by_side([one.holding for one in live])
            state = self.world.states[resource]
            for one in live:
                compared = one.agreed
                holding = one.holding
                if (
                    compared is None
                    or compared[0] is not state
                    or compared[1] != holding.deadline
                    or compared[2] != holding.rule
                ):
                    self._store_agrees(state, one)
                    one.agreed = state, holding.deadline, holding.rule

    def _within_the_ttl(self, belief: Belief) -> None:
        """I19: whatever the store's clock says, nobody believes for longer than it has asked for."""
        habits = belief.process.habits
        left = belief.holding.deadline - belief.process.local()
        most = habits.ttl_ms / 1000 * (3 if habits.extends else 1)
        self.require(left <= most, "I19 believed for longer than was asked for:", belief.holding.owner, left)

    def _side_by_side(self, holdings: list[Holding]) -> None:
        broken = clash([Place(one.rule, one.slots) for one in holdings])
        self.require(not broken, broken, *(one.owner for one in holdings))
        if holdings[0].rule == SEMAPHORE:  # who came last was let in beside all the others
            last = max(holdings, key=lambda one: one.fence)
            limit = self.limits[last.owner, last.fence]
            believed = sum(len(one.slots) for one in holdings)
            self.require(believed <= limit, "I9 more permits are believed in than there are:", believed, ">", limit)

    def _store_agrees(self, state: State, belief: Belief) -> None:
        holding = belief.holding
        key = grant_of(holding)
        ends_ms = None
        for one in state.holders:
            if (one.owner, one.fence) == key:
                ends_ms = one.expires_ms
                same = holding.rule in (one.rule, READ)  # who only reads may be known as a writer still
                self.require(same and one.slots == holding.slots, "I10 believed to be more than it is:", *key)
        if self.endings.get(key) == "Evict":  # out, but nobody else comes in before its time is over
            place = holding.rule, holding.slots
            doors = [one.until_ms for one in state.doors if (one.rule, one.slots) == place]
            ends_ms = max(state.closed_until_ms, *doors, 0)
        if ends_ms is None:
            raise Violation(f"I1 believed without a grant: {key}")
        over = belief.until() - self.world.true_time(ends_ms)
        self.require(over <= 0, "I1 believed beyond its expiry:", *key, f"by {over * 1000:.1f} ms")

    def told(self, process: Process, holding: Holding) -> None:
        """I11, for leases with a margin. An extend that shortens cuts into the margin, and may be told late."""
        on_time = not holding.renews or process.habits.extends or process.local() <= holding.deadline
        self.require(bool(on_time), "I11 loss was told after the deadline:", holding.owner)

    def waited(self, holding: Holding, time_passed: bool) -> None:
        """A watchdog that looks when it is told to, and then has nothing to do, would spin."""
        self.require(time_passed or holding.phase not in ALIVE, "the watchdog spins over", holding.owner)

    # ------------------------------------------------------------ what holders do

    def accepted(self, name: str, holding: Holding, remembered: int) -> None:
        """I3, from the guard's own books: never lower, never equal from somebody else. A reader leaves no trace."""
        self.writes += 1
        fence, owner = holding.fence, holding.owner
        last, by = self._written.get(name, (0, ""))
        self.require(fence > last or (fence, owner) == (last, by), "I3 stale write accepted:", fence, "<", last)
        if holding.rule == READ:
            self.require(remembered == last, "I3 the guard remembers a reader:", owner)
        else:
            self._written[name] = fence, owner

    def turned_away(self, holding: Holding) -> None:
        """Trap 47: who may believe is not refused, whoever reads or has a permit beside it."""
        now = self.world.now
        rightful = any(one.holding is holding and one.stands(now) for one in self.beliefs[holding.name.text])
        self.require(self.wiped_once or not rightful, "I3 a rightful holder was refused:", holding.owner)

    def changed(self, holding: Holding, rule: str, meta: str) -> None:
        """What the store has confirmed to its holder is so."""
        state = self.world.states.get(holding.name.text, ledger.EMPTY)
        for one in state.holders:
            if (one.owner, one.fence) == (holding.owner, holding.fence):
                self.require(one.rule == rule, "I10 not downgraded, though confirmed:", one)
                self.require(one.meta == meta or not meta, "I13 not said, though confirmed:", one)

    def left_nothing(self, process: Process, owners: Iterable[str], holdings: Iterable[Holding]) -> None:
        """I6: what a failed, timed-out or cancelled acquire was granted is held no longer, no door is left closed, and
        where no packet is lost nothing of it is in the store a moment later."""
        held = [one.owner for one in holdings if one.phase in ALIVE]
        self.require(not held, "I6 held although the rest was not acquired:", *held)
        self.unused.update(one.owner for one in holdings)
        if self.world.plan.kind in ("quiet", "gentle"):
            self.world.at(self.world.now + MOMENT, partial(self._gone, process, set(owners)))

    def _gone(self, process: Process, owners: set[str]) -> None:
        world = self.world
        if not process.alive:
            return
        held_up = max(process.frozen_until, world.stalled_until) + MOMENT
        if world.now < held_up:
            world.at(held_up, partial(self._gone, process, owners))
            return
        for resource, state in world.states.items():
            here = [one.owner for one in state.holders] + [one.owner for one in state.queue]
            left = [owner for owner in here if owner in owners]
            self.require(not left, "I6 left behind:", resource, *left)

    def released(self, holding: Holding, believed: bool, ours: bool) -> None:
        """I7: however often it was asked, the answer is what happened in the store."""
        if self.wiped_once:
            return
        ended = self.endings.get(grant_of(holding), "")
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
        later = max(ttl_ms + forgotten_after_ms(ttl_ms) + patience_ms(ttl_ms) / 3, WATCH_MS)
        at = self.world.instant(self.world.now + later / 1000 * 1.01)
        for resource, state in self.world.states.items():
            look = ops.Inspect(resource)
            seen = ledger.apply(state, self.world.instant(), look, self.world.reachable).state
            left = ledger.apply(seen, at, look, self.world.reachable).state
            ghosts = left.holders or left.queue or left.closed_until_ms or left.doors or left.watchers
            self.require(not ghosts, "I6 a permanent ghost:", left)
