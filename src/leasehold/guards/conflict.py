"""Somebody else was faster: the error of a guard that says *run the step again*."""

from __future__ import annotations

from leasehold.errors import StoreUnavailable


class Conflict(StoreUnavailable):
    """Somebody else was faster, and nothing was written: run the whole step again, from its first read.

    In SQL a serialization failure, a deadlock, a lock that took too long: roll back, and begin a new transaction. In
    object storage an object that has changed since it was read. It says nothing about who is the newer owner: that is
    StaleOwner. ``Backoff.call`` and ``acall`` try again after it; give them the whole step, with the read in it."""
