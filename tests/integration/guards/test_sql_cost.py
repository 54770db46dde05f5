"""What a check costs: one statement when it is accepted, two when it is refused. Nothing else is sent."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from contextlib import closing
from typing import Any

import pytest
import sqlalchemy

from leasehold._sql import connections
from leasehold.errors import StaleOwner
from leasehold.guards.sql import FenceGuard, NoSuchRow
from tests.support.guards.ways import RESOURCE
from tests.support.servers.database import Database

guard = FenceGuard()
NOW = 1794768018952706
REPORTS = "CREATE TABLE reports (id INTEGER PRIMARY KEY, last_fencing_token BIGINT)"
ROW = "INSERT INTO reports (id) VALUES (1)"
slow = pytest.mark.slow


def update(tx: Any, fence: int, identity: int = 1) -> Any:
    """Through the fence column."""
    return guard.update(tx, "reports", key={"id": identity}, values={}, lease=fence, resource=RESOURCE)


STEPS: list[tuple[int, type[Exception] | None, Callable[[Any], Any]]] = [
    (1, None, lambda tx: guard.check(tx, 10, resource=RESOURCE)),
    (1, None, lambda tx: guard.check(tx, 11, resource=RESOURCE)),
    (1, None, lambda tx: guard.check(tx, 11, resource=RESOURCE)),
    (2, StaleOwner, lambda tx: guard.check(tx, 9, resource=RESOURCE)),
    (1, None, lambda tx: guard.check(tx, 11, resource=RESOURCE, shared=True)),
    (1, StaleOwner, lambda tx: guard.check(tx, 9, resource=RESOURCE, shared=True)),
    (1, None, lambda tx: update(tx, NOW + 10)),
    (1, None, lambda tx: update(tx, NOW + 11)),
    (2, StaleOwner, lambda tx: update(tx, NOW + 9)),
    (2, NoSuchRow, lambda tx: update(tx, NOW + 12, 2)),
]


def count(tx: Any, statements: Callable[[], int]) -> None:
    """Step by step, on a connection that is in a transaction. The first update looks at MariaDB's column once more."""
    update(tx, NOW)
    for cost, error, step in STEPS:
        before = statements()
        if error is None:
            step(tx)
        else:
            with pytest.raises(error):
                step(tx)
        assert statements() - before == cost


def test_sqlite3() -> None:
    """As SQLite itself sees it."""
    sent: list[str] = []
    with closing(sqlite3.connect(":memory:")) as connection:
        guard.create(connection)
        connection.execute(REPORTS)
        connection.execute(ROW)
        connection.set_trace_callback(sent.append)
        count(connection, lambda: len(sent))


@pytest.mark.parametrize("driver", ["sqlite", pytest.param("psycopg", marks=slow), pytest.param("pymysql", marks=slow)])
def test_sqlalchemy(request: pytest.FixtureRequest, driver: str) -> None:
    """As SQLAlchemy sees it."""
    place: Any = None
    if driver != "sqlite":
        place = request.getfixturevalue("postgres_database" if driver == "psycopg" else "mariadb_database")
    engine = sqlalchemy.create_engine("sqlite://" if place is None else place.sqlalchemy_url(driver))
    sent: list[str] = []
    with engine.begin() as tx:
        guard.create(tx)
        tx.execute(sqlalchemy.text(REPORTS))
        tx.execute(sqlalchemy.text(ROW))
        sqlalchemy.event.listen(tx, "after_cursor_execute", lambda *args: sent.append(args[2]))
        count(tx, lambda: len(sent))
    engine.dispose()


