"""Connections for flows that send batches (``_core/many.py``): a batch goes to the store in one request where its
connection offers that, else one op after the other. Drivers see a connection like any other."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from leasehold._core.light_typing import TYPE_CHECKING, Any
from leasehold._core.many import Batch, Outcome
from leasehold._core.ops import StoreOp
from leasehold.errors import LeaseholdError, StoreUnavailable

if TYPE_CHECKING:
    from leasehold._core.ports import Connection
    from leasehold._runtime.aio import PushRouter

LATE = "there was no time left to send it"
Observe = Callable[[StoreOp, object], None]  # called with each op and its outcome


class BatchConnection:
    """A thread's connection."""

    def __init__(self, connection: Connection, observe: Observe | None = None) -> None:
        self._connection = connection
        self._batch: Any = getattr(connection, "execute_batch", None)  # not every store has it
        self._observe = observe
        self.address = connection.address
        self.next_push, self.close = connection.next_push, connection.close

    def execute(self, op: Any) -> Any:
        if type(op) is not Batch:
            return self._connection.execute(op)
        outcomes = self._one_by_one(op) if self._batch is None else self._batch(op.steps)
        return _observed(op.steps, outcomes, self._observe)

    def _one_by_one(self, batch: Batch) -> list[Outcome]:
        give_up = time.monotonic() + batch.budget_ms / 1000
        outcomes: list[Outcome] = []
        for op in batch.steps:
            try:
                outcomes.append(self._connection.execute(_within(op, give_up)))
            except LeaseholdError as error:
                outcomes.append(error)
        return outcomes


class AsyncBatchConnection:
    """An event loop's connection."""

    def __init__(self, connection: PushRouter, observe: Observe | None = None) -> None:
        self._connection = connection
        self._batch: Any = getattr(connection.subscriber, "execute_batch_async", None)
        self._observe = observe
        self.next_push = connection.next_push

    async def execute(self, op: Any) -> Any:
        if type(op) is not Batch:
            return await self._connection.execute(op)
        outcomes = await (self._one_by_one(op) if self._batch is None else self._batch(op.steps))
        return _observed(op.steps, outcomes, self._observe)

    async def _one_by_one(self, batch: Batch) -> list[Outcome]:
        give_up = time.monotonic() + batch.budget_ms / 1000
        outcomes: list[Outcome] = []
        for op in batch.steps:
            try:
                outcomes.append(await self._connection.execute(_within(op, give_up)))
            except LeaseholdError as error:
                outcomes.append(error)
        return outcomes


def _within(op: Any, give_up: float) -> Any:
    """The op with the time that is left; StoreUnavailable when none is."""
    left_ms = int((give_up - time.monotonic()) * 1000)
    if left_ms <= 0:
        raise StoreUnavailable(LATE, resource=op.resource)
    return op._replace(budget_ms=left_ms)


def _observed(ops: Sequence[StoreOp], outcomes: Sequence[Outcome], observe: Observe | None) -> Sequence[Outcome]:
    """Each error is one of its own, and names its resource: a store may have one for all of them."""
    seen: set[int] = set()
    found = list(outcomes)
    for place, op in enumerate(ops):
        outcome = outcomes[place]
        if isinstance(outcome, LeaseholdError):
            found[place] = own = _copied(outcome) if id(outcome) in seen else outcome
            own.resource = op.resource or None
            seen.add(id(outcome))
        if observe is not None:
            observe(op, outcome)
    return found


def _copied(error: LeaseholdError) -> LeaseholdError:
    from copy import copy  # seldom needed, and a short command starts faster without it

    own = copy(error)
    own.__cause__ = error.__cause__
    return own
