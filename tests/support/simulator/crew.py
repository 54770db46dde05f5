"""Several workers of one simulated process, who pass a lease on to each other: the production code of cohorts at work.

``leasehold._runtime.cohorts`` runs as it is. A ``Desk`` is what it needs of an engine, and what a lock does around it
(``primitives/lock.py``, ``_runtime/sync.py``) is done here for a simulated worker.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from itertools import count
from types import SimpleNamespace
from typing import Any

from leasehold._core import flows, ops
from leasehold._core.holding import LOST, NEVER, Holding, LocalGrant
from leasehold._core.names import Name
from leasehold._runtime import cohorts
from leasehold._runtime.held_lease import HeldLease
from leasehold._runtime.options import Options
from leasehold.errors import LeaseholdError
from tests.support.simulator.cohortchecks import CohortChecks
from tests.support.simulator.job import Guard, Job
from tests.support.simulator.plans import Habits, Want
from tests.support.simulator.process import Cancelled, Process
from tests.support.simulator.worker import Worker
from tests.support.simulator.world import World

WAKING = 0.0005  # seconds until one who was woken runs, at most


@dataclass(frozen=True, slots=True)
class Hand(Habits):
    """How one of several behaves."""

    startled: float = 0.0  # how likely it is cancelled just when something is passed to it
    linger: float = 0.0  # seconds that what it has released stays with its process


@dataclass(frozen=True, slots=True)
class Crew(Habits):
    """A process with several workers. Its own habits are what is true of all of them."""

    workers: tuple[Hand, ...] = ()


class Desk(Process):
    """A process with several workers, and the table of their cohorts."""

    def __init__(self, world: World, habits: Habits, checks: CohortChecks) -> None:
        Process.__init__(self, world, habits)
        self.checks = checks
        self.transitions = nullcontext()
        self.watchdog = self.clock = self
        self.store = SimpleNamespace(capabilities=SimpleNamespace(reservations=True))
        self.holder_pushes = self.store
        self.cohorts: dict[object, cohorts.LocalCohort] = {}
        self.pending: set[Attempt] = set()
        self.passing: set[HeldLease] = set()
        self.lingering: set[cohorts.LocalCohort] = set()
        self.watched: list[HeldLease] = []
        self.closed = False
        self.epoch = 0
        self.caller: Callable[[], object] = lambda: None
        self.numbers = count(1)  # of those who join, in their order
        self._floor = 0
        self.refused_for = 0
        self._owners = count(1)

    # ------------------------------------------------------------ as of an engine

    def now(self) -> float:
        return self.local()

    goes_on = False

    def nap(self, until: float) -> float:
        return until - self.local()

    def hears(self) -> bool:
        return True

    def find_held(self, resource: str, anchor: object) -> None:
        """Nobody wants what it holds."""

    def own(self, name: Name) -> list[Any]:
        """Nobody asks for what it holds."""
        return []

    def floor(self) -> int:
        return self._floor

    def passed(self, fence: int) -> None:
        self._floor = max(self._floor, fence)

    def unlist(self, held: HeldLease) -> None:
        """Its worker takes it off the list when it goes on."""

    def new_owner(self) -> str:
        return f"{self.name}:0:{next(self._owners)}"

    # ------------------------------------------------------------ what lingers

    def linger(self, cohort: cohorts.LocalCohort) -> None:
        """As the watchdog does: it looks when the moment is over."""
        if cohort not in self.lingering:
            self.lingering.add(cohort)
            self.start(self._watch_kept(cohort))

    async def _watch_kept(self, cohort: cohorts.LocalCohort) -> None:
        while cohort in self.lingering:
            await ops.Park(f"kept {cohort.key}", cohort.lingers_until)
            if cohort in self.lingering:
                cohorts.moment_over(self.engine, cohort)

    def give_back_kept(self, cohort: cohorts.LocalCohort) -> None:
        kept = cohort.kept
        self.lingering.discard(cohort)
        release = cohort.release_kept()
        if kept is not None and release is not None:
            self.world.note(self.name, "gives back what nobody used", release.owner, release.fence)
            self.start(self.insist(ops.Defer(release, kept.ttl_ms / 1000)))

    # ------------------------------------------------------------ what the store pushes to holders

    def _deliver(self, push: ops.Push) -> None:
        if push.event not in ("evicted", "revoke", "wanted"):
            Process._deliver(self, push)
            return
        self.world.note(self.name, "gets", push)
        if push.event == "wanted":
            self.checks.wanted_by_others(push)
        for cohort in sorted(self.lingering, key=lambda one: one.resource):
            if cohort.kept is not None and cohort.kept.in_store() == (push.owner, push.fence):
                cohorts.wanted_elsewhere(self.engine, cohort)
        for held in [*self.watched, *sorted(self.passing, key=lambda one: one.fence)]:
            if held.in_store() == (push.owner, push.fence):
                self._tell(held, push.event)

    def _tell(self, held: HeldLease, event: str) -> None:
        if event == "revoke":
            held.revoke()
        elif event == "wanted":
            if held.cohort is not None:
                cohorts.wanted_elsewhere(self.engine, held.cohort)
        else:
            held.refused(event)
            self.kick(f"watch {held.owner}")
            if held in self.passing and held.phase == LOST:
                self.passing.discard(held)
                cohorts.ended(self.engine, held)

    @property
    def engine(self) -> Any:
        """As the runtime sees it."""
        return self


class Attempt:
    """An acquire that is under way."""

    def __init__(self, request: flows.AcquireRequest) -> None:
        self.request = request
        self.leads_on: Any = None
        self.cohort: cohorts.LocalCohort | None = None


class Anchor:
    """A worker as the task that it is: done when it never runs again."""

    def __init__(self, worker: CrewWorker) -> None:
        self.worker = worker

    def done(self) -> bool:
        return self.worker.stuck

    def get_loop(self) -> Anchor:
        return self

    def is_closed(self) -> bool:
        return False


class Leadership(cohorts.Leadership):
    """Asked while its worker runs."""

    __slots__ = ("_worker",)

    def __init__(self, worker: CrewWorker, attempt: Any) -> None:
        cohorts.Leadership.__init__(self, worker.desk.engine, attempt)
        self._worker = worker

    def own(self, name: Name) -> list[Any]:
        self._worker.desk.caller = lambda: self._worker.anchor
        return cohorts.Leadership.own(self, name)


class CrewWaiter(cohorts.LocalWaiter):
    """One who waits behind others of its process."""

    __slots__ = ("_key", "number")

    def __init__(self, *fields: Any) -> None:
        cohorts.LocalWaiter.__init__(self, *fields)
        self.number = next(self.anchor.worker.desk.numbers)
        self._key = f"cohort {self.number}"

    def wake(self) -> None:
        """It runs a little later, and may be cancelled a little earlier or later than that."""
        worker: CrewWorker = self.anchor.worker
        worker.checks.served(self.number, [one.number for one in self.cohort.waiting if isinstance(one, CrewWaiter)])
        now, chance = worker.world.now, worker.random.random
        worker.process.soon(now + chance() * WAKING, partial(worker.process.kick, self._key))
        if chance() < worker.habits.startled and not worker.world.calm():
            worker.process.soon(now + chance() * 2 * WAKING, worker.startle)

    def _new_wakeup(self) -> None:
        """It wakes itself."""

    async def sleep(self, engine: Any, until: float) -> None:
        await ops.Park(self._key, until)

    def gone(self) -> bool:
        return bool(self.anchor.done())


class CrewJob(Job):
    """One turn of a worker that has colleagues."""

    worker: CrewWorker
    checks: CohortChecks

    @property
    def engine(self) -> Any:
        return self.worker.desk

    # ------------------------------------------------------------ acquiring

    async def take(self) -> list[Holding]:
        """Behind others of this process, or with a claim of its own."""
        ask = self.asks[0]
        place = self.join(ask)
        if place is not None:
            held = await self.wait_behind(place)
            if held is not None:
                return [held]
            ask = ask._replace(wait=place.wait_left(self.engine))
            self.say("leads")
        return [await self.claim(ask, place)]

    def join(self, ask: flows.AcquireRequest) -> cohorts.LocalWaiter | None:
        if not self.engine.cohorts:
            return None
        place = cohorts.join(self.engine, ask, self.options(ask), self.worker.anchor, None, CrewWaiter)
        if place is not None and place.held is not None:
            self.say("takes what lingers", place.held.owner, place.held.fence)
            self.checks.taken_again(self.process, place.held)
        elif place is not None:
            self.say("waits behind others of its process")
        return place

    async def wait_behind(self, place: cohorts.LocalWaiter) -> HeldLease | None:
        try:
            held = await cohorts.wait_in_task(self.engine, place)
            return None if held is None else self.take_up(held)
        except (Cancelled, LeaseholdError):  # named: a killed process cleans nothing up
            passed = cohorts.leave(self.engine, place)
            if passed is not None:
                self.say("leaves what was passed to it", passed.fence)
                self.release_in_background(passed)
            raise

    def take_up(self, held: HeldLease) -> HeldLease:
        """As ``register`` does."""
        self.engine.passing.discard(held)
        self.kept.append(held)
        self.worker.note_fence(held.fence)
        self.say("takes up", held.owner, held.fence)
        self.checks.taken_up(self.process, held)
        self.process.start(self.watch(held, self.process.naps))
        return held

    def release_in_background(self, held: HeldLease) -> None:
        release = held.begin_release(self.now())
        self.engine.passing.discard(held)
        if held.cohort is not None:
            cohorts.ended(self.engine, held)
        if release is not None:
            self._owners.append(release.owner)  # nothing of it may be left
            self.process.start(self.process.insist(ops.Defer(release, held.ttl_ms / 1000)))

    async def claim(self, ask: flows.AcquireRequest, place: cohorts.LocalWaiter | None) -> Holding:
        engine, attempt = self.engine, Attempt(ask)
        engine.pending.add(attempt)
        if place is not None:
            place.lead(engine, attempt)  # type: ignore[arg-type]  # all that it needs of one
        leadership = Leadership(self.worker, attempt)
        try:
            ask, new_owner = attempt.request, partial(self.new_owner, 0)
            taken = await flows.acquire(ask, new_owner, engine.floor, self.now(), own_leases=leadership)
            held = self.keep(0, taken)
            if attempt.cohort is not None:
                cohorts.granted(engine, attempt, held, taken)  # type: ignore[arg-type]
                if taken.last_fence:
                    self.checks.brought(held)
            engine.pending.discard(attempt)
        except (Cancelled, LeaseholdError):
            engine.pending.discard(attempt)
            if attempt.cohort is not None:
                cohorts.step_down(engine, attempt.cohort, attempt)
            raise
        return held

    def options(self, ask: flows.AcquireRequest) -> Options:
        linger = self.worker.habits.linger
        return Options(
            ttl_ms=ask.ttl_ms, wait=ask.wait, renews=ask.renews, max_hold=self.habits.max_hold, linger=linger
        )

    def new_holding(self, ask: flows.AcquireRequest, taken: LocalGrant) -> HeldLease:
        return HeldLease(ask.name, taken, self.engine.transitions, self.options(ask), self.worker.anchor)

    # ------------------------------------------------------------ giving back

    def believes(self, holding: Holding) -> bool:
        """Only asked: a release does not look at the clock before a cohort decides."""
        return holding.phase != LOST and self.now() < holding.stop_at

    async def release(self, holding: Holding) -> bool:
        """To the next of this process, or to the store: as the drivers do."""
        engine, held = self.engine, holding
        assert isinstance(held, HeldLease)
        special = self.asks[0]
        if held.cohort is None and held.options.linger and not (special.at_least_ms or special.delay_ms):
            cohorts.lingers(engine, held)
        if held.cohort is None:
            return await Job.release(self, held)
        naps = self.process.naps
        try:
            decision = cohorts.decide(engine, held)
            if decision == cohorts.ASK and not await cohorts.reserve(engine, held):
                decision = ""
            if naps != self.process.naps:
                self.checks.slept.add(held.owner)
            return (decision != "" and self.pass_on(held)) or await Job.release(self, held)
        finally:
            cohorts.released(engine, held)

    def pass_on(self, held: HeldLease) -> bool:
        cohort, sure, stop_at = held.cohort, held.phase, held.stop_at
        if not cohorts.pass_on(self.engine, held):
            return False
        assert cohort is not None
        if cohort.kept is not None:
            self.say("keeps it", held.fence)
            self.checks.kept(self.process, held, (sure, stop_at))
            return True
        self.say("passes on to", cohort.holder.owner, cohort.holder.fence)
        self.checks.passed(self.process, held, (sure, stop_at), cohort.holder)
        return True

    # ------------------------------------------------------------ the watchdog

    def watch(self, holding: Holding, naps: int) -> Coroutine[Any, Any, None]:
        """Known from here on, before the watch begins: a push may come first."""
        assert isinstance(holding, HeldLease)
        self.engine.watched.append(holding)
        return self.watch_held(holding, naps)

    async def watch_held(self, held: HeldLease, naps: int) -> None:
        """Those who wait behind a lease that is lost learn of it, too."""
        await Job.watch(self, held, naps)
        self.engine.watched.remove(held)
        self.checks.gone_for_good(held)
        if held.phase == LOST and held.cohort is not None:
            cohorts.ended(self.engine, held)

    def before_look(self, holding: Holding) -> None:
        if self.worker.stuck:  # nobody can use it any more
            holding.renew_at = NEVER


class CrewWorker(Worker):
    """One of several in a process."""

    process: Desk
    checks: CohortChecks
    habits: Hand

    def __init__(self, desk: Desk, guards: dict[str, Guard], checks: CohortChecks, habits: Hand) -> None:
        self.desk = desk
        self.anchor = Anchor(self)
        self.at_work = f"work {habits.name}"
        self.stuck = False  # its thread or loop never runs again
        Worker.__init__(self, desk, guards, checks, habits)

    def new_job(self, asks: Sequence[flows.AcquireRequest]) -> CrewJob:
        return CrewJob(self, asks)

    def ask(self, want: Want, wait: float | None, last: bool) -> flows.AcquireRequest:
        """The store can tell a process what happened to what it holds."""
        ask = Worker.ask(self, want, wait, last)
        return ask._replace(holder_address=ask.address)

    def startle(self) -> None:
        self.say("will be cancelled")
        self.task.cancel()

    def stick(self) -> None:
        """From here on it does nothing, not even cleaning up."""
        self.say("never runs again")
        self.stuck = self.task.done = True
        for held in [] if self.job is None else self.job.held():
            self.process.kick(f"watch {held.owner}")

    # ------------------------------------------------------------ what they share

    def new_owner(self) -> str:
        return self.desk.new_owner()

    def note_refusal(self, fence: int) -> None:
        self.desk.refused_for = max(self.desk.refused_for, fence)

    def note_fence(self, fence: int) -> None:
        self.desk.passed(fence)

    def floor(self) -> int:
        return self.desk.floor()
