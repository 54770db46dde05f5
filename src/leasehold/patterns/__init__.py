"""What locks are used for: patterns that are made of primitives and guards.

    from leasehold.patterns import Jobs, advisory_lock, insert_once, row_lock, transition

``single_flight``, ``cron`` and ``once`` are methods of a coordinator. ``transition``, ``row_lock`` and ``insert_once``
work on your own tables, inside your own transaction, and take no lease at all: where the database can decide, a lock is
not needed. Nor does ``advisory_lock``, which locks a name in PostgreSQL. ``Jobs`` keeps the ownership of long work in
your own table.
"""

from __future__ import annotations

from leasehold._core.light_typing import TYPE_CHECKING

if TYPE_CHECKING:
    from leasehold.patterns.cron import AsyncCron, Cron, Run
    from leasehold.patterns.errors import KeyReused, RemoteError, ResultNotKept
    from leasehold.patterns.jobs.job import AsyncJob, Job
    from leasehold.patterns.jobs.jobs import AsyncJobs, Jobs
    from leasehold.patterns.once.key import AsyncOnceKey, OnceKey
    from leasehold.patterns.once.once import AsyncOnce, Once
    from leasehold.patterns.serialization import Serializer
    from leasehold.patterns.single_flight.single_flight import (
        AsyncSingleFlight,
        AsyncSingleFlightFunction,
        SingleFlight,
        SingleFlightFunction,
    )
    from leasehold.patterns.tables.advisory_lock import advisory_lock
    from leasehold.patterns.tables.insertion import Insertion, insert_once
    from leasehold.patterns.tables.row_lock import row_lock
    from leasehold.patterns.tables.transition import transition

__all__ = [
    "AsyncCron",
    "AsyncJob",
    "AsyncJobs",
    "AsyncOnce",
    "AsyncOnceKey",
    "AsyncSingleFlight",
    "AsyncSingleFlightFunction",
    "Cron",
    "Insertion",
    "Job",
    "Jobs",
    "KeyReused",
    "Once",
    "OnceKey",
    "RemoteError",
    "ResultNotKept",
    "Run",
    "Serializer",
    "SingleFlight",
    "SingleFlightFunction",
    "advisory_lock",
    "insert_once",
    "row_lock",
    "transition",
]

# The module of each name, loaded when the name is first used.
_MODULES = {
    "AsyncCron": "cron",
    "AsyncSingleFlightFunction": "single_flight.single_flight",
    "AsyncJob": "jobs.job",
    "AsyncJobs": "jobs.jobs",
    "AsyncOnce": "once.once",
    "AsyncOnceKey": "once.key",
    "AsyncSingleFlight": "single_flight.single_flight",
    "Cron": "cron",
    "SingleFlightFunction": "single_flight.single_flight",
    "Insertion": "tables.insertion",
    "Job": "jobs.job",
    "Jobs": "jobs.jobs",
    "KeyReused": "errors",
    "Once": "once.once",
    "OnceKey": "once.key",
    "RemoteError": "errors",
    "ResultNotKept": "errors",
    "Run": "cron",
    "Serializer": "serialization",
    "SingleFlight": "single_flight.single_flight",
    "advisory_lock": "tables.advisory_lock",
    "insert_once": "tables.insertion",
    "row_lock": "tables.row_lock",
    "transition": "tables.transition",
}


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module 'leasehold.patterns' has no attribute {name!r}")
    from importlib import import_module

    value: object = getattr(import_module(f"leasehold.patterns.{_MODULES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*(name for name in globals() if name.startswith("__")), *__all__])
