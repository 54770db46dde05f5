"""Columns, names and values that must not deceive a guard: too small, of text, of floating point, with quotes."""

from __future__ import annotations

import asyncio
import itertools
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import partial
from typing import Any

import pytest
import sqlalchemy

from leasehold.errors import InvalidRequest, LeaseholdError, StaleOwner, StoreUnavailable
from leasehold.guards.sql import FenceGuard, NoSuchRow
from tests.support.guards.desks import WAYS, Desk, Tx
from tests.support.guards.fixtures import EVERY_WAY
from tests.support.guards.ways import RESOURCE, A, B
from tests.support.servers.database import Database

slow = pytest.mark.slow
numbers = itertools.count(1)
NOW = 1794768018952706  # a fence of these years: it counts microseconds
# One of each kind: they send other values to the same columns.
KINDS = {
    "postgresql": ("psycopg", "psycopg2", "asyncpg", "sqlalchemy", "async-session", "django"),
    "mariadb": ("pymysql", "connector", "sqlalchemy", "django"),
}
ON_SERVERS = [pytest.param(f"{db}-{way}", marks=slow) for db, ways in KINDS.items() for way in ways]
ON_POSTGRESQL = [pytest.param(f"postgresql-{way}", marks=slow) for way in KINDS["postgresql"]]
ON_THE_OTHERS = [
    pytest.param(f"{db}-{way}", marks=[slow] if db == "mariadb" else [])
    for db in ("sqlite", "mariadb")
    for way in WAYS[db]
]


@contextmanager
def table(desk: Desk, columns: str, insert: str = "(1, NULL)") -> Iterator[str]:
    """A table of the user's with one row."""
    name = f"odd_{desk.number}_{next(numbers)}"  # a name of its own: drivers remember what a statement gave
    with desk.begin() as tx:
        tx.rows(f"CREATE TABLE {name} ({columns})")
        tx.rows(f"INSERT INTO {name} VALUES {insert}")
    yield name


def update(desk: Desk, name: str, fence: int, **more: Any) -> None:
    """Write a row, in a transaction of its own."""
    change: dict[str, Any] = {"key": {"id": 1}, "values": {}, "resource": RESOURCE, "owner": A, **more}
    with desk.begin() as tx:
        tx.do(lambda raw: desk.guard.update(raw, name, lease=fence, **change))


def check(desk: Desk, guard: FenceGuard, fence: int) -> None:
    """Present a fence, in a transaction of its own."""
    with desk.begin() as tx:
        tx.do(lambda raw: guard.check(raw, fence, resource=RESOURCE, owner=A))


def rows(desk: Desk, sql: str) -> list[tuple[Any, ...]]:
    """What is there."""
    with desk.begin() as tx:
        return tx.rows(sql)


# ---------------------------------------------------------------- fence columns


@pytest.mark.parametrize("desk", ON_SERVERS, indirect=True)
def test_a_32_bit_column(desk: Desk) -> None:
    """The error says BIGINT, and nothing is written: a fence that was cut off would be everybody's."""
    with table(desk, "id INTEGER PRIMARY KEY, last_fencing_token INTEGER") as name:
        with pytest.raises(InvalidRequest, match="BIGINT") as caught:
            update(desk, name, NOW)
        assert caught.value.__cause__ is not None
        assert rows(desk, f"SELECT last_fencing_token FROM {name}") == [(None,)]


@pytest.mark.parametrize("desk", ON_SERVERS, indirect=True)
def test_a_guard_table_of_32_bits(desk: Desk) -> None:
    """The same for the guard's own table, when somebody else has made it."""
    columns = "resource VARCHAR(99) PRIMARY KEY, fence INTEGER, owner VARCHAR(32), checks INTEGER DEFAULT 0"
    with table(desk, columns, "('x', 1, '', 0)") as name, pytest.raises(InvalidRequest, match="BIGINT"):
        check(desk, FenceGuard(name), NOW)


