"""Inside SQLAlchemy's sessions and Django's transactions: savepoints, pending changes, and what is kept in memory."""

from __future__ import annotations

import asyncio
import unittest
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from typing import Any

import pytest
import sqlalchemy
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from leasehold.errors import InvalidRequest, StaleOwner
from leasehold.guards.sql import FenceGuard
from tests.support.guards import desks
from tests.support.guards.desks import Desk, Tx, open_desk
from tests.support.guards.fixtures import place_of
from tests.support.guards.ways import RESOURCE, A, B
from tests.support.servers.database import Database

slow = pytest.mark.slow
guard = FenceGuard()

# ---------------------------------------------------------------- savepoints


@contextmanager
def by_statements(tx: Tx) -> Iterator[None]:
    """In SQL."""
    tx.rows("SAVEPOINT inner_1")
    try:
        yield
    except BaseException:
        tx.rows("ROLLBACK TO SAVEPOINT inner_1")
        raise
    tx.rows("RELEASE SAVEPOINT inner_1")


def by_transaction(tx: Tx) -> AbstractContextManager[Any]:
    """psycopg."""
    inner: AbstractContextManager[Any] = tx.raw.transaction()
    return inner


def by_begin_nested(tx: Tx) -> AbstractContextManager[Any]:
    """SQLAlchemy."""
    inner: AbstractContextManager[Any] = tx.raw.begin_nested()
    return inner


@contextmanager
def awaited(inner: Any, tx: Tx) -> Iterator[None]:
    """One that is entered with ``async with``."""
    runner: Any = tx._runner
    runner.run(_call(inner.__aenter__))
    try:
        yield
    except BaseException as error:
        failure = error
        runner.run(_call(lambda: inner.__aexit__(type(failure), failure, None)))
        raise
    runner.run(_call(lambda: inner.__aexit__(None, None, None)))


async def _call(what: Callable[[], Any]) -> Any:
    return await what()


def by_async_transaction(tx: Tx) -> AbstractContextManager[Any]:
    """asyncpg."""
    return awaited(tx.raw.transaction(), tx)


def by_async_begin_nested(tx: Tx) -> AbstractContextManager[Any]:
    """SQLAlchemy, awaited."""
    return awaited(tx.raw.begin_nested(), tx)


def by_atomic(tx: Tx) -> AbstractContextManager[Any]:
    """Django."""
    from django.db import transaction

    inner: AbstractContextManager[Any] = transaction.Atomic(tx.raw.alias, savepoint=True, durable=False)
    return inner


SAVEPOINTS: dict[str, Callable[[Tx], AbstractContextManager[Any]]] = {
    "sqlite-django": by_atomic,
    "postgresql-psycopg": by_transaction,
    "postgresql-psycopg2": by_statements,
    "postgresql-asyncpg": by_async_transaction,
    "postgresql-sqlalchemy": by_begin_nested,
    "postgresql-session": by_begin_nested,
    "postgresql-async-sqlalchemy": by_async_begin_nested,
    "postgresql-async-session": by_async_begin_nested,
    "postgresql-django": by_atomic,
    "mariadb-pymysql": by_statements,
    "mariadb-sqlalchemy": by_begin_nested,
    "mariadb-session": by_begin_nested,
    "mariadb-async-sqlalchemy": by_async_begin_nested,
    "mariadb-django": by_atomic,
}
BY = pytest.mark.parametrize("name", [pytest.param(one, marks=[] if "sqlite" in one else [slow]) for one in SAVEPOINTS])


@BY
def test_savepoints(request: pytest.FixtureRequest, name: str) -> None:
    """A check in a savepoint that is rolled back was never made; one that is kept is part of the transaction."""
    with closing(open_desk(name, place_of(name, request))) as desk:
        with desk.begin() as tx:
            with pytest.raises(ZeroDivisionError), SAVEPOINTS[name](tx):  # noqa: PT012 - one savepoint
                check(tx, desk, 99, A)
                raise ZeroDivisionError
            with SAVEPOINTS[name](tx):
                check(tx, desk, 10, A)
        assert [row[:2] for row in desk.seen()] == [(RESOURCE, 10)]
        with desk.begin() as tx:  # a refusal inside ends the savepoint, and not the transaction
            with pytest.raises(StaleOwner), SAVEPOINTS[name](tx):
                check(tx, desk, 9, B)
            tx.rows(f"UPDATE {desk.reports} SET body = 'went on'")
        assert desk.report()[0] == "went on"


