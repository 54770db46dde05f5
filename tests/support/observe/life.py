"""A life in which everything happens once that an observer can hear of, and what that adds up to."""

from __future__ import annotations

import asyncio
from typing import Any

from leasehold._core.ops import Claim, Release, Renew
from leasehold.errors import OutcomeUnknown, StoreUnavailable
from leasehold.observe.events import (
    Acquired,
    Candidacy,
    CronPassedOver,
    CronRan,
    CronSucceeded,
    FlightServed,
    JobMoved,
    JobsCounted,
    Leaking,
    LimitDiffers,
    OnceServed,
)
from tests.support.lock import only
from tests.support.observe.stage import Listener, Stage, raising, refuse
from tests.support.waiting import until

TTL = 6.0
# The counters after such a life, by their labels in alphabetical order.
COUNTED: dict[tuple[str, ...], int] = {
    ("acquire", "job", "acquired", "memory"): 9,
    ("acquire", "job", "busy", "memory"): 1,
    ("acquire", "job", "timeout", "memory"): 1,
    ("acquire", "job", "cancelled", "memory"): 1,
    ("acquire", "job", "unavailable", "memory"): 1,
    ("acquire", "job", "unknown", "memory"): 1,
    ("release", "job", "released"): 6,
    ("release", "job", "not_owner"): 3,
    ("release", "job", "unknown"): 1,
    ("renew", "job", "renewed"): 3,
    ("renew", "job", "not_owner"): 1,
    ("lost", "job", "evicted"): 1,
    ("lost", "job", "expired"): 1,
    ("lost", "job", "renewal_failed"): 1,
    ("stale_release", "job"): 3,
    ("fencing_rejected", "reports", "job"): 1,
    ("unguarded", "job"): 1,
    ("contention", "job"): 3,
    ("antipattern", "job", "unguarded"): 1,
    ("single_flight", "job", "stale"): 1,
    ("once", "job", "replay"): 1,
    ("cron", "job", "ok"): 1,
    ("cron", "job", "missed"): 7,
    ("jobs", "job", "taken_over"): 1,
    ("election_terms", "job"): 1,
}
AT_LEAST = ("renew", "job", "failed")  # how often it was tried is the watchdog's business


def live(stage: Stage, heard: Listener) -> Any:
    """All of it. Everything is over at the end but one lease of the kind ``held``, which is given."""
    refusals(stage)
    endings(stage, heard)
    losses(stage, heard)
    held = stage.acquire("held", 1, ttl=3600)
    stage.engine.observers.notify(LimitDiffers(heard.of(Acquired)[-1].lease, 3, 5))
    stage.engine.observers.notify(Leaking(3))
    patterns(stage)
    return held


def patterns(stage: Stage) -> None:
    """One event of each pattern; the patterns have tests of their own."""
    for event in (
        FlightServed("job", "", "stale"),
        OnceServed("job", "", "replay"),
        CronRan("job", "", "ok", 2.0),
        CronPassedOver("job", "", "missed", 7),
        CronSucceeded("job", "", 1_794_000_000.0),
        JobMoved("job", "taken_over"),
        JobsCounted("job", {"ready": 4, "dead": 1}),
        Candidacy("job", "", "leads"),
    ):
        stage.engine.observers.notify(event)


def refusals(stage: Stage) -> None:
    """Every outcome of an acquire."""
    fence = stage.rival()
    assert stage.do(stage.lock().try_acquire) is None  # busy
    waiting = stage.start(lambda: stage.lock().acquire(wait=0.2))
    stage.until(waiting.done, "the wait is over")  # timeout
    assert waiting.result() is None
    waiting = stage.start(lambda: stage.lock(ttl=TTL).acquire(wait=None))
    until(lambda: stage.engine.observers and len(stage.spy.of(Claim)) == 3, "it waits")
    stage.rival_leaves(fence)
    stage.until(waiting.done, "its turn has come")  # acquired, contended
    stage.do(waiting.result().release)
    stage.spy.before = only(Claim, raising(asyncio.CancelledError))
    assert isinstance(stage.refused(stage.lock().acquire), asyncio.CancelledError)
    stage.spy.before = only(Claim, raising(StoreUnavailable))
    assert isinstance(stage.refused(stage.lock().acquire), StoreUnavailable)
    stage.spy.before = only(Claim, raising(OutcomeUnknown))
    waiting = stage.start(lambda: stage.lock().acquire(wait=0.2))
    stage.until(waiting.done, "it was borne long enough")
    assert isinstance(waiting.exception(), OutcomeUnknown)
    stage.spy.heal()


def endings(stage: Stage, heard: Listener) -> None:
    """Leases that were given back, in time or nearly."""
    lease = stage.acquire(ttl=TTL)
    stage.until(lambda: "Renewed" in heard.names(), "it is renewed")
    stage.do(lambda: lease.extend(60))
    stage.do(lease.release)
    lease = stage.acquire(ttl=TTL)
    stage.spy.after = only(Release, raising(OutcomeUnknown))
    assert isinstance(stage.refused(lease.release), OutcomeUnknown)
    stage.spy.heal()
    stage.do(lease.release)  # repeated, and confirmed
    lease = stage.acquire(protects="correctness")
    stage.do(lease.release)  # nobody has seen its fence
    lease = stage.acquire()
    refuse(stage, lease, downstream="reports")
    stage.do(lease.release)
    lease = stage.do(stage.hold.rwlock("job", 1).write().acquire)
    stage.do(lease.downgrade)
    stage.do(lease.release)


def losses(stage: Stage, heard: Listener) -> None:
    """Leases that were lost, each released too late."""
    lease = stage.acquire(ttl=TTL)
    stage.evict(lease)
    stage.until(lambda: lease.state == "lost", "evicted")
    assert stage.do(lease.release) is False
    lease = stage.acquire(ttl=TTL, renew=False)
    stage.until(lambda: lease.state == "lost", "expired", step=1)
    assert stage.do(lease.release) is False
    lease = stage.acquire(ttl=TTL)
    stage.spy.before = only(Renew, raising(StoreUnavailable))
    stage.until(lambda: lease.state == "lost" and "NotRenewed" in heard.names(), "renewal failed")
    stage.spy.heal()
    assert stage.do(lease.release) is False
    stage.until(lambda: heard.names().count("Lost") == 3, "all losses are told")
