"""A campaign: standing for election, for one term as a context manager, or for term after term as an iterator."""

from __future__ import annotations

import time
from threading import current_thread
from types import TracebackType

from leasehold._core.holding import ALIVE, LOST, LocalGrant
from leasehold._core.light_typing import TYPE_CHECKING, Any
from leasehold._core.policy import LONGEST_REST, renew_after
from leasehold._core.tickets import Ticket
from leasehold._runtime.backoff import jittered
from leasehold._runtime.options import Options
from leasehold.errors import OutcomeUnknown
from leasehold.primitives.base_lock import BaseLock
from leasehold.primitives.lock import AsyncLock, Lock
from leasehold.primitives.term import RESIGNED, UNFIT, AsyncTerm, HeldTerm, Term

if TYPE_CHECKING:
    import asyncio
    import threading

    from leasehold._runtime.aio import AsyncDriver
    from leasehold._runtime.events import AcquireEvents
    from leasehold.primitives.election import BaseElection

LONGEST_NAP = 1.0  # seconds, before checking whether the coordinator is still open


class RestPeriods:
    """How long to rest before standing again. A candidate that was unfit to lead rests for up to a third of the ttl:
    alone in the queue, it would win each time. For each further term in a row that is lost early, whatever the reason,
    the rest doubles, up to a minute. A term that lasted that long, besides its start period, resets this."""

    __slots__ = ("_early", "_first", "_long")

    def __init__(self, ttl: float, start_period: float = 0.0) -> None:
        self._first = renew_after(ttl)
        self._long = LONGEST_REST + start_period
        self._early = 0  # terms in a row that were lost early

    def after(self, reason: str, lasted: float) -> float:
        """Seconds to rest after the loss of a term."""
        self._early = 1 if lasted >= self._long else self._early + 1
        doubled = self._early - (1 if reason in UNFIT else 2)
        return 0.0 if doubled < 0 else jittered(min(self._first * 2.0 ** min(doubled, 32), LONGEST_REST))

    def forget(self) -> None:
        """A term has ended without a loss."""
        self._early = 0


class BaseElectionLock(BaseLock):
    """The lock of an election, in either flavour. Its leases are terms."""

    __slots__ = ()

    _election: Any

    def _acquire_events(self, wait: float | None) -> AcquireEvents:
        from leasehold._runtime.events import CampaignEvents

        return CampaignEvents(self._engine, self._name, self._options.ttl_ms, wait)

    def _keep(self, grant: LocalGrant, anchor: object, events: AcquireEvents | None, epoch: int) -> HeldTerm:
        engine = self._engine
        held = HeldTerm(self._name, grant, engine.watchdog.transitions, self._options, anchor)
        if events is not None:
            held.carried = dict(engine.observers.carried(events.number))
            events.granted(held)  # first: its loss, however soon, must be reported after it
        engine.register(held, anchor, epoch)
        return held

    def _release_unreported(self, anchor: object, before: object) -> None:
        """Release a term that an interrupt kept from the caller: no body would release it."""
        held = self._engine.find_held(self._name.text, anchor)
        if held is not None and held is not before and held.phase in ALIVE:
            self._release_in_background(held, self._engine.watchdog.release_reporter(held))


class ElectionLock(BaseElectionLock, Lock):
    """The lock of an election, for threads."""

    __slots__ = ("_election",)

    _lease_class = Term  # type: ignore[assignment]  # a Term is made of a HeldTerm, which _keep returns

    def __init__(self, election: BaseElection, options: Options) -> None:
        Lock.__init__(self, election._engine, election._name, options)
        self._election = election

    def _acquire(self, wait: float | None, thread: threading.Thread, ticket: Ticket | None = None) -> Term:
        before = self._engine.find_held(self._name.text, thread)
        try:
            term: Any = Lock._acquire(self, wait, thread, ticket)
            self._election._begin(term)
            won: Term = term
            return won
        except BaseException:
            self._release_unreported(thread, before)
            raise


class AsyncElectionLock(BaseElectionLock, AsyncLock):
    """The lock of an election, for asyncio."""

    __slots__ = ("_election",)

    _lease_class = AsyncTerm  # type: ignore[assignment]  # as above

    def __init__(self, election: BaseElection, options: Options, driver: AsyncDriver) -> None:
        AsyncLock.__init__(self, election._engine, election._name, options, driver)
        self._election = election

    async def _acquire(self, wait: float | None, task: asyncio.Task[Any], ticket: Ticket | None = None) -> AsyncTerm:
        before = self._engine.find_held(self._name.text, task)
        try:
            term: Any = await AsyncLock._acquire(self, wait, task, ticket)
            self._election._begin(term)
            won: AsyncTerm = term
            return won
        except BaseException:
            self._release_unreported(task, before)
            raise


