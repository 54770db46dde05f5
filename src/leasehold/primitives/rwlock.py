"""The read-write lock: many may read together, or one may write. One queue, in order of arrival.

    held by          a reader arrives   a writer arrives
    no one           reads at once      writes at once
    readers          reads beside them  waits until the last of them has left
    a writer         waits              waits

A reader that arrives while a writer waits queues behind that writer: no waiter is overtaken, so none starves. Readers
that are next to each other in the queue are granted together. A writer can turn its lease into a reader's
(``downgrade``); a reader never becomes a writer: two readers that both waited for that would wait for each other for
ever.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping

from leasehold._core import flows
from leasehold._core.light_typing import TYPE_CHECKING, Any, Generic, TypeVar
from leasehold._core.names import Name
from leasehold._core.rules import MUTEX, READ, WRITE
from leasehold._runtime.engine import Engine
from leasehold._runtime.held_lease import HeldLease
from leasehold._runtime.options import Options, checked_options
from leasehold.primitives.base_lease import BaseLease
from leasehold.primitives.base_lock import UNSET, BaseLock, Unset
from leasehold.primitives.lease import AsyncLease, Lease
from leasehold.primitives.lock import AsyncLock, Lock

if TYPE_CHECKING:
    from leasehold._core.durations import Duration
    from leasehold._runtime.aio import AsyncDriver

# ---------------------------------------------------------------- leases


class BaseReadWriteLease(BaseLease):
    """A reader's or writer's lease of either flavour."""

    __slots__ = ()

    @property
    def shared(self) -> bool:
        """Does it only read? Then others may read beside it, and a guard accepts it only with ``shared=True``."""
        return self._held.shared

    def __repr__(self) -> str:
        return f"{BaseLease.__repr__(self)[:-1]} {'reads' if self.shared else 'writes'}>"

    def _report_downgrade(self) -> None:
        """The store has confirmed a downgrade."""
        if self._engine.observers.active():
            self._engine.watchdog.lease_events().downgraded(self._held)


class ReadWriteLease(BaseReadWriteLease, Lease):
    """A lease of a reader or a writer, for threads: all that a :class:`Lease` has, ``shared`` and ``downgrade``."""

    __slots__ = ()

    def downgrade(self) -> None:
        """Change from writing to reading, in one step: no other process writes in between, and readers that wait are
        granted at once.

        The fence stays. From the call on the lease only reads (``shared``), also when the store does not answer
        (StoreUnavailable, OutcomeUnknown): then every renewal repeats it, and the call may be repeated. InvalidRequest
        when it reads already, or was entered several times.

        >>> import leasehold
        >>> with leasehold.connect("memory://") as hold:
        ...     config = hold.rwlock("config", "nl")
        ...     with config.write() as lease:
        ...         lease.downgrade()  # written; other readers need not wait while we go on reading
        ...         lease.shared
        True
        """
        self._change(flows.downgrade)
        self._report_downgrade()


class AsyncReadWriteLease(BaseReadWriteLease, AsyncLease):
    """A lease of a reader or a writer, for asyncio: all that an :class:`AsyncLease` has, and the same two."""

    __slots__ = ()

    async def downgrade(self) -> None:
        """Change from writing to reading, in one step; see :meth:`leasehold.ReadWriteLease.downgrade`."""
        await self._change(flows.downgrade)
        self._report_downgrade()


# ---------------------------------------------------------------- the two sides


class BaseSideLock(BaseLock):
    """One side of a read-write lock, in either flavour."""

    __slots__ = ()

    _kinds = (READ, WRITE)

    def _can_reenter(self, held: HeldLease) -> bool:
        """A lease of ``lock`` is no writer's lease, and cannot be downgraded."""
        return held.rule != MUTEX and super()._can_reenter(held)


class SideLock(BaseSideLock, Lock):
    """One side for threads: a lock whose leases know whether they share."""

    __slots__ = ()

    _lease_class = ReadWriteLease

    if TYPE_CHECKING:  # the methods of Lock, with the exact class of their leases

        def acquire(self, wait: Duration | Unset | None = UNSET) -> ReadWriteLease | None: ...
        def try_acquire(self) -> ReadWriteLease | None: ...
        def __enter__(self) -> ReadWriteLease: ...


class AsyncSideLock(BaseSideLock, AsyncLock):
    """One side for asyncio."""

    __slots__ = ()

    _lease_class = AsyncReadWriteLease

    if TYPE_CHECKING:

        async def acquire(self, wait: Duration | Unset | None = UNSET) -> AsyncReadWriteLease | None: ...
        async def try_acquire(self) -> AsyncReadWriteLease | None: ...
        async def __aenter__(self) -> AsyncReadWriteLease: ...


class ReadLock(SideLock):
    """A lock to read, beside other readers; made by ``hold.rwlock(...).read(...)``. It is used in all the ways of a
    :class:`Lock`."""

    __slots__ = ()

    _rule = READ


class WriteLock(SideLock):
    """A lock to write, alone; made by ``hold.rwlock(...).write(...)``. It is used in all the ways of a
    :class:`Lock`."""

    __slots__ = ()

    _rule = WRITE


class AsyncReadLock(AsyncSideLock):
    """A lock to read, beside other readers, for asyncio."""

    __slots__ = ()

    _rule = READ