def check(tx: Tx, desk: Desk, fence: int, owner: str) -> None:
    """Present a fence."""
    tx.do(lambda raw: desk.guard.check(raw, fence, resource=RESOURCE, owner=owner))


@pytest.mark.parametrize("as_session", [False, True])
def test_a_savepoint_of_sqlalchemy_on_sqlite(tmp_path: Any, as_session: bool) -> None:
    """There it can be the whole transaction, and its end a commit before the write: refused, and the remedy said."""
    engine = sqlalchemy.create_engine(f"sqlite:///{tmp_path / 'app.db'}")
    with engine.begin() as tx:
        guard.create(tx)
    opened: Any = Session(engine) if as_session else engine.connect()
    with opened as tx, tx.begin():
        with tx.begin_nested(), pytest.raises(InvalidRequest, match="check before begin_nested"):
            guard.check(tx, 10, resource=RESOURCE)
        guard.check(tx, 10, resource=RESOURCE)
    engine.dispose()


def test_a_savepoint_of_an_engine_that_begins_by_itself(tmp_path: Any) -> None:
    """The remedy works: nobody comes between the savepoint and the commit."""
    engine = sqlalchemy.create_engine(f"sqlite:///{tmp_path / 'app.db'}", connect_args={"timeout": 0})

    @sqlalchemy.event.listens_for(engine, "connect")
    def _connect(raw: Any, _: Any) -> None:
        raw.isolation_level = None

    @sqlalchemy.event.listens_for(engine, "begin")
    def _begin(connection: sqlalchemy.Connection) -> None:
        connection.exec_driver_sql("BEGIN")

    with engine.begin() as tx:
        guard.create(tx)
    with engine.begin() as tx:
        with tx.begin_nested():
            guard.check(tx, 10, resource=RESOURCE)
        with engine.connect() as other, pytest.raises(Exception, match="SQLITE_BUSY"):
            guard.check(other, 11, resource=RESOURCE)
    engine.dispose()


# ---------------------------------------------------------------- the ORM


class Base(DeclarativeBase):
    """Of this test."""


class Report(Base):
    """A row that is worth guarding."""

    __tablename__ = "reports"
    id: Mapped[int] = mapped_column(primary_key=True)
    body: Mapped[str]
    last_fencing_token: Mapped[int | None] = mapped_column(sqlalchemy.BigInteger)


@pytest.fixture(params=["sqlite", pytest.param("psycopg", marks=slow), pytest.param("pymysql", marks=slow)])
def engine(request: pytest.FixtureRequest, tmp_path: Any) -> Iterator[sqlalchemy.Engine]:
    """With the tables, and one report."""
    if request.param == "sqlite":
        url = f"sqlite:///{tmp_path / 'app.db'}"
    else:
        place: Database = request.getfixturevalue(
            "postgres_database" if request.param == "psycopg" else "mariadb_database"
        )
        url = place.sqlalchemy_url(request.param)
    engine = sqlalchemy.create_engine(url)
    Report.__table__.columns["body"].type = sqlalchemy.String(100)
    Base.metadata.create_all(engine)
    with Session(engine) as session, session.begin():
        guard.create(session)
        session.add(Report(id=42, body=""))
    yield engine
    engine.dispose()


def test_pending_changes_of_a_stale_owner(engine: sqlalchemy.Engine) -> None:
    """What a session has not sent yet is not sent by the check, and gone with the refusal."""
    with engine.begin() as tx:
        guard.check(tx, 10, resource=RESOURCE)
    with pytest.raises(StaleOwner), Session(engine) as session, session.begin():  # noqa: PT012 - one transaction
        session.get_one(Report, 42).body = "stale"
        session.add(Report(id=43, body="stale"))
        guard.check(session, 9, resource=RESOURCE)
    with Session(engine) as session:
        assert [report.body for report in session.scalars(sqlalchemy.select(Report))] == [""]


def test_pending_changes_of_the_owner(engine: sqlalchemy.Engine) -> None:
    """They are written at the commit, with the check."""
    with Session(engine) as session, session.begin():
        guard.check(session, 10, resource=RESOURCE)
        session.get_one(Report, 42).body = "of the owner"
    with Session(engine) as session:
        assert session.get_one(Report, 42).body == "of the owner"


