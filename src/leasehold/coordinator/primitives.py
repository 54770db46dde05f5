"""What a coordinator makes, in both flavours: semaphores, read-write locks, locks taken together, elections, and leases
that are taken over by a ticket. Each checks what it was given before anything is sent."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping
from functools import partial

from leasehold._core.durations import is_long, wait_seconds
from leasehold._core.light_typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar, overload
from leasehold._core.names import Name, known_name, make_name, parse_name, resource_names
from leasehold._core.rules import check_count, check_permits, check_room
from leasehold._core.tickets import Ticket, read
from leasehold._runtime.options import make_options, warn_long
from leasehold.errors import InvalidRequest
from leasehold.primitives.base_lock import UNSET, Unset

if TYPE_CHECKING:
    from leasehold._core.durations import Duration
    from leasehold._core.names import Name
    from leasehold._runtime.aio import AsyncDriver
    from leasehold._runtime.engine import Engine
    from leasehold._runtime.options import Options
    from leasehold.coordinator import Id
    from leasehold.primitives.election import AsyncElection, Election
    from leasehold.primitives.health import Health
    from leasehold.primitives.lease import AsyncLease, Lease
    from leasehold.primitives.lock import AsyncLock, Lock
    from leasehold.primitives.multi import All, AsyncAll
    from leasehold.primitives.rwlock import AsyncReadWriteLock, Check, ReadWriteLock

    Wait = Duration | Unset | None

    # The leases of up to five, so that whoever takes them apart has each with its class; more are plain leases.
    A = TypeVar("A")
    B = TypeVar("B")
    C = TypeVar("C")
    D = TypeVar("D")
    E = TypeVar("E")
    L_co = TypeVar("L_co", covariant=True)

    class Part(Protocol[L_co]):
        """A lock, for type checkers: what it gives."""

        @property
        def resource(self) -> str: ...
        def __enter__(self) -> L_co: ...

    class AsyncPart(Protocol[L_co]):
        """The same for asyncio."""

        @property
        def resource(self) -> str: ...
        async def __aenter__(self) -> L_co: ...


# ---------------------------------------------------------------- counting
#
# ``hold.semaphore`` in both flavours: what it takes, checked before anything is sent.


S = TypeVar("S")


class Counting(ABC, Generic[S]):
    """What both flavours share."""

    _default_wait: float | None
    _asked: Any

    def semaphore(
        self,
        kind: str,
        *ids: Id,
        limit: int,
        permits: int = 1,
        ttl: Duration = 30,
        wait: Duration | Unset | None = UNSET,
        renew: bool = True,
        max_hold: Duration | None = None,
        max_idle: Duration | None = None,
        at_least: Duration | None = None,
        delay: Duration | None = None,
        protects: str | None = None,
        meta: Mapping[str, Any] | None = None,
    ) -> S:
        """At most ``limit`` permits of one resource at once, first come first served, each with a numbered slot.

        ``permits`` is how many ``with`` takes: all of them at once, in one lease. The limit that a claim brings decides
        until ``resize`` stores one for everybody; when others go by another one, the event ``LimitDiffers`` says so.
        The other options are those of ``lock``; ``at_least`` and ``delay`` keep only the slots of their own permit. A
        thread or task that enters twice has two permits.

        >>> import leasehold
        >>> with leasehold.connect("memory://") as hold:
        ...     with hold.semaphore("api", limit=3, ttl="10s") as permit:
        ...         permit.slot
        0
        """
        if isinstance(wait, Unset):
            wait = self._default_wait
        checked = check_count(limit, "limit")
        asked = (ttl, wait, renew, max_hold, max_idle, at_least, delay, False, protects)
        name, options = self._asked(kind, ids, asked, meta)
        return self._make_semaphore(check_room(name), options, checked, check_permits(permits, checked))

    @abstractmethod
    def _make_semaphore(self, name: Name, options: Options, limit: int, permits: int) -> S: ...


# ---------------------------------------------------------------- sharing
#
# ``hold.rwlock`` in both flavours: read-write locks.


class Sharing:
    """For threads."""

    _engine: Engine

    def rwlock(self, kind: str, *ids: Id) -> ReadWriteLock:
        """A read-write lock on one resource: ``read()`` gives a lock that many hold together, ``write()`` one that is
        held alone. Both take all that ``lock`` takes.

        First come, first served: a reader that comes while a writer waits stands behind it, and readers who stand next
        to each other come in together. ``lease.downgrade()`` lowers a writer's lease to a reader's.

        >>> import leasehold
        >>> with leasehold.connect("memory://") as hold:
        ...     config = hold.rwlock("config", "nl")
        ...     with config.write(ttl="10s") as lease:
        ...         config.read().try_acquire() is None
        True
        """
        from leasehold.primitives.rwlock import ReadWriteLock

        return ReadWriteLock(self._engine, *_resource(self, kind, ids))


class AsyncSharing:
    """For asyncio."""

    _engine: Engine
    _driver: AsyncDriver

    def rwlock(self, kind: str, *ids: Id) -> AsyncReadWriteLock:
        """A read-write lock on one resource; see :meth:`leasehold.Leasehold.rwlock`."""
        from leasehold.primitives.rwlock import AsyncReadWriteLock

        return AsyncReadWriteLock(self._engine, *_resource(self, kind, ids), self._driver)


def _resource(hold: Any, kind: str, ids: tuple[Id, ...]) -> tuple[Name, Check]:
    """Which one, checked at once; and how its sides will be."""
    try:
        name = known_name(hold._namespace, hold._id_key, kind, *ids)
    except TypeError:  # what cannot be hashed is refused as any other wrong thing
        name = make_name(hold._namespace, kind, ids, hold._id_key)
    return name, partial(_options, hold, kind, ids)


def _options(
    hold: Any, kind: str, ids: tuple[Id, ...], asked: tuple[Any, ...], meta: Mapping[str, Any] | None
) -> Options:
    """How one side is to be held, checked as those of ``lock`` are."""
    ttl, wait, *rest = asked
    if isinstance(wait, Unset):
        wait = hold._default_wait
    options: Options = hold._asked(kind, ids, (ttl, wait, *rest), meta)[1]
    return options


# ---------------------------------------------------------------- gathering
#
# ``hold.all`` in both flavours: several locks of one coordinator, all or nothing.


class Gathering:
    """For threads."""

    _engine: Engine
    _default_wait: float | None

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

        They are claimed in the order of their names, so that nobody who asks for the same ones in another order can
        wait for us while we wait for him; what is free is granted in one round trip. The leases come in the order of
        the locks. ``wait`` is how long to block for all of them together: the coordinator's unless it is said, and
        never that of the locks. However it ends without all of them, nothing stays held.

        While it waits for one, what stands before that is held and renewed; when some of it is lost meanwhile, all of
        it is given back and claimed anew. A lock with ``reentrant`` that this thread holds already is entered again:
        that costs nothing, and leaving steps out of it.

        >>> import leasehold
        >>> with leasehold.connect("memory://") as hold:
        ...     with hold.all(hold.lock("stock", 7), hold.lock("order", 42), wait="5s") as (stock, order):
        ...         stock.resource, order.resource
        ('stock:7', 'order:42')
        """
        from leasehold.primitives.lock import Lock
        from leasehold.primitives.multi import All, checked

        return All(self._engine, checked(self._engine, locks, Lock), _waiting(wait, self._default_wait))


