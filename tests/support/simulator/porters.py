"""Workers of a simulated process who want many leases at once: the production flows of batches at work.

What ``primitives/batch_attempt.py`` and ``primitives/batch_release.py`` do around the flows is done here for a
simulated worker. A batch takes what lingers in its process, and gives all that it has back to the store.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from leasehold._core import flows, many, ops
from leasehold._core.holding import ALIVE, LOST, Holding, LocalGrant
from leasehold._core.many import Batch, acquire_many, release_many
from leasehold._runtime import cohorts
from leasehold.errors import LeaseholdError, NotAcquired, OutcomeUnknown, StoreUnavailable
from tests.support.simulator.crew import CrewJob, CrewWorker, Hand
from tests.support.simulator.faults import CALM
from tests.support.simulator.job import STEPS, guarded
from tests.support.simulator.plans import Want
from tests.support.simulator.process import Cancelled
from tests.support.simulator.world import Event, World

MOST_PARTS = 3  # connections that a batch may leave by, as in a Cluster
TRIES = 3


@dataclass(frozen=True, slots=True)
class Porter(Hand):
    """One who wants many at once, now and then."""

    many: float = 0.0  # how likely


class BatchWorld(World):
    """Batches leave in one request, or in one to each of several servers. Each of these has a fate of its own."""

    def call(self, op: Any, answer: Any) -> Event:
        if not isinstance(op, Batch):
            return World.call(self, op, answer)
        places = list(range(len(op.steps)))
        self.random.shuffle(places)  # which server has what
        count = self.random.randint(1, min(MOST_PARTS, len(places)))
        parts = [sorted(places[first::count]) for first in range(count)]
        outcomes: dict[int, Any] = {}

        def settled(part: list[int], found: Any) -> None:
            """The first answer counts; the caller goes on when all parts have one."""
            if part[0] not in outcomes:
                outcomes.update(zip(part, found, strict=True))
                if len(outcomes) == len(places):
                    answer(self.in_order(outcomes))

        for part in parts:
            self._send_part([op.steps[at] for at in part], op.budget_ms, partial(settled, part))
        return Event(lambda: None)  # whoever gives up hears nothing of it any more

    def in_order(self, outcomes: dict[int, Any]) -> list[Any]:
        """One for each op."""
        return [outcomes[at] for at in sorted(outcomes)]

    def _send_part(self, steps: list[Any], budget_ms: int, settled: Any) -> None:
        for step in steps:
            self.judge.sent(step)
        fate, count = self.weather.fate(self.random), len(steps)
        known = self._known(count)
        if fate.deliver_after is not None:
            do = partial(self._arrive_part, steps, fate.reply_after, known, settled)
            self.at(self.now + fate.deliver_after, do)
        if fate.again_after is not None:
            self.at(self.now + fate.again_after, partial(self._arrive_part, steps, None, known, settled))
        patience = budget_ms / 1000
        if fate.reset_after is not None:
            patience = min(patience, fate.reset_after)
        error = StoreUnavailable if fate.refused else OutcomeUnknown
        self.at(self.now + patience, lambda: settled([error("no answer") for _ in steps]))

    def _known(self, count: int) -> tuple[int, int]:
        """How many of them arrive, and how many replies: a connection may break between two of them."""
        if self.weather == CALM or self.random.random() >= self.weather.reply_lost + self.weather.request_lost:
            return count, count
        arrive = self.random.randint(0, count)
        return arrive, self.random.randint(0, arrive)

    def _arrive_part(
        self,
        steps: list[Any],
        reply_after: float | None,
        known: tuple[int, int],
        settled: Any,
        place: int | None = None,
    ) -> None:
        if self.now < self.stalled_until:  # as a single request
            place = next(self._order) if place is None else place
            do = partial(self._arrive_part, steps, reply_after, known, settled, place)
            self.at(self.stalled_until, do, place)
            return
        arrive, heard = known
        replies: list[Any] = [self.turn(step) for step in steps[:arrive]]
        found = [*replies[:heard], *(OutcomeUnknown("the connection broke") for _ in steps[heard:])]
        if heard < len(steps):
            self.note("store", "answers", heard, "of", len(steps))
        if reply_after is not None:
            self.at(self.now + reply_after, lambda: settled(found))


class PorterJob(CrewJob):
    """One turn of such a worker. With one ask it is as that of any other."""

    worker: PorterWorker

    def __init__(self, worker: CrewWorker, asks: Sequence[flows.AcquireRequest]) -> None:
        CrewJob.__init__(self, worker, asks)
        self.many = len(asks) > 1
        self._rest: list[int] = []  # the places of those that are claimed

    # ------------------------------------------------------------ acquiring

    async def take(self) -> list[Holding]:
        if not self.many:
            return await CrewJob.take(self)
        try:
            return await self._take_many()
        except (Cancelled, LeaseholdError):  # named: a killed process cleans nothing up
            for held in self.kept:
                if held.phase in ALIVE:
                    self.release_in_background(held)  # type: ignore[arg-type]  # all of them are
            raise

    async def _take_many(self) -> list[Holding]:
        outcomes: dict[int, Any] = {}
        for place, ask in enumerate(self.asks):
            kept = self._take_kept(ask)
            if kept is None:
                self._rest.append(place)
            else:
                outcomes[place] = kept
        if self._rest:
            asks = [self.asks[place] for place in self._rest]
            found = await acquire_many(asks, self, self.worker.floor, self.now())
            outcomes |= dict(zip(self._rest, found, strict=True))
        self.worker.checks.answered(self, outcomes)
        holdings = [one for _, one in sorted(outcomes.items()) if isinstance(one, Holding)]
        self.say("has", len(holdings), "of", len(self.asks))
        if not holdings:
            error: LeaseholdError = next(iter(outcomes.values()))
            raise error
        return holdings

    def _take_kept(self, ask: flows.AcquireRequest) -> Holding | None:
        key = cohorts.key_of(ask)
        cohort = None if key is None else self.engine.cohorts.get(key)
        if cohort is None or cohort.kept is None:
            return None
        held = cohort.take_kept(self.engine, ask.name, self.options(ask), self.worker.anchor)
        if held is None:
            return None
        self.say("takes what lingers, in a batch", held.owner, held.fence)
        self.checks.taken_again(self.process, held)
        return self.take_up(held)

    def keep(self, place: int, taken: LocalGrant) -> Holding:
        return CrewJob.keep(self, self._rest[place] if self.many else place, taken)

    # ------------------------------------------------------------ working

    async def work(self, holdings: list[Holding]) -> None:
        """They have nothing to do with each other: when one is lost, the work under the others goes on."""
        if not self.many:
            await CrewJob.work(self, holdings)
            return
        for _ in range(self.random.randint(1, STEPS)):
            able = [one for one in holdings if one.settle(self.now()) in ALIVE]
            if not able:
                return
            holding = self.random.choice(able)
            if await self.change(holding):
                await self.process.sleep(self.random.random() * 0.003)  # the write travels
                for name in guarded(holding):
                    self.use(holding, name)
            await self.process.sleep(self.random.random() * self.habits.work / STEPS, key=self.worker.at_work)

    # ------------------------------------------------------------ giving back

    async def give_back(self, holdings: Sequence[Holding]) -> None:
        if not self.many:
            await CrewJob.give_back(self, holdings)
            return
        try:
            left = list(holdings)
            for _ in range(TRIES if self.habits.insists else 1):
                left = await self._release_many(left)
                if not left:
                    return
                await self.process.sleep(self.random.random() * 0.2)
        except Cancelled:
            for held in holdings:
                release = held.begin_release(self.now())
                if release is not None:
                    self.process.start(self.process.insist(ops.Defer(release, held.ttl_ms / 1000)))
            raise
        finally:
            if self.process.alive:
                self._end(holdings)

    async def _release_many(self, holdings: list[Holding]) -> list[Holding]:
        """Returns those of which it is not known."""
        believed = [self.believes(one) for one in holdings]
        outcomes = await release_many(holdings, self.now())
        unknown = []
        for place, (holding, belief, outcome) in enumerate(zip(holdings, believed, outcomes, strict=True)):
            late = place >= many.MOST_TOGETHER and holding.phase == LOST  # it was over before its own request left
            if isinstance(outcome, LeaseholdError):
                self.say("does not know whether it released", holding.owner)
                unknown.append(holding)
            else:
                self.say("released" if outcome else "had lost it before the release", holding.owner, holding.reason)
                self.checks.released(holding, belief and not late, outcome)
        return unknown

    def _end(self, holdings: Sequence[Holding]) -> None:
        for held in holdings:
            cohorts.released(self.engine, held)  # type: ignore[arg-type]  # all of them are


class PorterWorker(CrewWorker):
    """One of several in a process, who wants many at once, now and then."""

    habits: Porter
    checks: Any

    def new_job(self, asks: Sequence[flows.AcquireRequest]) -> PorterJob:
        return PorterJob(self, asks)

    def asks(self, last: bool) -> Sequence[flows.AcquireRequest]:
        """Some of the resources, in any order; the last time one, for which it waits."""
        chance = self.random
        if last or chance.random() >= self.habits.many:
            return CrewWorker.asks(self, last)
        wants: dict[str, Want] = {}
        for want in chance.sample(self.habits.wants, len(self.habits.wants)):
            wants.setdefault(want.resource, want)
        some = list(wants.values())[: chance.randint(2, max(2, len(wants)))]
        return [self.ask(want, chance.choice((0, None, 1.0)), last) for want in some]


def was_refused(outcome: object) -> bool:
    """Another holds it, or waits for it."""
    return isinstance(outcome, NotAcquired)
