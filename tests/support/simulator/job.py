"""One turn of a worker: what it acquired, its watchdog as the product runs it, its work with guards, and giving back.

It stops when the holding says so, and is as careless as real code is between the check and the write: it may freeze
there and write late. The guard at the resource must then refuse it.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING

from leasehold._core import flows
from leasehold._core.group import acquire_all, release_all
from leasehold._core.holding import ALIVE, LOST, Holding, LocalGrant
from leasehold._core.ops import Park
from leasehold._core.rules import READ, SEMAPHORE, WRITE
from leasehold.errors import LeaseholdError, LeaseLost, NotHeld, OutcomeUnknown, StoreUnavailable
from tests.support.simulator.process import Cancelled

if TYPE_CHECKING:
    from tests.support.simulator.worker import Worker

STEPS = 4


class Guard:
    """The resource's own memory: it takes a fence above the last one, or the same from the same owner. One that only
    reads is not remembered."""

    def __init__(self) -> None:
        self.fence = 0
        self.owner = ""

    def accepts(self, fence: int, owner: str, shared: bool) -> bool:
        if fence > self.fence or (fence == self.fence and owner == self.owner):
            if not shared:
                self.fence, self.owner = fence, owner
            return True
        return False


class Job:
    """One ask, or several at once."""

    def __init__(self, worker: Worker, asks: Sequence[flows.AcquireRequest]) -> None:
        self.worker = worker
        self.process = worker.process
        self.habits = worker.habits
        self.random = worker.random
        self.checks = worker.checks
        self.asks = asks
        self.kept: list[Holding] = []  # all that were ever granted in this turn
        self._owners: list[str] = []
        self._said = 0

    def held(self) -> list[Holding]:
        return [one for one in self.kept if one.phase in ALIVE]

    # ------------------------------------------------------------ acquiring

    async def acquire(self) -> list[Holding]:
        """What was asked for. Whatever became of it, nothing else is left."""
        try:
            holdings = await self.take()
        except (Cancelled, LeaseholdError):  # named: a killed process cleans nothing up
            self.leave_nothing([])
            raise
        self.leave_nothing(holdings)
        return holdings

    def leave_nothing(self, holdings: list[Holding]) -> None:
        used = [one.owner for one in holdings]
        unused = [one for one in self.kept if one not in holdings]
        self.checks.left_nothing(self.process, [one for one in self._owners if one not in used], unused)

    async def take(self) -> list[Holding]:
        now = self.now()
        if len(self.asks) > 1:
            held = await acquire_all(self.asks, self, self.worker.floor, now)
            return [one for one in self.kept if one in held]
        taken = await flows.acquire(self.asks[0], lambda: self.new_owner(0), self.worker.floor, now)
        return [self.keep(0, taken)]

    def new_owner(self, place: int) -> str:
        self._owners.append(self.worker.new_owner())
        return self._owners[-1]

    def keep(self, place: int, taken: LocalGrant) -> Holding:
        ask = self.asks[place]
        holding = self.new_holding(ask, taken)
        self.kept.append(holding)
        self.worker.note_fence(holding.fence)
        seconds = f"for {taken.deadline - taken.at:.4f} s"
        self.say("holds", ask.name.text, holding.owner, holding.fence, holding.rule, *holding.slots, seconds)
        self.checks.took(self.process, holding)
        self.process.start(self.watch(holding, self.process.naps))
        return holding

    def new_holding(self, ask: flows.AcquireRequest, taken: LocalGrant) -> Holding:
        return Holding(ask.name, taken, nullcontext(), renews=ask.renews, max_hold=self.habits.max_hold)

    # ------------------------------------------------------------ working

    async def work(self, holdings: list[Holding]) -> None:
        """All of them are needed for each step, and one of them is used."""
        for _ in range(self.random.randint(1, STEPS)):
            if any(one.settle(self.now()) not in ALIVE for one in holdings):
                return
            holding = self.random.choice(holdings) if len(holdings) > 1 else holdings[0]
            if not await self.change(holding):
                return
            if not self.worker.world.calm() and self.random.random() < self.habits.dozes:
                self.process.freeze(self.random.random() * holding.ttl_ms / 300)
            await self.process.sleep(self.random.random() * 0.003)  # the write travels
            if not all(self.use(holding, name) for name in guarded(holding)):
                return
            step = self.random.random() * self.habits.work / STEPS
            await self.process.sleep(step, key=self.worker.at_work)

    def use(self, holding: Holding, name: str) -> bool:
        """Write, or read where it may only read."""
        guard = self.worker.guards[name]
        accepted = guard.accepts(holding.fence, holding.owner, holding.rule == READ)
        does = "reads" if holding.rule == READ else "writes"
        self.say(does if accepted else "is refused by the guard", name, holding.fence)
        self.worker.note_fence(guard.fence)
        if not accepted:
            self.worker.note_refusal(guard.fence)
        if accepted:
            self.checks.accepted(name, holding, guard.fence)
        else:
            self.checks.turned_away(holding)
        return accepted

    async def change(self, holding: Holding) -> bool:
        """What a holder may change, now and then; False when it was lost by then."""
        habits, chance = self.habits, self.random.random
        try:
            if chance() < habits.extends:
                await self.extend(holding)
            if holding.rule == WRITE and chance() < habits.downgrades:
                await self.downgrade(holding)
            if habits.says and chance() < habits.says:
                await self.publish(holding)
        except (LeaseLost, NotHeld):
            return False
        return True

    async def extend(self, holding: Holding) -> None:
        ttl_ms = int(self.habits.ttl_ms * self.random.choice((0.4, 0.8, 1, 2, 3)))
        self.say("extends to", ttl_ms)
        try:
            await flows.extend(holding, ttl_ms, self.now())
        except (StoreUnavailable, OutcomeUnknown):
            self.say("does not know whether it extended")
        self.process.kick(f"watch {holding.owner}")

    async def downgrade(self, holding: Holding) -> None:
        self.say("downgrades", holding.owner)
        try:
            await flows.downgrade(holding, self.now())
        except (StoreUnavailable, OutcomeUnknown):
            self.say("does not know whether it downgraded")
        else:
            self.checks.changed(holding, READ, "")
        self.process.kick(f"watch {holding.owner}")

    async def publish(self, holding: Holding) -> None:
        self._said += 1
        meta = f"{holding.owner} says {self._said}"
        try:
            await flows.change_meta(holding, meta, self.now())
        except (StoreUnavailable, OutcomeUnknown):
            self.say("does not know whether it said")
        else:
            self.checks.changed(holding, holding.rule, meta)
        self.process.kick(f"watch {holding.owner}")

    # ------------------------------------------------------------ giving back

    async def give_back(self, holdings: Sequence[Holding]) -> None:
        """Some insist on an answer, some leave it to the background."""
        for _ in range(3 if self.habits.insists else 1):
            believed = [self.believes(one) for one in holdings]
            try:
                if len(self.asks) > 1:
                    ours = await release_all(holdings, self.now())
                else:
                    ours = [await self.release(holdings[0])]
            except OutcomeUnknown:
                await self.process.sleep(self.random.random() * 0.2)
            else:
                for holding, belief, answer in zip(holdings, believed, ours, strict=True):
                    self.say("released" if answer else "had lost it before the release", holding.reason)
                    self.checks.released(holding, belief, answer)
                return

    def believes(self, holding: Holding) -> bool:
        return holding.settle(self.now()) != LOST

    async def release(self, holding: Holding) -> bool:
        return await flows.release(holding, self.now())

    # ------------------------------------------------------------ the watchdog

    async def watch(self, holding: Holding, naps: int) -> None:
        """Settle, renew, and tell of the loss. Who was frozen meanwhile (``naps``) can only be told late."""
        while holding.settle(self.now()) in ALIVE:
            self.before_look(holding)
            if holding.check_at() > self.now():
                await Park(f"watch {holding.owner}", holding.check_at())
            else:
                began = self.worker.world.now
                await flows.renew(holding, self.now())
                self.checks.waited(holding, self.worker.world.now > began)
        if holding.phase == LOST:
            self.say("is told of the loss", holding.reason)
            if naps == self.process.naps:
                self.checks.told(self.process, holding)
            self.process.kick(self.worker.at_work)

    def before_look(self, holding: Holding) -> None:
        """The watchdog is about to look at it."""

    def now(self) -> float:
        return self.process.local()

    def say(self, what: str, *details: object) -> None:
        self.worker.say(what, *details)


def guarded(holding: Holding) -> list[str]:
    """The names under which a guard keeps it: a permit is one of several, so each slot has its own."""
    resource = holding.name.text
    return [f"{resource}::{slot}" for slot in holding.slots] if holding.rule == SEMAPHORE else [resource]
