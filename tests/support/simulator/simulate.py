"""The seeded simulator: the production flows and the production ledger in a world where everything goes wrong.

``run(seed)`` plays one history and raises :class:`Violation` when a promise is broken. A failing seed replays:

    python -m tests.support.simulator.simulate --seed 4711
"""

from __future__ import annotations

import argparse
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from typing import TypeVar

from leasehold._core import ops
from leasehold._core.holding import Holding
from leasehold._core.rules import SEMAPHORE
from tests.support.simulator.checks import Checks, grant_of
from tests.support.simulator.draws import MOST_LIMIT, draw_plan
from tests.support.simulator.faults import CALM, Action
from tests.support.simulator.job import Guard
from tests.support.simulator.onlooker import Onlooker
from tests.support.simulator.plans import Habits, Plan
from tests.support.simulator.process import Process
from tests.support.simulator.seatchecks import Violation
from tests.support.simulator.sights import Sights, soon
from tests.support.simulator.worker import Worker
from tests.support.simulator.world import World

HEALING = 90.0  # seconds of calm after which everybody must be done: late packets, long leases, one turn each
MOST_EVENTS = 50_000
STEPS = (1, 20, 5_000)  # of the server's clock, in times of what other faults last
FORWARD = 0.85


S = TypeVar("S", bound="Simulation")