@slow
@pytest.mark.parametrize("strictness", ["", "STRICT_TRANS_TABLES", "ANSI_QUOTES,NO_BACKSLASH_ESCAPES", "ORACLE"])
def test_mariadb_is_strict_with_our_statements(mariadb_database: Database, strictness: str) -> None:
    """Outside of strict mode MariaDB would cut the fence off, and accept everybody from then on."""
    import pymysql

    guard = FenceGuard()
    with pymysql.connect(**mariadb_database.parameters, ssl_disabled=True) as connection:
        with connection.cursor() as cursor:
            cursor.execute("SET sql_mode = %s", (strictness,))
            cursor.execute("CREATE TABLE reports (id INTEGER PRIMARY KEY, last_fencing_token INTEGER)")
            cursor.execute("INSERT INTO reports VALUES (1, NULL)")
        with pytest.raises(InvalidRequest, match="BIGINT"):
            guard.update(connection, "reports", key={"id": 1}, values={}, lease=NOW, resource=RESOURCE)
        guard.create(connection)
        guard.check(connection, NOW, resource="it's:a\\test", owner=A)
        with pytest.raises(StaleOwner):
            guard.check(connection, NOW - 1, resource="it's:a\\test", owner=A)
        with connection.cursor() as cursor:
            cursor.execute("SELECT last_fencing_token FROM reports")
            assert cursor.fetchall() == ((None,),)
            cursor.execute("SELECT @@sql_mode LIKE %s", (f"%{strictness.partition(',')[0]}%",))
            assert cursor.fetchone() == (1,)


@slow
@pytest.mark.parametrize("driver", ["psycopg", "psycopg2"])
def test_an_integer_column_of_sqlalchemy(postgres_database: Database, driver: str) -> None:
    """Also where a Table says Integer; and BigInteger is well."""
    engine = sqlalchemy.create_engine(postgres_database.sqlalchemy_url(driver))
    reports = sqlalchemy.Table(
        "reports",
        sqlalchemy.MetaData(),
        sqlalchemy.Column("id", sqlalchemy.Integer, primary_key=True),
        sqlalchemy.Column("small", sqlalchemy.Integer),
        sqlalchemy.Column("wide", sqlalchemy.BigInteger),
    )
    change: dict[str, Any] = {"key": {"id": 1}, "values": {}, "lease": NOW, "resource": RESOURCE}
    with engine.begin() as tx:
        reports.create(tx)
        tx.execute(reports.insert().values(id=1))
        FenceGuard().update(tx, reports, fence_column="wide", **change)
        assert tx.execute(sqlalchemy.select(reports.c.wide)).scalar_one() == NOW
        with pytest.raises(InvalidRequest, match="BIGINT"):
            FenceGuard().update(tx, reports, fence_column="small", **change)
    engine.dispose()


@pytest.mark.parametrize("desk", ON_POSTGRESQL, indirect=True)
def test_other_columns_of_postgresql(desk: Desk) -> None:
    """As text 9 is above 10, and a REAL holds seven digits: refused, in the user's table and in the guard's own."""
    for kind in ("TEXT", "VARCHAR(40)", "REAL", "DOUBLE PRECISION", "NUMERIC"):
        refuse_column(desk, kind)


def refuse_column(desk: Desk, kind: str) -> None:
    """Whatever the fence."""
    with table(desk, f"id INTEGER PRIMARY KEY, last_fencing_token {kind}") as name:
        for fence in (10, NOW):
            with pytest.raises(InvalidRequest, match="BIGINT"):
                update(desk, name, fence)
        assert rows(desk, f"SELECT last_fencing_token FROM {name}") == [(None,)]
    with table(desk, f"resource TEXT PRIMARY KEY, fence {kind}, owner TEXT", "('x', '1', '')") as name:
        for fence in (10, NOW):
            with pytest.raises(InvalidRequest, match="BIGINT"):
                check(desk, FenceGuard(name), fence)
        assert rows(desk, f"SELECT resource FROM {name}") == [("x",)]


@slow
@pytest.mark.parametrize("desk", ["mariadb-pymysql", "mariadb-sqlalchemy", "mariadb-connector"], indirect=True)
def test_a_column_that_rounds(desk: Desk) -> None:
    """MariaDB keeps seven digits of a FLOAT, and says nothing: found out before anything is committed. A DOUBLE keeps
    sixteen, and all of a fence."""
    with table(desk, "id INTEGER PRIMARY KEY, last_fencing_token FLOAT") as name:
        update(desk, name, 10)
        for _ in range(2):
            with pytest.raises(InvalidRequest, match="BIGINT"):
                update(desk, name, NOW + 1)
        assert rows(desk, f"SELECT last_fencing_token FROM {name}") == [(10,)]
    with table(desk, "id INTEGER PRIMARY KEY, last_fencing_token DOUBLE") as name:
        for fence in (NOW + 1, NOW + 2):
            update(desk, name, fence)
        with pytest.raises(StaleOwner):
            update(desk, name, NOW + 1)


