"""Heartbeats: one thread, or one timer, for all jobs that a Jobs object has inside ``with``.

A heartbeat is sent at a third of the lease. When the database replies that the job is another worker's, it is lost at
once. After an error of the database the heartbeat is sent again until the lease has run out by the local clock; then
the job may be another worker's, and it counts as lost. The same happens when no reply comes at all.
"""

from __future__ import annotations

import asyncio
import os
import threading
from typing import TYPE_CHECKING

from leasehold.errors import InvalidRequest
from leasehold.observe import log
from leasehold.patterns.jobs import flows
from leasehold.patterns.jobs.flows import run, run_async
from leasehold.patterns.jobs.job import BaseJob

if TYPE_CHECKING:
    from leasehold.patterns.jobs.base import BaseJobs

IDLE_SECONDS = 2.0  # then the thread ends; the next job starts another


class HeartbeatSchedule:
    """Which jobs are kept, and when each is due: no I/O."""

    def __init__(self, jobs: BaseJobs) -> None:
        self.jobs = jobs
        self._next: dict[BaseJob, float] = {}

    def add(self, job: BaseJob) -> None:
        self._next[job] = job.deadline - job.lease * 2 / 3

    def next_of(self, job: BaseJob) -> float:
        return self._next[job]

    def moved(self, job: BaseJob) -> None:
        """Its lease has changed."""
        if job in self._next:
            self.add(job)

    def discard(self, job: BaseJob) -> None:
        self._next.pop(job, None)

    def __bool__(self) -> bool:
        return bool(self._next)

    def due(self, now: float) -> list[BaseJob]:
        return [job for job, when in self._next.items() if when <= now]

    def nap(self, now: float) -> float:
        """Until the next is due."""
        return max(min(self._next.values(), default=now + IDLE_SECONDS) - now, 0.0)

    def replied(self, beats: flows.Heartbeats, lost: list[flows.LostJob], sent: float) -> None:
        """The reply to heartbeats that were sent at this time."""
        gone = dict(lost)
        for job, lease in beats:
            if job not in gone:
                self._kept(job, lease, sent)
            elif not job.settling:  # else it may be our own change of state, whose sender learns the result
                self._next.pop(job, None)
                if job.state == "running":  # else it has ended while the heartbeat was under way
                    flows.refused(job, gone[job])
                    log.warn("%s was taken over by another worker", job.shown)

    def _kept(self, job: BaseJob, lease: float, sent: float) -> None:
        """The worker itself may have sent a heartbeat with a longer lease, and this one may have come after it: so the
        next is sent while the shorter one lasts, and sets what the worker wanted (trap 44)."""
        length = min(lease, job.lease)
        job._confirmed(sent, length)
        if job in self._next:
            self._next[job] = sent + length / 3

    def expire(self, now: float) -> float | None:
        """Mark jobs as lost whose lease is over although no reply has come. -> seconds until the next ends, if any."""
        for job in [job for job in self._next if job.deadline <= now]:
            del self._next[job]
            job._lose("expired")
        return min((job.deadline - now for job in self._next), default=None)

    def failed(self, due: list[BaseJob], now: float, error: BaseException) -> None:
        log.warn("a heartbeat of jobs of %s failed: %s", self.jobs.table, error, error=error)
        for job in due:
            if job in self._next:
                self._next[job] = now + min(job.lease / 10, 1.0)
                if now >= job.deadline:
                    self._next.pop(job)
                    job._lose("expired")


