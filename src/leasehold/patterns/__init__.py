"""What people really wanted the lock for, made only of primitives and guards."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from leasehold.patterns.jobs.job import AsyncJob, Job
    from leasehold.patterns.jobs.jobs import AsyncJobs, Jobs

__all__ = ["AsyncJob", "AsyncJobs", "Job", "Jobs"]

# Where each name comes from. It is loaded when somebody first asks for it.
_PLACES = {
    "AsyncJob": "jobs.job",
    "AsyncJobs": "jobs.jobs",
    "Job": "jobs.job",
    "Jobs": "jobs.jobs",
}


def __getattr__(name: str) -> object:
    if name not in _PLACES:
        raise AttributeError(f"module 'leasehold.patterns' has no attribute {name!r}")
    from importlib import import_module

    value: object = getattr(import_module(f"leasehold.patterns.{_PLACES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*(name for name in globals() if name.startswith("__")), *__all__])
