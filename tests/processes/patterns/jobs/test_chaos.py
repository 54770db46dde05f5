"""Real workers that are killed and frozen at random: every job once, and no completion by somebody superseded."""

from __future__ import annotations

import random
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest

from leasehold.patterns import Jobs
from tests.processes.patterns.jobs import chaos
from tests.support.servers.database import Database

LEASE = 0.4


def on_sqlite(path: Path) -> chaos.Execute:
    """The judge's own connection."""

    def execute(sql: str) -> list[tuple[Any, ...]]:
        with closing(sqlite3.connect(path, timeout=0.2)) as connection, connection:
            return connection.execute(sql).fetchall()

    return execute


def on_postgres(database: Database) -> chaos.Execute:
    """The judge's own connection."""

    def execute(sql: str) -> list[tuple[Any, ...]]:
        with psycopg.connect(database.dsn) as connection:
            cursor = connection.execute(sql.encode())
            return cursor.fetchall() if cursor.description else []

    return execute


def prepared(engine: Any, execute: chaos.Execute, count: int) -> None:
    """Jobs to do, and the tables of the judge."""
    jobs = Jobs(engine)
    jobs.create()
    for table in chaos.TABLES:
        execute(table)
    jobs.enqueue_many(range(count))


def seed() -> int:
    """Printed by the run; put it here to replay one."""
    return random.SystemRandom().randrange(2**32)


@pytest.mark.slow
def test_every_job_once_on_postgres(postgres_database: Database) -> None:
    """Four workers and 300 jobs; late completions were tried, and refused."""
    execute = on_postgres(postgres_database)
    prepared(lambda: psycopg.connect(postgres_database.dsn), execute, 300)
    verdict = chaos.run(postgres_database.dsn, execute, 300, 4, LEASE, seed())
    print(verdict)  # noqa: T201 - beside its seed, when it fails
    assert verdict.faults == [] and verdict.done == 300
    assert verdict.kills + verdict.freezes > 0


@pytest.mark.slow
def test_every_job_once_on_sqlite(tmp_path: Path) -> None:
    """The same in a file."""
    path = tmp_path / "app.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
    execute = on_sqlite(path)
    prepared(path, execute, 150)
    verdict = chaos.run(str(path), execute, 150, 3, LEASE, seed())
    print(verdict)  # noqa: T201 - beside its seed, when it fails
    assert verdict.faults == [] and verdict.done == 150


@pytest.mark.slow
def test_the_judge_finds_a_completion_without_its_version(postgres_database: Database) -> None:
    """Workers that forget the version complete what others have taken over, and that is seen."""
    execute = on_postgres(postgres_database)
    prepared(lambda: psycopg.connect(postgres_database.dsn), execute, 10_000)  # never all of them
    twice = "SELECT job_id FROM effects GROUP BY job_id HAVING COUNT(*) > 1"
    verdict = chaos.run(postgres_database.dsn, execute, 0, 4, 0.2, seed(), "--broken", killing=0, until=twice)
    told = [fault for fault in verdict.faults if "took effect" in fault and "took effect 0 times" not in fault]
    assert told, verdict.faults[:20]


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_ten_thousand_jobs(postgres_database: Database, capsys: pytest.CaptureFixture[str]) -> None:
    """Eight workers, 10,000 jobs, with kills and freezes all the time."""
    execute = on_postgres(postgres_database)
    prepared(lambda: psycopg.connect(postgres_database.dsn), execute, 10_000)
    verdict = chaos.run(postgres_database.dsn, execute, 10_000, 8, 0.8, seed(), pause=0.3, patience=800)
    with capsys.disabled():
        print(f"\n{verdict}")  # noqa: T201 - what the soak is run for
    assert verdict.faults == [] and verdict.done == 10_000
    assert verdict.refusals > 0
