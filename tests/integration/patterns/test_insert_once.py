"""``insert_once``: one row for each key, and an outcome that says whose it is, over every connection that we know."""

from __future__ import annotations

import pickle
import sqlite3
from contextlib import closing
from functools import partial
from typing import Any

import pytest
import sqlalchemy

from leasehold.errors import InvalidRequest, StoreUnavailable
from leasehold.patterns import Insertion, insert_once
from tests.support.guards.desks import Desk
from tests.support.patterns.cases import ONE_OF_EACH, Cases
from tests.support.servers.database import Database

slow = pytest.mark.slow
COLUMNS = (
    "request_id VARCHAR(20) NOT NULL UNIQUE, amount INTEGER NOT NULL, iban VARCHAR(20), region VARCHAR(5), "
    "status VARCHAR(10) DEFAULT 'NEW', UNIQUE (iban, region)"
)
FIRST = {"request_id": "r-1", "amount": 9900}
ROW = {"request_id": "r-1", "amount": 9900, "iban": None, "region": None, "status": "NEW"}


@pytest.fixture
def payments(desk: Desk) -> Cases:
    """A table in which a request stands once, and an account of a region once."""
    return Cases(desk, COLUMNS, "")


def insert(payments: Cases, key: Any = "request_id", **values: Any) -> Any:
    """In a transaction of its own."""
    return payments.call(insert_once, values, key=key)


# ---------------------------------------------------------------- by every way


def test_the_first_inserts_and_the_second_is_told(payments: Cases) -> None:
    """Truthy for whoever inserted it; else the row that was there, as it stands. Its defaults are there in both."""
    first = insert(payments, **FIRST)
    assert first
    assert first == Insertion(True, ROW)
    second = insert(payments, request_id="r-1", amount=1)
    assert not second
    assert second == Insertion(False, ROW)
    assert insert(payments, request_id="r-2", amount=1)
    assert [row[:2] for row in payments.rows()] == [("r-1", 9900), ("r-2", 1)]


@ONE_OF_EACH
def test_a_key_of_several_columns(payments: Cases) -> None:
    """All of them together are the key, in any order."""
    assert insert(payments, ("region", "iban"), request_id="r-1", amount=1, iban="DE1", region="EU")
    assert insert(payments, ["iban", "region"], request_id="r-2", amount=1, iban="DE1", region="UK")
    late = insert(payments, ["iban", "region"], request_id="r-3", amount=1, iban="DE1", region="EU")
    assert not late
    assert late.row["request_id"] == "r-1"


def test_only_this_key_counts(payments: Cases) -> None:
    """What breaks another unique constraint, or a column that must not be empty, is an error and not *was there*."""
    assert insert(payments, **FIRST, iban="DE1", region="EU")
    with pytest.raises(InvalidRequest, match="break a rule") as caught:
        insert(payments, request_id="r-2", amount=1, iban="DE1", region="EU")
    assert caught.value.__cause__ is not None
    for values in ({"request_id": "r-3", "amount": None}, {"request_id": "r-3"}):
        with pytest.raises(InvalidRequest, match="break a rule"):
            insert(payments, **values)
    assert len(payments.rows()) == 1


def test_no_such_constraint(payments: Cases) -> None:
    """Without one nothing would keep a second row out: refused, and nothing was inserted."""
    for key in ("amount", ("request_id", "amount"), "iban"):
        with payments.desk.begin() as tx:  # where nothing fails, nothing must be rolled back
            with pytest.raises(InvalidRequest, match=r"no unique constraint on \("):
                tx.do(partial(insert_once, table=payments.name, values={**FIRST, "iban": "DE1"}, key=key))
            if payments.database == "postgresql":
                break
    assert payments.rows() == []


