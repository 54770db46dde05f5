"""The loop of a worker: claim a job, do it, end it; wait when none is due, and go on when the database comes back."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from inspect import iscoroutinefunction, isroutine
from typing import TYPE_CHECKING, Any

from leasehold._core.durations import optional_seconds
from leasehold.errors import InvalidRequest, OutcomeUnknown, StoreUnavailable
from leasehold.observe import log

if TYPE_CHECKING:
    from leasehold.patterns.jobs.base import BaseJobs
    from leasehold.patterns.jobs.flows import Flow
    from leasehold.patterns.jobs.job import BaseJob

MOST_AT_ONCE = 256


class WorkerStop:
    """The user's event; and the end of all loops when one of several has failed, or was interrupted."""

    def __init__(self, stop: Any) -> None:
        self.stop = stop
        self.broken = False

    def is_set(self) -> bool:
        return self.broken or bool(self.stop.is_set())


def work_loop(
    jobs: BaseJobs, perform: Callable[[Any], Any], ending: WorkerStop, poll: float, drain: bool, queue: str | None
) -> Flow[int]:
    """-> how many jobs were done. ``perform`` runs one job to its end, and returns whether it was done."""
    done = 0
    while not ending.is_set():
        job = None
        try:
            found = yield from jobs._claim_flow(1, queue)
            job = found[0] if found else None
            if job is None and drain:
                break
        except (StoreUnavailable, OutcomeUnknown) as error:
            if drain:
                raise
            log.warn("no job of %s could be claimed: %s", jobs.table, error, error=error)
        if job is None:
            yield partial(jobs._flavour.waited, ending.stop, poll / 2 * (1 + _share()))
        else:
            done += yield lambda job=job: perform(job)  # type: ignore[misc]  # this one
    return done


def log_failure(job: BaseJob, error: Exception) -> bool:
    """An error of one job does not end the loop: it is written to the table and to the log."""
    log.warn("%s failed and is %s: %s", job.shown, job.state, type(error).__name__, error=error)
    return False


def checked(function: object, awaited: bool, poll: object, concurrency: object) -> float:
    """-> seconds between two claims when no job is due. A function of the wrong kind, sync or async, would fail one job
    after the other, until all are dead."""
    if not callable(function):
        raise InvalidRequest(f"work takes a function of one job, not {type(function).__name__}")
    plain = not iscoroutinefunction(function)
    if not plain and not awaited:
        raise InvalidRequest("this is a coroutine function, which nobody would await here: use AsyncJobs, or a def")
    if plain and awaited and isroutine(function):  # a callable object may well give a coroutine
        raise InvalidRequest(
            "this function is not awaited, and would block the event loop: make it async def, or use Jobs"
        )
    if not isinstance(concurrency, int) or isinstance(concurrency, bool) or not 1 <= concurrency <= MOST_AT_ONCE:
        raise InvalidRequest(f"concurrency is a whole number from 1 to {MOST_AT_ONCE}, not {concurrency!r:.80}")
    pause = optional_seconds(poll, "poll")
    if pause is None:
        raise InvalidRequest("poll is how long to wait when there is nothing to do, such as '1s'")
    return pause


def _share() -> float:
    """Workers that were started together must not claim at the same moments."""
    return int.from_bytes(os.urandom(4), "big") / 2**32
