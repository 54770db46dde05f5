"""What ``connect`` takes beside a URL: pools of psycopg's and engines of SQLAlchemy's, of both flavours."""

from __future__ import annotations

import asyncio
from typing import Any

import psycopg
import psycopg_pool
import pytest
import sqlalchemy
import sqlalchemy.ext.asyncio

import leasehold
import leasehold.aio
from leasehold.errors import InvalidRequest, StoreUnavailable
from tests.support.servers.database import Database

pytestmark = pytest.mark.slow


class OwnPool(psycopg_pool.ConnectionPool[Any]):
    """A class of the user's."""


def test_a_pool_says_how_to_connect(postgres_database: Database) -> None:
    """With its parameters, its class and what it does with a new connection. None of its own connections is taken: a
    renewal must not wait for a query of the application."""
    configured: list[psycopg.Connection[Any]] = []
    with OwnPool(
        postgres_database.dsn,
        kwargs={"application_name": "ours"},
        min_size=1,
        max_size=1,
        configure=configured.append,
        open=True,
    ) as pool:
        pool.wait()
        with pool.connection() as taken, leasehold.connect(pool) as hold, hold.lock("job") as lease:
            assert lease.fence and "PostgreSQL at 127.0.0.1" in hold._engine.store._server  # type: ignore[attr-defined]
            row = taken.execute("SELECT count(*) FROM pg_stat_activity WHERE application_name = 'ours'").fetchone()
            assert row is not None and row[0] >= 2
        assert len(configured) >= 2


def test_parameters_may_come_from_a_function(postgres_database: Database) -> None:
    """A password that changes is asked for with each connection."""
    asked: list[int] = []

    def parameters() -> dict[str, Any]:
        asked.append(1)
        return {"application_name": "ours"}

    pool: Any = psycopg_pool.ConnectionPool(lambda: postgres_database.dsn, kwargs=parameters, open=False)
    with leasehold.connect(pool) as hold, hold.lock("job"):
        assert asked


async def test_a_pool_of_asyncio_connects_on_its_loop(postgres_database: Database) -> None:
    """Also for the thread that renews leases."""
    loops: list[asyncio.AbstractEventLoop] = []

    async def configure(connection: psycopg.AsyncConnection[Any]) -> None:
        loops.append(asyncio.get_running_loop())

    pool = psycopg_pool.AsyncConnectionPool(postgres_database.dsn, configure=configure, open=False)
    async with leasehold.aio.connect(pool) as hold, hold.lock("job", ttl=1.5) as lease:
        before = lease.deadline
        async with asyncio.timeout(60):
            while lease.deadline == before:  # noqa: ASYNC110 - the watchdog renews it on a thread
                await asyncio.sleep(0.05)
        lease.check()
    assert loops and set(loops) == {asyncio.get_running_loop()}


def test_an_engine_says_how_to_connect(postgres_database: Database) -> None:
    """With its arguments and events. What it gives is ours from then on: its pool of one is free."""
    arguments = {"application_name": "ours"}
    engine = sqlalchemy.create_engine(
        postgres_database.sqlalchemy_url("psycopg"), connect_args=arguments, pool_size=1, max_overflow=0
    )
    with leasehold.connect(engine) as hold, hold.lock("job"), engine.connect() as connection:
        found = connection.execute(
            sqlalchemy.text("SELECT count(*) FROM pg_stat_activity WHERE application_name = 'ours'")
        )
        assert found.scalar_one() >= 2
    engine.dispose()


async def test_so_does_an_engine_of_asyncio(postgres_database: Database) -> None:
    """The same, on its event loop."""
    engine = sqlalchemy.ext.asyncio.create_async_engine(
        postgres_database.sqlalchemy_url("psycopg"), connect_args={"application_name": "ours"}
    )
    async with leasehold.aio.connect(engine) as hold, hold.lock("job"), engine.connect() as connection:
        found = await connection.execute(
            sqlalchemy.text("SELECT count(*) FROM pg_stat_activity WHERE application_name = 'ours'")
        )
        assert found.scalar_one() >= 2
    await engine.dispose()


def test_what_belongs_to_an_event_loop_is_no_use_to_threads(postgres_database: Database) -> None:
    """The error says which ``connect`` takes it."""
    pool = psycopg_pool.AsyncConnectionPool(postgres_database.dsn, open=False)
    with leasehold.connect(pool) as hold, pytest.raises(InvalidRequest, match=r"leasehold\.aio\.connect"):
        hold.lock("job").acquire(wait=0)


def test_other_engines_are_refused(postgres_database: Database) -> None:
    """Before anything is connected."""
    for url in (postgres_database.sqlalchemy_url("psycopg2"), "sqlite://"):
        with pytest.raises(InvalidRequest, match="over psycopg 3"):
            leasehold.connect(sqlalchemy.create_engine(url))
    engine = sqlalchemy.create_engine(postgres_database.sqlalchemy_url("psycopg"))
    with engine.connect() as connection, pytest.raises(InvalidRequest, match="not Connection"):
        leasehold.connect(connection)  # type: ignore[arg-type]  # the mistake that is tested
    engine.dispose()


def test_a_server_that_cannot_be_reached_is_an_error_of_ours(postgres_database: Database) -> None:
    """Whoever connects."""
    url = postgres_database.url.replace(str(postgres_database.port), "1")
    pool: Any = psycopg_pool.ConnectionPool(url, open=False)
    engine = sqlalchemy.create_engine(url.replace("postgresql:", "postgresql+psycopg:"))
    for thing in (url, pool, engine):
        with leasehold.connect(thing) as hold, pytest.raises(StoreUnavailable, match="cannot be reached"):
            hold.lock("job").acquire(wait=0)