class BaseCampaign:
    """A campaign of either flavour."""

    _lock: BaseElectionLock

    def __init__(self, election: BaseElection, options: Options) -> None:
        start_period = 0.0 if election._health is None else election._health.start_period
        self._engine = election._engine
        self._name = election._name
        self._options = options
        self._held_term: HeldTerm | None = None  # the last term of the loop
        self._since = 0.0  # when it began
        self._rest_periods = RestPeriods(options.ttl_ms / 1000, start_period)
        self._over = False

    def _begin_term(self, term: Any) -> None:
        """The loop has a new term. It is in use while the loop is, also when the program keeps no reference to it."""
        held_term: HeldTerm = term._held
        held_term.looping = True
        held_term.track_lock(self)
        self._since = self._engine.clock.now()
        self._held_term = held_term

    def _continues(self, held_term: HeldTerm) -> bool:
        """A term of the loop was released. Is there to be another?"""
        self._held_term = None
        self._over = self._over or held_term.reason == RESIGNED
        return not self._over

    def _rest_until(self, held_term: HeldTerm) -> float:
        """When to stand again. A term that ended with ``max_hold`` ended as requested."""
        now = self._engine.clock.now()
        if held_term.phase == LOST and held_term.reason != "max_hold":
            return now + self._rest_periods.after(held_term.reason, now - self._since)
        self._rest_periods.forget()
        return now

    def _nap(self, until: float) -> float:
        """For how many real seconds to sleep; 0 at the end of the rest."""
        self._engine.ensure_open()
        return min(self._engine.clock.nap(until), LONGEST_NAP)

    def __del__(self) -> None:
        """The loop was left, by break, return or an exception. This may run at any bytecode of any thread, so it is the
        watchdog that releases the term."""
        held_term = getattr(self, "_held_term", None)
        if held_term is not None:
            held_term.left_behind = True
            self._engine.watchdog.dropped.put(held_term)

    def __reduce__(self) -> str:
        """Dropping a copy would release the term of this campaign."""
        raise TypeError("a campaign stays in its process, and is not copied: make another with election.campaign()")

    def __repr__(self) -> str:
        return f"<{type(self).__name__} for {self._name.shown}>"


class Campaign(BaseCampaign):
    """Standing for election, for threads: ``with`` leads one term, ``for`` one term after the other."""

    def __init__(self, election: BaseElection, options: Options) -> None:
        BaseCampaign.__init__(self, election, options)
        self._lock: ElectionLock = ElectionLock(election, options)

    def __enter__(self) -> Term:
        thread = current_thread()
        before = self._lock._bodies.get(thread)
        try:
            term: Any = self._lock.__enter__()
            won: Term = term
            return won
        except BaseException:
            body = self._lock._bodies.get(thread)
            if body is not None and body is not before:  # an interrupt, after it was entered
                self._lock._abandon(body[0])
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._lock.__exit__(kind, error, trace)

    def __iter__(self) -> Campaign:
        return self

    def __next__(self) -> Term:
        """Release the last term, and lead the next one."""
        if not self._finish():
            raise StopIteration
        thread = current_thread()
        before = self._engine.find_held(self._name.text, thread)
        try:
            term = self._lock._acquire(self._options.wait, thread)
            self._begin_term(term)
            return term  # in the same try: an interrupt on the way out must not lose it
        except BaseException:
            self._lock._release_unreported(thread, before)
            raise

    def close(self) -> None:
        """End the loop: release its term, and do not stand again."""
        self._over = True
        self._finish()

    def _finish(self) -> bool:
        held_term = self._held_term
        if held_term is None:
            return not self._over
        rest_until = self._rest_until(held_term)
        try:
            self._lock._lease(held_term, current_thread()).release()
        except OutcomeUnknown:  # the release goes on in the background
            self._engine.forget(held_term)
        if not self._continues(held_term):
            return False
        while nap := self._nap(rest_until):
            time.sleep(nap)
        return True


class AsyncCampaign(BaseCampaign):
    """Standing for election, for asyncio: ``async with`` leads one term, ``async for`` one term after the other."""

    def __init__(self, election: BaseElection, options: Options, driver: AsyncDriver) -> None:
        BaseCampaign.__init__(self, election, options)
        self._driver = driver
        self._lock: AsyncElectionLock = AsyncElectionLock(election, options, driver)

    async def __aenter__(self) -> AsyncTerm:
        term: Any = await self._lock.__aenter__()
        won: AsyncTerm = term
        return won

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._lock.__aexit__(kind, error, trace)

    def __aiter__(self) -> AsyncCampaign:
        return self

    async def __anext__(self) -> AsyncTerm:
        """Release the last term, and lead the next one."""
        if not await self._finish():
            raise StopAsyncIteration
        term = await self._lock._acquire(self._options.wait, self._driver.task())
        self._begin_term(term)
        return term

    async def close(self) -> None:
        """End the loop: release its term, and do not stand again."""
        self._over = True
        await self._finish()

    async def _finish(self) -> bool:
        held_term = self._held_term
        if held_term is None:
            return not self._over
        rest_until = self._rest_until(held_term)
        try:
            await self._lock._lease(held_term, self._driver.task()).release()
        except OutcomeUnknown:  # the release goes on in the background
            self._engine.forget(held_term)
        if not self._continues(held_term):
            return False
        while nap := self._nap(rest_until):
            await self._driver.sleep(nap)
        return True
