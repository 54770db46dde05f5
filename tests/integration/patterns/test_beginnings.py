"""Transactions of our own out of what the user has, also where his connections commit by themselves."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
import psycopg_pool
import pymysql
import pytest
from sqlalchemy import create_engine
from sqlalchemy.ext.asyncio import async_sessionmaker, create_async_engine
from sqlalchemy.orm import Session, sessionmaker
from sqlalchemy.pool import NullPool

from leasehold import InvalidRequest, StoreUnavailable
from leasehold.patterns import AsyncJobs, Jobs
from leasehold.patterns.results import SQLResultStore
from leasehold.testing.results import Presenter
from tests.support.guards.desks import django_connection
from tests.support.servers.database import Database


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


async def test_awaited_sessions(tmp_path: Path) -> None:
    """A maker of them, what it begins, and a session that somebody opens for us: each is committed."""
    engine = create_async_engine(f"sqlite+aiosqlite:///{tmp_path / 'app.db'}", poolclass=NullPool)
    sessions = async_sessionmaker(engine)
    for number, begin in enumerate((sessions, sessions.begin, partial(sessions), engine.connect)):
        jobs = AsyncJobs(begin, table=f"jobs_{number}")
        await jobs.create()
        await jobs.enqueue("work")
        assert (await jobs.counts())["ready"] == 1
    await engine.dispose()


def test_a_connection_of_django(tmp_path: Path) -> None:
    """Each transaction is an atomic block."""
    connection = django_connection(str(tmp_path / "app.db"))
    through(Jobs(connection))
    connection.close()


def test_a_result_store_on_connections_in_autocommit(tmp_path: Path) -> None:
    """A transaction is begun for a result store as it is for jobs, and a path is enough for it, too."""
    holder, path = Presenter("order:42", 7), tmp_path / "app.db"
    results = SQLResultStore(lambda: sqlite3.connect(path, isolation_level=None))
    results.create()
    results.write(holder, "text", 60)
    assert SQLResultStore(path).read("order:42").text == "text"


def test_a_transaction_that_was_begun_is_used(tmp_path: Path) -> None:
    """Somebody begins by hand, where connections would commit each statement: it is not begun twice."""

    @contextmanager
    def begin() -> Iterator[sqlite3.Connection]:
        with closing(sqlite3.connect(tmp_path / "app.db", isolation_level=None)) as connection, connection:
            connection.execute("BEGIN")
            yield connection

    through(Jobs(begin))


def test_one_connection_serves_one_caller(tmp_path: Path) -> None:
    """So it is refused, be it a connection, a session, or the class of one."""
    engine = create_engine(f"sqlite:///{tmp_path / 'app.db'}")
    with closing(sqlite3.connect(tmp_path / "app.db")) as plain, engine.connect() as of_engine, Session(engine) as used:
        for thing in (plain, of_engine, used, sqlite3.Connection):
            with pytest.raises(InvalidRequest, match="one caller"):
                Jobs(thing)
    engine.dispose()


def test_what_is_refused_leaves_nothing_unawaited(tmp_path: Path) -> None:
    """A coroutine that Jobs cannot use is closed: nobody warns about it later."""

    async def connect() -> None:
        """Never run."""

    with pytest.raises(InvalidRequest, match="AsyncJobs"):
        Jobs(connect).check()


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

    def connect() -> Any:
        return pymysql.connect(**mariadb_database.parameters, ssl_disabled=True, autocommit=True)

    @contextmanager
    def begin() -> Iterator[Any]:
        with closing(connect()) as connection:
            connection.begin()
            connection.cursor().execute("INSERT INTO seen VALUES (1)")
            yield connection
            connection.rollback()

    through(Jobs(connect))
    with closing(connect()) as connection:
        connection.cursor().execute("CREATE TABLE seen (id INTEGER)")
        assert Jobs(begin).counts()["done"] == 1
        cursor = connection.cursor()
        cursor.execute("SELECT COUNT(*) FROM seen")
        assert cursor.fetchone() == (0,)  # to begin twice would have committed it