@pytest.mark.parametrize("desk", ON_THE_OTHERS, indirect=True)
def test_a_column_of_text(desk: Desk) -> None:
    """Where a database takes numbers for text and back, fences are compared as whole numbers all the same."""
    with table(desk, "id INTEGER PRIMARY KEY, last_fencing_token VARCHAR(40)") as name:
        for fence in (9, 10, 2**63 - 2, 2**63 - 1):
            update(desk, name, fence)
        for stale in (9, 2**63 - 2):
            with pytest.raises(StaleOwner) as caught:
                update(desk, name, stale)
            assert caught.value.seen == 2**63 - 1


@pytest.mark.parametrize("desk", ON_THE_OTHERS, indirect=True)
def test_a_guard_table_of_text(desk: Desk) -> None:
    """Nobody who is stale is accepted; MariaDB says what is wrong."""
    columns = "resource VARCHAR(99) PRIMARY KEY, fence VARCHAR(40), owner VARCHAR(32), checks INTEGER DEFAULT 0"
    with table(desk, columns, "('x', '1', '', 0)") as name:
        guard = FenceGuard(name)
        if isinstance(desk.place, Database):
            with pytest.raises(InvalidRequest, match="BIGINT"):
                check(desk, guard, 10)
            return
        for fence in (9, 10):
            check(desk, guard, fence)
        with pytest.raises(StaleOwner):
            check(desk, guard, 9)


@EVERY_WAY
def test_the_widest_fences(desk: Desk) -> None:
    """2**63 - 1 is exact, and not the same as the one before it."""
    check(desk, desk.guard, 2**63 - 2)
    check(desk, desk.guard, 2**63 - 1)
    with pytest.raises(StaleOwner) as caught:
        check(desk, desk.guard, 2**63 - 2)
    assert caught.value.seen == 2**63 - 1
    update(desk, desk.reports, 2**63 - 1, key={"report_id": 42})
    with pytest.raises(StaleOwner) as caught:
        update(desk, desk.reports, 2**63 - 2, key={"report_id": 42})
    assert caught.value.seen == 2**63 - 1


# ---------------------------------------------------------------- names and values

HOSTILE = [
    "reports; DROP TABLE reports", "reports--", "re'ports", 'x" = 1 OR "1', "x` = 1 OR `1", "%s", "%(x)s", ":x", "?",
    "$1", "a\\", "réports", "x" * 63,
]  # fmt: skip
GOOD: dict[str, Any] = {
    "table": "reports",
    "key": {"id": 1},
    "values": {"body": "x"},
    "lease": 10,
    "resource": RESOURCE,
}


def test_hostile_names(desk: Desk) -> None:
    """They are names and nothing else: the table or column is missing, and nothing happens."""
    good: dict[str, Any] = {"key": {"report_id": 42}, "values": {"body": "x"}}
    for name in HOSTILE:
        for more in (
            {"fence_column": name},
            {"owner_column": name},
            {"key": {name: 42}},
            {"values": {name: "x"}},
        ):
            with pytest.raises(InvalidRequest):
                update(desk, desk.reports, 10, **{**good, **more})
        with pytest.raises(StoreUnavailable):
            update(desk, name, 10, **good)
    assert desk.report() == ("", 0, None, None)


@EVERY_WAY
def test_names_with_quotes(desk: Desk) -> None:
    """Whatever stands in a name, it is found."""
    quote = '"' if isinstance(desk.place, Database) and desk.place.scheme == "postgresql" else "`"
    for number, name in enumerate(['a"b', "a`b", "a'b", "a%sb", "a:b", "a b", "Größe", "SELECT", "a;--"]):
        column = quote + name.replace(quote, quote * 2) + quote
        odd = f"odd_{desk.number}_{number}"
        with desk.begin() as tx:
            tx.rows(f"CREATE TABLE {odd} (id INTEGER, {escaped(tx, column)} BIGINT)")
            tx.rows(f"INSERT INTO {odd} (id) VALUES (1)")
        update(desk, odd, 10, fence_column=name)
        with pytest.raises(StaleOwner):
            update(desk, odd, 9, fence_column=name)
        update(desk, odd, 11, fence_column=name, key={name: 10})