class HeartbeatThread:
    """A thread that sends heartbeats."""

    def __init__(self, jobs: BaseJobs) -> None:
        self._jobs = jobs
        self._fresh()

    def _fresh(self) -> None:
        self._pid = os.getpid()
        self._beats = HeartbeatSchedule(self._jobs)
        self._changed = threading.Condition()
        self._wakes_at = 0.0  # on its own; a job that is due later need not wake it
        self._thread: threading.Thread | None = None

    def watch(self, job: BaseJob) -> None:
        if self._pid != os.getpid():  # a fork has no threads, and none of these jobs
            self._fresh()
        with self._changed:
            self._beats.add(job)
            if self._thread is None:
                thread = threading.Thread(target=self._run, name="leasehold-jobs", daemon=True)
                thread.start()  # may fail: then the next job tries again
                self._thread = thread
            elif self._beats.next_of(job) < self._wakes_at:
                self._changed.notify()

    def moved(self, job: BaseJob) -> None:
        if self._pid == os.getpid():
            with self._changed:
                self._beats.moved(job)
                self._changed.notify()

    def drop(self, job: BaseJob) -> None:
        if self._pid == os.getpid():
            with self._changed:
                self._beats.discard(job)

    def _run(self) -> None:
        while (due := self._wait()) is not None:
            sent, beats = self._jobs._now(), [(job, job.lease) for job in due]
            try:
                lost = self._beat(beats) if due else []
            except Exception as error:
                with self._changed:
                    self._beats.failed(due, self._jobs._now(), error)
            else:
                with self._changed:
                    self._beats.replied(beats, lost, sent)

    def _beat(self, beats: flows.Heartbeats) -> list[flows.LostJob]:
        """A database that does not reply may block this thread for minutes: another one watches the clock."""
        replied = threading.Event()
        threading.Thread(target=self._expire, args=(replied,), name="leasehold-jobs-clock", daemon=True).start()
        try:
            return run(flows.heartbeat(self._jobs, beats))
        finally:
            replied.set()

    def _expire(self, replied: threading.Event) -> None:
        nap: float | None = 0.0
        while nap is not None and not replied.wait(nap):
            with self._changed:
                nap = None if replied.is_set() else self._beats.expire(self._jobs._now())

    def _wait(self) -> list[BaseJob] | None:
        """The jobs that are due; None when there has been none for a while."""
        with self._changed:
            if not self._beats:
                self._sleep(IDLE_SECONDS)
                if not self._beats:
                    self._thread = None
                    return None
            if not (due := self._beats.due(self._jobs._now())):
                self._sleep(self._beats.nap(self._jobs._now()))
            return due

    def _sleep(self, seconds: float) -> None:
        self._wakes_at = self._jobs._now() + seconds
        self._changed.wait(seconds)
        self._wakes_at = 0.0


class HeartbeatTask:
    """A timer, and a task when a job is due. Both live on the loop of the jobs: while that is blocked, no heartbeat is
    sent. When the loop ends nothing but the timer is left pending."""

    def __init__(self, jobs: BaseJobs) -> None:
        self._jobs = jobs
        self._loop: asyncio.AbstractEventLoop | None = None
        self._fresh()

    def _fresh(self) -> None:
        self._beats = HeartbeatSchedule(self._jobs)
        self._timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None
        self._clock: asyncio.TimerHandle | None = None

    def watch(self, job: BaseJob) -> None:
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            if self._beats and self._loop is not None and self._loop.is_running():
                raise InvalidRequest("these jobs are kept on another event loop: make an AsyncJobs for each loop")
            self._loop = loop
            self._fresh()
        self._beats.add(job)
        self._arm(loop)

    def moved(self, job: BaseJob) -> None:
        self._beats.moved(job)
        if self._loop is not None:
            self._arm(self._loop)

    def drop(self, job: BaseJob) -> None:
        self._beats.discard(job)

    def _arm(self, loop: asyncio.AbstractEventLoop) -> None:
        if not self._beats or self._task is not None:
            return
        when = loop.time() + self._beats.nap(self._jobs._now())
        if self._timer is None or when < self._timer.when():
            if self._timer is not None:
                self._timer.cancel()
            self._timer = loop.call_at(when, self._fire, loop)

    def _fire(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer = None
        if due := self._beats.due(self._jobs._now()):
            self._task = loop.create_task(self._beat(loop, due), name="leasehold-jobs")
            self._expire(loop)
        else:
            self._arm(loop)

    def _expire(self, loop: asyncio.AbstractEventLoop) -> None:
        """While a heartbeat is under way: a database that does not reply may take minutes."""
        nap = self._beats.expire(self._jobs._now())
        self._clock = None if nap is None else loop.call_later(nap, self._expire, loop)

    async def _beat(self, loop: asyncio.AbstractEventLoop, due: list[BaseJob]) -> None:
        sent, beats = self._jobs._now(), [(job, job.lease) for job in due]
        try:
            lost = await run_async(flows.heartbeat(self._jobs, beats))
        except Exception as error:
            self._beats.failed(due, self._jobs._now(), error)
        else:
            self._beats.replied(beats, lost, sent)
        finally:
            self._task = None
            if self._clock is not None:
                self._clock.cancel()
            self._arm(loop)