@slow
def test_psycopg(postgres_database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """As its cursors see it."""
    import psycopg

    sent: list[Any] = []
    execute: Any = psycopg.Cursor.execute

    def noted(cursor: Any, query: Any, *args: Any, **more: Any) -> Any:
        sent.append(query)
        return execute(cursor, query, *args, **more)

    monkeypatch.setattr(psycopg.Cursor, "execute", noted)
    with psycopg.connect(postgres_database.dsn) as connection:
        guard.create(connection)
        connection.execute(REPORTS)
        connection.execute(ROW)
        count(connection, lambda: len(sent))


@slow
def test_pymysql(mariadb_database: Database) -> None:
    """As MariaDB itself counts: the question about its count is one more. The same write again cannot be told from a
    refusal there, and asks twice more."""
    import pymysql

    with pymysql.connect(**mariadb_database.parameters, ssl_disabled=True) as connection, connection.cursor() as cursor:
        guard.create(connection)
        cursor.execute(REPORTS)
        cursor.execute(ROW)
        asked = [0]

        def questions() -> int:
            asked[0] += 1
            cursor.execute("SHOW SESSION STATUS LIKE 'Questions'")
            return int(cursor.fetchall()[0][1]) - asked[0]

        count(connection, questions)
        before = questions()
        update(connection, NOW + 11)
        assert questions() - before == 3


@slow
def test_mariadb_connector(mariadb_database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """As its connections see it. They ping when they are asked whether they are open: so they are not asked."""
    import mariadb

    sent: list[Any] = []
    connection: Any = mariadb.connect(**mariadb_database.parameters)
    client = type(connection._client)
    write: Any = client.write_payload

    def noted(self: Any, payload: Any, *args: Any, **more: Any) -> Any:
        sent.append(bytes(payload))
        return write(self, payload, *args, **more)

    monkeypatch.setattr(client, "write_payload", noted)
    cursor = connection.cursor()
    guard.create(connection)
    cursor.execute(REPORTS)
    cursor.execute(ROW)
    count(connection, lambda: len(sent))
    connection.close()


def test_a_class_of_connections_is_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is learnt of it is kept, for as many classes as a program may have, and no more."""
    looked: list[type] = []
    package = connections._package

    def noted(cls: type) -> str:
        looked.append(cls)
        return package(cls)

    monkeypatch.setattr(connections, "_package", noted)
    classes = [type(f"Connection{number}", (sqlite3.Connection,), {}) for number in range(100)]
    for cls in classes:
        made: sqlite3.Connection = cls(":memory:")
        with closing(made) as connection:
            guard.create(connection)
            before = len(looked)
            guard.check(connection, 10, resource=RESOURCE)
            guard.check(connection, 10, resource=RESOURCE)
            assert len(looked) == before
    assert set(classes) <= set(looked)
    assert connections._known.cache_info().currsize <= 64


@slow
def test_psycopg_is_not_asked_for_names(postgres_database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """A check is decided by values: the names of the columns take psycopg as long as a third of the statement."""
    import psycopg

    def description(cursor: Any) -> Any:
        raise AssertionError("it was asked")

    monkeypatch.setattr(psycopg.Cursor, "description", property(description))
    with psycopg.connect(postgres_database.dsn) as connection:
        guard.create(connection)
        guard.check(connection, 10, resource=RESOURCE)
        with pytest.raises(StaleOwner):
            guard.check(connection, 9, resource=RESOURCE)


@slow
def test_asyncpg(postgres_database: Database) -> None:
    """As asyncpg tells those who listen."""
    import asyncpg

    sent: list[Any] = []

    async def work() -> None:
        connection: Any = await asyncpg.connect(postgres_database.dsn)
        async with connection.transaction():
            await guard.create(connection)
            await connection.execute(REPORTS)
            await connection.execute(ROW)
            connection.add_query_logger(sent.append)
            for cost, error, step in STEPS:
                before = len(sent)
                if error is None:
                    await step(connection)
                else:
                    with pytest.raises(error):
                        await step(connection)
                await asyncio.sleep(0)  # it tells them on the event loop
                assert len(sent) - before == cost
            connection.remove_query_logger(sent.append)
        await connection.close()

    asyncio.run(work())
