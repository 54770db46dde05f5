"""Shelves: where patterns keep what they know, such as a cached value, a stored result, or the last run of a cron.

A shelf is a guard that keeps what was written: an older fence is refused in the same step.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from leasehold.patterns.results.memory import MemoryShelf
    from leasehold.patterns.results.redis import RedisShelf
    from leasehold.patterns.results.result_store import Entry, Shelf
    from leasehold.patterns.results.sql import SQLShelf
    from leasehold.patterns.results.sqlite import SQLiteShelf
    from leasehold.patterns.results.threaded import Threaded

__all__ = ["Entry", "MemoryShelf", "RedisShelf", "SQLShelf", "SQLiteShelf", "Shelf", "Threaded"]

_PLACES = {
    "Entry": "result_store",
    "MemoryShelf": "memory",
    "RedisShelf": "redis",
    "SQLShelf": "sql",
    "SQLiteShelf": "sqlite",
    "Shelf": "result_store",
    "Threaded": "threaded",
}


def __getattr__(name: str) -> object:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = getattr(import_module(f"{__name__}.{_PLACES[name]}"), name)
    globals()[name] = found
    return found
