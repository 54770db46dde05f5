"""The generic base of both coordinators: every method that only makes a primitive, with its docstring, written once.

What such a method returns differs between threads and asyncio, and is a type parameter. None of them sends anything:
arguments are checked, and the first use of the object that is returned connects.
"""

from __future__ import annotations

import os
from abc import abstractmethod

from leasehold._core.durations import wait_seconds
from leasehold._core.light_typing import (
    TYPE_CHECKING,
    Any,
    Callable,
    Generic,
    Iterable,
    Mapping,
    TypeAlias,
    TypedDict,
    TypeVar,
)
from leasehold._core.names import (
    Name,
    check_id_key,
    check_namespace,
    known_name,
    make_name,
    parse_name,
    resource_names,
)
from leasehold._core.rules import check_count, check_permits, check_room
from leasehold._runtime.engine import Engine
from leasehold._runtime.options import Options, checked_durability, checked_options
from leasehold.coordinator.patterns import CronT, FlightT, LeasedFlightT, LeasedOnceT, OnceT, Patterns
from leasehold.errors import InvalidRequest
from leasehold.observe.observers import Observers
from leasehold.primitives.base_lock import UNSET, Unset

if TYPE_CHECKING:
    from leasehold._core.durations import Duration
    from leasehold._core.guarantees import Guarantees
    from leasehold._core.ports import Store
    from leasehold._core.tickets import Ticket
    from leasehold.coordinator.patterns import Id
    from leasehold.observe.events import Observer
    from leasehold.primitives.health import Health

    Wait: TypeAlias = Duration | Unset | None

LockT = TypeVar("LockT")
SemaphoreT = TypeVar("SemaphoreT")
ReadWriteLockT = TypeVar("ReadWriteLockT")
ElectionT = TypeVar("ElectionT")


class LockOptions(TypedDict, total=False):
    """The keywords of ``lock``, which ``locked`` takes too."""

    ttl: Duration
    wait: Duration | Unset | None
    renew: bool
    max_hold: Duration | None
    max_idle: Duration | None
    at_least: Duration | None
    delay: Duration | None
    linger: Duration
    reentrant: bool
    protects: str | None
    meta: Mapping[str, Any] | None
    durability: str | None


