"""How a value is rebuilt: under the lease of its name, after reading again, and written with its fence.

The result store decides, not the clock. A write that it accepted counts, even if the lease had expired by then: no
newer holder had come. A write that it refused counts for no caller: its own caller gets what the newer holder has
written, or LeaseLost.
"""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, TypeVar

from leasehold._core.names import Name
from leasehold.errors import InvalidRequest, LeaseLost, OutcomeUnknown, StaleOwner, StoreUnavailable
from leasehold.observe import log
from leasehold.observe.events import FlightServed
from leasehold.observe.observers import Observers
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
REBUILD_ALWAYS = float("inf")  # as ``newer_than``: no entry on the result store has a higher fence

R = TypeVar("R")


@dataclass(slots=True)
class RebuildFunction:
    """The user's function, the arguments of one call, and how its result is serialized."""

    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    serializer: Any
    unkept: list[Any] = field(default_factory=list)  # a value that this call made and that could not be kept
    ran: bool = False  # the function was called, and not only the outcome of another call used


class CurrentRebuild:
    """A rebuild inside which the calling thread or task is."""

    __slots__ = ("ended", "key")

    def __init__(self, key: Any) -> None:
        self.key = key
        self.ended = False


_current: ContextVar[tuple[CurrentRebuild, ...]] = ContextVar("leasehold-rebuilds", default=())


