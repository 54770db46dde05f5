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
from collections.abc import Callable, Iterator, Mapping
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
    """The present state of this process, by its events: leases that are held, acquires that wait, keys without a TTL,
    and the state of patterns.

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
        self._ttls: dict[str, float] = {}  # the largest of each kind
        self._successes: dict[tuple[str, str], float] = {}  # of crons, by kind and id_hash
        self._jobs: dict[str, Mapping[str, int]] = {}  # by kind and state, as counts() has found them
        self._candidates: dict[tuple[str, str], tuple[str, float]] = {}  # their state, and since when

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

    def used_ttl(self, kind: str, ttl_ms: int) -> None:
        if ttl_ms / 1000 > self._ttls.get(kind, 0.0):
            self._ttls[kind] = ttl_ms / 1000

    def ttls(self) -> dict[str, float]:
        """The largest ttl of each kind, in seconds."""
        return self._ttls.copy()

    # ------------------------------------------------------------ patterns

    def cron_succeeded(self, kind: str, id_hash: str, ended: float) -> None:
        if len(self._successes) < MOST_LABELS or (kind, id_hash) in self._successes:
            self._successes[kind, id_hash] = ended

    def last_successes(self) -> dict[str, float]:
        """When a run of each kind was last a success; where a kind has several crons, that of the one that lags
        behind."""
        oldest: dict[str, float] = {}
        for (kind, _), ended in list(self._successes.items()):
            oldest[kind] = min(ended, oldest.get(kind, ended))
        return oldest

    def jobs_counted(self, kind: str, counts: Mapping[str, int]) -> None:
        self._jobs[kind] = dict(counts)

    def jobs(self) -> dict[tuple[str, str], int]:
        """How many jobs there are, by kind and state."""
        return {(kind, state): count for kind, counts in list(self._jobs.items()) for state, count in counts.items()}

    def candidate(self, kind: str, id_hash: str, state: str) -> None:
        """A candidate that stands again still knows of no leader since it first did."""
        key = (kind, id_hash)
        if state == "left":
            self._candidates.pop(key, None)
        elif self._candidates.get(key, ("", 0.0))[0] != state and (
            len(self._candidates) < MOST_LABELS or key in self._candidates
        ):
            self._candidates[key] = (state, time.monotonic())

    def leading(self) -> dict[str, int]:
        """How many elections of each kind this process leads; 0 for those in which it only stands."""
        counts: dict[str, int] = {}
        for (kind, _), (state, _) in list(self._candidates.items()):
            counts[kind] = counts.get(kind, 0) + (state == "leads")
        return counts

    def leaderless(self) -> dict[str, float]:
        """For how many seconds this process, as a candidate, knows of no leader."""
        now, seconds = time.monotonic(), dict[str, float]()
        for (kind, _), (state, since) in list(self._candidates.items()):
            seconds[kind] = max(seconds.get(kind, 0.0), now - since if state == "stands" else 0.0)
        return seconds


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
    "antipattern": Counter("Known mistakes that the leases of a kind show, once for each process", ("kind", "pattern")),
    "single_flight": Counter("Calls by how they were served, and rebuilds by how they ended", ("kind", "outcome")),
    "once": Counter("Calls with an idempotency key, by what they came to", ("kind", "outcome")),
    "cron": Counter("Runs and ticks of crons, by how they ended", ("kind", "outcome")),
    "jobs": Counter("What happened to the jobs of a table", ("kind", "outcome")),
    "election_terms": Counter("Terms that this process has begun to lead", ("kind",)),
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
    "cron_duration": Histogram(
        "How long the runs of a cron took", (0.1, 1.0, 10.0, 60.0, 300.0, 1800.0, 3600.0, 21600.0, 86400.0)
    ),
}


class Gauge(NamedTuple):
    """A value of the present state. ``read`` returns it by its labels; ``unit`` is what OpenTelemetry calls it, and
    ``summed`` whether the sum over several processes means something."""

    help: str
    labels: tuple[str, ...]
    unit: str
    read: Callable[[Gauges], Mapping[Any, float]]
    summed: bool = False

    def values(self, gauges: Gauges) -> list[tuple[tuple[str, ...], float]]:
        """Each with the values of its labels."""
        return [(key if isinstance(key, tuple) else (key,), value) for key, value in self.read(gauges).items()]


def _leaks(gauges: Gauges) -> Mapping[Any, float]:
    return {} if gauges.leaking is None else {(): gauges.leaking}  # no value before leaks() has counted them


# By their names in Prometheus. Those that are measured in seconds have the unit in their names there.
GAUGES = {
    "held": Gauge("Leases that this process holds", ("kind",), "{lease}", Gauges.held, summed=True),
    "waiters": Gauge("Acquires of this process that wait", ("kind",), "{waiter}", Gauges.waiters, summed=True),
    "oldest_held_seconds": Gauge(
        "For how long the oldest lease of this process is held", ("kind",), "s", Gauges.oldest
    ),
    "keys_without_ttl": Gauge("Keys without a TTL that leaks() found last", (), "{key}", _leaks),
    "ttl_seconds": Gauge("The largest ttl that this process has used", ("kind",), "s", Gauges.ttls),
    "cron_last_success_timestamp_seconds": Gauge(
        "When a run of the fleet was last a success, in seconds since 1970", ("kind",), "s", Gauges.last_successes
    ),
    "jobs_by_state": Gauge("Jobs in each state, as counts() found them last", ("kind", "state"), "{job}", Gauges.jobs),
    "election_leading": Gauge("Elections that this process leads", ("kind",), "{term}", Gauges.leading, summed=True),
    "election_leaderless_seconds": Gauge(
        "For how long this process, as a candidate, knows of no leader", ("kind",), "s", Gauges.leaderless
    ),
}

WAITED = ("timeout", "cancelled")  # refusals after a wait: a single try, or one without a store, did not wait
Ending: TypeAlias = events.Lost | events.Released | events.StaleRelease | events.ReleaseUnknown


class Metrics(ABC):
    """The metrics of one registry or provider."""

    def __init__(self) -> None:
        self.gauges = Gauges()
        self.downstream = Labels()
        self.pattern_kind = Labels()  # apart from those of leases, each of which is listed as held or not

    @abstractmethod
    def count(self, counter: str, *labels: str, by: int = 1) -> None:
        """Add one to a counter, or more."""

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
    metrics.gauges.used_ttl(kind, event.lease.ttl_ms)
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


def _anti_pattern(metrics: Metrics, event: events.AntiPattern) -> None:
    metrics.count("antipattern", metrics.gauges.kind(event.lease.kind), event.pattern)


def _flight(metrics: Metrics, event: events.FlightServed) -> None:
    metrics.count("single_flight", metrics.pattern_kind(event.kind), event.outcome)


def _once(metrics: Metrics, event: events.OnceServed) -> None:
    metrics.count("once", metrics.pattern_kind(event.kind), event.outcome)


def _cron_ran(metrics: Metrics, event: events.CronRan) -> None:
    kind = metrics.pattern_kind(event.kind)
    metrics.count("cron", kind, event.outcome)
    metrics.measure("cron_duration", kind, event.took)


def _cron_passed_over(metrics: Metrics, event: events.CronPassedOver) -> None:
    metrics.count("cron", metrics.pattern_kind(event.kind), event.outcome, by=event.ticks)


def _cron_succeeded(metrics: Metrics, event: events.CronSucceeded) -> None:
    metrics.gauges.cron_succeeded(metrics.pattern_kind(event.kind), event.id_hash, event.ended)


def _job_moved(metrics: Metrics, event: events.JobMoved) -> None:
    metrics.count("jobs", metrics.pattern_kind(event.kind), event.outcome)


def _jobs_counted(metrics: Metrics, event: events.JobsCounted) -> None:
    metrics.gauges.jobs_counted(metrics.pattern_kind(event.kind), event.counts)


def _candidacy(metrics: Metrics, event: events.Candidacy) -> None:
    kind = metrics.pattern_kind(event.kind)
    metrics.gauges.candidate(kind, event.id_hash, event.state)
    if event.state == "leads":
        metrics.count("election_terms", kind)


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
    events.AntiPattern: _anti_pattern,
    events.FlightServed: _flight,
    events.OnceServed: _once,
    events.CronRan: _cron_ran,
    events.CronPassedOver: _cron_passed_over,
    events.CronSucceeded: _cron_succeeded,
    events.JobMoved: _job_moved,
    events.JobsCounted: _jobs_counted,
    events.Candidacy: _candidacy,
}
