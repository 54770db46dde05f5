"""What happens to a job, each written once for threads and event loops: put in, claimed, kept, ended.

The version is the fence. It counts up with each claim, and everything that an owner does names it: who was superseded
changes nothing, and is told so (StaleOwner). Time decides only who may be superseded, and only the database's time. An
owner that is late, but that nobody has replaced, is still the owner: its completion is accepted.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator, Mapping, Sequence
from functools import partial
from inspect import isawaitable
from typing import TYPE_CHECKING, Any, TypeVar

from leasehold._core.driver import drive, drive_async, finish
from leasehold._runtime.backoff import Backoff
from leasehold._sql.run import StatementFlow
from leasehold.errors import Conflict, InvalidRequest, LeaseholdError, OutcomeUnknown, StaleOwner, StoreUnavailable
from leasehold.patterns.jobs.claims import JobClaim, MariaDBJobStatements, SQLiteJobStatements
from leasehold.patterns.jobs.setback import glancing
from leasehold.patterns.jobs.statements import ColumnName, When
from leasehold.patterns.jobs.table import JobRow

if TYPE_CHECKING:
    from leasehold.patterns.jobs.base import BaseJobs
    from leasehold.patterns.jobs.job import BaseJob

R = TypeVar("R")
Flow = Generator[Callable[[], Any], Any, R]  # yields calls, and is sent their results
Statements = SQLiteJobStatements | MariaDBJobStatements
AGAIN = Backoff(base=0.02, cap=0.5, attempts=5)  # somebody else was faster, or the database was away for a moment
# Where transactions are serializable each claim that meets another one fails: among many workers that is most of them.
CLAIM_AGAIN = Backoff(base=0.02, cap=0.5, attempts=25)
CHUNK = 200  # rows in one INSERT
FEW = 16  # candidates that are looked at for each job
ROUNDS = 20  # claims in a row that gave nothing but jobs to bury
Asked = Sequence[tuple["BaseJob", float]]  # jobs, and the lease of each
Lost = tuple["BaseJob", int | None]


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


def insisting(jobs: BaseJobs, make: Callable[[], Flow[R]], on: Any = Conflict, again: Backoff = AGAIN) -> Flow[R]:
    """Again, a few times, after errors that pass."""
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


# ---------------------------------------------------------------- in


def enqueueing(
    jobs: BaseJobs, rows: Sequence[Mapping[ColumnName, Any]], when: When, key: str | None, tx: Any
) -> Flow[list[Any]]:
    """-> ids. With a key there is one row, and it may be there already."""

    def work(phrases: Statements) -> StatementFlow[list[Any]]:
        ids: list[Any] = []
        if key is not None:
            yield from phrases.require_unique()
        for first in range(0, len(rows), CHUNK):
            chunk = rows[first : first + CHUNK]
            found = yield phrases.insert(chunk, when, key is not None)
            ids += [one[0] for one in found.rows if key is None or _same(one[1], key)]
        return ids if key is None else (yield from _once(phrases, ids, key))

    alone = len(rows) <= CHUNK
    if tx is not None:
        return (yield from jobs._asking(work, tx))
    return (yield from insisting(jobs, lambda: jobs._asking(work, None, alone)))


def _once(phrases: Statements, ids: list[Any], key: str) -> StatementFlow[list[Any]]:
    if not ids:
        ids = [one[0] for one in (yield phrases.find(key)).rows]
    if not ids:
        raise Conflict(
            "a job with this key was there and is gone, or another rule of the table was broken: nothing was "
            "enqueued. Try again"
        )
    return ids


def _same(found: object, key: str) -> bool:
    return (found.decode() if isinstance(found, bytes) else found) == key


# ---------------------------------------------------------------- claimed


def claiming(jobs: BaseJobs, count: int, queue: str | None) -> Flow[list[Any]]:
    """-> jobs. What is buried on the way is nobody's."""
    if jobs._hold is not None:
        return (yield from _filtered(jobs, count, queue))
    for _ in range(ROUNDS):
        claim = JobClaim(count, jobs.name, jobs.lease, jobs.retry.attempts, queue)
        sent = jobs._now()
        rows = yield from _claiming(jobs, claim)
        found = [jobs._job(row, sent) for row in jobs._alive(rows)]
        if found or not rows:
            return found
    return []


def _claiming(jobs: BaseJobs, claim: JobClaim) -> Flow[list[JobRow]]:
    def once() -> Flow[list[JobRow]]:
        return glancing(jobs, lambda phrases: phrases.claim(claim), through=jobs._whole)

    return insisting(jobs, once, again=CLAIM_AGAIN)


def _filtered(jobs: BaseJobs, count: int, queue: str | None) -> Flow[list[Any]]:
    """With a lease as the pre-filter: only who has the lease of a candidate asks the database for it."""
    found: list[Any] = []
    try:
        for which in ("expired", "ready"):
            if len(found) < count:
                ids = yield from _candidates(jobs, which, FEW * count, queue)
                for job_id in ids:
                    found += yield from _filtered_one(jobs, job_id, queue)
                    if len(found) == count:
                        break
    except LeaseholdError:
        if not found:  # what was claimed before is the caller's
            raise
    except BaseException as error:
        for job in found:
            yield from leaving(job, error)
        raise
    return found


