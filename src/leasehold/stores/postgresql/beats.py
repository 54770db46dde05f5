"""The beats of one process, gathered: its waiters beat at the same moments, and one transaction serves all (trap 54).

Whoever comes first waits for a moment, and then sends what has gathered. Its call is a thread's or a task's; the others
wait for their replies in their own way.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Future

from leasehold._core.light_typing import TypeAlias
from leasehold._core.ops import Beat, Reply
from leasehold.errors import LeaseholdError, OutcomeUnknown

GATHER = 1e-3  # seconds
SLOW = "the beats of this process were not answered in time"
MOST = 100  # in one transaction: the rows of all stay locked meanwhile

Replies: TypeAlias = "Sequence[Reply | LeaseholdError]"


class Batch:
    """Beats that travel together."""

    def __init__(self) -> None:
        self.ops: list[Beat] = []
        self.replies: list[Future[Reply]] = []

    def finish(self, replies: Replies) -> None:
        for future, reply in zip(self.replies, replies, strict=True):
            if isinstance(reply, LeaseholdError):
                future.set_exception(type(reply)(*reply.args))  # each caller raises an error of its own
            else:
                future.set_result(reply)

    def fail(self, error: BaseException) -> None:
        """All but the first, who raises it."""
        for future in self.replies[1:]:
            if isinstance(error, LeaseholdError):
                future.set_exception(type(error)(*error.args))
            else:
                future.set_exception(OutcomeUnknown("the call that sent this beat was interrupted"))


class Beats:
    """The beats of a store."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._open: Batch | None = None

    def execute(self, op: Beat, send: Callable[[Sequence[Beat]], Replies]) -> Reply:
        """On the calling thread."""
        batch, future = self._join(op)
        if future is not batch.replies[0]:
            try:
                return future.result(op.budget_ms / 1000)
            except TimeoutError:
                raise OutcomeUnknown(SLOW) from None
        try:
            time.sleep(GATHER)  # so that others can join
            self._shut(batch)
            batch.finish(send(batch.ops))
        except BaseException as error:
            self._shut(batch)
            batch.fail(error)
            raise
        return future.result()

    async def execute_async(self, op: Beat, send: Callable[[Sequence[Beat]], Awaitable[Replies]]) -> Reply:
        """In the running task."""
        batch, future = self._join(op)
        if future is not batch.replies[0]:
            try:
                return await asyncio.wait_for(asyncio.wrap_future(future), op.budget_ms / 1000)
            except TimeoutError:
                raise OutcomeUnknown(SLOW) from None
        try:
            await asyncio.sleep(GATHER)
            self._shut(batch)
            batch.finish(await send(batch.ops))
        except BaseException as error:
            self._shut(batch)
            batch.fail(error)
            raise
        return future.result()

    def _join(self, op: Beat) -> tuple[Batch, Future[Reply]]:
        future: Future[Reply] = Future()
        with self._lock:
            if self._open is None or len(self._open.ops) >= MOST:
                self._open = Batch()
            self._open.ops.append(op)
            self._open.replies.append(future)
            return self._open, future

    def _shut(self, batch: Batch) -> None:
        """Nobody joins it from now on."""
        with self._lock:
            if self._open is batch:
                self._open = None
