"""Faults on request: a paused process, a lease that expires, a store that cannot be reached."""

from __future__ import annotations

import threading
from contextlib import AbstractContextManager
from types import TracebackType

from leasehold._core.holding import ALIVE, NEVER
from leasehold._core.ports import Clock
from leasehold._core.types import Instant
from leasehold._runtime.engine import Engine
from leasehold.coordinator import AsyncLeasehold, Leasehold
from leasehold.errors import InvalidRequest
from leasehold.primitives.base_lease import BaseLease
from leasehold.testing.clock import UNTIL_CALLED, WATCHDOG, TurnableClock
from leasehold.testing.standin import StandInStore

_freezing = threading.RLock()


def freeze(lease: BaseLease | Leasehold | AsyncLeasehold) -> Freeze:
    """Pause the coordinator of this lease, or this coordinator, as if its process were paused: until the ``with`` body
    ends, or ``thaw()``.

    None of its leases is renewed, and its time stands still: it takes them for held, however far the clock is turned.
    Meanwhile another coordinator can take over. When it wakes, it finds out what it has lost. This works on every
    store; on one whose clock cannot be turned, real time must pass.

    >>> import leasehold
    >>> store = StandInStore()
    >>> lease = leasehold.connect(store).lock("report", 42, ttl="30s").acquire()
    >>> with freeze(lease):
    ...     store.clock.advance("31s")
    ...     newer = leasehold.connect(store).lock("report", 42).acquire()
    ...     lease.state
    'held'
    >>> lease.state, newer.state, newer.fence > lease.fence
    ('lost', 'held', True)
    >>> store.end()
    """
    return Freeze(_engine(lease, "freeze"))


def expire(lease: BaseLease) -> None:
    """Let this lease expire: its store's clock is turned past its end, and only this lease is not renewed.

    The holder learns of it at once: ``state`` is lost, ``lost`` is set, callbacks are called; the body of an ``async
    with`` is interrupted at its next await. This needs a clock that can be turned, as in the plugin's fixtures.

    >>> import leasehold
    >>> store = StandInStore()
    >>> lease = leasehold.connect(store).lock("report", 42).acquire()
    >>> expire(lease)
    >>> lease.state, lease.lost.is_set()
    ('lost', True)
    >>> store.end()
    """
    if not isinstance(lease, BaseLease):
        raise InvalidRequest(f"expire() takes a lease, not {type(lease).__name__}")
    store = _stand_in(lease, "expire")
    if lease.state == "released":
        raise InvalidRequest("the lease was released: it has no time left to run out")
    held = lease._held
    with held.lock:
        if held.phase in ALIVE:
            held.renew_at = NEVER
    store.clock.advance(store.expires_in(lease.resource, lease.owner))


def outage(hold: Leasehold | AsyncLeasehold | BaseLease) -> AbstractContextManager[None]:
    """No coordinator reaches the store of this one while the ``with`` body runs.

    An acquire raises ``StoreUnavailable``; a lease whose renewal falls due is ``unsure``, and lost when the outage
    lasts. This needs a store for tests, as in the plugin's fixtures.

    >>> import leasehold
    >>> store = StandInStore()
    >>> lease = leasehold.connect(store).lock("report", 42, ttl="30s").acquire()
    >>> with outage(lease):
    ...     store.clock.advance("12s")
    ...     lease.state
    'unsure'
    >>> store.clock.advance("2s")
    >>> lease.state
    'held'
    >>> store.end()
    """
    return _stand_in(hold, "outage").away()


class Freeze:
    """A paused process. A context manager; or call :meth:`thaw`."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        with _freezing:
            clock = engine.clock
            self._clock = clock if isinstance(clock, StoppedClock) else StoppedClock(clock)
            self._clock.freezes += 1
            engine.clock = self._clock
            engine.watchdog.pause()
        self._over = False

    def thaw(self) -> None:
        """Wake up. Safe to call twice. A process that was frozen twice wakes when both freezes are over."""
        with _freezing:
            self._clock.freezes -= not self._over
            self._over = True
            if self._clock.freezes:
                return
            self._engine.clock = clock = self._clock.real
        self._engine.watchdog.pause(False)
        if isinstance(clock, TurnableClock):
            clock.advance(0)

    def __enter__(self) -> Freeze:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.thaw()


class StoppedClock:
    """The clock of a paused process: it shows the time of the pause, until the process wakes."""

    goes_on = False

    def __init__(self, real: Clock) -> None:
        self.real = real
        self.freezes = 0
        self._now, self._instant = real.now(), real.instant()

    def now(self) -> float:
        return self._now if self.freezes else self.real.now()

    def instant(self) -> Instant:
        return self._instant if self.freezes else self.real.instant()

    def nap(self, until: float) -> float:
        if not self.freezes:
            return self.real.nap(until)
        if threading.current_thread().name == WATCHDOG:
            return UNTIL_CALLED
        raise AssertionError("a frozen coordinator cannot wait for a lock: let another one do so, or thaw it first")


def _engine(thing: object, call: str) -> Engine:
    if not isinstance(thing, (BaseLease, Leasehold, AsyncLeasehold)):
        raise InvalidRequest(f"{call}() takes a lease or a coordinator, not {type(thing).__name__}")
    return thing._engine


def _stand_in(thing: object, call: str) -> StandInStore:
    store = _engine(thing, call).store
    if isinstance(store, StandInStore):
        return store
    raise InvalidRequest(
        f"{call}() needs a store for tests, not {store.name}: use the fixtures of the plugin, or a StandInStore. "
        "On any store freeze(lease) stops the renewals, and the lease ends when its ttl has passed"
    )
