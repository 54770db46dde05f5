"""A lease: a granted claim with an owner, a fence and a deadline. ``acquire`` and ``with`` return one."""

from __future__ import annotations

import threading
from types import TracebackType

from leasehold._core import flows
from leasehold._core.durations import ttl_ms
from leasehold._core.holding import ALIVE, LOST, RELEASED
from leasehold._core.light_typing import TYPE_CHECKING, Any, Awaitable, Callable, Coroutine
from leasehold._runtime import shutdown, sync
from leasehold._runtime.engine import Engine
from leasehold._runtime.held_lease import HeldLease
from leasehold.errors import InvalidRequest, LeaseLost, OutcomeUnknown, StoreUnavailable
from leasehold.observe import log
from leasehold.primitives.base_lease import BaseLease

if TYPE_CHECKING:
    import asyncio
    from typing import Self

    from leasehold._core.durations import Duration
    from leasehold._runtime.aio import AsyncDriver, Interrupt


class Lease(BaseLease):
    """A lease for threads.

    >>> import leasehold
    >>> with leasehold.connect("memory://") as hold:
    ...     lease = hold.lock("report-export", 42).acquire(wait=0)
    ...     lease.state, lease.release(), lease.state
    ('held', True, 'released')
    """

    __slots__ = ()

    @property
    def lost(self) -> threading.Event:
        """An event that is set when the lease is lost, for work that waits."""
        if self._held.lost_event is None:
            self._held.lost_event = threading.Event()
            self._held.listen(self._held.lost_event.set)
        self._settle()
        event: threading.Event = self._held.lost_event
        return event

    def on_lost(self, callback: Callable[[LeaseLost], object]) -> None:
        """Call ``callback(error)`` in a thread of its own when the lease is lost."""
        held = self._held
        held.listen(_in_thread(_callable(callback, "on_lost"), lambda: (held.loss(),), "on_lost"))
        self._settle()

    @property
    def revoked(self) -> threading.Event:
        """An event that is set when an operator asks for the lease (``hold.revoke``): finish soon, and release it.
        Until then it is still yours."""
        if self._held.revoked_event is None:
            self._held.revoked_event = threading.Event()
            self._held.listen_for_revocation(self._held.revoked_event.set)
        event: threading.Event = self._held.revoked_event
        return event

    def on_revoked(self, callback: Callable[[], object]) -> None:
        """Call ``callback()`` in a thread of its own when an operator asks for the lease."""
        self._held.listen_for_revocation(_in_thread(_callable(callback, "on_revoked"), tuple, "on_revoked"))

    def extend(self, ttl: Duration) -> None:
        """Make the lease end ``ttl`` from now, whatever it had left. Later renewals use this ttl too."""
        self._change(flows.extend, self._engine.check_ttl(ttl_ms(ttl)))

    def _change(self, flow: Callable[..., Coroutine[Any, Any, None]], *arguments: Any) -> None:
        """Run a flow that renews the lease and changes something with it."""
        alive, stop_at = self._settle() in ALIVE, self._held.stop_at
        try:
            sync.run(self._engine, flow(self._held, *arguments, self._engine.clock.now()))
            self._report_renewal(stop_at)
        except (StoreUnavailable, OutcomeUnknown, LeaseLost) as error:
            self._report_failed_renewal(error, alive)
            raise
        finally:
            self._engine.watchdog.report_loss(self._held)
            self._engine.watchdog.check_again(self._held)

    def transfer(self) -> str:
        """Give the lease away. Returns a ticket with which one other process can ``adopt`` it until its ttl is over.
        From here on it is no longer yours (``released``). When this raises an error, it still is."""
        transfer = self._begin_transfer()
        try:
            sync.run(self._engine, flows.transfer(self._held, transfer, self._engine.clock.now()))
            return self._finish_transfer(transfer)
        except BaseException as error:
            self._transfer_failed(transfer, error)
            raise

    def release(self) -> bool:
        """Release the lease. False: it had already been lost. OutcomeUnknown: not confirmed; may be repeated."""
        held, cohort = self._held, self._held.cohort
        if held.step_out():
            return self._settle() != LOST
        try:
            passed = cohort is not None and cohort.pass_on(self._engine, held)
            ours = passed or sync.release(self._engine, held)
            self._finish_release(ours)
        except StoreUnavailable:  # the coordinator is closed, and close() releases it
            self._finish_release(False)
            return False
        except BaseException:  # not confirmed, or interrupted
            self._release_unconfirmed()
            raise
        return ours

    def __enter__(self) -> Self:
        self.check()
        self._held.entered = id(threading.current_thread())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.release()
        except OutcomeUnknown:
            self._engine.forget(self._held)
        if self._held.phase != RELEASED:
            self._after_body(error)


