"""A lease: a granted claim with an owner, a fence and a deadline. What ``acquire`` and ``with`` hand out.

``state``, ``check()`` and ``remaining()`` are computed from the clock on each call: a process that was frozen past
its deadline learns so at its next look, before any message arrives.
"""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable, Iterable
from types import TracebackType

from leasehold.core import flows
from leasehold.core.durations import ttl_ms
from leasehold.core.holding import ALIVE, LOST, RELEASED, RELEASING
from leasehold.core.ops import Later, NotYours
from leasehold.core.tickets import Giving, Ticket
from leasehold.core.typed import TYPE_CHECKING, Any
from leasehold.core.types import public_owner
from leasehold.errors import InvalidRequest, LeaseholdError, LeaseLost, OutcomeUnknown, StoreUnavailable
from leasehold.observe import log
from leasehold.runtime import ending, sync
from leasehold.runtime.engine import Engine, chain
from leasehold.runtime.held import Held

if TYPE_CHECKING:
    import asyncio
    from datetime import datetime, timedelta

    from leasehold.observe.events import Observer
    from leasehold.runtime.aio import AsyncDriver, Interrupt

    Duration = float | str | timedelta


class BaseLease:
    """What a lease says about itself, the same in both flavours. None of this asks the store."""

    __slots__ = ("__weakref__", "_engine", "_held", "_lost", "_revoked")

    def __init__(self, engine: Engine, held: Held) -> None:
        self._engine = engine
        self._held = held
        self._lost: Any = None  # the event, once somebody has asked for it
        self._revoked: Any = None  # and the other one
        held.watch(self, engine.watchdog.abandoned)

    @property
    def resource(self) -> str:
        """The text form of the resource's name, as in keys, guards and ``inspect``."""
        return self._held.name.text

    @property
    def owner(self) -> str:
        """The owner token, unique for this acquisition. It is a secret: whoever has it can release."""
        return self._held.owner

    @property
    def fence(self) -> int | None:
        """The fencing token: grows with every grant of this resource. None with ``fenced=False``."""
        held = self._held
        held.exported = True
        return held.fence if held.options.fenced else None

    @property
    def ttl(self) -> float:
        """The length of the lease in seconds, as last confirmed by the store."""
        return self._held.ttl_ms / 1000

    @property
    def meta(self) -> dict[str, Any]:
        """What the holder said about itself."""
        return dict(self._held.options.meta or {})

    @property
    def acquired_at(self) -> datetime:
        """When it was granted, by the wall clock, for display."""
        from datetime import UTC, datetime

        return datetime.fromtimestamp(self._held.acquired_at, UTC)

    @property
    def deadline(self) -> float:
        """When the lease ends, on the local suspend-safe clock; never later than what the store confirmed."""
        return self._held.deadline

    @property
    def state(self) -> str:
        """``held``, ``unsure`` (the last renewal went unanswered), ``lost`` or ``released``."""
        phase = self._settle()
        return "released" if phase == RELEASING else phase

    def remaining(self) -> float:
        """Seconds until work must stop, unless a renewal succeeds before."""
        alive = self._settle() in ALIVE
        return max(self._held.stop_at() - self._engine.clock.now(), 0.0) if alive else 0.0

    def check(self) -> None:
        """Raise LeaseLost (or NotHeld after release) unless the lease is still ours. Costs no round trip.

        A check is not a fence: the process may be paused right after it. Guard the write itself."""
        if self._settle() not in ALIVE:
            ending.linger()
            self._held.require(self._engine.clock.now())

    def beat(self) -> None:
        """Tell that the work is alive: with ``max_idle`` a lease whose work is silent for longer is ended."""
        self.check()
        self._held.beat(self._engine.clock.now())
        self._engine.watchdog.look_again(self._held)

    @property
    def guarded(self) -> bool:
        """Has a guard seen it?"""
        return self._held.guarded

    @property
    def exported(self) -> bool:
        """Was its fence read, or sent along with ``headers()``? Then somebody else may refuse a stale one."""
        return self._held.exported

    def headers(self) -> dict[str, str]:
        """Fence, resource and owner (not its secret) as HTTP headers, for a service that refuses a stale one."""
        from leasehold.core import headers

        fence = self.fence
        if fence is None:
            raise InvalidRequest("this lease was acquired with fenced=False: it has no fence to send")
        return headers.encode(fence, self.resource, self.owner)

    def log_context(self) -> dict[str, Any]:
        """Fields for a log record: no full id, no owner secret."""
        held = self._held
        return {
            "kind": held.name.kind,
            "id_hash": held.name.id_hash,
            "owner_prefix": public_owner(held.owner),
            "fence": held.fence,
            "ttl_ms": held.ttl_ms,
        }

    def _give(self) -> Giving:
        self._settle()
        return self._held.giving()

    def _given(self, giving: Giving) -> str:
        """The ticket, when it was handed over."""
        held = self._held
        self._ended(ours=True)
        return Ticket(held.name.text, held.fence, held.ttl_ms, giving.nonce).text()

    def _not_given(self, giving: Giving, error: BaseException) -> None:
        """No ticket leaves transfer(). Mostly the lease is still ours, and is renewed; who was interrupted after it was
        handed over gives it back, because nobody else could."""
        held, watchdog = self._held, self._engine.watchdog
        if isinstance(error, (StoreUnavailable, OutcomeUnknown)):
            watchdog.chronicle().not_renewed(held, error)
        watchdog.tell(held)
        watchdog.look_again(held)
        release = held.recall(giving)
        if release is not None:
            self._engine.forget(held)
            watchdog.later(Later(release, held.ttl_ms / 1000), watchdog.teller(held))

    def _show_to_guard(self) -> int | None:
        """Its fence, for a guard."""
        held = self._held
        held.guarded = True
        return held.fence if held.options.fenced else None

    def _fenced_off(self, seen: int | None, downstream: str, observers: Iterable[Observer] = ()) -> None:
        """A guard, with its own observers, refused this lease. Claims from here on ask for more than what it has seen
        (trap 14)."""
        from leasehold.observe.events import FencedOff, subject

        held = self._held
        if seen is not None:
            self._engine.learn(seen)
        lease = subject(held, self._engine.store.name, held.number)
        self._engine.audience.tell(FencedOff(lease, downstream, seen), observers)

    def _settle(self) -> str:
        held = self._held
        phase = held.phase
        if phase in ALIVE:
            phase = held.settle(self._engine.clock.now())
        if phase == LOST:
            self._engine.watchdog.tell(held)
        return phase

    def _extended(self, stop_at: float) -> None:
        """Confirmed, when work would have had to stop at that time."""
        if self._engine.audience.listens():
            self._engine.watchdog.chronicle().renewed(self._held, stop_at - self._engine.clock.now())

    def _not_extended(self, error: LeaseholdError, alive: bool) -> None:
        """Not confirmed. A loss of what was alive, and that is no matter of the clock, was the store's answer."""
        held, engine = self._held, self._engine
        if not isinstance(error, LeaseLost):
            engine.watchdog.chronicle().not_renewed(held, error)
        elif alive and engine.clock.now() < held.stop_at() and engine.audience.listens():
            engine.watchdog.chronicle().not_renewed(held, NotYours(held.reason))

    def _ended(self, ours: bool) -> None:
        held, watchdog = self._held, self._engine.watchdog
        if not ours:
            watchdog.tell(held)
        self._engine.forget(held)
        if held.phase == RELEASING:  # the coordinator was closed meanwhile
            self._unknown()
        elif ours or (held.phase == LOST and held.reason not in ("closed", "forked")):
            watchdog.tell_of_release(held, ours)

    def _unknown(self) -> None:
        """The release goes on in the background, or was confirmed just before an interrupt. One that has not begun is
        none."""
        phase = self._held.phase
        if phase not in ALIVE and not self._held.told:
            self._engine.watchdog.chronicle().released(self._held, True if phase == RELEASED else None)

    def _after_body(self, error: BaseException | None, ours: bool = False) -> None:
        """Leaving a body whose lease was lost raises LeaseLost (trap 28), unless the body raised on its own."""
        if self._settle() != LOST:
            return
        ending.linger()
        loss = self._held.loss()
        if error is None or ours:
            raise loss from error
        chain(error, loss)

    def __reduce__(self) -> str:
        """Two processes that believe in one lease would be two owners."""
        raise TypeError(
            "a lease stays in its process: to hand it over, send ticket = lease.transfer(), and call "
            "hold.adopt(ticket) there; for a guard, send lease.fence"
        )

    def __repr__(self) -> str:
        held = self._held
        fence = held.fence if held.options.fenced else None  # looking at it here exports nothing
        shown = f"fence={fence} state={self.state} remaining={self.remaining():.3f}s"
        return f"<{type(self).__name__} {held.name.shown} owner={public_owner(held.owner)} {shown}>"


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
        """Set when the lease is lost: for work that waits."""
        if self._lost is None:
            self._lost = threading.Event()
            self._held.listen(self._lost.set)
        self._settle()
        event: threading.Event = self._lost
        return event

    def on_lost(self, callback: Callable[[LeaseLost], object]) -> None:
        """Call ``callback(error)`` in a thread of its own when the lease is lost."""
        held = self._held
        held.listen(_in_thread(_callable(callback, "on_lost"), lambda: (held.loss(),), "on_lost"))
        self._settle()

    @property
    def revoked(self) -> threading.Event:
        """Set when somebody asks for the lease (``hold.revoke``): finish soon, and give it back. It is still yours."""
        if self._revoked is None:
            self._revoked = threading.Event()
            self._held.listen_for_revocation(self._revoked.set)
        event: threading.Event = self._revoked
        return event

    def on_revoked(self, callback: Callable[[], object]) -> None:
        """Call ``callback()`` in a thread of its own when somebody asks for the lease."""
        self._held.listen_for_revocation(_in_thread(_callable(callback, "on_revoked"), tuple, "on_revoked"))

    def extend(self, ttl: Duration) -> None:
        """Set the end of the lease to ``ttl`` from now: sets, never adds. Later renewals use it too."""
        length = ttl_ms(ttl)
        alive, stop_at = self._settle() in ALIVE, self._held.stop_at()
        try:
            sync.run(self._engine, flows.extend(self._held, length, self._engine.clock.now()))
            self._extended(stop_at)
        except (StoreUnavailable, OutcomeUnknown, LeaseLost) as error:
            self._not_extended(error, alive)
            raise
        finally:
            self._engine.watchdog.tell(self._held)
            self._engine.watchdog.look_again(self._held)

    def transfer(self) -> str:
        """Give the lease away: the text is a ticket, with which one other process can ``adopt`` it, until its ttl is
        over. From here on it is no longer yours (``released``). When this raises an error, it still is."""
        giving = self._give()
        try:
            sync.run(self._engine, flows.transfer(self._held, giving, self._engine.clock.now()))
            return self._given(giving)
        except BaseException as error:
            self._not_given(giving, error)
            raise

    def release(self) -> bool:
        """Give the lease back. False: it was no longer ours. OutcomeUnknown: not confirmed; may be repeated."""
        if self._held.step_out():
            return self._settle() != LOST
        try:
            ours = sync.run(self._engine, flows.release(self._held, self._engine.clock.now()))
            self._ended(ours)
        except StoreUnavailable:  # the coordinator is closed, and close() gives it back
            self._ended(False)
            return False
        except BaseException:  # not confirmed, or interrupted
            self._unknown()
            raise
        return ours

    def __enter__(self) -> Lease:
        self.check()
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

    def __init__(self, engine: Engine, held: Held, driver: AsyncDriver, loop: asyncio.AbstractEventLoop) -> None:
        BaseLease.__init__(self, engine, held)
        self._driver = driver
        self._loop = loop
        self._bodies = 0

    @property
    def lost(self) -> asyncio.Event:
        """Set, on the loop that acquired it, when the lease is lost."""
        if self._lost is None:
            self._lost = self._driver.event()
            self._held.listen(self._driver.on_loop(self._loop, self._lost.set))
        event: asyncio.Event = self._lost
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
        """Set when somebody asks for the lease (``hold.revoke``): finish soon, and give it back. It is still yours."""
        if self._revoked is None:
            self._revoked = self._driver.event()
            self._held.listen_for_revocation(self._driver.on_loop(self._loop, self._revoked.set))
        event: asyncio.Event = self._revoked
        if self._held.asked_for():  # whoever looks for the first time now need not wait for the loop's next turn
            event.set()
        return event

    def on_revoked(self, callback: Callable[[], object | Awaitable[object]]) -> None:
        """Call ``callback()``, a function or a coroutine function, on the loop when somebody asks for the lease."""
        checked = _callable(callback, "on_revoked")
        self._held.listen_for_revocation(self._driver.callback(self._loop, checked, tuple, "on_revoked"))

    async def extend(self, ttl: Duration) -> None:
        """Set the end of the lease to ``ttl`` from now: sets, never adds. Later renewals use it too."""
        length = ttl_ms(ttl)
        alive, stop_at = self._settle() in ALIVE, self._held.stop_at()
        try:
            await self._driver.drive(flows.extend(self._held, length, self._engine.clock.now()))
            self._extended(stop_at)
        except (StoreUnavailable, OutcomeUnknown, LeaseLost) as error:
            self._not_extended(error, alive)
            raise
        finally:
            self._engine.watchdog.tell(self._held)
            self._engine.watchdog.look_again(self._held)

    async def transfer(self) -> str:
        """Give the lease away: the text is a ticket, with which one other process can ``adopt`` it, until its ttl is
        over. From here on it is no longer yours (``released``). When this raises an error, it still is."""
        giving = self._give()
        try:
            await self._driver.drive(flows.transfer(self._held, giving, self._engine.clock.now()))
            return self._given(giving)
        except BaseException as error:
            self._not_given(giving, error)
            raise

    async def release(self) -> bool:
        """Give the lease back. False: it was no longer ours. OutcomeUnknown: not confirmed; may be repeated."""
        if self._held.step_out():
            return self._settle() != LOST
        try:
            ours = await self._driver.drive(flows.release(self._held, self._engine.clock.now()))
            self._ended(ours)
        except StoreUnavailable:  # the coordinator is closed, and close() gives it back
            self._ended(False)
            return False
        except BaseException:  # not confirmed, or interrupted
            self._unknown()
            raise
        return ours

    async def __aenter__(self) -> AsyncLease:
        self.check()
        self._begin(self._driver.task())
        return self

    def _begin(self, task: asyncio.Task[Any]) -> None:
        """A body begins in this task, unless the lease is lost by now: what comes later, the interrupt hears of."""
        held = self._held
        self._bodies += 1
        if held.interrupt is None:
            held.interrupt = self._driver.interrupt(task)
        if held.phase not in ALIVE:
            self._end()
            self.check()

    def _end(self) -> Interrupt | None:
        """A body is over: when it was the outermost, nobody is cancelled any more. The interrupt, if it has fired."""
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
    """A listener that runs somebody's callback apart: it may block or raise, and harms nobody."""

    def run() -> None:
        try:
            callback(*arguments())
        except Exception as error:
            log.warn("a callback of %s raised %r", what, error, error=error)

    def start() -> None:
        try:
            threading.Thread(target=run, name=f"leasehold-{what.replace('_', '-')}", daemon=True).start()
        except RuntimeError:
            if not ending.begun:  # then Python 3.12 starts none; others do, and end it before it has done much
                raise

    return start