@dataclass(frozen=True, slots=True, kw_only=True)
class Rebuilder:
    """Rebuilds the values of one ``single_flight``, for all its names.

    ``coordinator`` identifies the coordinator: a rebuild that waits for itself is recognised within one coordinator. A
    nested call through another one is not; it waits, and its wait runs out."""

    flavour: Flavour
    results: ResultStore
    freshness: Freshness
    lease_as: str | None
    make_lock: Callable[[Name, float | None], Any]
    coordinator: object
    observers: Observers

    async def read(self, name: Name) -> CachedValue | None:
        """What is cached, without a lease."""
        return read_cached(await self._resolve(self.results.read(name.text)), name.text)

    async def rebuild(
        self, name: Name, newer_than: float, work: RebuildFunction, wait: float | None, flight: Flight | None = None
    ) -> FlightResult:
        """Under the lease: return what is cached with a fence above ``newer_than``, or rebuild. The flight is closed
        before the lease ends."""
        shared = flight or Flight({}, name.text)

        async def body(lease: Any) -> FlightResult:
            shared.use_lease(lease)
            try:
                cached = await self._open(lease)
                newer = self._result_of(cached, name, work) if cached and cached.fence > newer_than else None
                return newer or await self._call_and_store(name, lease, cached, work)
            finally:
                shared.close()

        try:
            return await self._with_lease(name, wait, body)
        except LeaseLost as loss:
            result = await self._newer_result(name, loss, work)
            if result is None:
                raise
            return result

    async def forget(self, name: Name, wait: float | None) -> None:
        async def body(lease: Any) -> None:
            await self._open(lease)  # raises if another pattern wrote the entry: that must not be deleted
            await self._resolve(self.results.write(lease, None, 1))

        await self._with_lease(name, wait, body)

    async def call_without_lease(self, name: Name, work: RebuildFunction) -> FlightResult:
        """Call the function without a lease, and store nothing."""
        with self._marked_current(name):
            return await self._call(name, work, None)

    async def _call(self, name: Name, work: RebuildFunction, lease: Any) -> FlightResult:
        """Call the function. A value that cannot be kept is returned to its own caller all the same."""
        kwargs = work.kwargs if self.lease_as is None else {**work.kwargs, self.lease_as: lease}
        work.ran = True
        outcome = await self.flavour.call(work.function, work.args, kwargs)
        self.report(name, "rebuilt" if outcome.error is None else "error")
        if outcome.error is not None:
            return FlightResult(error=outcome.error)
        try:
            return FlightResult(value_text(work.serializer, outcome.value, f"the result of {name_of(work.function)}()"))
        except InvalidRequest as error:
            return _unkept_result(name.text, work, lease, outcome.value, error)

    def report(self, name: Name, outcome: str) -> None:
        """What a call, or a rebuild, came to."""
        if self.observers.observers:
            self.observers.notify(FlightServed(name.kind, name.id_hash, outcome))

    # ------------------------------------------------------------ under the lease

    async def _with_lease(self, name: Name, wait: float | None, body: Callable[[Any], Coroutine[Any, Any, R]]) -> R:
        """The result of the body, also when the lease is lost afterwards: the result store has checked each of its
        writes. LeaseLost, if the body has no result."""
        results: list[R] = []
        try:
            with self._marked_current(name):
                async with self.flavour.enter(self.make_lock(name, wait)) as lease:
                    results.append(await body(lease))
        except StaleOwner as error:
            if error.resource != name.text:
                raise
            raise LeaseLost(
                "another holder has taken over: this lease had ended, and the outcome of the rebuild was not kept",
                reason="taken",
                resource=name.text,
                fence=error.fence,
            ) from error
        except LeaseLost:
            if not results:
                raise
        return results[0]

    async def _call_and_store(
        self, name: Name, lease: Any, cached: CachedValue | None, work: RebuildFunction
    ) -> FlightResult:
        result = await self._call(name, work, lease)
        if result.error is None:
            result = await self._store_value(lease, result, work)
        error = result.error
        if error is None:
            return result
        if isinstance(error, (LeaseLost, StaleOwner)) and error.resource == lease.resource:
            raise error
        try:
            await self._store_error(lease, result, error, cached, work)
        except StaleOwner as refused:
            raise refused from error  # the first error must not get lost
        return result

    async def _store_error(
        self, lease: Any, result: FlightResult, error: Exception, cached: CachedValue | None, work: RebuildFunction
    ) -> None:
        """Store an error: for the waiters, and for ``errors`` seconds for all callers. A value that still counts is
        kept beside it."""
        counts = self.freshness.errors if result.unkept is None else self.freshness.unkept
        try:
            if cached is not None:
                cached = await self._open(lease)  # again: its age by the result store's clock
            value = cached if self.freshness.usable(cached) else None
            if value is None or counts or not self._readable(value, work):
                rest = 0.0 if value is None else self.freshness.keep - value.value_age
                text = error_text(error, value, result.unkept)
                await self._resolve(self.results.write(lease, text, max(counts, lease.ttl, rest)))
        except DOWN as problem:
            _log_not_stored(problem)
        except InvalidRequest:  # too long together with the value, which then stays alone
            return

    async def _store_value(self, lease: Any, result: FlightResult, work: RebuildFunction) -> FlightResult:
        """Store a value. If the store is down, the value is still the outcome of this flight. A result store that
        refuses the value itself, or drops the connection on a large one, would do so each time: then only its own
        caller gets it."""
        try:
            await self._resolve(self.results.write(lease, result.text, self.freshness.keep))
        except (InvalidRequest, *DOWN) as problem:
            large = isinstance(problem, OutcomeUnknown) and may_be_too_large(result.text)
            if large or isinstance(problem, InvalidRequest):
                return _unkept_result(lease.resource, work, lease, value_of(work.serializer, result.text), problem)
            _log_not_stored(problem)
        return result

    async def _open(self, lease: Any) -> CachedValue | None:
        """What is cached, read under the lease: older holders can no longer write."""
        return read_cached(await self._resolve(self.results.open(lease)), lease.resource)

    # ------------------------------------------------------------ what other processes wrote

    def _result_of(self, cached: CachedValue, name: Name, work: RebuildFunction) -> FlightResult | None:
        """The outcome of another process's rebuild. A value that this version of the program cannot read is none."""
        if self.freshness.usable(cached) and self._readable(cached, work):
            return FlightResult(cached.text)
        return None if cached.error is None else FlightResult(error=error_of(cached, name.text))

    def _readable(self, cached: CachedValue, work: RebuildFunction) -> bool:
        try:
            load_value(work.serializer, cached.value)
        except InvalidRequest:
            return False
        return True

    async def _newer_result(self, name: Name, loss: LeaseLost, work: RebuildFunction) -> FlightResult | None:
        """What a newer holder has written since this lease was lost."""
        try:
            cached = await self.read(name)
        except DOWN:
            return None
        if cached is None or loss.fence is None or cached.fence <= loss.fence:
            return None
        return self._result_of(cached, name, work)

    # ------------------------------------------------------------ rebuilds that would wait for themselves

    @contextlib.contextmanager
    def _marked_current(self, name: Name) -> Iterator[None]:
        self.check_not_nested(name)
        rebuild = CurrentRebuild((self.coordinator, name.text))
        token = _current.set((*_current.get(), rebuild))
        try:
            yield
        finally:
            rebuild.ended = True
            _current.reset(token)

    def check_not_nested(self, name: Name) -> None:
        """Refuse a rebuild that waits for its own value: it would wait for ever."""
        key = (self.coordinator, name.text)
        if any(one.key == key and not one.ended for one in _current.get()):
            raise InvalidRequest(
                "a rebuild asks for the very value that it is to make, and would wait for itself: call the function "
                "under the decorator (.__wrapped__), or ask for another name",
                resource=name.text,
            )

    async def _resolve(self, value: R | Awaitable[R]) -> R:
        return await self.flavour.resolve(value)


def _unkept_result(resource: str, work: RebuildFunction, lease: Any, value: Any, error: Exception) -> FlightResult:
    log.warn("single_flight could not keep a value, which only its caller gets: %s", error)
    work.unkept[:] = [value]
    what = type(value).__name__[:100]
    return FlightResult(error=not_kept(resource, lease and lease.fence, what), unkept=what)


def _log_not_stored(problem: Exception) -> None:
    log.warn("single_flight could not keep the outcome of a rebuild: %r", problem, error=problem)


def leave_rebuilds() -> None:
    """For work that is started on its own: the rebuild that started it does not wait for it."""
    _current.set(())
