"""Inside ``with``: heartbeats in the background, loss that reaches the work, and what leaving the body means."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import pytest

from leasehold import Backoff, InvalidRequest, LeaseLost, StaleOwner
from leasehold.patterns import AsyncJobs, Jobs

PATIENCE = 60.0  # seconds for what takes a fraction of one


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A file, which two programs may open."""
    return tmp_path / "app.db"


@pytest.fixture
def jobs(path: Path) -> Jobs:
    """One job to do."""
    jobs = Jobs(path, retry=Backoff(base=60, cap=60, attempts=3))
    jobs.create()
    jobs.enqueue({"report": 42})
    return jobs


def execute(path: Path, sql: str) -> list[tuple[Any, ...]]:
    """As somebody else."""
    with closing(sqlite3.connect(path)) as connection, connection:
        return connection.execute(sql).fetchall()


def claimed(jobs: Jobs) -> Any:
    """There is one."""
    job = jobs.claim()
    assert job is not None
    return job


def state(path: Path) -> tuple[Any, ...]:
    """Of the only job."""
    return execute(path, "SELECT state, attempts, error FROM jobs")[0]


def test_leaving_the_body_completes(jobs: Jobs, path: Path) -> None:
    """Without a word of the worker's."""
    with claimed(jobs) as job:
        assert job.payload == {"report": 42}
    assert state(path) == ("done", 1, None)


def test_an_error_in_the_body_fails_the_job_and_is_raised(jobs: Jobs, path: Path) -> None:
    """Its text is kept, not its traceback."""
    with pytest.raises(ZeroDivisionError), claimed(jobs):
        _ = 1 / 0
    assert state(path) == ("ready", 1, "ZeroDivisionError: division by zero")


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit])
def test_an_interrupted_job_is_given_back(jobs: Jobs, path: Path, kind: type[BaseException]) -> None:
    """It has not failed: the worker was told to end."""
    with pytest.raises(kind), claimed(jobs):
        raise kind
    assert state(path) == ("ready", 0, None)
    assert jobs.claim() is not None


def test_a_body_may_end_the_job_itself(jobs: Jobs, path: Path) -> None:
    """What it has said stays."""
    with claimed(jobs) as job:
        job.fail("no such report", retry=False)
    assert state(path) == ("dead", 1, "no such report")


def test_a_completion_that_was_rolled_back_is_none(jobs: Jobs, path: Path) -> None:
    """The body's transaction failed after complete(tx): the job is tried again."""

    def save(job: Any) -> None:
        with closing(sqlite3.connect(path)) as connection, connection:
            job.complete(tx=connection)
            raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"), claimed(jobs) as job:
        save(job)
    assert state(path) == ("ready", 1, "OSError: disk full")


def test_an_error_after_a_completion_changes_nothing(jobs: Jobs, path: Path) -> None:
    """It is done, and the error is the body's own affair."""
    with pytest.raises(OSError, match="printer"), claimed(jobs) as job:  # noqa: PT012 - the body is the point
        job.complete()
        raise OSError("printer on fire")
    assert state(path) == ("done", 1, None)


def test_the_bodys_error_is_not_hidden_by_the_loss(jobs: Jobs, path: Path) -> None:
    """Who fails after a takeover raises its own error, with a note (trap 29)."""
    with pytest.raises(ValueError, match="no paper") as error, claimed(jobs):  # noqa: PT012 - the same
        execute(path, "UPDATE jobs SET version = version + 1")
        raise ValueError("no paper")
    assert any("no longer ours" in note for note in error.value.__notes__)
    assert state(path) == ("running", 1, None)


@pytest.mark.slow
def test_heartbeats_keep_a_long_job(path: Path, jobs: Jobs) -> None:
    """Nobody can take over while the body runs, however long that is."""
    mine, rival = Jobs(path, lease="1500ms"), Jobs(path)
    with claimed(mine) as job:
        for _ in range(12):
            assert rival.claim() is None
            threading.Event().wait(0.2)
        job.check()
    assert state(path) == ("done", 1, None)


@pytest.mark.slow
def test_a_takeover_is_noticed_inside(path: Path, jobs: Jobs) -> None:
    """The worker is told by the next heartbeat, and leaving the body is refused."""
    mine = Jobs(path, lease="1500ms")
    job = claimed(mine)
    with pytest.raises(StaleOwner), job:  # noqa: PT012 - the same
        execute(path, "UPDATE jobs SET version = version + 1")
        assert job.lost.wait(PATIENCE)
        with pytest.raises(LeaseLost) as loss:
            job.check()
        assert loss.value.reason == "taken"