@ONE_OF_EACH
def test_the_transaction_goes_on(payments: Cases) -> None:
    """Also after *was there*; and what is rolled back was never inserted."""
    with pytest.raises(ZeroDivisionError), payments.desk.begin() as tx:  # noqa: PT012 - one transaction
        assert tx.do(lambda raw: insert_once(raw, payments.name, FIRST, key="request_id"))
        raise ZeroDivisionError
    assert payments.rows() == []
    with payments.desk.begin() as tx:
        for expected in (True, False):
            assert bool(tx.do(lambda raw: insert_once(raw, payments.name, FIRST, key="request_id"))) is expected
        tx.rows(f"UPDATE {payments.name} SET amount = 1")
    assert payments.rows()[0][:2] == ("r-1", 1)


@ONE_OF_EACH
def test_what_the_database_refuses(payments: Cases) -> None:
    """A missing column or table, and a value that does not fit, are errors of ours."""
    with pytest.raises(InvalidRequest, match="lacks a column"):
        insert(payments, **FIRST, no_such=1)
    with pytest.raises((StoreUnavailable, InvalidRequest), match="no_such"), payments.desk.begin() as tx:
        tx.do(lambda raw: insert_once(raw, "no_such", FIRST, key="request_id"))
    with pytest.raises(InvalidRequest, match="does not fit"):
        insert(payments, request_id="r-1", amount=object())
    assert payments.rows() == []


@pytest.mark.parametrize(
    "desk",
    [
        "sqlite-sqlite3",
        *(
            pytest.param(one, marks=slow)
            for one in ("postgresql-psycopg", "postgresql-asyncpg", "mariadb-pymysql", "mariadb-connector")
        ),
    ],
    indirect=True,
)
def test_the_number_that_the_database_gave(desk: Desk) -> None:
    """It is in the row of whoever inserted it, and of everybody after him."""
    kind = {"sqlite": "INTEGER PRIMARY KEY", "postgresql": "SERIAL PRIMARY KEY"}
    number = kind.get(Cases(desk).database, "INTEGER PRIMARY KEY AUTO_INCREMENT")
    payments = Cases(desk, f"id {number}, request_id VARCHAR(20) UNIQUE", "")
    for _ in range(2):
        assert insert(payments, request_id="r-1").row == {"id": 1, "request_id": "r-1"}


# ---------------------------------------------------------------- MariaDB's catalogue


@slow
def test_a_prefix_is_no_constraint_on_the_column(mariadb_database: Database) -> None:
    """An index on the beginning of a column keeps out more than the same value: it is not the one that was named."""
    import pymysql

    with closing(pymysql.connect(**mariadb_database.parameters, ssl_disabled=True)) as connection:
        connection.query("CREATE TABLE prefixed (request_id VARCHAR(20), UNIQUE (request_id(3)))")
        with pytest.raises(InvalidRequest, match="no unique constraint"):
            insert_once(connection, "prefixed", {"request_id": "r-1"}, key="request_id")


@slow
def test_a_key_that_is_too_long_is_not_cut_off(mariadb_database: Database) -> None:
    """Outside of strict mode MariaDB would insert another key than was asked for, and say that it was inserted."""
    import pymysql

    with closing(pymysql.connect(**mariadb_database.parameters, ssl_disabled=True, sql_mode="")) as connection:
        connection.query("CREATE TABLE short (request_id VARCHAR(3) PRIMARY KEY)")
        with pytest.raises(InvalidRequest, match="does not fit"):
            insert_once(connection, "short", {"request_id": "r-10"}, key="request_id")


@slow
def test_tables_of_one_name_in_two_databases(mariadb_server: Any) -> None:
    """What is known of one says nothing of the other: it is looked at where the row was inserted."""
    import pymysql

    places = [mariadb_server.fresh(), mariadb_server.fresh()]
    for place, rule in zip(places, ("UNIQUE", ""), strict=True):
        with closing(pymysql.connect(**place.parameters, ssl_disabled=True)) as connection:
            connection.query(f"CREATE TABLE twins (request_id VARCHAR(20) {rule})")
            for _ in range(2):
                if rule:
                    insert_once(connection, "twins", {"request_id": "r-1"}, key="request_id")
                    continue
                with pytest.raises(InvalidRequest, match=r"no unique constraint.*roll back"):
                    insert_once(connection, "twins", {"request_id": "r-1"}, key="request_id")
                connection.rollback()
        mariadb_server.drop(place)


