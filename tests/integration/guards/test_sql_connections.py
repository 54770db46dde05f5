"""Connections that a guard cannot use: closed, failed, in autocommit, of a dead server, without rights, of MySQL."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from typing import Any

import pytest
import sqlalchemy

from leasehold._sql.dialects import DIALECTS
from leasehold.errors import InvalidRequest, LeaseholdError, StaleOwner, StoreUnavailable, Unsupported
from leasehold.guards.sql import FenceGuard
from tests.support.guards import desks
from tests.support.guards.desks import WAYS, Desk, Tx, open_desk
from tests.support.guards.fixtures import EVERY_WAY, place_of
from tests.support.guards.ways import RESOURCE, A
from tests.support.servers.database import Database, DatabaseServer

slow = pytest.mark.slow


def check(tx: Tx, guard: FenceGuard, fence: int = 10, **more: Any) -> None:
    """Present a fence."""
    tx.do(lambda raw: guard.check(raw, fence, resource=RESOURCE, owner=A, **more))


@contextmanager
def forgiving(desk: Desk) -> Iterator[Tx]:
    """What drivers say at the end, about a connection that is gone, is theirs."""
    stack = ExitStack()
    tx = stack.enter_context(desk.begin())
    try:
        yield tx
    finally:
        with suppress(Exception):
            stack.close()


@EVERY_WAY
def test_closed(desk: Desk) -> None:
    """A closed connection is the caller's mistake, and said so; nothing was sent."""
    messages = []
    with forgiving(desk) as tx:
        tx.do(lambda raw: raw.close())
        for call in (lambda raw: desk.guard.check(raw, 10, resource=RESOURCE), desk.guard.create):
            with pytest.raises(InvalidRequest) as caught:
                tx.do(call)
            messages.append(str(caught.value))
    assert ["pass one that is open" in one for one in messages] == [True, True]
    assert desk.seen() == []


FAILING = [pytest.param(f"postgresql-{way}", marks=slow) for way in WAYS["postgresql"]]


@pytest.mark.parametrize("desk", FAILING, indirect=True)
def test_a_transaction_that_has_failed(desk: Desk) -> None:
    """PostgreSQL answers nothing any more: the error says to roll back, whoever notices it."""
    raised = []
    with suppress(Exception), desk.begin() as tx:
        with suppress(Exception):
            tx.rows("SELECT nothing FROM nowhere")
        try:
            check(tx, desk.guard)
        except InvalidRequest as error:
            raised.append(str(error))
            raise
    assert "its transaction has failed: roll back" in raised[0]
    assert desk.seen() == []


@EVERY_WAY
def test_missing_tables_and_columns(desk: Desk) -> None:
    """The error names the table, and what to do; the driver's own is its cause."""
    strange, missing = FenceGuard(desk.reports), FenceGuard("nowhere")
    update: dict[str, Any] = {"key": {"report_id": 42}, "lease": 10, "resource": RESOURCE}
    calls: list[Callable[[Any], Any]] = [
        lambda raw: missing.check(raw, 10, resource=RESOURCE),
        lambda raw: missing.check(raw, 10, resource=RESOURCE, shared=True),
        lambda raw: strange.check(raw, 10, resource=RESOURCE),
        lambda raw: strange.check(raw, 10, resource=RESOURCE, shared=True),
        lambda raw: desk.guard.update(raw, "nowhere", values={}, **update),
        lambda raw: desk.guard.update(raw, desk.reports, values={"absent": 1}, **update),
        lambda raw: desk.guard.update(raw, desk.reports, values={}, fence_column="absent", **update),
        lambda raw: desk.guard.update(raw, desk.reports, values={}, owner_column="absent", **update),
    ]
    says = ["is missing, or was not made for this guard"] * 4 + ["there is no table nowhere"] + ["lacks .*absent"] * 3
    for call, said in zip(calls, says, strict=True):
        with pytest.raises(InvalidRequest if "absent" in said else StoreUnavailable, match=said) as caught:
            in_one(desk, call)
        assert caught.value.__cause__ is not None
    assert desk.report() == ("", 0, None, None)


def in_one(desk: Desk, call: Callable[[Any], Any]) -> None:
    """In a transaction of its own."""
    with desk.begin() as tx:
        tx.do(call)


def test_two_guards_on_one_table_are_one(desk: Desk) -> None:
    """Whoever shares the table shares what is remembered: of two with another meaning one refuses the other's work."""
    orders, reports = FenceGuard(desk.guard.table, downstream="orders"), FenceGuard(desk.guard.table)
    in_one(desk, lambda raw: orders.check(raw, 10, resource=RESOURCE))
    with pytest.raises(StaleOwner):
        in_one(desk, lambda raw: reports.check(raw, 9, resource=RESOURCE))
    in_one(desk, lambda raw: reports.check(raw, 9, resource="other/" + RESOURCE))


