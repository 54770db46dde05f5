"""How a value is rebuilt: under the lease of its name, looked at again before, and written with its fence.

The result store decides, not the clock. What it accepted counts, also when the lease was over by then: nobody
newer had come.
What it refused is nobody's; its caller gets what the newer one has written, or LeaseLost.
"""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextvars import ContextVar
from typing import Any, NamedTuple, TypeVar

from leasehold._core.names import Name
from leasehold.errors import InvalidRequest, LeaseLost, OutcomeUnknown, StaleOwner, StoreUnavailable
from leasehold.observe import log
from leasehold.patterns.flavour import Flavour
from leasehold.patterns.results.result_store import ResultStore
from leasehold.patterns.serialization import load_value, may_be_too_large
from leasehold.patterns.single_flight.cached_value import (
    CachedValue,
    Freshness,
    error_of,
    error_text,
    not_kept,
    read_cached,
    value_of,
    value_text,
)
from leasehold.patterns.single_flight.flights import Flight, FlightResult
from leasehold.primitives.decorated_function import name_of

DOWN = (StoreUnavailable, OutcomeUnknown)
ANY_FENCE = float("inf")  # as what was seen: nothing on the result store is newer than that

R = TypeVar("R")


class RebuildFunction(NamedTuple):
    """What the user wrote, and how it is called."""

    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    serializer: Any
    unkept: list[Any]  # the value that it gave to this caller and that could not be kept


class CurrentRebuild:
    """A rebuild that the calling thread or task stands in."""

    __slots__ = ("key", "over")

    def __init__(self, key: Any) -> None:
        self.key = key
        self.over = False


_current: ContextVar[tuple[CurrentRebuild, ...]] = ContextVar("leasehold-aloft", default=())


