"""Known mistakes, as the events of a kind show them. Each is reported once for each kind and process.

    ttl_too_long    the ttl is more than ten times as long as the leases are held (p99.9)
    ttl_too_short   with renew=False, more than one lease in a hundred is held for longer than its ttl
    no_id           callers wait for one lock without an id: one global lock
    retry_loop      a caller that was refused tries again at once, again and again, and never waits
    unguarded       protects="correctness", and nothing has checked the fence

A mistake shows in many leases, so it takes some before one is reported. Counting needs no lock: a number that two
threads increase at once may be one too low, which changes nothing.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable

from leasehold._core.light_typing import Any
from leasehold.observe import events
from leasehold.observe.events import AntiPattern, Event, Subject

TTL_TOO_LONG, TTL_TOO_SHORT, NO_ID = "ttl_too_long", "ttl_too_short", "no_id"
RETRY_LOOP, UNGUARDED = "retry_loop", "unguarded"

LONG_SAMPLES = 1000  # leases: fewer have no p99.9
LONG_FACTOR = 10
NEVER_TOO_LONG = 60.0  # seconds; a holder that dies blocks others for no longer than that
SHORT_SAMPLES = 100  # leases: fewer have no p99
NO_ID_SAMPLES = 100  # acquires
NO_ID_SHARE = 10  # one in so many had to wait
RETRIES = 20  # refusals in a row
SHORTEST_PAUSE = 0.5  # seconds between two tries; less is a loop
MOST_KINDS = 1000  # that are remembered
MOST_CALLERS = 1000  # likewise, of each kind

ADVICE = {
    TTL_TOO_LONG: "the ttl is more than ten times as long as the work (p99.9), so a holder that dies blocks others for "
    "too long: give a shorter ttl, the lease is renewed anyway; `leasehold ttl` computes one",
    TTL_TOO_SHORT: "with renew=False, the work often takes longer than the ttl: others start while it runs. Leave "
    "renew=True, or give a longer ttl; `leasehold ttl --no-renew` computes one",
    NO_ID: "callers wait for a lock without an id, so all of them wait for each other: put what differs into an id, "
    "lock('report', report_id), or spread it with leasehold.bucket()",
    RETRY_LOOP: "a refused caller tries again at once, which loads the store and is unfair: let it wait, with "
    "wait=SECONDS, and it is woken in its turn; or use leasehold.Backoff",
    UNGUARDED: "correctness depends on this lease, and nothing checks its fence: present the lease to a guard, in the "
    "transaction of the write",
}


class KindStatistics:
    """What is known of one kind."""

    __slots__ = ("acquires", "justified", "late", "leases", "refusals", "unrenewed", "waits")

    def __init__(self) -> None:
        self.leases = 0  # that have ended
        self.justified = 0  # of these, whose ttl was not too long
        self.unrenewed = 0  # that have ended, with renew=False
        self.late = 0  # of these, held for longer than the ttl
        self.acquires = 0  # without an id
        self.waits = 0  # of these, had to wait
        self.refusals: dict[tuple[int, str], tuple[int, float]] = {}  # in a row, and when the last one ended


class AntiPatterns:
    """Finds the mistakes in the events of one coordinator."""

    def __init__(self) -> None:
        self._kinds: dict[str, KindStatistics] = {}
        self._intended: set[str] = set()  # kinds of elections and crons: many processes want one lease, as they should
        self._ended: set[int] = set()  # leases whose loss was counted, and whose late release may follow

    def find(self, event: Event) -> AntiPattern | None:
        """Count an event; the mistake that it shows, if it is the first to do so."""
        handler = HANDLERS.get(type(event))
        if handler is None:
            return None
        lease: Subject | None = getattr(event, "lease", None)
        if lease is None:  # the event of a pattern
            handler(self, None, event)
            return None
        statistics = self._kinds.get(lease.kind)
        if statistics is None:
            if len(self._kinds) >= MOST_KINDS:
                return None
            statistics = self._kinds.setdefault(lease.kind, KindStatistics())
        pattern = handler(self, statistics, event)
        if pattern is None or not _is_first(lease.kind, pattern):
            return None
        return AntiPattern(lease, pattern, ADVICE[pattern])

    # ------------------------------------------------------------ what each event shows

    def pattern(self, statistics: None, event: Any) -> None:
        if len(self._intended) < MOST_KINDS:
            self._intended.add(event.kind)

    def acquired(self, statistics: KindStatistics, event: events.Acquired) -> str | None:
        lease = event.lease
        if statistics.refusals:
            statistics.refusals.pop((_caller(), lease.id_hash), None)
        if lease.id_hash or lease.rule == "semaphore" or lease.kind in self._intended:
            return None
        statistics.acquires += 1
        if not event.contended:
            return None
        statistics.waits += 1
        often = statistics.waits * NO_ID_SHARE >= statistics.acquires
        return NO_ID if statistics.acquires >= NO_ID_SAMPLES and often else None

    def refused(self, statistics: KindStatistics, event: events.Refused) -> str | None:
        """The same caller was refused the same resource. How long it had waited before is no pause."""
        if event.outcome not in ("busy", "timeout") or event.lease.kind in self._intended:
            return None
        now, refusals = time.monotonic(), statistics.refusals
        key = (_caller(), event.lease.id_hash)
        if key not in refusals and len(refusals) >= MOST_CALLERS:
            refusals.clear()
        count, last = refusals.get(key, (0, 0.0))
        in_a_row = count + 1 if now - event.waited - last < SHORTEST_PAUSE else 1
        refusals[key] = (in_a_row, now)
        return RETRY_LOOP if in_a_row >= RETRIES else None

    def ended(self, statistics: KindStatistics, event: Any) -> str | None:
        """A lease has ended. A late release that follows a loss is not another lease."""
        lease = event.lease
        if lease.number in self._ended:
            self._ended.discard(lease.number)
            return None
        if type(event) is events.Lost and len(self._ended) < MOST_KINDS:
            self._ended.add(lease.number)
        ttl, statistics.leases = lease.ttl_ms / 1000, statistics.leases + 1
        if not lease.renews:
            statistics.unrenewed += 1
            statistics.late += _outlived(event, ttl)
            if statistics.unrenewed >= SHORT_SAMPLES and statistics.late * 100 > statistics.unrenewed:
                return TTL_TOO_SHORT
        statistics.justified += ttl <= NEVER_TOO_LONG or event.held * LONG_FACTOR >= ttl
        rare = statistics.justified * 1000 < statistics.leases
        return TTL_TOO_LONG if rare and statistics.leases >= LONG_SAMPLES else None

    def unguarded(self, statistics: KindStatistics, event: events.Unguarded) -> str:
        return UNGUARDED


HANDLERS: dict[type, Callable[[AntiPatterns, Any, Any], str | None]] = {
    events.Acquired: AntiPatterns.acquired,
    events.Refused: AntiPatterns.refused,
    events.Released: AntiPatterns.ended,
    events.StaleRelease: AntiPatterns.ended,
    events.Lost: AntiPatterns.ended,
    events.Unguarded: AntiPatterns.unguarded,
    events.Candidacy: AntiPatterns.pattern,
    events.CronRan: AntiPatterns.pattern,
    events.CronSucceeded: AntiPatterns.pattern,
}


def _outlived(event: Any, ttl: float) -> bool:
    """Was it held for longer than its ttl? The end of a lease that nothing renews is its loss: the work goes on."""
    expired = type(event) is events.Lost and event.reason == "expired"
    return expired or type(event) is events.StaleRelease or event.held > ttl


def _caller() -> int:
    """The thread, or the task of an event loop, in which this is called."""
    asyncio = sys.modules.get("asyncio")
    if asyncio is not None:
        try:
            task = asyncio.current_task()
        except RuntimeError:  # no event loop runs in this thread
            task = None
        if task is not None:
            return id(task)
    return threading.get_ident()


# ---------------------------------------------------------------- once for each process

_reported: dict[tuple[str, str], object] = {}


def _is_first(kind: str, pattern: str) -> bool:
    """Is this the first report of it in this process? Of two threads that ask at once, one is told so."""
    key = (kind, pattern)
    if key in _reported or len(_reported) >= MOST_KINDS * len(ADVICE):
        return False
    mark = object()
    return _reported.setdefault(key, mark) is mark


if hasattr(os, "register_at_fork"):  # Windows has no fork
    os.register_at_fork(after_in_child=_reported.clear)