# ---------------------------------------------------------------- autocommit


def psycopg_autocommit(desk: Desk, stack: ExitStack) -> Tx:
    """Switched on for the connection."""
    import psycopg

    return Tx(stack.enter_context(psycopg.connect(dsn(desk), autocommit=True)))


def psycopg2_autocommit(desk: Desk, stack: ExitStack) -> Tx:
    """Switched on for the connection."""
    import psycopg2

    connection = psycopg2.connect(dsn(desk))
    stack.callback(connection.close)
    connection.autocommit = True
    return Tx(connection)


def async_psycopg_autocommit(desk: Desk, stack: ExitStack) -> Tx:
    """Switched on for the connection."""
    import psycopg

    runner = desk.runner()
    connection = runner.run(psycopg.AsyncConnection.connect(dsn(desk), autocommit=True))
    stack.callback(lambda: runner.run(connection.close()))
    return Tx(connection, runner)


def asyncpg_autocommit(desk: Desk, stack: ExitStack) -> Tx:
    """As it comes."""
    import asyncpg

    runner = desk.runner()
    connection: Any = runner.run(asyncpg.connect(dsn(desk)))
    stack.callback(lambda: runner.run(connection.close()))
    return Tx(connection, runner)


def pymysql_autocommit(desk: Desk, stack: ExitStack) -> Tx:
    """Switched on for the connection."""
    import pymysql

    assert isinstance(desk.place, Database)
    more: dict[str, Any] = {"ssl_disabled": True, "autocommit": True}
    return Tx(stack.enter_context(pymysql.connect(**desk.place.parameters, **more)))


def pymysql_by_statement(desk: Desk, stack: ExitStack) -> Tx:
    """Switched on by a statement, behind the driver's back."""
    import pymysql

    assert isinstance(desk.place, Database)
    tx = Tx(stack.enter_context(pymysql.connect(**desk.place.parameters, ssl_disabled=True)))
    tx.rows("SET autocommit = 1")
    return tx


def aiosqlite_autocommit(desk: Desk, stack: ExitStack) -> Tx:
    """Switched on for the connection."""
    import aiosqlite

    runner = desk.runner()

    async def opened() -> aiosqlite.Connection:
        return await aiosqlite.connect(str(desk.place), isolation_level=None)

    connection = runner.run(opened())
    stack.callback(lambda: runner.run(connection.close()))
    return Tx(connection, runner)


def django_autocommit(desk: Desk, stack: ExitStack) -> Tx:
    """As it comes, outside of atomic()."""
    connection = desks.django_connection(desk.place)
    stack.callback(connection.close)
    return Tx(connection)


def alchemy_autocommit(driver: str) -> Callable[[Desk, ExitStack], Tx]:
    """For one connection."""

    def begin(desk: Desk, stack: ExitStack) -> Tx:
        engine = sqlalchemy.create_engine(url(desk, driver))
        stack.callback(engine.dispose)
        connection = stack.enter_context(engine.connect())
        return Tx(connection.execution_options(isolation_level="AUTOCOMMIT"))

    return begin


def session_autocommit(driver: str) -> Callable[[Desk, ExitStack], Tx]:
    """A session on an engine that commits at once."""

    def begin(desk: Desk, stack: ExitStack) -> Tx:
        from sqlalchemy.orm import Session

        engine = sqlalchemy.create_engine(url(desk, driver), isolation_level="AUTOCOMMIT")
        stack.callback(engine.dispose)
        return Tx(stack.enter_context(Session(engine)))

    return begin


def async_alchemy_autocommit(driver: str) -> Callable[[Desk, ExitStack], Tx]:
    """An engine that commits at once."""

    def begin(desk: Desk, stack: ExitStack) -> Tx:
        from sqlalchemy.ext.asyncio import create_async_engine

        runner = desk.runner()
        engine = create_async_engine(url(desk, driver), isolation_level="AUTOCOMMIT")

        async def opened() -> Any:
            return await engine.connect()

        connection = runner.run(opened())
        stack.callback(lambda: runner.run(engine.dispose()))
        stack.callback(lambda: runner.run(connection.close()))
        return Tx(connection, runner)

    return begin


def dsn(desk: Desk) -> str:
    """Of a server."""
    assert isinstance(desk.place, Database)
    return desk.place.dsn


