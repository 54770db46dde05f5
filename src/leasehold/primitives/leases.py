"""The leases of ``hold.all(...)``: several leases of one body, in the order in which their locks were given.

Together they are held while all are held, and lost as soon as one is lost.
"""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable, Sequence
from types import TracebackType

from leasehold._core.group import release_all
from leasehold._core.holding import LOST, RELEASED
from leasehold._core.light_typing import TYPE_CHECKING, Any, Generic, TypeVar, TypeVarTuple, Unpack
from leasehold._core.ops import Defer
from leasehold._runtime import shutdown, sync
from leasehold._runtime.engine import Engine, chain
from leasehold._runtime.held_lease import Listener
from leasehold.errors import LeaseholdError, LeaseLost, OutcomeUnknown, StoreUnavailable
from leasehold.primitives.base_lease import BaseLease
from leasehold.primitives.lease import AsyncLease, Lease, _callable, _in_thread

if TYPE_CHECKING:
    import asyncio
    from typing import Self

    from leasehold._core.durations import Duration
    from leasehold._runtime.aio import AsyncDriver, Interrupt

B = TypeVar("B", bound=BaseLease)
Mix = TypeVarTuple("Mix")
Each = TypeVarTuple("Each", default=Unpack[tuple[Lease, ...]])
AsyncEach = TypeVarTuple("AsyncEach", default=Unpack[tuple[AsyncLease, ...]])
STATES = ("lost", "released", "unsure", "held")  # the state of all is the first of these that one of them is in


class BaseLeases(tuple[*Mix], Generic[B, *Mix]):
    """Several leases of either flavour. Nothing here contacts the store. It is a tuple, so that a type checker knows
    the class of each lease when they are unpacked."""

    def __new__(cls, _engine: Engine, leases: Sequence[B], *_more: Any) -> Self:
        return tuple.__new__(cls, leases)

    def __init__(self, engine: Engine, leases: Sequence[B]) -> None:
        self._engine = engine
        self._leases = tuple(leases)
        self._lost: Any = None  # the event, once the program has used it
        self._revoked: Any = None  # likewise

    @property
    def fences(self) -> dict[str, int | None]:
        """The fencing token of each, by its resource: every part has its own sequence, and its own guard."""
        return {lease.resource: lease.fence for lease in self._leases}

    @property
    def state(self) -> str:
        """``lost`` when one of them is, else ``released`` when one is, else ``unsure``; ``held`` when all are."""
        states = {lease.state for lease in self._leases}
        return next(state for state in STATES if state in states)

    def remaining(self) -> float:
        """Seconds until work must stop, unless a renewal succeeds before: the smallest of them."""
        return min(lease.remaining() for lease in self._leases)

    def check(self) -> None:
        """Raise LeaseLost (or NotHeld after a release) unless all of them are still ours. Costs no round trip."""
        lost = self._first_lost()
        for lease in self._leases if lost is None else (lost,):
            lease.check()

    def beat(self) -> None:
        """Report that the work is alive, for those that have a ``max_idle``."""
        for lease in self._leases:
            lease.beat()

    def log_context(self) -> dict[str, Any]:
        """Fields for a log record: those of each lease, in a list."""
        return {"leases": [lease.log_context() for lease in self._leases]}

    def _first_lost(self) -> B | None:
        return next((lease for lease in self._leases if lease._settle() == LOST), None)

    def _listen(self, listener: Callable[[BaseLease], Listener]) -> None:
        """Call a listener once, for the first lease that is lost."""
        latch = threading.Lock()
        for lease in self._leases:
            lease._held.listen(_once(latch, listener(lease)))
        self._first_lost()

    def _listen_for_revocation(self, listener: Listener) -> None:
        """Call a listener once, when the first of them is revoked."""
        once = _once(threading.Lock(), listener)
        for lease in self._leases:
            lease._held.listen_for_revocation(once)

    def _entered(self, anchor: object) -> None:
        """A body of the leases themselves begins, not one of the ``all`` that they come from."""
        for lease in self._leases:
            lease._held.entered = id(anchor)

    # ------------------------------------------------------------ releasing

    def _step_out(self) -> tuple[list[B], list[B]]:
        """Those that were entered again and are only left now, and those that are to be released. One that was already
        released is neither."""
        left: list[B] = []
        rest: list[B] = []
        for lease in self._leases:
            if lease._held.phase != RELEASED:
                (left if lease._held.step_out() else rest).append(lease)
        return left, rest

    def _finish_releases(self, left: list[B], rest: list[B], ours: list[bool]) -> bool:
        """True when there was something to release, and none of it had been lost."""
        for lease, one in zip(rest, ours, strict=True):
            lease._finish_release(one)
        kept = [lease._settle() != LOST for lease in left]
        return bool(kept or ours) and all(kept) and all(ours)

    def _releases_unconfirmed(self, rest: list[B], error: BaseException) -> None:
        """The releases go on in the background. An interrupt may have come before all of them had begun."""
        for lease in rest:
            if not isinstance(error, LeaseholdError):
                release = lease._held.begin_release(self._engine.clock.now())
                if release is not None:
                    self._engine.watchdog.run_later(Defer(release, lease._held.ttl_ms / 1000))
            lease._release_unconfirmed()

    def _forget(self) -> None:
        """Drop them here: what is not released yet goes on in the background."""
        for lease in self._leases:
            if not lease._held.depth:
                self._engine.forget(lease._held)

    def _after_body(self, error: BaseException | None, ours: bool = False) -> None:
        """Leaving a body one of whose leases was lost raises LeaseLost, unless the body raised on its own."""
        lost = self._first_lost()
        if lost is None:
            return
        shutdown.wait_for_exit()
        loss = lost._held.loss()
        if error is None or ours:
            raise loss from loss.__cause__ or error
        chain(error, loss)

    def __reduce__(self) -> str:
        """Two processes with one lease would be two owners."""
        raise TypeError(
            "leases stay in their process: to hand one over, send ticket = lease.transfer(), and call "
            "hold.adopt(ticket) there; for guards, send leases.fences"
        )

    def __repr__(self) -> str:
        shown = ", ".join(lease._held.name.shown for lease in self._leases)
        return f"<{type(self).__name__} {shown} state={self.state} remaining={self.remaining():.3f}s>"


