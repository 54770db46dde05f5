"""What is measured, and what each event adds to it: written once, for Prometheus and for OpenTelemetry.

Labels are the kind, the store, and outcomes of which there are few: never an id.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

from leasehold._core.light_typing import Any, NamedTuple, TypeAlias
from leasehold.observe import events
from leasehold.observe.tally import Labels, Tally


class Counter(NamedTuple):
    help: str
    labels: tuple[str, ...]


class Histogram(NamedTuple):
    """In seconds, by kind."""

    help: str
    buckets: tuple[float, ...]


COUNTERS = {
    "acquire": Counter("Acquires, by how they ended", ("kind", "store", "outcome")),
    "release": Counter("Releases, by how they ended", ("kind", "outcome")),
    "renew": Counter("Renewals, by how they ended", ("kind", "outcome")),
    "lost": Counter("Leases that ended while somebody believed in them", ("kind", "reason")),
    "stale_release": Counter("Releases that came too late", ("kind",)),
    "fencing_rejected": Counter("Writes that a guard refused because of an older fence", ("kind", "downstream")),
    "unguarded": Counter("Leases that protect correctness, and whose fence nobody has seen", ("kind",)),
    "contention": Counter("Acquires that found the resource taken", ("kind",)),
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

WAITED = ("timeout", "cancelled")  # refusals whose waiting counts: who tried once, or had no store, did not wait
Ending: TypeAlias = events.Lost | events.Released | events.StaleRelease | events.ReleaseUnknown


class Metrics(ABC):
    """The metrics of one registry or provider."""

    def __init__(self) -> None:
        self.tally = Tally()
        self.downstream = Labels()

    @abstractmethod
    def count(self, counter: str, *labels: str) -> None:
        """One more."""

    @abstractmethod
    def measure(self, histogram: str, kind: str, seconds: float) -> None:
        """One more value."""

    def hear(self, event: events.Event) -> None:
        """Whatever it adds."""
        adds = ADDS.get(type(event))
        if adds is not None:
            adds(self, event)

    def ended(self, event: Ending) -> str:
        """However it ended; its kind. What it was held for is measured once."""
        kind = self.tally.kind(event.lease.kind)
        if self.tally.ended(event.lease.number):
            self.measure("hold", kind, event.held)
        return kind


# ---------------------------------------------------------------- what each event adds


def _contended(metrics: Metrics, event: events.Contended) -> None:
    kind = metrics.tally.kind(event.lease.kind)
    metrics.count("contention", kind)
    if event.queued:
        metrics.tally.waits(event.lease.number, kind)


def _acquired(metrics: Metrics, event: events.Acquired) -> None:
    kind = metrics.tally.kind(event.lease.kind)
    metrics.tally.acquired(event.lease.number, kind)
    metrics.count("acquire", kind, event.lease.store, "acquired")
    metrics.measure("acquire_wait", kind, event.waited)


def _refused(metrics: Metrics, event: events.Refused) -> None:
    kind = metrics.tally.kind(event.lease.kind)
    metrics.tally.refused(event.lease.number)
    metrics.count("acquire", kind, event.lease.store, event.outcome)
    if event.outcome in WAITED:
        metrics.measure("acquire_wait", kind, event.waited)


def _renewed(metrics: Metrics, event: events.Renewed) -> None:
    kind = metrics.tally.kind(event.lease.kind)
    metrics.count("renew", kind, "renewed")
    metrics.measure("renew_slack", kind, event.slack)


def _not_renewed(metrics: Metrics, event: events.NotRenewed) -> None:
    metrics.count("renew", metrics.tally.kind(event.lease.kind), event.outcome)


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
    metrics.count("fencing_rejected", metrics.tally.kind(event.lease.kind), metrics.downstream(event.downstream))


def _unguarded(metrics: Metrics, event: events.Unguarded) -> None:
    metrics.count("unguarded", metrics.tally.kind(event.lease.kind))


def _leaking(metrics: Metrics, event: events.Leaking) -> None:
    metrics.tally.leaking = event.keys


ADDS: dict[type, Callable[[Metrics, Any], None]] = {
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