@slow
@pytest.mark.parametrize("named", ["schema", "table"])
def test_a_table_of_another_schema(mariadb_server: Any, named: str) -> None:
    """Its constraint is looked for there."""
    import pymysql

    here, there = mariadb_server.fresh(), mariadb_server.fresh()
    name = sqlalchemy.Table(
        "far", sqlalchemy.MetaData(), sqlalchemy.Column("id", sqlalchemy.Integer), schema=there.name
    )
    table: Any = name if named == "table" else f"{there.name}.far"
    with closing(pymysql.connect(**here.parameters, ssl_disabled=True)) as connection:
        connection.query(f"CREATE TABLE {there.name}.far (id INTEGER PRIMARY KEY)")
        assert insert_once(connection, table, {"id": 1}, key="id")
        assert not insert_once(connection, table, {"id": 1}, key="id")
    for place in (here, there):
        mariadb_server.drop(place)


# ---------------------------------------------------------------- the rest


@slow
@pytest.mark.parametrize("driver", ["psycopg", "psycopg2"])
def test_a_table_of_sqlalchemy(postgres_database: Database, driver: str) -> None:
    """Its columns know how a value is written and read."""
    payments = sqlalchemy.Table(
        "payments",
        sqlalchemy.MetaData(),
        sqlalchemy.Column("request_id", sqlalchemy.Uuid(as_uuid=False), primary_key=True),
        sqlalchemy.Column("body", sqlalchemy.JSON),
    )
    engine = sqlalchemy.create_engine(postgres_database.sqlalchemy_url(driver))
    values = {"request_id": "0192a4f2-0000-7000-8000-000000000007", "body": {"amount": [1, 2]}}
    with engine.begin() as tx:
        payments.create(tx)
        assert insert_once(tx, payments, values, key="request_id") == Insertion(True, values)
        assert insert_once(tx, payments, values, key="request_id") == Insertion(False, values)
        with pytest.raises(InvalidRequest, match="no column amount"):
            insert_once(tx, payments, {**values, "amount": 1}, key="request_id")
    engine.dispose()


def test_an_outcome_shows_no_values() -> None:
    """It says what became of it, and can be pickled; ids and amounts stay out of logs."""
    outcome = Insertion(False, {"request_id": "r-1", "amount": 9900})
    assert repr(outcome) == "<Insertion: was there, with request_id, amount>"
    assert pickle.loads(pickle.dumps(outcome)) == outcome  # noqa: S301 - our own


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"values": {}}, "has a value in values="),
        ({"values": None}, "values= is a mapping"),
        ({"values": [1]}, "values= is a mapping"),
        ({"values": {"amount": 1}}, "has a value in values="),
        ({"values": {"request_id": None}}, "NULL is never unique"),
        ({"values": {"": 1}}, "1 to 63 characters"),
        ({"key": ""}, "1 to 63 characters"),
        ({"key": ()}, "key= names the column"),
        ({"key": None}, "key= names the column"),
        ({"key": b"request_id"}, "key= names the column"),
        ({"key": {"request_id": 1}}, "key= names the column"),
        ({"key": [7]}, "is text"),
        ({"key": ["request_id", "request_id"]}, "stands in it once"),
        ({"key": ["Request_id"]}, "has a value in values="),
        ({"table": 7}, "table is a name"),
        ({"tx": object()}, "inside your own transaction"),
    ],
)
def test_bad_input_is_refused_before_anything_is_sent(wrong: dict[str, Any], said: str) -> None:
    """The error says what is expected, and no transaction was begun."""
    with closing(sqlite3.connect(":memory:")) as connection:
        given: dict[str, Any] = {"tx": connection, "table": "t", "values": FIRST, "key": "request_id", **wrong}
        with pytest.raises(InvalidRequest, match=said):
            insert_once(given["tx"], given["table"], given["values"], key=given["key"])
        assert not connection.in_transaction