def url(desk: Desk, driver: str) -> str:
    """Of a server or a file."""
    return f"sqlite+{driver}:///{desk.place}" if isinstance(desk.place, str) else desk.place.sqlalchemy_url(driver)


AUTOCOMMIT = {
    "sqlite-aiosqlite": aiosqlite_autocommit,
    "sqlite-django": django_autocommit,
    "sqlite-sqlalchemy": alchemy_autocommit("pysqlite"),
    "sqlite-session": session_autocommit("pysqlite"),
    "sqlite-async-sqlalchemy": async_alchemy_autocommit("aiosqlite"),
    "postgresql-psycopg": psycopg_autocommit,
    "postgresql-psycopg2": psycopg2_autocommit,
    "postgresql-async-psycopg": async_psycopg_autocommit,
    "postgresql-asyncpg": asyncpg_autocommit,
    "postgresql-django": django_autocommit,
    "postgresql-sqlalchemy": alchemy_autocommit("psycopg"),
    "postgresql-sqlalchemy-psycopg2": alchemy_autocommit("psycopg2"),
    "postgresql-session": session_autocommit("psycopg"),
    "postgresql-async-sqlalchemy": async_alchemy_autocommit("asyncpg"),
    "postgresql-async-sqlalchemy-psycopg": async_alchemy_autocommit("psycopg"),
    "mariadb-pymysql": pymysql_autocommit,
    "mariadb-pymysql-by-statement": pymysql_by_statement,
    "mariadb-django": django_autocommit,
    "mariadb-sqlalchemy": alchemy_autocommit("pymysql"),
    "mariadb-session": session_autocommit("pymysql"),
    "mariadb-async-sqlalchemy": async_alchemy_autocommit("aiomysql"),
}
PLAIN = {"sqlite": "sqlite-sqlite3", "postgresql": "postgresql-psycopg", "mariadb": "mariadb-pymysql"}


@pytest.mark.parametrize("name", [pytest.param(one, marks=[] if "sqlite-" in one else [slow]) for one in AUTOCOMMIT])
def test_autocommit(request: pytest.FixtureRequest, name: str) -> None:
    """A stale owner could come between check and write: refused, the reason and the remedy said, nothing written."""
    plain = PLAIN[name.partition("-")[0]]
    with closing(open_desk(plain, place_of(plain, request))) as desk, ExitStack() as stack:
        tx = AUTOCOMMIT[name](desk, stack)
        update: dict[str, Any] = {"key": {"report_id": 42}, "values": {"body": "x"}, "lease": 10, "resource": RESOURCE}
        calls: list[Callable[[Any], Any]] = [
            lambda raw: desk.guard.check(raw, 10, resource=RESOURCE),
            lambda raw: desk.guard.check(raw, 10, resource=RESOURCE, shared=True),
            lambda raw: desk.guard.update(raw, desk.reports, **update),
        ]
        for call in calls:
            with pytest.raises(InvalidRequest, match=r"between the check and your write: .* in one transaction \("):
                tx.do(call)
        assert (desk.seen(), desk.report()[0]) == ([], "")


# ---------------------------------------------------------------- a server that dies


def die(server: DatabaseServer, database: str) -> None:
    """Every way: a check has passed, the server dies, nothing more is accepted and nothing was."""
    with ExitStack() as stack:
        opened = [stack.enter_context(closing(open_desk(f"{database}-{way}", server.main))) for way in WAYS[database]]
        begun: list[tuple[Desk, Tx]] = []
        for desk in opened:
            transaction = stack.enter_context(forgiving(desk))
            check(transaction, desk.guard)
            begun.append((desk, transaction))
        server.kill()
        for desk, tx in begun:
            for fence in (11, 12):  # the first notices it, the second finds what that has left behind
                with pytest.raises(LeaseholdError) as caught:
                    check(tx, desk.guard, fence)
                assert isinstance(caught.value, StoreUnavailable | InvalidRequest)
        server.start()
    with ExitStack() as stack:
        for desk in opened:
            desk.kept.clear()  # its engine and its event loop are closed
            stack.callback(desk.close)
            assert desk.seen() == []


@slow
def test_postgresql_dies(own_postgres: Callable[[], DatabaseServer]) -> None:
    """Between two checks."""
    die(own_postgres(), "postgresql")


@slow
def test_mariadb_dies(own_mariadb: Callable[[], DatabaseServer]) -> None:
    """Between two checks."""
    die(own_mariadb(), "mariadb")


# ---------------------------------------------------------------- rights


