"""The seeded simulator for batches: many independent leases that are acquired in one round trip, and released in one.

python -m tests.support.simulator.simulate_batches --seed 4711
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import dataclass, field, fields, replace
from random import Random
from typing import Any

from leasehold._core.holding import Holding
from leasehold._core.rules import MUTEX, READ, SEMAPHORE, WRITE
from leasehold.errors import OutcomeUnknown, StoreUnavailable
from tests.support.simulator import simulate
from tests.support.simulator.cohortchecks import CohortChecks
from tests.support.simulator.crew import Crew, Desk, Hand
from tests.support.simulator.draws import plain_plan
from tests.support.simulator.plans import Habits, Plan, Want
from tests.support.simulator.porters import BatchWorld, Porter, PorterJob, PorterWorker, was_refused
from tests.support.simulator.seatchecks import Violation
from tests.support.simulator.simulate_cohorts import LONGEST, CohortSimulation, draw_crew, troubles

MOST_RESOURCES = 8


# ---------------------------------------------------------------- how a seed becomes a plan


def draw_porters(seed: int) -> Plan:
    """A few processes with one to three workers each, who want several of a few resources at once."""
    plan, base = plain_plan(seed)
    random = Random(f"batches {seed}")
    names = [f"r{number}" for number in range(random.randint(2, MOST_RESOURCES))]
    rules = random.choice(((MUTEX,), (MUTEX,), (MUTEX, WRITE), (READ, WRITE), (MUTEX, READ, WRITE, SEMAPHORE)))
    wants = tuple(want for name in names for want in wants_of(random, name, random.choice(rules)))
    sizes = [random.randint(1, 3) for _ in range(random.choice((2, 2, 3)))]
    crews = [draw_porter(random, f"c{n}", wants, base, plan.kind, size) for n, size in enumerate(sizes)]
    actions = (*plan.actions, *troubles(random, plan, base))
    return replace(plan, theme="batches", clients=tuple(crews), actions=actions, calm_at=min(plan.calm_at, LONGEST))


def wants_of(random: Random, name: str, rule: str) -> tuple[Want, ...]:
    """Writers come with readers, and permits in two sizes."""
    if rule in (READ, WRITE):
        return Want(name, READ), Want(name, WRITE)
    return (Want(name, rule, 1, 2), Want(name, rule, random.randint(1, 2), 2)) if rule == SEMAPHORE else (Want(name),)


def draw_porter(random: Random, name: str, wants: tuple[Want, ...], base: float, kind: str, size: int) -> Crew:
    crew = draw_crew(random, name, wants, base, kind, size)
    more: dict[str, Any] = {"many": random.choice((0.5, 0.8, 1.0)), "pause": base * random.choice((0.2, 0.5))}
    own = [{one.name: getattr(hand, one.name) for one in fields(Hand)} for hand in crew.workers]
    return replace(crew, workers=tuple([Porter(**{**habits, **more}) for habits in own]))


# ---------------------------------------------------------------- judging


@dataclass(slots=True)
class BatchChecks(CohortChecks):
    """Sees what came of each batch as well."""

    batches: int = 0
    partial: int = 0  # some were granted, and some were not
    failed: int = 0  # of the locks in batches
    asked: int = field(default=0)

    def answered(self, job: PorterJob, outcomes: dict[int, Any]) -> None:
        """I20: each lock of a batch has one outcome, of its own resource; where nothing goes wrong the store says what
        became of it."""
        self.batches += 1
        self.asked += len(outcomes)
        granted = [one for one in outcomes.values() if isinstance(one, Holding)]
        self.partial += 0 < len(granted) < len(outcomes)
        self.require(sorted(outcomes) == list(range(len(job.asks))), "I20 not one outcome for each:", *sorted(outcomes))
        for place, one in outcomes.items():
            resource = one.name.text if isinstance(one, Holding) else one.resource
            fits = resource in (None, job.asks[place].name.text)
            self.require(fits, "I20 the outcome of another:", resource, "for", job.asks[place].name.text)
            silent = isinstance(one, (StoreUnavailable, OutcomeUnknown))
            self.failed += silent
            quiet = self.world.plan.kind == "quiet"
            self.require(isinstance(one, Holding) or was_refused(one) or (silent and not quiet), "I20 failed:", one)


# ---------------------------------------------------------------- playing


class BatchSimulation(CohortSimulation):
    """Each process has a desk, and workers who share it and want many at once."""

    checks: BatchChecks

    def new_checks(self) -> BatchChecks:
        return BatchChecks()

    def new_world(self) -> BatchWorld:
        return BatchWorld(self.plan, self.checks)

    def hire(self, habits: Habits) -> None:
        assert isinstance(habits, Crew)
        desk = Desk(self.world, habits, self.checks)
        self.checks.crews[desk.name] = len(habits.workers)
        mark = "'" * desk.name.count("'")
        for one in habits.workers:
            self.workers.append(PorterWorker(desk, self.guards, self.checks, replace(one, name=f"{one.name}{mark}")))


def run(seed: int) -> BatchSimulation:
    """Play one seed; a Violation carries the seed and how to see its history."""
    return simulate.played(BatchSimulation(draw_porters(seed)), __name__)


def find_violation(seeds: Iterable[int]) -> tuple[int, Violation] | None:
    """The first seed that breaks a promise."""
    return simulate.find_violation(seeds, run)


def main(arguments: list[str] | None = None) -> int:
    return simulate.main(arguments, lambda seed: BatchSimulation(draw_porters(seed)))


if __name__ == "__main__":
    sys.exit(main())
