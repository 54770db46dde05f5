"""``transition``: a row is changed if it is still as somebody saw it, over every connection that we know."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
import sqlalchemy

from leasehold.errors import InvalidRequest, StoreUnavailable
from leasehold.guards.sql import NoSuchRow
from leasehold.patterns import transition
from tests.support.guards.desks import Desk
from tests.support.patterns.cases import ASSIGNED, ONE_OF_EACH, READY, Cases
from tests.support.servers.database import Database

KEY = {"case_id": 7}


def move(cases: Cases, when: dict[str, Any] = READY, new: dict[str, Any] = ASSIGNED, **more: Any) -> Any:
    """In a transaction of its own."""
    return cases.call(transition, **{"key": KEY, "when": when, "set": new, **more})


# ---------------------------------------------------------------- by every way


def test_the_first_wins_and_the_version_counts_up(cases: Cases) -> None:
    """As api.md has it: True for whoever saw the row as it is, False for everybody after him."""
    assert move(cases) is True
    assert cases.rows() == [(7, "ASSIGNED", None, 4)]
    assert move(cases) is False
    assert move(cases, {"version": 3}, {"clerk": "Grace"}) is False
    assert move(cases, {"version": 4}, {"clerk": "Ada"}) is True
    assert cases.rows() == [(7, "ASSIGNED", "Ada", 5)]


@ONE_OF_EACH
def test_none_is_null(cases: Cases) -> None:
    """None in ``when`` is a column that is empty, and None in ``set`` empties it."""
    assert move(cases, {"clerk": None}, {"clerk": "Ada"}) is True
    assert move(cases, {"clerk": None}, {"clerk": "Grace"}) is False
    assert move(cases, {"clerk": "Ada", "status": "READY"}, {"clerk": None}) is True
    assert cases.rows() == [(7, "READY", None, 5)]


@ONE_OF_EACH
def test_the_version_counts_up_though_nobody_asked(cases: Cases) -> None:
    """Whoever saw version 3 is late, also when the other one went by the status alone."""
    assert move(cases, {"status": "READY"}) is True
    assert move(cases, {"version": 3}, {"clerk": "Grace"}) is False


def test_a_write_of_what_is_there(cases: Cases) -> None:
    """The row is as it was seen, so it is True: also where a database counts only rows that have changed."""
    assert move(cases, {"status": "READY"}, {"status": "READY"}, version=None) is True
    assert move(cases, {"status": "CLOSED"}, {"status": "READY"}, version=None) is False
    assert move(cases, {"status": "READY"}, {"status": "READY"}) is True
    assert cases.rows() == [(7, "READY", None, 4)]


def test_no_such_row(cases: Cases) -> None:
    """It is a LookupError and not False: nobody was faster."""
    with pytest.raises(NoSuchRow, match=cases.name) as caught:
        move(cases, key={"case_id": 8})
    assert isinstance(caught.value, LookupError)


@ONE_OF_EACH
def test_several_rows(desk: Desk) -> None:
    """They are refused, and with the transaction nothing has happened."""
    cases = Cases(desk, "case_id INTEGER, status VARCHAR(20), version INTEGER", "(7, 'READY', 3), (7, 'READY', 3)")
    for when in ({"status": "READY"}, {"status": "CLOSED"}):
        with pytest.raises(InvalidRequest, match="2 rows"):
            move(cases, when)
    assert cases.rows() == [(7, "READY", 3), (7, "READY", 3)]


@ONE_OF_EACH
def test_it_is_part_of_the_transaction(cases: Cases) -> None:
    """It is neither committed nor rolled back by us; after a False the transaction goes on."""
    with pytest.raises(ZeroDivisionError), cases.desk.begin() as tx:  # noqa: PT012 - one transaction
        assert tx.do(lambda raw: transition(raw, cases.name, key=KEY, when=READY, set=ASSIGNED)) is True
        raise ZeroDivisionError
    assert cases.rows() == [(7, "READY", None, 3)]
    with cases.desk.begin() as tx:
        assert tx.do(lambda raw: transition(raw, cases.name, key=KEY, when={"version": 9}, set=ASSIGNED)) is False
        tx.rows(f"UPDATE {cases.name} SET clerk = 'Ada'")
    assert cases.rows() == [(7, "READY", "Ada", 3)]


@ONE_OF_EACH
def test_a_version_of_another_name(desk: Desk) -> None:
    """``version=`` names the column; an empty one counts as 0."""
    cases = Cases(desk, "case_id INTEGER PRIMARY KEY, status VARCHAR(20), revision BIGINT", "(7, 'READY', NULL)")
    assert move(cases, {"status": "READY"}, version="revision") is True
    assert cases.rows() == [(7, "ASSIGNED", 1)]


@ONE_OF_EACH
def test_a_table_without_a_version(desk: Desk) -> None:
    """It is said what to do; with ``version=None`` the condition alone decides."""
    cases = Cases(desk, "case_id INTEGER PRIMARY KEY, status VARCHAR(20)", "(7, 'READY')")
    with pytest.raises(InvalidRequest, match="version=None"):
        move(cases, {"status": "READY"})
    assert move(cases, {"status": "READY"}, version=None) is True
    assert move(cases, {"status": "READY"}, version=None) is False
    assert cases.rows() == [(7, "ASSIGNED")]


def test_what_the_database_refuses(cases: Cases) -> None:
    """A missing table or column, and a value that does not fit, are errors of ours that say what to do."""
    with pytest.raises(InvalidRequest, match="lacks a column"):
        move(cases, new={"no_such_version_": 1})
    with pytest.raises(InvalidRequest, match="lacks a column"):
        move(cases, {"no_such": 1})
    with pytest.raises(StoreUnavailable, match="there is no table no_such") as caught, cases.desk.begin() as tx:
        tx.do(lambda raw: transition(raw, "no_such", key=KEY, when=READY, set=ASSIGNED))
    assert caught.value.__cause__ is not None
    if cases.database != "sqlite":  # which keeps whatever it is given
        with pytest.raises(InvalidRequest, match="does not fit"):
            move(cases, new={"status": "x" * 21})
    with pytest.raises(InvalidRequest, match="does not fit"):
        move(cases, new={"status": object()})
    assert cases.rows() == [(7, "READY", None, 3)]


@ONE_OF_EACH
def test_names_with_every_sign(desk: Desk) -> None:
    """Reserved words, spaces, colons, percent signs and quotes are names like others."""
    quote = '"' if Cases(desk).database == "postgresql" else "`"
    first, second, third = "when :p1 %s", "a:b\"'?", "ORDER"
    columns = ", ".join(f"{quote}{name.replace(quote, quote * 2)}{quote} INTEGER" for name in (first, second, third))
    cases = Cases(desk, columns.replace(":", "\\:") if "engine" in desk.kept else columns, "(1, 2, 3)")
    assert move(cases, {second: 2}, {third: 4}, key={first: 1}, version=None) is True
    assert cases.rows() == [(1, 2, 4)]


# ---------------------------------------------------------------- SQLAlchemy's own tables


def test_a_table_of_sqlalchemy_knows_its_types(tmp_path: Any) -> None:
    """Values are sent as the types of its columns want them, under the names that they have in the database."""
    kinds = sqlalchemy.JSON(), sqlalchemy.DateTime()
    cases = sqlalchemy.Table(
        "cases",
        sqlalchemy.MetaData(),
        sqlalchemy.Column("id", sqlalchemy.Integer, primary_key=True, key="case_id"),
        sqlalchemy.Column("tags", kinds[0]),
        sqlalchemy.Column("version", sqlalchemy.Integer),
    )
    engine = sqlalchemy.create_engine(f"sqlite:///{tmp_path}/app.db")
    with engine.begin() as tx:
        cases.create(tx)
        tx.execute(cases.insert().values(case_id=7, tags=["new"], version=3))
        assert transition(tx, cases, key={"case_id": 7}, when={"tags": ["new"]}, set={"tags": {"a": [1]}})
        assert tx.execute(cases.select()).one() == (7, {"a": [1]}, 4)
        with pytest.raises(InvalidRequest, match="no column clerk"):
            transition(tx, cases, key={"case_id": 7}, when={"version": 4}, set={"clerk": 1})
        with pytest.raises(InvalidRequest, match="version=None"):
            transition(tx, cases, key={"case_id": 7}, when={"tags": 4}, set={"tags": 1}, version="revision")
    with closing(sqlite3.connect(tmp_path / "app.db")) as raw:
        assert transition(raw, cases, key={"case_id": 7}, when={"version": 4}, set={"tags": "[]"})
    engine.dispose()


# ---------------------------------------------------------------- bad input


@pytest.fixture
def plain() -> Iterator[sqlite3.Connection]:
    """A database with one case."""
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.execute("CREATE TABLE cases (case_id INTEGER PRIMARY KEY, status TEXT, version INTEGER)")
        connection.execute("INSERT INTO cases VALUES (7, 'READY', 3)")
        connection.commit()
        yield connection


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"key": {}}, "an empty one names all"),
        ({"key": {"case_id": None}}, "NULL equals nothing"),
        ({"key": [("case_id", 7)]}, "key= is a mapping"),
        ({"key": {7: 7}}, "is text"),
        ({"key": {"version": 3}, "when": {"status": "READY"}}, "it is in when="),
        ({"when": {}}, "neither is empty"),
        ({"when": "READY"}, "when= is a mapping"),
        ({"when": {"": 1}}, "1 to 63 characters"),
        ({"when": {"CASE_ID": 7}}, "not in both"),
        ({"set": {}}, "neither is empty"),
        ({"set": None}, "set= is a mapping"),
        ({"set": {"a\0b": 1}}, "1 to 63 characters"),
        ({"set": {"Case_Id": 8}}, "change the key"),
        ({"set": {"Version": 9}}, "counts up by itself"),
        ({"set": {"status": "A", "revision": 1}, "version": "revision"}, "counts up by itself"),
        ({"version": ""}, "a name in version"),
        ({"version": 3}, "a name in version"),
        ({"version": True}, "a name in version"),
        ({"table": ""}, "a name in table"),
        ({"table": None}, "table is a name"),
        ({"table": 5}, "table is a name"),
        ({"tx": None}, "inside your own transaction"),
        ({"tx": "cases.db"}, "inside your own transaction"),
    ],
)
def test_bad_input_is_refused_before_anything_is_sent(
    plain: sqlite3.Connection, wrong: dict[str, Any], said: str
) -> None:
    """The error says what is expected, and no transaction was begun."""
    given: dict[str, Any] = {"tx": plain, "table": "cases", "key": KEY, "when": READY, "set": ASSIGNED, **wrong}
    with pytest.raises(InvalidRequest, match=said):
        transition(given.pop("tx"), given.pop("table"), **given)
    assert not plain.in_transaction


def test_without_a_transaction(plain: sqlite3.Connection) -> None:
    """Two rows that were changed at once could not be rolled back: refused."""
    plain.isolation_level = None
    with pytest.raises(InvalidRequest, match="commits each statement"):
        transition(plain, "cases", key=KEY, when=READY, set=ASSIGNED)


def test_an_error_leaves_no_transaction_open(plain: sqlite3.Connection) -> None:
    """One that was begun for this call ends with it: nobody can forget to roll it back."""
    with pytest.raises(NoSuchRow):
        transition(plain, "cases", key={"case_id": 8}, when=READY, set=ASSIGNED)
    assert not plain.in_transaction


@pytest.mark.slow
def test_a_value_that_is_too_long_is_not_cut_off(mariadb_database: Database) -> None:
    """Outside of strict mode MariaDB would write another status than was asked for, and say True."""
    import pymysql

    with closing(pymysql.connect(**mariadb_database.parameters, ssl_disabled=True, sql_mode="")) as connection:
        connection.query("CREATE TABLE cases (case_id INT PRIMARY KEY, status VARCHAR(5), version INT)")
        connection.query("INSERT INTO cases VALUES (7, 'READY', 3)")
        with pytest.raises(InvalidRequest, match="does not fit"):
            transition(connection, "cases", key={"case_id": 7}, when={"status": "READY"}, set={"status": "READY-NOT"})
