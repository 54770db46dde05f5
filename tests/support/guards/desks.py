"""Every way to a transaction that the SQL guard knows: drivers, SQLAlchemy and Django, on three databases.

A desk opens transactions. What a test does in one goes through ``tx.do``, which awaits what must be awaited.
"""

from __future__ import annotations

import asyncio
import inspect
import itertools
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from functools import partial
from typing import Any

from leasehold.guards.sql import FenceGuard
from tests.support.servers.database import Database

Place = Database | str  # a server's database, or the path of a file
Call = Callable[[Any], Any]
Begin = Callable[["Desk"], AbstractContextManager["Tx"]]
# Without it PyMySQL reads every authority that the system trusts, 40 ms for each connection.
PLAIN: dict[str, Any] = {"ssl_disabled": True}
_numbers = itertools.count(1)


class Tx:
    """One transaction: ``raw`` is what a user would hand to the guard."""

    def __init__(self, raw: Any, runner: asyncio.Runner | None = None, execute: Call | None = None) -> None:
        self.raw = raw
        self._runner = runner
        self._execute = execute

    def do(self, call: Call) -> Any:
        """What the call gives; awaited, when that is how it is."""
        given = call(self.raw)
        if not inspect.isawaitable(given):
            assert self._runner is None, "a call on an async connection must be awaited"
            return given
        assert self._runner is not None, "nothing is awaited here"
        return self._runner.run(_awaited(given))

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        """Run a statement in this transaction; the rows that it gives."""
        execute = self._execute or _by_cursor
        return [tuple(row) for row in self.do(lambda raw: execute((raw, sql)))]


async def _awaited(given: Any) -> Any:
    return await given


def _by_cursor(job: tuple[Any, str]) -> list[Any]:
    raw, sql = job
    with closing(raw.cursor()) as cursor:
        cursor.execute(sql)
        return list(cursor.fetchall()) if cursor.description else []


class Desk:
    """One way, at one place, with a guard table and a data table of its own."""

    def __init__(self, place: Place, begin: Callable[[Desk, ExitStack], Tx]) -> None:
        self.place = place
        self._begin = begin
        self.number = next(_numbers)
        self.guard = FenceGuard(f"fences_{self.number}")
        self.reports = f"reports_{self.number}"
        self.stack = ExitStack()
        self.kept: dict[str, Any] = {}

    @property
    def one_at_a_time(self) -> bool:
        """An event loop, and a connection of Django's, serve one thread."""
        return bool({"runner", "django"} & set(self.kept))

    def begin(self) -> AbstractContextManager[Tx]:
        """A transaction that commits at its end, and rolls back on an error."""
        return self._transaction()

    @contextmanager
    def _transaction(self) -> Iterator[Tx]:
        with ExitStack() as stack:
            yield self._begin(self, stack)

    def prepare(self) -> None:
        """Make the tables, and one row that is worth guarding."""
        with self.begin() as tx:
            tx.do(self.guard.create)
            tx.rows(
                f"CREATE TABLE {self.reports} (report_id INTEGER PRIMARY KEY, body VARCHAR(100), exports INTEGER, "
                "last_fencing_token BIGINT, last_owner VARCHAR(32))"
            )
            tx.rows(f"INSERT INTO {self.reports} (report_id, body, exports) VALUES (42, '', 0)")

    def seen(self) -> list[tuple[Any, ...]]:
        """What the guard remembers."""
        with self.begin() as tx:
            return tx.rows(f"SELECT resource, fence, owner FROM {self.guard.table}")

    def report(self) -> tuple[Any, ...]:
        """The row that is worth guarding: body, exports, fence, owner."""
        with self.begin() as tx:
            found = tx.rows(f"SELECT body, exports, last_fencing_token, last_owner FROM {self.reports}")
        assert len(found) == 1
        return found[0]

    def keep(self, name: str, make: Callable[[], Any], close: Callable[[Any], object]) -> Any:
        """Something that is made once, such as an engine, and closed with the desk."""
        if name not in self.kept:
            self.kept[name] = made = make()
            self.stack.callback(close, made)
        return self.kept[name]

    def runner(self) -> asyncio.Runner:
        """An event loop of this desk's own."""
        runner: asyncio.Runner = self.keep("runner", asyncio.Runner, lambda one: one.close())
        return runner

    def close(self) -> None:
        """Nothing stays open."""
        self.stack.close()


# ---------------------------------------------------------------- drivers


def by_sqlite3(desk: Desk, stack: ExitStack) -> Tx:
    """As it comes: it begins on its own."""
    connection = stack.enter_context(closing(sqlite3.connect(str(desk.place), timeout=30)))
    return Tx(stack.enter_context(connection))


def by_psycopg(desk: Desk, stack: ExitStack) -> Tx:
    """As it comes."""
    import psycopg

    return Tx(stack.enter_context(psycopg.connect(_database(desk).dsn)))


