"""``guard.within``: a check in a transaction of its own, with engines and pools of both kinds."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, closing, contextmanager, nullcontext, suppress
from dataclasses import replace
from typing import Any

import pytest
import sqlalchemy
from sqlalchemy.ext.asyncio import create_async_engine

from leasehold.errors import InvalidRequest, OutcomeUnknown, StaleOwner, StoreUnavailable
from leasehold.guards.guard import Guard
from leasehold.guards.sql import Conflict, FenceGuard, TransactionGuard
from leasehold.testing.guards import CASES
from tests.support.guards.ways import RESOURCE, A, B
from tests.support.servers.database import Database, DatabaseServer
from tests.support.servers.proxy import Proxy, Verdict
from tests.support.waiting import PATIENCE, until

slow = pytest.mark.slow
guard = FenceGuard()


@pytest.fixture
def engine(tmp_path: Any) -> Iterator[sqlalchemy.Engine]:
    """With the guard's table."""
    engine = sqlalchemy.create_engine(f"sqlite:///{tmp_path / 'app.db'}", connect_args={"timeout": 0})
    with engine.begin() as tx:
        guard.create(tx)
    yield engine
    engine.dispose()


@pytest.mark.parametrize("case", CASES)
def test_contract(engine: sqlalchemy.Engine, case: str) -> None:
    """It is a guard as every other."""
    busy: Any = engine.url.update_query_dict({"timeout": "30"})
    patient = sqlalchemy.create_engine(busy)
    door: Guard = guard.within(patient.begin)
    CASES[case](door)
    patient.dispose()


def test_an_async_engine(tmp_path: Any) -> None:
    """The check is awaited."""

    async def work() -> None:
        engine = create_async_engine(f"sqlite+aiosqlite:///{tmp_path / 'app.db'}")
        async with engine.begin() as tx:
            await guard.create(tx)
        door = guard.within(engine.begin)
        await checked(door, 10, A)
        await checked(door, 10, A)
        with pytest.raises(StaleOwner):
            await checked(door, 9, B)
        with pytest.raises(InvalidRequest):
            door.check(0, resource=RESOURCE)
        await engine.dispose()

    asyncio.run(work())


async def checked(door: TransactionGuard, fence: int, owner: str) -> None:
    """What is awaited."""
    waiting = door.check(fence, resource=RESOURCE, owner=owner)
    assert waiting is not None
    await waiting


@slow
def test_a_pool_that_lends(postgres_database: Database) -> None:
    """As psycopg_pool does: a connection for a while, committed when it comes back."""
    import psycopg

    connection = psycopg.connect(postgres_database.dsn)
    guard.create(connection)
    connection.commit()

    @contextmanager
    def lend() -> Iterator[Any]:
        with connection.transaction():
            yield connection

    door = guard.within(lend)
    door.check(10, resource=RESOURCE, owner=A)
    with pytest.raises(StaleOwner):
        door.check(9, resource=RESOURCE, owner=B)
    door.check(11, resource=RESOURCE, owner=B)
    connection.close()


@slow
def test_a_pool_that_lends_and_is_awaited(postgres_database: Database) -> None:
    """asyncpg, in a transaction; a connection of the pool alone is in autocommit, and refused."""
    import asyncpg

    async def work() -> None:
        async with asyncpg.create_pool(postgres_database.dsn, min_size=1, max_size=2) as pool:
            async with pool.acquire() as connection:
                await guard.create(connection)

            @asynccontextmanager
            async def lend() -> AsyncIterator[Any]:
                async with pool.acquire() as connection, connection.transaction():
                    yield connection

            door = guard.within(lend)
            await checked(door, 10, A)
            with pytest.raises(StaleOwner):
                await checked(door, 9, B)
            with pytest.raises(InvalidRequest, match="in one transaction"):
                await checked(guard.within(pool.acquire), 11, A)

    asyncio.run(work())


def test_kinds_that_do_not_match(tmp_path: Any) -> None:
    """An async connection out of a sync context manager is refused; a sync one out of an async one is well."""
    import aiosqlite

    async def work() -> None:
        async with aiosqlite.connect(tmp_path / "app.db") as connection:
            await guard.create(connection)
            with pytest.raises(InvalidRequest, match="must give an async context manager"):
                guard.within(lambda: nullcontext(connection)).check(10, resource=RESOURCE)

        @asynccontextmanager
        async def begin() -> AsyncIterator[sqlite3.Connection]:
            with closing(sqlite3.connect(tmp_path / "app.db")) as plain, plain:
                yield plain

        await checked(guard.within(begin), 10, A)
        with pytest.raises(StaleOwner):
            await checked(guard.within(begin), 9, A)

    asyncio.run(work())


def test_a_transaction_that_swallows_errors(engine: sqlalchemy.Engine) -> None:
    """A refusal that somebody swallows is not taken for a pass, of either kind."""

    @contextmanager
    def begin() -> Iterator[Any]:
        with suppress(Exception), engine.begin() as tx:
            yield tx

    @asynccontextmanager
    async def begin_later() -> AsyncIterator[Any]:
        with suppress(Exception), engine.begin() as tx:
            yield tx

    guard.within(begin).check(10, resource=RESOURCE, owner=A)
    asyncio.run(checked(guard.within(begin_later), 10, A))
    with pytest.raises(InvalidRequest, match="swallowed"):
        guard.within(begin).check(9, resource=RESOURCE, owner=B)
    with pytest.raises(InvalidRequest, match="swallowed"):
        asyncio.run(checked(guard.within(begin_later), 9, B))


