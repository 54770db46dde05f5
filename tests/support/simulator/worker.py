"""What a client does all day: acquire, work, release, pause.

The worker is a flow itself, so that the driver has one kind of thing to drive.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count

from leasehold._core import flows
from leasehold._core.names import Name
from leasehold.errors import InvalidRequest, NotAcquired, OutcomeUnknown, StoreUnavailable
from tests.support.simulator.checks import Checks
from tests.support.simulator.job import Guard, Job
from tests.support.simulator.plans import Habits, Want
from tests.support.simulator.process import Cancelled, Process

FAILURES = (NotAcquired, StoreUnavailable, OutcomeUnknown, InvalidRequest)


class Worker:
    """The life of one client."""

    at_work = "work"  # where it can be interrupted

    def __init__(
        self, process: Process, guards: dict[str, Guard], checks: Checks, habits: Habits | None = None
    ) -> None:
        self.process = process
        self.name = process.name if habits is None else habits.name
        self.world = process.world
        self.habits = habits or process.habits
        self.random = process.world.random
        self.guards = guards
        self.checks = checks
        self.done = False
        self.job: Job | None = None
        self._floor = 0
        self._owners = count(1)
        self.task = process.start(self.life())

    async def life(self) -> None:
        """Turn after turn while there are faults; then a last one, which must succeed."""
        while self.world.now < self.world.plan.calm_at:
            await self.undisturbed(last=False)
        await self.undisturbed(last=True)
        self.done = True

    async def undisturbed(self, last: bool) -> None:
        """A cancelled turn is over; the next one begins."""
        try:
            await self.process.sleep(self.random.random() * self.habits.pause)
            await self.turn(last)
        except Cancelled:
            self.say("was cancelled")
        self.job = None

    async def turn(self, last: bool) -> None:
        self.job = job = self.new_job(self.asks(last))
        try:
            holdings = await job.acquire()
        except FAILURES as error:
            self.say("did not acquire", type(error).__name__)
            if last:
                self.checks.starved(self.process, repr(error))
            return
        try:
            await job.work(holdings)
        except Cancelled:  # named, since a killed process has no last words
            await job.give_back(holdings)
            raise
        await job.give_back(holdings)

    def new_job(self, asks: Sequence[flows.AcquireRequest]) -> Job:
        return Job(self, asks)

    # ------------------------------------------------------------ asking

    def asks(self, last: bool) -> Sequence[flows.AcquireRequest]:
        """One, or several in the order that everybody uses, however they were thought of."""
        habits, chance = self.habits, self.random.random
        wants = [self.random.choice(habits.wants)]
        if habits.several and chance() < habits.several:
            wants = self.some_of_each()
        wait: float | None = None
        if not last and chance() < habits.impatient:
            wait = 0 if chance() < 0.3 else chance() * habits.ttl_ms / 300
        return in_order([self.ask(want, wait, last) for want in wants])

    def some_of_each(self) -> list[Want]:
        """One of each resource, in any order."""
        wants = self.random.sample(self.habits.wants, len(self.habits.wants))
        return list({want.resource: want for want in wants}.values())

    def ask(self, want: Want, wait: float | None, last: bool) -> flows.AcquireRequest:
        habits, permits = self.habits, want.permits
        if last and want.resource in self.world.states:  # who asks for too much is refused, and must succeed now
            permits = min(permits, self.world.states[want.resource].limit or permits)
        return flows.AcquireRequest(
            name=Name(want.resource, want.resource),
            ttl_ms=habits.ttl_ms,
            wait=wait,
            renews=habits.renews,
            at_least_ms=habits.at_least_ms,
            rule=want.rule,
            permits=permits,
            limit=want.limit,
            address=self.process.name if habits.pushable else "",
            delay_ms=habits.delay_ms,
        )

    # ------------------------------------------------------------ small things

    def say(self, what: str, *details: object) -> None:
        self.world.note(self.name, what, *details)

    def new_owner(self) -> str:
        return f"{self.process.name}:0:{next(self._owners)}"

    def note_fence(self, fence: int) -> None:
        self._floor = max(self._floor, fence)

    def note_refusal(self, fence: int) -> None:
        """A guard has seen this one, and refused ours."""

    def floor(self) -> int:
        return self._floor


def in_order(asks: list[flows.AcquireRequest]) -> list[flows.AcquireRequest]:
    """As ``all`` sorts them."""
    return sorted(asks, key=lambda ask: ask.name.text)
