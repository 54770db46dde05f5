"""A lease as the pre-filter of claims: it saves questions to the database, and decides nothing."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import leasehold
from leasehold.observe.events import Acquired
from leasehold.patterns import AsyncJobs, Jobs
from tests.support.servers.redis import RedisServer

PATIENCE = 60.0


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A table with one job."""
    jobs = Jobs(tmp_path / "app.db")
    jobs.create()
    jobs.enqueue("work")
    return tmp_path / "app.db"


@pytest.mark.slow
def test_given_back_when_the_database_says_no(path: Path, redis_url: str) -> None:
    """A worker without the filter is faster: the lease is there for others at once."""
    rival, faster = Jobs(path), []

    def overtake(event: Any) -> None:
        if isinstance(event, Acquired):
            faster.append(rival.claim())

    with leasehold.connect(redis_url, observers=[overtake]) as hold:
        assert Jobs(path, hold=hold).claim() is None
        assert [job.id for job in faster if job] == [1]
        assert not hold.lock("job", "jobs", 1).locked()


@pytest.mark.slow
def test_kept_while_the_job_is_and_given_back_after_it(path: Path, redis_url: str) -> None:
    """So that nobody asks the database in vain."""
    with leasehold.connect(redis_url) as hold:
        job = Jobs(path, hold=hold).claim()
        assert job is not None and hold.lock("job", "jobs", 1).locked()
        with job:
            pass
        assert not hold.lock("job", "jobs", 1).locked()


@pytest.mark.slow
def test_who_has_not_the_lease_takes_the_next(path: Path, redis_url: str) -> None:
    """The first candidate is somebody's."""
    with leasehold.connect(redis_url) as hold, hold.lock("job", "jobs", 1):
        jobs = Jobs(path, hold=hold)
        assert jobs.claim() is None
        jobs.enqueue("more")
        job = jobs.claim()
        assert job is not None and job.id == 2


@pytest.mark.slow
def test_without_its_store_it_is_done_without(path: Path, own_redis: Callable[..., RedisServer]) -> None:
    """The database decides alone."""
    server = own_redis()
    with leasehold.connect(server.url) as hold:
        jobs = Jobs(path, hold=hold)
        server.kill()
        job = jobs.claim()
        assert job is not None
        job.complete()
    assert jobs.counts()["done"] == 1


def test_a_poisoned_job_is_buried_and_its_lease_given_back(path: Path) -> None:
    """Whoever finds it dead does not hold it."""
    with leasehold.connect("memory://") as hold:
        jobs = Jobs(path, hold=hold, retry=leasehold.Backoff(attempts=1), lease="50ms")
        assert Jobs(path, lease="50ms").claim() is not None
        while jobs.counts()["expired"] == 0:
            pass
        assert jobs.claim() is None
        assert jobs.counts()["dead"] == 1 and not hold.lock("job", "jobs", 1).locked()


@pytest.mark.slow
def test_it_ends_with_the_heartbeats(path: Path) -> None:
    """A worker that hangs does not keep others from what the database would give them, though its process lives."""
    with leasehold.connect("memory://") as hold:
        jobs = Jobs(path, hold=hold, lease="1s")
        hung = jobs.claim()
        assert hung is not None
        found, end = None, time.monotonic() + PATIENCE
        while found is None and time.monotonic() < end:
            found = jobs.claim()
        assert found is not None and found.version == 2
        with pytest.raises(leasehold.StaleOwner):
            hung.complete()


@pytest.mark.slow
def test_heartbeats_keep_it(path: Path) -> None:
    """For as long as the job is kept."""
    with leasehold.connect("memory://") as hold:
        job = Jobs(path, hold=hold, lease="1500ms").claim()
        assert job is not None
        first = job.deadline
        with job:
            while job.deadline < first + 2.5:
                assert hold.lock("job", "jobs", 1).locked()
                time.sleep(0.05)


def test_who_was_superseded_gives_it_back(path: Path) -> None:
    """When the body is left: the job is another's, and its lease must not stay."""
    with leasehold.connect("memory://") as hold:
        job = Jobs(path, hold=hold).claim()
        assert job is not None
        with pytest.raises(ValueError, match="mine"), job:  # noqa: PT012 - the body is the point
            with closing(sqlite3.connect(path)) as connection, connection:
                connection.execute("UPDATE jobs SET version = version + 1")
            with pytest.raises(leasehold.StaleOwner):
                job.heartbeat()
            raise ValueError("mine")
        assert not hold.lock("job", "jobs", 1).locked()


@pytest.mark.parametrize("error", [sqlite3.OperationalError, KeyboardInterrupt])
def test_an_error_among_many(path: Path, error: type[BaseException]) -> None:
    """What was claimed before it is the caller's, or is given back: never nobody's."""
    connections = 0

    def connect() -> sqlite3.Connection:
        nonlocal connections
        connections += 1
        if connections == 5:  # the two looks, two claims, and this one
            raise error("gone")
        return sqlite3.connect(path)

    jobs = Jobs(path)
    jobs.enqueue_many(range(4))
    with leasehold.connect("memory://") as hold:
        if error is KeyboardInterrupt:
            with pytest.raises(KeyboardInterrupt):
                Jobs(connect, hold=hold).claim_many(5)
            assert jobs.counts()["ready"] == 5 and not hold.lock("job", "jobs", 1).locked()
        else:
            assert len(Jobs(connect, hold=hold).claim_many(5)) == jobs.counts()["running"] == 2


def test_ids_that_are_no_names(path: Path) -> None:
    """One of them does not keep everybody from all the others."""
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE TABLE tasks (id TEXT PRIMARY KEY, state TEXT, version INTEGER, lease_until TEXT)")
    columns = dict.fromkeys(
        ["owner", "attempts", "payload", "result", "error", "run_at", "created_at", "finished_at", "queue", "key"]
    )
    with leasehold.connect("memory://") as hold:
        jobs = Jobs(path, table="tasks", columns=columns, hold=hold)
        for odd in ("", "x" * 3000, "usual"):
            jobs.enqueue(values={"id": odd})
        assert {job.id for job in jobs.claim_many(9)} == {"", "x" * 3000, "usual"}


async def test_on_a_loop(path: Path) -> None:
    """The same, awaited."""
    import aiosqlite

    async with leasehold.aio.connect("memory://") as hold:
        jobs = AsyncJobs(lambda: aiosqlite.connect(path), hold=hold)
        job = await jobs.claim()
        assert job is not None and await hold.lock("job", "jobs", 1).locked()
        async with job:
            pass
        assert not await hold.lock("job", "jobs", 1).locked()
        assert (await jobs.counts())["done"] == 1
