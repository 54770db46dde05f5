"""The seeded simulator for etcd and ZooKeeper: the production flows, turns and ledger over a server of records.

python -m tests.support.simulator.simulate_records --seed 4711
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, cast

from leasehold._core import ledger, ops
from leasehold._core.policy import patience_ms
from leasehold._core.types import Grant, State, visible_holders
from leasehold.stores.record.text import DOUBT_MS
from tests.support.simulator import simulate
from tests.support.simulator.checks import MOMENT, Checks
from tests.support.simulator.draws import draw_plan
from tests.support.simulator.onlooker import Onlooker
from tests.support.simulator.plans import Habits
from tests.support.simulator.process import Process
from tests.support.simulator.records import UNFINISHED, RecordProcess, RecordWorld, Spot, Version
from tests.support.simulator.seatchecks import Violation, clash, places
from tests.support.simulator.sights import Sights, soon
from tests.support.simulator.simulate import Simulation
from tests.support.simulator.storechecks import ENDINGS
from tests.support.simulator.world import World

SLOWEST = 1.02  # how much longer something lasts for who saw it late and has a slow clock
UNSEEN = 0.1  # seconds between a change and the latest moment at which somebody reads it, in calm weather


@dataclass(slots=True)
class RecordChecks(Checks):
    """Sees every change of a record. All ends are the earliest that anybody can think of."""

    world: RecordWorld = field(init=False)
    _set_by: int = 0

    def committed(self, op: Any, resource: str, before: State, after: State, queued: tuple[Spot, ...]) -> None:
        steps = op.steps if isinstance(op, ops.Group) else (op,)
        step = next(one for one in steps if one.resource == resource)
        now = self.world.instant()
        if broken := clash(places(after.holders)):
            self.require(self.wiped_once, broken, resource, *(one.owner for one in after.holders))
        old = {(one.owner, one.fence) for one in before.holders}
        for grant in before.holders:
            self._kept(step, now.ms, grant, after)
        for grant in after.holders:
            if (grant.owner, grant.fence) in old:
                continue
            self._granted(resource, grant.owner, grant.fence)
            if not self.wiped_once:
                self._first(grant.owner, queued)
                if grant.owner not in (getattr(step, "owner", ""), getattr(step, "adopter", "")):
                    self._handed(resource, grant, queued)
                self.seated(step, now.ms, grant, after)
        self.resized(step)
        self.sights.turn(resource, before, after)
        if self.world.plan.kind == "quiet":
            version = self.world.version(resource)
            if version.places and not (after.holders or after.closed_until_ms or after.doors):
                self.world.at(self.world.now + MOMENT, partial(self._taken, resource, version))

    def _kept(self, op: Any, ms: int, grant: Any, after: State) -> None:
        """I7, I8: a grant ends by its time or by its own owner."""
        same = [one for one in after.holders if (one.owner, one.fence) == (grant.owner, grant.fence)]
        if same:
            shorter = same[0].expires_ms < grant.expires_ms
            exact = isinstance(op, ops.Renew) and op.exact
            self.require(not shorter or exact, "I8 shortened by accident:", grant.owner)
            return
        key = grant.owner, grant.fence
        over = any(
            (one.owner, one.outcome) == (grant.owner, "expired") for one in after.ended
        )  # though its owner wrote
        own = isinstance(op, ENDINGS) and op.owner == grant.owner and not over
        self.endings[key] = type(op).__name__ if own else "expired"
        if not own and not self.wiped_once:
            left = grant.expires_ms - ms
            self.require(left <= 0, "I7 ended by somebody else:", *key, op, f"{left} ms early")
        self.ended(op, ms, grant, self.endings[key])

    def _first(self, owner: str, queued: tuple[Spot, ...]) -> None:
        """I15: nobody has a place before it."""
        owners = [self.world.tokens[one.owner] for one in queued]
        self.require(not owners or owners[0] == owner, "I15", owner, "overtook", *owners[:1])

    def _handed(self, resource: str, grant: Grant, queued: tuple[Spot, ...]) -> None:
        """I14: who is granted what another has freed gave a sign of life lately. And where nothing goes wrong it uses
        the grant, or gives it back."""
        world = self.world
        (spot,) = [one for one in queued if world.tokens[one.owner] == grant.owner]
        age_us = grant.since_us - world.instant(world.joined_at[spot.number]).wall_us  # when that was decided
        fine = age_us <= patience_ms(grant.ttl_ms) * 1000 * SLOWEST or world.plan.kind == "turned"
        self.require(fine, "I14 granted to a silent waiter:", grant)
        if world.plan.kind in ("quiet", "gentle"):
            world.at(world.now + 2 * MOMENT, partial(self._used, resource, grant))

    def _used(self, resource: str, grant: Grant) -> None:
        world = self.world
        process = cast("Process", world.processes[grant.owner.split(":")[0]])
        held_up = max(process.frozen_until, world.stalled_until) + 2 * MOMENT
        if world.now < held_up:
            world.at(held_up, partial(self._used, resource, grant))
            return
        holders = world.states[resource].holders
        left = any((one.owner, one.fence) == (grant.owner, grant.fence) for one in holders)
        self.require(not left or grant.owner in self._takers, "I6 granted, and nobody uses it:", grant)

    def _taken(self, resource: str, free: Version) -> None:
        """I12: where nothing goes wrong, the first one does not wait for what is free. Its next beat would find out."""
        version = self.world.version(resource)
        same = version.revision == free.revision and free.places[0] in version.places
        self.require(not same, "I12 free, and still waited for:", resource, *free.places[:1])

    def turned(self, ms: int) -> None:
        """A step forward of less than a minute does no harm. After a longer one, who has not watched a grant may think
        that it is over, which is documented."""
        self._set_by += max(ms, 0)
        if self._set_by >= DOUBT_MS // 2:
            self.wiped_once = True

    def _gone(self, process: Process, owners: set[str], again: bool = False) -> None:
        """I6. A renewal that arrives late prolongs a grant that nobody uses any more, once."""
        world = self.world
        held_up = max(process.frozen_until, world.stalled_until) + MOMENT
        if not process.alive:
            return
        if world.now < held_up:
            world.at(held_up, partial(self._gone, process, owners, again))
            return
        for resource, state in world.states.items():
            waiting = [one.owner for one in state.queue if one.owner in owners]
            held = [one for one in state.holders if one.owner in owners and world.true_time(one.expires_ms) > world.now]
            if not again and (held or waiting):
                later = world.now + world.plan.longest_ttl_ms / 1000 + UNFINISHED + MOMENT
                world.at(later, partial(self._gone, process, owners, True))
                return
            self.require(not waiting and not held, "I6 left behind:", resource, *waiting, *held)

    def nothing_left(self) -> None:
        """I6, I12: what a dead process has left ends by itself; a live one leaves nothing."""
        world = self.world
        calm = world.plan.kind in ("quiet", "gentle")
        for resource, state in world.states.items():
            held = [one for one in state.holders if world.true_time(one.expires_ms) > world.now]
            self.require(not calm or not held, "I6 left behind:", resource, *held)
            for spot in world.version(resource).places:
                name = world.tokens[spot.owner].split(":")[0]
                self.require(not world.processes[name].alive, "I6 a place is left:", world.tokens[spot.owner])
        at = world.instant(world.now + world.plan.longest_ttl_ms / 1000 * 1.05)
        for state in world.states.values():
            left = ledger.tidy(state._replace(queue=()), at)
            self.require(not left.holders, "I6 a permanent ghost:", left)


@dataclass(slots=True)
class RecordSights(Sights):
    """What is over stays in the record until somebody writes it: who looks must see that it is over."""

    def check(self, one: Onlooker) -> None:
        world = self.world
        able = max(self.settled_at(), one.began, one.process.frozen_until)
        since = max(self._changed_at.get(one.resource, 0.0), able)
        if not one.watches or world.now < since + soon(one) - 1e-9:
            return
        state = world.states.get(one.resource, State())
        longest = max([grant.ttl_ms for grant in state.holders], default=0) / 1000
        surely = [one for one in state.holders if world.true_time(one.expires_ms) > world.now]
        over = world.now - longest * (SLOWEST - 1) - UNSEEN - soon(one)
        # Who could not look before counts from then.
        late = [over < able + grant.ttl_ms / 1000 for grant in state.holders]
        maybe = [
            grant
            for grant, is_late in zip(state.holders, late, strict=True)
            if is_late or world.true_time(grant.expires_ms) > over
        ]
        self.seen += 1
        named = cast("RecordWorld", world).named
        known = visible_holders([named(grant) for grant in one.known or ()])
        fine = one.known is not None and known in (visible_holders(surely), visible_holders(maybe))
        if not fine and len(maybe) - len(surely) < 2:
            raise Violation(f"I13 {one.process.name} does not know who holds {one.resource}: {known} {maybe}")


class RecordSimulation(Simulation):
    """One seed."""

    def new_checks(self) -> Checks:
        return RecordChecks()

    def new_world(self) -> World:
        return RecordWorld(self.plan, self.checks)  # type: ignore[arg-type]  # it is a RecordChecks

    def new_sights(self) -> Sights:
        return RecordSights(self.world)

    def new_process(self, habits: Habits) -> Process:
        return RecordProcess(self.world, habits)  # type: ignore[arg-type]  # it is a RecordWorld


def run(seed: int) -> RecordSimulation:
    """Play one seed; a Violation carries the seed and how to see its history."""
    return simulate.played(RecordSimulation(draw_plan(seed)), __name__)


def find_violation(seeds: Iterable[int]) -> tuple[int, Violation] | None:
    """The first seed that breaks a promise."""
    return simulate.find_violation(seeds, run)


def main(arguments: list[str] | None = None) -> int:
    return simulate.main(arguments, lambda seed: RecordSimulation(draw_plan(seed)))


if __name__ == "__main__":
    sys.exit(main())