class Leases(BaseLeases[Lease, *Each]):
    """Several leases for threads: a tuple, in the order in which their locks were given to ``hold.all``.

    >>> import leasehold
    >>> with leasehold.connect("memory://") as hold:
    ...     leases = hold.all(hold.lock("stock", 7), hold.lock("order", 42)).acquire(wait=0)
    ...     [lease.resource for lease in leases], leases.state
    ...     leases.release(), leases.state
    (['stock:7', 'order:42'], 'held')
    (True, 'released')
    """

    @property
    def lost(self) -> threading.Event:
        """An event that is set when one of them is lost, for work that waits."""
        if self._lost is None:
            self._lost = threading.Event()
            for lease in self._leases:
                lease._held.listen(self._lost.set)
        self._first_lost()
        event: threading.Event = self._lost
        return event

    def on_lost(self, callback: Callable[[LeaseLost], object]) -> None:
        """Call ``callback(error)`` in a thread of its own when the first of them is lost."""
        checked = _callable(callback, "on_lost")
        self._listen(lambda lease: _in_thread(checked, lambda: (lease._held.loss(),), "on_lost"))

    @property
    def revoked(self) -> threading.Event:
        """An event that is set when an operator asks for one of them (``hold.revoke``): finish soon, and release. Until
        then they are still yours."""
        if self._revoked is None:
            self._revoked = threading.Event()
            for lease in self._leases:
                lease._held.listen_for_revocation(self._revoked.set)
        event: threading.Event = self._revoked
        return event

    def on_revoked(self, callback: Callable[[], object]) -> None:
        """Call ``callback()`` in a thread of its own when an operator asks for the first of them."""
        self._listen_for_revocation(_in_thread(_callable(callback, "on_revoked"), tuple, "on_revoked"))

    def extend(self, ttl: Duration) -> None:
        """Make each end ``ttl`` from now, one after the other, whatever it had left."""
        self.check()
        for lease in self._leases:
            lease.extend(ttl)

    def release(self) -> bool:
        """Release all of them, in one step. False: one had already been lost. OutcomeUnknown: not confirmed; may be
        repeated. One that was entered again is only left; one that was already released is passed over."""
        left, rest = self._step_out()
        ours = []
        try:
            if rest:
                flow = release_all([lease._held for lease in rest], self._engine.clock.now())
                ours = sync.run(self._engine, flow)
            return self._finish_releases(left, rest, ours)
        except StoreUnavailable:  # the coordinator is closed, and close() releases them
            return self._finish_releases(left, rest, [False] * len(rest))
        except BaseException as error:  # not confirmed, or interrupted
            self._releases_unconfirmed(rest, error)
            raise

    def __enter__(self) -> Leases[*Each]:
        self.check()
        self._entered(threading.current_thread())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.release()
        except OutcomeUnknown:
            self._forget()
        self._after_body(error)