def test_a_rollback_that_fails(engine: sqlalchemy.Engine) -> None:
    """A refusal is reported as such, although its transaction then cannot be rolled back."""

    @contextmanager
    def begin() -> Iterator[Any]:
        with engine.begin() as tx:
            try:
                yield tx
            except Exception as error:
                raise sqlite3.OperationalError("the rollback failed") from error

    guard.within(engine.begin).check(10, resource=RESOURCE, owner=A)
    with pytest.raises(StaleOwner):
        guard.within(begin).check(9, resource=RESOURCE, owner=B)


@pytest.mark.parametrize("begin", [None, "engine", 5])
def test_what_cannot_begin(begin: Any) -> None:
    """An engine itself is not called: its ``begin`` is."""
    with pytest.raises(InvalidRequest, match=r"guard\.within\(engine\.begin\)"):
        guard.within(begin)


def test_what_gives_no_transaction(engine: sqlalchemy.Engine) -> None:
    """Something that is called and gives no context manager, or one that gives no connection."""
    wrong: list[Callable[[], Any]] = [lambda: None, lambda: 5, lambda: engine]
    for begin in wrong:
        with pytest.raises(InvalidRequest, match="context manager"):
            guard.within(begin).check(10, resource=RESOURCE)
    with pytest.raises(InvalidRequest, match="no engine, pool or cursor"):
        guard.within(nullcontext).check(10, resource=RESOURCE)


def test_a_file_that_cannot_be_opened(tmp_path: Any) -> None:
    """What fails at the beginning is ours."""
    engine = sqlalchemy.create_engine(f"sqlite:///{tmp_path / 'no' / 'app.db'}")
    with pytest.raises(StoreUnavailable) as caught:
        guard.within(engine.begin).check(10, resource=RESOURCE)
    assert caught.value.__cause__ is not None
    engine.dispose()


def test_a_commit_that_is_beaten(tmp_path: Any) -> None:
    """A reader keeps SQLite's commit out: Conflict, the fence is not remembered, and the check may be repeated."""
    path = tmp_path / "app.db"
    with closing(sqlite3.connect(path, timeout=0)) as reader:
        guard.create(reader)

        @contextmanager
        def begin() -> Iterator[sqlite3.Connection]:
            with closing(sqlite3.connect(path, timeout=0)) as connection, connection:
                yield connection

        reader.execute("BEGIN")
        reader.execute("SELECT * FROM leasehold_fences").fetchall()
        with pytest.raises(Conflict):
            guard.within(begin).check(10, resource=RESOURCE)
        reader.rollback()
        guard.within(begin).check(9, resource=RESOURCE)


@slow
def test_a_server_that_is_gone(own_postgres: Callable[[], DatabaseServer]) -> None:
    """No connection, no check: StoreUnavailable, for both kinds."""
    server = own_postgres()
    engine, later = (
        sqlalchemy.create_engine(server.sqlalchemy_url("psycopg")),
        create_async_engine(server.sqlalchemy_url("asyncpg")),
    )
    server.kill()
    with pytest.raises(StoreUnavailable):
        guard.within(engine.begin).check(10, resource=RESOURCE)

    async def work() -> None:
        with pytest.raises(StoreUnavailable):
            await checked(guard.within(later.begin), 10, A)

    asyncio.run(work())
    engine.dispose()


@slow
@pytest.mark.parametrize("awaited", [False, True])
def test_a_commit_that_nobody_answers(postgres_database: Database, awaited: bool) -> None:
    """The connection is cut while the commit is under way: OutcomeUnknown. Here it had happened; ask again."""
    import psycopg

    with psycopg.connect(postgres_database.dsn, autocommit=True) as direct:
        guard.create(direct)
        committed = threading.Event()

        def lose_the_commit(request: bytes) -> Verdict:
            if b"COMMIT" not in request:
                return "pass"
            committed.set()
            return "drop_reply"

        with closing(Proxy(postgres_database.port, lose_the_commit)) as proxy, ThreadPoolExecutor(1) as pool:
            place = replace(postgres_database, port=proxy.port)
            cutting = pool.submit(cut_after_commit, proxy, committed, direct)
            with pytest.raises(OutcomeUnknown, match="may be repeated") as caught:
                (check_later if awaited else check_now)(place)
            cutting.result(PATIENCE)
        assert caught.value.__cause__ is not None
        assert direct.execute("SELECT fence FROM leasehold_fences").fetchall() == [(10,)]
    check_now(postgres_database)


def cut_after_commit(proxy: Proxy, committed: threading.Event, direct: Any) -> None:
    """When the server has committed, the network fails."""
    assert committed.wait(PATIENCE)
    until(lambda: bool(direct.execute("SELECT fence FROM leasehold_fences").fetchall()), "it is committed")
    proxy.cut()


def check_now(place: Database) -> None:
    """At a door with a sync engine."""
    engine = sqlalchemy.create_engine(place.sqlalchemy_url("psycopg"))
    try:
        guard.within(engine.begin).check(10, resource=RESOURCE, owner=A)
    finally:
        engine.dispose()


def check_later(place: Database) -> None:
    """At a door with an async engine."""

    async def work() -> None:
        engine = create_async_engine(place.sqlalchemy_url("asyncpg"))
        try:
            await checked(guard.within(engine.begin), 10, A)
        finally:
            await engine.dispose()

    asyncio.run(work())
