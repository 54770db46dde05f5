"""The semaphore: a limited number of permits at once. A permit is a lease with numbered slots.

The limit of a claim applies until ``resize`` stores one for every process. Permits are granted first come first served,
several of one claim all at once, so that a big claim is not starved by small ones. The permits of a process that
crashes become free when their ttl is over; a release that comes too late frees nothing.
"""

from __future__ import annotations

from threading import current_thread

from leasehold._core.light_typing import TYPE_CHECKING, Any
from leasehold._core.names import Name
from leasehold._core.resource_flows import inspect_resource, resize
from leasehold._core.rules import SEMAPHORE, check_count, check_permits, left, must_wait, slot_name
from leasehold._runtime import identity, sync
from leasehold._runtime.engine import Engine
from leasehold._runtime.held_lease import HeldLease
from leasehold._runtime.options import Options
from leasehold.errors import InvalidRequest, NotAcquired
from leasehold.primitives.base_lease import BaseLease
from leasehold.primitives.base_lock import UNSET, BaseLock, Unset
from leasehold.primitives.lease import AsyncLease, Lease
from leasehold.primitives.lock import AsyncLock, Lock

if TYPE_CHECKING:
    import asyncio
    import threading

    from leasehold._core.durations import Duration
    from leasehold._core.holding import LocalGrant
    from leasehold._core.tickets import Ticket
    from leasehold._runtime.aio import AsyncDriver
    from leasehold._runtime.events import AcquireEvents
    from leasehold._runtime.registry import Attempt

# ---------------------------------------------------------------- permit
#
# A permit is a lease of a semaphore, with the numbers of its slots.


class BasePermit(BaseLease):
    """A permit of either flavour: what it has beyond every lease."""

    __slots__ = ()

    @property
    def slot(self) -> int:
        """The number of its slot: the lowest that was free. No other permit has it at the same time."""
        return self._held.slots[0]

    @property
    def slots(self) -> tuple[int, ...]:
        """All of its slots, when it was acquired with several ``permits``."""
        return self._held.slots

    @property
    def slot_resource(self) -> str:
        """The name under which guards check it: ``guard.check(tx, permit, resource=permit.slot_resource)``. Permits are
        valid side by side, and fences grow separately for each slot."""
        return slot_name(self.resource, self.slot)

    @property
    def slot_resources(self) -> tuple[str, ...]:
        """The names of all of its slots: a guard takes each of them."""
        return tuple([slot_name(self.resource, slot) for slot in self.slots])

    def headers(self, slot: int | None = None) -> dict[str, str]:
        """Fence, resource of the slot and owner (not its secret) as HTTP headers. A permit with several slots names the
        one that the request works in."""
        return self._headers(slot_name(self.resource, self._chosen_slot(slot)))

    def _chosen_slot(self, slot: object) -> int:
        slots = self.slots
        if slot is None and len(slots) == 1:
            return slots[0]
        if slot is None:
            raise InvalidRequest(
                f"this permit has the slots {', '.join(map(str, slots))}, and each has an owner of its own later on: "
                "say which one the request works in, as headers(slot=permit.slot)"
            )
        if isinstance(slot, bool) or not isinstance(slot, int) or slot not in slots:
            raise InvalidRequest(f"slot= is one of those that this permit has: {', '.join(map(str, slots))}")
        return slot

    def __repr__(self) -> str:
        shown = ",".join(map(str, self.slots))
        return f"{BaseLease.__repr__(self)[:-1]} slot{'s' if len(self.slots) > 1 else ''}={shown}>"


class Permit(BasePermit, Lease):
    """A permit for threads: a lease, with the numbers of its slots.

    >>> import leasehold
    >>> with leasehold.connect("memory://") as hold, hold.semaphore("api", "eu", limit=3) as permit:
    ...     permit.slot, permit.slot_resource, permit.state
    (0, 'api:eu::0', 'held')
    """

    __slots__ = ()

    if TYPE_CHECKING:

        def __enter__(self) -> Permit: ...


