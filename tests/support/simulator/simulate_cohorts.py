"""The seeded simulator for processes in which several wait for the same: leases pass between them without the store.

python -m tests.support.simulator.simulate_cohorts --seed 4711
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import fields, replace
from random import Random

from leasehold._core import ops
from leasehold._core.rules import READ, WRITE
from tests.support.simulator import simulate
from tests.support.simulator.checks import grant_of
from tests.support.simulator.cohortchecks import CohortChecks
from tests.support.simulator.crew import Crew, CrewWorker, Desk, Hand
from tests.support.simulator.draws import draw_habits, plain_plan
from tests.support.simulator.faults import Action
from tests.support.simulator.plans import Habits, Plan, Want
from tests.support.simulator.seatchecks import Violation
from tests.support.simulator.simulate import Simulation
from tests.support.simulator.worker import Worker

MOST_WORKERS = 5
LONGEST = 15.0  # seconds until everything is calm


# ---------------------------------------------------------------- how a seed becomes a plan


def draw_crews(seed: int) -> Plan:
    """A few processes with many workers and little patience, and some who are alone and must get their turn."""
    plan, base = plain_plan(seed)
    random = Random(f"cohorts {seed}")
    wants = tuple(map(Want, ("r1",) if random.random() < 0.8 else ("r1", "r2")))
    written = random.random() < 0.25  # they write, and others read
    wants = tuple([one._replace(rule=WRITE) for one in wants]) if written else wants
    crews = [draw_crew(random, f"c{n}", wants, base, plan.kind, 0) for n in range(random.choice((1, 1, 2, 3)))]
    for number in range(random.choice((0, 1, 1, 2))):
        alone = tuple([one._replace(rule=READ) for one in wants]) if written and random.random() < 0.7 else wants
        crews.append(draw_crew(random, f"d{number}", alone, base, plan.kind, 1))
    actions = (*plan.actions, *troubles(random, plan, base))
    calm_at = min(plan.calm_at, LONGEST)  # so many have much to do
    return replace(plan, theme="cohorts", clients=tuple(crews), actions=actions, calm_at=calm_at)


def troubles(random: Random, plan: Plan, base: float) -> list[Action]:
    """What happens to some of them besides."""
    if plan.kind == "quiet":
        return []
    menu = ("cancel", "pause", "revoke") if plan.kind == "gentle" else ("cancel", "pause", "evict", "revoke", "stick")
    found = []
    for _ in range(random.choice((0, 2, 6))):
        seconds = base * random.uniform(0.05, 1.5)
        found.append(Action(random.random() * plan.calm_at, random.choice(menu), seconds, random.random()))
    return found


def draw_crew(random: Random, name: str, wants: tuple[Want, ...], base: float, kind: str, size: int) -> Crew:
    """Most of them alike, so that a lease can pass between them; some in a way that keeps it from passing."""
    habits = draw_habits(random, name, ("r1",), base, kind)
    own = {one.name: getattr(habits, one.name) for one in fields(Habits)}
    usual = Hand(**own)
    usual = replace(
        usual,
        wants=wants,
        renews=True,
        at_least_ms=0,
        delay_ms=0,
        extends=0,
        work=base * random.choice((0.01, 0.05, 0.3)),
        pause=base * random.choice((0.001, 0.05, 0.5)),
        downgrades=random.choice((0, 0, 0.2)) if wants[0].rule == WRITE else 0,
        startled=random.choice((0, 0.02, 0.1)) if kind != "quiet" else 0,
    )
    linger = base * random.choice((0.1, 0.5, 1.0)) if random.random() < 0.5 else 0.0
    usual = replace(usual, linger=min(linger, usual.ttl_ms / 1000))
    workers = [replace(usual, name=f"{name}/{n}") for n in range(size or random.randint(2, MOST_WORKERS))]
    if random.random() < 0.3:
        odd = random.choice(
            (
                replace(workers[0], renews=False, linger=0.0),
                replace(workers[0], at_least_ms=habits.ttl_ms // 4, linger=0.0),
                replace(workers[0], delay_ms=0 if kind == "quiet" else habits.ttl_ms // 4, linger=0.0),
                replace(workers[0], ttl_ms=habits.ttl_ms // 2, linger=workers[0].linger / 2),
                replace(workers[0], linger=0.0),
                replace(workers[0], extends=0.0 if kind == "quiet" else 0.3),
            )
        )
        workers[0] = odd
    extends = max(one.extends for one in workers)
    return Crew(**{**own, "wants": wants, "renews": True, "extends": extends, "workers": tuple(workers)})


# ---------------------------------------------------------------- playing


class CohortSimulation(Simulation):
    """Each process has a desk, and workers who share it."""

    checks: CohortChecks

    def new_checks(self) -> CohortChecks:
        return CohortChecks()

    def hire(self, habits: Habits) -> None:
        assert isinstance(habits, Crew)
        desk = Desk(self.world, habits, self.checks)
        self.checks.crews[desk.name] = len(habits.workers)
        for one in habits.workers:
            mark = "'" * desk.name.count("'")
            self.workers.append(CrewWorker(desk, self.guards, self.checks, replace(one, name=f"{one.name}{mark}")))

    def living(self) -> list[Worker]:
        return [one for one in Simulation.living(self) if not (isinstance(one, CrewWorker) and one.stuck)]

    def harm(self, victim: Worker, action: Action) -> None:
        assert isinstance(victim, CrewWorker)
        if action.kind == "stick":
            victim.process.soon(self.world.now, victim.stick)
        elif action.kind == "revoke":
            for holding in self.held(victim):
                self.world.turn(ops.Revoke(holding.name.text, *grant_of(holding)))
        else:
            Simulation.harm(self, victim, action)


def run(seed: int) -> CohortSimulation:
    """Play one seed; a Violation carries the seed and how to see its history."""
    return simulate.played(CohortSimulation(draw_crews(seed)), __name__)


def find_violation(seeds: Iterable[int]) -> tuple[int, Violation] | None:
    """The first seed that breaks a promise."""
    return simulate.find_violation(seeds, run)


def main(arguments: list[str] | None = None) -> int:
    return simulate.main(arguments, lambda seed: CohortSimulation(draw_crews(seed)))


if __name__ == "__main__":
    sys.exit(main())