class Rebuilder:
    """For all names of one ``single_flight``."""

    def __init__(
        self,
        flavour: Flavour,
        results: ResultStore,
        freshness: Freshness,
        lease_as: str | None,
        make_lock: Callable[[Name, float | None], Any],
        home: object,
    ) -> None:
        self.flavour = flavour
        self.results = results
        self.terms = freshness
        self._lease_as = lease_as
        self._make_lock = make_lock
        self._coordinator = (
            home  # of one coordinator: another one may wait for this one, and gets its turn when time is over
        )

    async def read(self, name: Name) -> CachedValue | None:
        """What anybody can see."""
        return read_cached(await self._settled(self.results.read(name.text)), name.text)

    async def rebuild_under_lease(
        self, name: Name, seen: float, work: RebuildFunction, wait: float | None, flight: Flight | None = None
    ) -> FlightResult:
        """Under the lease: take what came since ``seen`` (a fence), else rebuild. The flight is closed before the lease
        ends."""
        known = flight or Flight({}, name.text)

        async def body(lease: Any) -> FlightResult:
            known.use_lease(lease)
            try:
                page = await self._open(lease)
                newer = self._result_of(page, name, work) if page is not None and page.fence > seen else None
                return newer or await self._rebuild(lease, page, work)
            finally:
                known.close()

        try:
            return await self._with_lease(name, wait, body)
        except LeaseLost as loss:
            landing = await self._newer_result(name, loss, work)
            if landing is None:
                raise
            return landing

    async def forget(self, name: Name, wait: float | None) -> None:
        async def body(lease: Any) -> None:
            await self._open(lease)  # what another pattern wrote is not ours to take away
            await self._settled(self.results.write(lease, None, 1))

        await self._with_lease(name, wait, body)

    async def call_without_lease(self, name: Name, work: RebuildFunction) -> FlightResult:
        """Without a lease."""
        with self._nested(name):
            return await self._called(name.text, work, None)

    async def _called(self, resource: str, work: RebuildFunction, lease: Any) -> FlightResult:
        """What it gave, or its error. What cannot be kept has been made all the same: it is its caller's."""
        kwargs = work.kwargs if self._lease_as is None else {**work.kwargs, self._lease_as: lease}
        outcome = await self.flavour.call(work.function, work.args, kwargs)
        if outcome.error is not None:
            return FlightResult(error=outcome.error)
        try:
            return FlightResult(value_text(work.serializer, outcome.value, f"the result of {name_of(work.function)}()"))
        except InvalidRequest as error:
            return _unkept(resource, work, lease, outcome.value, error)

    # ------------------------------------------------------------ under the lease

    async def _with_lease(self, name: Name, wait: float | None, body: Callable[[Any], Coroutine[Any, Any, R]]) -> R:
        """What the body gives counts: each of its writes was checked by the results. LeaseLost, when it gives
        nothing."""
        given: list[R] = []
        try:
            with self._nested(name):
                async with self.flavour.enter(self._make_lock(name, wait)) as lease:
                    given.append(await body(lease))
        except StaleOwner as error:
            if error.resource != name.text:
                raise
            raise LeaseLost(
                "somebody else has taken over: this lease had ended, and what came of it was not kept",
                reason="taken",
                resource=name.text,
                fence=error.fence,
            ) from error
        except LeaseLost:
            if not given:
                raise
        return given[0]

    async def _rebuild(self, lease: Any, page: CachedValue | None, work: RebuildFunction) -> FlightResult:
        landing = await self._called(lease.resource, work, lease)
        if landing.error is None:
            landing = await self._store_value(lease, landing, work)
        error = landing.error
        if error is None:
            return landing
        if isinstance(error, (LeaseLost, StaleOwner)) and error.resource == lease.resource:
            raise error
        try:
            await self._store_error(lease, landing, page, work)
        except StaleOwner as refused:
            raise refused from error  # what went wrong first must not get lost
        return landing

    async def _store_error(
        self, lease: Any, landing: FlightResult, page: CachedValue | None, work: RebuildFunction
    ) -> None:
        """For those who wait, and for ``errors`` seconds for everybody. A value that still counts stays beside it."""
        assert landing.error is not None  # noqa: S101  # for the type checker: there is nothing else to tell
        counts = self.terms.errors if landing.unkept is None else self.terms.unkept
        try:
            if page is not None:
                page = await self._open(lease)  # its age by the result store's clock
            beside = page if self.terms.usable(page) else None
            if beside is None or counts or not self._readable(beside, work):
                rest = 0.0 if beside is None else self.terms.keep - beside.value_age
                text = error_text(landing.error, beside, landing.unkept)
                await self._settled(self.results.write(lease, text, max(counts, lease.ttl, rest)))
        except DOWN as trouble:
            _not_kept(trouble)
        except InvalidRequest:  # too long together with the value, which then stays alone
            return

    async def _store_value(self, lease: Any, landing: FlightResult, work: RebuildFunction) -> FlightResult:
        """What cannot be written is still the outcome of this flight. A result store that refuses a value for what
        it is, or
        hangs up on one that is large, would do so each time: it is its caller's alone."""
        try:
            await self._settled(self.results.write(lease, landing.text, self.terms.keep))
        except (InvalidRequest, *DOWN) as trouble:
            if isinstance(trouble, InvalidRequest) or (
                isinstance(trouble, OutcomeUnknown) and may_be_too_large(landing.text)
            ):
                value = value_of(work.serializer, landing.text)
                return _unkept(lease.resource, work, lease, value, trouble)
            _not_kept(trouble)
        return landing

    async def _open(self, lease: Any) -> CachedValue | None:
        return read_cached(await self._settled(self.results.open(lease)), lease.resource)

    # ------------------------------------------------------------ what others wrote

    def _result_of(self, page: CachedValue, name: Name, work: RebuildFunction) -> FlightResult | None:
        """The flight that was waited for. A value that cannot be read, of another version of the program, is none."""
        if self.terms.usable(page) and self._readable(page, work):
            return FlightResult(page.text)
        return None if page.error is None else FlightResult(error=error_of(page, name.text))

    def _readable(self, page: CachedValue, work: RebuildFunction) -> bool:
        try:
            load_value(work.serializer, page.value)
        except InvalidRequest:
            return False
        return True

    async def _newer_result(self, name: Name, loss: LeaseLost, work: RebuildFunction) -> FlightResult | None:
        """What somebody newer wrote."""
        try:
            page = await self.read(name)
        except DOWN:
            return None
        newer = page is not None and loss.fence is not None and page.fence > loss.fence
        return self._result_of(page, name, work) if newer and page is not None else None

    @contextlib.contextmanager
    def _nested(self, name: Name) -> Iterator[None]:
        self.check_not_nested(name)
        aloft = CurrentRebuild((self._coordinator, name.text))
        token = _current.set((*_current.get(), aloft))
        try:
            yield
        finally:
            aloft.over = True
            _current.reset(token)

    def check_not_nested(self, name: Name) -> None:
        """Whoever waits for what it is itself at work on waits for ever."""
        key = (self._coordinator, name.text)
        if any(one.key == key and not one.over for one in _current.get()):
            raise InvalidRequest(
                "a rebuild asks for the very value that it is to make, and would wait for itself: call the function "
                "under the decorator (.__wrapped__), or ask for another name",
                resource=name.text,
            )

    async def _settled(self, value: R | Awaitable[R]) -> R:
        return await self.flavour.resolve(value)


def _unkept(resource: str, work: RebuildFunction, lease: Any, value: Any, error: Exception) -> FlightResult:
    log.warn("single_flight could not keep a value, which only its caller gets: %s", error)
    work.unkept[:] = [value]
    what = type(value).__name__[:100]
    return FlightResult(error=not_kept(resource, lease and lease.fence, what), unkept=what)


def _not_kept(trouble: Exception) -> None:
    log.warn("single_flight could not keep the outcome of a rebuild: %r", trouble, error=trouble)


def outside_rebuilds() -> None:
    """For work that is started on its own: nobody waits for it."""
    _current.set(())
