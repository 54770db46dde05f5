"""Conflict: somebody else was faster, nothing was written, and the step is to be run again from its start."""

from __future__ import annotations

from leasehold.errors import StoreUnavailable


class Conflict(StoreUnavailable):
    """Somebody else changed it since it was read; nothing was written. Run the step again, from its first read.

    It says nothing about who is the newer owner: that is StaleOwner. ``Backoff.call`` and ``acall`` try again after
    it, because it is a StoreUnavailable; give them the whole step, with the read in it."""
