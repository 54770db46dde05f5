"""The semaphore: at most so many hold at once. Permits are leases in numbered slots, which expire and are renewed.

A claim's own limit decides until somebody stores one for everybody (``resize``). Permits are handed out first come
first served, several of one claim all at once, so that a big claim is not starved by small ones. A crash gives its
permits back when their ttl is over; a release that comes too late frees nothing.
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
# A permit: a lease of a semaphore, with the numbers of the slots that it fills.


class BasePermit(BaseLease):
    """What a permit says about itself beyond what every lease does."""

    __slots__ = ()

    @property
    def slot(self) -> int:
        """The number of its place: the lowest that was free. No other permit has it at the same time."""
        return self._held.slots[0]

    @property
    def slots(self) -> tuple[int, ...]:
        """All of its places, when it was acquired with several ``permits``."""
        return self._held.slots

    @property
    def slot_resource(self) -> str:
        """The name under which guards check it: ``guard.check(tx, permit, resource=permit.slot_resource)``. Permits are
        valid side by side, and fences grow for each slot."""
        return slot_name(self.resource, self.slot)

    @property
    def slot_resources(self) -> tuple[str, ...]:
        """The same of all of its places: a guard takes each of them."""
        return tuple([slot_name(self.resource, slot) for slot in self.slots])

    def headers(self, slot: int | None = None) -> dict[str, str]:
        """Fence, the resource of its slot, and owner (not its secret) as HTTP headers. One with several slots names the
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
    """What both flavours share: how many, and what is told when others go by another limit."""

    __slots__ = ()

    _rule = SEMAPHORE
    _kinds = (SEMAPHORE,)

    def _keep(self, taken: LocalGrant, anchor: object, acquire_events: AcquireEvents | None) -> HeldLease:
        held = BaseLock._keep(self, taken, anchor, acquire_events)
        if taken.limit:
            from leasehold.observe.events import subject

            self._report_limit(taken.limit, lambda: subject(held, self._engine.store.name, held.number))
        return held

    def _clean_up(
        self, flow: Any, attempt: Attempt, taken: LocalGrant | None, anchor: object, error: BaseException
    ) -> None:
        BaseLock._clean_up(self, flow, attempt, taken, anchor, error)
        if isinstance(error, NotAcquired) and error.limit:
            number = 0 if attempt.acquire_events is None else attempt.acquire_events.number
            self._report_limit(error.limit, lambda: self._subject(number))

    def _subject(self, number: int) -> Any:
        from leasehold.observe.events import Subject

        name, store = self._name, self._engine.store.name
        return Subject(name.kind, name.id_hash, identity.process_prefix(), None, self._options.ttl_ms, store, number)

    def _report_limit(self, found: int, who: Any) -> None:
        """Once for each coordinator, resource and limit found: it is a mistake in a program, not news of every day."""
        observers = self._engine.observers
        if observers.first_limit(self._name.text, found):
            from leasehold.observe.events import LimitDiffers

            observers.tell(LimitDiffers(who(), self._limit, found))

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
        """A permit, or None when the wait was over first. With ``permits``, so many at once in one lease: all of them,
        or none. ``wait=None`` waits for ever, 0 tries once. InvalidRequest when there are fewer by now, also while
        waiting."""
        try:
            permit = self._with_permits(permits)._acquire(self._wait(wait), current_thread())
        except NotAcquired:
            return None
        permit._held.keep(self)
        return permit

    def try_acquire(self, permits: int | None = None) -> Permit | None:
        """One try: a permit, or None."""
        return self.acquire(wait=0, permits=permits)

    def release(self) -> bool:
        """Give back the permit that the calling thread has acquired last. False: it was no longer ours."""
        return Lock.release(self)

    def resize(self, limit: int) -> None:
        """Store a limit for everybody, whatever they were made with. Nobody loses a permit: when there are more than
        that, those who wait do so until enough are given back. When there are more to have, they get theirs at once. It
        is forgotten when the semaphore has not been used for 30 days; ``hold.inspect(...).limit`` shows it."""
        self._engine.ensure_open()
        checked = check_count(limit, "limit")
        sync.run(self._engine, resize(self._name.text, checked))
        self._limit = checked

    def available(self) -> int:
        """How many permits could be had now: 0 while something exclusive holds the resource, and while permits are
        above a lowered limit. Asks the store; true only in the past by the time you read it."""
        self._engine.ensure_open()
        return left(sync.run(self._engine, inspect_resource(self._name.text, queue=False)), self._limit)

    def locked(self) -> bool:
        """Would ``acquire`` have to wait now, for permits or for others who wait? Asks the store."""
        self._engine.ensure_open()
        view = sync.run(self._engine, inspect_resource(self._name.text))
        return must_wait(view, self._permits, self._limit)

    def _with_permits(self, count: int | None) -> Semaphore:
        """This one, for another number of permits."""
        if count is None:
            return self
        checked = check_permits(count, self._limit)
        return Semaphore(self._engine, self._name, self._options, self._limit, checked)

    if TYPE_CHECKING:  # what they give is of _lease_class

        def __enter__(self) -> Permit: ...

        def _acquire(self, wait: float | None, thread: threading.Thread, ticket: Ticket | None = None) -> Permit: ...


