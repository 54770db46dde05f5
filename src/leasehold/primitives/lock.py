"""The lock: exclusive, first come first served, fenced; re-entrant on request.

Ownership is by thread, or by task in asyncio. A child task never owns what its parent holds, a shared lock object
never releases the lease of another thread or task, and re-entering costs no round trip and keeps the fence. A thread
or task that would wait for itself for ever gets an error instead (``_core/claims.py``).

``Lock`` and ``AsyncLock`` stand side by side so that they can be compared line by line: what differs is what is
awaited, and that a thread borrows a connection while an event loop has one of its own.

The walk of an acquire is on this page: ``_acquire``, and in it ``_claim``. The first claim is sent from here. Only when
it brings no grant, or an error or an interrupt, a flow of ``_core/flows.py`` goes on from there.
"""

from __future__ import annotations

from threading import current_thread
from types import TracebackType

from leasehold._core.claims import ClaimTemplate, budget_ms, immediate_grant
from leasehold._core.flows import FirstClaim
from leasehold._core.light_typing import TYPE_CHECKING, Any
from leasehold._core.names import Name
from leasehold._core.ops import TimedReply
from leasehold._core.rules import READ, SEMAPHORE, WRITE
from leasehold._runtime import sync
from leasehold._runtime.engine import FORKED, Engine
from leasehold._runtime.held_lease import HeldLease
from leasehold._runtime.options import Options
from leasehold._runtime.registry import Attempt
from leasehold.errors import LeaseholdError, NotAcquired, StoreUnavailable
from leasehold.primitives.base_lock import UNSET, BaseLock, Unset
from leasehold.primitives.lease import AsyncLease, Lease

if TYPE_CHECKING:
    import asyncio
    import threading

    from leasehold._core.durations import Duration
    from leasehold._core.holding import LocalGrant
    from leasehold._core.ports import Connection
    from leasehold._core.tickets import Ticket
    from leasehold._runtime.aio import AsyncDriver, PushRouter
    from leasehold._runtime.cohorts import WaitingTask, WaitingThread
    from leasehold._runtime.events import AcquireEvents


