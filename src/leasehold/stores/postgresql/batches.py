"""Ops of one process that travel together, so that one transaction serves many waiters (trap 54).

Whoever comes first leads: it waits for a moment, or until the batch before is answered, and then sends what has
gathered. The others wait for their replies. Waiting and sending are steps of a flow, which a thread and a task perform
in their own ways.

When a leader is interrupted, or has no time left, the others begin anew. To send their ops twice is safe: what the
first attempt may still do, it does with the rows locked; the second one waits for these locks, and finds it done.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Generator, Sequence
from concurrent.futures import Future

from leasehold._core.driver import drive, drive_async
from leasehold._core.light_typing import Any, NamedTuple, TypeAlias
from leasehold._core.ops import Reply, StoreOp
from leasehold.errors import LeaseholdError, OutcomeUnknown

SLOW = "what waiters of this process sent was not answered in time"
MOST = 100  # in one transaction: the rows of all stay locked meanwhile

Replies: TypeAlias = "Sequence[Reply | LeaseholdError]"
Key: TypeAlias = "tuple[str, bool]"


class Wait(NamedTuple):
    """A step: True when it has happened before a time."""

    event: Future[None]
    until: float


class Send(NamedTuple):
    """A step: the replies to these ops."""

    ops: Sequence[StoreOp]


class Place:
    """One op in a batch. When it is answered without a reply, its leader is gone."""

    __slots__ = ("answered", "batch", "op", "reply")

    def __init__(self, op: StoreOp) -> None:
        self.op = op
        self.answered = _event()
        self.batch: Batch | None = None
        self.reply: Reply | LeaseholdError | None = None


class Batch:
    """The first place is the leader's, which gives up at ``end``. ``thread`` is None when it is a task."""

    __slots__ = ("before", "end", "open", "over", "places", "thread")

    def __init__(self, leader: Place, thread: int | None, end: float, before: Batch | None) -> None:
        self.places = [leader]
        self.thread = thread
        self.end = end
        self.before = before
        self.open = True
        self.over = _event()

    def takes_more(self) -> bool:
        return self.open and len(self.places) < MOST and time.monotonic() < self.end

    def answer(self, replies: Replies) -> None:
        for place, reply in zip(self.places, replies, strict=True):
            place.reply = reply

    def finish(self) -> None:
        """Nobody waits for it any more."""
        for event in (*[place.answered for place in self.places], self.over):
            if not event.done():
                event.set_result(None)


class Batches:
    """Ops with the same key gather, for ``pause`` seconds, or without it while the batch before is under way."""

    def __init__(self, pause: float = 0.0) -> None:
        self._pause = pause
        self._lock = threading.RLock()
        self._last: dict[Key, Batch] = {}
        self._led: set[Batch] = set()

    def execute(self, key: str, op: StoreOp, end: float, send: Callable[[Sequence[StoreOp], float], Replies]) -> Reply:
        """On the calling thread."""

        def perform(step: Wait | Send) -> Any:
            if isinstance(step, Send):
                return send(step.ops, end)
            try:
                step.event.result(max(step.until - time.monotonic(), 0))
            except TimeoutError:
                return False
            return True

        flow = self._flow((key, True), op, end, threading.get_ident())
        try:
            return drive(flow, perform)
        finally:
            flow.close()  # an interrupt may have come between two steps

    async def execute_async(
        self, key: str, op: StoreOp, end: float, send: Callable[[Sequence[StoreOp], float], Awaitable[Replies]]
    ) -> Reply:
        """In the running task."""

        async def perform(step: Wait | Send) -> Any:
            if isinstance(step, Send):
                return await send(step.ops, end)
            try:
                async with asyncio.timeout(step.until - time.monotonic()):  # wait_for may lose a cancellation
                    await asyncio.wrap_future(step.event)
            except TimeoutError:
                return False
            return True

        flow = self._flow((key, False), op, end, None)
        try:
            return await drive_async(flow, perform)
        finally:
            flow.close()

    # ------------------------------------------------------------ the flow

    def _flow(self, key: Key, op: StoreOp, end: float, thread: int | None) -> Generator[Wait | Send, Any, Reply]:
        while time.monotonic() < end:
            place = Place(op)
            try:
                batch = self._join(key, place, thread, end)
                if batch.places[0] is place:
                    yield from self._lead(key, batch)
                elif not (yield Wait(place.answered, end)):
                    break
            finally:
                self._leave(key, place)
            if isinstance(place.reply, LeaseholdError):
                raise type(place.reply)(*place.reply.args) from place.reply  # each caller has an error of its own
            if place.reply is not None:
                return place.reply
        raise OutcomeUnknown(SLOW)

    def _lead(self, key: Key, batch: Batch) -> Generator[Wait | Send, Any, None]:
        before, batch.before = batch.before, None
        if self._pause:
            yield Wait(_event(), time.monotonic() + self._pause)
        elif before is not None and not (yield Wait(before.over, batch.end)):
            return
        with self._lock:
            batch.open = False
        try:
            batch.answer((yield Send([place.op for place in batch.places])))
        except LeaseholdError as error:
            if time.monotonic() >= batch.end:  # the others may have more time
                raise
            batch.answer([error] * len(batch.places))

    # ------------------------------------------------------------ coming and going

    def _join(self, key: Key, place: Place, thread: int | None, end: float) -> Batch:
        with self._lock:
            last = self._last.get(key)
            if thread is not None and any(one.thread == thread for one in self._led):
                last = None  # a signal handler: no batch that its thread leads goes on before it returns
            elif last is not None and last.takes_more():
                place.batch = last
                last.places.append(place)
                return last
            place.batch = batch = Batch(place, thread, end, last)
            self._led.add(batch)
            self._last[key] = batch
            return batch

    def _leave(self, key: Key, place: Place) -> None:
        """A leader leaves when its batch is answered, or never will be."""
        batch = place.batch
        if batch is None or batch.places[0] is not place:
            return
        try:
            self._end(key, batch)
        except BaseException:  # an interrupt
            self._end(key, batch)
            raise

    def _end(self, key: Key, batch: Batch) -> None:
        with self._lock:
            batch.open = False
            self._led.discard(batch)
            if self._last.get(key) is batch:
                del self._last[key]
        batch.finish()


def _event() -> Future[None]:
    """For a thread or a task that waits. When that is cancelled, the event is not."""
    event: Future[None] = Future()
    event.set_running_or_notify_cancel()
    return event
