"""What FenceGuard says when it is used wrongly, or when the database says no."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import threading
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy
from sqlalchemy.orm import Session

from leasehold.errors import InvalidRequest, StaleOwner, StoreUnavailable, Unsupported
from leasehold.guards.sql import FenceGuard
from tests.support.guards.ways import RESOURCE, A, Begin, by_engine, by_sqlite3, rows
from tests.support.tables import each

guard = FenceGuard()


@each(
    "table",
    ["", "a b", "a;b", 'a"b', "a-b", "1a", "a.b.c", ".a", "a.", "é", "a\n", "a'--", "x" * 64, None, 5, True, b"a"],
)
def test_names_that_are_no_table(table: Any) -> None:
    """A table's name goes into statements as it is, so it is letters, digits and _, with one dot at most."""
    with pytest.raises(InvalidRequest, match="plain name"):
        FenceGuard(table=table)


@each("table", ["fences", "_F9", "app.fences", "x" * 63])
def test_names_of_tables(table: str) -> None:
    """Plain names are kept as they are, and shown."""
    assert FenceGuard(table=table).table == table
    assert table in repr(FenceGuard(table=table))


@each("fence", [0, -1, True, "12", 12.0, 2**63, None])
def test_bad_fences_reach_no_database(begin: Begin, path: Path, fence: Any) -> None:
    """They are refused before anything is sent: the transaction is as good as before."""
    with begin(path) as tx:
        with pytest.raises(InvalidRequest):
            guard.check(tx, fence, resource=RESOURCE)
        guard.check(tx, 10, resource=RESOURCE)
    assert len(rows(path)) == 1


def test_a_missing_table_says_create(begin: Begin, path: Path) -> None:
    """The error names the table and guard.create; the driver's own is its cause."""
    with pytest.raises(StoreUnavailable, match=r"no_such.*guard\.create\(conn\)") as caught, begin(path) as tx:
        FenceGuard("no_such").check(tx, 10, resource=RESOURCE)
    assert "no such table" in str(caught.value.__cause__)


def test_a_table_of_somebody_else_says_create(begin: Begin, path: Path) -> None:
    """A table with other columns, or without its key, is not ours to write into."""
    with by_sqlite3(path) as connection:
        connection.execute("CREATE TABLE keyless (resource TEXT, fence BIGINT, owner TEXT)")
    for table in ("reports", "keyless"):
        with pytest.raises(StoreUnavailable, match=r"not made for this guard"), begin(path) as tx:
            FenceGuard(table).check(tx, 10, resource=RESOURCE)


def test_a_read_only_database(path: Path) -> None:
    """What the database refuses is StoreUnavailable, with the reason's name."""
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
        with pytest.raises(StoreUnavailable, match="SQLITE_READONLY"):
            guard.check(connection, 10, resource=RESOURCE)
        with pytest.raises(StoreUnavailable, match="SQLITE_READONLY"):
            FenceGuard("other").create(connection)


def test_autocommit_of_sqlite3(path: Path) -> None:
    """Without a transaction a stale owner could come between check and write: refused, and nothing changed."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        with pytest.raises(InvalidRequest, match="between the check and your write"):
            guard.check(connection, 10, resource=RESOURCE)
        assert rows(path) == []
        connection.execute("BEGIN")
        guard.check(connection, 10, resource=RESOURCE)


@pytest.mark.parametrize("whole_engine", [True, False])
def test_autocommit_of_sqlalchemy(path: Path, whole_engine: bool) -> None:
    """The same through SQLAlchemy, whether the engine or one connection commits at once."""
    level = {"isolation_level": "AUTOCOMMIT"}
    engine = sqlalchemy.create_engine(f"sqlite:///{path}", **(level if whole_engine else {}))
    with engine.connect() as connection:
        if not whole_engine:
            connection.execution_options(isolation_level="AUTOCOMMIT")
        with pytest.raises(InvalidRequest, match="one transaction"):
            guard.check(connection, 10, resource=RESOURCE)
        assert not connection.in_transaction()
    engine.dispose()
    assert rows(path) == []


def test_an_application_that_begins_by_itself(path: Path) -> None:
    """SQLAlchemy's recipe for SQLite, driver in autocommit and BEGIN in an event, is a transaction."""
    engine = sqlalchemy.create_engine(f"sqlite:///{path}")

    @sqlalchemy.event.listens_for(engine, "connect")
    def _connect(raw: Any, _: Any) -> None:
        raw.isolation_level = None

    @sqlalchemy.event.listens_for(engine, "begin")
    def _begin(connection: sqlalchemy.Connection) -> None:
        connection.exec_driver_sql("BEGIN IMMEDIATE")

    with engine.connect() as connection:
        guard.check(connection, 10, resource=RESOURCE)
        connection.rollback()
    with engine.begin() as connection:
        guard.check(connection, 9, resource=RESOURCE)
    engine.dispose()
    assert rows(path)[0][1] == 9


