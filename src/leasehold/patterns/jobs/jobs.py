"""Jobs and AsyncJobs: thin shells over the flows, for threads and for event loops."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from datetime import datetime
from typing import TYPE_CHECKING, Any

from leasehold.errors import LeaseholdError
from leasehold.observe import log
from leasehold.patterns.flavour import OnLoop, OnThread
from leasehold.patterns.jobs.base import BaseJobs
from leasehold.patterns.jobs.flows import run, run_async
from leasehold.patterns.jobs.heartbeat import HeartbeatTask, HeartbeatThread
from leasehold.patterns.jobs.job import AsyncJob, Job
from leasehold.patterns.jobs.table import JobRow
from leasehold.patterns.jobs.worker import WorkerStop, checked, log_failure, work_loop

if TYPE_CHECKING:
    from leasehold._core.durations import Duration


class Jobs(BaseJobs):
    """Durable ownership in a table of yours: which worker has claimed a job, under which version, and until when.

    ``engine`` is a SQLAlchemy Engine, a pool of psycopg, the path of a SQLite file, or a function that connects or
    begins a transaction: ``engine.begin``, ``lambda: sqlite3.connect("app.db")``. ``columns`` maps our names to the
    ones of your table, None where it has none; ``states`` maps ``ready``, ``running``, ``done`` and ``dead`` to your
    values.

    A claimed job is its worker's for ``lease``; heartbeats prolong that. Then another worker may claim it, with the
    next version, and a worker with an older one is refused. A failed job is tried again after the pauses of ``retry``,
    as often as it says; then it is dead. With ``hold``, a coordinator, a worker takes a lease before it claims a job in
    the database. ``name`` is what the owner column shows. ``observers`` are told what happens to jobs (``JobMoved``)
    and what ``counts()`` has found; those of ``hold`` are as well.

    >>> jobs = Jobs("app.db")
    >>> jobs.create()
    >>> jobs.enqueue({"report": 42})
    1
    >>> with jobs.claim() as job:
    ...     print(job.payload["report"], job.attempts)
    42 1
    >>> jobs.counts()
    {'ready': 0, 'running': 0, 'done': 1, 'dead': 0, 'expired': 0}
    """

    _flavour = OnThread()
    _kind = Job
    _beating = HeartbeatThread

    def create(self) -> None:
        """Make the table and its indexes, unless it is there; then check it."""
        run(self._create_flow())

    def check(self) -> None:
        """Does the table fit? InvalidRequest says which columns are missing or of another type. The first use does the
        same, before it changes anything."""
        run(self._check_flow())

    def enqueue(
        self,
        payload: Any = None,
        *,
        key: str | None = None,
        delay: Duration | None = None,
        run_at: datetime | None = None,
        queue: str | None = None,
        values: Mapping[str, Any] | None = None,
        tx: Any = None,
    ) -> Any:
        """Enqueue a job. -> its id.

        ``payload`` is kept as JSON. A ``key`` is enqueued once: again gives the id of the job that is there. It is due
        after ``delay`` or at ``run_at``, else now. ``values`` are for other columns of yours. With ``tx`` it is part of
        your own transaction: the job is there if and only if you commit."""
        return run(self._enqueue_flow([payload], delay, run_at, queue, key, values, tx))[0]

    def enqueue_many(
        self,
        payloads: Iterable[Any],
        *,
        delay: Duration | None = None,
        run_at: datetime | None = None,
        queue: str | None = None,
        tx: Any = None,
    ) -> list[Any]:
        """Many at once, all or none. -> their ids."""
        return run(self._enqueue_flow(payloads, delay, run_at, queue, None, None, tx))

    def claim(self, queue: str | None = None) -> Job | None:
        """The job that is due for the longest time, or None. One whose worker's lease has run out goes first."""
        found = run(self._claim_flow(1, queue))
        return found[0] if found else None

    def claim_many(self, count: int, queue: str | None = None) -> list[Job]:
        """At most ``count`` of them, in one step."""
        return run(self._claim_flow(count, queue))

    def work(
        self,
        function: Callable[[Job], Any],
        *,
        stop: threading.Event | None = None,
        poll: Duration = "1s",
        concurrency: int = 1,
        drain: bool = False,
        queue: str | None = None,
    ) -> int:
        """Claim jobs and call ``function(job)`` with each, until ``stop`` is set. -> how many were done.

        What it returns is the result; what it raises is the error, and the loop goes on. A job that it has completed
        itself, with ``tx``, stays so. When nothing is due it claims again after ``poll`` or a little less, or ends
        with ``drain``. ``concurrency`` threads do that side by side. Jobs that are under way when ``stop`` is set are
        finished."""
        pause = checked(function, self._flavour.asynchronous, poll, concurrency)
        ending = WorkerStop(threading.Event() if stop is None else stop)

        def loop() -> int:
            return run(work_loop(self, lambda job: self._perform(job, function), ending, pause, drain, queue))

        if concurrency == 1:
            return loop()
        with ThreadPoolExecutor(concurrency, thread_name_prefix="leasehold-worker") as pool:
            try:
                return sum(future.result() for future in as_completed([pool.submit(loop) for _ in range(concurrency)]))
            except BaseException:
                ending.broken = True  # the others finish what they have begun
                raise

    def counts(self) -> dict[str, int]:
        """How many are in each state; ``expired`` are those of the running ones whose lease has run out. Observers are
        told as well: to have them as a metric, call this now and then, in one process."""
        return run(self._count_flow())

    def get(self, job_id: Any) -> Job | None:
        """Read a job, without claiming it."""
        found: Job | None = run(self._get_flow(job_id))
        return found

    def dead(self, limit: int = 100) -> list[Job]:
        """The latest dead jobs, with the error of each."""
        return run(self._dead_flow(limit))

    def retry_dead(self, job_id: Any) -> bool:
        """Give a dead job all its attempts again. False: it is not dead, or does not exist."""
        return run(self._revive_flow(job_id))

    def purge(self, older_than: Duration, state: str = "done") -> int:
        """Delete jobs that ended so long ago, done or dead. -> how many. Their keys are free again."""
        return run(self._purge_flow(older_than, state))

    def _perform(self, job: Job, function: Callable[[Job], Any]) -> bool:
        try:
            with job:
                result = function(job)
                if job.state == "running":
                    job.complete(result)
        except Exception as error:
            return log_failure(job, error)
        return job.state == "done"

    def _whole(self, rows: list[JobRow]) -> list[JobRow]:
        return rows