class AsyncPermit(BasePermit, AsyncLease):
    """A permit for asyncio. The task inside ``async with`` is cancelled when it is lost."""

    __slots__ = ()

    if TYPE_CHECKING:

        async def __aenter__(self) -> AsyncPermit: ...


# ---------------------------------------------------------------- semaphore


class BaseSemaphore(BaseLock):
    """A semaphore of either flavour."""

    __slots__ = ()

    _rule = SEMAPHORE
    _kinds = (SEMAPHORE,)

    def _keep(self, grant: LocalGrant, anchor: object, events: AcquireEvents | None, epoch: int) -> HeldLease:
        held = BaseLock._keep(self, grant, anchor, events, epoch)
        if grant.limit:
            from leasehold.observe.events import subject

            self._report_limit(grant.limit, lambda: subject(held, self._engine.store.name, held.number))
        return held

    def _clean_up(self, attempt: Attempt, grant: LocalGrant | None, anchor: object, error: BaseException) -> None:
        BaseLock._clean_up(self, attempt, grant, anchor, error)
        if isinstance(error, NotAcquired) and error.limit:
            number = 0 if attempt.acquire_events is None else attempt.acquire_events.number
            self._report_limit(error.limit, lambda: self._subject(number))

    def _subject(self, number: int) -> Any:
        from leasehold.observe.events import subject_of

        store = self._engine.store.name
        return subject_of(self._name, identity.process_prefix(), None, self._options.ttl_ms, store, number)

    def _report_limit(self, found: int, subject: Any) -> None:
        """Report another limit, once for each coordinator, resource and limit: it is a mistake in a program."""
        observers = self._engine.observers
        if observers.first_differing_limit(self._name.text, found):
            from leasehold.observe.events import LimitDiffers

            observers.notify(LimitDiffers(subject(), self._limit, found))

    def __repr__(self) -> str:
        several = f" permits={self._permits}" if self._permits > 1 else ""
        return f"{BaseLock.__repr__(self)[:-1]} limit={self._limit}{several}>"


class Semaphore(BaseSemaphore, Lock):
    """A semaphore for threads.

    >>> import leasehold
    >>> with leasehold.connect("memory://") as hold:
    ...     pool = hold.semaphore("pool", limit=3)
    ...     with pool as one, pool.acquire(permits=2) as two:
    ...         one.slot, two.slots, pool.available(), pool.try_acquire()
    ...     pool.resize(5)
    ...     pool.available()
    (0, (1, 2), 0, None)
    5
    """

    __slots__ = ("_limit", "_permits")

    _lease_class = Permit

    def __init__(self, engine: Engine, name: Name, options: Options, limit: int, permits: int) -> None:
        Lock.__init__(self, engine, name, options)
        self._limit = limit
        self._permits = permits

    def acquire(self, wait: Duration | Unset | None = UNSET, permits: int | None = None) -> Permit | None:
        """Wait for a permit; None when the wait is over first. With ``permits``, that many in one lease: all of them,
        or none. ``wait=None`` waits for ever, 0 tries once. InvalidRequest when the limit is or becomes lower than
        that."""
        try:
            permit = self._with_permits(permits)._acquire(self._wait(wait), current_thread())
        except NotAcquired:
            return None
        permit._held.track_lock(self)
        return permit

    def try_acquire(self, permits: int | None = None) -> Permit | None:
        """Try once: a permit, or None."""
        return self.acquire(wait=0, permits=permits)

    def release(self) -> bool:
        """Release the permit that the calling thread acquired last. False: it had already been lost."""
        return Lock.release(self)

    def resize(self, limit: int) -> None:
        """Store a limit for every process, whatever limit its semaphore was made with. No permit is lost: after a lower
        limit, waiters wait until enough permits are released; after a higher one, they are granted at once. The limit
        is forgotten when the semaphore has not been used for 30 days; ``hold.inspect(...).limit`` shows it."""
        self._engine.ensure_open()
        checked = check_count(limit, "limit")
        sync.run(self._engine, resize(self._name.text, checked))
        self._limit = checked

    def available(self) -> int:
        """How many permits are free: 0 while an exclusive lease holds the resource, and while more permits are held
        than a lowered limit allows. Reads the store; the answer may be out of date by the time you read it."""
        self._engine.ensure_open()
        return left(sync.run(self._engine, inspect_resource(self._name.text, queue=False)), self._limit)

    def locked(self) -> bool:
        """Would ``acquire`` have to wait, for permits or behind other waiters? Reads the store."""
        self._engine.ensure_open()
        view = sync.run(self._engine, inspect_resource(self._name.text))
        return must_wait(view, self._permits, self._limit)

    def _with_permits(self, count: int | None) -> Semaphore:
        """This semaphore, for another number of permits."""
        if count is None:
            return self
        checked = check_permits(count, self._limit)
        return Semaphore(self._engine, self._name, self._options, self._limit, checked)

    if TYPE_CHECKING:  # they return a _lease_class

        def __enter__(self) -> Permit: ...

        def _acquire(self, wait: float | None, thread: threading.Thread, ticket: Ticket | None = None) -> Permit: ...