class AsyncSemaphore(BaseSemaphore, AsyncLock):
    """A semaphore for asyncio: the same, awaited. The task inside ``async with`` is cancelled on loss."""

    __slots__ = ("_limit", "_permits")

    _lease_class = AsyncPermit

    def __init__(
        self, engine: Engine, name: Name, options: Options, driver: AsyncDriver, limit: int, permits: int
    ) -> None:
        AsyncLock.__init__(self, engine, name, options, driver)
        self._limit = limit
        self._permits = permits

    async def acquire(self, wait: Duration | Unset | None = UNSET, permits: int | None = None) -> AsyncPermit | None:
        """A permit, or None when the wait was over first. With ``permits``, so many at once in one lease: all of them,
        or none. ``wait=None`` waits for ever, 0 tries once. InvalidRequest when there are fewer by now, also while
        waiting."""
        try:
            permit = await self._with_permits(permits)._acquire(self._wait(wait), self._driver.task())
        except NotAcquired:
            return None
        permit._held.keep(self)
        return permit

    async def try_acquire(self, permits: int | None = None) -> AsyncPermit | None:
        """One try: a permit, or None."""
        return await self.acquire(wait=0, permits=permits)

    async def release(self) -> bool:
        """Give back the permit that the calling task has acquired last. False: it was no longer ours."""
        return await AsyncLock.release(self)

    async def resize(self, limit: int) -> None:
        """Store a limit for everybody; see :meth:`leasehold.Semaphore.resize`."""
        self._engine.ensure_open()
        checked = check_count(limit, "limit")
        await self._driver.drive(resize(self._name.text, checked))
        self._limit = checked

    async def available(self) -> int:
        """How many permits could be had now; see :meth:`leasehold.Semaphore.available`."""
        self._engine.ensure_open()
        return left(await self._driver.drive(inspect_resource(self._name.text, queue=False)), self._limit)

    async def locked(self) -> bool:
        """Would ``acquire`` have to wait now, for permits or for others who wait? Asks the store."""
        self._engine.ensure_open()
        view = await self._driver.drive(inspect_resource(self._name.text))
        return must_wait(view, self._permits, self._limit)

    def _with_permits(self, count: int | None) -> AsyncSemaphore:
        """This one, for another number of permits."""
        if count is None:
            return self
        checked = check_permits(count, self._limit)
        return AsyncSemaphore(self._engine, self._name, self._options, self._driver, self._limit, checked)

    if TYPE_CHECKING:  # what they give is of _lease_class

        async def __aenter__(self) -> AsyncPermit: ...

        async def _acquire(
            self, wait: float | None, task: asyncio.Task[Any], ticket: Ticket | None = None
        ) -> AsyncPermit: ...