@slow
def test_a_role_without_rights(postgres_database: Database) -> None:
    """It is told which rights it lacks, and not that the table is missing."""
    import psycopg

    guard = FenceGuard()
    with psycopg.connect(postgres_database.dsn) as connection:
        guard.create(connection)
        connection.execute("CREATE TABLE reports (id INTEGER, last_fencing_token BIGINT)")
        connection.execute("DROP ROLE IF EXISTS weak")
        connection.execute("CREATE ROLE weak LOGIN")
    calls: list[Callable[[Any], Any]] = [
        lambda raw: guard.check(raw, 10, resource=RESOURCE),
        lambda raw: guard.check(raw, 10, resource=RESOURCE, shared=True),
        lambda raw: guard.update(raw, "reports", key={"id": 1}, values={}, lease=10, resource=RESOURCE),
        FenceGuard("other").create,
    ]
    with psycopg.connect(postgres_database.dsn.replace("postgres@", "weak@")) as connection:
        for call in calls:
            with pytest.raises(StoreUnavailable, match=r"may not use the table .* \(42501\).*Grant SELECT"):
                call(connection)
            connection.rollback()


@slow
def test_a_user_without_rights(mariadb_database: Database) -> None:
    """The same on MariaDB."""
    import pymysql

    guard = FenceGuard()
    with pymysql.connect(**mariadb_database.parameters, ssl_disabled=True) as connection:
        guard.create(connection)
        for statement in (
            "DROP USER IF EXISTS weak@'%'",
            "CREATE USER weak@'%' IDENTIFIED BY 'weak'",
            f"CREATE TABLE {mariadb_database.name}.seen (id INTEGER)",
            f"GRANT SELECT ON {mariadb_database.name}.seen TO weak@'%'",
        ):
            connection.cursor().execute(statement)
    weak = {**mariadb_database.parameters, "user": "weak", "password": "weak", "ssl_disabled": True}
    with pymysql.connect(**weak) as connection:
        for call in (lambda raw: guard.check(raw, 10, resource=RESOURCE), FenceGuard("other").create):
            with pytest.raises(StoreUnavailable, match=r"may not use the table .*Grant SELECT"):
                call(connection)


@slow
@pytest.mark.parametrize("shared", [False, True])
def test_a_read_only_transaction(postgres_database: Database, mariadb_database: Database, shared: bool) -> None:
    """A check writes or locks: it needs a transaction that may."""
    import psycopg
    import pymysql

    guard = FenceGuard()
    with psycopg.connect(postgres_database.dsn) as connection:
        guard.create(connection)
        connection.commit()
        connection.read_only = True
        with pytest.raises(StoreUnavailable, match="read-only"):
            guard.check(connection, 10, resource=RESOURCE, shared=shared)
        connection.rollback()
    if shared:
        return  # there MariaDB lets a reader lock
    with pymysql.connect(**mariadb_database.parameters, ssl_disabled=True) as other:
        guard.create(other)
        other.cursor().execute("START TRANSACTION READ ONLY")
        with pytest.raises(StoreUnavailable, match="read-only"):
            guard.check(other, 10, resource=RESOURCE)


# ---------------------------------------------------------------- MySQL


@slow
def test_mysql_is_unsupported(mariadb_database: Database) -> None:
    """It cannot refuse an old snapshot: said before anything is sent. Only its name is false here."""
    import pymysql

    guard = FenceGuard()
    with pymysql.connect(**mariadb_database.parameters, ssl_disabled=True) as connection:
        connection.server_version = "8.4.3"  # type: ignore[attr-defined] # it has one, and its stubs do not
        for call in (lambda raw: guard.check(raw, 10, resource=RESOURCE), guard.create):
            with pytest.raises(Unsupported, match="not MySQL"):
                call(connection)
    engine = sqlalchemy.create_engine(mariadb_database.sqlalchemy_url("pymysql"))
    with engine.connect() as core:
        core.dialect.is_mariadb = False  # type: ignore[attr-defined] # of MySQL's dialect
        with pytest.raises(Unsupported, match="not MySQL"):
            guard.check(core, 10, resource=RESOURCE)
    engine.dispose()
    with closing(desks.django_connection(mariadb_database)) as django:
        from django.db import transaction

        vars(django)["mysql_is_mariadb"] = False
        with transaction.Atomic(django.alias, True, False), pytest.raises(Unsupported, match="not MySQL"):
            guard.check(django, 10, resource=RESOURCE)