class AsyncSemaphore(BaseSemaphore, AsyncLock):
    """A semaphore for asyncio: as :class:`Semaphore`, awaited. The task inside ``async with`` is cancelled on loss."""

    __slots__ = ("_limit", "_permits")

    _lease_class = AsyncPermit

    def __init__(
        self, engine: Engine, name: Name, options: Options, driver: AsyncDriver, limit: int, permits: int
    ) -> None:
        AsyncLock.__init__(self, engine, name, options, driver)
        self._limit = limit
        self._permits = permits

    async def acquire(self, wait: Duration | Unset | None = UNSET, permits: int | None = None) -> AsyncPermit | None:
        """Wait for a permit; None when the wait is over first. With ``permits``, that many in one lease: all of them,
        or none. ``wait=None`` waits for ever, 0 tries once. InvalidRequest when the limit is or becomes lower than
        that."""
        try:
            permit = await self._with_permits(permits)._acquire(self._wait(wait), self._driver.task())
        except NotAcquired:
            return None
        permit._held.track_lock(self)
        return permit

    async def try_acquire(self, permits: int | None = None) -> AsyncPermit | None:
        """Try once: a permit, or None."""
        return await self.acquire(wait=0, permits=permits)

    async def release(self) -> bool:
        """Release the permit that the calling task acquired last. False: it had already been lost."""
        return await AsyncLock.release(self)

    async def resize(self, limit: int) -> None:
        """Store a limit for every process; see :meth:`leasehold.Semaphore.resize`."""
        self._engine.ensure_open()
        checked = check_count(limit, "limit")
        await self._driver.drive(resize(self._name.text, checked))
        self._limit = checked

    async def available(self) -> int:
        """How many permits are free; see :meth:`leasehold.Semaphore.available`."""
        self._engine.ensure_open()
        return left(await self._driver.drive(inspect_resource(self._name.text, queue=False)), self._limit)

    async def locked(self) -> bool:
        """Would ``acquire`` have to wait, for permits or behind other waiters? Reads the store."""
        self._engine.ensure_open()
        view = await self._driver.drive(inspect_resource(self._name.text))
        return must_wait(view, self._permits, self._limit)

    def _with_permits(self, count: int | None) -> AsyncSemaphore:
        """This semaphore, for another number of permits."""
        if count is None:
            return self
        checked = check_permits(count, self._limit)
        return AsyncSemaphore(self._engine, self._name, self._options, self._driver, self._limit, checked)

    if TYPE_CHECKING:  # they return a _lease_class

        async def __aenter__(self) -> AsyncPermit: ...

        async def _acquire(
            self, wait: float | None, task: asyncio.Task[Any], ticket: Ticket | None = None
        ) -> AsyncPermit: ...
