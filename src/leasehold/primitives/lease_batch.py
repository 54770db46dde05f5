"""What ``hold.acquire_many`` returns: a lease or None for each lock, and why; its ``with`` body releases them."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType

from leasehold._core.holding import RELEASED
from leasehold._core.light_typing import TYPE_CHECKING, Any, Generic, TypeVar
from leasehold._core.ops import Defer
from leasehold._runtime.engine import Engine
from leasehold.errors import LeaseholdError, NotAcquired, OutcomeUnknown
from leasehold.primitives.base_lease import BaseLease
from leasehold.primitives.batch_release import release_many, release_many_async
from leasehold.primitives.lease import AsyncLease, Lease
from leasehold.primitives.leases import AsyncLeases, Leases

if TYPE_CHECKING:
    import asyncio

    from leasehold._runtime.aio import AsyncDriver

B = TypeVar("B", bound=BaseLease)


class Outcomes:
    """What came of each lock: a lease or None, and why."""

    def __init__(self) -> None:
        self.leases: list[Any] = []
        self.refused: dict[str, NotAcquired] = {}
        self.failed: dict[str, LeaseholdError] = {}

    def add(self, resource: str, outcome: Any) -> None:
        """``outcome``: a lease, or an error."""
        failed = isinstance(outcome, LeaseholdError)
        self.leases.append(None if failed else outcome)
        if isinstance(outcome, NotAcquired):
            self.refused[resource] = outcome
        elif failed:
            self.failed[resource] = outcome

    def raise_failure(self) -> None:
        """When all have failed, there is nothing to return: a program that only looks for leases must not take an
        outage for locks that others hold."""
        if self.failed and len(self.failed) == len(self.leases):
            raise next(iter(self.failed.values()))


class BaseLeaseBatch(tuple["B | None", ...], Generic[B]):
    """What came of ``acquire_many``, of either flavour: a lease or None for each lock, in the order of the locks. It is
    neither true nor false: ``complete`` and ``acquired`` say what is meant."""

    _engine: Engine
    _acquired: Any  # Leases, or AsyncLeases
    _refused: dict[str, NotAcquired]
    _failed: dict[str, LeaseholdError]

    @property
    def acquired(self) -> tuple[B, ...]:
        """The leases that were granted, in the order of their locks."""
        return tuple(self._acquired)

    @property
    def refused(self) -> dict[str, NotAcquired]:
        """Those that others hold: by the resource, an error with ``holder`` and ``retry_in``."""
        return dict(self._refused)

    @property
    def failed(self) -> dict[str, LeaseholdError]:
        """Those of which it is not known whether they are free: by the resource, the error. StoreUnavailable: nothing
        was taken; OutcomeUnknown: what may have been taken is given back in the background."""
        return dict(self._failed)

    @property
    def complete(self) -> bool:
        """Were all of them granted?"""
        return not self._refused and not self._failed

    # ------------------------------------------------------------ the body

    def _enter(self) -> None:
        """A body begins. Until it ends, an interrupt at any place lets the watchdog give all of them back."""
        for lease in self._acquired:
            lease._held.bodies += 1

    def _leave(self) -> None:
        """A body ends."""
        for lease in self._acquired:
            lease._held.bodies -= 1

    def _abandon(self, depths: Sequence[int]) -> None:
        """An interrupt hit the beginning or the end of a body: release in the background, however far it came. What
        was entered again, known by the depth at which the end began, only steps out."""
        engine = self._engine
        for lease, depth in zip(self._acquired, depths, strict=True):
            held = lease._held
            if depth > 1:
                held.depth = depth - 1
                continue
            release = held.begin_release(engine.clock.now())
            engine.forget(held)
            if release is not None:
                reporter = None if held.end_reported else engine.watchdog.release_reporter(held)
                engine.watchdog.run_later(Defer(release, held.ttl_ms / 1000), reporter)

    def __bool__(self) -> bool:
        raise TypeError(
            "a batch is neither true nor false: ask batch.complete (were all granted?) or batch.acquired (which were?)"
        )

    def __reduce__(self) -> str:
        """Two processes with one lease would be two owners."""
        raise TypeError(
            "leases stay in their process: to hand one over, send ticket = lease.transfer(), and call "
            "hold.adopt(ticket) there"
        )

    def __repr__(self) -> str:
        failed = f", {len(self._failed)} failed" if self._failed else ""
        return f"<{type(self).__name__} {len(self._acquired)} acquired, {len(self._refused)} refused{failed}>"


class LeaseBatch(BaseLeaseBatch[Lease]):
    """What came of ``hold.acquire_many``: a tuple with a lease or None for each lock.

    >>> import leasehold
    >>> with leasehold.connect("memory://") as hold, hold.lock("page", 2):
    ...     with hold.acquire_many([hold.lock("page", number) for number in (1, 2, 3)]) as batch:
    ...         [lease.resource for lease in batch.acquired], list(batch.refused), batch.complete
    (['page:1', 'page:3'], ['page:2'], False)
    """

    def __new__(cls, engine: Engine, found: Outcomes) -> LeaseBatch:
        batch = tuple.__new__(cls, found.leases)
        batch._engine = engine
        batch._acquired = Leases(engine, [lease for lease in found.leases if lease is not None])
        batch._refused, batch._failed = found.refused, found.failed
        return batch

    def release(self) -> bool:
        """Release all that was granted, in one round trip. False: one had already been lost, or none was left to
        release. OutcomeUnknown: not confirmed; may be repeated."""
        ours = release_many(self._engine, [lease for lease in self._acquired if not _is_released(lease)])
        return bool(ours) and all(ours)

    def __enter__(self) -> LeaseBatch:
        try:
            self._acquired.check()
            self._enter()
        except LeaseholdError:
            raise
        except BaseException:  # an interrupt
            self._abandon([lease._held.depth for lease in self._acquired])
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        depths: list[int] = [lease._held.depth for lease in self._acquired]
        try:
            self._leave()
            self.release()
        except OutcomeUnknown:
            self._acquired._forget()
        except BaseException:  # an interrupt
            self._abandon(depths)
            raise
        self._acquired._after_body(error)


class AsyncLeaseBatch(BaseLeaseBatch[AsyncLease]):
    """What came of ``hold.acquire_many`` in asyncio. The task inside ``async with`` is cancelled when one of its leases
    is lost."""

    def __new__(cls, engine: Engine, found: Outcomes, driver: AsyncDriver, task: asyncio.Task[Any]) -> AsyncLeaseBatch:
        batch = tuple.__new__(cls, found.leases)
        batch._engine = engine
        batch._driver = driver
        leases = [lease for lease in found.leases if lease is not None]
        batch._acquired = AsyncLeases(engine, leases, driver, task.get_loop())
        batch._refused, batch._failed = found.refused, found.failed
        return batch

    _driver: AsyncDriver

    async def release(self) -> bool:
        """Release all that was granted, in one round trip. False: one had already been lost, or none was left to
        release. OutcomeUnknown: not confirmed; may be repeated."""
        leases = [lease for lease in self._acquired if not _is_released(lease)]
        ours = await release_many_async(self._engine, leases, self._driver)
        return bool(ours) and all(ours)

    async def __aenter__(self) -> AsyncLeaseBatch:
        try:
            self._acquired.check()
            self._acquired._begin(self._driver.task())
            self._enter()
        except LeaseholdError:
            raise
        except BaseException:  # an interrupt
            self._abandon([lease._held.depth for lease in self._acquired])
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        ours = False
        depths: list[int] = [lease._held.depth for lease in self._acquired]
        try:
            self._leave()
            for interrupt in self._acquired._end():
                ours = await interrupt.delivered(error) or ours
            await self.release()
        except OutcomeUnknown:
            self._acquired._forget()
        except BaseException:  # an interrupt, or a cancellation
            self._abandon(depths)
            raise
        self._acquired._after_body(error, ours)


def _is_released(lease: BaseLease) -> bool:
    """One that was released by itself, inside the body of its batch, is passed over."""
    return lease._held.phase == RELEASED