class AsyncGathering:
    """For asyncio: the same, awaited."""

    _engine: Engine
    _default_wait: float | None
    _driver: Any

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
        from leasehold.primitives.lock import AsyncLock
        from leasehold.primitives.multi import AsyncAll, checked

        parts = checked(self._engine, locks, AsyncLock)
        return AsyncAll(self._engine, parts, _waiting(wait, self._default_wait), self._driver)


def _waiting(wait: Duration | Unset | None, default: float | None) -> float | None:
    return default if isinstance(wait, Unset) else wait_seconds(wait)


# ---------------------------------------------------------------- electing


class Electing:
    """For threads."""

    _engine: Engine

    def election(
        self,
        kind: str,
        *ids: Id,
        ttl: Duration = 10,
        wait: Duration | Unset | None = UNSET,
        value: Any = None,
        health: Callable[[], object] | None = None,
        max_hold: Duration | None = None,
        max_idle: Duration | None = None,
        at_least: Duration | None = None,
        delay: Duration | None = None,
        protects: str | None = None,
        meta: Mapping[str, Any] | None = None,
        health_start_period: Duration = 0,
        health_retries: int = 1,
    ) -> Election:
        """An election: of all who stand for it, one leads at a time, until it resigns, ends or is gone for ``ttl``.

        ``value`` is some JSON that everybody can see while this one leads, such as its address. ``health`` is a
        function that is asked every third of the ttl while it leads, in a thread of its own: after False or an
        exception it steps down (``unhealthy``), and when no answer comes for a whole ttl, too (``max_idle``).
        ``health_retries`` is how many bad answers in a row it takes. Those to questions asked in the first
        ``health_start_period`` of a term do not count, until the first good one; a candidate that does not lead is not
        asked. Without ``health``, ``max_idle`` is how long the body may go without ``term.beat()``. A term lasts at
        most ``max_hold``, and nobody else leads for ``at_least`` from its beginning. The rest is as with ``lock``.

        >>> import leasehold
        >>> with leasehold.connect("memory://") as hold:
        ...     with hold.election("scheduler", value="host-a").campaign(wait=5) as term:
        ...         hold.election("scheduler").leader().value
        'host-a'
        """
        from leasehold.primitives.election import Election
        from leasehold.primitives.health import check_health

        check = check_health(health, health_start_period, health_retries, awaited=False)
        name, options = _asked(self, kind, ids, check, max_idle, (ttl, wait, max_hold, at_least, delay, protects), meta)
        return Election(self._engine, name, options, value, check)