class Lock(BaseLock):
    """A lock for threads.

    >>> import leasehold
    >>> with leasehold.connect("memory://") as hold:
    ...     with hold.lock("rebuild", "nl", ttl="10s") as lease:
    ...         hold.lock("rebuild", "nl").try_acquire() is None
    True
    """

    __slots__ = ()

    _lease_class = Lease
    _passes = True

    def acquire(self, wait: Duration | Unset | None = UNSET) -> Lease | None:
        """Wait for a lease; None when the wait is over first. ``wait=None`` waits for ever, 0 tries once."""
        try:
            lease = self._acquire(self._wait(wait), current_thread())
        except NotAcquired:
            return None
        lease._held.track_lock(self)
        return lease

    def try_acquire(self) -> Lease | None:
        """Try once: a lease, or None."""
        return self.acquire(wait=0)

    def release(self) -> bool:
        """Release the lease of the calling thread. False: it had already been lost."""
        thread = current_thread()
        return self._lease(self._held_by(thread), thread).release()

    def locked(self) -> bool:
        """Is it held, by any process? Reads the store; the answer may be out of date by the time you read it."""
        self._engine.ensure_open()
        from leasehold._core.resource_flows import inspect_resource

        return bool(sync.run(self._engine, inspect_resource(self._name.text, queue=False)).holders)

    def owned(self) -> bool:
        """Does the calling thread hold it? Costs no round trip."""
        return self._owned_by(current_thread())

    def __enter__(self) -> Lease:
        thread = current_thread()
        lease = self._acquire(self._options.wait, thread)
        try:
            self._enter(lease, thread)
        except BaseException:
            self._abandon(lease)
            raise
        return lease

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        lease = depth = None
        try:
            lease = self._innermost(current_thread)
            depth = lease._held.depth
            self._leave(lease)
            lease.__exit__(kind, error, trace)
        except LeaseholdError:
            raise
        except BaseException:  # an interrupt
            self._abandon(lease or self._innermost(current_thread), depth)
            raise

    def _acquire(self, wait: float | None, thread: threading.Thread, ticket: Ticket | None = None) -> Lease:
        engine = self._engine
        if engine.closed:
            engine.ensure_open()
        if (self._options.reentrant or engine.watchdog.lingering) and (known := self._at_hand(thread, ticket)):
            return known  # type: ignore[no-any-return]  # of _lease
        events = self._acquire_events(wait) if engine.observers.active() else None
        place = self._join(wait, thread, events) if engine.cohorts and ticket is None else None
        if place is not None:
            passed = self._wait_in_cohort(place, thread, events)
            if passed is not None:
                return passed
            wait = place.wait_left(engine)
        connection = engine.connections.borrow() if place is None else self._borrow_to_lead(place, events)
        borrowed = [connection]
        plain = events is None and ticket is None and place is None
        template = self._template(wait, connection.address) if plain else None
        request = self._request(wait, connection.address, events) if template is None else template.request
        attempt = Attempt(request, engine.epoch, events)
        grant = None
        try:
            engine.pending.add(attempt)
            if place is not None:
                place.lead(engine, attempt)
            grant = self._claim(attempt, connection, template, ticket)
            lease = self._lease_class(engine, self._keep(grant, thread, events, attempt.epoch))
            if attempt.cohort is not None:
                self._hold_in_cohort(attempt, lease._held, grant)
            engine.pending.discard(attempt)
            engine.connections.give_back(borrowed.pop())
            return lease  # inside the try: an interrupt on the way out must not lose it
        except BaseException as error:
            try:
                self._clean_up(attempt, grant, thread, error)
            finally:
                try:
                    self._finish(attempt, borrowed)
                except BaseException:  # an interrupt, perhaps the first one: the acquire was only refused
                    self._finish(attempt, borrowed)
                    raise
            raise

    def _wait_in_cohort(
        self, place: WaitingThread, thread: threading.Thread, events: AcquireEvents | None
    ) -> Lease | None:
        """Wait behind others of this process. The lease that was passed on; None: it is to claim for them."""
        try:
            held = place.wait(self._engine)
            return None if held is None else self._lease_class(self._engine, self._take_up(held, place, thread, events))
        except BaseException as error:
            self._leave_cohort(place, error, events)
            raise

    def _borrow_to_lead(self, place: WaitingThread, events: AcquireEvents | None) -> Connection:
        """A connection for one that is to claim for others. Where there is none, they must not wait for it."""
        try:
            return self._engine.connections.borrow()
        except BaseException as error:
            self._leave_cohort(place, error, events)
            raise

    def _claim(
        self, attempt: Attempt, connection: Connection, template: ClaimTemplate | None, ticket: Ticket | None
    ) -> LocalGrant:
        """From the first claim to the grant. Fast path: the first claim is granted, and no flow is needed."""
        engine, request, events = self._engine, attempt.request, attempt.acquire_events
        now = engine.clock.now
        sent = now()
        first = None
        if template is not None and not engine.closed:
            owner, floor, budget = attempt.new_owner(), engine.floor(), budget_ms(request.wait, 0.0)
            try:
                quickly = getattr(connection, "claim", None)  # not every store has it
                if engine.epoch != attempt.epoch:  # a signal handler has forked: the claim is the parent's
                    raise StoreUnavailable(FORKED)
                reply: Any = (
                    quickly(template, owner, floor, budget)
                    if quickly is not None
                    else connection.execute(template.claim(owner, floor, budget))
                )
                at = now()
                grant = immediate_grant(request, owner, sent, reply, at)
                if grant is not None and engine.epoch == attempt.epoch:
                    return grant
                first = FirstClaim(owner, TimedReply(reply, at))
            except BaseException as error:
                first = FirstClaim(owner, None, error)
        if engine.epoch != attempt.epoch:  # a signal handler has forked, and this is the child
            raise StoreUnavailable(FORKED)
        if events is not None:
            connection = events.observed_connection(connection)
        waited: LocalGrant = sync.drive(engine, self._flow(attempt, sent, first, ticket), connection, attempt.epoch)
        return waited

    def _adopt(self, ticket: Ticket) -> Lease:
        return self._acquire(None, current_thread(), ticket)

    def _lease(self, held: HeldLease, thread: threading.Thread) -> Lease:
        known = held.lease()
        return known if isinstance(known, Lease) else self._lease_class(self._engine, held)


