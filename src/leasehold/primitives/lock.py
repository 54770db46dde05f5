"""The lock: exclusive, first come first served, fenced; re-entrant on request.

Ownership is by thread, or by task in asyncio. A child task never owns what its parent holds, a shared lock object
never releases somebody else's lease, and re-entering costs no round trip and keeps the fence. Whoever would wait for
itself for ever is told so, where it has to wait (``_core/claims.py``).
"""

from __future__ import annotations

from threading import current_thread
from types import TracebackType

from leasehold._core.light_typing import TYPE_CHECKING, Any
from leasehold._core.names import Name
from leasehold._core.resource_flows import inspect_resource
from leasehold._core.rules import READ, SEMAPHORE, WRITE
from leasehold._runtime import sync
from leasehold._runtime.engine import Engine
from leasehold._runtime.held_lease import HeldLease
from leasehold._runtime.options import Options
from leasehold._runtime.registry import Attempt
from leasehold.errors import LeaseholdError, NotAcquired
from leasehold.primitives.base_lock import UNSET, BaseLock, Unset
from leasehold.primitives.lease import AsyncLease, Lease

if TYPE_CHECKING:
    import asyncio
    import threading

    from leasehold._core.durations import Duration
    from leasehold._core.tickets import Ticket
    from leasehold._runtime.aio import AsyncDriver
    from leasehold._runtime.engine import Engine
    from leasehold._runtime.held_lease import HeldLease


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

    def acquire(self, wait: Duration | Unset | None = UNSET) -> Lease | None:
        """A lease, or None when the wait was over first. ``wait=None`` waits for ever, 0 tries once."""
        try:
            lease = self._acquire(self._wait(wait), current_thread())
        except NotAcquired:
            return None
        lease._held.track_lock(self)
        return lease

    def try_acquire(self) -> Lease | None:
        """One try: a lease, or None."""
        return self.acquire(wait=0)

    def release(self) -> bool:
        """Give back the calling thread's lease. False: it was no longer ours."""
        return self._lease(self._held_by(current_thread())).release()

    def locked(self) -> bool:
        """Does anybody hold it now? Asks the store; true only in the past by the time you read it."""
        self._engine.ensure_open()
        return bool(sync.run(self._engine, inspect_resource(self._name.text, queue=False)).holders)

    def owned(self) -> bool:
        """Does the calling thread hold it? Asks nobody."""
        return self._owned_by(current_thread())

    def __enter__(self) -> Lease:
        thread = current_thread()
        lease = self._acquire(self._options.wait, thread)
        try:
            self._enter(lease, thread)
        except BaseException:
            self._give_up(lease)
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
        except BaseException:  # an interrupt, here of all places
            self._give_up(lease or self._innermost(current_thread), depth)
            raise

    def _acquire(self, wait: float | None, thread: threading.Thread, ticket: Ticket | None = None) -> Lease:
        engine = self._engine
        engine.ensure_open()
        if self._looks_back() and (known := self._reenter(thread, self._lease)) is not None:
            return known
        acquire_events = self._acquire_events(wait)
        connection = engine.connections.borrow()
        ask = self._ask(wait, connection.address, acquire_events)
        attempt = Attempt(ask, acquire_events)
        flow = self._flow(ask, attempt, ticket)
        taken = None
        try:
            try:
                engine.pending.add(attempt)
                taken = sync.drive(
                    engine,
                    flow,
                    connection if acquire_events is None else acquire_events.observed_connection(connection),
                )
                lease = self._lease_class(engine, self._keep(taken, thread, acquire_events))
            finally:
                engine.connections.give_back(connection)
            engine.pending.discard(attempt)
            return lease  # in the same try: an interrupt on the way out must not lose it
        except BaseException as error:
            try:
                self._clean_up(flow, attempt, taken, thread, error)
            finally:
                engine.pending.discard(attempt)
            raise

    def _adopt(self, ticket: Ticket) -> Lease:
        return self._acquire(None, current_thread(), ticket)

    def _lease(self, held: HeldLease) -> Lease:
        known = held.lease()
        return known if isinstance(known, Lease) else self._lease_class(self._engine, held)


