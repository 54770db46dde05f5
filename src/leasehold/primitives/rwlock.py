"""The read-write lock: many may read together, or one may write. One queue, in order of arrival.

    held by          a reader comes     a writer comes
    nobody           reads at once      writes at once
    readers          reads beside them  waits until the last of them has gone
    a writer         waits              waits

A reader that comes while a writer waits stands behind that writer: nobody is overtaken, so nobody starves. Readers who
stand next to each other in the queue come in together. A writer can lower its lease to a reader's (``downgrade``); a
reader never becomes a writer: two who both wait for that would wait for each other for ever.
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
    """What both flavours share."""

    __slots__ = ()

    @property
    def shared(self) -> bool:
        """Does it only read? Then others may read beside it, and a guard takes it with ``shared=True`` alone."""
        return self._held.shared

    def __repr__(self) -> str:
        return f"{BaseLease.__repr__(self)[:-1]} {'reads' if self.shared else 'writes'}>"

    def _downgraded(self) -> None:
        """Confirmed."""
        if self._engine.observers.listens():
            self._engine.watchdog.lease_events().downgraded(self._held)


class ReadWriteLease(BaseReadWriteLease, Lease):
    """A lease of a reader or a writer, for threads: all that a :class:`Lease` has, ``shared`` and ``downgrade``."""

    __slots__ = ()

    def downgrade(self) -> None:
        """From writing to reading, in one step: nobody writes in between, and readers who wait come in at once.

        The fence stays. From the call on the lease only reads (``shared``), also when the store does not answer
        (StoreUnavailable, OutcomeUnknown): then every renewal says so again, and the call may be repeated.
        InvalidRequest when it reads already, or was entered several times.

        >>> import leasehold
        >>> with leasehold.connect("memory://") as hold:
        ...     config = hold.rwlock("config", "nl")
        ...     with config.write() as lease:
        ...         lease.downgrade()  # written; whoever wants to read need not wait until we have read it again
        ...         lease.shared
        True
        """
        self._change(flows.downgrade)
        self._downgraded()


class AsyncReadWriteLease(BaseReadWriteLease, AsyncLease):
    """A lease of a reader or a writer, for asyncio: all that an :class:`AsyncLease` has, and the same two."""

    __slots__ = ()

    async def downgrade(self) -> None:
        """From writing to reading, in one step; see :meth:`leasehold.ReadWriteLease.downgrade`."""
        await self._change(flows.downgrade)
        self._downgraded()


# ---------------------------------------------------------------- the two sides


class BaseSideLock(BaseLock):
    """What every side shares, in both flavours."""

    __slots__ = ()

    _kinds = (READ, WRITE)

    def _can_reenter(self, held: HeldLease) -> bool:
        """What was taken with ``lock`` is no writer's lease, and cannot be lowered."""
        return held.rule != MUTEX and super()._can_reenter(held)


class SideLock(BaseSideLock, Lock):
    """A side for threads: a lock whose leases know whether they share."""

    __slots__ = ()

    _lease_class = ReadWriteLease

    if TYPE_CHECKING:  # as Lock does it, and what it gives is known better

        def acquire(self, wait: Duration | Unset | None = UNSET) -> ReadWriteLease | None: ...
        def try_acquire(self) -> ReadWriteLease | None: ...
        def __enter__(self) -> ReadWriteLease: ...


class AsyncSideLock(BaseSideLock, AsyncLock):
    """A side for asyncio."""

    __slots__ = ()

    _lease_class = AsyncReadWriteLease

    if TYPE_CHECKING:

        async def acquire(self, wait: Duration | Unset | None = UNSET) -> AsyncReadWriteLease | None: ...
        async def try_acquire(self) -> AsyncReadWriteLease | None: ...
        async def __aenter__(self) -> AsyncReadWriteLease: ...


class ReadLock(SideLock):
    """To read, beside others who read; made by ``hold.rwlock(...).read(...)``. It has every form that a lock has."""

    __slots__ = ()

    _rule = READ


class WriteLock(SideLock):
    """To write, alone; made by ``hold.rwlock(...).write(...)``. It has every form that a lock has."""

    __slots__ = ()

    _rule = WRITE


class AsyncReadLock(AsyncSideLock):
    """To read, beside others who read, in asyncio."""

    __slots__ = ()

    _rule = READ


class AsyncWriteLock(AsyncSideLock):
    """To write, alone, in asyncio."""

    __slots__ = ()

    _rule = WRITE


# ---------------------------------------------------------------- both sides of one resource

R = TypeVar("R", ReadLock, AsyncReadLock)
W = TypeVar("W", WriteLock, AsyncWriteLock)


class BaseReadWriteLock(ABC, Generic[R, W]):
    """What both flavours share: the resource, and how each side is asked for."""

    __slots__ = ("_default_wait", "_engine", "_name")

    def __init__(self, engine: Engine, name: Name, default_wait: float | None) -> None:
        self._engine = engine
        self._name = name
        self._default_wait = default_wait  # of the coordinator

    @property
    def resource(self) -> str:
        """The text form of the resource's name: both sides are of one resource."""
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
    ) -> R:
        """A lock to read: many hold it together, and nobody writes meanwhile. Takes what ``lock`` takes.

        ``at_least`` and ``delay`` keep writers out, and let readers in. With ``reentrant`` whoever reads or writes may
        enter it again; without, a second one inside the first is a claim like any other, and waits behind a writer
        who waits for the first to go. Inside the body of one's own ``write()`` that is for ever: InvalidRequest, unless
        ``wait`` has an end.

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
    ) -> W:
        """A lock to write: nobody reads or writes beside it. Takes what ``lock`` takes.

        Who reads cannot become a writer: two readers who both wait to write would wait for each other. Inside the
        body of one's own ``read()`` a wait without an end is refused at once (InvalidRequest); a try is as busy as any,
        and a wait with an end is over then (NotAcquired, which says why).

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
        )
        return self._write(options)

    @abstractmethod
    def _read(self, options: Options) -> R: ...

    @abstractmethod
    def _write(self, options: Options) -> W: ...

    def __reduce__(self) -> str:
        """It leads to the coordinator of this process."""
        raise TypeError("a lock stays in its process: send its kind and ids, and make it there from connect()")

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._name.shown}>"


class ReadWriteLock(BaseReadWriteLock[ReadLock, WriteLock]):
    """A read-write lock for threads; made by ``hold.rwlock(kind, *ids)``. It holds nothing itself: ``read()`` and
    ``write()`` give locks."""

    __slots__ = ()

    def _read(self, options: Options) -> ReadLock:
        return ReadLock(self._engine, self._name, options)

    def _write(self, options: Options) -> WriteLock:
        return WriteLock(self._engine, self._name, options)


class AsyncReadWriteLock(BaseReadWriteLock[AsyncReadLock, AsyncWriteLock]):
    """A read-write lock for asyncio: the same, and what it gives is awaited."""

    __slots__ = ("_driver",)

    def __init__(self, engine: Engine, name: Name, default_wait: float | None, driver: AsyncDriver) -> None:
        BaseReadWriteLock.__init__(self, engine, name, default_wait)
        self._driver = driver

    def _read(self, options: Options) -> AsyncReadLock:
        return AsyncReadLock(self._engine, self._name, options, self._driver)

    def _write(self, options: Options) -> AsyncWriteLock:
        return AsyncWriteLock(self._engine, self._name, options, self._driver)
