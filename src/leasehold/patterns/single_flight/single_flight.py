"""``hold.single_flight``: the decorator, the call form, and how a call goes: look, take what is fresh, else fly."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol, TypeVar, cast

from leasehold._core.durations import seconds
from leasehold._core.names import Name, known_name
from leasehold._core.templates import Template
from leasehold.errors import InvalidRequest
from leasehold.patterns.results.result_store import check_keep, check_results
from leasehold.patterns.serialization import check_serializer, load_value, serializer_of
from leasehold.patterns.single_flight.background import TaskRebuilds, ThreadRebuilds
from leasehold.patterns.single_flight.cached_value import CachedValue, Freshness, error_of, value_of
from leasehold.patterns.single_flight.flights import Flight, FlightResult, TaskFlights, ThreadFlights
from leasehold.patterns.single_flight.rebuild import ANY_FENCE, DOWN, Rebuilder, RebuildFunction
from leasehold.primitives.decorated_function import DecoratedFunction, check_filled, check_function, check_kind

if TYPE_CHECKING:
    from typing import Concatenate

P = ParamSpec("P")
Q = ParamSpec("Q")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)
S = TypeVar("S")

ON_DOWN = ("raise", "call")
NOTHING = object()


class SingleFlightFunction(Protocol[P, R_co]):
    """A function under ``single_flight``. ``forget`` and ``refresh`` take the arguments of a call, ``self`` too."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co:
        """What is cached, or the outcome of one rebuild."""

    def forget(self, *args: P.args, **kwargs: P.kwargs) -> None:
        """Take away what is cached. It waits for a rebuild that runs, and takes its value away too."""

    def refresh(self, *args: P.args, **kwargs: P.kwargs) -> R_co:
        """Rebuild now, also when the value is fresh. Its error leaves the value in place."""

    def __get__(
        self: SingleFlightFunction[Concatenate[S, Q], R_co], instance: S, owner: type[S] | None = None, /
    ) -> Callable[Q, R_co]:
        """As a method."""


