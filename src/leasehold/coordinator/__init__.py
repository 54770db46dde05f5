"""Leasehold and AsyncLeasehold: the coordinators that hand out locks. The only place where rooms are wired.

Methods that only make an object are in ``base`` and ``patterns``, those for operators in ``operators``. Here is what
must exist once for each flavour, side by side.
"""

from __future__ import annotations

from types import TracebackType

from leasehold._core.durations import wait_seconds
from leasehold._core.light_typing import (
    TYPE_CHECKING,
    Any,
    Callable,
    Coroutine,
    Iterable,
    Literal,
    ParamSpec,
    Protocol,
    TypeAlias,
    TypeVar,
    overload,
)
from leasehold._core.names import Name
from leasehold._runtime.options import Options
from leasehold.coordinator.base import Coordinator
from leasehold.coordinator.operators import AsyncOperators, Operators
from leasehold.coordinator.stores import open_store
from leasehold.primitives.base_lock import UNSET
from leasehold.primitives.lock import AsyncLock, Lock

if TYPE_CHECKING:
    from typing import Unpack

    from leasehold._core.durations import Duration
    from leasehold._core.ports import Store
    from leasehold.coordinator.base import LockOptions, Wait
    from leasehold.coordinator.patterns import Id
    from leasehold.coordinator.stores import Target
    from leasehold.observe.events import Observer
    from leasehold.patterns.cron import AsyncCron, Cron
    from leasehold.patterns.once.once import AsyncLeasedOnce, AsyncOnce, LeasedOnce, Once  # noqa: F401  # in strings
    from leasehold.patterns.single_flight.single_flight import (  # noqa: F401  # in strings
        AsyncSingleFlight,
        AsyncSingleFlightFunction,
        SingleFlight,
        SingleFlightFunction,
    )
    from leasehold.primitives.decorated_function import Skipped
    from leasehold.primitives.election import AsyncElection, Election
    from leasehold.primitives.health import Health
    from leasehold.primitives.lease import AsyncLease, Lease
    from leasehold.primitives.lease_batch import AsyncLeaseBatch, LeaseBatch
    from leasehold.primitives.multi import All, AsyncAll
    from leasehold.primitives.rwlock import AsyncReadWriteLock, ReadWriteLock
    from leasehold.primitives.semaphore import AsyncSemaphore, Semaphore

    # ``all`` keeps the lease classes of up to five locks apart for type checkers; the leases of more are plain ones.
    A = TypeVar("A")
    B = TypeVar("B")
    C = TypeVar("C")
    D = TypeVar("D")
    E = TypeVar("E")
    L_co = TypeVar("L_co", covariant=True)

P = ParamSpec("P")
R = TypeVar("R")

Work: TypeAlias = Coroutine[Any, Any, R]
Unskipped: TypeAlias = Literal["raise", "wait"]
Skip: TypeAlias = Literal["skip"]


if TYPE_CHECKING:

    class Part(Protocol[L_co]):
        """A lock that gives leases of one class."""

        @property
        def resource(self) -> str: ...
        def __enter__(self) -> L_co: ...

    class AsyncPart(Protocol[L_co]):
        """A lock for asyncio that gives leases of one class."""

        @property
        def resource(self) -> str: ...
        async def __aenter__(self) -> L_co: ...

    class CronDecorator(Protocol):
        """What ``cron`` returns."""

        def __call__(self, function: Callable[P, R], /) -> Cron[P, R]: ...

    class AsyncCronDecorator(Protocol):
        """What ``cron`` returns for asyncio."""

        def __call__(self, function: Callable[P, Work[R]], /) -> AsyncCron[P, Work[R]]: ...

    class LeasedFlight(Protocol):
        """What ``single_flight`` with ``lease_as`` returns: types lose the parameters with that of the lease."""

        def __call__(self, function: Callable[..., R], /) -> SingleFlightFunction[..., R]: ...

    class AsyncLeasedFlight(Protocol):
        """What ``single_flight`` with ``lease_as`` returns for asyncio."""

        def __call__(self, function: Callable[..., Work[R]], /) -> AsyncSingleFlightFunction[..., R]: ...


