"""``hold.release_many``: many leases are released in one round trip, each by itself."""

from __future__ import annotations

from collections.abc import Sequence

from leasehold._core.holding import ALIVE, LOST
from leasehold._core.light_typing import TYPE_CHECKING, Any, Generic, TypeVar
from leasehold._core.many import release_many as release_flow
from leasehold._core.ops import Defer
from leasehold._runtime import shutdown, sync
from leasehold._runtime.batches import AsyncBatchConnection, BatchConnection
from leasehold._runtime.engine import Engine
from leasehold.errors import LeaseholdError, OutcomeUnknown, StoreUnavailable
from leasehold.primitives.base_lease import BaseLease

if TYPE_CHECKING:
    from leasehold._runtime.aio import AsyncDriver
    from leasehold.primitives.lease import AsyncLease, Lease

B = TypeVar("B", bound=BaseLease)


class BatchRelease(Generic[B]):
    """One release of many leases that is under way; the same in both flavours. One that was entered again is only left,
    as with ``lease.release()``."""

    def __init__(self, engine: Engine, leases: Sequence[B | None]) -> None:
        self._engine = engine
        self._leases = leases
        self._left: set[int] = set()
        self._rest: list[int] = []
        for place, lease in enumerate(leases):
            if lease is not None and lease._held.step_out():
                self._left.add(place)
            elif lease is not None:
                self._rest.append(place)

    def flow(self) -> Any:
        """The flow that releases those that are not only left; None when there are none."""
        held = [self._lease(place)._held for place in self._rest]
        return release_flow(held, self._engine.clock.now()) if held else None

    def _lease(self, place: int) -> Any:
        return self._leases[place]

    def finish(self, outcomes: Sequence[bool | LeaseholdError]) -> list[bool]:
        """For each whether it was ours until now. OutcomeUnknown, after all are finished, when some were not
        confirmed."""
        ours = [place in self._left and self._lease(place)._settle() != LOST for place in range(len(self._leases))]
        unknown: list[LeaseholdError] = []
        for place, outcome in zip(self._rest, outcomes, strict=True):
            if isinstance(outcome, LeaseholdError):
                self._lease(place)._release_unconfirmed()
                unknown.append(outcome)
            else:
                self._lease(place)._finish_release(outcome)
                ours[place] = outcome
        if unknown:
            raise _unconfirmed(unknown, len(self._leases))
        return ours

    def closed(self) -> list[bool]:
        """The coordinator is closed, and close() releases them."""
        return self.finish([False] * len(self._rest))

    def interrupted(self, error: BaseException) -> None:
        """The releases go on in the background. An interrupt may have come before all of them had begun."""
        for place in self._rest:
            lease = self._lease(place)
            held = lease._held
            if not isinstance(error, LeaseholdError):
                release = held.begin_release(self._engine.clock.now())
                if release is not None:
                    self._engine.watchdog.run_later(Defer(release, held.ttl_ms / 1000))
                lease._release_unconfirmed()

    def end(self) -> None:
        """The releases are over, however they ended: whoever of this process waits for one of these claims now."""
        for place in self._rest:
            held = self._lease(place)._held
            if held.cohort is not None and held.phase not in ALIVE:
                self._engine.cohort_ended(held)


def _unconfirmed(unknown: list[LeaseholdError], count: int) -> LeaseholdError:
    if count == 1:
        return unknown[0]
    error = OutcomeUnknown(
        f"{len(unknown)} of {count} releases were not confirmed; they go on in the background until the leases would "
        f"have ended, and may be repeated. The first: {unknown[0]}",
        resource=unknown[0].resource,
        fence=unknown[0].fence,
    )
    error.__cause__ = unknown[0].__cause__
    return error


def release_many(engine: Engine, leases: Sequence[Lease | None]) -> list[bool]:
    """Release all of these in one round trip. For each whether it was ours until now."""
    batch = BatchRelease(engine, leases)
    flow = None
    try:
        flow = batch.flow()
        if flow is None:
            return batch.finish(())
        connection = engine.connections.borrow()
        try:
            outcomes: Any = sync.drive(engine, flow, BatchConnection(connection))
        finally:
            engine.connections.give_back(connection)
        return batch.finish(outcomes)
    except StoreUnavailable:
        if engine.closed:
            shutdown.wait_for_exit()
        return batch.closed()
    except BaseException as error:  # not confirmed, or interrupted
        batch.interrupted(error)
        raise
    finally:
        batch.end()
        if flow is not None:
            flow.close()  # an interrupt may have kept it from beginning or from ending; closing twice is harmless


async def release_many_async(engine: Engine, leases: Sequence[AsyncLease | None], driver: AsyncDriver) -> list[bool]:
    """The same for the running task."""
    batch = BatchRelease(engine, leases)
    flow = None
    try:
        flow = batch.flow()
        if flow is None:
            return batch.finish(())
        connection: Any = AsyncBatchConnection(driver.connection(driver.task().get_loop()))
        return batch.finish(await driver.drive(flow, connection))
    except StoreUnavailable:
        return batch.closed()
    except BaseException as error:  # not confirmed, or interrupted, or cancelled
        batch.interrupted(error)
        raise
    finally:
        batch.end()
        if flow is not None:
            flow.close()
