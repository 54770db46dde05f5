"""Transactions of our own: from an engine, a pool, a SQLite file, a Django connection, or a function that connects or
begins.

``transactions_of(thing)`` makes one function of each, which ``run_within`` takes: it gives a context manager that
begins a transaction, gives its connection, commits it, and rolls it back after an error. Called with ``autocommit`` it
is for one statement, which PostgreSQL commits by itself: that saves the two round trips of BEGIN and COMMIT.
"""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    asynccontextmanager,
    contextmanager,
    nullcontext,
)
from functools import partial
from inspect import isawaitable, iscoroutinefunction
from os import PathLike, fspath
from typing import Any, Protocol

from leasehold._sql.adapters import IN_TRANSACTION, PG_IDLE, autocommits, is_django
from leasehold.errors import InvalidRequest

Call = Callable[[], Any]
Require = Callable[[bool], None]

TAKES = (
    "what begins a transaction is an engine, a pool, the path of a SQLite file, or a function that connects or begins, "
    "such as engine.begin or lambda: sqlite3.connect(path)"
)


class BeginTransaction(Protocol):
    """Gives a context manager of a transaction, or with ``autocommit`` of a connection for one statement."""

    def __call__(self, autocommit: bool = False) -> AbstractContextManager[Any] | AbstractAsyncContextManager[Any]: ...


def transactions_of(thing: Any, require: Require | None = None) -> BeginTransaction:
    """From an engine or a sessionmaker of SQLAlchemy, sync or async, a pool of psycopg or asyncpg, the path of a SQLite
    file, a Django connection, or a function that gives a context manager of a transaction, or a connection: the latter
    is committed or rolled back, and closed, each time.

    ``require`` is called with whether it must be awaited as soon as that is known, here or at each use, and may refuse
    it. Things are recognised by their methods; no driver is imported."""
    begin_transaction, lend = _calls(thing)
    _require(require, thing, _needs_await(thing))

    def begin(autocommit: bool = False) -> Any:
        found = (lend if autocommit else begin_transaction)()
        _require(require, found, _is_async(found))
        return _transaction(found, autocommit)

    return begin


def _calls(thing: Any) -> tuple[Call, Call]:
    """What begins a transaction, and what lends a connection for one statement."""
    if isinstance(thing, str | PathLike):
        return _twice(partial(sqlite3.connect, _path(fspath(thing))))
    if is_django(thing):
        return _twice(partial(_django_transaction, thing))
    if not is_connection(thing):
        for name in ("begin", "connection", "acquire"):
            lend = getattr(thing, name, None)
            if callable(lend):
                return lend, _autocommit_engine(thing) or lend
        if callable(thing):
            return _twice(thing)
    raise InvalidRequest(f"{TAKES}, and not {type(thing).__name__}: a single connection serves one caller only")


def _twice(call: Call) -> tuple[Call, Call]:
    return call, call


def _autocommit_engine(engine: Any) -> Call | None:
    """On PostgreSQL, a SQLAlchemy engine whose connections commit each statement."""
    dialect = getattr(getattr(engine, "dialect", None), "name", "")
    if dialect != "postgresql" or not callable(getattr(engine, "execution_options", None)):
        return None
    call: Call = engine.execution_options(isolation_level="AUTOCOMMIT").begin
    return call


def _path(path: str) -> str:
    if "://" in path:
        raise InvalidRequest(f"a URL is for create_engine: {TAKES}")
    if path in {"", ":memory:"}:
        raise InvalidRequest("a database in memory belongs to one connection: give the path of a file")
    return path


@contextmanager
def _django_transaction(connection: Any) -> Iterator[Any]:
    from django.db import transaction

    with transaction.atomic(using=connection.alias):
        yield connection


# ---------------------------------------------------------------- awaited, or not


def _require(require: Require | None, thing: Any, awaited: bool | None) -> None:
    if require is None or awaited is None:
        return
    try:
        require(awaited)
    except InvalidRequest:
        if isinstance(thing, Coroutine):
            thing.close()  # it will never be awaited
        raise


def _needs_await(thing: Any) -> bool | None:
    """None: it is a function, and what it gives is known when it is called."""
    if any(
        cls.__name__.startswith(("Async", "async_")) or cls.__module__.startswith("asyncpg")
        for cls in type(thing).__mro__
    ):
        return True
    return None if callable(thing) and not hasattr(thing, "begin") else False


