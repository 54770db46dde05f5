"""Connections that end in the middle of a statement: what is said of it, and that a worker goes on."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pymysql
import pytest

from leasehold import OutcomeUnknown, StoreUnavailable
from leasehold.patterns import Jobs
from tests.support.servers.database import Database

PATIENCE = 60.0
WAITING_IN_POSTGRES = "SELECT pid FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
WAITING_IN_MARIADB = "SELECT id FROM information_schema.processlist WHERE info LIKE 'UPDATE%jobs%'"


def until(look: Callable[[], list[Any]]) -> list[Any]:
    """What it gives, when it gives something."""
    end = time.monotonic() + PATIENCE
    while not (found := look()) and time.monotonic() < end:
        time.sleep(0.02)
    return found


@pytest.mark.slow
def test_a_lost_answer_is_not_a_refusal(postgres_database: Database) -> None:
    """A statement that commits by itself may have been committed: whoever took it for refused would enqueue twice."""

    def connect() -> Any:
        return psycopg.connect(postgres_database.dsn, autocommit=False)

    jobs = Jobs(connect)
    jobs.create()
    with ThreadPoolExecutor(1) as pool, connect() as blocker, psycopg.connect(
        postgres_database.dsn, autocommit=True
    ) as killer:  # fmt: skip
        blocker.execute("LOCK TABLE jobs IN EXCLUSIVE MODE")
        late = pool.submit(jobs.enqueue, "work")
        for (pid,) in until(lambda: killer.execute(WAITING_IN_POSTGRES).fetchall()):
            killer.execute("SELECT pg_terminate_backend(%s)", (pid,))
        with pytest.raises(OutcomeUnknown, match="may or may not"):
            late.result(PATIENCE)


@pytest.mark.slow
def test_a_worker_outlives_its_connection(mariadb_database: Database) -> None:
    """That the rollback fails too, on a connection that is gone, makes no mistake of the caller's out of it."""

    def connect() -> Any:
        return pymysql.connect(**mariadb_database.parameters, ssl_disabled=True)

    def ask(connection: Any, sql: str) -> list[Any]:
        cursor = connection.cursor()
        cursor.execute(sql)
        return list(cursor.fetchall())

    jobs = Jobs(connect)
    jobs.create()
    jobs.enqueue("work")
    job = jobs.claim()
    assert job is not None
    with ThreadPoolExecutor(1) as pool, connect() as blocker, connect() as killer:
        ask(blocker, "SELECT * FROM jobs FOR UPDATE")
        killer.autocommit(True)
        late = pool.submit(job.heartbeat)
        for (number,) in until(lambda: ask(killer, WAITING_IN_MARIADB)):
            ask(killer, f"KILL {number}")
        with pytest.raises(StoreUnavailable):
            late.result(PATIENCE)
    job.heartbeat()  # on another connection
