"""Leasehold: leases with fencing tokens, honest about what a lock is.

    import leasehold

    hold = leasehold.connect()                                  # the embedded store: every process of this host
    with hold.lock("report-export", 42, ttl=30) as lease:       # waits, renews while the body runs, releases
        export(42, fence=lease.fence)

A lease can end before the work does. ``lease.lost`` and ``lease.check()`` say so; only a guard at the resource,
which refuses an older fence, makes a late write harmless: see ``leasehold.guards``.
"""

from __future__ import annotations

from leasehold import aio
from leasehold.coordinator import AsyncLeasehold, Leasehold, connect
from leasehold.core.bucket import bucket
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
from leasehold.primitives.inspection import Eviction, Holder, Inspection, Note, Waiting
from leasehold.primitives.lease import AsyncLease, Lease
from leasehold.primitives.lock import AsyncLock, Lock
from leasehold.primitives.skipped import SKIPPED, Skipped
from leasehold.runtime.backoff import Backoff

__version__ = "0.1.0"

__all__ = [
    "SKIPPED",
    "AsyncLease",
    "AsyncLeasehold",
    "AsyncLock",
    "Backoff",
    "Eviction",
    "Holder",
    "Inspection",
    "InvalidRequest",
    "Lease",
    "LeaseLost",
    "Leasehold",
    "LeaseholdError",
    "Lock",
    "NotAcquired",
    "NotHeld",
    "Note",
    "OutcomeUnknown",
    "Skipped",
    "StaleOwner",
    "StoreUnavailable",
    "Unsupported",
    "Waiting",
    "aio",
    "bucket",
    "connect",
]
