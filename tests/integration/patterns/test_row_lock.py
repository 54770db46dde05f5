"""``row_lock``: a row for one transaction alone, or NotAcquired at once, over every connection that we know."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy

from leasehold.errors import InvalidRequest, NotAcquired, StoreUnavailable
from leasehold.guards import Conflict
from leasehold.guards.sql import NoSuchRow
from leasehold.patterns import row_lock
from tests.support.guards.desks import Desk, Tx
from tests.support.patterns.cases import ONE_OF_EACH, Cases
from tests.support.servers.database import Database

KEY = {"case_id": 7}
TWO = "(7, 'READY', NULL, 3), (8, 'READY', NULL, 1)"


def lock(tx: Tx, cases: Cases, number: int = 7, **more: Any) -> dict[str, Any]:
    """In a transaction that goes on."""
    found: dict[str, Any] = tx.do(lambda raw: row_lock(raw, cases.name, key={"case_id": number}, **more))
    return found


# ---------------------------------------------------------------- by every way


def test_the_row_as_it_is(cases: Cases) -> None:
    """It comes by the names of its columns, waiting or not, and can be changed."""
    whole = {"case_id": 7, "status": "READY", "clerk": None, "version": 3}
    with cases.desk.begin() as tx:
        assert lock(tx, cases) == whole
        assert lock(tx, cases, nowait=False) == whole
        tx.rows(f"UPDATE {cases.name} SET clerk = 'Ada'")
    assert cases.rows() == [(7, "READY", "Ada", 3)]


def test_busy_at_once_and_the_transaction_goes_on(cases: Cases) -> None:
    """NotAcquired says what to do; what was done before in the transaction is still there, and it can try again."""
    with cases.desk.begin() as tx:
        lite = cases.database == "sqlite"  # whose one lock is also that of the other table
        if not lite:
            tx.rows(f"UPDATE {cases.desk.reports} SET body = 'kept'")
        with cases.rival() as rival:
            lock(rival, cases)
            with pytest.raises(
                NotAcquired, match=cases.name + (".*Roll back" if lite else ".*Your transaction goes on")
            ):
                lock(tx, cases)
        assert tx.rows(f"SELECT status FROM {cases.name}") == [("READY",)]
        assert lock(tx, cases)["version"] == 3
    assert cases.desk.report()[0] == ("" if lite else "kept")


@ONE_OF_EACH
def test_other_rows(desk: Desk) -> None:
    """They are free, but in SQLite, which has one lock for the whole database."""
    cases = Cases(desk, rows=TWO)
    with cases.rival() as rival:
        lock(rival, cases, 8)
        if cases.database == "sqlite":
            with pytest.raises(NotAcquired):
                cases.call(row_lock, key=KEY)
        else:
            assert cases.call(row_lock, key=KEY)["case_id"] == 7


@ONE_OF_EACH
def test_no_such_row(cases: Cases) -> None:
    """It is a LookupError, and not busy."""
    for nowait in (True, False):
        with pytest.raises(NoSuchRow, match=cases.name):
            cases.call(row_lock, key={"case_id": 9}, nowait=nowait)


@ONE_OF_EACH
def test_several_rows(desk: Desk) -> None:
    """They are refused, also when one of them is locked by somebody else and only the other one could be had."""
    cases = Cases(desk, "case_id INTEGER, part INTEGER PRIMARY KEY", "(7, 1), (7, 2)")
    for nowait in (True, False):
        with pytest.raises(InvalidRequest, match="2 rows"):
            cases.call(row_lock, key=KEY, nowait=nowait)
    with cases.rival() as rival:
        rival.do(lambda raw: row_lock(raw, cases.name, key={"part": 1}))
        with pytest.raises(InvalidRequest if cases.database == "postgresql" else NotAcquired):
            cases.call(row_lock, key=KEY)


@ONE_OF_EACH
def test_what_the_database_refuses(cases: Cases) -> None:
    """A missing column and a missing table are errors of ours."""
    with pytest.raises(InvalidRequest, match="lacks a column"):
        cases.call(row_lock, key={"no_such": 7})
    with pytest.raises(StoreUnavailable, match="there is no table no_such"), cases.desk.begin() as tx:
        tx.do(lambda raw: row_lock(raw, "no_such", key=KEY))


# ---------------------------------------------------------------- waiting


@pytest.mark.parametrize(
    "desk",
    [
        "sqlite-sqlite3",
        *(pytest.param(one, marks=pytest.mark.slow) for one in ("postgresql-psycopg", "mariadb-pymysql")),
    ],
    indirect=True,
)
def test_waiting_has_the_end_that_the_database_gives_it(cases: Cases) -> None:
    """``nowait=False``: the database's own limit is NotAcquired too, and says to roll back."""
    shorter = {
        "sqlite": "PRAGMA busy_timeout = 20",
        "postgresql": "SET LOCAL lock_timeout = '20ms'",
        "mariadb": "SET SESSION innodb_lock_wait_timeout = 0",
    }[cases.database]
    with cases.rival() as rival:
        lock(rival, cases)
        with pytest.raises(NotAcquired, match="Roll back") as caught, cases.desk.begin() as tx:  # noqa: PT012 - one transaction
            tx.rows(shorter)
            lock(tx, cases, nowait=False)
    assert caught.value.__cause__ is not None