def _candidates(jobs: BaseJobs, which: str, count: int, queue: str | None) -> Flow[list[Any]]:
    def work(phrases: Statements) -> StatementFlow[list[Any]]:
        return [one[0] for one in (yield phrases.candidates(which, count, queue)).rows]

    return (yield from insisting(jobs, lambda: glancing(jobs, work)))


def _filtered_one(jobs: BaseJobs, job_id: Any, queue: str | None) -> Flow[list[Any]]:
    """The lease decides nothing: it is given back when the database says no, and done without when it cannot be had."""
    lease: Any = None
    try:
        lease = yield lambda: jobs._take(job_id)
        if lease is None:
            return []
    except (StoreUnavailable, OutcomeUnknown):
        pass
    found: list[Any] = []
    try:
        claim = JobClaim(1, jobs.name, jobs.lease, jobs.retry.attempts, queue, only=job_id)
        sent = jobs._now()
        rows = yield from _claiming(jobs, claim)
        found = [jobs._job(row, sent, lease) for row in jobs._alive(rows)]
    finally:
        if lease is not None and not found:
            yield from giving_back(lease)
    return found


def giving_back(lease: Any) -> Flow[None]:
    """Nobody is harmed when that fails: it ends by itself."""
    try:
        yield lease.release
    except LeaseholdError:
        pass


# ---------------------------------------------------------------- kept


def beating(jobs: BaseJobs, asked: Asked) -> Flow[list[Lost]]:
    """Heartbeats for all of these, each with its lease. -> those that are no longer ours, with the version that is seen
    in their place."""

    def work(phrases: Statements) -> StatementFlow[list[Lost]]:
        lost: list[Lost] = []
        for job, lease in asked:
            if (yield phrases.beat(job.id, job.version, lease)).changed == 0:
                seen = yield from _seen(phrases, job)
                # MariaDB counts no row whose values stay the same: a second beat within one tick of its column.
                if seen[1] != "running" or not phrases.dialect.counts_changes or seen[0] != job.version:
                    lost.append((job, seen[0]))
        return lost

    return jobs._asking(work, None, alone=True)


def keeping(jobs: BaseJobs, job: BaseJob, lease: float) -> Flow[None]:
    """One heartbeat, by the worker itself. It sets, never adds, and later ones use it too."""
    job._require_mine()
    job.lease = lease
    sent = jobs._now()
    job.deadline = min(job.deadline, sent + lease)
    lost = yield from insisting(jobs, lambda: beating(jobs, [(job, lease)]))
    if lost:
        raise refused(job, lost[0][1])
    job._confirmed(sent, lease)
    jobs._heart.moved(job)


# ---------------------------------------------------------------- ended


def settling(jobs: BaseJobs, job: BaseJob, state: str, row: JobRow, pause: float | None, tx: Any) -> Flow[None]:
    """To another state, if it is still ours. Again is the same: a version belongs to one owner."""
    job._require_mine()

    def work(phrases: Statements) -> StatementFlow[None]:
        changed = (yield phrases.settle(job.id, job.version, state, row, pause)).changed
        if changed > 1:
            raise InvalidRequest(f"the id of {job.shown} names {changed} rows: the column for id must be unique")
        if changed == 0:
            seen = yield from _seen(phrases, job)
            if seen != (job.version, state):
                raise refused(job, seen[0], seen[1])

    job.settling = True
    try:
        if tx is not None:
            yield from jobs._asking(work, tx)
        else:
            passing = (StoreUnavailable, OutcomeUnknown)
            yield from insisting(jobs, lambda: jobs._asking(work, None, alone=True), passing)
    finally:
        job.settling = False
    lease = job._ended(state, tx is not None)
    if lease is not None:
        yield from giving_back(lease)


def _seen(phrases: Statements, job: BaseJob) -> StatementFlow[tuple[int | None, str | None]]:
    rows = (yield phrases.look(job.id)).rows
    if not rows:
        return (None, None)
    return (rows[0][0], phrases.columns.state(rows[0][1]))


def refused(job: BaseJob, seen: int | None, state: str | None = None) -> StaleOwner:
    """And the job knows it from here on."""
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


def leaving(job: BaseJob, error: BaseException | None, lost: bool = False) -> Flow[None]:
    """The body is over. Done, unless it has said so itself; failed, after an error; given back when it was interrupted,
    which is no failure of the job's. What goes wrong with that does not hide the body's own error (trap 29)."""
    if error is None:
        if job.state == "running":
            yield from job._completing(None, None)
        return
    if job.superseded or (job.state != "running" and not job.in_transaction):
        lease, job._held = job._held, None
        if lease is not None:
            yield from giving_back(lease)
        return
    try:
        if isinstance(error, Exception):
            yield from job._failing(error, True, None)
        else:
            yield from job._releasing(None)
    except LeaseholdError as late:
        if not lost:
            error.add_note(f"and the job could not be given back: {late}")
