"""Drives flows on the running event loop, over one connection for each loop.

Cancelling the task throws CancelledError into the flow at the op it awaits; the flow's clean-up is a ``Defer``, which
needs no await, so nothing can cancel the clean-up (trap 9).
"""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Callable, Coroutine

from leasehold._core import driver, flows
from leasehold._core.flows import FirstRelease
from leasehold._core.light_typing import TYPE_CHECKING, Any, TypeVar
from leasehold._core.ops import WAKE, Defer, Op, Park, Push, Released, TimedReply
from leasehold._core.ports import Store
from leasehold._runtime.engine import CLOSED, CoordinatorClosed, Engine
from leasehold._runtime.held_lease import Listener
from leasehold.errors import LeaseholdError, StoreUnavailable
from leasehold.observe import log

if TYPE_CHECKING:
    from leasehold._runtime.held_lease import HeldLease

R = TypeVar("R")


class PushRouter:
    """Routes the pushes that arrive on one event loop to the acquires that wait there."""

    def __init__(self, store: Store) -> None:
        self._clock = store.clock
        # By the owners of the acquires that are under way: a push that has come, or the future of one that is parked.
        self.pushes: dict[str, Push | asyncio.Future[Push] | None] = {}
        self.subscriber = store.listen(self._arrived)
        self.execute = self.subscriber.execute_async
        self.claim = getattr(self.subscriber, "claim_async", None)  # not every store has it

    @property
    def address(self) -> str:
        return self.subscriber.address

    def close(self) -> None:
        self.subscriber.close()

    def _arrived(self, push: Push) -> None:
        owners = list(self.pushes) if push is WAKE else [push.owner] if push.owner in self.pushes else []
        for owner in owners:
            waiting = self.pushes[owner]
            if waiting is None:  # its acquire is not parked now
                self.pushes[owner] = push
            elif isinstance(waiting, asyncio.Future) and not waiting.done():
                waiting.set_result(push)

    def wake(self, owner: str) -> None:
        """Let the acquire that is parked for this owner go on now. Called on the loop's own thread."""
        waiting = self.pushes.get(owner)
        if isinstance(waiting, asyncio.Future) and not waiting.done():
            waiting.set_result(WAKE)

    async def next_push(self, owner: str, until: float) -> Push | None:
        """Wait for a push to this owner, until a time on the local clock."""
        push = self.pushes[owner]
        if not isinstance(push, Push):
            push = await self._next(owner, until)
        self.pushes[owner] = None  # each is read once
        return None if push is WAKE else push

    async def _next(self, owner: str, until: float) -> Push | None:
        future: asyncio.Future[Push] = asyncio.get_running_loop().create_future()
        self.pushes[owner] = future
        while not future.done():
            await asyncio.wait([future], timeout=self._clock.nap(until))
            if self._clock.now() >= until:
                break
        return future.result() if future.done() else None