def _is_async(found: Any) -> bool | None:
    """None: it is neither a connection nor a context manager."""
    if isawaitable(found) or (is_connection(found) and iscoroutinefunction(found.commit)):
        return True
    if is_connection(found) or hasattr(found, "__enter__"):
        return False
    return True if hasattr(found, "__aenter__") else None


# ---------------------------------------------------------------- one transaction


def _transaction(found: Any, autocommit: bool) -> Any:
    """The context manager for what was lent or opened. Connections are often context managers too, and each driver's
    means something else: an opened one is not used as such."""
    opened = is_connection(found) or (isawaitable(found) and not hasattr(found, "__aenter__"))
    asynchronous = _is_async(found)
    if asynchronous is None:
        return found
    if asynchronous:
        return _begun_async(_opened_async(found) if opened else found, autocommit)
    return _begun(_opened(found) if opened else found, autocommit)


def is_connection(found: Any) -> bool:
    """Is it a connection, or the class of one?"""
    return all(callable(getattr(found, name, None)) for name in ("commit", "rollback", "close"))


@contextmanager
def _begun(manager: Any, autocommit: bool) -> Iterator[Any]:
    enter = _statement_alone if autocommit else _explicit
    with manager as connection, enter(connection):
        yield connection


@asynccontextmanager
async def _begun_async(manager: Any, autocommit: bool) -> AsyncIterator[Any]:
    enter = _statement_alone_async if autocommit else _explicit_async
    async with manager as connection, enter(connection):
        yield connection


@contextmanager
def _opened(connection: Any) -> Iterator[Any]:
    """A connection that was opened for this: committed, or rolled back, and closed."""
    try:
        try:
            yield connection
        except BaseException:
            connection.rollback()
            raise
        connection.commit()
    finally:
        connection.close()


@asynccontextmanager
async def _opened_async(found: Any) -> AsyncIterator[Any]:
    connection = await found if isinstance(found, Awaitable) else found
    try:
        if not is_connection(connection):  # asyncpg: it commits what is begun on it
            yield connection
            return
        try:
            yield connection
        except BaseException:
            await connection.rollback()
            raise
        await connection.commit()
    finally:
        await connection.close()


# ---------------------------------------------------------------- connections in autocommit
#
# A transaction is begun on a connection that would commit each statement; and the reverse, where one statement is all
# there is to do. The connection is left as it was.


def _explicit(connection: Any) -> Any:
    """A context manager: inside it the connection is in a transaction."""
    if _is_idle_psycopg(connection, autocommit=True):
        return connection.transaction()
    if isinstance(connection, sqlite3.Connection):
        if connection.isolation_level is None and not connection.in_transaction:
            connection.execute("BEGIN IMMEDIATE")
    elif _is_of("pymysql", connection) and autocommits(connection) and not connection.server_status & IN_TRANSACTION:
        connection.begin()
    return nullcontext()


def _explicit_async(connection: Any) -> Any:
    """The same, awaited. asyncpg is in a transaction only where one is begun."""
    asyncpg = hasattr(connection, "is_in_transaction") and not connection.is_in_transaction()
    if asyncpg or _is_idle_psycopg(connection, autocommit=True):
        return connection.transaction()
    return nullcontext()


@contextmanager
def _statement_alone(connection: Any) -> Iterator[None]:
    """A psycopg connection in no transaction is in autocommit for one statement. Nothing is sent for that."""
    switched = _is_idle_psycopg(connection, autocommit=False)
    if switched:
        connection.autocommit = True
    try:
        yield
    finally:
        if switched and not connection.closed:
            connection.autocommit = False


@asynccontextmanager
async def _statement_alone_async(connection: Any) -> AsyncIterator[None]:
    """The same, awaited."""
    switched = _is_idle_psycopg(connection, autocommit=False)
    if switched:
        await connection.set_autocommit(True)
    try:
        yield
    finally:
        if switched and not connection.closed:
            await connection.set_autocommit(False)


def _is_idle_psycopg(connection: Any, *, autocommit: bool) -> bool:
    return (
        _is_of("psycopg", connection)
        and connection.autocommit is autocommit
        and connection.info.transaction_status == PG_IDLE
    )


def _is_of(package: str, connection: object) -> bool:
    """Is it a connection of this driver? The user's own class may derive from the driver's."""
    return any(cls.__module__.partition(".")[0] == package for cls in type(connection).__mro__)
