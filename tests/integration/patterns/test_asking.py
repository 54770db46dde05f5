"""Statements on a user's table: what a call sends, and what becomes of an error in the middle of it."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from contextlib import closing
from typing import Any

import aiosqlite
import pytest
import sqlalchemy

from leasehold._sql.dialects import Dialect
from leasehold._sql.errors import table_errors
from leasehold._sql.run import StatementFlow, run
from leasehold._sql.statements import statement
from leasehold.errors import NotAcquired, StoreUnavailable
from leasehold.patterns import insert_once, row_lock, transition
from tests.support.servers.database import Database

slow = pytest.mark.slow


def one(number: str) -> Any:
    """A statement that gives a number, or fails."""
    return statement(f"SELECT {number}", gives=True)


def recovering(dialect: Dialect) -> StatementFlow[list[Any]]:
    """An error is raised where the statement was yielded, and the next statement is the generator's own choice."""
    found = [(yield one("1")).rows]
    try:
        yield one("no_such()")
    except sqlite3.OperationalError:
        found.append((yield one("2")).rows)
    return found


def giving_up(dialect: Dialect) -> StatementFlow[None]:
    """An error that nobody catches."""
    yield one("no_such()")


def test_an_error_is_raised_where_it_was_asked_for() -> None:
    """A generator can catch it and go on, or let it through as one of ours."""
    with closing(sqlite3.connect(":memory:")) as connection:
        assert run(connection, recovering, table_errors("t")) == [[(1,)], [(2,)]]
        with pytest.raises(StoreUnavailable):
            run(connection, giving_up, table_errors("t"))


async def test_an_error_is_raised_where_it_was_asked_for_and_awaited() -> None:
    """The same on an event loop."""
    async with aiosqlite.connect(":memory:") as connection:
        found: Any = run(connection, recovering, table_errors("t"))
        assert await found == [[(1,)], [(2,)]]
        with pytest.raises(StoreUnavailable):
            await run(connection, giving_up, table_errors("t"))  # type: ignore[misc]  # a coroutine here


async def test_a_cancelled_lock_puts_everything_back(tmp_path: Any) -> None:
    """Whoever is cancelled while he waits for SQLite is cancelled, and its patience is as before."""
    path = str(tmp_path / "app.db")
    with closing(sqlite3.connect(path)) as holder:
        holder.execute("CREATE TABLE seats (seat INTEGER PRIMARY KEY)")
        holder.execute("INSERT INTO seats VALUES (1)")
        holder.commit()
        row_lock(holder, "seats", key={"seat": 1})
        async with aiosqlite.connect(path, timeout=7) as connection:
            call = asyncio.ensure_future(row_lock(connection, "seats", key={"seat": 1}))
            await asyncio.sleep(0)
            call.cancel()
            with pytest.raises((asyncio.CancelledError, NotAcquired)):
                await call
            async with connection.execute("PRAGMA busy_timeout") as cursor:
                assert await cursor.fetchone() == (7000,)
            assert not connection.in_transaction


# ---------------------------------------------------------------- what is sent

Call = Callable[[Any], Any]


def move(seen: int) -> Call:
    """From that version to the next."""
    return lambda tx: transition(tx, "t", key={"id": 1}, when={"version": seen}, set={"word": "b"})


def insert(tx: Any) -> Any:
    """The same row each time."""
    return insert_once(tx, "t", {"id": 2}, key="id")


def lock(tx: Any) -> Any:
    """Of the row that is there."""
    return row_lock(tx, "t", key={"id": 1})


COUNTS: dict[str, list[tuple[int, Call]]] = {
    "sqlite": [(1, move(0)), (2, move(0)), (5, lock), (2, insert), (2, insert)],
    "postgresql": [(1, move(0)), (2, move(0)), (1, lock), (1, insert), (2, insert)],
    "mariadb": [(1, move(0)), (2, move(0)), (1, lock), (2, insert), (2, insert)],
}


@pytest.mark.parametrize("database", ["sqlite", *(pytest.param(one, marks=slow) for one in ("postgresql", "mariadb"))])
def test_what_is_sent(database: str, request: pytest.FixtureRequest, tmp_path: Any) -> None:
    """One statement where it goes well, and a second one to say why not. MariaDB's catalogue is looked at once."""
    url = f"sqlite:///{tmp_path}/app.db"
    if database != "sqlite":
        place: Database = request.getfixturevalue(f"{'postgres' if database == 'postgresql' else database}_database")
        url = place.sqlalchemy_url("psycopg" if database == "postgresql" else "pymysql")
    engine = sqlalchemy.create_engine(url)
    sent: list[str] = []
    with engine.begin() as tx:
        tx.execute(sqlalchemy.text("CREATE TABLE t (id INTEGER PRIMARY KEY, word VARCHAR(9), version INTEGER)"))
        tx.execute(sqlalchemy.text("INSERT INTO t VALUES (1, 'a', 0)"))
        sqlalchemy.event.listen(engine, "before_cursor_execute", lambda *told: sent.append(told[2]))
        for expected, call in COUNTS[database]:
            sent.clear()
            call(tx)
            assert len(sent) == expected, sent
        tx.execute(sqlalchemy.text("DELETE FROM t WHERE id = 2"))
        sent.clear()
        insert(tx)
        assert len(sent) == (2 if database == "sqlite" else 1), sent
    engine.dispose()
