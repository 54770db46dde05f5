"""The metrics, and what each event adds to them: written once, for Prometheus and for OpenTelemetry.

Labels have few values: the kind, the store, outcomes; never an id.
"""

from __future__ import annotations

import os
import threading
import time
import weakref
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, Generic, NamedTuple, Protocol, TypeAlias, TypeVar

from leasehold.observe import events
from leasehold.observe.events import Event

# ---------------------------------------------------------------- gauges


MOST_LABELS = 200
OTHER = "other"  # the label of all values after that many


class Labels:
    """The values of one label, as many as are good for a metrics server: a program that puts ids into the kind must not
    create a series for each."""

    __slots__ = ("_known",)

    def __init__(self) -> None:
        self._known: set[str] = set()

    def __call__(self, value: str) -> str:
        if value in self._known:
            return value
        if len(self._known) >= MOST_LABELS:
            return OTHER
        self._known.add(value)
        return value

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._known.copy()))


class Gauges:
    """The present state of this process, by its events: leases that are held, acquires that wait, keys without a TTL.

    Leases are kept by their number, so that no count drifts, and without a lock, so that no thread waits. The end of a
    lease is counted once. A forked child begins with nothing.
    """

    def __init__(self) -> None:
        self.kind = Labels()
        self.leaking: int | None = None  # until leaks() has counted them
        self.forked()
        at_fork(self)

    def forked(self) -> None:
        self._held: dict[int, tuple[str, float]] = {}
        self._waiting: dict[int, str] = {}

    def waits(self, number: int, kind: str) -> None:
        self._waiting[number] = kind

    def acquired(self, number: int, kind: str) -> None:
        self._waiting.pop(number, None)
        self._held[number] = (kind, time.monotonic())

    def refused(self, number: int) -> None:
        self._waiting.pop(number, None)

    def ended(self, number: int) -> bool:
        """True for the first event that ends this lease."""
        return self._held.pop(number, None) is not None

    def held(self) -> dict[str, int]:
        """How many leases of each kind are held. A kind that was seen once stays, with 0."""
        return self._counted([kind for kind, _ in list(self._held.values())])

    def waiters(self) -> dict[str, int]:
        """The same for acquires that wait."""
        return self._counted(list(self._waiting.values()))

    def _counted(self, kinds: list[str]) -> dict[str, int]:
        counts = dict.fromkeys(self.kind, 0)
        for kind in kinds:
            counts[kind] = counts.get(kind, 0) + 1
        return counts

    def oldest(self) -> dict[str, float]:
        """For how many seconds the oldest lease of each kind is held."""
        now, ages = time.monotonic(), dict.fromkeys(self.kind, 0.0)
        for kind, since in list(self._held.values()):
            ages[kind] = max(ages.get(kind, 0.0), now - since)
        return ages


class SignalSafeObserver(ABC):
    """An observer whose libraries have locks of their own. An event that a signal handler causes while its thread
    handles another is handled after that one: without this, a handler that acquires a lease could wait for ever for a
    lock of its own thread."""

    def __init__(self) -> None:
        self._thread = ThreadState()

    def __call__(self, event: Event) -> None:
        thread = self._thread
        if thread.busy:
            thread.later.append(event)
            return
        thread.busy = True
        try:
            self.handle(event)
            while thread.later:
                self.handle(thread.later.popleft())
        finally:
            thread.busy = False

    @abstractmethod
    def handle(self, event: Event) -> None:
        """Handle one event; never called while the same thread handles another."""


class ThreadState(threading.local):
    """Whether this thread handles an event, and the events that it has to handle afterwards."""

    def __init__(self) -> None:
        self.busy = False
        self.later: deque[Event] = deque()


# ---------------------------------------------------------------- forks


class ForkAware(Protocol):
    """State of a process that a forked child must not inherit. ``forked`` resets it."""

    def forked(self) -> None: ...


_fork_aware: weakref.WeakSet[ForkAware] = weakref.WeakSet()


def at_fork(state: ForkAware) -> None:
    """Have its ``forked`` called in every forked child, for as long as it lives."""
    _fork_aware.add(state)


def _forked() -> None:
    for state in list(_fork_aware):
        state.forked()


if hasattr(os, "register_at_fork"):  # Windows has no fork
    os.register_at_fork(after_in_child=_forked)


# ---------------------------------------------------------------- metrics


class Counter(NamedTuple):
    help: str
    labels: tuple[str, ...]


class Histogram(NamedTuple):
    """A histogram of seconds, by kind."""

    help: str
    buckets: tuple[float, ...]


COUNTERS = {
    "acquire": Counter("Acquires, by how they ended", ("kind", "store", "outcome")),
    "release": Counter("Releases, by how they ended", ("kind", "outcome")),
    "renew": Counter("Renewals, by how they ended", ("kind", "outcome")),
    "lost": Counter("Leases that ended while their holder still used them", ("kind", "reason")),
    "stale_release": Counter("Releases that came too late", ("kind",)),
    "fencing_rejected": Counter("Writes that a guard refused because of an older fence", ("kind", "downstream")),
    "unguarded": Counter("Leases that protect correctness, and whose fence was not used", ("kind",)),
    "contention": Counter("Acquires that found the resource held", ("kind",)),
}
HISTOGRAMS = {
    "acquire_wait": Histogram(
        "From the call to the grant, or to giving up", (0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 30.0)
    ),
    "hold": Histogram("From the grant to the end of the lease", (0.01, 0.1, 1.0, 10.0, 60.0, 600.0, 3600.0)),
    "renew_slack": Histogram(
        "What was left, at a renewal, until work would have had to stop",
        (0.01, 0.05, 0.1, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 600.0),
    ),
}
HELD = "Leases that this process holds"
WAITERS = "Acquires of this process that wait"
OLDEST_HELD = "For how long the oldest lease of this process is held"
KEYS_WITHOUT_TTL = "Keys without a TTL that leaks() found last"

