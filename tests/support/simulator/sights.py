"""What onlookers must see: whoever watches a resource knows of the last change soon, and of an end that nobody told.

Judged only while nothing is in its way: in calm weather, and as long as it is not frozen.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial

from leasehold._core.policy import BUDGET_MS, WATCH_EVERY_MS, WATCH_POLL_MS
from leasehold._core.types import State, visible_holders
from tests.support.simulator.onlooker import Onlooker
from tests.support.simulator.seatchecks import Violation
from tests.support.simulator.world import World

SLACK = 0.025  # seconds: a push, a look that is under way and one more, timers that are late
HEALED = (BUDGET_MS + WATCH_EVERY_MS) / 1000 + SLACK  # after calm: the last call that goes unanswered, and one beat


@dataclass(slots=True)
class Sights:
    """Notes when holders changed, and looks whether it was seen."""

    world: World
    onlookers: list[Onlooker] = field(default_factory=list)
    seen: int = 0  # how often somebody knew what it had to know
    _changed_at: dict[str, float] = field(default_factory=dict)

    def turn(self, resource: str, before: State, after: State) -> None:
        if self.onlookers and visible_holders(before.holders) != visible_holders(after.holders):
            self._changed(resource)

    def wiped(self) -> None:
        for resource in {one.resource for one in self.onlookers}:
            self._changed(resource)

    def _changed(self, resource: str) -> None:
        self._changed_at[resource] = self.world.now
        for one in self.onlookers:
            if one.resource == resource and one.watches:
                self.world.at(self.world.now + soon(one), partial(self.check, one))

    def settled_at(self) -> float:
        plan = self.world.plan
        return 0.0 if plan.kind == "quiet" else plan.calm_at + HEALED

    def check(self, one: Onlooker) -> None:
        """I13: it knows who holds, or something changed or was in its way a moment ago."""
        world = self.world
        since = max(self._changed_at.get(one.resource, 0.0), self.settled_at(), one.began, one.process.frozen_until)
        if not one.watches or world.now < since + soon(one) - 1e-9:
            return
        self.seen += 1
        state = world.states.get(one.resource, State())
        if one.known is None or visible_holders(one.known) != visible_holders(state.holders):
            raise Violation(f"I13 {one.process.name} does not know who holds {one.resource}: {state.holders}")
        for grant in state.holders:
            if world.now > world.true_time(grant.expires_ms) + soon(one):
                raise Violation(f"I13 {one.process.name} did not notice that {grant.owner} is over")


def soon(one: Onlooker) -> float:
    """Within this time it must know: by a push, or by looking where nothing can be pushed."""
    return SLACK if one.process.habits.pushable else WATCH_POLL_MS / 1000 + SLACK