def escaped(tx: Tx, sql: str) -> str:
    """In a text of SQLAlchemy's a colon is the place of a value."""
    return sql.replace(":", "\\:") if type(tx.raw).__module__.startswith("sqlalchemy") else sql


def test_hostile_values(desk: Desk) -> None:
    """They are written as they are."""
    for number, value in enumerate(["'; DROP TABLE reports; --", "%s %(x)s :x ? $1", "\\'", 'ж😀"', ""], 10):
        update(desk, desk.reports, number, key={"report_id": 42}, values={"body": value})
        assert desk.report()[0] == value


@EVERY_WAY
def test_resources(desk: Desk) -> None:
    """Any name of a resource; those that differ in case, accents or a last space are different."""
    named = ["it's:1", 'a"b:%s', "a:\\", "Grüße:ж😀", "%(x)s::p1", "x" * 512, "x", "X", "x ", "é", "e", "E", "ß", "ss"]
    with desk.begin() as tx:
        for number, one in enumerate(named):
            tx.do(partial(present, desk.guard, 100 - number, one))
        for number, one in enumerate(named):
            with pytest.raises(StaleOwner) as caught:
                tx.do(partial(present, desk.guard, 9, one))
            assert caught.value.seen == 100 - number


def present(guard: FenceGuard, fence: int, resource: str, raw: Any) -> Any:
    """In a transaction."""
    return guard.check(raw, fence, resource=resource)


# ---------------------------------------------------------------- refused before anything is sent

BAD: list[dict[str, Any]] = [
    *[{"lease": one} for one in (0, -1, True, False, "12", 12.0, 2**63, None, b"1")],
    *[{"resource": one} for one in (None, "", 5, "a\0b", "\ud800", "x" * 513)],
    *[{"owner": one} for one in ("", 5, b"x", "\ud800")],
    *[{"key": one} for one in ({}, None, "id", [("id", 1)], {"": 1}, {"x" * 64: 1}, {5: 1}, {"id": None}, {"a\0": 1})],
    *[{"values": one} for one in (None, "body", [("body", "x")], {"": 1}, {5: 1}, {"a\0": 1})],
    *[{"values": {one: 5}} for one in ("last_fencing_token", "Last_Fencing_Token", "LAST_FENCING_TOKEN")],
    {"values": {"who": 5}, "owner_column": "who"},
    {"values": {"WHO": 5}, "owner_column": "who"},
    {"owner_column": "last_fencing_token"},
    *[{"fence_column": one} for one in (None, "", 5, "a\0")],
    *[{"owner_column": one} for one in ("", 5, "a\0")],
    *[{"strict": one} for one in (None, "no", 0, 1)],
    *[{"table": one} for one in (None, "", ".", "a.", "a..b", 5, "a\0", object(), dict)],
]  # fmt: skip


@pytest.mark.parametrize("bad", BAD, ids="-".join)
def test_bad_arguments_of_update(bad: dict[str, Any]) -> None:
    """InvalidRequest, and the connection is as it was."""
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.execute("CREATE TABLE reports (id INTEGER, body TEXT, last_fencing_token BIGINT, who TEXT)")
        connection.execute("INSERT INTO reports (id) VALUES (1)")
        connection.commit()
        sent: list[str] = []
        connection.set_trace_callback(sent.append)
        with pytest.raises(InvalidRequest):
            FenceGuard().update(connection, **{**GOOD, **bad})
        assert sent == []
        FenceGuard().update(connection, **GOOD)


def test_a_table_knows_its_columns() -> None:
    """A SQLAlchemy Table without the column is refused before anything is sent."""
    reports = sqlalchemy.table("reports", sqlalchemy.column("id"), sqlalchemy.column("last_fencing_token"))
    engine = sqlalchemy.create_engine("sqlite://")
    with engine.begin() as tx, pytest.raises(InvalidRequest, match="has no column body"):
        FenceGuard().update(tx, **{**GOOD, "table": reports})
    engine.dispose()