def test_closed_connections(path: Path) -> None:
    """A closed connection is the caller's mistake, and said so; the driver's error is the cause."""
    closed = sqlite3.connect(path)
    closed.close()
    engine = sqlalchemy.create_engine(f"sqlite:///{path}")
    connection = engine.connect()
    connection.close()
    engine.dispose()
    for one in (closed, connection):
        for call in (lambda tx: guard.check(tx, 10, resource=RESOURCE), guard.create):
            with pytest.raises(InvalidRequest, match="open") as caught:
                call(one)
            assert caught.value.__cause__ is not None


def test_a_connection_of_another_thread(path: Path) -> None:
    """sqlite3 refuses other threads; what arrives is ours."""
    caught: list[BaseException] = []

    def work(connection: sqlite3.Connection) -> None:
        try:
            guard.check(connection, 10, resource=RESOURCE)
        except InvalidRequest as error:
            caught.append(error)

    with closing(sqlite3.connect(path)) as connection:
        thread = threading.Thread(target=work, args=(connection,))
        thread.start()
        thread.join()
    assert isinstance(caught[0].__cause__, sqlite3.ProgrammingError)


def test_what_is_no_transaction(path: Path) -> None:
    """An engine, a cursor, a path: the error says what to pass."""
    engine = sqlalchemy.create_engine(f"sqlite:///{path}")
    with closing(sqlite3.connect(path)) as connection:
        for wrong in (engine, connection.cursor(), str(path), None, 5):
            thing: Any = wrong
            with pytest.raises(InvalidRequest, match="pass a connection of sqlite3"):
                guard.check(thing, 10, resource=RESOURCE)
    with Session() as unbound, pytest.raises(InvalidRequest, match="cannot use"):
        guard.check(unbound, 10, resource=RESOURCE)


def test_other_databases_are_refused() -> None:
    """A dialect that this version does not know is Unsupported, and nothing is sent to it."""
    sent: list[Any] = []
    engine = sqlalchemy.create_mock_engine("mysql+pymysql://", lambda *args, **_: sent.append(args))
    connection = sqlalchemy.Connection.__new__(sqlalchemy.Connection)
    connection.dialect = engine.dialect
    for call in (lambda tx: guard.check(tx, 10, resource=RESOURCE), guard.create):
        with pytest.raises(Unsupported, match=r"MariaDB .* not MySQL"):
            call(connection)
    assert sent == []


def test_row_factories_of_the_user_do_not_matter(path: Path) -> None:
    """A connection that builds dictionaries is as good as any."""
    with by_engine(path) as tx:
        guard.check(tx, 10, resource=RESOURCE, owner=A)
    with closing(sqlite3.connect(path)) as connection:
        connection.row_factory = lambda cursor, row: {"row": row}
        connection.text_factory = bytes
        with pytest.raises(StaleOwner) as caught:
            guard.check(connection, 9, resource=RESOURCE, owner=A)
    assert caught.value.seen == 10


def test_sqlalchemy_is_optional() -> None:
    """Where SQLAlchemy cannot be imported the guard works with sqlite3."""
    program = """
import sys
sys.modules["sqlalchemy"] = None
import sqlite3
from leasehold.guards.sql import FenceGuard
connection = sqlite3.connect(":memory:")
FenceGuard().create(connection)
FenceGuard().check(connection, 10, resource="a")
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=30)