@slow
@pytest.mark.parametrize("name", ["mariadb-pymysql", "mariadb-sqlalchemy", "mariadb-django"])
def test_a_mariadb_that_is_too_old(request: pytest.FixtureRequest, monkeypatch: Any, name: str) -> None:
    """One that does not know ``innodb_snapshot_isolation`` says so, and so do we."""
    with closing(open_desk(name, place_of(name, request))) as desk:
        unknown = DIALECTS["mariadb"].deciding.replace("snapshot_isolation", "no_such_thing")
        monkeypatch.setattr(type(DIALECTS["mariadb"]), "deciding", unknown)
        with pytest.raises(Unsupported, match=r"MariaDB 10\.6\.18"):
            in_one(desk, lambda raw: desk.guard.check(raw, 10, resource=RESOURCE))
        assert desk.seen() == []


# ---------------------------------------------------------------- drivers that nobody has heard of


class Strange:
    """A connection of another driver, on SQLite."""

    def __init__(self, connection: sqlite3.Connection, **more: Any) -> None:
        self.commit, self.rollback, self.cursor = connection.commit, connection.rollback, connection.cursor
        vars(self).update(more)


@pytest.mark.parametrize("more", [{"autocommit": True}, {"get_autocommit": lambda: True}])
def test_autocommit_of_another_driver(monkeypatch: Any, more: dict[str, Any]) -> None:
    """By its attribute, or by asking it."""
    guard = FenceGuard(dialect="sqlite")
    monkeypatch.setattr("tests.paramstyle", "qmark", raising=False)
    with closing(sqlite3.connect(":memory:")) as connection:
        guard.create(Strange(connection))  # type: ignore[call-overload] # a driver without types
        guard.check(Strange(connection, autocommit=False), 10, resource=RESOURCE)  # type: ignore[call-overload] # the same
        with pytest.raises(InvalidRequest, match="in one transaction"):
            guard.check(Strange(connection, **more), 11, resource=RESOURCE)  # type: ignore[call-overload] # the same
        with pytest.raises(StaleOwner):
            guard.check(Strange(connection), 9, resource=RESOURCE)  # type: ignore[call-overload] # the same


def test_another_driver_that_is_like_sqlite3(monkeypatch: Any) -> None:
    """pysqlite3 and sqlcipher3 say it as sqlite3 does, and so are asked."""
    guard = FenceGuard(dialect="sqlite")
    monkeypatch.setattr("tests.paramstyle", "qmark", raising=False)
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        guard.create(connection)
        alike: Any = Strange(connection, in_transaction=False, isolation_level=None)
        with pytest.raises(InvalidRequest, match="in one transaction"):
            guard.check(alike, 10, resource=RESOURCE)
        assert connection.execute("SELECT * FROM leasehold_fences").fetchall() == []


def test_another_driver_with_another_paramstyle(monkeypatch: Any) -> None:
    """It is Unsupported, and nothing is sent; without dialect= the error says to name it."""
    monkeypatch.setattr("tests.paramstyle", "named", raising=False)
    with closing(sqlite3.connect(":memory:")) as connection:
        strange: Any = Strange(connection)
        with pytest.raises(Unsupported, match="paramstyle 'named'"):
            FenceGuard(dialect="sqlite").check(strange, 10, resource=RESOURCE)
        with pytest.raises(InvalidRequest, match=r"FenceGuard\(dialect="):
            FenceGuard().check(strange, 10, resource=RESOURCE)


# ---------------------------------------------------------------- what is no connection


@slow
def test_engines_pools_and_cursors(postgres_database: Database) -> None:
    """Whatever else a driver has: the error says what to pass, and nothing is sent."""
    import asyncio

    import asyncpg
    import psycopg
    from sqlalchemy.ext.asyncio import async_sessionmaker, create_async_engine
    from sqlalchemy.orm import sessionmaker

    guard = FenceGuard()

    def refused(*things: Any) -> None:
        for thing in things:
            with pytest.raises(InvalidRequest, match="no engine, pool or cursor"):
                guard.check(thing, 10, resource=RESOURCE)

    async def with_a_pool() -> None:
        pool = await asyncpg.create_pool(postgres_database.dsn, min_size=1, max_size=1)
        refused(pool, pool.acquire())
        await pool.close()

    asyncio.run(with_a_pool())
    with psycopg.connect(postgres_database.dsn) as connection, connection.cursor() as cursor:
        refused(cursor)
        with connection.transaction() as transaction:
            refused(transaction)
    engine = sqlalchemy.create_engine(postgres_database.sqlalchemy_url("psycopg"))
    later = create_async_engine(postgres_database.sqlalchemy_url("asyncpg"))
    refused(engine, later, sessionmaker(engine), async_sessionmaker(later), engine.raw_connection(), sqlalchemy)
    with engine.begin() as core:
        refused(core.get_transaction())
    engine.dispose()
    refused(None, "postgresql://localhost/app", 5, object(), [], lambda: None)
