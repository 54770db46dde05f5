"""Shelves: where patterns keep what they know, such as a cached value, a stored result, or the last run of a cron.

A shelf is a guard that keeps what was written: an older fence is refused in the same step.
"""

from __future__ import annotations

from leasehold.patterns.shelves.memory import MemoryShelf
from leasehold.patterns.shelves.shelf import Entry, Shelf

__all__ = ["Entry", "MemoryShelf", "Shelf"]