class AsyncDriver:
    """The asyncio side of one coordinator."""

    expected = (LeaseholdError, asyncio.CancelledError)  # what a flow raises after it has cleaned up

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        engine.caller = asyncio.current_task
        self._connections: dict[asyncio.AbstractEventLoop, PushRouter] = {}

    def connection(self, loop: asyncio.AbstractEventLoop) -> PushRouter:
        """The connection of this loop, which is running."""
        connection = self._connections.get(loop)
        if connection is None:
            self._drop_closed_loops()
            self.engine.connecting()
            connection = self._connections[loop] = PushRouter(self.engine.store)
        return connection

    def _drop_closed_loops(self) -> None:
        for loop in [loop for loop in list(self._connections) if loop.is_closed()]:
            connection = self._connections.pop(loop, None)  # another loop's thread may have been quicker
            if connection is not None:
                connection.close()

    async def drive(self, flow: Coroutine[Op, Any, R], connection: PushRouter | None = None) -> R:
        """Run a flow to its end in the running task."""
        engine = self.engine
        connection = connection or self.connection(asyncio.get_running_loop())
        execute, next_push, now = connection.execute, connection.next_push, engine.clock.now

        async def perform(op: Op) -> TimedReply[Any]:
            reply: object = None
            if isinstance(op, Park):
                reply = await next_push(op.owner, op.until)
            elif isinstance(op, Defer):
                engine.watchdog.run_later(op)
            elif engine.closed:
                raise CoordinatorClosed
            else:
                reply = await execute(op)
            return TimedReply(reply, now())

        try:
            return await driver.drive_async(flow, perform)
        except CoordinatorClosed:
            raise StoreUnavailable(CLOSED) from None

    async def release(self, held: HeldLease) -> bool:
        """Release a lease that could not pass to the next of this process at once. True when it was ours until now."""
        if held.cohort is None and not held.options.linger:
            return await self._give_back(held)
        from leasehold._runtime import cohorts

        engine = self.engine
        try:
            if held.cohort is None:
                cohorts.lingers(engine, held)
            decision = cohorts.decide(engine, held)
            if decision == cohorts.ASK and not await self.drive(cohorts.reserve(engine, held)):
                decision = ""
            return (decision != "" and cohorts.pass_on(engine, held)) or await self._give_back(held)
        finally:
            cohorts.released(engine, held)

    async def _give_back(self, held: HeldLease) -> bool:
        """Fast path: the store confirms it. Anything else, and whatever is raised meanwhile, cancellation included,
        goes on in the flow (``_core/flows.py``)."""
        engine = self.engine
        now = engine.clock.now()
        connection = self.connection(asyncio.get_running_loop())
        op = held.begin_release(now)
        if op is None:
            return False
        first = None
        if not engine.closed:
            try:
                reply = await connection.execute(op)
                if type(reply) is Released and reply.found:
                    return held.end_release(op, reply)
                first = FirstRelease(op, TimedReply(reply, engine.clock.now()))
            except BaseException as error:
                first = FirstRelease(op, None, error)
        return await self.drive(flows.release(held, now, first), connection)

    # ------------------------------------------------------------ what a lease needs of its loop

    def task(self) -> asyncio.Task[Any]:
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("Leasehold's asyncio calls must be made from a task")
        return task

    async def in_thread(self, call: Callable[[], R]) -> R:
        return await asyncio.to_thread(call)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    def event(self) -> asyncio.Event:
        return asyncio.Event()

    def latch(self) -> asyncio.Lock:
        return asyncio.Lock()

    def interrupt(self, task: asyncio.Task[Any]) -> Interrupt:
        return Interrupt(task, task.get_loop())

    def on_loop(self, loop: asyncio.AbstractEventLoop, call: Callable[[], object]) -> Listener:
        """A listener that calls this on that loop, whichever thread reports the loss."""

        def listener() -> None:
            try:
                loop.call_soon_threadsafe(call)
            except RuntimeError:  # the loop is closed: nothing is left to call
                return

        return listener

    def callback(
        self,
        loop: asyncio.AbstractEventLoop,
        callback: Callable[..., Any],
        arguments: Callable[[], tuple[Any, ...]],
        what: str,
    ) -> Listener:
        """A listener that runs a user's function or coroutine function; an exception of it is only logged."""

        async def run() -> None:
            try:
                result = callback(*arguments())
                if asyncio.iscoroutine(result):
                    await result
            except Exception as error:
                log.warn("a callback of %s raised %r", what, error, error=error)

        tasks: set[asyncio.Task[None]] = set()  # a task that is not referenced may be collected

        def start() -> None:
            task = loop.create_task(run())
            tasks.add(task)
            task.add_done_callback(tasks.discard)

        return self.on_loop(loop, start)

    def close(self) -> None:
        """Close the connections of all loops."""
        for connection in list(self._connections.values()):
            connection.close()
        self._connections.clear()


class Interrupt:
    """Cancels the task inside an ``async with`` when its lease is lost, as ``asyncio.timeout`` does."""

    __slots__ = ("_before", "_fired", "_left", "_loop", "_task")

    def __init__(self, task: asyncio.Task[Any], loop: asyncio.AbstractEventLoop) -> None:
        self._task = weakref.ref(task)  # the lease leads here: a task that an interrupt ended must not stay for it
        self._loop = loop
        self._before = task.cancelling()
        self._fired = self._left = False

    def __call__(self) -> None:
        """The listener: from any thread."""
        try:
            self._loop.call_soon_threadsafe(self._fire)
        except RuntimeError:  # the loop is closed, and the task with it
            return

    def _fire(self) -> None:
        if not self._left and not self._fired:  # of several leases more than one may be lost
            self._fired = True
            task = self._task()
            if task is not None:
                task.cancel()

    def leave(self) -> bool:
        """The body is over: cancel nothing from here on. True when its task was cancelled."""
        self._left = True
        return self._fired

    async def delivered(self, error: BaseException | None) -> bool:
        """After ``leave`` returned True: was the CancelledError that ended the body only ours?"""
        task = self._task()
        if task is None or asyncio.current_task() is not task:
            return False
        only_ours = task.uncancel() <= self._before
        if isinstance(error, asyncio.CancelledError):
            return only_ours
        try:  # requested, but the body ended before it arrived: let it arrive here
            await asyncio.sleep(0)
        except asyncio.CancelledError:
            if task.cancelling() > self._before:  # another cancellation, too
                raise
        return False
