"""The life of a job, written once for threads and event loops: enqueued, claimed, kept, ended.

The version is the fence. It counts up with each claim, and everything that an owner does names it: an owner that was
superseded changes nothing, and gets StaleOwner. Time decides only which job may be claimed again, and only the
database's time. An owner that is late, but was not superseded, is still the owner: its completion is accepted.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator, Mapping, Sequence
from functools import partial
from inspect import isawaitable
from typing import TYPE_CHECKING, Any, TypeVar

from leasehold._core.driver import drive, drive_async, finish
from leasehold._runtime.backoff import Backoff
from leasehold._sql.run import StatementFlow
from leasehold._sql.statements import decoded
from leasehold.errors import Conflict, InvalidRequest, LeaseholdError, OutcomeUnknown, StaleOwner, StoreUnavailable
from leasehold.patterns.jobs.claims import ClaimStatements, JobClaim
from leasehold.patterns.jobs.clock_setback import with_clock_check
from leasehold.patterns.jobs.statements import ColumnName, When
from leasehold.patterns.jobs.table import JobRow

if TYPE_CHECKING:
    from leasehold.patterns.jobs.base import BaseJobs
    from leasehold.patterns.jobs.job import BaseJob

R = TypeVar("R")
Flow = Generator[Callable[[], Any], Any, R]  # yields calls, and is sent their results
AGAIN = Backoff(base=0.02, cap=0.5, attempts=5)  # after a conflict, or while the database is away for a moment
# Where transactions are serializable each claim that meets another one fails: among many workers that is most of them.
CLAIM_AGAIN = Backoff(base=0.02, cap=0.5, attempts=25)
CHUNK = 200  # rows in one INSERT
CANDIDATES = 16  # read for each job that is wanted
ROUNDS = 20  # claims in a row that gave nothing but dead jobs
Heartbeats = Sequence[tuple["BaseJob", float]]  # jobs, and the lease of each
LostJob = tuple["BaseJob", int | None]  # and the version that stands in the table, None without a row


def run(flow: Flow[R]) -> R:
    """Run a flow on the calling thread."""
    return drive(flow, _call)


async def run_async(flow: Flow[R]) -> R:
    """Run a flow in the running task."""
    return await drive_async(flow, _call_async)


def _call(call: Callable[[], Any]) -> Any:
    result = call()
    return finish(result) if isinstance(result, Coroutine) else result  # a method of the Flavour, which never suspends


async def _call_async(call: Callable[[], Any]) -> Any:
    result = call()
    return await result if isawaitable(result) else result


def retried(jobs: BaseJobs, make: Callable[[], Flow[R]], on: Any = Conflict, again: Backoff = AGAIN) -> Flow[R]:
    """Run the flow again, a few times, after errors that pass."""
    try:
        return (yield from make())
    except on:
        pass
    for pause in again:
        yield partial(jobs._flavour.sleep, pause)
        try:
            return (yield from make())
        except on:
            pass
    return (yield from make())


# ---------------------------------------------------------------- enqueued


def enqueue(
    jobs: BaseJobs, rows: Sequence[Mapping[ColumnName, Any]], when: When, key: str | None, tx: Any
) -> Flow[list[Any]]:
    """-> ids. With a key there is one row, and it may exist already."""

    def work(statements: ClaimStatements) -> StatementFlow[list[Any]]:
        ids: list[Any] = []
        if key is not None:
            yield from statements.require_unique()
        for first in range(0, len(rows), CHUNK):
            chunk = rows[first : first + CHUNK]
            found = yield statements.insert(chunk, when, key is not None)
            ids += [one[0] for one in found.rows if key is None or _same(one[1], key)]
        return ids if key is None else (yield from _once(statements, ids, key))

    alone = len(rows) <= CHUNK
    if tx is not None:
        return (yield from jobs._query(work, tx))
    return (yield from retried(jobs, lambda: jobs._query(work, None, alone)))


def _once(statements: ClaimStatements, ids: list[Any], key: str) -> StatementFlow[list[Any]]:
    if not ids:
        ids = [one[0] for one in (yield statements.find(key)).rows]
    if not ids:
        raise Conflict(
            "a job with this key was there and is gone, or another rule of the table was broken: nothing was "
            "enqueued. Try again"
        )
    return ids


def _same(found: object, key: str) -> bool:
    return bool(decoded(found) == key)


# ---------------------------------------------------------------- claimed


def claim(jobs: BaseJobs, count: int, queue: str | None) -> Flow[list[Any]]:
    """-> jobs. Those that the claim found dead are left out."""
    if jobs._hold is not None:
        return (yield from _claim_with_leases(jobs, count, queue))
    for _ in range(ROUNDS):
        wanted = JobClaim(count, jobs.name, jobs.lease, jobs.retry.attempts, queue, observed=jobs._observed())
        sent = jobs._now()
        rows = yield from _claim_rows(jobs, wanted)
        jobs._report_claims(rows)
        found = [jobs._new_job(row, sent) for row in jobs._alive(rows)]
        if found or not rows:
            return found
    return []


def _claim_rows(jobs: BaseJobs, claim: JobClaim) -> Flow[list[JobRow]]:
    def once() -> Flow[list[JobRow]]:
        return with_clock_check(jobs, lambda statements: statements.claim(claim), through=jobs._whole)

    return retried(jobs, once, again=CLAIM_AGAIN)


def _claim_with_leases(jobs: BaseJobs, count: int, queue: str | None) -> Flow[list[Any]]:
    """With a lease as the pre-filter: only the holder of a candidate's lease claims it in the database."""
    found: list[Any] = []
    try:
        for which in ("expired", "ready"):
            if len(found) < count:
                ids = yield from _candidates(jobs, which, CANDIDATES * count, queue)
                for job_id in ids:
                    found += yield from _claim_one(jobs, job_id, queue)
                    if len(found) == count:
                        break
    except LeaseholdError:
        if not found:  # jobs that were claimed before the error are the caller's
            raise
    except BaseException as error:
        for job in found:
            yield from leave(job, error)
        raise
    return found


