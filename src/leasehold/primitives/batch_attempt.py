"""``hold.acquire_many``: many independent leases in one round trip.

Each lock is tried once, by itself: some are granted, some refused, and one that fails takes nothing from the others.
Nothing waits, so nothing can wait for each other in a circle: a caller that holds some of them and waited for the rest
could. What is needed together is taken with ``hold.all``, which has an order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from threading import current_thread

from leasehold._core.holding import LOST, LocalGrant
from leasehold._core.light_typing import TYPE_CHECKING, Any
from leasehold._core.many import acquire_many as acquire_flow
from leasehold._runtime import sync
from leasehold._runtime.batches import AsyncBatchConnection, BatchConnection
from leasehold._runtime.engine import Engine
from leasehold._runtime.held_lease import HeldLease
from leasehold.errors import LeaseholdError, NotAcquired
from leasehold.primitives.base_attempt import BaseAttempt
from leasehold.primitives.base_lock import BaseLock
from leasehold.primitives.lease_batch import AsyncLeaseBatch, LeaseBatch, Outcomes

if TYPE_CHECKING:
    from leasehold._runtime.aio import AsyncDriver
    from leasehold._runtime.events import AcquireEvents
    from leasehold.primitives.lock import AsyncLock, Lock


class BatchAttempt(BaseAttempt):
    """One acquire of many locks, each by itself and tried once. The same in both flavours. The flow calls ``new_owner``
    and ``keep``."""

    def __init__(self, engine: Engine, parts: Sequence[BaseLock], anchor: object) -> None:
        BaseAttempt.__init__(self, engine, parts, anchor, 0)
        self._lost: dict[int, LeaseholdError] = {}  # it was to be entered again, and is lost; by the place in ``parts``
        self._events: dict[int, AcquireEvents] = {}  # for observers, if there are any: of those that are under way
        self._by_owner: dict[str, int] = {}
        self.outcomes: list[Any] = []  # at the end: one for each of the rest

    def _at_hand(self, place: int, part: BaseLock) -> bool:
        """Also what lingers in this process, as for a single try. An all leaves that alone: it would hold it while it
        waits for the rest."""
        if BaseAttempt._at_hand(self, place, part):
            return True
        if not self._engine.watchdog.lingering:
            return False
        self._entered[place] = lease = self._take_kept(part)  # in one step: an interrupt after it finds it there
        if lease is not None:
            lease._held.track_lock(part)
        return lease is not None

    def _take_kept(self, part: BaseLock) -> Any:
        if not self._engine.observers.active():
            return part._take_kept(self._anchor)
        events = part._acquire_events(0)
        waiter = part._join(0, self._anchor, events)
        if waiter is None:
            return None
        try:
            return part._lease(part._take_up(waiter.held, waiter, self._anchor, events), self._anchor)
        except BaseException as error:
            part._leave_cohort(waiter, error, events)
            raise

    def _enter(self, place: int, part: BaseLock) -> bool:
        try:
            return BaseAttempt._enter(self, place, part)
        except LeaseholdError as error:
            self._lost[place] = error.with_traceback(None)
            return True

    def _new_flow(self, now: float) -> Any:
        return acquire_flow(self._requests, self, self._engine.floor, now)

    # ------------------------------------------------------------ called by the flow

    def new_owner(self, place: int) -> str:
        owner: str = self.attempt.new_owner(self._requests[place])
        if self._events:
            self._by_owner[owner] = self._rest[place]
        return owner

    def keep(self, place: int, grant: LocalGrant) -> HeldLease:
        at = self._rest[place]
        held = self._parts[at]._keep(grant, self._anchor, self._events.get(at), self.attempt.epoch)
        self._kept.append(held)
        self._events.pop(at, None)
        return held

    # ------------------------------------------------------------ the end

    def found(self) -> Outcomes:
        """What came of each. The error of the first, when all have failed."""
        by_place: dict[int, Any] = {**self._entered, **self._lost}
        for place, outcome in zip(self._rest, self.outcomes, strict=True):
            part = self._parts[place]
            if isinstance(outcome, LeaseholdError):
                self._report_refusal(place, part, outcome)
                by_place[place] = outcome
            else:
                by_place[place] = lease = part._lease(outcome, self._anchor)
                lease._held.track_lock(part)
        found = Outcomes()
        for place, part in enumerate(self._parts):
            found.add(part.resource, by_place[place])
        found.raise_failure()
        return found

    # ------------------------------------------------------------ for observers

    @property
    def observe(self) -> Callable[[Any, object], None] | None:
        """Called with each op and its outcome; None where nobody observes."""
        return self._observe if self._events else None

    def _observe(self, op: Any, outcome: object) -> None:
        place = self._by_owner.get(op.owner)
        events = None if place is None else self._events.get(place)
        if events is not None and events.is_contention(outcome):
            events.contention(outcome, op)

    def _observe_acquire(self) -> None:
        self._events = {place: self._parts[place]._acquire_events(0) for place in self._rest}

    def _events_of(self, place: int) -> AcquireEvents | None:
        return self._events.get(place)

    def _report_refusal(self, place: int, part: BaseLock, error: LeaseholdError) -> None:
        events = self._events.pop(place, None)
        if events is not None:
            events.failed(error)
        if isinstance(error, NotAcquired) and error.limit:
            number = 0 if events is None else events.number
            report: Any = part  # a semaphore
            report._report_limit(error.limit, lambda: report._subject(number))

    def _report_end(self, held: HeldLease) -> None:
        if held.phase == LOST:
            self._engine.watchdog.report_loss(held)

    def _report_failure(self, error: BaseException) -> None:
        for place in tuple(self._events):
            self._events.pop(place).failed(error)


def acquire_many(engine: Engine, parts: Sequence[Lock]) -> LeaseBatch:
    """Try each of these once, in one round trip, for the calling thread."""
    engine.ensure_open()
    batch = BatchAttempt(engine, parts, current_thread())
    try:
        if batch.enter_again():
            connection = batch.borrow()
            flow = batch.flow(connection.address)
            batch.outcomes = sync.drive(engine, flow, BatchConnection(connection, batch.observe))
        leases = LeaseBatch(engine, batch.found())
        batch.finish()
        return leases  # inside the try: an interrupt on the way out must not lose them
    except BaseException as error:
        try:
            batch.clean_up(error, (LeaseholdError,))
        finally:
            try:
                batch.finish()
            except BaseException:  # an interrupt, perhaps the first one: all of them only failed
                batch.finish()
                raise
        raise


async def acquire_many_async(engine: Engine, parts: Sequence[AsyncLock], driver: AsyncDriver) -> AsyncLeaseBatch:
    """The same for the running task."""
    engine.ensure_open()
    task = driver.task()
    batch = BatchAttempt(engine, parts, task)
    try:
        if batch.enter_again():
            connection = driver.connection(task.get_loop())
            flow = batch.flow(connection.address, connection.pushes)
            watched: Any = AsyncBatchConnection(connection, batch.observe)
            batch.outcomes = await driver.drive(flow, watched)
        leases = AsyncLeaseBatch(engine, batch.found(), driver, task)
        batch.finish()
        return leases  # inside the try: an interrupt on the way out must not lose them
    except BaseException as error:
        try:
            batch.clean_up(error, driver.expected)
        finally:
            try:
                batch.finish()
            except BaseException:  # an interrupt, perhaps the first one: all of them only failed
                batch.finish()
                raise
        raise