class AsyncJobs(BaseJobs):
    """The same, awaited, for a SQLAlchemy AsyncEngine, an async pool of psycopg or one of asyncpg, or a function that
    connects: ``lambda: aiosqlite.connect("app.db")``. The heartbeats run on the event loop: do not block it."""

    _flavour = OnLoop()
    _kind = AsyncJob
    _beating = HeartbeatTask

    async def create(self) -> None:
        """Make the table and its indexes, unless it is there; then check it."""
        await run_async(self._create_flow())

    async def check(self) -> None:
        """Does the table fit? InvalidRequest says which columns are missing or of another type. The first use does the
        same, before it changes anything."""
        await run_async(self._check_flow())

    async def enqueue(
        self,
        payload: Any = None,
        *,
        key: str | None = None,
        delay: Duration | None = None,
        run_at: datetime | None = None,
        queue: str | None = None,
        values: Mapping[str, Any] | None = None,
        tx: Any = None,
    ) -> Any:
        """Enqueue a job. -> its id.

        ``payload`` is kept as JSON. A ``key`` is enqueued once: again gives the id of the job that is there. It is due
        after ``delay`` or at ``run_at``, else now. ``values`` are for other columns of yours. With ``tx`` it is part of
        your own transaction: the job is there if and only if you commit."""
        return (await run_async(self._enqueue_flow([payload], delay, run_at, queue, key, values, tx)))[0]

    async def enqueue_many(
        self,
        payloads: Iterable[Any],
        *,
        delay: Duration | None = None,
        run_at: datetime | None = None,
        queue: str | None = None,
        tx: Any = None,
    ) -> list[Any]:
        """Many at once, all or none. -> their ids."""
        return await run_async(self._enqueue_flow(payloads, delay, run_at, queue, None, None, tx))

    async def claim(self, queue: str | None = None) -> AsyncJob | None:
        """The job that is due for the longest time, or None. One whose worker's lease has run out goes first."""
        found = await run_async(self._claim_flow(1, queue))
        return found[0] if found else None

    async def claim_many(self, count: int, queue: str | None = None) -> list[AsyncJob]:
        """At most ``count`` of them, in one step."""
        return await run_async(self._claim_flow(count, queue))

    async def work(
        self,
        function: Callable[[AsyncJob], Awaitable[Any]],
        *,
        stop: asyncio.Event | None = None,
        poll: Duration = "1s",
        concurrency: int = 1,
        drain: bool = False,
        queue: str | None = None,
    ) -> int:
        """Claim jobs and await ``function(job)`` with each, until ``stop`` is set. -> how many were done.

        What it returns is the result; what it raises is the error, and the loop goes on. A job that it has completed
        itself, with ``tx``, stays so. When nothing is due it claims again after ``poll`` or a little less, or ends
        with ``drain``. ``concurrency`` tasks do that side by side. Jobs that are under way when ``stop`` is set are
        finished; those of a cancelled task are released."""
        pause = checked(function, self._flavour.asynchronous, poll, concurrency)
        ending = WorkerStop(asyncio.Event() if stop is None else stop)

        async def loop() -> int:
            return await run_async(
                work_loop(self, lambda job: self._perform(job, function), ending, pause, drain, queue)
            )

        if concurrency == 1:
            return await loop()
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(loop()) for _ in range(concurrency)]
        except BaseExceptionGroup as several:  # as on threads: the error itself, which callers catch
            raise several.exceptions[0] from several.exceptions[0].__cause__
        return sum(task.result() for task in tasks)

    async def counts(self) -> dict[str, int]:
        """How many are in each state; ``expired`` are those of the running ones whose lease has run out."""
        return await run_async(self._count_flow())

    async def get(self, job_id: Any) -> AsyncJob | None:
        """Read a job, without claiming it."""
        found: AsyncJob | None = await run_async(self._get_flow(job_id))
        return found

    async def dead(self, limit: int = 100) -> list[AsyncJob]:
        """The latest dead jobs, with the error of each."""
        return await run_async(self._dead_flow(limit))

    async def retry_dead(self, job_id: Any) -> bool:
        """Give a dead job all its attempts again. False: it is not dead, or does not exist."""
        return await run_async(self._revive_flow(job_id))

    async def purge(self, older_than: Duration, state: str = "done") -> int:
        """Delete jobs that ended so long ago, done or dead. -> how many. Their keys are free again."""
        return await run_async(self._purge_flow(older_than, state))

    async def _perform(self, job: AsyncJob, function: Callable[[AsyncJob], Awaitable[Any]]) -> bool:
        try:
            async with job:
                result = await function(job)
                if job.state == "running":
                    await job.complete(result)
        except Exception as error:
            return log_failure(job, error)
        return job.state == "done"

    async def _whole(self, claiming: Awaitable[list[JobRow]]) -> list[JobRow]:
        """A task cancelled in the middle of a claim lets the claim finish, then releases what it got (trap 9). When it
        is cancelled a second time, the jobs wait for the end of their leases."""
        task = asyncio.ensure_future(claiming)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            await asyncio.wait([task])
            if not task.cancelled() and task.exception() is None:
                for row in self._alive(task.result()):
                    await self._give_back(row)
            raise

    async def _give_back(self, row: JobRow) -> None:
        job: AsyncJob = self._new_job(row, self._now())
        try:
            await job.release()
        except LeaseholdError as error:
            log.warn("%s was claimed in vain, and could not be given back: %s", job.shown, error, error=error)