class Simulation:
    """One seed, from the first event to the last check."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.checks = self.new_checks()
        self.world = self.checks.world = self.new_world()
        self.guards: dict[str, Guard] = defaultdict(Guard)
        self.workers: list[Worker] = []
        for habits in plan.clients:
            self.hire(habits)
        self.sights = self.checks.sights = self.new_sights()
        self.sights.onlookers += [Onlooker(self.new_process(habits)) for habits in plan.onlookers]
        self.closing = not plan.onlookers
        for action in plan.actions:
            self.world.at(action.at, partial(self.act, action))
        self.world.at(plan.calm_at, self.calm_down)

    # ------------------------------------------------------------ what it is made of

    def new_checks(self) -> Checks:
        return Checks()

    def new_world(self) -> World:
        return World(self.plan, self.checks)

    def new_sights(self) -> Sights:
        return Sights(self.world)

    def new_process(self, habits: Habits) -> Process:
        return Process(self.world, habits)

    def hire(self, habits: Habits) -> None:
        self.workers.append(Worker(self.new_process(habits), self.guards, self.checks))

    # ------------------------------------------------------------ playing

    def play(self) -> None:
        """Until nothing is left to happen; everybody who lives must be done by then."""
        try:
            for _ in range(MOST_EVENTS):
                if not self.world.step():
                    break
                self.checks.believed()
                if not self.closing and self.world.now > self.plan.calm_at:
                    self.close()
                if self.late():
                    break
            undone = [one.name for one in self.living() if self.late() or not one.done]
            self.checks.require(not undone, "I12 not done in calm weather:", *undone)
            self.checks.nothing_left()
        finally:
            for process in self.processes():
                if process.alive:
                    process.kill(vanish=False)

    def processes(self) -> list[Process]:
        return [*dict.fromkeys(one.process for one in self.workers), *(one.process for one in self.sights.onlookers)]

    def late(self) -> bool:
        return self.world.now > self.plan.calm_at + HEALING

    def close(self) -> None:
        """When all work is done, those who watch must know it, and go home."""
        if not all(one.done for one in self.living()):
            return
        self.closing = True
        for one in self.watching():
            at = max(self.world.now, self.sights.settled_at()) + 2 * soon(one)
            self.world.at(at, partial(self.sights.check, one))
            self.world.at(at, one.finish)

    def watching(self) -> list[Onlooker]:
        return [one for one in self.sights.onlookers if one.watches]

    def living(self) -> list[Worker]:
        return [one for one in self.workers if one.process.alive]

    # ------------------------------------------------------------ what goes wrong

    def act(self, action: Action) -> None:
        if action.kind == "stall":
            self.world.stall(action.seconds)
        elif action.kind == "wipe":
            self.world.wipe()
        elif action.kind == "turn":
            self.turn_clock(action)
        elif action.kind == "resize":
            self.resize(action)
        elif action.kind in ("blink", "leave"):
            self.harm_onlooker(action)
        elif victim := self.victim(action):
            self.harm(victim, action)

    def resize(self, action: Action) -> None:
        counted = [want.resource for one in self.plan.clients for want in one.wants if want.rule == SEMAPHORE]
        resource = counted[int(action.pick * 1000) % len(counted)]
        self.world.turn(ops.Resize(resource, 1 + int(action.pick * 10_000) % (MOST_LIMIT + 1)))

    def turn_clock(self, action: Action) -> None:
        """By about a ttl, by many, or by hours; mostly back, for forward is as bad as a wipe."""
        seconds = action.seconds * STEPS[int(action.pick * 1000) % len(STEPS)]
        self.world.turn_clock(seconds if action.pick > FORWARD else -seconds)

    def harm_onlooker(self, action: Action) -> None:
        choice = self.watching()
        if not choice:
            return
        process = choice[int(action.pick * 1000) % len(choice)].process
        if action.kind == "blink":
            process.freeze(action.seconds)
        else:
            process.kill(vanish=action.pick < 0.5)

    def victim(self, action: Action) -> Worker | None:
        """Rather a holder than anybody: that is where faults hurt."""
        holders = [one for one in self.living() if self.held(one)]
        choice = holders if holders and action.pick < 0.6 else self.living()
        return choice[int(action.pick * 1000) % len(choice)] if choice else None

    def held(self, worker: Worker) -> list[Holding]:
        return [] if worker.job is None else [*worker.job.held()]

    def harm(self, victim: Worker, action: Action) -> None:
        process = victim.process
        if action.kind == "pause":
            process.freeze(action.seconds)
        elif action.kind == "cancel":
            self.world.note(process.name, "will be cancelled")
            process.soon(self.world.now, victim.task.cancel)
        elif action.kind == "evict" and self.held(victim):
            holding = self.held(victim)[int(action.pick * 10_000) % len(self.held(victim))]
            self.world.turn(ops.Evict(holding.name.text, *grant_of(holding), request="on call"))
        elif action.kind in ("crash", "vanish"):
            process.kill(vanish=action.kind == "vanish")
            if action.pick * 100 % 2 < 1:
                self.hire(replace(process.habits, name=f"{process.name}'"))

    def calm_down(self) -> None:
        self.world.note("world", "is calm from here on")
        self.world.weather = CALM
        for process in self.processes():
            process.frozen_until = self.world.now


# ---------------------------------------------------------------- telling


def run(seed: int) -> Simulation:
    """Play one seed; a Violation carries the seed and how to see its history."""
    return played(Simulation(draw_plan(seed)), __name__)


def played(simulation: S, module: str) -> S:
    """The same for a simulation of any kind, which this module plays again."""
    seed = simulation.plan.seed
    try:
        simulation.play()
    except Violation as violation:
        raise Violation(f"seed {seed}: {violation}\nreplay: python -m {module} --seed {seed}") from violation
    return simulation


def history(simulation: Simulation) -> str:
    """Every note, one on a line."""
    plan = simulation.plan
    lines = [f"seed {plan.seed}, {plan.kind}, {plan.theme}, calm at {plan.calm_at:.4f}", f"{plan.weather}"]
    lines += map(str, (*plan.clients, *plan.onlookers))
    lines += [
        f"{now:9.4f} {who:6} {what} {' '.join(map(brief, details))}".rstrip()
        for now, who, what, details in simulation.world.notes
    ]
    return "\n".join(lines) + "\n"


def brief(thing: object) -> str:
    """An op or a reply without what it leaves at the default."""
    if not isinstance(thing, tuple) or not hasattr(thing, "_fields"):
        return str(thing)
    defaults = getattr(thing, "_field_defaults", {})
    fields = zip(thing._fields, thing, strict=True)
    said = [f"{name}={value}" for name, value in fields if value != defaults.get(name, ...)]
    return f"{type(thing).__name__}({', '.join(said)})"


def find_violation(seeds: Iterable[int], run: Callable[[int], object] = run) -> tuple[int, Violation] | None:
    """The first seed that breaks a promise."""
    for seed in seeds:
        try:
            run(seed)
        except Violation as violation:
            return seed, violation
    return None


def main(arguments: list[str] | None = None, make: Callable[[int], Simulation] | None = None) -> int:
    """Play one seed, and tell it."""
    parser = argparse.ArgumentParser(description="Play one seed, and tell it.")
    parser.add_argument("--seed", type=int, required=True)
    seed = parser.parse_args(arguments).seed
    simulation = Simulation(draw_plan(seed)) if make is None else make(seed)
    verdict, status = "every promise was kept", 0
    try:
        simulation.play()
    except Violation as violation:
        verdict, status = f"VIOLATION {violation}", 1
    sys.stdout.write(f"{history(simulation)}{verdict}\n")
    return status


if __name__ == "__main__":
    sys.exit(main())
