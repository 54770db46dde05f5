"""The books of a cron: on a result store, written under the lease of its name. Flows, for threads and for asyncio.

A tick is claimed before it is run: whoever comes later, with whatever clock, finds it there. So a run whose process
dies is not repeated. The claim and the outcome are fenced: one who lost the lease meanwhile writes nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Any, NamedTuple

from leasehold._core.types import public_owner
from leasehold.errors import LeaseholdError, OutcomeUnknown, StaleOwner, StoreUnavailable
from leasehold.patterns.cron.schedule import CronClock, DueTicks, Policy, Schedule, decide, next_due, zone_of
from leasehold.patterns.cron.state import RUNNING, CronState, Run, RunRecord, decode, encode
from leasehold.patterns.flavour import Flavour
from leasehold.patterns.results import Entry, ResultStore

KEEP = "3650d"  # a cron of 29 February must remember its last run
LARGEST_DIFFERENCE = 3600.0  # seconds by which clocks never differ, unless one of them is wrong
TRIES, PAUSE = 3, 0.2  # to write something down; seconds, and longer the second time

log = logging.getLogger("leasehold.cron")


class WrongClock(LeaseholdError):
    """By what the others and the store say, the clock of this machine is wrong by more than an hour."""


class RunHistory(NamedTuple):
    """Of one cron. ``shown`` is its name as logs have it, without the ids. ``store_time`` asks for the store's clock at
    the moment when the lease was granted."""

    flavour: Flavour
    results: ResultStore
    resource: str
    shown: str
    schedule: Schedule
    policy: Policy
    clock: CronClock
    store_time: Callable[[], Awaitable[float | None]]

    async def due(self, since: float) -> DueTicks | None:
        """What there may be to do. It may have changed in the next moment."""
        entry = await self.flavour.resolve(self.results.read(self.resource))
        state = self._state(entry)
        now = self.clock.now()
        if entry is not None and state is not None and self._clocks_differ(state, entry, now):
            return DueTicks(state.last)
        plan = next_due(state, self.schedule, self.policy, now, since)
        return plan._replace(busy=state.has_running()) if plan is not None and state is not None else plan

    async def claim(self, lease: Any, since: float) -> ClaimedTick | None:
        """Under the lease: settle what is due, and say what is to be run. It is claimed when this returns."""
        entry = await self.flavour.resolve(self.results.open(lease))
        state = stored = self._state(entry)
        now = self.clock.now()
        if entry is not None and state is not None and self._clocks_differ(state, entry, now):
            state, stored = await self._trusted_state(state, now), None
        plan = decide(state, self.schedule, self.policy, now, since)
        after = self._after(state, plan, now)
        if plan is not None and plan.tick is not None:
            begun = RunRecord(plan.tick, RUNNING, _ms(now), by=public_owner(lease.owner), fence=lease.fence)
            after = after.with_lines([begun])
        if stored is None or after._replace(at=stored.at) != stored:
            await self._write(lease, after)
        return None if plan is None or plan.tick is None else ClaimedTick(plan.tick, lease, after)

    def _after(self, state: CronState | None, plan: DueTicks | None, now: float) -> CronState:
        """Nobody else holds the lease, so nothing runs."""
        known = (
            CronState(self.schedule.text, int(now), _ms(now))
            if state is None
            else state.with_dead_runs()._replace(at=_ms(now))
        )
        if plan is None:
            return known
        return known._replace(schedule=self.schedule.text, last=plan.last).with_lines(plan.lines)

    async def settle(self, claimed: ClaimedTick, outcome: str, error: str = "") -> bool:
        """Write down what became of the run. False: it could not be, and whoever comes next writes that it died."""
        now = _ms(self.clock.now())
        state = claimed.state.ended(claimed.tick, claimed.lease.fence, outcome, now, error)._replace(at=now)
        try:
            await self._write(claimed.lease, state)
        except StaleOwner:
            return False
        except (StoreUnavailable, OutcomeUnknown) as away:
            log.warning("%s: a run ended with %s, and the store was away: %s", self.shown, outcome, away)
            return False
        return True

    # ------------------------------------------------------------ clocks that are wrong

    def _clocks_differ(self, state: CronState, entry: Entry, now: float) -> bool:
        """What the clock of whoever wrote would show by now, against ours."""
        return self.clock.real and abs(now - (state.at + entry.age)) > LARGEST_DIFFERENCE

    async def _trusted_state(self, state: CronState, now: float) -> CronState:
        """One of two clocks is wrong, and the store's says which. What a wrong one claimed of the future is void."""
        store = await self.store_time()
        if store is not None and abs(now - store) > LARGEST_DIFFERENCE:
            raise WrongClock(
                f"nothing is run for {self.shown}: by the clock of this machine it is {self.schedule.moment(now)}, "
                f"by the store's {self.schedule.moment(store)}; set the one that is wrong",
                resource=self.resource,
            )
        if state.last <= now + LARGEST_DIFFERENCE:
            return state
        log.warning(
            "%s: a machine whose clock is wrong has claimed ticks up to %s: they are void",
            self.shown, self.schedule.moment(state.last),
        )  # fmt: skip
        return state.without_future(now)

    def _state(self, entry: Entry | None) -> CronState | None:
        return None if entry is None else decode(entry.text, self.resource)

    async def _write(self, lease: Any, state: CronState) -> None:
        """Again when nobody knows whether it happened: it is the same text under the same fence, and a claim that was
        written and not run would be a tick that nobody runs."""
        text = encode(state)
        for attempt in range(1, TRIES + 1):
            try:
                await self.flavour.resolve(self.results.write(lease, text, KEEP))
                return
            except (StoreUnavailable, OutcomeUnknown):
                if attempt == TRIES:
                    raise
            await self.flavour.sleep(PAUSE * attempt)


class ClaimedTick(NamedTuple):
    """A tick that is to be run now, under this lease."""

    tick: int
    lease: Any
    state: CronState


def _ms(moment: float) -> float:
    return round(moment, 3)


async def history(flavour: Flavour, results: ResultStore, lock: Any, limit: int) -> list[Run]:
    """The newest first, in the time zone of the cron. One that still runs, by this, and whose lease nobody has, has
    died."""
    entry = await flavour.resolve(results.read(lock.resource))
    if entry is None:
        return []
    state = decode(entry.text, lock.resource)
    if state.has_running() and not await flavour.resolve(lock.locked()):
        again = await flavour.resolve(results.read(lock.resource))
        now = state if again is None else decode(again.text, lock.resource)
        state = now.with_dead_runs() if now.lines == state.lines else now
    zone = zone_of(state.schedule.rpartition(" ")[2])
    shown = [line.shown(lambda moment: datetime.fromtimestamp(moment, zone)) for line in reversed(state.lines)]
    return shown[:limit]