class AsyncSingleFlightFunction(Protocol[P, R_co]):
    """The same, awaited."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, R_co]:
        """What is cached, or the outcome of one rebuild."""

    def forget(self, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, None]:
        """Take away what is cached. It waits for a rebuild that runs, and takes its value away too."""

    def refresh(self, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, R_co]:
        """Rebuild now, also when the value is fresh. Its error leaves the value in place."""

    def __get__(
        self: AsyncSingleFlightFunction[Concatenate[S, Q], R_co], instance: S, owner: type[S] | None = None, /
    ) -> Callable[Q, Coroutine[Any, Any, R_co]]:
        """As a method."""


class SingleFlightOptions:
    """What ``hold.single_flight`` was given, checked."""

    def __init__(
        self,
        fresh: object,
        stale: object,
        errors: object,
        cache: object,
        serializer: object,
        lease_as: str | None,
        on_down: object,
    ) -> None:
        fresh_s = check_keep(fresh, "fresh") / 1000
        stale_s = 0.0 if stale is None else seconds(stale, "stale")
        errors_s = 0.0 if errors is None else seconds(errors, "errors")
        check_keep(fresh_s + stale_s, "fresh and stale together")
        check_keep(errors_s or 1, "errors")
        self.freshness = Freshness(fresh_s, stale_s, errors_s)
        self.cache = None if cache is None else check_results(cache, "cache")
        self.serializer = check_serializer(serializer)
        check_filled(lease_as)
        self.lease_as = lease_as
        if not isinstance(on_down, str) or on_down not in ON_DOWN:
            raise InvalidRequest('on_down must be "raise" or "call"')
        self.calls_alone = on_down == "call"


class BaseSingleFlight:
    """What both flavours share. ``model`` is the lock of the kind, whose options every flight has."""

    def __init__(self, hold: Any, kind: str, ids: Sequence[object], asked: SingleFlightOptions, model: Any) -> None:
        check_kind(kind)
        self._engine = hold._engine
        self._lock_options = model._options
        self._ids = [Template(one) for one in ids]
        self._fields = [name for one in self._ids for name in one.names]
        self._named = partial(known_name, hold._namespace, hold._id_key, kind)
        self._options = asked
        results = hold._results if asked.cache is None else asked.cache
        self._shared: SharedFlights = shared_flights(hold)
        self._flavour = hold._flavour
        make = partial(self._lock, hold._make_lock)
        self._rebuilder = Rebuilder(self._flavour, results, asked.freshness, asked.lease_as, make, id(self._engine))
        if not self._fields:
            self._name({})  # what is wrong with a name that is known is said now

    def _lock(self, make: Callable[..., Any], name: Name, wait: float | None) -> Any:
        options = self._lock_options
        return make(name, options if wait == options.wait else options.with_wait(wait))

    def _name(self, values: dict[str, Any]) -> Name:
        return self._named(*[one.text(values) for one in self._ids])

    def _own_name(self) -> Name:
        """For the call form."""
        if self._fields:
            raise InvalidRequest(
                f"{{{self._fields[0]}}} is filled in when a decorated function is called: here, give the id itself"
            )
        return self._name({})

    def _decorate(self, function: Callable[..., Any]) -> Any:
        check_function(function, self._flavour.asynchronous, "single_flight")
        called = DecoratedFunction(function, self._fields, self._options.lease_as)
        serializer = serializer_of(function, self._options.serializer)

        def name(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Name:
            return self._name(called.values(args, kwargs))

        async def run(*args: Any, **kwargs: Any) -> Any:
            return await self._get(name(args, kwargs), RebuildFunction(function, args, kwargs, serializer(), []))

        async def forget(*args: Any, **kwargs: Any) -> None:
            await self._forget(name(args, kwargs))

        async def refresh(*args: Any, **kwargs: Any) -> Any:
            return await self._refresh(name(args, kwargs), RebuildFunction(function, args, kwargs, serializer(), []))

        dressed: Any = called.dress(self._flavour.wrap(run))
        dressed.forget = self._flavour.wrap(forget)
        dressed.refresh = self._flavour.wrap(refresh)
        return dressed

    def _rebuild_function(
        self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> RebuildFunction:
        """For the call form."""
        check_function(function, self._flavour.asynchronous, "single_flight")
        return RebuildFunction(function, args, kwargs, serializer_of(function, self._options.serializer)(), [])

    # ------------------------------------------------------------ a call

    async def _get(self, name: Name, work: RebuildFunction) -> Any:
        self._engine.ensure_open()
        try:
            page = await self._rebuilder.read(name)
        except DOWN:
            if not self._may_call_alone():
                raise
            self._rebuilder.check_not_nested(name)
            landing = await self._join(name, lambda _flight, _wait: self._rebuilder.call_without_lease(name, work))
            return self._value_of(landing, work)
        value = self._cached(page, name, work)
        if value is not NOTHING:
            return value
        self._rebuilder.check_not_nested(name)
        seen = 0 if page is None else page.fence
        landing = await self._join(name, lambda flight, wait: self._lead(name, seen, work, wait, flight))
        return self._value_of(landing, work)

    def _cached(self, page: CachedValue | None, name: Name, work: RebuildFunction) -> Any:
        """What needs no waiting, if there is something: a value, or the error of a little while ago."""
        terms = self._options.freshness
        if page is None:
            return NOTHING
        value = self._readable(page, work) if terms.usable(page) else NOTHING
        if value is NOTHING:
            if terms.failed(page):
                raise error_of(page, name.text)
        elif not terms.is_fresh(page) and not terms.failed(page):
            self._rebuild_later(page, name, work)
        return value

    def _readable(self, page: CachedValue, work: RebuildFunction) -> Any:
        try:
            return load_value(work.serializer, page.value)
        except InvalidRequest:  # of another version of the program, say: it is made anew
            return NOTHING

    def _rebuild_later(self, page: CachedValue, name: Name, work: RebuildFunction) -> None:
        run = partial(self._rebuilder.rebuild_under_lease, name, page.fence, work, 0)
        self._shared.background.start(self._key(name), name.shown, run, self._lock_options.ttl_ms / 1000)

    async def _join(self, name: Name, lead: Callable[..., Coroutine[Any, Any, FlightResult]]) -> FlightResult:
        flights = self._shared.flights
        return await flights.join(self._key(name), lead, flights.remaining_wait(self._lock_options.wait))

    async def _lead(
        self, name: Name, seen: int, work: RebuildFunction, wait: float | None, flight: Flight
    ) -> FlightResult:
        """Trouble with the store that leaves this comes from before the function was called."""
        try:
            return await self._rebuilder.rebuild_under_lease(name, seen, work, wait, flight)
        except DOWN:
            if not self._may_call_alone():
                raise
        return await self._rebuilder.call_without_lease(name, work)

    def _may_call_alone(self) -> bool:
        return self._options.calls_alone and not self._engine.closed

    def _value_of(self, landing: FlightResult, work: RebuildFunction) -> Any:
        try:
            if landing.unkept is not None and work.unkept:
                return work.unkept.pop()
            landing.check()
            return value_of(work.serializer, landing.text)
        finally:
            del landing  # an error leads to this frame

    def _key(self, name: Name) -> Any:
        """Whoever shares the entry shares the flight."""
        return (id(self._rebuilder.results), name.text)

    async def _refresh(self, name: Name, work: RebuildFunction) -> Any:
        self._engine.ensure_open()
        return self._value_of(
            await self._rebuilder.rebuild_under_lease(name, ANY_FENCE, work, self._lock_options.wait), work
        )

    async def _forget(self, name: Name) -> None:
        self._engine.ensure_open()
        await self._rebuilder.forget(name, self._lock_options.wait)

    def __repr__(self) -> str:
        terms = self._options.freshness
        return f"<{type(self).__name__} fresh={terms.fresh:g}s stale={terms.stale:g}s errors={terms.errors:g}s>"


class SingleFlight(BaseSingleFlight):
    """For threads; made by ``hold.single_flight``. Decorate a function with it, or ``call`` one."""

    def __call__(self, function: Callable[P, R]) -> SingleFlightFunction[P, R]:
        """Decorate a function or a method."""
        return cast("SingleFlightFunction[P, R]", self._decorate(function))

    def call(self, function: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """What is cached under this name, or the outcome of one rebuild with this function."""
        name = self._own_name()
        return cast("R", self._flavour.wrap(self._get)(name, self._rebuild_function(function, args, kwargs)))

    def refresh(self, function: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Rebuild now, with this function."""
        name = self._own_name()
        return cast("R", self._flavour.wrap(self._refresh)(name, self._rebuild_function(function, args, kwargs)))

    def forget(self) -> None:
        """Take away what is cached under this name."""
        self._flavour.wrap(self._forget)(self._own_name())