@pytest.mark.slow
def test_a_silent_database_is_a_loss_when_the_lease_is_over(path: Path, jobs: Jobs) -> None:
    """Another may have taken over by then, so the work should stop; but the database decides, and nobody has."""
    mine = Jobs(path, lease="400ms")
    with claimed(mine) as job:
        execute(path, "ALTER TABLE jobs RENAME TO away")
        assert job.lost.wait(PATIENCE)
        with pytest.raises(LeaseLost) as loss:
            job.check()
        assert loss.value.reason == "expired"
        execute(path, "ALTER TABLE away RENAME TO jobs")
    assert state(path) == ("done", 1, None)


@pytest.mark.slow
def test_a_database_that_does_not_answer_is_a_loss_too(path: Path, jobs: Jobs) -> None:
    """The heartbeat hangs, for however long: the worker is told when its lease is over."""
    answer = threading.Event()

    def connect() -> sqlite3.Connection:
        if threading.current_thread().name == "leasehold-jobs":
            answer.wait(PATIENCE)
        return sqlite3.connect(path)

    with claimed(Jobs(connect, lease="1s")) as job:
        assert job.lost.wait(PATIENCE / 2)
        answer.set()
    assert state(path) == ("done", 1, None)


def test_a_heart_that_cannot_start(path: Path, jobs: Jobs, monkeypatch: pytest.MonkeyPatch) -> None:
    """No thread, no heartbeats: said by the first job, and the next one gets them."""
    first = claimed(jobs)
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", lambda thread: (_ for _ in ()).throw(RuntimeError("no more threads")))
        with pytest.raises(RuntimeError, match="no more threads"):
            first.__enter__()
    with first:
        assert "leasehold-jobs" in {thread.name for thread in threading.enumerate()}


@pytest.mark.slow
def test_a_late_heartbeat_does_not_shorten_a_longer_lease(path: Path, jobs: Jobs) -> None:
    """One of the background that was on its way when the worker asked for an hour (trap 44)."""
    under_way, go_on, again = threading.Event(), threading.Event(), threading.Event()

    def connect() -> sqlite3.Connection:
        if threading.current_thread().name == "leasehold-jobs":
            (again if go_on.is_set() else under_way).set()
            go_on.wait(PATIENCE)
        return sqlite3.connect(path)

    left = "SELECT (julianday(lease_until) - julianday('now')) * 86400 FROM jobs"
    with claimed(Jobs(connect, lease="2s")) as job:
        assert under_way.wait(PATIENCE)
        job.heartbeat("1h")
        go_on.set()
        assert again.wait(PATIENCE)  # the late one has come, and one more is sent
        end = time.monotonic() + PATIENCE
        while (length := execute(path, left)[0][0]) < 60 and time.monotonic() < end:
            time.sleep(0.01)
        assert length > 60


@pytest.mark.slow
def test_its_own_end_is_no_loss(path: Path, jobs: Jobs) -> None:
    """A heartbeat that meets a completion whose worker does not know of it yet."""
    met = threading.Event()

    class Slow(sqlite3.Connection):
        """The worker learns of its commit when a heartbeat has seen it."""

        def close(self) -> None:
            beats = threading.current_thread().name == "leasehold-jobs"
            done = execute(path, "SELECT 1 FROM jobs WHERE state = 'done'")
            super().close()
            if done and beats:
                met.set()
            elif done:
                met.wait(PATIENCE)
                assert not job.lost.wait(0.3)

    with claimed(Jobs(lambda: sqlite3.connect(path, factory=Slow), lease="2s")) as job:
        job.complete()
    assert met.is_set() and not job.superseded


def test_a_fork_does_not_end_its_parents_job(path: Path, jobs: Jobs) -> None:
    """The child that leaves the body leaves the job alone (trap 32)."""
    with claimed(jobs) as job:
        pid = os.fork()
        if pid == 0:
            try:
                job.__exit__(None, None, None)
                job.complete()
            except LeaseLost as loss:
                os._exit(0 if loss.reason == "forked" else 1)
            finally:
                os._exit(2)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        assert state(path) == ("running", 1, None)
    assert state(path) == ("done", 1, None)


# ---------------------------------------------------------------- asyncio