# ---------------------------------------------------------------- SQLite


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A database with one case."""
    with closing(sqlite3.connect(tmp_path / "app.db")) as connection, connection:
        connection.execute("CREATE TABLE cases (case_id INTEGER PRIMARY KEY, status TEXT)")
        connection.execute("INSERT INTO cases VALUES (7, 'READY')")
    return tmp_path / "app.db"


def test_sqlite_keeps_its_patience(path: Path) -> None:
    """The busy timeout is 0 for one statement, or this would not end; then it is what it was."""
    take = partial(row_lock, table="cases", key=KEY)
    with closing(sqlite3.connect(path, timeout=1.5)) as first, closing(sqlite3.connect(path, timeout=999)) as second:
        take(first)
        with pytest.raises(NotAcquired):
            take(second)
        assert first.execute("PRAGMA busy_timeout").fetchone() == (1500,)
        assert second.execute("PRAGMA busy_timeout").fetchone() == (999_000,)
        assert (first.in_transaction, second.in_transaction) == (True, False)


def test_sqlite_writes_nothing(path: Path) -> None:
    """No row is touched and no trigger runs: the lock alone is taken, and ends with the transaction."""
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TRIGGER loud BEFORE UPDATE ON cases BEGIN SELECT RAISE(ABORT, 'loud'); END")
        connection.commit()
        before = connection.total_changes
        assert row_lock(connection, "cases", key=KEY) == {"case_id": 7, "status": "READY"}
        assert connection.in_transaction
        assert connection.total_changes == before


def test_sqlite_has_read_before(path: Path) -> None:
    """A transaction that has read what somebody has since replaced cannot write any more: Conflict, begin again."""
    with closing(sqlite3.connect(path)) as first, closing(sqlite3.connect(path, isolation_level=None)) as second:
        first.execute("PRAGMA journal_mode = WAL")
        second.execute("BEGIN")
        second.execute("SELECT * FROM cases").fetchall()
        with first:
            first.execute("UPDATE cases SET status = 'ASSIGNED'")
        for nowait in (True, False):
            with pytest.raises(Conflict, match="Roll back"):
                row_lock(second, "cases", key=KEY, nowait=nowait)
        second.rollback()
        second.execute("BEGIN")
        assert row_lock(second, "cases", key=KEY)["status"] == "ASSIGNED"


# ---------------------------------------------------------------- the rest


@pytest.mark.slow
def test_a_table_of_sqlalchemy(postgres_database: Database) -> None:
    """The row comes in the types of its columns."""
    cases = sqlalchemy.Table(
        "cases",
        sqlalchemy.MetaData(),
        sqlalchemy.Column("case_id", sqlalchemy.Uuid(as_uuid=False), primary_key=True),
        sqlalchemy.Column("count", sqlalchemy.Numeric(asdecimal=False)),
    )
    engine = sqlalchemy.create_engine(postgres_database.sqlalchemy_url("psycopg"))
    number = "0192a4f2-0000-7000-8000-000000000007"
    with engine.begin() as tx:
        cases.create(tx)
        tx.execute(cases.insert().values(case_id=number, count=1.5))
        found = row_lock(tx, cases, key={"case_id": number})
    assert found == {"case_id": number, "count": 1.5}
    assert isinstance(found["count"], float)
    engine.dispose()


@pytest.mark.slow
@pytest.mark.parametrize("desk", ["postgresql-sqlalchemy", "postgresql-async-sqlalchemy"], indirect=True)
def test_a_migration_in_between(cases: Cases) -> None:
    """A driver that had prepared the statement must do so again: Conflict, and the next transaction has the column."""
    for _ in range(7):  # psycopg prepares what it has sent five times
        cases.call(row_lock, key=KEY)
    with cases.rival() as rival:
        rival.rows(f"ALTER TABLE {cases.name} ADD COLUMN remark VARCHAR(9)")
    with pytest.raises(Conflict):
        cases.call(row_lock, key=KEY)
    assert cases.call(row_lock, key=KEY)["remark"] is None


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"key": {}}, "an empty one names all"),
        ({"key": {"case_id": None}}, "NULL equals nothing"),
        ({"key": 7}, "key= is a mapping"),
        ({"nowait": 1}, "nowait is True or False"),
        ({"nowait": None}, "nowait is True or False"),
        ({"table": b"cases"}, "table is a name"),
        ({"table": "a."}, "a name in table"),
        ({"tx": object()}, "inside your own transaction"),
    ],
)
def test_bad_input_is_refused_before_anything_is_sent(path: Path, wrong: dict[str, Any], said: str) -> None:
    """The error says what is expected, and nothing is locked."""
    with closing(sqlite3.connect(path)) as connection:
        given: dict[str, Any] = {"tx": connection, "table": "cases", "key": KEY, **wrong}
        with pytest.raises(InvalidRequest, match=said):
            row_lock(given.pop("tx"), given.pop("table"), **given)
        assert not connection.in_transaction


def test_without_a_transaction(path: Path) -> None:
    """A lock that ends with its statement would protect nothing: refused."""
    connection = sqlite3.connect(path, isolation_level=None)
    with closing(connection), pytest.raises(InvalidRequest, match="commits each statement"):
        row_lock(connection, "cases", key=KEY)