def by_psycopg_rows(desk: Desk, stack: ExitStack) -> Tx:
    """In autocommit, with a transaction that the user began, and rows that are dictionaries."""
    import psycopg
    from psycopg.rows import dict_row

    connection: Any = psycopg.connect(_database(desk).dsn, autocommit=True, row_factory=dict_row)
    stack.enter_context(connection)
    stack.enter_context(connection.transaction())
    return Tx(connection, None, lambda job: [tuple(row.values()) for row in _by_cursor(job)])


def by_psycopg2(desk: Desk, stack: ExitStack) -> Tx:
    """With rows that look like dictionaries."""
    import psycopg2
    import psycopg2.extras

    connection = psycopg2.connect(_database(desk).dsn, cursor_factory=psycopg2.extras.DictCursor)
    stack.callback(connection.close)
    return Tx(stack.enter_context(connection))


def by_pymysql(desk: Desk, stack: ExitStack) -> Tx:
    """As it comes."""
    import pymysql

    connection = stack.enter_context(pymysql.connect(**_database(desk).parameters, **PLAIN))
    stack.push(_ends(connection.commit, connection.rollback))
    return Tx(connection)


def by_pymysql_begin(desk: Desk, stack: ExitStack) -> Tx:
    """In autocommit, with a transaction that the user began, and rows that are dictionaries."""
    import pymysql.cursors

    more: dict[str, Any] = {**PLAIN, "autocommit": True, "cursorclass": pymysql.cursors.DictCursor}
    connection = stack.enter_context(pymysql.connect(**_database(desk).parameters, **more))
    connection.begin()
    stack.push(_ends(connection.commit, connection.rollback))
    return Tx(connection, None, lambda job: [tuple(row.values()) for row in _by_cursor(job)])


def by_mariadb(desk: Desk, stack: ExitStack) -> Tx:
    """MariaDB's own connector, as it comes."""
    import mariadb

    connection: Any = mariadb.connect(**_database(desk).parameters)
    stack.callback(connection.close)
    stack.push(_ends(connection.commit, connection.rollback))
    return Tx(connection)


# ---------------------------------------------------------------- drivers that are awaited


def by_async_psycopg(desk: Desk, stack: ExitStack) -> Tx:
    """As it comes."""
    import psycopg

    runner = desk.runner()
    connection = runner.run(psycopg.AsyncConnection.connect(_database(desk).dsn))
    return Tx(_entered(connection, stack, runner), runner, _by_async_cursor)


def by_asyncpg(desk: Desk, stack: ExitStack) -> Tx:
    """Inside a transaction that the user began."""
    import asyncpg

    runner = desk.runner()
    connection: Any = runner.run(asyncpg.connect(_database(desk).dsn))
    stack.callback(lambda: runner.run(connection.close()))
    _entered(connection.transaction(), stack, runner)
    return Tx(connection, runner, lambda job: job[0].fetch(job[1]))


def by_asyncpg_pool(desk: Desk, stack: ExitStack) -> Tx:
    """A connection that a pool lends."""
    import asyncpg

    runner = desk.runner()

    async def lend() -> Any:
        pool = await asyncpg.create_pool(_database(desk).dsn, min_size=1, max_size=1)
        return pool, await pool.acquire()

    pool, connection = runner.run(lend())
    stack.callback(lambda: runner.run(pool.close()))
    stack.callback(lambda: runner.run(_awaited(pool.release(connection))))
    _entered(connection.transaction(), stack, runner)
    return Tx(connection, runner, lambda job: job[0].fetch(job[1]))


def by_aiosqlite(desk: Desk, stack: ExitStack) -> Tx:
    """As it comes: it begins on its own."""
    import aiosqlite

    runner = desk.runner()

    async def opened() -> aiosqlite.Connection:
        return await aiosqlite.connect(str(desk.place), timeout=30)

    connection = runner.run(opened())
    stack.callback(lambda: runner.run(connection.close()))
    stack.push(_ends(lambda: runner.run(connection.commit()), lambda: runner.run(connection.rollback())))
    return Tx(connection, runner, lambda job: job[0].execute_fetchall(job[1]))


async def _by_async_cursor(job: tuple[Any, str]) -> list[Any]:
    raw, sql = job
    cursor = await raw.execute(sql)
    return list(await cursor.fetchall()) if cursor.description else []


# ---------------------------------------------------------------- SQLAlchemy


def alchemy(driver: str, scheme: str | None = None, session: bool = False) -> Callable[[Desk, ExitStack], Tx]:
    """A connection or a session of an engine on that driver."""

    def begin(desk: Desk, stack: ExitStack) -> Tx:
        import sqlalchemy
        from sqlalchemy.orm import Session

        url, more = _url(desk, driver, scheme), PLAIN if driver == "pymysql" else {}
        make = partial(sqlalchemy.create_engine, url, connect_args=more)
        engine = desk.keep("engine", make, lambda one: one.dispose())
        if not session:
            return Tx(stack.enter_context(engine.begin()), None, _by_text)
        opened = stack.enter_context(Session(engine))
        stack.enter_context(opened.begin())
        return Tx(opened, None, _by_text)

    return begin