class AsyncLease(BaseLease):
    """A lease for asyncio. The task inside ``async with`` is cancelled when the lease is lost."""

    __slots__ = ("_bodies", "_driver", "_loop")

    def __init__(self, engine: Engine, held: HeldLease, driver: AsyncDriver, loop: asyncio.AbstractEventLoop) -> None:
        BaseLease.__init__(self, engine, held)
        self._driver = driver
        self._loop = loop
        self._bodies = 0

    @property
    def lost(self) -> asyncio.Event:
        """An event that is set, on the loop that acquired it, when the lease is lost."""
        if self._held.lost_event is None:
            self._held.lost_event = self._driver.event()
            self._held.listen(self._driver.on_loop(self._loop, self._held.lost_event.set))
        event: asyncio.Event = self._held.lost_event
        if self._settle() == LOST:
            event.set()
        return event

    def on_lost(self, callback: Callable[[LeaseLost], object | Awaitable[object]]) -> None:
        """Call ``callback(error)``, a function or a coroutine function, on the loop when the lease is lost."""
        held = self._held
        listener = self._driver.callback(self._loop, _callable(callback, "on_lost"), lambda: (held.loss(),), "on_lost")
        held.listen(listener)
        self._settle()

    @property
    def revoked(self) -> asyncio.Event:
        """An event that is set when an operator asks for the lease (``hold.revoke``): finish soon, and release it.
        Until then it is still yours."""
        if self._held.revoked_event is None:
            self._held.revoked_event = self._driver.event()
            self._held.listen_for_revocation(self._driver.on_loop(self._loop, self._held.revoked_event.set))
        event: asyncio.Event = self._held.revoked_event
        if self._held.revocation_requested():  # the first use need not wait for the next turn of the loop
            event.set()
        return event

    def on_revoked(self, callback: Callable[[], object | Awaitable[object]]) -> None:
        """Call ``callback()``, a function or a coroutine function, on the loop when an operator asks for the lease."""
        checked = _callable(callback, "on_revoked")
        self._held.listen_for_revocation(self._driver.callback(self._loop, checked, tuple, "on_revoked"))

    async def extend(self, ttl: Duration) -> None:
        """Make the lease end ``ttl`` from now, whatever it had left. Later renewals use this ttl too."""
        await self._change(flows.extend, self._engine.check_ttl(ttl_ms(ttl)))

    async def _change(self, flow: Callable[..., Coroutine[Any, Any, None]], *arguments: Any) -> None:
        """Run a flow that renews the lease and changes something with it."""
        alive, stop_at = self._settle() in ALIVE, self._held.stop_at
        try:
            await self._driver.drive(flow(self._held, *arguments, self._engine.clock.now()))
            self._report_renewal(stop_at)
        except (StoreUnavailable, OutcomeUnknown, LeaseLost) as error:
            self._report_failed_renewal(error, alive)
            raise
        finally:
            self._engine.watchdog.report_loss(self._held)
            self._engine.watchdog.check_again(self._held)

    async def transfer(self) -> str:
        """Give the lease away. Returns a ticket with which one other process can ``adopt`` it until its ttl is over.
        From here on it is no longer yours (``released``). When this raises an error, it still is."""
        transfer = self._begin_transfer()
        try:
            await self._driver.drive(flows.transfer(self._held, transfer, self._engine.clock.now()))
            return self._finish_transfer(transfer)
        except BaseException as error:
            self._transfer_failed(transfer, error)
            raise

    async def release(self) -> bool:
        """Release the lease. False: it had already been lost. OutcomeUnknown: not confirmed; may be repeated."""
        held, cohort = self._held, self._held.cohort
        if held.step_out():
            return self._settle() != LOST
        try:
            passed = cohort is not None and cohort.pass_on(self._engine, held)
            ours = passed or await self._driver.release(held)
            self._finish_release(ours)
        except StoreUnavailable:  # the coordinator is closed, and close() releases it
            self._finish_release(False)
            return False
        except BaseException:  # not confirmed, or interrupted
            self._release_unconfirmed()
            raise
        return ours

    async def __aenter__(self) -> Self:
        self.check()
        task = self._driver.task()
        self._begin(task)
        self._held.entered = id(task)
        return self

    def _begin(self, task: asyncio.Task[Any], interrupt: Interrupt | None = None) -> None:
        """A body begins in this task, unless the lease is already lost; a later loss cancels the task through the
        interrupt. The leases of one body share an interrupt."""
        held = self._held
        self._bodies += 1
        if held.interrupt is None:
            held.interrupt = interrupt or self._driver.interrupt(task)
        if held.phase not in ALIVE:
            self._end()
            self.check()

    def _end(self) -> Interrupt | None:
        """A body ends: after the outermost one the task is not cancelled any more. The interrupt, if it has fired."""
        self._bodies -= 1
        interrupt: Interrupt | None = self._held.interrupt
        if interrupt is None or self._bodies:
            return None
        self._held.interrupt = None
        return interrupt if interrupt.leave() else None

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        ours = False
        interrupt = self._end()
        try:
            if interrupt is not None:
                ours = await interrupt.delivered(error)
        finally:
            try:
                await self.release()
            except OutcomeUnknown:
                self._engine.forget(self._held)
        if self._held.phase != RELEASED:
            self._after_body(error, ours)


def _callable(callback: Any, what: str) -> Any:
    if not callable(callback):
        raise InvalidRequest(f"{what} takes a function, not {type(callback).__name__}")
    return callback


def _in_thread(
    callback: Callable[..., object], arguments: Callable[[], tuple[Any, ...]], what: str
) -> Callable[[], None]:
    """A listener that runs a callback in its own thread, where it may block or raise."""

    def run() -> None:
        try:
            callback(*arguments())
        except Exception as error:
            log.warn("a callback of %s raised %r", what, error, error=error)

    def start() -> None:
        try:
            threading.Thread(target=run, name=f"leasehold-{what.replace('_', '-')}", daemon=True).start()
        except RuntimeError:
            if not shutdown.begun:  # at exit Python 3.12 starts no thread; other versions do, and end it soon
                raise

    return start