def _candidates(jobs: BaseJobs, which: str, count: int, queue: str | None) -> Flow[list[Any]]:
    def work(statements: ClaimStatements) -> StatementFlow[list[Any]]:
        return [one[0] for one in (yield statements.candidates(which, count, queue)).rows]

    return (yield from retried(jobs, lambda: with_clock_check(jobs, work)))


def _claim_one(jobs: BaseJobs, job_id: Any, queue: str | None) -> Flow[list[Any]]:
    """The lease decides nothing: it is released when the database does not give the job, and the claim goes on without
    it when the store of leases cannot be reached."""
    lease: Any = None
    try:
        lease = yield lambda: jobs._prefilter_lease(job_id)
        if lease is None:
            return []
    except (StoreUnavailable, OutcomeUnknown):
        pass
    found: list[Any] = []
    try:
        wanted = JobClaim(1, jobs.name, jobs.lease, jobs.retry.attempts, queue, job_id, jobs._observed())
        sent = jobs._now()
        rows = yield from _claim_rows(jobs, wanted)
        jobs._report_claims(rows)
        found = [jobs._new_job(row, sent, lease) for row in jobs._alive(rows)]
    finally:
        if lease is not None and not found:
            yield from give_back(lease)
    return found


def give_back(lease: Any) -> Flow[None]:
    """No harm is done when that fails: the lease ends by itself."""
    try:
        yield lease.release
    except LeaseholdError:
        pass


# ---------------------------------------------------------------- kept


