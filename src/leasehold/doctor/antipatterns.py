"""Anti-patterns that show in the metrics of programs that use Leasehold.

Programs count what they notice themselves in ``leasehold_antipattern_total{kind,pattern}``. What they do not is found
from the other counters, and from the histogram of how long leases are held.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

from leasehold.advice.samples import ENOUGH
from leasehold.doctor.exposition import Exposition
from leasehold.doctor.report import Finding, note, ok, problem, warning

NOTICED = "leasehold_antipattern_total"
TTL, HOLD = "leasehold_ttl_seconds", "leasehold_hold_seconds"
TOO_LONG = 10  # times the p99.9 of holding
TOO_SHORT = 0.01  # of the leases are held for more than the ttl
BEARABLE = 60.0  # seconds: that a crash blocks recovery for so long is no more than a note
INTENDED = ("leasehold_cron_", "leasehold_election_")  # many processes want one lease, as they should
MANY_BUSY, BUSY_SHARE = 100, 10  # refused tries: so many, and so many for each that was granted


def find(metrics: Exposition) -> list[Finding]:
    """One finding for each pattern and kind; or that there is none."""
    found = [finding for one in PATTERNS for finding in one(metrics)]
    if any(name.startswith("leasehold_") for name in metrics.names):
        return found or [ok("anti-patterns", "the metrics show no anti-pattern")]
    return [
        note(
            "anti-patterns",
            "there are no metrics of Leasehold among these",
            "",
            "Give the exposition of a program with a PrometheusObserver",
        )
    ]


def _deleted(metrics: Exposition) -> Iterator[Finding]:
    for kind, count in metrics.by_kind("leasehold_lost_total", reason="deleted").items():
        yield problem(
            "blind delete",
            f"{_kind(kind)}: {many(count, 'lease was', 'leases were')} deleted in the store while held",
            "Somebody deletes without comparing the owner (DEL, FLUSHALL), or the store evicts or lost its data: two "
            "can hold",
            "Release by the owner alone; operators use `leasehold clear`. See what this report says of the store",
        )


def _without_ttl(metrics: Exposition) -> Iterator[Finding]:
    count = metrics.total("leasehold_keys_without_ttl")
    if count:
        yield problem(
            "no ttl",
            f"{many(count, 'key has', 'keys have')} no TTL",
            "After a crash nobody can ever take them",
            "`leasehold leaks` lists them: delete those whose holder is gone, and give them a TTL",
        )


def _ttl_too_long(metrics: Exposition) -> Iterator[Finding]:
    seen = metrics.by_kind(NOTICED, pattern="ttl_too_long")
    for kind, ttl in _ttls(metrics):
        held = metrics.quantile(HOLD, 0.999, kind=kind)
        enough = metrics.count(HOLD, kind=kind) >= ENOUGH
        if held is not None and enough and ttl > TOO_LONG * held:
            seen.pop(kind, None)
            yield _too_long(
                kind, f"the ttl is {ttl:g} s, and 99.9 % of the leases are held for {held:g} s or less", ttl
            )
    for kind in seen:
        yield _too_long(kind, "the ttl is more than ten times what 99.9 % of the leases are held for", math.inf)


def _too_long(kind: str, text: str, ttl: float) -> Finding:
    make = warning if ttl > BEARABLE else note
    return make(
        "ttl too long",
        f"{_kind(kind)}: {text}",
        "After a crash nobody can go on until the ttl is over",
        "`leasehold ttl --from` computes a better one from these metrics",
    )


def _ttl_too_short(metrics: Exposition) -> Iterator[Finding]:
    seen = metrics.by_kind(NOTICED, pattern="ttl_too_short")
    expired = metrics.by_kind("leasehold_lost_total", reason="expired")
    renewed = metrics.by_kind("leasehold_renew_total", outcome="renewed")
    for kind, ttl in _ttls(metrics):
        share = metrics.share_above(HOLD, ttl, kind=kind)
        if share > TOO_SHORT and kind not in renewed:
            seen.pop(kind, None)
            expired.pop(kind, None)
            yield _too_short(
                kind,
                f"{share * 100:.3g} % of the leases are held for more than the ttl of {ttl:g} s, and none is renewed",
            )
    for kind in seen:
        expired.pop(kind, None)
        yield _too_short(kind, "leases are held for longer than their ttl, and are not renewed")
    for kind, count in expired.items():
        yield _too_short(kind, f"{many(count, 'lease', 'leases')} expired while held")


def _too_short(kind: str, text: str) -> Finding:
    return warning(
        "ttl too short",
        f"{_kind(kind)}: {text}",
        "Work goes on without a lease, beside the next holder",
        "Renew (renew=True, the default), or choose a ttl with `leasehold ttl`",
    )


def _believing(metrics: Exposition) -> Iterator[Finding]:
    stale = metrics.by_kind("leasehold_stale_release_total")
    refused = metrics.by_kind("leasehold_fencing_rejected_total")
    for kind in sorted({*stale, *refused}):
        late = many(stale.get(kind, 0), "release", "releases")
        saw = f"{late} came too late, {many(refused.get(kind, 0), 'write was', 'writes were')} refused by a guard"
        protected = ". The guard protected the data" if kind in refused else ""
        yield warning(
            "believing expiry",
            f"{_kind(kind)}: {saw}",
            f"Work went on after its lease had ended{protected}",
            "Stop at lease.lost or lease.check(), and guard each write with the fence",
        )


def _unguarded(metrics: Exposition) -> Iterator[Finding]:
    counted = metrics.by_kind("leasehold_unguarded_total")
    kinds = {**metrics.by_kind(NOTICED, pattern="unguarded"), **counted}
    for kind, count in kinds.items():
        magic = metrics.total("leasehold_acquire_total", kind=kind, store="redlock")
        name = "redlock as magic" if magic else "no fencing"
        also = ", on a Redlock, which is no consensus" if magic else ""
        yield problem(
            name,
            f"{_kind(kind)}: {many(count, 'lease', 'leases')} protected correctness{also}, and no one used the fence",
            "A paused holder writes after its lease has ended, and nothing refuses it",
            "Give the fence to a guard (leasehold.guards) in the same step as the write",
        )


def _retry_loops(metrics: Exposition) -> Iterator[Finding]:
    busy = metrics.by_kind("leasehold_acquire_total", outcome="busy")
    acquired = metrics.by_kind("leasehold_acquire_total", outcome="acquired")
    intended = {one.labels.get("kind", "") for one in metrics.samples if one.name.startswith(INTENDED)}
    loops = {kind for kind, count in busy.items() if count >= MANY_BUSY and count > BUSY_SHARE * acquired.get(kind, 0)}
    loops -= intended  # each host tries once for each tick, and one of them is granted it
    for kind in sorted(loops | metrics.by_kind(NOTICED, pattern="retry_loop").keys()):
        yield warning(
            "endless retry",
            f"{_kind(kind)}: {many(busy.get(kind, 0), 'try was', 'tries were')} refused, and "
            f"{acquired.get(kind, 0):.0f} granted",
            "Each waiter asks again and again, in no order",
            "Wait in the queue (wait=), or retry with a bounded, jittered leasehold.Backoff",
        )


def _global_locks(metrics: Exposition) -> Iterator[Finding]:
    for kind in metrics.by_kind(NOTICED, pattern="no_id"):
        yield warning(
            "one global lock",
            f"{_kind(kind)}: it is contended, and has no id",
            "Unrelated work waits for each other",
            "Give each thing an id of its own: hold.lock(kind, id); or spread it with leasehold.bucket",
        )


def _ttls(metrics: Exposition) -> Iterable[tuple[str, float]]:
    """The largest ttl of each kind, over all processes."""
    largest: dict[str, float] = {}
    for one in metrics.samples:
        if one.name == TTL:
            kind = one.labels.get("kind", "")
            largest[kind] = max(largest.get(kind, 0.0), one.value)
    return sorted((kind, ttl) for kind, ttl in largest.items() if ttl > 0)


def many(count: float, one: str, more: str) -> str:
    """All of its digits: a million is not 1e+06."""
    return f"{count:.0f} {one if count == 1 else more}"


def _kind(kind: str) -> str:
    return kind or "(no kind)"


PATTERNS = (
    _deleted,
    _without_ttl,
    _ttl_too_long,
    _ttl_too_short,
    _believing,
    _unguarded,
    _retry_loops,
    _global_locks,
)
