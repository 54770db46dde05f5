"""Bad input is refused before anything is sent, with words that say what to do."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from contextlib import closing
from datetime import datetime
from pathlib import Path
from typing import Any

import psycopg_pool
import pytest
import sqlalchemy
from sqlalchemy.ext.asyncio import create_async_engine

import leasehold
from leasehold import InvalidRequest, StoreUnavailable
from leasehold.patterns import AsyncJobs, Jobs
from tests.support.tables import each


@each(
    "wrong",
    [
        {"table": ""}, {"table": 5}, {"table": "a\0b"}, {"columns": ["id"]}, {"columns": {"name": "x"}},
        {"columns": {"id": None}}, {"columns": {"id": "x", "state": "X"}}, {"columns": {"id": ""}},
        {"states": {"new": 1}}, {"states": {"ready": "a'b"}}, {"states": {"ready": "done"}}, {"states": {"ready": 1.5}},
        {"lease": 0}, {"lease": "25h"}, {"lease": "soon"}, {"retry": 5}, {"name": ""}, {"name": "x" * 300},
        {"hold": "redis://localhost"},
    ],
    ids=str,
)  # fmt: skip
def test_settings(tmp_path: Path, wrong: dict[str, Any]) -> None:
    """At construction."""
    with pytest.raises(InvalidRequest):
        Jobs(tmp_path / "app.db", **wrong)
    assert list(tmp_path.iterdir()) == []


@each("engine", [None, 5, "postgresql://localhost/app", ":memory:", sqlite3.connect])
def test_what_is_no_engine(engine: Any) -> None:
    """Said at once, or by the first use of a function that gives something else."""
    with pytest.raises((InvalidRequest, StoreUnavailable)):
        Jobs(engine).check()


def test_the_other_flavour_is_named(tmp_path: Path) -> None:
    """An engine of an event loop is AsyncJobs', and the reverse."""
    import aiosqlite

    awaited = create_async_engine("sqlite+aiosqlite://")
    for engine in (awaited, psycopg_pool.AsyncConnectionPool("", open=False)):
        with pytest.raises(InvalidRequest, match="AsyncJobs"):
            Jobs(engine)
    with pytest.raises(InvalidRequest, match="AsyncJobs"):
        Jobs(lambda: aiosqlite.connect(tmp_path / "app.db")).check()
    with pytest.raises(InvalidRequest, match="to Jobs"):
        AsyncJobs(sqlalchemy.create_engine("sqlite://"))
    with closing(sqlite3.connect(tmp_path / "app.db")) as opened, pytest.raises(InvalidRequest, match="to Jobs"):
        asyncio.run(AsyncJobs(lambda: opened).check())


def test_a_coordinator_of_the_other_flavour(tmp_path: Path) -> None:
    """Its leases could not be taken."""
    with pytest.raises(InvalidRequest, match="same kind"):
        Jobs(tmp_path / "app.db", hold=leasehold.aio.connect("memory://"))


@pytest.fixture
def jobs(tmp_path: Path) -> Jobs:
    """A table."""
    jobs = Jobs(tmp_path / "app.db")
    jobs.create()
    return jobs


@each(
    "wrong",
    [
        {"payload": object()}, {"payload": float("nan")}, {"payload": {"a": {1, 2}}}, {"payload": "nul \0"},
        {"delay": -1}, {"delay": "soon"}, {"delay": 1, "run_at": datetime.now().astimezone()},
        {"run_at": datetime(2030, 1, 1)}, {"run_at": "tomorrow"},  # noqa: DTZ001 - that is the point
        {"key": ""}, {"key": 5}, {"key": "x" * 300}, {"queue": ""}, {"queue": 5}, {"values": 5},
        {"values": {"state": 1}},
        {"values": {"STATE": 1}}, {"values": {5: 1}}, {"tx": object()}, {"values": {"no_such_column": 1}},
    ],
    ids=lambda wrong: ",".join(wrong),  # noqa: PLW0108 - pytest calls it with one argument
)  # fmt: skip
def test_enqueue(jobs: Jobs, wrong: dict[str, Any]) -> None:
    """And nothing was enqueued."""
    with pytest.raises(InvalidRequest):
        jobs.enqueue(**wrong)
    assert jobs.counts()["ready"] == 0


def test_one_that_cannot_be_written_stops_all(jobs: Jobs) -> None:
    """All or none."""
    with pytest.raises(InvalidRequest):
        jobs.enqueue_many([1, object()])
    with pytest.raises(InvalidRequest, match="at most"):
        jobs.enqueue_many(range(10_001))
    assert jobs.counts()["ready"] == 0


@each(
    "call",
    [
        lambda jobs: jobs.claim_many(0),
        lambda jobs: jobs.claim_many(True),
        lambda jobs: jobs.claim(""),
        lambda jobs: jobs.dead(0),
        lambda jobs: jobs.purge(-1),
        lambda jobs: jobs.purge("1d", "running"),
        lambda jobs: jobs.ddl("oracle"),
        lambda jobs: jobs.claim().heartbeat(0),
        lambda jobs: jobs.claim().fail(5),
        lambda jobs: jobs.claim().complete(object()),
        lambda jobs: jobs.claim().complete(tx=5),
        lambda jobs: jobs.get(1).complete(),
    ],
)
def test_calls(jobs: Jobs, call: Callable[[Jobs], Any]) -> None:
    """The job stays as it is."""
    jobs.enqueue("work")
    with pytest.raises(InvalidRequest):
        call(jobs)
    assert jobs.counts()["done"] == 0


def test_a_payload_that_is_no_json(jobs: Jobs, tmp_path: Path) -> None:
    """Somebody else has written it: said when it is read, and the row shows it."""
    jobs.enqueue("work")
    with closing(sqlite3.connect(tmp_path / "app.db")) as connection, connection:
        connection.execute("UPDATE jobs SET payload = 'plain words'")
    connection.close()
    job = jobs.claim()
    assert job is not None and job.row["payload"] == "plain words"
    with pytest.raises(InvalidRequest, match="no JSON"):
        _ = job.payload


def test_a_long_error_is_cut(jobs: Jobs) -> None:
    """And odd characters do no harm."""
    jobs.enqueue("work")
    job = jobs.claim()
    assert job is not None
    job.fail("nul \0, half a pair \ud800, " + "x" * 10_000, retry=False)
    [dead] = jobs.dead()
    assert dead.error is not None and len(dead.error) == 4000 and dead.error.startswith("nul , half a pair ?")


def test_ids_are_not_told(jobs: Jobs) -> None:
    """Errors, logs and repr show a hash; the error carries the whole name for whoever asks."""
    jobs.enqueue(values={"id": 987654321})
    job = jobs.claim()
    assert job is not None and "987654321" not in repr(job) and job.shown.startswith("jobs#")
    job.complete()
    with pytest.raises(leasehold.StaleOwner) as refused:
        job.fail("late")
    assert "987654321" not in str(refused.value) and refused.value.resource == "jobs:987654321"