def async_alchemy(driver: str, scheme: str | None = None, session: bool = False) -> Callable[[Desk, ExitStack], Tx]:
    """The same, awaited."""

    def begin(desk: Desk, stack: ExitStack) -> Tx:
        from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine

        runner, url = desk.runner(), _url(desk, driver, scheme)
        engine = desk.keep("engine", lambda: create_async_engine(url), lambda one: runner.run(one.dispose()))
        if not session:
            return Tx(_entered(engine.begin(), stack, runner), runner, _by_text)
        opened = _entered(AsyncSession(engine), stack, runner)
        _entered(opened.begin(), stack, runner)
        return Tx(opened, runner, _by_text)

    return begin


def _by_text(job: tuple[Any, str]) -> Any:
    import sqlalchemy

    raw, sql = job
    result = raw.execute(sqlalchemy.text(sql))
    if inspect.isawaitable(result):
        return _rows_of(result)
    return result.fetchall() if result.returns_rows else []


async def _rows_of(result: Any) -> Any:
    result = await result
    return result.fetchall() if result.returns_rows else []


def _url(desk: Desk, driver: str, scheme: str | None) -> str:
    if isinstance(desk.place, str):
        return f"sqlite+{driver}:///{desk.place}?timeout=30"
    return desk.place.sqlalchemy_url(driver, scheme)


# ---------------------------------------------------------------- Django


def by_django(desk: Desk, stack: ExitStack) -> Tx:
    """A connection of Django's, inside atomic()."""
    from django.db import transaction

    connection = desk.keep("django", lambda: django_connection(desk.place), lambda one: one.close())
    stack.enter_context(transaction.Atomic(using=connection.alias, savepoint=True, durable=False))
    return Tx(connection)


def django_connection(place: Place) -> Any:
    """One of an alias of its own."""
    import django
    from django.conf import settings
    from django.db import connections

    if not settings.configured:
        settings.configure(DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}})
        django.setup()
    alias = f"desk_{next(_numbers)}"
    if isinstance(place, str):
        what: dict[str, Any] = {"ENGINE": "sqlite3", "NAME": place, "OPTIONS": {"timeout": 30}}
    else:
        what = {
            "ENGINE": "postgresql" if place.scheme == "postgresql" else "mysql",
            "NAME": place.name, "USER": place.user, "PASSWORD": place.password, "HOST": place.host, "PORT": place.port,
        }  # fmt: skip
    if what["ENGINE"] == "mysql":
        import pymysql

        pymysql.install_as_MySQLdb()
        what["OPTIONS"] = PLAIN
    connections.settings[alias] = {
        **connections.settings["default"],
        **what,
        "ENGINE": f"django.db.backends.{what['ENGINE']}",
    }
    connections.configure_settings(connections.settings)
    return connections[alias]


# ---------------------------------------------------------------- all of them


def _database(desk: Desk) -> Database:
    assert isinstance(desk.place, Database)
    return desk.place


def _entered(manager: Any, stack: ExitStack, runner: asyncio.Runner) -> Any:
    """Enter an async context manager; it is left with the stack, and hears of the error."""
    entered = runner.run(_awaited(manager.__aenter__()))

    def leave(*failure: Any) -> None:
        runner.run(_awaited(manager.__aexit__(*failure)))

    stack.push(leave)
    return entered


def _ends(commit: Callable[[], object], rollback: Callable[[], object]) -> Callable[..., None]:
    def end(kind: object, *_: object) -> None:
        if kind is None:
            commit()
        else:
            rollback()

    return end


WAYS: dict[str, dict[str, Callable[[Desk, ExitStack], Tx]]] = {
    "sqlite": {
        "sqlite3": by_sqlite3,
        "aiosqlite": by_aiosqlite,
        "sqlalchemy": alchemy("pysqlite"),
        "session": alchemy("pysqlite", session=True),
        "async-sqlalchemy": async_alchemy("aiosqlite"),
        "async-session": async_alchemy("aiosqlite", session=True),
        "django": by_django,
    },
    "postgresql": {
        "psycopg": by_psycopg,
        "psycopg-begun": by_psycopg_rows,
        "psycopg2": by_psycopg2,
        "async-psycopg": by_async_psycopg,
        "asyncpg": by_asyncpg,
        "asyncpg-pool": by_asyncpg_pool,
        "sqlalchemy": alchemy("psycopg"),
        "session": alchemy("psycopg2", session=True),
        "async-sqlalchemy": async_alchemy("asyncpg"),
        "async-session": async_alchemy("psycopg", session=True),
        "django": by_django,
    },
    "mariadb": {
        "pymysql": by_pymysql,
        "pymysql-begun": by_pymysql_begin,
        "connector": by_mariadb,
        "sqlalchemy": alchemy("pymysql"),
        "sqlalchemy-mariadb": alchemy("pymysql", "mariadb"),
        "session": alchemy("pymysql", session=True),
        "async-sqlalchemy": async_alchemy("aiomysql"),
        "django": by_django,
    },
}
NAMES = [f"{database}-{way}" for database, ways in WAYS.items() for way in ways]


def open_desk(name: str, place: Place) -> Desk:
    """The desk of that name; its tables are there."""
    database, _, way = name.partition("-")
    desk = Desk(place, WAYS[database][way])
    desk.prepare()
    return desk