class Leasehold(
    Coordinator[
        Lock,
        "Semaphore",
        "ReadWriteLock",
        "Election",
        "Once",
        "LeasedOnce",
        "SingleFlight",
        "LeasedFlight",
        "CronDecorator",
    ],
    Operators,
):
    """A coordinator for threads; made by :func:`leasehold.connect`. ``close()`` releases what it holds.

    In the signatures below ``LockT`` is ``Lock``, ``SemaphoreT`` is ``Semaphore``, and so on.
    """

    @overload
    def all(self, a: Part[A], /, *, wait: Wait = UNSET) -> All[A]: ...
    @overload
    def all(self, a: Part[A], b: Part[B], /, *, wait: Wait = UNSET) -> All[A, B]: ...
    @overload
    def all(self, a: Part[A], b: Part[B], c: Part[C], /, *, wait: Wait = UNSET) -> All[A, B, C]: ...
    @overload
    def all(self, a: Part[A], b: Part[B], c: Part[C], d: Part[D], /, *, wait: Wait = UNSET) -> All[A, B, C, D]: ...
    @overload
    def all(
        self, a: Part[A], b: Part[B], c: Part[C], d: Part[D], e: Part[E], /, *, wait: Wait = UNSET
    ) -> All[A, B, C, D, E]: ...
    @overload
    def all(self, *locks: Lock, wait: Wait = UNSET) -> All[*tuple[Lease, ...]]: ...
    def all(self, *locks: Part[Any], wait: Wait = UNSET) -> All[*tuple[Any, ...]]:
        """All of these or none: any mix of locks, sides of read-write locks and permits of this coordinator.

        They are claimed in the order of their names, so that two callers that give the same locks in different orders
        never wait for each other; what is free is granted in one round trip. The leases come in the order of the locks.
        ``wait`` is how long to block for all of them together: the coordinator's unless it is given, and never that of
        the locks. However it ends without all of them, nothing stays held.

        While it waits for one, those before it are held and renewed; when one of those is lost meanwhile, all of them
        are released and claimed anew. A lock with ``reentrant`` that this thread or task holds already is entered
        again: that costs no round trip, and leaving steps out of it.

        >>> import leasehold
        >>> with leasehold.connect("memory://") as hold:
        ...     with hold.all(hold.lock("stock", 7), hold.lock("order", 42), wait="5s") as (stock, order):
        ...         stock.resource, order.resource
        ('stock:7', 'order:42')
        """
        from leasehold.primitives.arguments import checked_parts
        from leasehold.primitives.multi import All

        return All(self._engine, checked_parts(self._engine, locks, Lock), wait_seconds(self._wait(wait)))

    def acquire_many(self, locks: Iterable[Lock]) -> LeaseBatch:
        """Try each of these once, in one round trip: any mix of locks, sides of read-write locks and permits of this
        coordinator, each of another resource.

        They are independent: what is free is granted, whatever becomes of the others. The batch that is returned is a
        tuple with a lease or None for each lock, in their order; ``acquired``, ``refused`` and ``failed`` say which and
        why. As a context manager it releases what was granted, in one round trip. Each lease is like one from
        ``acquire(wait=0)`` of its lock. Nothing waits, whatever the ``wait`` of the locks: a caller that waited for
        some and held others could wait for a caller that does the same. What is needed together is taken with ``all``.

        When nothing at all is known, because the store answered none of them, that error is raised. More than 250 are
        sent in several requests. A lock with ``at_least`` or ``durability`` is confirmed in a second round trip, and a
        ``reentrant`` one that this thread holds already is entered again.

        >>> import leasehold
        >>> with leasehold.connect("memory://") as hold, hold.lock("page", 2):
        ...     with hold.acquire_many([hold.lock("page", number) for number in (1, 2, 3)]) as batch:
        ...         for lease in batch.acquired:
        ...             print("render", lease.resource)
        ...         for resource, error in batch.refused.items():
        ...             print("skip", resource, "for", round(error.retry_in))
        render page:1
        render page:3
        skip page:2 for 30
        """
        from leasehold.primitives.arguments import checked_locks
        from leasehold.primitives.batch_attempt import acquire_many

        return acquire_many(self._engine, checked_locks(self._engine, locks, Lock))

    def release_many(self, leases: Iterable[Lease | None]) -> list[bool]:
        """Release all of these in one round trip. For each, as ``lease.release()``: True when it was ours until now,
        False when it had already been lost; also for None, so that it takes a whole batch.

        OutcomeUnknown when some were not confirmed: all others are released, these go on in the background until the
        leases would have ended, and the call may be repeated with them. A lease that was entered again is only left.

        >>> import leasehold
        >>> with leasehold.connect("memory://") as hold:
        ...     batch = hold.acquire_many([hold.lock("page", 1), hold.lock("page", 2)])
        ...     hold.release_many(batch)
        [True, True]
        """
        from leasehold.primitives.arguments import checked_leases
        from leasehold.primitives.batch_release import release_many
        from leasehold.primitives.lease import Lease

        return release_many(self._engine, checked_leases(self._engine, leases, Lease))

    @overload
    def locked(
        self, kind: str, *ids: Id, on_busy: Unskipped = "raise", lease_as: None = None, **options: Unpack[LockOptions]
    ) -> Callable[[Callable[P, R]], Callable[P, R]]: ...
    @overload
    def locked(
        self, kind: str, *ids: Id, on_busy: Skip, lease_as: None = None, **options: Unpack[LockOptions]
    ) -> Callable[[Callable[P, R]], Callable[P, R | Skipped]]: ...
    @overload
    def locked(
        self, kind: str, *ids: Id, on_busy: Unskipped = "raise", lease_as: str, **options: Unpack[LockOptions]
    ) -> Callable[[Callable[..., R]], Callable[..., R]]: ...
    @overload
    def locked(
        self, kind: str, *ids: Id, on_busy: Skip, lease_as: str, **options: Unpack[LockOptions]
    ) -> Callable[[Callable[..., R]], Callable[..., R | Skipped]]: ...
    def locked(
        self, kind: str, *ids: Id, on_busy: str = "raise", lease_as: str | None = None, **options: Unpack[LockOptions]
    ) -> Any:
        """Decorate a function or a method: each call runs under the lock of that name, in the calling thread.

        An id may be a template: ``"{site}"``, ``"{self.id}"``, ``"{order[number]}"``, ``"{args[0]}"`` are taken from
        the arguments of the call, including defaults. When the lock is busy, ``on_busy="raise"`` raises NotAcquired and
        ``"skip"`` returns ``leasehold.SKIPPED``, after one try or after ``wait``; ``"wait"`` waits as ``lock`` does.
        ``lease_as`` names a keyword-only parameter through which the function gets its lease. All options of ``lock``
        are taken.

        >>> import leasehold
        >>> hold = leasehold.connect("memory://")
        >>> @hold.locked("rebuild", "{site}", ttl=60, on_busy="skip", lease_as="lease")
        ... def rebuild(site, *, lease):
        ...     return lease.resource
        >>> rebuild("nl")
        'rebuild:nl'
        >>> with hold.lock("rebuild", "nl"):
        ...     rebuild("nl")
        SKIPPED
        >>> hold.close()
        """
        return self._decorator(kind, ids, on_busy, lease_as, dict(options))

    def adopt(
        self,
        ticket: str,
        *,
        ttl: Duration | None = None,
        renew: bool = True,
        max_hold: Duration | None = None,
        max_idle: Duration | None = None,
        protects: str | None = None,
    ) -> Lease:
        """Take over a lease that was given away with ``lease.transfer()``, here or in another process.

        It has a new owner and a new fence: a guard that sees it refuses the previous holder. Its class is that of the
        lease that was given away: a reader's or a writer's is a ``ReadWriteLease``. ``ttl`` is the previous holder's
        unless it is given. LeaseLost when the lease has expired, or another process has adopted it: a ticket is good
        once.

        >>> import leasehold
        >>> with leasehold.connect("memory://") as hold:
        ...     ticket = hold.lock("report-export", 42).acquire().transfer()
        ...     with hold.adopt(ticket) as lease:
        ...         lease.resource
        'report-export:42'
        """
        from leasehold.primitives.lock import Adopter

        known, name, options = self._adoption(
            ticket, ttl, renew=renew, max_hold=max_hold, max_idle=max_idle, protects=protects
        )
        return Adopter(self._engine, name, options)._adopt(known)

    def close(self) -> None:
        """Release what is held and close the store. Leases that were held are lost (``closed``)."""
        try:
            while self._closers:
                self._closers.pop()()
        finally:
            self._engine.close()

    def _make_lock(self, name: Name, options: Options) -> Lock:
        return Lock(self._engine, name, options)

    def _make_semaphore(self, name: Name, options: Options, limit: int, permits: int) -> Semaphore:
        from leasehold.primitives.semaphore import Semaphore  # loaded only by programs that use it

        return Semaphore(self._engine, name, options, limit, permits)

    def _make_rwlock(self, name: Name) -> ReadWriteLock:
        from leasehold.primitives.rwlock import ReadWriteLock

        return ReadWriteLock(self._engine, name, self._default_wait)

    def _make_election(self, name: Name, options: Options, value: Any, health: Health | None) -> Election:
        from leasehold.primitives.election import Election

        return Election(self._engine, name, options, value, health)

    def __enter__(self) -> Leasehold:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class AsyncLeasehold(
    Coordinator[
        AsyncLock,
        "AsyncSemaphore",
        "AsyncReadWriteLock",
        "AsyncElection",
        "AsyncOnce",
        "AsyncLeasedOnce",
        "AsyncSingleFlight",
        "AsyncLeasedFlight",
        "AsyncCronDecorator",
    ],
    AsyncOperators,
):
    """A coordinator for asyncio; made by :func:`leasehold.aio.connect`. ``await close()`` releases what it holds.

    In the signatures below ``LockT`` is ``AsyncLock``, ``SemaphoreT`` is ``AsyncSemaphore``, and so on. Methods that
    both coordinators share have examples for threads first.
    """

    _asynchronous = True

    def __init__(
        self,
        store: Store,
        *,
        namespace: str | None = None,
        wait: Duration | None = None,
        observers: Iterable[Observer] = (),
        hide_ids: str | bytes | None = None,
        durability: str | None = None,
        show_ids: bool = False,
    ) -> None:
        from leasehold._runtime.aio import AsyncDriver  # asyncio is loaded only by programs that use it

        super().__init__(
            store,
            namespace=namespace,
            wait=wait,
            observers=observers,
            hide_ids=hide_ids,
            durability=durability,
            show_ids=show_ids,
        )
        self._driver = AsyncDriver(self._engine)

    @overload
    def all(self, a: AsyncPart[A], /, *, wait: Wait = UNSET) -> AsyncAll[A]: ...
    @overload
    def all(self, a: AsyncPart[A], b: AsyncPart[B], /, *, wait: Wait = UNSET) -> AsyncAll[A, B]: ...
    @overload
    def all(self, a: AsyncPart[A], b: AsyncPart[B], c: AsyncPart[C], /, *, wait: Wait = UNSET) -> AsyncAll[A, B, C]: ...
    @overload
    def all(
        self, a: AsyncPart[A], b: AsyncPart[B], c: AsyncPart[C], d: AsyncPart[D], /, *, wait: Wait = UNSET
    ) -> AsyncAll[A, B, C, D]: ...
    @overload
    def all(
        self,
        a: AsyncPart[A],
        b: AsyncPart[B],
        c: AsyncPart[C],
        d: AsyncPart[D],
        e: AsyncPart[E],
        /,
        *,
        wait: Wait = UNSET,
    ) -> AsyncAll[A, B, C, D, E]: ...
    @overload
    def all(self, *locks: AsyncLock, wait: Wait = UNSET) -> AsyncAll[*tuple[AsyncLease, ...]]: ...
    def all(self, *locks: AsyncPart[Any], wait: Wait = UNSET) -> AsyncAll[*tuple[Any, ...]]:
        """All of these or none; see :meth:`leasehold.Leasehold.all`."""
        from leasehold.primitives.arguments import checked_parts
        from leasehold.primitives.multi import AsyncAll

        parts = checked_parts(self._engine, locks, AsyncLock)
        return AsyncAll(self._engine, parts, wait_seconds(self._wait(wait)), self._driver)

    async def acquire_many(self, locks: Iterable[AsyncLock]) -> AsyncLeaseBatch:
        """Try each of these once, in one round trip; see :meth:`leasehold.Leasehold.acquire_many`.

        >>> import asyncio, leasehold
        >>> async def main():
        ...     async with leasehold.aio.connect("memory://") as hold:
        ...         async with await hold.acquire_many([hold.lock("page", 1), hold.lock("page", 2)]) as batch:
        ...             return batch.complete, [lease.resource for lease in batch.acquired]
        >>> asyncio.run(main())
        (True, ['page:1', 'page:2'])
        """
        from leasehold.primitives.arguments import checked_locks
        from leasehold.primitives.batch_attempt import acquire_many_async

        return await acquire_many_async(self._engine, checked_locks(self._engine, locks, AsyncLock), self._driver)

    async def release_many(self, leases: Iterable[AsyncLease | None]) -> list[bool]:
        """Release all of these in one round trip; see :meth:`leasehold.Leasehold.release_many`."""
        from leasehold.primitives.arguments import checked_leases
        from leasehold.primitives.batch_release import release_many_async
        from leasehold.primitives.lease import AsyncLease

        return await release_many_async(self._engine, checked_leases(self._engine, leases, AsyncLease), self._driver)

    @overload
    def locked(
        self, kind: str, *ids: Id, on_busy: Unskipped = "raise", lease_as: None = None, **options: Unpack[LockOptions]
    ) -> Callable[[Callable[P, Work[R]]], Callable[P, Work[R]]]: ...
    @overload
    def locked(
        self, kind: str, *ids: Id, on_busy: Skip, lease_as: None = None, **options: Unpack[LockOptions]
    ) -> Callable[[Callable[P, Work[R]]], Callable[P, Work[R | Skipped]]]: ...
    @overload
    def locked(
        self, kind: str, *ids: Id, on_busy: Unskipped = "raise", lease_as: str, **options: Unpack[LockOptions]
    ) -> Callable[[Callable[..., Work[R]]], Callable[..., Work[R]]]: ...
    @overload
    def locked(
        self, kind: str, *ids: Id, on_busy: Skip, lease_as: str, **options: Unpack[LockOptions]
    ) -> Callable[[Callable[..., Work[R]]], Callable[..., Work[R | Skipped]]]: ...
    def locked(
        self, kind: str, *ids: Id, on_busy: str = "raise", lease_as: str | None = None, **options: Unpack[LockOptions]
    ) -> Any:
        """Decorate a coroutine function: each call runs under the lock of that name, in the calling task.

        The rest is as for threads, see :meth:`leasehold.Leasehold.locked`. When the lease is lost the call is
        cancelled, and raises LeaseLost.

        >>> import asyncio, leasehold
        >>> async def main():
        ...     async with leasehold.aio.connect("memory://") as hold:
        ...         @hold.locked("rebuild", "{site}", on_busy="skip")
        ...         async def rebuild(site):
        ...             await asyncio.sleep(0.01)
        ...             return "rebuilt"
        ...         return await asyncio.gather(rebuild("nl"), rebuild("nl"), rebuild("be"))
        >>> asyncio.run(main())
        ['rebuilt', SKIPPED, 'rebuilt']
        """
        return self._decorator(kind, ids, on_busy, lease_as, dict(options))

    async def adopt(
        self,
        ticket: str,
        *,
        ttl: Duration | None = None,
        renew: bool = True,
        max_hold: Duration | None = None,
        max_idle: Duration | None = None,
        protects: str | None = None,
    ) -> AsyncLease:
        """Take over a lease that was given away; see :meth:`leasehold.Leasehold.adopt`."""
        from leasehold.primitives.lock import AsyncAdopter

        known, name, options = self._adoption(
            ticket, ttl, renew=renew, max_hold=max_hold, max_idle=max_idle, protects=protects
        )
        return await AsyncAdopter(self._engine, name, options, self._driver)._adopt(known)

    async def close(self) -> None:
        """Release what is held and close the store. Leases that were held are lost (``closed``)."""
        try:
            while self._closers:
                closing = self._closers.pop()()
                if closing is not None:
                    await closing
        finally:
            self._driver.close()
            await self._driver.in_thread(self._engine.close)

    def _make_lock(self, name: Name, options: Options) -> AsyncLock:
        return AsyncLock(self._engine, name, options, self._driver)

    def _make_semaphore(self, name: Name, options: Options, limit: int, permits: int) -> AsyncSemaphore:
        from leasehold.primitives.semaphore import AsyncSemaphore

        return AsyncSemaphore(self._engine, name, options, self._driver, limit, permits)

    def _make_rwlock(self, name: Name) -> AsyncReadWriteLock:
        from leasehold.primitives.rwlock import AsyncReadWriteLock

        return AsyncReadWriteLock(self._engine, name, self._default_wait, self._driver)

    def _make_election(self, name: Name, options: Options, value: Any, health: Health | None) -> AsyncElection:
        from leasehold.primitives.election import AsyncElection

        return AsyncElection(self._engine, name, options, value, health, self._driver)

    async def __aenter__(self) -> AsyncLeasehold:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