WAITED = ("timeout", "cancelled")  # refusals after a wait: a single try, or one without a store, did not wait
Ending: TypeAlias = events.Lost | events.Released | events.StaleRelease | events.ReleaseUnknown


class Metrics(ABC):
    """The metrics of one registry or provider."""

    def __init__(self) -> None:
        self.gauges = Gauges()
        self.downstream = Labels()

    @abstractmethod
    def count(self, counter: str, *labels: str) -> None:
        """Add one to a counter."""

    @abstractmethod
    def measure(self, histogram: str, kind: str, seconds: float) -> None:
        """Add one value to a histogram."""

    def handle(self, event: events.Event) -> None:
        """Add what this event counts for."""
        handler = HANDLERS.get(type(event))
        if handler is not None:
            handler(self, event)

    def ended(self, event: Ending) -> str:
        """Record the end of a lease, and return its kind. How long it was held is measured once."""
        kind = self.gauges.kind(event.lease.kind)
        if self.gauges.ended(event.lease.number):
            self.measure("hold", kind, event.held)
        return kind


Place = TypeVar("Place")
Made = TypeVar("Made", bound=Metrics)


class SharedMetrics(Generic[Place, Made]):
    """One set of metrics for each registry or provider, which accepts each name only once."""

    def __init__(self, make: Callable[[Place], Made]) -> None:
        self._make = make
        self._made: weakref.WeakKeyDictionary[Place, Made] = weakref.WeakKeyDictionary()
        self._lock = threading.Lock()

    def __call__(self, place: Place) -> Made:
        with self._lock:
            metrics = self._made.get(place)
            if metrics is None:
                metrics = self._made[place] = self._make(place)
            return metrics


# ---------------------------------------------------------------- what each event adds


def _contended(metrics: Metrics, event: events.Contended) -> None:
    kind = metrics.gauges.kind(event.lease.kind)
    metrics.count("contention", kind)
    if event.queued:
        metrics.gauges.waits(event.lease.number, kind)


def _acquired(metrics: Metrics, event: events.Acquired) -> None:
    kind = metrics.gauges.kind(event.lease.kind)
    metrics.gauges.acquired(event.lease.number, kind)
    metrics.count("acquire", kind, event.lease.store, "acquired")
    metrics.measure("acquire_wait", kind, event.waited)


def _refused(metrics: Metrics, event: events.Refused) -> None:
    kind = metrics.gauges.kind(event.lease.kind)
    metrics.gauges.refused(event.lease.number)
    metrics.count("acquire", kind, event.lease.store, event.outcome)
    if event.outcome in WAITED:
        metrics.measure("acquire_wait", kind, event.waited)


def _renewed(metrics: Metrics, event: events.Renewed) -> None:
    kind = metrics.gauges.kind(event.lease.kind)
    metrics.count("renew", kind, "renewed")
    metrics.measure("renew_slack", kind, event.slack)


def _not_renewed(metrics: Metrics, event: events.NotRenewed) -> None:
    metrics.count("renew", metrics.gauges.kind(event.lease.kind), event.outcome)


def _lost(metrics: Metrics, event: events.Lost) -> None:
    metrics.count("lost", metrics.ended(event), event.reason)


def _released(metrics: Metrics, event: events.Released) -> None:
    metrics.count("release", metrics.ended(event), "released")


def _stale(metrics: Metrics, event: events.StaleRelease) -> None:
    kind = metrics.ended(event)
    metrics.count("release", kind, "not_owner")
    metrics.count("stale_release", kind)


def _unknown(metrics: Metrics, event: events.ReleaseUnknown) -> None:
    metrics.count("release", metrics.ended(event), "unknown")


def _fenced_off(metrics: Metrics, event: events.FencedOff) -> None:
    metrics.count("fencing_rejected", metrics.gauges.kind(event.lease.kind), metrics.downstream(event.downstream))


def _unguarded(metrics: Metrics, event: events.Unguarded) -> None:
    metrics.count("unguarded", metrics.gauges.kind(event.lease.kind))


def _leaking(metrics: Metrics, event: events.Leaking) -> None:
    metrics.gauges.leaking = event.keys


HANDLERS: dict[type, Callable[[Metrics, Any], None]] = {
    events.Contended: _contended,
    events.Acquired: _acquired,
    events.Refused: _refused,
    events.Renewed: _renewed,
    events.NotRenewed: _not_renewed,
    events.Lost: _lost,
    events.Released: _released,
    events.StaleRelease: _stale,
    events.ReleaseUnknown: _unknown,
    events.FencedOff: _fenced_off,
    events.Unguarded: _unguarded,
    events.Leaking: _leaking,
}