@slow
@pytest.mark.parametrize("charset", ["latin1", "ascii", "utf8mb3", "utf8mb4"])
@pytest.mark.parametrize("shared", [False, True])
def test_character_sets(mariadb_database: Database, charset: str, shared: bool) -> None:
    """A resource that the connection cannot write is refused, and never taken for another one."""
    import pymysql

    guard, resource = FenceGuard(), "report:😀"
    with pymysql.connect(**mariadb_database.parameters, ssl_disabled=True) as connection:
        guard.create(connection)
        guard.check(connection, 10, resource=resource)
        guard.check(connection, 10, resource="report:?")
        connection.commit()
    with pymysql.connect(**mariadb_database.parameters, ssl_disabled=True, charset=charset) as connection:
        expected = (StaleOwner, "older than 10") if charset == "utf8mb4" else (InvalidRequest, "utf8mb4")
        with pytest.raises(expected[0], match=expected[1]):
            guard.check(connection, 9, resource=resource, shared=shared)
        guard.check(connection, 11, resource="report:42")


# ---------------------------------------------------------------- psycopg's pipelines, and forgetting to await


@slow
@pytest.mark.parametrize("kind", ["Cursor", "ClientCursor", "RawCursor"])
def test_cursors_of_the_user(postgres_database: Database, kind: str) -> None:
    """Whatever class makes the cursors of a connection, and whatever marks it wants."""
    import psycopg

    guard = FenceGuard()
    with psycopg.connect(postgres_database.dsn, cursor_factory=getattr(psycopg, kind)) as connection:
        guard.create(connection)
        guard.check(connection, 10, resource=RESOURCE)
        with pytest.raises(StaleOwner):
            guard.check(connection, 9, resource=RESOURCE)

    async def work() -> None:
        factory = getattr(psycopg, f"Async{kind}")
        async with await psycopg.AsyncConnection.connect(postgres_database.dsn, cursor_factory=factory) as later:
            await guard.check(later, 11, resource=RESOURCE)

    asyncio.run(work())


@slow
def test_a_pipeline(postgres_database: Database) -> None:
    """Inside a pipeline of psycopg's the guard waits for its answers, and says the same."""
    import psycopg

    guard = FenceGuard()
    with psycopg.connect(postgres_database.dsn) as connection:
        guard.create(connection)
        connection.execute("CREATE TABLE reports (id INTEGER, kind TEXT, body TEXT, last_fencing_token BIGINT)")
        connection.execute("INSERT INTO reports VALUES (1, 'monthly', ''), (2, 'monthly', '')")
        with connection.pipeline():
            guard.check(connection, 10, resource=RESOURCE, owner=A)
            guard.check(connection, 10, resource=RESOURCE, owner=A, shared=True)
            with pytest.raises(StaleOwner):
                guard.check(connection, 9, resource=RESOURCE, owner=B)
            guard.update(connection, **GOOD)
            with pytest.raises(StaleOwner):
                guard.update(connection, **{**GOOD, "lease": 9})
            with pytest.raises(NoSuchRow):
                guard.update(connection, **{**GOOD, "key": {"id": 3}})
            with pytest.raises(InvalidRequest, match="2 rows"):
                guard.update(connection, **{**GOOD, "lease": 11, "key": {"kind": "monthly"}})
        connection.rollback()


@slow
def test_a_pipeline_that_is_awaited(postgres_database: Database) -> None:
    """The same, awaited."""
    import psycopg

    guard = FenceGuard()

    async def work() -> None:
        async with await psycopg.AsyncConnection.connect(postgres_database.dsn) as connection:
            await guard.create(connection)
            await connection.execute("CREATE TABLE reports (id INTEGER, body TEXT, last_fencing_token BIGINT)")
            await connection.execute("INSERT INTO reports VALUES (1, ''), (1, '')")
            async with connection.pipeline():
                await guard.check(connection, 10, resource=RESOURCE, owner=A)
                with pytest.raises(StaleOwner):
                    await guard.check(connection, 9, resource=RESOURCE, owner=B)
                with pytest.raises(InvalidRequest, match="2 rows"):
                    await guard.update(connection, **GOOD)

    asyncio.run(work())