class AsyncLeases(BaseLeases[AsyncLease, *AsyncEach]):
    """Several leases for asyncio. The task inside ``async with`` is cancelled when one of them is lost."""

    def __init__(
        self, engine: Engine, leases: Sequence[AsyncLease], driver: AsyncDriver, loop: asyncio.AbstractEventLoop
    ) -> None:
        BaseLeases.__init__(self, engine, leases)
        self._driver = driver
        self._loop = loop

    @property
    def lost(self) -> asyncio.Event:
        """An event that is set, on the loop that acquired them, when one of them is lost."""
        if self._lost is None:
            self._lost = self._driver.event()
            for lease in self._leases:
                lease._held.listen(self._driver.on_loop(self._loop, self._lost.set))
        event: asyncio.Event = self._lost
        if self._first_lost() is not None:
            event.set()
        return event

    def on_lost(self, callback: Callable[[LeaseLost], object | Awaitable[object]]) -> None:
        """Call ``callback(error)``, a function or a coroutine function, on the loop when the first of them is lost."""
        checked = _callable(callback, "on_lost")
        self._listen(lambda lease: self._driver.callback(self._loop, checked, lambda: (lease._held.loss(),), "on_lost"))

    @property
    def revoked(self) -> asyncio.Event:
        """An event that is set when an operator asks for one of them (``hold.revoke``): finish soon, and release. Until
        then they are still yours."""
        if self._revoked is None:
            self._revoked = self._driver.event()
            for lease in self._leases:
                lease._held.listen_for_revocation(self._driver.on_loop(self._loop, self._revoked.set))
        event: asyncio.Event = self._revoked
        if any(lease._held.revocation_requested() for lease in self._leases):
            event.set()
        return event

    def on_revoked(self, callback: Callable[[], object | Awaitable[object]]) -> None:
        """Call ``callback()``, a function or a coroutine function, on the loop when an operator asks for the first
        of them."""
        checked = _callable(callback, "on_revoked")
        self._listen_for_revocation(self._driver.callback(self._loop, checked, tuple, "on_revoked"))

    async def extend(self, ttl: Duration) -> None:
        """Make each end ``ttl`` from now, one after the other, whatever it had left."""
        self.check()
        for lease in self._leases:
            await lease.extend(ttl)

    async def release(self) -> bool:
        """Release all of them, in one step. False: one had already been lost. OutcomeUnknown: not confirmed; may be
        repeated. One that was entered again is only left; one that was already released is passed over."""
        left, rest = self._step_out()
        ours = []
        try:
            if rest:
                flow = release_all([lease._held for lease in rest], self._engine.clock.now())
                ours = await self._driver.drive(flow)
            return self._finish_releases(left, rest, ours)
        except StoreUnavailable:  # the coordinator is closed, and close() releases them
            return self._finish_releases(left, rest, [False] * len(rest))
        except BaseException as error:  # not confirmed, or interrupted
            self._releases_unconfirmed(rest, error)
            raise

    async def __aenter__(self) -> AsyncLeases[*AsyncEach]:
        self.check()
        task = self._driver.task()
        self._begin(task)
        self._entered(task)
        return self

    def _begin(self, task: asyncio.Task[Any]) -> None:
        """A body begins in this task. The leases share one interrupt, so that a task is cancelled once."""
        interrupt = self._driver.interrupt(task)
        begun: list[AsyncLease] = []
        try:
            for lease in self._leases:
                lease._begin(task, interrupt)
                begun.append(lease)
        except LeaseLost:
            for lease in begun:
                lease._end()
            raise

    def _end(self) -> set[Interrupt]:
        """A body ends. Returns the interrupts that have fired, usually at most one."""
        ended = [lease._end() for lease in self._leases]
        return {one for one in ended if one is not None}

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        ours = False
        interrupts = self._end()
        try:
            for interrupt in interrupts:
                ours = await interrupt.delivered(error) or ours
        finally:
            try:
                await self.release()
            except OutcomeUnknown:
                self._forget()
        self._after_body(error, ours)


def _once(latch: threading.Lock, listener: Listener) -> Listener:
    """A listener that does nothing once another one with the same latch was called."""

    def first() -> None:
        if latch.acquire(blocking=False):
            listener()

    return first