def connect(
    target: Target | None = None,
    *,
    namespace: str | None = None,
    wait: Duration | None = None,
    observers: Iterable[Observer] = (),
    hide_ids: str | bytes | None = None,
    durability: str | None = None,
    slot: str | None = None,
    shared: bool | None = None,
    show_ids: bool = False,
) -> Leasehold:
    """A coordinator for threads, over the store that ``target`` names.

    ``target`` is a URL: ``redis://host``, ``redis+sentinel://host1,host2,host3/service``,
    ``redis+cluster://host1,host2``, ``redlock://host1,host2,host3`` (a majority of independent masters),
    ``postgresql://host/database``, ``etcd://host1,host2,host3``, ``zk://host1,host2,host3/chroot``, ``sqlite:///path``
    (this host, every user that may write the file) or ``memory://`` (this process); or a client of redis-py or
    valkey-py (of one server, of the master that Sentinels name, or of a Cluster), a client of kazoo, a pool of
    psycopg's or an engine of SQLAlchemy's, whose server and settings are used and which is never closed; or a list of
    3, 5 or 7 clients or URLs of one Redis each, which is a Redlock. Without one it is ``LEASEHOLD_URL``, else the
    embedded store in the user's state folder.

    ``wait`` is the default of every lock; ``observers`` receive the events (``leasehold.observe``); ``hide_ids`` is a
    key under which ids are hashed before they are stored; ``durability`` is that of every lease that asks for no other.
    ``shared=True`` (or ``LEASEHOLD_REQUIRE_SHARED=1``) refuses the embedded store when nothing else is named: in a
    crontab or a container a missing ``LEASEHOLD_URL`` would go unnoticed, and every host would have its own locks. With
    ``show_ids=True`` the messages of errors, ``repr`` and log records name a resource with its ids, which they
    otherwise hash; not where ``hide_ids`` hides them. In a Redis Cluster each lock is in the slot of its own name; with
    ``slot="namespace"`` all locks of a namespace share one, so that ``all`` takes them.

    >>> import leasehold
    >>> with leasehold.connect("memory://") as hold, hold.lock("report-export", 42, ttl=30) as lease:
    ...     lease.resource
    'report-export:42'
    """
    return Leasehold(
        open_store(target, slot, shared, namespace),
        namespace=namespace,
        wait=wait,
        observers=observers,
        hide_ids=hide_ids,
        durability=durability,
        show_ids=show_ids,
    )
