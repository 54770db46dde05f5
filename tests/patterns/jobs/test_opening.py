"""Transactions of our own out of what the user has, also where his connections commit by themselves."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import psycopg
import psycopg_pool
import pymysql
import pytest
from sqlalchemy import create_engine
from sqlalchemy.orm import sessionmaker

from leasehold import StoreUnavailable
from leasehold.patterns import AsyncJobs, Jobs
from tests.servers.database import Database


def through(jobs: Jobs) -> None:
    """The whole life of a job."""
    jobs.create()
    jobs.enqueue("work", key="once")
    with jobs.claim() as job:  # type: ignore[union-attr]  # there is one
        job.heartbeat()
    assert jobs.counts()["done"] == 1


def test_sqlite_in_autocommit(tmp_path: Path) -> None:
    """A transaction is begun where none would be."""
    through(Jobs(lambda: sqlite3.connect(tmp_path / "app.db", isolation_level=None)))


def test_sessions(tmp_path: Path) -> None:
    """What begins a session begins a transaction."""
    engine = create_engine(f"sqlite:///{tmp_path / 'app.db'}")
    through(Jobs(sessionmaker(engine)))
    through(Jobs(sessionmaker(engine).begin, table="others"))
    through(Jobs(engine.connect, table="more"))
    engine.dispose()


@pytest.mark.slow
@pytest.mark.parametrize("autocommit", [False, True])
def test_a_pool_of_psycopg_is_left_as_it_was(postgres_database: Database, autocommit: bool) -> None:
    """Its connections are in autocommit for a statement of ours, and then as their owner made them."""
    options = {"autocommit": autocommit}
    with psycopg_pool.ConnectionPool(postgres_database.dsn, kwargs=options, min_size=1, max_size=1, open=True) as pool:
        jobs = Jobs(pool)
        through(jobs)
        with pytest.raises(StoreUnavailable):
            Jobs(pool, table="nowhere").claim()
        with pool.connection() as connection:
            assert connection.autocommit is autocommit
        assert jobs.counts()["done"] == 1


@pytest.mark.slow
async def test_an_async_pool_in_autocommit(postgres_database: Database) -> None:
    """The same, awaited."""
    options = {"autocommit": True}
    async with psycopg_pool.AsyncConnectionPool(postgres_database.dsn, kwargs=options, open=False) as pool:
        jobs = AsyncJobs(pool)
        await jobs.create()
        await jobs.enqueue("work")
        async with await jobs.claim():  # type: ignore[union-attr]  # there is one
            pass
        assert (await jobs.counts())["done"] == 1


@pytest.mark.slow
def test_a_claim_on_postgres_is_one_statement(postgres_database: Database) -> None:
    """No BEGIN and no COMMIT around it: one round trip."""
    sent: list[str] = []

    class Watched(psycopg.Connection[Any]):
        """Tells what else than queries it sends."""

        def _exec_command(self, command: Any, *more: Any, **named: Any) -> Any:
            sent.append(str(command))
            return super()._exec_command(command, *more, **named)

    with psycopg_pool.ConnectionPool(
        postgres_database.dsn, connection_class=Watched, min_size=1, max_size=1, open=True
    ) as pool:
        jobs = Jobs(pool)
        jobs.create()
        jobs.enqueue("work")
        assert sent != []
        sent.clear()
        job = jobs.claim()
        assert job is not None
        job.complete()
        assert sent == []


@pytest.mark.slow
def test_pymysql_in_autocommit(mariadb_database: Database) -> None:
    """A claim there is several statements, and one transaction."""
    through(Jobs(lambda: pymysql.connect(**mariadb_database.parameters, ssl_disabled=True, autocommit=True)))
