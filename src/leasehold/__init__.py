"""Leasehold: leases with fencing tokens, honest about what a lock is.

    import leasehold

    hold = leasehold.connect()                                  # the embedded store: your processes on this host
    with hold.lock("report-export", 42, ttl=30) as lease:       # waits, renews while the body runs, releases
        export(42, fence=lease.fence)

A lease can end before the work does. ``lease.lost`` and ``lease.check()`` show it; only a guard at the resource,
which refuses an older fence, makes a late write harmless: see ``leasehold.guards``.
"""

from __future__ import annotations

from leasehold._core.light_typing import TYPE_CHECKING

if TYPE_CHECKING:
    from leasehold import aio
    from leasehold._core.guarantees import Guarantee, Guarantees
    from leasehold._core.names import bucket
    from leasehold._runtime.backoff import Backoff
    from leasehold.advice.decision import advise
    from leasehold.advice.need import Need
    from leasehold.advice.verdict import Verdict
    from leasehold.coordinator import AsyncLeasehold, Leasehold, connect
    from leasehold.errors import (
        InvalidRequest,
        LeaseholdError,
        LeaseLost,
        NotAcquired,
        NotHeld,
        OutcomeUnknown,
        StaleOwner,
        StoreUnavailable,
        Unsupported,
    )
    from leasehold.primitives.decorated_function import SKIPPED, Skipped
    from leasehold.primitives.election import AsyncElection, Election
    from leasehold.primitives.inspection import Eviction, Holder, Inspection, Note, Waiting
    from leasehold.primitives.leader import Leader
    from leasehold.primitives.lease import AsyncLease, Lease
    from leasehold.primitives.lease_batch import AsyncLeaseBatch, LeaseBatch
    from leasehold.primitives.leases import AsyncLeases, Leases
    from leasehold.primitives.lock import AsyncLock, Lock
    from leasehold.primitives.multi import All, AsyncAll
    from leasehold.primitives.rwlock import (
        AsyncReadLock,
        AsyncReadWriteLease,
        AsyncReadWriteLock,
        AsyncWriteLock,
        ReadLock,
        ReadWriteLease,
        ReadWriteLock,
        WriteLock,
    )
    from leasehold.primitives.semaphore import AsyncPermit, AsyncSemaphore, Permit, Semaphore
    from leasehold.primitives.term import AsyncTerm, Term

__version__ = "0.1.0"

__all__ = [
    "SKIPPED",
    "All",
    "AsyncAll",
    "AsyncElection",
    "AsyncLease",
    "AsyncLeaseBatch",
    "AsyncLeasehold",
    "AsyncLeases",
    "AsyncLock",
    "AsyncPermit",
    "AsyncReadLock",
    "AsyncReadWriteLease",
    "AsyncReadWriteLock",
    "AsyncSemaphore",
    "AsyncTerm",
    "AsyncWriteLock",
    "Backoff",
    "Election",
    "Eviction",
    "Guarantee",
    "Guarantees",
    "Holder",
    "Inspection",
    "InvalidRequest",
    "Leader",
    "Lease",
    "LeaseBatch",
    "LeaseLost",
    "Leasehold",
    "LeaseholdError",
    "Leases",
    "Lock",
    "Need",
    "NotAcquired",
    "NotHeld",
    "Note",
    "OutcomeUnknown",
    "Permit",
    "ReadLock",
    "ReadWriteLease",
    "ReadWriteLock",
    "Semaphore",
    "Skipped",
    "StaleOwner",
    "StoreUnavailable",
    "Term",
    "Unsupported",
    "Verdict",
    "Waiting",
    "WriteLock",
    "advise",
    "aio",
    "bucket",
    "connect",
]

# The module of each name. It is loaded at the first use of the name, so that a command that needs little starts fast.
_MODULES = ("aio", "errors")
_PLACES = {
    "SKIPPED": "primitives.decorated_function",
    "All": "primitives.multi",
    "AsyncAll": "primitives.multi",
    "AsyncElection": "primitives.election",
    "AsyncLease": "primitives.lease",
    "AsyncLeaseBatch": "primitives.lease_batch",
    "AsyncLeasehold": "coordinator",
    "AsyncLeases": "primitives.leases",
    "AsyncLock": "primitives.lock",
    "AsyncPermit": "primitives.semaphore",
    "AsyncReadLock": "primitives.rwlock",
    "AsyncReadWriteLease": "primitives.rwlock",
    "AsyncReadWriteLock": "primitives.rwlock",
    "AsyncSemaphore": "primitives.semaphore",
    "AsyncTerm": "primitives.term",
    "AsyncWriteLock": "primitives.rwlock",
    "Backoff": "_runtime.backoff",
    "Election": "primitives.election",
    "Eviction": "primitives.inspection",
    "Guarantee": "_core.guarantees",
    "Guarantees": "_core.guarantees",
    "Holder": "primitives.inspection",
    "Inspection": "primitives.inspection",
    "Leader": "primitives.leader",
    "Lease": "primitives.lease",
    "LeaseBatch": "primitives.lease_batch",
    "Leasehold": "coordinator",
    "Leases": "primitives.leases",
    "Lock": "primitives.lock",
    "Need": "advice.need",
    "Note": "primitives.inspection",
    "Permit": "primitives.semaphore",
    "ReadLock": "primitives.rwlock",
    "ReadWriteLease": "primitives.rwlock",
    "ReadWriteLock": "primitives.rwlock",
    "Semaphore": "primitives.semaphore",
    "Skipped": "primitives.decorated_function",
    "Term": "primitives.term",
    "Verdict": "advice.verdict",
    "Waiting": "primitives.inspection",
    "WriteLock": "primitives.rwlock",
    "advise": "advice.decision",
    "bucket": "_core.names",
    "connect": "coordinator",
}


def __getattr__(name: str) -> object:
    if name not in __all__ and name not in _MODULES:
        raise AttributeError(f"module 'leasehold' has no attribute {name!r}")
    from importlib import import_module

    if name in _MODULES:
        return import_module(f"leasehold.{name}")
    place = import_module(f"leasehold.{_PLACES.get(name, 'errors')}")
    value: object = getattr(place, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*(name for name in globals() if name.startswith("__")), *__all__])