class AsyncLock(BaseLock):
    """A lock for asyncio: as :class:`Lock`, awaited. The task inside ``async with`` is cancelled when it is lost."""

    __slots__ = ("_driver",)

    _lease_class = AsyncLease
    _passes = True

    def __init__(self, engine: Engine, name: Name, options: Options, driver: AsyncDriver) -> None:
        if options.durability:
            engine.require("durability", "durability=")
        if options.linger:
            engine.require("lingering", "linger=")
        self._bodies = {}
        self._engine = engine
        self._name = name
        self._options = options
        self._driver = driver

    @property
    def _expected(self) -> tuple[type[BaseException], ...]:  # type: ignore[override]  # asyncio is loaded late
        return self._driver.expected

    async def acquire(self, wait: Duration | Unset | None = UNSET) -> AsyncLease | None:
        """Wait for a lease; None when the wait is over first. ``wait=None`` waits for ever, 0 tries once."""
        try:
            lease = await self._acquire(self._wait(wait), self._driver.task())
        except NotAcquired:
            return None
        lease._held.track_lock(self)
        return lease

    async def try_acquire(self) -> AsyncLease | None:
        """Try once: a lease, or None."""
        return await self.acquire(wait=0)

    async def release(self) -> bool:
        """Release the lease of the calling task. False: it had already been lost."""
        task = self._driver.task()
        return await self._lease(self._held_by(task), task).release()

    async def locked(self) -> bool:
        """Is it held, by any process? Reads the store; the answer may be out of date by the time you read it."""
        self._engine.ensure_open()
        from leasehold._core.resource_flows import inspect_resource

        return bool((await self._driver.drive(inspect_resource(self._name.text, queue=False))).holders)

    def owned(self) -> bool:
        """Does the calling task hold it? Costs no round trip."""
        return self._owned_by(self._driver.task())

    async def __aenter__(self) -> AsyncLease:
        task = self._driver.task()
        lease = await self._acquire(self._options.wait, task)
        try:
            lease._begin(task)
            self._enter(lease, task)
        except BaseException:
            self._abandon(lease)
            raise
        return lease

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        lease = depth = None
        try:
            lease = self._innermost(self._driver.task)
            depth = lease._held.depth
            self._leave(lease)
            await lease.__aexit__(kind, error, trace)
        except LeaseholdError:
            raise
        except BaseException:  # an interrupt, or a cancellation
            self._abandon(lease or self._innermost(self._driver.task), depth)
            raise

    async def _acquire(self, wait: float | None, task: asyncio.Task[Any], ticket: Ticket | None = None) -> AsyncLease:
        engine = self._engine
        if engine.closed:
            engine.ensure_open()
        if (self._options.reentrant or engine.watchdog.lingering) and (known := self._at_hand(task, ticket)):
            return known  # type: ignore[no-any-return]  # of _lease
        events = self._acquire_events(wait) if engine.observers.active() else None
        loop = task.get_loop()
        place = self._join(wait, task, events) if engine.cohorts and ticket is None else None
        if place is not None:
            passed = await self._wait_in_cohort(place, task, events)
            if passed is not None:
                return passed
            wait = place.wait_left(engine)
        # All tasks of the loop share it: there is nothing to give back.
        connection = self._driver.connection(loop) if place is None else self._connect_to_lead(place, loop, events)
        plain = events is None and ticket is None and place is None
        template = self._template(wait, connection.address) if plain else None
        request = self._request(wait, connection.address, events) if template is None else template.request
        attempt = Attempt(request, engine.epoch, events, connection.pushes)
        grant = None
        try:
            engine.pending.add(attempt)
            if place is not None:
                place.lead(engine, attempt)
            grant = await self._claim(attempt, connection, template, ticket)
            held = self._keep(grant, task, events, attempt.epoch)
            lease = self._lease_class(engine, held, self._driver, loop)
            if attempt.cohort is not None:
                self._hold_in_cohort(attempt, held, grant)
            engine.pending.discard(attempt)
            attempt.forget_pushes()
            return lease  # inside the try: an interrupt on the way out must not lose it
        except BaseException as error:
            try:
                self._clean_up(attempt, grant, task, error)
            finally:
                try:
                    self._finish(attempt)
                except BaseException:  # an interrupt, perhaps the first one: the acquire was only refused
                    self._finish(attempt)
                    raise
            raise

    async def _wait_in_cohort(
        self, place: WaitingTask, task: asyncio.Task[Any], events: AcquireEvents | None
    ) -> AsyncLease | None:
        """Wait behind others of this process. The lease that was passed on; None: it is to claim for them."""
        try:
            held = await place.wait(self._engine)
            if held is None:
                return None
            taken = self._take_up(held, place, task, events)
            return self._lease_class(self._engine, taken, self._driver, task.get_loop())
        except BaseException as error:
            self._leave_cohort(place, error, events)
            raise

    def _connect_to_lead(
        self, place: WaitingTask, loop: asyncio.AbstractEventLoop, events: AcquireEvents | None
    ) -> PushRouter:
        """As of a thread: the connection of the loop, for one that is to claim for others."""
        try:
            return self._driver.connection(loop)
        except BaseException as error:
            self._leave_cohort(place, error, events)
            raise

    async def _claim(
        self, attempt: Attempt, connection: PushRouter, template: ClaimTemplate | None, ticket: Ticket | None
    ) -> LocalGrant:
        """From the first claim to the grant. Fast path: the first claim is granted, and no flow is needed."""
        engine, request, events = self._engine, attempt.request, attempt.acquire_events
        now = engine.clock.now
        sent = now()
        first = None
        if template is not None and not engine.closed:
            owner, floor, budget = attempt.new_owner(), engine.floor(), budget_ms(request.wait, 0.0)
            try:
                quickly = getattr(connection, "claim", None)  # not every store has it
                reply: Any = await (
                    quickly(template, owner, floor, budget)
                    if quickly is not None
                    else connection.execute(template.claim(owner, floor, budget))
                )
                at = now()
                grant = immediate_grant(request, owner, sent, reply, at)
                if grant is not None and engine.epoch == attempt.epoch:
                    return grant
                first = FirstClaim(owner, TimedReply(reply, at))
            except BaseException as error:  # a cancellation, too
                first = FirstClaim(owner, None, error)
        if engine.epoch != attempt.epoch:  # a signal handler has forked, and this is the child
            raise StoreUnavailable(FORKED)
        if events is not None:
            connection = events.observed_async_connection(connection)
        waited: LocalGrant = await self._driver.drive(self._flow(attempt, sent, first, ticket), connection)
        return waited

    async def _adopt(self, ticket: Ticket) -> AsyncLease:
        return await self._acquire(None, self._driver.task(), ticket)

    def _lease(self, held: HeldLease, task: asyncio.Task[Any]) -> AsyncLease:
        known = held.lease()
        if isinstance(known, AsyncLease):
            return known
        return self._lease_class(self._engine, held, self._driver, task.get_loop())