class AsyncLock(BaseLock):
    """A lock for asyncio: the same, awaited. The task inside ``async with`` is cancelled on loss."""

    __slots__ = ("_driver",)

    _lease_class = AsyncLease

    def __init__(self, engine: Engine, name: Name, options: Options, driver: AsyncDriver) -> None:
        BaseLock.__init__(self, engine, name, options)
        self._driver = driver

    async def acquire(self, wait: Duration | Unset | None = UNSET) -> AsyncLease | None:
        """A lease, or None when the wait was over first. ``wait=None`` waits for ever, 0 tries once."""
        try:
            lease = await self._acquire(self._wait(wait), self._driver.task())
        except NotAcquired:
            return None
        lease._held.track_lock(self)
        return lease

    async def try_acquire(self) -> AsyncLease | None:
        """One try: a lease, or None."""
        return await self.acquire(wait=0)

    async def release(self) -> bool:
        """Give back the calling task's lease. False: it was no longer ours."""
        task = self._driver.task()
        return await self._lease(self._held_by(task), task).release()

    async def locked(self) -> bool:
        """Does anybody hold it now? Asks the store; true only in the past by the time you read it."""
        self._engine.ensure_open()
        return bool((await self._driver.drive(inspect_resource(self._name.text, queue=False))).holders)

    def owned(self) -> bool:
        """Does the calling task hold it? Asks nobody."""
        return self._owned_by(self._driver.task())

    async def __aenter__(self) -> AsyncLease:
        task = self._driver.task()
        lease = await self._acquire(self._options.wait, task)
        lease._begin(task)
        self._enter(lease, task)
        return lease

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        lease = self._innermost(self._driver.task)
        self._leave(lease)
        await lease.__aexit__(kind, error, trace)

    async def _acquire(self, wait: float | None, task: asyncio.Task[Any], ticket: Ticket | None = None) -> AsyncLease:
        engine = self._engine
        engine.ensure_open()
        known = self._reenter(task, lambda held: self._lease(held, task)) if self._looks_back() else None
        if known is not None:
            return known
        loop = task.get_loop()
        acquire_events = self._acquire_events(wait)
        connection = self._driver.connection(loop)
        ask = self._ask(wait, connection.address, acquire_events)
        attempt = Attempt(ask, acquire_events, connection.pushes)
        flow = self._flow(ask, attempt, ticket)
        taken = None
        try:
            engine.pending.add(attempt)
            taken = await self._driver.drive(
                flow, connection if acquire_events is None else acquire_events.observed_async_connection(connection)
            )
            return self._lease_class(engine, self._keep(taken, task, acquire_events), self._driver, loop)
        except BaseException as error:
            self._clean_up(flow, attempt, taken, task, error)
            raise
        finally:
            engine.pending.discard(attempt)
            attempt.forget_pushes()

    async def _adopt(self, ticket: Ticket) -> AsyncLease:
        return await self._acquire(None, self._driver.task(), ticket)

    def _lease(self, held: HeldLease, task: asyncio.Task[Any]) -> AsyncLease:
        known = held.lease()
        if isinstance(known, AsyncLease):
            return known
        return self._lease_class(self._engine, held, self._driver, task.get_loop())


# ---------------------------------------------------------------- kinds
#
# Which class of lease fits what somebody holds. A primitive with leases of its own has a row for its rule here.


# rule -> where its leases are, and what they are called for threads; those for asyncio are called Async and the same.
# Loaded when there is one.
LEASES = {
    READ: ("rwlock", "ReadWriteLease"),
    WRITE: ("rwlock", "ReadWriteLease"),
    SEMAPHORE: ("semaphore", "Permit"),
}


def lease_class(rule: str, asyncio: bool = False) -> Any:
    """That of what is held by this rule."""
    from importlib import import_module

    place, name = LEASES.get(rule, ("lease", "Lease"))
    return getattr(import_module(f"leasehold.primitives.{place}"), f"Async{name}" if asyncio else name)


class Adopter(Lock):
    """Takes over what a ticket names, whatever it is: the store says so with the grant."""

    __slots__ = ()

    @staticmethod
    def _lease_class(engine: Engine, held: HeldLease) -> Lease:  # type: ignore[override]  # called as the class would be
        lease: Lease = lease_class(held.rule)(engine, held)
        return lease


class AsyncAdopter(AsyncLock):
    """The same for asyncio."""

    __slots__ = ()

    @staticmethod
    def _lease_class(  # type: ignore[override]  # called as the class would be
        engine: Engine, held: HeldLease, driver: AsyncDriver, loop: asyncio.AbstractEventLoop
    ) -> AsyncLease:
        lease: AsyncLease = lease_class(held.rule, asyncio=True)(engine, held, driver, loop)
        return lease