class AsyncElecting:
    """For asyncio: the same, awaited."""

    _engine: Engine
    _driver: AsyncDriver

    def election(
        self,
        kind: str,
        *ids: Id,
        ttl: Duration = 10,
        wait: Duration | Unset | None = UNSET,
        value: Any = None,
        health: Callable[[], object | Awaitable[object]] | None = None,
        max_hold: Duration | None = None,
        max_idle: Duration | None = None,
        at_least: Duration | None = None,
        delay: Duration | None = None,
        protects: str | None = None,
        meta: Mapping[str, Any] | None = None,
        health_start_period: Duration = 0,
        health_retries: int = 1,
    ) -> AsyncElection:
        """An election; see :meth:`leasehold.Leasehold.election`. ``health`` is a function or a coroutine function,
        asked in a task of its own: what blocks there, blocks the loop."""
        from leasehold.primitives.election import AsyncElection
        from leasehold.primitives.health import check_health

        check = check_health(health, health_start_period, health_retries, awaited=True)
        name, options = _asked(self, kind, ids, check, max_idle, (ttl, wait, max_hold, at_least, delay, protects), meta)
        return AsyncElection(self._engine, name, options, value, check, self._driver)


def _asked(
    hold: Any,
    kind: str,
    ids: tuple[Id, ...],
    health: Health | None,
    max_idle: Duration | None,
    rest: tuple[Any, ...],
    meta: Mapping[str, Any] | None,
) -> tuple[Name, Options]:
    """As a lock would be asked for. Whoever has a health check must show that it lives."""
    ttl, wait, max_hold, at_least, delay, protects = rest
    patience = hold._default_wait if isinstance(wait, Unset) else wait
    if health is not None:
        if max_idle is not None:
            raise InvalidRequest(
                "each answer of health is a beat, and a ttl without one ends the term already: leave out max_idle, or "
                "leave out health and call term.beat()"
            )
        max_idle = ttl
    asked = (ttl, patience, True, max_hold, max_idle, at_least, delay, False, protects)
    found: tuple[Name, Options] = hold._asked(kind, ids, asked, meta)
    return found


# ---------------------------------------------------------------- adopting
#
# ``hold.adopt`` in both flavours: taking over a lease that was given away with ``lease.transfer()``.


class Adopting:
    """For threads."""

    _engine: Engine
    _id_key: bytes

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

        It has a new owner and a new fence: a guard that sees it refuses whoever had it before. It is what it was: that
        of a reader or a writer is a ``ReadWriteLease``. ``ttl`` is the giver's unless it is said. LeaseLost when its
        time was over, or somebody else was quicker: a ticket is good once.

        >>> import leasehold
        >>> with leasehold.connect("memory://") as hold:
        ...     ticket = hold.lock("report-export", 42).acquire().transfer()
        ...     with hold.adopt(ticket) as lease:
        ...         lease.resource
        'report-export:42'
        """
        told, name, options = _adoption(self._id_key, ticket, ttl, renew, max_hold, max_idle, protects)
        from leasehold.primitives.lock import Adopter

        return Adopter(self._engine, name, options)._adopt(told)


class AsyncAdopting:
    """For asyncio: the same, awaited."""

    _driver: AsyncDriver
    _engine: Engine
    _id_key: bytes

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
        told, name, options = _adoption(self._id_key, ticket, ttl, renew, max_hold, max_idle, protects)
        from leasehold.primitives.lock import AsyncAdopter

        return await AsyncAdopter(self._engine, name, options, self._driver)._adopt(told)


def _adoption(key: bytes, ticket: str, ttl: Duration | None, *asked: Any) -> tuple[Ticket, Name, Options]:
    """What the ticket says, and how the lease is to be held, checked."""
    told = read(ticket)
    renew, max_hold, max_idle, protects = asked
    length = told.ttl_ms / 1000 if ttl is None else ttl
    options = make_options(length, None, renew, max_hold, max_idle, None, None, False, protects)
    if ttl is not None and is_long(options.ttl_ms):  # else its giver was told
        warn_long()
    resource_names("", told.resource)  # what a forged ticket calls a name must not become a key
    return told, parse_name(told.resource, hidden=bool(key)), options
