"""What must be true of leases that pass between the workers of one process, besides all that is true of grants.

A passed lease has an owner and a fence of its own, and the store's grant is another's: what its holder believes is
compared with that grant. Fences grow over all leases that anybody ever held.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from leasehold._core import ledger, ops
from leasehold._core.holding import ALIVE, HELD, LOST, Holding
from leasehold._core.policy import MOST_PASSES, PASS_SECONDS, renewal_budget_ms
from leasehold._core.types import Instant, State, Waiter
from tests.support.simulator.checks import Belief, Checks, grant_of
from tests.support.simulator.process import Process
from tests.support.simulator.storechecks import live

SLOW_CLOCK = 1.01


@dataclass(slots=True)
class Asked:
    """The last time that a holder asked the store for fences, or that its grant brought some."""

    ttl_ms: int
    tell: bool
    at: float
    others: bool  # somebody waited elsewhere
    passes: int = 0  # since then


@dataclass(slots=True)
class CohortChecks(Checks):
    """Sees what passes as well."""

    passes: int = 0
    taken: int = 0  # leases that had lingered
    blocks: int = 0  # grants that brought fences for others
    most_overtaken: int = 0
    slept: set[str] = field(default_factory=set)  # who was frozen while it asked the store for fences
    crews: dict[str, int] = field(default_factory=dict)  # process -> how many work in it
    _reserved: dict[str, int] = field(default_factory=dict)  # resource -> the last fence that was ever reserved
    _leases: set[tuple[str, int]] = field(default_factory=set)  # resource and fence of all that were passed on
    _handed_on: set[str] = field(default_factory=set)  # whose lease went on to somebody else
    _wanted: set[tuple[str, int]] = field(default_factory=set)  # grants whose holders were told that others wait
    _heard: dict[int, ops.Renew] = field(default_factory=dict)  # every such question, by its id
    _asked: dict[tuple[str, int], Asked] = field(default_factory=dict)  # by the store's grant
    _overtaken: dict[tuple[str, int, str, int], int] = field(default_factory=dict)  # a remote waiter, by a grant

    # ------------------------------------------------------------ in the store

    def turn(self, op: ops.ResourceOp, now: Instant, before: State, outcome: ledger.Outcome) -> None:
        Checks.turn(self, op, now, before, outcome)
        reply = outcome.reply
        if isinstance(op, ops.Renew) and op.fences and isinstance(reply, ops.Renewed):
            if reply.last:
                given = max(self._fence.get(op.resource, 0), self._reserved.get(op.resource, 0))
                self.require(reply.first > given, "I2 reserved what was given already:", reply, "after", given)
                self._reserved[op.resource] = reply.last
            others = any(live(one, now) for one in outcome.state.queue)
            if not others:
                self._wanted.discard((op.owner, op.fence))
            if id(op) not in self._heard:  # nobody hears the answer to one that was delivered twice
                self._heard[id(op)] = op
                self._asked[op.owner, op.fence] = Asked(op.ttl_ms, op.tell, self.world.now, others)
        for push in outcome.pushes:
            if push.last:
                self.require(push.last <= now.wall_us, "I2 a grant brought fences beyond the clock:", push)
                self._reserved[op.resource] = push.last
                self._asked[push.owner, push.fence] = Asked(push.remaining_ms, False, self.world.now, others=True)

    def brought(self, holding: Holding) -> None:
        """A grant that brought fences has reached its holder: its time to pass it on counts from here."""
        self._asked[grant_of(holding)].at = self.world.now
        self.blocks += 1

    def _granted(self, resource: str, owner: str, fence: int) -> None:
        Checks._granted(self, resource, owner, fence)
        last = self._reserved.get(resource, 0)
        self.require(fence > last, "I2 a reserved fence was minted:", owner, fence, "not above", last)

    # ------------------------------------------------------------ passing on

    def passed(self, process: Process, giver: Holding, was: tuple[str, float], follower: Holding) -> None:
        """I1, I2: nothing that is in doubt; by the same grant; a new owner with a fence of its own above all others.
        From here on the process believes in the follower in place of the giver."""
        self.passes += 1
        self._was_sure(process, giver, was)
        self.require(grant_of(follower) == grant_of(giver), "I1 passed on another grant:", *grant_of(follower))
        self._handed_over(giver)
        self._begins(process, follower)

    def kept(self, process: Process, giver: Holding, was: tuple[str, float]) -> None:
        """It lingers: nobody believes in it."""
        self._was_sure(process, giver, was)
        self._handed_over(giver)

    def taken_again(self, process: Process, follower: Holding) -> None:
        """What lingered has a holder again. Nobody else has believed in it meanwhile: that is compared with the
        store."""
        self.taken += 1
        wanted = grant_of(follower) in self._wanted
        self.require(not wanted, "I15 took what somebody else waits for:", *grant_of(follower))
        left = follower.stop_at - process.local()
        self.require(left > 0, "I11 took what is over:", follower.owner, f"since {-left:.3f} s")
        self._begins(process, follower, lingered=True)

    def wanted_by_others(self, push: ops.Push) -> None:
        """The process knows from here on that a claim of somebody else waits."""
        self._wanted.add((push.owner, push.fence))

    def _was_sure(self, process: Process, giver: Holding, was: tuple[str, float]) -> None:
        sure, stop_at = was
        fit = sure == HELD and process.local() < stop_at
        self.require(fit, "I11 passed on what is in doubt:", giver.owner, sure)

    def _handed_over(self, giver: Holding) -> None:
        self._handed_on.add(giver.owner)
        for belief in self.beliefs[giver.name.text]:
            belief.over = belief.over or (belief.holding is giver and giver.phase not in ALIVE)

    def _begins(self, process: Process, follower: Holding, lingered: bool = False) -> None:
        name, fence = follower.name.text, follower.fence
        self.require(follower.owner not in self._takers, "I2 an owner has one lease in its life:", follower.owner)
        self._takers.add(follower.owner)
        self.require(fence <= self._reserved.get(name, 0), "I2 passed on with a fence that nobody reserved:", fence)
        last = self._fence.get(name, 0)
        self.require(self.wiped_once or fence > last, "I2 a passed fence did not grow:", fence, "after", last)
        self.require((name, fence) not in self._leases, "I2 a fence was given twice:", fence)
        self._leases.add((name, fence))
        self._fence[name] = max(last, fence)
        self.beliefs[name].append(Belief(process, follower))
        self._fair(process, name, grant_of(follower), lingered)

    def taken_up(self, process: Process, held: Holding) -> None:
        left = held.deadline - process.local()
        self.require(left > 0, "trap 26: took up what is over:", held.owner, f"since {-left:.3f} s")

    def served(self, number: int, waiting: list[int]) -> None:
        """I15, inside a process: in the order of arrival."""
        self.require(all(number < one for one in waiting), "I15 overtook others of its process:", number, waiting)

    def _fair(self, process: Process, resource: str, grant: tuple[str, int], lingered: bool) -> None:
        """I15: who waits elsewhere is overtaken by a cohort so many times at most, and the store is asked about it now
        and then, or tells; once it was seen, each who waits here gets one turn."""
        state, now = self.world.states.get(resource, ledger.EMPTY), self.world.instant()
        for waiter in state.queue:
            if live(waiter, now) and self._elsewhere(process, waiter):
                place = waiter.owner, waiter.since_us, *grant
                self._overtaken[place] = times = self._overtaken.get(place, 0) + 1
                self.most_overtaken = max(self.most_overtaken, times)
                self.require(times <= MOST_PASSES, "I15 a cohort overtook", waiter.owner, times, "times")
        self.require(grant in self._asked, "I1 passed on what the store has not granted:", *grant)
        asked = self._asked[grant]
        asked.passes += 1
        longest = PASS_SECONDS * SLOW_CLOCK + renewal_budget_ms(asked.ttl_ms) / 1000
        late = self.world.now - max(asked.at, process.frozen_until)
        self.require(lingered or asked.tell or late <= longest, "I15 the store was not asked for", f"{late:.3f} s")
        fair = asked.passes < self.crews[process.name] if asked.others else asked.passes <= MOST_PASSES
        self.require(fair, "I15 a cohort went on after it had seen others:", asked.passes, "times")

    def _elsewhere(self, process: Process, waiter: Waiter) -> bool:
        return self._is_there(waiter) and waiter.owner.split(":")[0] != process.name

    # ------------------------------------------------------------ how it ends

    def released(self, holding: Holding, believed: bool, ours: bool) -> None:
        if holding.owner in self._handed_on:
            self.require(ours and believed, "I7 passed on, but the answer denies it:", holding.owner)
        else:  # who asked the store first, and was frozen meanwhile, knows that it is over before it gives back
            over = holding.phase == LOST and holding.owner in self.slept
            Checks.released(self, holding, believed and not over, ours)

    def gone_for_good(self, holding: Holding) -> None:
        """I8: what the store is said to have no longer is not there."""
        if self.wiped_once or holding.phase != LOST or holding.reason not in ("taken", "deleted"):
            return
        state, now = self.world.states.get(holding.name.text, ledger.EMPTY), self.world.instant()
        there = any((one.owner, one.fence) == grant_of(holding) and one.expires_ms > now.ms for one in state.holders)
        self.require(not there, "I8 given up although the store has it:", *grant_of(holding), holding.reason)