class AsyncWriteLock(AsyncSideLock):
    """A lock to write, alone, for asyncio."""

    __slots__ = ()

    _rule = WRITE


# ---------------------------------------------------------------- both sides of one resource

R = TypeVar("R", ReadLock, AsyncReadLock)
W = TypeVar("W", WriteLock, AsyncWriteLock)


class BaseReadWriteLock(ABC, Generic[R, W]):
    """A read-write lock of either flavour."""

    __slots__ = ("_default_wait", "_engine", "_name")

    def __init__(self, engine: Engine, name: Name, default_wait: float | None) -> None:
        self._engine = engine
        self._name = name
        self._default_wait = default_wait  # of the coordinator

    @property
    def resource(self) -> str:
        """The text form of the resource's name, which is the same for both sides."""
        return self._name.text

    def read(
        self,
        *,
        ttl: Duration = 30,
        wait: Duration | Unset | None = UNSET,
        renew: bool = True,
        max_hold: Duration | None = None,
        max_idle: Duration | None = None,
        at_least: Duration | None = None,
        delay: Duration | None = None,
        reentrant: bool = False,
        protects: str | None = None,
        meta: Mapping[str, Any] | None = None,
        durability: str | None = None,
    ) -> R:
        """A lock to read: many hold it together, and none writes meanwhile. Takes what ``lock`` takes.

        ``at_least`` and ``delay`` keep writers out, and let readers in. With ``reentrant`` a thread or task that reads
        or writes may enter it again. Without, a second lease inside the first is a claim like any other, and queues
        behind a writer that waits for the first to end. Inside the body of its own ``write()`` that would be for ever:
        InvalidRequest, unless ``wait`` has an end.

        >>> import leasehold
        >>> with leasehold.connect("memory://") as hold:
        ...     config = hold.rwlock("config", "nl")
        ...     with config.read() as one, config.read() as two:
        ...         one.shared, one.fence < two.fence
        (True, True)
        """
        options = checked_options(
            ttl=ttl,
            wait=self._default_wait if isinstance(wait, Unset) else wait,
            renew=renew,
            max_hold=max_hold,
            max_idle=max_idle,
            at_least=at_least,
            delay=delay,
            reentrant=reentrant,
            protects=protects,
            meta=meta,
            durability=durability,
        )
        return self._read(options)

    def write(
        self,
        *,
        ttl: Duration = 30,
        wait: Duration | Unset | None = UNSET,
        renew: bool = True,
        max_hold: Duration | None = None,
        max_idle: Duration | None = None,
        at_least: Duration | None = None,
        delay: Duration | None = None,
        reentrant: bool = False,
        protects: str | None = None,
        meta: Mapping[str, Any] | None = None,
        durability: str | None = None,
    ) -> W:
        """A lock to write: no other process reads or writes beside it. Takes what ``lock`` takes.

        A reader cannot become a writer: two readers that both wait to write would wait for each other. Inside the body
        of its own ``read()`` a wait without an end is refused at once (InvalidRequest); one try finds it busy, and a
        wait with an end runs out (NotAcquired, which says why).

        >>> import leasehold
        >>> with leasehold.connect("memory://") as hold:
        ...     config = hold.rwlock("config", "nl")
        ...     with config.write() as lease:
        ...         lease.shared, config.read().try_acquire()
        (False, None)
        """
        options = checked_options(
            ttl=ttl,
            wait=self._default_wait if isinstance(wait, Unset) else wait,
            renew=renew,
            max_hold=max_hold,
            max_idle=max_idle,
            at_least=at_least,
            delay=delay,
            reentrant=reentrant,
            protects=protects,
            meta=meta,
            durability=durability,
        )
        return self._write(options)

    @abstractmethod
    def _read(self, options: Options) -> R: ...

    @abstractmethod
    def _write(self, options: Options) -> W: ...

    def __reduce__(self) -> str:
        """A lock belongs to the coordinator of this process."""
        raise TypeError("a lock stays in its process: send its kind and ids, and make it there from connect()")

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._name.shown}>"


class ReadWriteLock(BaseReadWriteLock[ReadLock, WriteLock]):
    """A read-write lock for threads; made by ``hold.rwlock(kind, *ids)``. It holds nothing itself: ``read()`` and
    ``write()`` return locks."""

    __slots__ = ()

    def _read(self, options: Options) -> ReadLock:
        return ReadLock(self._engine, self._name, options)

    def _write(self, options: Options) -> WriteLock:
        return WriteLock(self._engine, self._name, options)


class AsyncReadWriteLock(BaseReadWriteLock[AsyncReadLock, AsyncWriteLock]):
    """A read-write lock for asyncio: as :class:`ReadWriteLock`, with locks for asyncio."""

    __slots__ = ("_driver",)

    def __init__(self, engine: Engine, name: Name, default_wait: float | None, driver: AsyncDriver) -> None:
        BaseReadWriteLock.__init__(self, engine, name, default_wait)
        self._driver = driver

    def _read(self, options: Options) -> AsyncReadLock:
        return AsyncReadLock(self._engine, self._name, options, self._driver)

    def _write(self, options: Options) -> AsyncWriteLock:
        return AsyncWriteLock(self._engine, self._name, options, self._driver)
