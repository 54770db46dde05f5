"""Result stores keep the texts of patterns: a cached value, a stored result, the last run of a cron.

A result store is a guard that keeps what was written: an older fence is refused in the same step.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from leasehold.patterns.results.memory import MemoryResultStore
    from leasehold.patterns.results.redis import RedisResultStore
    from leasehold.patterns.results.result_store import Entry, ResultStore
    from leasehold.patterns.results.sql import SQLResultStore
    from leasehold.patterns.results.sqlite import SQLiteResultStore
    from leasehold.patterns.results.threaded import ThreadedResultStore

__all__ = [
    "Entry",
    "MemoryResultStore",
    "RedisResultStore",
    "ResultStore",
    "SQLResultStore",
    "SQLiteResultStore",
    "ThreadedResultStore",
]

_PLACES = {
    "Entry": "result_store",
    "MemoryResultStore": "memory",
    "RedisResultStore": "redis",
    "SQLResultStore": "sql",
    "SQLiteResultStore": "sqlite",
    "ResultStore": "result_store",
    "ThreadedResultStore": "threaded",
}


def __getattr__(name: str) -> object:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = getattr(import_module(f"{__name__}.{_PLACES[name]}"), name)
    globals()[name] = found
    return found
