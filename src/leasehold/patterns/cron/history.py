"""The run history of a cron: on a result store, written under the lease of its name, by threads and by asyncio.

A tick is claimed before it is run: a process that comes later, with whatever clock, finds the claim. So a run whose
process dies is not repeated. The claim and the outcome are fenced: a process that lost the lease writes nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

from leasehold._core.names import Name
from leasehold._core.types import public_owner
from leasehold.errors import LeaseholdError, OutcomeUnknown, StaleOwner, StoreUnavailable
from leasehold.observe.events import CronPassedOver, CronRan, CronSucceeded
from leasehold.observe.observers import Observers
from leasehold.patterns.cron.schedule import CronClock, DueTicks, Policy, Schedule, decide, next_due, zone_of
from leasehold.patterns.cron.state import DIED, OK, RUNNING, CronState, Run, RunRecord, decode, encode
from leasehold.patterns.flavour import Flavour
from leasehold.patterns.results import Entry, ResultStore

KEEP = "3650d"  # a cron of 29 February must remember its last run
LARGEST_DIFFERENCE = 3600.0  # seconds by which clocks never differ, unless one of them is wrong
TRIES, PAUSE = 3, 0.2  # of a write; seconds between two, longer the second time
MORE_TICKS = 1000  # reported where the history says that there were more

log = logging.getLogger("leasehold.cron")


class WrongClock(LeaseholdError):
    """The clock of this machine differs from the store's and from other machines' by more than an hour."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunHistory:
    """The run history of one cron. ``store_time`` gives the time, by the store's clock, at which the lease was
    granted."""

    flavour: Flavour
    results: ResultStore
    name: Name
    observers: Observers
    schedule: Schedule
    policy: Policy
    clock: CronClock
    store_time: Callable[[], Awaitable[float | None]]

    @property
    def resource(self) -> str:
        """The text form of its name."""
        return self.name.text

    @property
    def shown(self) -> str:
        """Its name without the ids, for logs."""
        return self.name.shown

    async def due(self, since: float) -> DueTicks | None:
        """What seems to be due, read without the lease. It may change at any moment."""
        entry = await self.flavour.resolve(self.results.read(self.resource))
        state = self._state(entry)
        now = self.clock.now()
        self._report_success(state)
        if entry is not None and state is not None and self._clocks_differ(state, entry, now):
            return DueTicks(state.last)
        due = next_due(state, self.schedule, self.policy, now, since)
        return due._replace(busy=state.has_running()) if due is not None and state is not None else due

    async def claim(self, lease: Any, since: float) -> ClaimedTick | None:
        """Under the lease: record what is due, and claim the tick to run, if there is one. It is claimed when this
        returns."""
        entry = await self.flavour.resolve(self.results.open(lease))
        state = stored = self._state(entry)
        now = self.clock.now()
        if entry is not None and state is not None and self._clocks_differ(state, entry, now):
            state, stored = await self._trusted_state(state, now), None
        due = decide(state, self.schedule, self.policy, now, since)
        after = self._after(state, due, now)
        if due is not None and due.tick is not None:
            begun = RunRecord(due.tick, RUNNING, _ms(now), by=public_owner(lease.owner), fence=lease.fence)
            after = after.with_lines([begun])
        if stored is None or after._replace(at=stored.at) != stored:
            await self._write(lease, after)
            self._report_passed_over(state, due)
        return None if due is None or due.tick is None else ClaimedTick(due.tick, lease, after)

    def _after(self, state: CronState | None, due: DueTicks | None, now: float) -> CronState:
        """The next state. We hold the lease, so any run that is recorded as running has died."""
        known = (
            CronState(self.schedule.text, int(now), _ms(now))
            if state is None
            else state.with_dead_runs()._replace(at=_ms(now))
        )
        if due is None:
            return known
        return known._replace(schedule=self.schedule.text, last=due.last).with_lines(due.lines)

    async def settle(self, claimed: ClaimedTick, outcome: str, error: str = "") -> bool:
        """Record the outcome of a run. False: that failed, and the next holder will record that the run died."""
        now = _ms(self.clock.now())
        state = claimed.state.ended(claimed.tick, claimed.lease.fence, outcome, now, error)._replace(at=now)
        self._report_run(outcome, now - claimed.started)
        try:
            await self._write(claimed.lease, state)
            self._report_success(state)
        except StaleOwner:
            return False
        except (StoreUnavailable, OutcomeUnknown) as problem:
            log.warning("%s: a run ended with %s, and the store was away: %s", self.shown, outcome, problem)
            return False
        return True

    # ------------------------------------------------------------ for observers

    def _report_run(self, outcome: str, took: float) -> None:
        if self.observers.observers:
            self.observers.notify(CronRan(self.name.kind, self.name.id_hash, outcome, max(took, 0.0)))

    def _report_passed_over(self, before: CronState | None, due: DueTicks | None) -> None:
        """Ticks that are recorded as not run, and runs that are recorded as dead, by this write."""
        if not self.observers.observers:
            return
        died = [] if before is None else [line for line in before.lines if line.outcome == RUNNING]
        found = [(DIED, 1) for _ in died]
        found += [] if due is None else [(line.outcome, line.ticks or MORE_TICKS) for line in due.lines]
        for outcome, ticks in found:
            self.observers.notify(CronPassedOver(self.name.kind, self.name.id_hash, outcome, ticks))

    def _report_success(self, state: CronState | None) -> None:
        """The last success of any process: one that was just started knows of it as well."""
        if self.observers.observers and state is not None:
            ended = [line.ended for line in state.lines if line.outcome == OK and line.ended is not None]
            if ended:
                self.observers.notify(CronSucceeded(self.name.kind, self.name.id_hash, max(ended)))

    # ------------------------------------------------------------ clocks that are wrong

    def _clocks_differ(self, state: CronState, entry: Entry, now: float) -> bool:
        """Is our clock far from what the last writer's clock would show by now?"""
        return self.clock.real and abs(now - (state.at + entry.age)) > LARGEST_DIFFERENCE

    async def _trusted_state(self, state: CronState, now: float) -> CronState:
        """One of two clocks is wrong, and the store's clock tells which. Future ticks that a wrong one claimed are
        void."""
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
        """Write the state. A write whose outcome is unknown is repeated: it is the same text under the same fence, and
        a claim that was written without our knowledge would be a tick that never runs."""
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
    """A tick that is claimed, and is to be run now under this lease."""

    tick: int
    lease: Any
    state: CronState

    @property
    def started(self) -> float:
        """When it was claimed: the time of the write that did so."""
        return self.state.at


def _ms(moment: float) -> float:
    return round(moment, 3)


async def history(flavour: Flavour, results: ResultStore, lock: Any, limit: int) -> list[Run]:
    """The last runs, newest first, in the time zone of the cron. A run that is recorded as running while no process
    holds the lease has died."""
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