class AsyncSingleFlight(BaseSingleFlight):
    """For asyncio: the same, awaited."""

    def __call__(self, function: Callable[P, Coroutine[Any, Any, R]]) -> AsyncSingleFlightFunction[P, R]:
        """Decorate a coroutine function or method."""
        return cast("AsyncSingleFlightFunction[P, R]", self._decorate(function))

    async def call(self, function: Callable[P, Coroutine[Any, Any, R]], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """What is cached under this name, or the outcome of one rebuild with this coroutine function."""
        name = self._own_name()
        return cast("R", await self._get(name, self._rebuild_function(function, args, kwargs)))

    async def refresh(self, function: Callable[P, Coroutine[Any, Any, R]], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Rebuild now, with this coroutine function."""
        name = self._own_name()
        return cast("R", await self._refresh(name, self._rebuild_function(function, args, kwargs)))

    async def forget(self) -> None:
        """Take away what is cached under this name."""
        await self._forget(self._own_name())


class SharedFlights:
    """What all flights of one coordinator share."""

    def __init__(self, hold: Any) -> None:
        engine = hold._engine
        self.flights = TaskFlights(engine) if hold._asynchronous else ThreadFlights(engine)
        self.background = TaskRebuilds(engine) if hold._asynchronous else ThreadRebuilds(engine)
        self.close = self.background.close


def shared_flights(hold: Any) -> SharedFlights:
    """Made when it is first needed, by one of the threads that need it."""
    if hold._shared_flights is None:
        made = SharedFlights(hold)
        if hold.__dict__.setdefault("_shared_flights", made) is made:
            hold._closers.append(made.close)
    crew: SharedFlights = hold._shared_flights
    return crew
