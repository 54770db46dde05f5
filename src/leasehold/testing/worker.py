"""What a client does all day: acquire, work with a guard, release; and its watchdog, as the product will run it.

The worker is a flow itself, so that the driver has one kind of thing to drive. It stops when the holding says so,
and is as careless as real code is between the check and the write: it may freeze there and write late. The guard
at the resource must then refuse it.
"""

from __future__ import annotations

from contextlib import nullcontext
from itertools import count

from leasehold.core import flows
from leasehold.core.holding import ALIVE, LOST, Holding
from leasehold.core.names import Name
from leasehold.core.ops import Park
from leasehold.errors import LeaseLost, NotAcquired, NotHeld, OutcomeUnknown, StoreUnavailable
from leasehold.testing.checks import Checks
from leasehold.testing.process import Cancelled, Process

STEPS = 4


class Guard:
    """The resource's own memory: it takes a fence above the last one, or the same from the same owner."""

    def __init__(self) -> None:
        self.fence = 0
        self.owner = ""

    def accepts(self, fence: int, owner: str) -> bool:
        if fence > self.fence or (fence == self.fence and owner == self.owner):
            self.fence, self.owner = fence, owner
            return True
        return False


class Worker:
    """The life of one client."""

    def __init__(self, process: Process, guards: dict[str, Guard], checks: Checks) -> None:
        self.process = process
        self.world = process.world
        self.habits = process.habits
        self.random = process.world.random
        self.guards = guards
        self.checks = checks
        self.done = False
        self.holding: Holding | None = None
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
        self.holding = None

    async def turn(self, last: bool) -> None:
        ask = self.ask(last)
        try:
            taken = await flows.acquire(ask, self.new_owner, lambda: self._floor, self.now())
        except (NotAcquired, StoreUnavailable, OutcomeUnknown) as error:
            self.say("did not acquire", type(error).__name__)
            if last:
                self.checks.starved(self.process, repr(error))
            return
        max_hold = self.habits.max_hold
        holding = Holding(ask.name, taken, nullcontext(), renews=ask.renews, max_hold=max_hold)
        self.holding = holding
        self.note_fence(holding.fence)
        self.say("holds", holding.owner, holding.fence, f"for {taken.deadline - taken.at:.4f} s")
        self.checks.took(self.process, holding)
        self.process.start(self.watch(holding, self.process.naps))
        try:
            await self.work(holding)
        except Cancelled:  # named, since a killed process has no last words
            await self.give_back(holding)
            raise
        await self.give_back(holding)

    def ask(self, last: bool) -> flows.Ask:
        habits, chance = self.habits, self.random.random
        resource = self.random.choice(habits.resources)
        wait: float | None = None
        if not last and chance() < habits.impatient:
            wait = 0 if chance() < 0.3 else chance() * habits.ttl_ms / 300
        return flows.Ask(
            name=Name(resource, resource),
            ttl_ms=habits.ttl_ms,
            wait=wait,
            renews=habits.renews,
            at_least_ms=habits.at_least_ms,
            address=habits.name if habits.pushable else "",
            delay_ms=habits.delay_ms,
        )

    # ------------------------------------------------------------ working

    async def work(self, holding: Holding) -> None:
        for _ in range(self.random.randint(1, STEPS)):
            if holding.settle(self.now()) not in ALIVE:
                return
            if self.random.random() < self.habits.extends and not await self.extend(holding):
                return
            if not self.world.calm() and self.random.random() < self.habits.dozes:
                self.process.freeze(self.random.random() * holding.ttl_ms / 300)
            await self.process.sleep(self.random.random() * 0.003)  # the write travels
            if not self.write(holding):
                return
            step = self.random.random() * self.habits.work / STEPS
            await self.process.sleep(step, key=f"work {holding.owner}")

    def write(self, holding: Holding) -> bool:
        resource = holding.name.text
        accepted = self.guards[resource].accepts(holding.fence, holding.owner)
        self.say("writes" if accepted else "is refused by the guard", resource, holding.fence)
        self.note_fence(self.guards[resource].fence)
        if accepted:
            self.checks.accepted(resource, holding.fence, holding.owner)
        return accepted

    async def extend(self, holding: Holding) -> bool:
        ttl_ms = int(self.habits.ttl_ms * self.random.choice((0.4, 0.8, 1, 2, 3)))
        self.say("extends to", ttl_ms)
        try:
            await flows.extend(holding, ttl_ms, self.now())
        except (LeaseLost, NotHeld):
            return False
        except (StoreUnavailable, OutcomeUnknown):
            self.say("does not know whether it extended")
        self.process.kick(f"watch {holding.owner}")
        return True

    async def give_back(self, holding: Holding) -> None:
        """Some insist on an answer, some leave it to the background."""
        for _ in range(3 if self.habits.insists else 1):
            believed = holding.settle(self.now()) != LOST
            self.checks.releasing(holding)
            try:
                ours = await flows.release(holding, self.now())
            except OutcomeUnknown:
                await self.process.sleep(self.random.random() * 0.2)
            else:
                self.say("released" if ours else "had lost it before the release", holding.reason)
                self.checks.released(holding, believed, ours)
                return

    # ------------------------------------------------------------ the watchdog

    async def watch(self, holding: Holding, naps: int) -> None:
        """Settle, renew, and tell of the loss. Who was frozen meanwhile (``naps``) can only be told late."""
        while holding.settle(self.now()) in ALIVE:
            if holding.look_at() > self.now():
                await Park(f"watch {holding.owner}", holding.look_at())
            else:
                began = self.world.now
                await flows.renew(holding, self.now())
                self.checks.waited(holding, self.world.now > began)
        if holding.phase == LOST:
            self.say("is told of the loss", holding.reason)
            if naps == self.process.naps:
                self.checks.told(self.process, holding)
            self.process.kick(f"work {holding.owner}")

    # ------------------------------------------------------------ small things

    def now(self) -> float:
        return self.process.local()

    def say(self, what: str, *details: object) -> None:
        self.world.note(self.process.name, what, *details)

    def new_owner(self) -> str:
        return f"{self.process.name}:0:{next(self._owners)}"

    def note_fence(self, fence: int) -> None:
        self._floor = max(self._floor, fence)
