"""``hold.single_flight``: the decorator and the call form. A call returns a cached value, or joins a flight."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol, TypeVar, cast

from leasehold._core.durations import seconds
from leasehold._core.names import Name, known_name
from leasehold._core.templates import NameTemplate
from leasehold.errors import InvalidRequest
from leasehold.patterns.results.result_store import check_keep, check_results
from leasehold.patterns.serialization import check_serializer, load_value, serializer_of
from leasehold.patterns.single_flight.background import TaskRebuilds, ThreadRebuilds
from leasehold.patterns.single_flight.cached_value import CachedValue, Freshness, error_of, value_of
from leasehold.patterns.single_flight.flights import Flight, FlightResult, TaskFlights, ThreadFlights
from leasehold.patterns.single_flight.rebuild import DOWN, REBUILD_ALWAYS, Rebuilder, RebuildFunction
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
        """The cached value, or the outcome of one rebuild."""

    def forget(self, *args: P.args, **kwargs: P.kwargs) -> None:
        """Delete what is cached. Waits for a running rebuild, and deletes its value too."""

    def refresh(self, *args: P.args, **kwargs: P.kwargs) -> R_co:
        """Rebuild now, even if the value is fresh. An error leaves the value in place."""

    def __get__(
        self: SingleFlightFunction[Concatenate[S, Q], R_co], instance: S, owner: type[S] | None = None, /
    ) -> Callable[Q, R_co]:
        """As a method."""


class AsyncSingleFlightFunction(Protocol[P, R_co]):
    """The same, awaited."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, R_co]:
        """The cached value, or the outcome of one rebuild."""

    def forget(self, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, None]:
        """Delete what is cached. Waits for a running rebuild, and deletes its value too."""

    def refresh(self, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, R_co]:
        """Rebuild now, even if the value is fresh. An error leaves the value in place."""

    def __get__(
        self: AsyncSingleFlightFunction[Concatenate[S, Q], R_co], instance: S, owner: type[S] | None = None, /
    ) -> Callable[Q, Coroutine[Any, Any, R_co]]:
        """As a method."""