def test_an_object_after_update(engine: sqlalchemy.Engine) -> None:
    """``update`` goes past the objects of the session: what was loaded before is old until it is refreshed."""
    change: dict[str, Any] = {"key": {"id": 42}, "values": {"body": "new"}, "lease": 10, "resource": RESOURCE}
    with Session(engine) as session, session.begin():
        report = session.get_one(Report, 42)
        guard.update(session, Report.__table__, **change)
        assert report.body == ""
        session.refresh(report)
        assert (report.body, report.last_fencing_token) == ("new", 10)


def test_an_object_from_before_the_check(engine: sqlalchemy.Engine) -> None:
    """What a session loaded before the check it does not read again by itself: check first, or refresh."""
    with Session(engine, expire_on_commit=False) as session:
        with session.begin():
            report = session.get_one(Report, 42)
        with engine.begin() as other:
            guard.check(other, 10, resource=RESOURCE)
            other.execute(sqlalchemy.update(Report).values(body="of another"))
        with session.begin():
            guard.check(session, 11, resource=RESOURCE)
            assert session.get_one(Report, 42).body == ""  # the trap
            session.refresh(report)
            assert report.body == "of another"


def test_an_async_scoped_session(tmp_path: Any) -> None:
    """The session of a task, as web frameworks keep it."""
    from sqlalchemy.ext.asyncio import async_scoped_session, async_sessionmaker, create_async_engine

    async def work() -> None:
        engine = create_async_engine(f"sqlite+aiosqlite:///{tmp_path / 'app.db'}")
        session: Any = async_scoped_session(async_sessionmaker(engine), scopefunc=asyncio.current_task)
        await guard.create(session)
        await guard.check(session, 10, resource=RESOURCE)
        await session.commit()
        with pytest.raises(StaleOwner):
            await guard.check(session, 9, resource=RESOURCE)
        await session.remove()
        await engine.dispose()

    asyncio.run(work())


def test_an_orm_class_is_no_table(engine: sqlalchemy.Engine) -> None:
    """Its ``__table__`` is."""
    with Session(engine) as session, pytest.raises(InvalidRequest, match="a name or a SQLAlchemy Table"):
        guard.update(session, Report, key={"id": 42}, values={}, lease=10, resource=RESOURCE)


# ---------------------------------------------------------------- Django


@pytest.fixture
def django_default() -> Iterator[Any]:
    """``django.db.connection`` itself, on a database in memory."""
    with closing(desks.django_connection(":memory:")):
        from django.db import connection, transaction

        with transaction.atomic():
            guard.create(connection)
            yield connection
            transaction.set_rollback(True)
        connection.close()


def test_the_connection_of_django(django_default: Any) -> None:
    """The proxy that everybody imports is as good as the connection behind it."""
    guard.check(django_default, 10, resource=RESOURCE)
    with pytest.raises(StaleOwner):
        guard.check(django_default, 9, resource=RESOURCE)


def test_djangos_test_case(django_default: Any) -> None:
    """Inside a TestCase, which wraps every test in atomic(), checks work and are gone after the test."""
    from django.test import TestCase

    class Reports(TestCase):  # type: ignore[misc] # Django has no types
        def test_guarded(self) -> None:
            from django.db import transaction

            assert not seen(django_default)
            with transaction.atomic():
                guard.check(django_default, 10, resource=RESOURCE)
            with pytest.raises(StaleOwner), transaction.atomic():
                guard.check(django_default, 9, resource=RESOURCE)
            assert seen(django_default)

        test_again = test_guarded

    suite, result = unittest.defaultTestLoader.loadTestsFromTestCase(Reports), unittest.TestResult()
    suite.run(result)
    assert (result.testsRun, result.failures, result.errors) == (2, [], [])


def seen(connection: Any) -> list[Any]:
    """What the guard remembers."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT * FROM leasehold_fences")
        return list(cursor.fetchall())


def test_a_block_of_django_that_must_roll_back(django_default: Any) -> None:
    """After an error inside atomic() Django lets nothing through: said before anything is sent."""
    from django.db import transaction

    with transaction.atomic():
        transaction.set_rollback(True)
        with pytest.raises(InvalidRequest, match="roll back"):
            guard.check(django_default, 10, resource=RESOURCE)
    guard.check(django_default, 10, resource=RESOURCE)