def heartbeat(jobs: BaseJobs, beats: Heartbeats) -> Flow[list[LostJob]]:
    """Heartbeats for all of these, each with its lease. -> those that are no longer ours, with the version that stands
    in the table."""

    def work(statements: ClaimStatements) -> StatementFlow[list[LostJob]]:
        lost: list[LostJob] = []
        for job, lease in beats:
            if (yield statements.beat(job.id, job.version, lease)).changed == 0:
                seen = yield from _current(statements, job)
                # MariaDB counts no row whose values stay the same: a second beat within one tick of its column.
                if seen[1] != "running" or not statements.dialect.counts_changes or seen[0] != job.version:
                    lost.append((job, seen[0]))
        return lost

    return jobs._query(work, None, alone=True)


def extend(jobs: BaseJobs, job: BaseJob, lease: float) -> Flow[None]:
    """One heartbeat, by the worker itself. It sets the lease, never adds to it, and later ones use the same lease."""
    job._require_mine()
    job.lease = lease
    sent = jobs._now()
    job.deadline = min(job.deadline, sent + lease)
    lost = yield from retried(jobs, lambda: heartbeat(jobs, [(job, lease)]))
    if lost:
        jobs._report("refused")
        raise refused(job, lost[0][1])
    job._confirmed(sent, lease)
    jobs._heart.moved(job)


# ---------------------------------------------------------------- ended


def settle(
    jobs: BaseJobs, job: BaseJob, state: str, row: JobRow, pause: float | None, tx: Any, outcome: str
) -> Flow[None]:
    """To another state, if the job is still ours. It may be repeated: a version belongs to one owner. ``outcome`` is
    what observers are told."""
    job._require_mine()

    def work(statements: ClaimStatements) -> StatementFlow[None]:
        changed = (yield statements.settle(job.id, job.version, state, row, pause)).changed
        if changed > 1:
            raise InvalidRequest(f"the id of {job.shown} names {changed} rows: the column for id must be unique")
        if changed == 0:
            seen = yield from _current(statements, job)
            if seen != (job.version, state):
                raise refused(job, seen[0], seen[1])

    job.settling = True
    try:
        if tx is not None:
            yield from jobs._query(work, tx)
        else:
            passing = (StoreUnavailable, OutcomeUnknown)
            yield from retried(jobs, lambda: jobs._query(work, None, alone=True), passing)
    except StaleOwner:
        jobs._report("refused")
        raise
    finally:
        job.settling = False
    if job.state == "running":  # else it is repeated
        jobs._report(outcome)
    lease = job._ended(state, tx is not None)
    if lease is not None:
        yield from give_back(lease)


def _current(statements: ClaimStatements, job: BaseJob) -> StatementFlow[tuple[int | None, str | None]]:
    rows = (yield statements.current(job.id)).rows
    if not rows:
        return (None, None)
    return (rows[0][0], statements.columns.state(rows[0][1]))


def refused(job: BaseJob, seen: int | None, state: str | None = None) -> StaleOwner:
    """The error for a job that is no longer ours; the job is marked as lost."""
    job._lose("deleted" if seen is None else "taken")
    if seen is None:
        why = "its row is gone"
    elif seen != job.version:
        why = f"version {seen} is another worker's, and {job.version} was ours"
    else:
        why = f"it is {state or 'no longer running'} already"
    return StaleOwner(
        f"{job.shown} is no longer ours: {why}. Nothing was changed; roll back",
        seen=seen,
        resource=f"{job.table}:{job.id}",
        owner=job.owner,
        fence=job.version,
    )


def leave(job: BaseJob, error: BaseException | None, lost: bool = False) -> Flow[None]:
    """The body is over. The job is completed, unless the body has done so; failed after an error; and released when the
    body was interrupted, which is no failure of the job. An error in that does not hide the body's own (trap 29)."""
    if error is None:
        if job.state == "running":
            yield from job._complete_flow(None, None)
        return
    if job.superseded or (job.state != "running" and not job.in_transaction):
        lease, job._held = job._held, None
        if lease is not None:
            yield from give_back(lease)
        return
    try:
        if isinstance(error, Exception):
            yield from job._fail_flow(error, True, None)
        else:
            yield from job._release_flow(None)
    except LeaseholdError as late:
        if not lost:
            error.add_note(f"and the job could not be given back: {late}")