class Coordinator(
    Patterns[OnceT, LeasedOnceT, FlightT, LeasedFlightT, CronT],
    Generic[LockT, SemaphoreT, ReadWriteLockT, ElectionT, OnceT, LeasedOnceT, FlightT, LeasedFlightT, CronT],
):
    """A coordinator of either flavour. Making one sends nothing; the first call connects."""

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
        self._namespace = check_namespace(_or_env(namespace, "LEASEHOLD_NAMESPACE"))
        if not isinstance(show_ids, bool):
            raise InvalidRequest(f"show_ids must be True or False, not {type(show_ids).__name__}")
        key = check_id_key(_or_env(hide_ids, "LEASEHOLD_ID_KEY"))
        self._id_key = None if show_ids and not key else key  # None: ids are no secret
        self._default_wait = wait_seconds(wait)
        self._engine = Engine(store, Observers(observers), checked_durability(durability), self._namespace)
        self._closers: list[Callable[[], Any]] = []  # of what patterns have opened and started

    def lock(
        self,
        kind: str,
        *ids: Id,
        ttl: Duration = 30,
        wait: Duration | Unset | None = UNSET,
        renew: bool = True,
        max_hold: Duration | None = None,
        max_idle: Duration | None = None,
        at_least: Duration | None = None,
        delay: Duration | None = None,
        linger: Duration = 0,
        reentrant: bool = False,
        protects: str | None = None,
        meta: Mapping[str, Any] | None = None,
        durability: str | None = None,
    ) -> LockT:
        """A lock on one resource: exclusive, first come first served, fenced.

        ``kind`` says what sort of thing it is and ``ids`` which one. ``ttl`` is how long the lease lasts without
        renewal; with ``renew`` it is renewed while the program uses it, for at most ``max_hold``, and only while the
        work calls ``lease.beat()`` every ``max_idle``. ``wait`` is how long to block: None for ever, 0 one try.
        Inside its own body a lock never becomes free: to wait there for ever is InvalidRequest, and ``rlock`` enters
        again. ``at_least`` keeps others out for that long even when it is released earlier, and ``delay`` for that
        long after it expired without a release, because its holder may not have noticed yet. With ``linger`` a lease
        that is released stays with this process for that long, unused: taking it again is local, and it goes back to
        the store as soon as somebody else wants it. With
        ``protects="correctness"`` an event reports each lease that ends although no guard saw its fence and the program
        never read it. ``meta`` is shown by ``inspect``. With ``durability="replicas:1"`` the lease is believed only
        when that many replicas have it, and with ``"fsync"`` when the disk of the primary has it: so are its renewals.
        """
        options = checked_options(
            ttl,
            self._default_wait if wait is UNSET else wait,  # type: ignore[arg-type]  # there is no other Unset
            renew,
            max_hold,
            max_idle,
            at_least,
            delay,
            reentrant,
            protects,
            meta,
            durability,
            linger,
        )
        if options.linger and self._engine.durability:
            raise InvalidRequest(
                "linger and the durability of the coordinator exclude each other: such a lease goes back to the store "
                "each time. Use a coordinator without durability= for this lock"
            )
        self._engine.check_ttl(options.ttl_ms)
        return self._make_lock(self._name(kind, ids), options)

    def rlock(
        self,
        kind: str,
        *ids: Id,
        ttl: Duration = 30,
        wait: Duration | Unset | None = UNSET,
        renew: bool = True,
        max_hold: Duration | None = None,
        max_idle: Duration | None = None,
        at_least: Duration | None = None,
        delay: Duration | None = None,
        linger: Duration = 0,
        protects: str | None = None,
        meta: Mapping[str, Any] | None = None,
        durability: str | None = None,
    ) -> LockT:
        """A lock that the thread or task which holds it may enter again: ``lock(..., reentrant=True)``."""
        return self.lock(
            kind,
            *ids,
            ttl=ttl,
            wait=wait,
            renew=renew,
            max_hold=max_hold,
            max_idle=max_idle,
            at_least=at_least,
            delay=delay,
            linger=linger,
            reentrant=True,
            protects=protects,
            meta=meta,
            durability=durability,
        )

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
        durability: str | None = None,
    ) -> SemaphoreT:
        """At most ``limit`` permits of one resource at once, first come first served, each with a numbered slot.

        ``permits`` is how many ``with`` takes: all of them at once, in one lease. The limit that a claim brings applies
        until ``resize`` stores one for every process; when others use another limit, the event ``LimitDiffers`` reports
        it. The other options are those of ``lock``; ``at_least`` and ``delay`` keep only the slots of their own permit.
        A thread or task that enters twice has two permits.

        >>> import leasehold
        >>> with leasehold.connect("memory://") as hold:
        ...     with hold.semaphore("api", limit=3, ttl="10s") as permit:
        ...         permit.slot
        0
        """
        self._engine.require("shared", "semaphores")
        checked_limit = check_count(limit, "limit")
        options = checked_options(
            ttl=ttl,
            wait=self._wait(wait),
            renew=renew,
            max_hold=max_hold,
            max_idle=max_idle,
            at_least=at_least,
            delay=delay,
            protects=protects,
            meta=meta,
            durability=durability,
        )
        name = check_room(self._name(kind, ids))
        return self._make_semaphore(name, options, checked_limit, check_permits(permits, checked_limit))

    def rwlock(self, kind: str, *ids: Id) -> ReadWriteLockT:
        """A read-write lock on one resource: ``read()`` gives a lock that many hold together, ``write()`` one that is
        held alone. Both take all that ``lock`` takes, but ``linger``.

        First come, first served: a reader that arrives while a writer waits queues behind it, and readers that are next
        to each other in the queue are granted together. ``lease.downgrade()`` turns a writer's lease into a reader's.

        >>> import leasehold
        >>> with leasehold.connect("memory://") as hold:
        ...     config = hold.rwlock("config", "nl")
        ...     with config.write(ttl="10s") as lease:
        ...         config.read().try_acquire() is None
        True
        """
        self._engine.require("shared", "read-write locks")
        return self._make_rwlock(self._name(kind, ids))

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
        durability: str | None = None,
        health_start_period: Duration = 0,
        health_retries: int = 1,
    ) -> ElectionT:
        """An election: one of its candidates leads at a time, until it resigns, ends or is gone for ``ttl``.

        ``value`` is some JSON that every process can read while this one leads, such as its address. ``health`` is a
        function that is called every third of the ttl while it leads, in a thread of its own: after False or an
        exception the leader steps down (``unhealthy``), and also when the function does not return for a whole ttl
        (``max_idle``). In asyncio it may be a coroutine function and runs in a task of its own: what blocks there
        blocks the loop. ``health_retries`` is how many bad answers in a row it takes. Answers to calls in the first
        ``health_start_period`` of a term do not count, until the first good one; a candidate that does not lead is not
        checked. Without ``health``, ``max_idle`` is how long the body may go without ``term.beat()``. A term lasts at
        most ``max_hold``, and no other candidate leads for ``at_least`` from its beginning. The rest is as with
        ``lock``.

        >>> import leasehold
        >>> with leasehold.connect("memory://") as hold:
        ...     with hold.election("scheduler", value="host-a").campaign(wait=5) as term:
        ...         hold.election("scheduler").leader().value
        'host-a'
        """
        from leasehold.primitives.health import check_health  # loaded only by programs that use it

        check = check_health(health, health_start_period, health_retries, awaited=self._asynchronous)
        if check is not None:
            if max_idle is not None:
                raise InvalidRequest(
                    "each answer of health is a beat, and a ttl without one ends the term already: leave out max_idle, "
                    "or leave out health and call term.beat()"
                )
            max_idle = ttl
        options = checked_options(
            ttl=ttl,
            wait=self._wait(wait),
            max_hold=max_hold,
            max_idle=max_idle,
            at_least=at_least,
            delay=delay,
            protects=protects,
            meta=meta,
            durability=durability,
        )
        self._engine.check_ttl(options.ttl_ms)
        return self._make_election(self._name(kind, ids), options, value, check)

    @property
    def store(self) -> str:
        """Where the leases are kept: a URL without login and options, such as ``redis://localhost:6379/0``. Nothing is
        sent. For a client that hides its address, the words that describe it.

        >>> import leasehold
        >>> hold = leasehold.connect("redis://app:secret@localhost/2", namespace="acme")
        >>> hold.store, hold.namespace, hold.closed
        ('redis://localhost:6379/2', 'acme', False)
        """
        return self._engine.store.url

    @property
    def namespace(self) -> str:
        """The prefix of all its names, as they are written; empty without one."""
        return self._namespace

    @property
    def closed(self) -> bool:
        """Whether ``close()`` was called, or the interpreter is about to end: it gives no more leases."""
        return self._engine.closed

    @property
    def guarantees(self) -> Guarantees:
        """What the store of this coordinator promises when something goes wrong. Nothing is sent.

        There is one entry for each event, such as a crash of the store or a step of its clock. It says whether two can
        hold a lease at the same time, whether fences go on growing, why, and which test shows it. ``str()`` of it is
        for people. What the settings of the server decide is told for all of them before the first call that reaches
        it, and afterwards for those that it has.

        >>> import leasehold
        >>> with leasehold.connect("memory://") as hold:
        ...     found = hold.guarantees.under("clock_forward")
        >>> found.exclusion, found.why
        ('holds', 'Leases run on a clock that is never set.')
        """
        from leasehold._core.guarantees import guarantees  # loaded only by programs that use it

        store = self._engine.store
        return guarantees(store.name, getattr(store, "impossible", {}))

    # ------------------------------------------------------------ checks

    def _name(self, kind: str, ids: tuple[Id, ...]) -> Name:
        try:
            return known_name(self._namespace, self._id_key, kind, *ids)
        except TypeError:  # what cannot be hashed gets the same error as any other wrong id
            return make_name(self._namespace, kind, ids, self._id_key)

    def _wait(self, wait: Wait) -> Any:
        return self._default_wait if isinstance(wait, Unset) else wait

    def _adoption(self, ticket: str, ttl: Duration | None, **options: Any) -> tuple[Ticket, Name, Options]:
        """What the ticket names, and how the lease is to be held, checked."""
        from leasehold._core.tickets import read  # loaded only by programs that use it

        self._engine.require("handover", "adopt()")
        known = read(ticket)
        ttl_given = known.ttl_ms / 1000 if ttl is None else ttl
        checked = checked_options(ttl=ttl_given, wait=None, warns=ttl is not None, **options)
        resource_names("", known.resource)  # a forged ticket must not make a key of what is no name
        return known, parse_name(known.resource, self._id_key), checked

    # ------------------------------------------------------------ what the flavours make

    def _decorator(
        self, kind: str, ids: tuple[Id, ...], on_busy: str, lease_as: str | None, options: dict[str, Any]
    ) -> Any:
        from leasehold.primitives.decorated_function import decorator, default_wait  # needs inspect: slow to load

        template = self.lock(kind, **{**default_wait(kind, on_busy), **options})  # wrong options are reported here
        return decorator(self._lock_maker(kind, template), ids, on_busy, lease_as, self._asynchronous)

    def _template(self, kind: str, **options: Any) -> Any:
        return self.lock(kind, **options)

    def _lock_maker(self, kind: str, template: Any) -> Callable[..., LockT]:
        return lambda *ids: self._make_lock(known_name(self._namespace, self._id_key, kind, *ids), template._options)

    @abstractmethod
    def _make_lock(self, name: Name, options: Options) -> LockT: ...

    @abstractmethod
    def _make_semaphore(self, name: Name, options: Options, limit: int, permits: int) -> SemaphoreT: ...

    @abstractmethod
    def _make_rwlock(self, name: Name) -> ReadWriteLockT: ...

    @abstractmethod
    def _make_election(self, name: Name, options: Options, value: Any, health: Health | None) -> ElectionT: ...

    def __reduce__(self) -> str:
        """The connections, the thread and the leases of a coordinator belong to its process."""
        raise TypeError("a coordinator stays in its process: send its URL, and call connect() in the other process")

    def __repr__(self) -> str:
        namespace = f", namespace {self._namespace}" if self._namespace else ""
        return f"<{type(self).__name__} on {self.store}{namespace}{', closed' if self.closed else ''}>"


def _or_env(value: Any, variable: str) -> Any:
    return os.environ.get(variable) or None if value is None else value
