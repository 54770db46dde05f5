"""The patterns of both coordinators: ``once``, ``single_flight`` and ``cron``, with their documentation, written once.

What they return differs between threads and asyncio, and is a type parameter. Each pattern is loaded when it is used.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

from leasehold._core.light_typing import (
    TYPE_CHECKING,
    Any,
    Callable,
    Generic,
    Literal,
    TypeAlias,
    TypeVar,
    cast,
    overload,
)
from leasehold.primitives.base_lock import UNSET, Unset

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import date
    from uuid import UUID

    from leasehold._core.durations import Duration
    from leasehold._runtime.engine import Engine
    from leasehold.patterns.cron.schedule import CronClock
    from leasehold.patterns.flavour import Flavour
    from leasehold.patterns.results import ResultStore
    from leasehold.patterns.serialization import Serializer

    Id: TypeAlias = str | int | UUID | date
    Fingerprint: TypeAlias = str | Callable[..., Any] | None
    Errors: TypeAlias = type[Exception] | Sequence[type[Exception]] | Literal[True]
    OnDown: TypeAlias = Literal["raise", "call"]
    Missed: TypeAlias = Literal["skip", "once", "all"]
    Overlap: TypeAlias = Literal["skip", "wait"]

OnceT = TypeVar("OnceT")
LeasedOnceT = TypeVar("LeasedOnceT")  # the same with lease_as
FlightT = TypeVar("FlightT")
LeasedFlightT = TypeVar("LeasedFlightT")  # the same with lease_as
CronT = TypeVar("CronT")  # the decorator that cron() returns


class Patterns(ABC, Generic[OnceT, LeasedOnceT, FlightT, LeasedFlightT, CronT]):
    """The patterns of a coordinator of either flavour. ``_closers`` are called when it is closed, the last first."""

    _engine: Engine
    _id_key: bytes | None
    _closers: list[Callable[[], Any]]
    _own_results: ResultStore | None = None
    _asynchronous = False

    @property
    def _results(self) -> ResultStore:
        """On the same store as the leases, so that all who share the leases share the results too."""
        if self._own_results is None:
            from leasehold.coordinator.results import default_results

            mine = (default_results(self._engine, getattr(self, "_driver", None)),)
            first = self.__dict__.setdefault("_first_results", mine)  # another thread may have been faster
            self._own_results = first[0]
            if first is mine:
                self._closers.insert(0, first[0].close)  # closed last: patterns that still run write there
        return cast("ResultStore", self._own_results)

    @property
    def _flavour(self) -> Flavour:
        from leasehold.patterns.flavour import OnLoop, OnThread

        return OnLoop() if self._asynchronous else OnThread()

    @overload
    def once(
        self,
        kind: str,
        *ids: Id,
        keep: Duration = "24h",
        ttl: Duration = 30,
        wait: Duration | Unset | None = UNSET,
        max_hold: Duration | None = None,
        fingerprint: Fingerprint = None,
        errors: Errors = (),
        store: ResultStore | None = None,
        serializer: Serializer | None = None,
        lease_as: None = None,
    ) -> OnceT: ...

    @overload
    def once(
        self,
        kind: str,
        *ids: Id,
        keep: Duration = "24h",
        ttl: Duration = 30,
        wait: Duration | Unset | None = UNSET,
        max_hold: Duration | None = None,
        fingerprint: Fingerprint = None,
        errors: Errors = (),
        store: ResultStore | None = None,
        serializer: Serializer | None = None,
        lease_as: str,
    ) -> LeasedOnceT: ...

    def once(
        self,
        kind: str,
        *ids: Id,
        keep: Duration = "24h",
        ttl: Duration = 30,
        wait: Duration | Unset | None = UNSET,
        max_hold: Duration | None = None,
        fingerprint: Fingerprint = None,
        errors: Errors = (),
        store: ResultStore | None = None,
        serializer: Serializer | None = None,
        lease_as: str | None = None,
    ) -> Any:
        """Work that is done once for each key, in the whole fleet; its result is kept, and returned to later callers.

        ``kind`` and ``ids`` name the key; an id may be a template, as for ``locked``. A call that arrives while the
        work runs waits for its result, for at most ``wait``, and then raises NotAcquired. The result is kept for
        ``keep`` from when it is stored. ``fingerprint``, a template such as ``"{body}"`` or a function of the
        arguments, identifies the request: the same key with another fingerprint is KeyReused. An error frees the key,
        and the next call runs again; those in ``errors`` (classes, or True for all) are an outcome like a result, kept
        and raised again as RemoteError.

        ``ttl`` is that of the lease under which it runs: when its process dies, the next caller takes over after that
        long, with a higher fence, and one that was only paused can no longer store anything (StaleOwner). ``max_hold``
        is how long it may run: then its lease ends, and the next caller takes over, so that work which hangs does not
        block its key for ever. ``store`` is where results are kept, by default beside the leases. ``lease_as`` names a
        keyword-only parameter through which the function gets its lease.

        Every caller gets an equal result of the same type: types of the standard library, and dataclasses, enums,
        Pydantic models and the like that the return annotation or the module of the function names. An annotation that
        cannot be kept is InvalidRequest at decoration. A result that still cannot be stored is returned to its own
        caller, and later callers get ResultNotKept. ``serializer``, an object with ``dumps`` and ``loads``, replaces
        how results are written.

        >>> import leasehold
        >>> hold = leasehold.connect("memory://once")
        >>> @hold.once("payment", "{request_id}", keep="24h", fingerprint="{body}")
        ... def pay(request_id, body):
        ...     print("paying", body["amount"])
        ...     return {"paid": body["amount"]}
        >>> pay("r-1", {"amount": 5})
        paying 5
        {'paid': 5}
        >>> pay("r-1", {"amount": 5})
        {'paid': 5}
        >>> hold.close()

        In asyncio it decorates coroutine functions. When the lease is lost while one runs, the call is cancelled, and
        raises LeaseLost.

        >>> import asyncio
        >>> async def main():
        ...     async with leasehold.aio.connect("memory://once-aio") as hold:
        ...         @hold.once("payment", "{request_id}", fingerprint="{amount}")
        ...         async def pay(request_id, amount):
        ...             await asyncio.sleep(0.01)
        ...             print("paying", amount)
        ...             return amount
        ...         return await asyncio.gather(pay("r-1", 5), pay("r-1", 5), pay("r-1", 5))
        >>> asyncio.run(main())
        paying 5
        [5, 5, 5]
        """
        from leasehold.patterns.once import once  # loaded only by programs that use it
        from leasehold.patterns.results.memory import shared
        from leasehold.primitives.decorated_function import check_kind

        check_kind(kind)
        template = self._template(kind, ttl=ttl, wait=wait, max_hold=max_hold)
        if self._asynchronous:
            flavour: Any = once.AsyncOnce if lease_as is None else once.AsyncLeasedOnce
        else:
            flavour = once.Once if lease_as is None else once.LeasedOnce
        return flavour(
            self._lock_maker(kind, template),
            ids,
            self._flavour,
            self._id_key,
            keep=keep,
            fingerprint=fingerprint,
            store=lambda: self._results if store is None else shared(store, self._engine.store.name),
            serializer=serializer,
            errors=errors,
            lease_as=lease_as,
        )

    @overload
    def single_flight(
        self,
        kind: str,
        *ids: Id,
        ttl: Duration = 30,
        fresh: Duration = 60,
        stale: Duration | None = None,
        errors: Duration | None = None,
        wait: Duration | Unset | None = UNSET,
        max_hold: Duration | None = None,
        cache: ResultStore | None = None,
        serializer: Serializer | None = None,
        on_down: OnDown = "raise",
        lease_as: None = None,
    ) -> FlightT: ...

    @overload
    def single_flight(
        self,
        kind: str,
        *ids: Id,
        ttl: Duration = 30,
        fresh: Duration = 60,
        stale: Duration | None = None,
        errors: Duration | None = None,
        wait: Duration | Unset | None = UNSET,
        max_hold: Duration | None = None,
        cache: ResultStore | None = None,
        serializer: Serializer | None = None,
        on_down: OnDown = "raise",
        lease_as: str,
    ) -> LeasedFlightT: ...

    def single_flight(
        self,
        kind: str,
        *ids: Id,
        ttl: Duration = 30,
        fresh: Duration = 60,
        stale: Duration | None = None,
        errors: Duration | None = None,
        wait: Duration | Unset | None = UNSET,
        max_hold: Duration | None = None,
        cache: ResultStore | None = None,
        serializer: Serializer | None = None,
        on_down: str = "raise",
        lease_as: str | None = None,
    ) -> Any:
        """Decorate a function: its value is cached, and one caller in the whole fleet rebuilds it while the others wait
        for the outcome, value or error.

        A value is ``fresh`` for that long. For ``stale`` more it is still served at once, while one caller rebuilds it
        in the background. An error reaches the callers that waited; for ``errors`` seconds it also reaches later ones,
        in place of another rebuild. ``ttl`` is how soon a rebuilder that died is replaced, ``max_hold`` how long one
        may take, ``wait`` how long a caller waits for others. Ids are templates, and ``lease_as`` works, as with
        ``locked``. ``cache`` is where values are kept, by default beside the leases. With ``on_down="call"`` the
        function is called all the same when the store cannot be reached.

        Every caller gets an equal value of the same type, as with ``once``: the return annotation names classes, or the
        module does; an annotation that cannot be kept is InvalidRequest at decoration. A value that still cannot be
        stored is returned to its own caller, and others get ResultNotKept, for as long as it would be fresh.
        ``serializer``, an object with ``dumps`` and ``loads`` such as ``pickle``, replaces how values are written.

        >>> import leasehold
        >>> hold = leasehold.connect("memory://")
        >>> @hold.single_flight("page", "{key}", ttl=30, fresh=60, stale=600)
        ... def page(key):
        ...     print("rebuilding")
        ...     return f"<h1>{key}</h1>"
        >>> page("home")
        rebuilding
        '<h1>home</h1>'
        >>> page("home")
        '<h1>home</h1>'
        >>> page.forget("home")
        >>> hold.single_flight("page", "home", fresh=60).call(str.upper, "new")
        'NEW'
        >>> hold.close()

        In asyncio it decorates coroutine functions. A rebuild runs in a task of its own, with the context of the first
        caller. It goes on while any caller waits for it: cancelling one of them does not affect the others, and
        cancelling the last one ends it.

        >>> import asyncio
        >>> async def main():
        ...     async with leasehold.aio.connect("memory://") as hold:
        ...         @hold.single_flight("page", "{key}")
        ...         async def page(key):
        ...             print("rebuilding")
        ...             await asyncio.sleep(0.01)
        ...             return f"<h1>{key}</h1>"
        ...         return await asyncio.gather(page("news"), page("news"))
        >>> asyncio.run(main())
        rebuilding
        ['<h1>news</h1>', '<h1>news</h1>']
        """
        from leasehold.patterns.single_flight import single_flight  # loaded only by programs that use it

        options = single_flight.SingleFlightOptions(
            fresh=fresh,
            stale=stale,
            errors=errors,
            cache=cache,
            serializer=serializer,
            lease_as=lease_as,
            on_down=on_down,
        )
        template = self._template(kind, ttl=ttl, wait=wait, max_hold=max_hold)
        flavour: Any = single_flight.AsyncSingleFlight if self._asynchronous else single_flight.SingleFlight
        return flavour(self, kind, ids, options, template)

    def cron(
        self,
        expression: str,
        kind: str,
        *ids: Id,
        timezone: str = "UTC",
        missed: Missed = "skip",
        overlap: Overlap = "skip",
        grace: Duration | None = None,
        at_least: Duration | None = None,
        at_most: Duration | None = None,
        ttl: Duration = 30,
        lease_as: str | None = None,
        store: ResultStore | None = None,
        clock: CronClock | None = None,
    ) -> CronT:
        """Decorate a function that is to be run at each tick of a cron expression, by one process of the fleet.

        The function gets the tick, an aware datetime of the scheduled time, if it takes a parameter. It is run while
        the lease on ``kind`` and ``ids`` is held, from when ``start()`` or ``run()`` of the returned
        :class:`leasehold.patterns.Cron` is called. A tick is claimed before it is run: a run that dies is not repeated.
        In asyncio it decorates coroutine functions. A run is a task of the loop on which it is started, and is
        cancelled when its lease is lost.

        A tick that no process began within ``grace`` (a minute, and at least two ttls), or before the next one came, is
        missed. ``missed="skip"`` leaves it at that, ``"once"`` makes one run up for all of them, however late, and
        ``"all"`` one for each, in order. A tick that comes while a run is under way is left out with
        ``overlap="skip"``, and run after it with ``"wait"``.

        ``at_least`` and ``ttl`` are as with ``lock``; after ``at_most`` the lease of a run is lost. ``lease_as`` names
        a keyword-only parameter through which the function gets its lease. ``store`` is where the history is kept, by
        default beside the leases. ``clock`` is for tests.

        >>> import leasehold
        >>> hold = leasehold.connect("memory://")
        >>> @hold.cron("*/5 * * * *", "rollup", at_least="30s", missed="skip")
        ... def rollup(tick):
        ...     print("rolling up to", tick)
        >>> rollup.start()
        <Cron '*/5 * * * *' rollup>
        >>> rollup.stop()
        True
        >>> hold.close()
        """
        from leasehold.patterns.cron.cron import decorator  # needs cronsim, and much of the standard library

        options = {"missed": missed, "overlap": overlap, "grace": grace, "store": store, "clock": clock}
        lease = {"at_least": at_least, "at_most": at_most, "ttl": ttl}
        decorate: Any = decorator(self, expression, timezone, (kind, *ids), lease_as, {**options, **lease})
        return decorate  # type: ignore[no-any-return]  # CronT: the flavour decides

    @abstractmethod
    def _template(self, kind: str, **options: Any) -> Any:
        """A lock whose options are checked now, so that a mistake is reported at decoration, not at the first call."""

    @abstractmethod
    def _lock_maker(self, kind: str, template: Any) -> Callable[..., Any]:
        """Makes the lock for the ids of one call of a decorated function, with the options of the template."""