# ---------------------------------------------------------------- adopted leases

# rule -> the module and the name of its lease class for threads; that for asyncio is named Async and the same. A rule
# that is not here has a plain Lease. Loaded when it is needed.
LEASE_CLASSES = {
    READ: ("rwlock", "ReadWriteLease"),
    WRITE: ("rwlock", "ReadWriteLease"),
    SEMAPHORE: ("semaphore", "Permit"),
}


def lease_class(rule: str, asyncio: bool = False) -> Any:
    """The class of the leases of this rule."""
    from importlib import import_module

    place, name = LEASE_CLASSES.get(rule, ("lease", "Lease"))
    return getattr(import_module(f"leasehold.primitives.{place}"), f"Async{name}" if asyncio else name)


class Adopter(Lock):
    """Adopts the lease that a ticket names. The grant says by which rule it is held, and so which class it has."""

    __slots__ = ()

    @staticmethod
    def _lease_class(engine: Engine, held: HeldLease) -> Lease:  # type: ignore[override]  # called as the class would be
        lease: Lease = lease_class(held.rule)(engine, held)
        return lease


class AsyncAdopter(AsyncLock):
    """Adopts the lease that a ticket names, for asyncio."""

    __slots__ = ()

    @staticmethod
    def _lease_class(  # type: ignore[override]  # called as the class would be
        engine: Engine, held: HeldLease, driver: AsyncDriver, loop: asyncio.AbstractEventLoop
    ) -> AsyncLease:
        lease: AsyncLease = lease_class(held.rule, asyncio=True)(engine, held, driver, loop)
        return lease