class SingleFlightOptions:
    """The arguments of ``hold.single_flight``, checked."""

    def __init__(
        self,
        *,
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
        self.calls_without_lease = on_down == "call"


class BaseSingleFlight:
    """What both flavours share. ``model`` is a lock of the kind; every flight has its options."""

    def __init__(self, hold: Any, kind: str, ids: Sequence[object], options: SingleFlightOptions, model: Any) -> None:
        check_kind(kind)
        self._engine = hold._engine
        self._flavour = hold._flavour
        self._options = options
        self._lock_options = model._options
        self._make_lock = hold._make_lock
        self._template = NameTemplate(ids)
        self._make_name = partial(known_name, hold._namespace, hold._id_key, kind)
        self._shared = shared_flights(hold)
        self._rebuilder = Rebuilder(
            flavour=hold._flavour,
            results=hold._results if options.cache is None else options.cache,
            freshness=options.freshness,
            lease_as=options.lease_as,
            make_lock=self._lock,
            coordinator=id(hold._engine),
            observers=hold._engine.observers,
        )
        if not self._template.names:
            self._name({})  # a wrong name that is known now is reported now

    def _lock(self, name: Name, wait: float | None) -> Any:
        options = self._lock_options
        return self._make_lock(name, options if wait == options.wait else options.with_wait(wait))

    def _name(self, values: dict[str, Any]) -> Name:
        return self._make_name(*self._template.ids(values))

    def _fixed_name(self) -> Name:
        """The name for the call form, which has no arguments to fill in."""
        if self._template.names:
            raise InvalidRequest(
                f"{{{self._template.names[0]}}} is filled in when a decorated function is called: here, give the id "
                "itself"
            )
        return self._name({})

    def _decorate(self, function: Callable[..., Any]) -> Any:
        check_function(function, self._flavour.asynchronous, "single_flight")
        decorated = DecoratedFunction(function, self._template.names, self._options.lease_as)
        serializer = serializer_of(function, self._options.serializer)

        def name(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Name:
            return self._name(decorated.values(args, kwargs))

        async def run(*args: Any, **kwargs: Any) -> Any:
            return await self._get(name(args, kwargs), RebuildFunction(function, args, kwargs, serializer()))

        async def forget(*args: Any, **kwargs: Any) -> None:
            await self._forget(name(args, kwargs))

        async def refresh(*args: Any, **kwargs: Any) -> Any:
            return await self._refresh(name(args, kwargs), RebuildFunction(function, args, kwargs, serializer()))

        dressed: Any = decorated.dress(self._flavour.wrap(run))
        dressed.forget = self._flavour.wrap(forget)
        dressed.refresh = self._flavour.wrap(refresh)
        return dressed

    def _rebuild_function(
        self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> RebuildFunction:
        """The work of the call form."""
        check_function(function, self._flavour.asynchronous, "single_flight")
        return RebuildFunction(function, args, kwargs, serializer_of(function, self._options.serializer)())

    # ------------------------------------------------------------ a call

    async def _get(self, name: Name, work: RebuildFunction) -> Any:
        """Return the cached value, or the outcome of a flight."""
        self._engine.ensure_open()
        try:
            cached = await self._rebuilder.read(name)
        except DOWN:
            if not self._may_call_without_lease():
                raise
            self._rebuilder.check_not_nested(name)
            result = await self._join(name, work, lambda _flight, _wait: self._rebuilder.call_without_lease(name, work))
            return self._value_of(result, work)
        value = self._cached(cached, name, work)
        if value is not NOTHING:
            return value
        self._rebuilder.check_not_nested(name)
        fence = 0 if cached is None else cached.fence
        result = await self._join(name, work, lambda flight, wait: self._lead(name, fence, work, wait, flight))
        return self._value_of(result, work)

    def _cached(self, cached: CachedValue | None, name: Name, work: RebuildFunction) -> Any:
        """The cached value, or NOTHING. Raises a recent error. A stale value starts a rebuild in the background."""
        freshness = self._options.freshness
        if cached is None:
            return NOTHING
        value = self._readable(cached, work) if freshness.usable(cached) else NOTHING
        if value is NOTHING:
            if freshness.failed(cached):
                self._rebuilder.report(name, "error_hit")
                raise error_of(cached, name.text)
            return value
        fresh = freshness.is_fresh(cached)
        self._rebuilder.report(name, "hit" if fresh else "stale")
        if not fresh and not freshness.failed(cached):
            self._rebuild_later(cached, name, work)
        return value

    def _readable(self, cached: CachedValue, work: RebuildFunction) -> Any:
        try:
            return load_value(work.serializer, cached.value)
        except InvalidRequest:  # such as one of another version of the program: it is rebuilt
            return NOTHING

    def _rebuild_later(self, cached: CachedValue, name: Name, work: RebuildFunction) -> None:
        run = partial(self._rebuilder.rebuild, name, cached.fence, work, 0)
        self._shared.background.start(self._key(name), name.shown, run, self._lock_options.ttl_ms / 1000)

    async def _join(
        self, name: Name, work: RebuildFunction, lead: Callable[..., Coroutine[Any, Any, FlightResult]]
    ) -> FlightResult:
        flights = self._shared.flights
        result = await flights.join(self._key(name), lead, flights.remaining_wait(self._lock_options.wait))
        if not work.ran:
            self._rebuilder.report(name, "shared")
        return result

    async def _lead(
        self, name: Name, fence: int, work: RebuildFunction, wait: float | None, flight: Flight
    ) -> FlightResult:
        """Rebuild under the lease. If the store is down, the error comes before the function was called."""
        try:
            return await self._rebuilder.rebuild(name, fence, work, wait, flight)
        except DOWN:
            if not self._may_call_without_lease():
                raise
        return await self._rebuilder.call_without_lease(name, work)

    def _may_call_without_lease(self) -> bool:
        return self._options.calls_without_lease and not self._engine.closed

    def _value_of(self, result: FlightResult, work: RebuildFunction) -> Any:
        try:
            if result.unkept is not None and work.unkept:
                return work.unkept.pop()
            result.check()
            return value_of(work.serializer, result.text)
        finally:
            del result  # breaks a reference cycle: its error refers to this frame

    def _key(self, name: Name) -> Any:
        """Callers that share an entry of a result store share a flight."""
        return (id(self._rebuilder.results), name.text)

    async def _refresh(self, name: Name, work: RebuildFunction) -> Any:
        self._engine.ensure_open()
        result = await self._rebuilder.rebuild(name, REBUILD_ALWAYS, work, self._lock_options.wait)
        return self._value_of(result, work)

    async def _forget(self, name: Name) -> None:
        self._engine.ensure_open()
        await self._rebuilder.forget(name, self._lock_options.wait)

    def __repr__(self) -> str:
        freshness = self._options.freshness
        times = f"fresh={freshness.fresh:g}s stale={freshness.stale:g}s errors={freshness.errors:g}s"
        return f"<{type(self).__name__} {times}>"


class SingleFlight(BaseSingleFlight):
    """For threads; made by ``hold.single_flight``. Decorate a function with it, or ``call`` one."""

    def __call__(self, function: Callable[P, R]) -> SingleFlightFunction[P, R]:
        """Decorate a function or a method."""
        return cast("SingleFlightFunction[P, R]", self._decorate(function))

    def call(self, function: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """The value cached under this name, or the outcome of one rebuild with this function."""
        name = self._fixed_name()
        return cast("R", self._flavour.wrap(self._get)(name, self._rebuild_function(function, args, kwargs)))

    def refresh(self, function: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Rebuild now, with this function."""
        name = self._fixed_name()
        return cast("R", self._flavour.wrap(self._refresh)(name, self._rebuild_function(function, args, kwargs)))

    def forget(self) -> None:
        """Delete what is cached under this name."""
        self._flavour.wrap(self._forget)(self._fixed_name())


class AsyncSingleFlight(BaseSingleFlight):
    """For asyncio: the same, awaited."""

    def __call__(self, function: Callable[P, Coroutine[Any, Any, R]]) -> AsyncSingleFlightFunction[P, R]:
        """Decorate a coroutine function or method."""
        return cast("AsyncSingleFlightFunction[P, R]", self._decorate(function))

    async def call(self, function: Callable[P, Coroutine[Any, Any, R]], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """The value cached under this name, or the outcome of one rebuild with this coroutine function."""
        name = self._fixed_name()
        return cast("R", await self._get(name, self._rebuild_function(function, args, kwargs)))

    async def refresh(self, function: Callable[P, Coroutine[Any, Any, R]], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Rebuild now, with this coroutine function."""
        name = self._fixed_name()
        return cast("R", await self._refresh(name, self._rebuild_function(function, args, kwargs)))

    async def forget(self) -> None:
        """Delete what is cached under this name."""
        await self._forget(self._fixed_name())


class SharedFlights:
    """What all single flights of one coordinator share."""

    def __init__(self, hold: Any) -> None:
        engine = hold._engine
        self.flights = TaskFlights(engine) if hold._asynchronous else ThreadFlights(engine)
        self.background = TaskRebuilds(engine) if hold._asynchronous else ThreadRebuilds(engine)
        self.close = self.background.close


def shared_flights(hold: Any) -> SharedFlights:
    """Those of a coordinator. They are made when first needed, by one of the threads that need them."""
    shared: SharedFlights | None = hold.__dict__.get("_shared_flights")
    if shared is None:
        made = SharedFlights(hold)
        shared = hold.__dict__.setdefault("_shared_flights", made)
        if shared is made:
            hold._closers.append(made.close)
    return shared
