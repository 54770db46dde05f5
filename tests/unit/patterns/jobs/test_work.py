"""The loop of a worker: how it ends, how many do it side by side, and what it outlives."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import threading
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from leasehold import InvalidRequest, StoreUnavailable
from leasehold.patterns import AsyncJobs, Jobs

PATIENCE = 60.0


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """With a table of jobs."""
    path = tmp_path / "app.db"
    Jobs(path).create()
    return path


def execute(path: Path, sql: str) -> None:
    """As somebody else."""
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(sql)


def test_stop_finishes_what_was_begun(path: Path) -> None:
    """And begins nothing more."""
    jobs, stop = Jobs(path), threading.Event()
    jobs.enqueue_many([1, 2, 3])
    assert jobs.work(lambda job: stop.set(), stop=stop) == 1
    assert jobs.counts()["done"] == 1 and jobs.counts()["ready"] == 2


def test_a_stopped_worker_does_not_wait_for_its_next_look(path: Path) -> None:
    """Also while there is nothing to do."""
    jobs, stop = Jobs(path), threading.Event()
    thread = threading.Thread(target=lambda: jobs.work(print, stop=stop, poll="1h"))
    thread.start()
    stop.set()
    thread.join(PATIENCE)
    assert not thread.is_alive()


def test_a_coroutine_function_is_not_for_threads(path: Path) -> None:
    """Nobody would await it: it is refused before a job is claimed, so that none loses an attempt."""
    jobs = Jobs(path)
    jobs.enqueue(1)

    async def perform(job: object) -> None: ...

    with pytest.raises(InvalidRequest, match="AsyncJobs"):
        jobs.work(perform, drain=True)
    job = jobs.claim()
    assert job and job.attempts == 1


async def test_a_plain_function_is_not_for_a_loop(path: Path) -> None:
    """It would fail after its work was done, and do it again: it is refused before a job is claimed."""
    import aiosqlite

    jobs = AsyncJobs(lambda: aiosqlite.connect(path))
    await jobs.enqueue(1)
    with pytest.raises(InvalidRequest, match="async def"):
        await jobs.work(print, drain=True)  # type: ignore[arg-type]  # what is refused
    job = await jobs.claim()
    assert job and job.attempts == 1


def test_several_side_by_side(path: Path) -> None:
    """As many as were asked for are inside at the same time."""
    jobs, together = Jobs(path), threading.Barrier(3)
    jobs.enqueue_many(range(3))
    assert jobs.work(lambda job: together.wait(PATIENCE), concurrency=3, drain=True) == 3


async def test_several_tasks_side_by_side(path: Path) -> None:
    """The same on a loop."""
    import aiosqlite

    jobs, together = AsyncJobs(lambda: aiosqlite.connect(path)), asyncio.Barrier(3)
    await jobs.enqueue_many(range(3))

    async def perform(job: Any) -> None:
        await together.wait()

    async with asyncio.timeout(PATIENCE):
        assert await jobs.work(perform, concurrency=3, drain=True) == 3


def test_one_that_cannot_go_on_ends_all(path: Path) -> None:
    """An error that no retry helps comes out, and the others end with what they have begun."""
    jobs = Jobs(path)
    jobs.enqueue_many([1, 2, 3, 4])

    def perform(job: Any) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        jobs.work(perform, concurrency=2, poll="20ms")
    assert jobs.counts()["running"] == 0 and jobs.counts()["ready"] == 4  # given back


def test_a_worker_outlives_its_database(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """It says so, waits, and goes on when the table is back."""
    jobs, stop = Jobs(path), threading.Event()
    execute(path, "ALTER TABLE jobs RENAME TO away")
    caplog.set_level(logging.WARNING)
    thread = threading.Thread(target=lambda: jobs.work(lambda job: stop.set(), stop=stop, poll="20ms"))
    thread.start()
    while not caplog.records:
        stop.wait(0.01)
    execute(path, "ALTER TABLE away RENAME TO jobs")
    Jobs(path).enqueue("work")
    thread.join(PATIENCE)
    assert stop.is_set() and "could be claimed" in caplog.text


def test_to_drain_what_is_not_there_is_an_error(path: Path) -> None:
    """Nobody would come back to look again."""
    with pytest.raises(StoreUnavailable, match="no table"):
        Jobs(path, table="tasks").work(print, drain=True)


@pytest.mark.slow
def test_claims_that_fail_because_of_each_other(path: Path) -> None:
    """Seven times, as among many workers whose transactions are serializable: it is claimed all the same."""
    conflicts = iter(range(7))

    def connect() -> sqlite3.Connection:
        if next(conflicts, None) is not None:
            raise sqlite3.OperationalError("database is locked")
        return sqlite3.connect(path)

    Jobs(path).enqueue("work")
    assert Jobs(connect).work(lambda job: None, drain=True) == 1


async def test_one_task_that_cannot_go_on(path: Path) -> None:
    """Its error comes out as it is, and not in a group: as with threads."""
    import aiosqlite

    async def perform(job: Any) -> None: ...

    jobs = AsyncJobs(lambda: aiosqlite.connect(path), table="tasks")
    with pytest.raises(StoreUnavailable, match="no table"):
        await jobs.work(perform, concurrency=2, drain=True)


def test_a_function_that_nobody_would_await(path: Path) -> None:
    """It would fail every job, one after the other, without having begun."""
    jobs = Jobs(path)
    jobs.enqueue("work")

    async def perform(job: Any) -> None: ...

    with pytest.raises(InvalidRequest, match="AsyncJobs"):
        jobs.work(perform, drain=True)
    assert jobs.counts()["ready"] == 1


def test_a_job_that_the_function_completed_stays_so(path: Path) -> None:
    """In its own transaction; the loop does not end it again."""
    jobs = Jobs(path)
    jobs.enqueue("work")

    def perform(job: Any) -> str:
        with closing(sqlite3.connect(path)) as connection, connection:
            job.complete("inside", tx=connection)
        return "outside"

    assert jobs.work(perform, drain=True) == 1
    found = jobs.get(1)
    assert found is not None and found.result == "inside"


def test_a_result_that_is_no_json_fails_the_job(path: Path) -> None:
    """It is not done in silence without it."""
    jobs = Jobs(path)
    jobs.enqueue("work")
    assert jobs.work(lambda job: object(), drain=True) == 0
    found = jobs.get(1)
    assert found is not None and found.state == "ready" and "cannot be written as JSON" in str(found.error)


@pytest.mark.parametrize(
    "wrong", [{"poll": 0}, {"poll": None}, {"concurrency": 0}, {"concurrency": True}, {"queue": ""}]
)
def test_bad_input(path: Path, wrong: dict[str, Any]) -> None:
    """Refused before anything is claimed."""
    with pytest.raises(InvalidRequest):
        Jobs(path).work(print, drain=True, **wrong)
    with pytest.raises(InvalidRequest, match="function"):
        Jobs(path).work("print", drain=True)  # type: ignore[arg-type]  # that is the point
