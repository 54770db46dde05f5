"""A trial on a resource of its own: leases are taken and given back as a program does, and strangers are refused.

This is all that an examination writes. The resource is ``leasehold-doctor:<host>:<pid>``; what is left of it, its last
fence, ends by itself after a day.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from leasehold._core import ops
from leasehold._runtime.identity import new_owner
from leasehold.coordinator import Leasehold
from leasehold.doctor.report import Finding, ok, warning
from leasehold.errors import NotAcquired
from leasehold.primitives.lease import Lease
from leasehold.primitives.lock import Lock

KIND = "leasehold-doctor"
TTL_MS = 10_000  # or the longest that the store allows
WAIT = 3.0  # seconds; nobody else uses this resource
PAIRS = 50
MEASURED_FOR = 2.0  # seconds at most, if pairs are slow
SLOW = 0.1  # seconds for a pair, at p99: a renewal may take half a second at most


class Trial(NamedTuple):
    """What was seen. Latencies are in seconds."""

    latencies: tuple[float, ...]
    ends_by_itself: bool  # the lease had an end from its first moment
    owners_unique: bool
    release_compares: bool
    renewal_compares: bool
    renewal_expires: bool

    def p(self, share: float) -> float:
        """A percentile."""
        ranked = sorted(self.latencies)
        return ranked[min(int(share * len(ranked)), len(ranked) - 1)]


def run(hold: Leasehold) -> Trial:
    """Raises LeaseholdError."""
    ttl_ms = min(TTL_MS, hold._engine.store.capabilities.longest_ttl_ms)
    lock = hold.lock(KIND, socket.gethostname() or "host", os.getpid(), ttl=ttl_ms / 1000, wait=WAIT, renew=False)
    first = lock.acquire()
    if first is None:
        raise NotAcquired("another process holds the resource of this trial")
    try:
        checks = _checks(hold, lock, first, ttl_ms)
    finally:
        first.release()
    latencies: list[float] = []
    owners = {first.owner}
    until = time.monotonic() + MEASURED_FOR
    while len(latencies) < PAIRS and (time.monotonic() < until or not latencies):
        began = time.perf_counter()
        with lock as lease:
            owners.add(lease.owner)
        latencies.append(time.perf_counter() - began)
    return Trial(tuple(latencies), checks[0], len(owners) == len(latencies) + 1, *checks[1:])


def _checks(hold: Leasehold, lock: Lock, lease: Lease, ttl_ms: int) -> tuple[bool, bool, bool, bool]:
    """In the order of a Trial. A stranger has another owner and the same fence."""
    send: Callable[[Any], Any] = hold._engine.store.execute
    resource, stranger = lock._name.text, new_owner()
    ends = _ends_by_itself(hold, lock, ttl_ms)
    released = send(ops.Release(resource, stranger, lease.fence))
    renewed = send(ops.Renew(resource, stranger, lease.fence, ttl_ms))
    ours = send(ops.Renew(resource, lease.owner, lease.fence, ttl_ms))
    still = _ends_by_itself(hold, lock, ttl_ms)
    return (
        ends,
        isinstance(released, ops.NotYours) and still,
        isinstance(renewed, ops.NotYours),
        isinstance(ours, ops.Renewed) and 0 < ours.remaining_ms <= ttl_ms + 1,
    )


def _ends_by_itself(hold: Leasehold, lock: Lock, ttl_ms: int) -> bool:
    holder = hold.inspect(lock).holder
    return holder is not None and 0 < holder.expires_in <= ttl_ms / 1000 + 1


def latency(trial: Trial) -> Finding:
    text = (
        f"a pair of acquire and release takes {trial.p(0.5) * 1000:.1f} ms (p50), {trial.p(0.99) * 1000:.1f} ms (p99), "
        f"of {len(trial.latencies)}"
    )
    if trial.p(0.99) <= SLOW:
        return ok("latency", text)
    return warning(
        "latency",
        text,
        "A renewal may take a sixth of the ttl, and half a second at most: with one as slow as that, leases are lost",
        "Look at the network and the load of the store, or choose longer ttls",
    )