@pytest.fixture
def async_jobs(path: Path, jobs: Jobs) -> Callable[..., AsyncJobs]:
    """The same table, awaited."""
    import aiosqlite

    return lambda **options: AsyncJobs(lambda: aiosqlite.connect(path), **options)


async def test_a_task_is_cancelled_when_its_job_is_lost(path: Path, async_jobs: Callable[..., AsyncJobs]) -> None:
    """And the cancellation becomes LeaseLost, as with a lease."""
    job = await async_jobs(lease="900ms").claim()
    assert job is not None
    with pytest.raises(LeaseLost) as loss:  # noqa: PT012 - the same
        async with job:
            execute(path, "UPDATE jobs SET version = version + 1")
            await asyncio.sleep(PATIENCE)
    assert loss.value.reason == "taken" and job.lost.is_set()
    assert asyncio.current_task().cancelling() == 0  # type: ignore[union-attr]  # a test runs in a task


@pytest.mark.slow
async def test_a_heartbeat_that_hangs_on_a_loop(path: Path, async_jobs: Callable[..., AsyncJobs]) -> None:
    """The task is cancelled when its lease is over, with or without an answer."""
    import aiosqlite

    hangs = False

    @asynccontextmanager
    async def begin() -> AsyncIterator[Any]:
        if hangs:
            await asyncio.sleep(PATIENCE)
        async with aiosqlite.connect(path) as connection:
            yield connection
            await connection.commit()

    job = await AsyncJobs(begin, lease="1s").claim()
    assert job is not None
    with pytest.raises(LeaseLost) as loss:  # noqa: PT012 - the same
        async with job:
            hangs = True
            try:
                await asyncio.sleep(PATIENCE / 2)
            finally:
                hangs = False
    assert loss.value.reason == "expired"


async def test_two_loops_want_two_hearts(path: Path, async_jobs: Callable[..., AsyncJobs]) -> None:
    """A job that is entered on another loop would stop the heartbeats of the first one: refused."""
    jobs = async_jobs()
    await jobs.enqueue("more")
    job = await jobs.claim()
    assert job is not None

    async def elsewhere() -> None:
        other = await jobs.claim()
        assert other is not None
        with pytest.raises(InvalidRequest, match="for each loop"):
            await other.__aenter__()

    async with job:
        await asyncio.to_thread(asyncio.run, elsewhere())


async def test_a_cancelled_task_gives_its_job_back(path: Path, async_jobs: Callable[..., AsyncJobs]) -> None:
    """Cancelled by somebody else: the job has not failed."""
    jobs, inside = async_jobs(), asyncio.Event()

    async def perform(job: Any) -> None:
        inside.set()
        await asyncio.sleep(PATIENCE)

    task = asyncio.create_task(jobs.work(perform))
    await inside.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert state(path) == ("ready", 0, None)


async def test_a_cancelled_claim_gives_back_what_it_got(path: Path, async_jobs: Callable[..., AsyncJobs]) -> None:
    """It is not left to the lease, and no attempt is spent (trap 9)."""
    import aiosqlite

    caught, closing_it = asyncio.Event(), asyncio.Event()

    @asynccontextmanager
    async def begin() -> AsyncIterator[Any]:
        async with aiosqlite.connect(path) as connection:
            yield connection
            await connection.commit()
        caught.set()
        await closing_it.wait()

    jobs = AsyncJobs(begin)
    task = asyncio.create_task(jobs.claim())
    await caught.wait()
    assert state(path)[:2] == ("running", 1)
    task.cancel()
    closing_it.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert state(path) == ("ready", 0, None)


@pytest.mark.slow
async def test_async_heartbeats_keep_a_long_job(path: Path, async_jobs: Callable[..., AsyncJobs]) -> None:
    """By a task of the loop."""
    job = await async_jobs(lease="1500ms").claim()
    rival = Jobs(path)
    assert job is not None
    async with job:
        for _ in range(12):
            assert await asyncio.to_thread(rival.claim) is None  # it may wait for a beat, which needs the loop
            await asyncio.sleep(0.2)
    assert state(path) == ("done", 1, None)


async def test_async_errors_and_completions(path: Path, async_jobs: Callable[..., AsyncJobs]) -> None:
    """As on a thread."""
    jobs = async_jobs(retry=Backoff(attempts=1))
    job = await jobs.claim()
    assert job is not None
    with pytest.raises(ValueError, match="no paper"):
        async with job:
            raise ValueError("no paper")
    assert state(path) == ("dead", 1, "ValueError: no paper")