ON_SQLALCHEMY = [
    pytest.param(f"{db}-{way}", marks=[] if db == "sqlite" else [slow])
    for db, ways in WAYS.items()
    for way in ways
    if "sqlalchemy" in way
]


@pytest.mark.parametrize("desk", ON_SQLALCHEMY, indirect=True)
def test_one_shape_of_update_with_other_values(request: pytest.FixtureRequest, desk: Desk) -> None:
    """SQLAlchemy's expression is kept for the next update of the same columns. What depends on the values is not: the
    type of a number, an expression, a comparison with TRUE, names that differ in a space only."""
    columns = (
        "id BIGINT PRIMARY KEY, a_b VARCHAR(20), {0}a b{0} VARCHAR(20), pages INTEGER, done BOOLEAN, "
        "last_fencing_token BIGINT, last_owner VARCHAR(32)"
    ).format("`" if "mariadb" in request.node.callspec.id else '"')
    insert = f"(1, '', '', 1, FALSE, NULL, NULL), ({2**40}, '', '', 1, TRUE, NULL, NULL)"
    with table(desk, columns, insert) as name:
        for number, identity in enumerate([1, 2**40, 1]):
            values = {"a_b": f"first {number}", "a b": f"second {number}"}
            update(desk, name, NOW + number, key={"id": identity}, values=values, owner_column="last_owner")
        for _ in range(2):
            update(desk, name, NOW + 3, key={"id": 1}, values={"pages": sqlalchemy.column("pages") + 1})
        update(desk, name, NOW + 4, key={"done": True}, values={"pages": 7})
        update(desk, name, NOW + 4, key={"done": False}, values={"pages": None})
        for owner in (A, B):
            with pytest.raises(StaleOwner):
                update(desk, name, NOW + 1, key={"id": 1}, values={"a_b": "late", "a b": ""}, owner=owner)
        select = f"SELECT id, a_b, pages, last_fencing_token FROM {name} ORDER BY id"
        assert rows(desk, select) == [(1, "first 2", None, NOW + 4), (2**40, "first 1", 7, NOW + 4)]


def test_rows_that_aiosqlite_gives_as_dictionaries(tmp_path: Any) -> None:
    """The connection is the user's, and so are its rows: the guard reads plain ones."""
    import aiosqlite

    guard = FenceGuard()

    async def work() -> None:
        async with aiosqlite.connect(tmp_path / "app.db") as connection:
            connection.row_factory = lambda cursor, row: dict(  # type: ignore[assignment] # it takes any function
                zip([column[0] for column in cursor.description], row, strict=True)
            )
            await guard.create(connection)
            await guard.check(connection, 10, resource=RESOURCE, owner=A)
            with pytest.raises(StaleOwner) as caught:
                await guard.check(connection, 9, resource=RESOURCE, owner=A)
            assert caught.value.seen == 10

    asyncio.run(work())


def test_a_check_that_is_not_awaited(tmp_path: Any) -> None:
    """Python warns, and nothing was sent. Bad arguments are refused at once, awaited or not."""
    import aiosqlite

    guard = FenceGuard()

    async def work() -> list[Any]:
        async with aiosqlite.connect(tmp_path / "app.db") as connection:
            await guard.create(connection)
            with pytest.raises(InvalidRequest):
                guard.check(connection, 0, resource=RESOURCE)  # type: ignore[unused-coroutine] # what a user forgot
            with pytest.warns(RuntimeWarning, match="never awaited"):
                guard.check(connection, 10, resource=RESOURCE)  # type: ignore[unused-coroutine] # mypy tells him
            await connection.commit()
            return list(await connection.execute_fetchall("SELECT * FROM leasehold_fences"))

    assert asyncio.run(work()) == []


def test_every_error_is_ours() -> None:
    """Also for what no driver has thought of."""
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.execute("CREATE TABLE reports (id INTEGER, body TEXT, last_fencing_token BIGINT)")
        for odd in (object(), {}, [], 2**70, "\ud800"):
            with pytest.raises(LeaseholdError):
                FenceGuard().update(connection, **{**GOOD, "values": {"body": odd}})
            with pytest.raises(LeaseholdError):
                FenceGuard().update(connection, **{**GOOD, "key": {"id": odd}})
