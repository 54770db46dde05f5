"""What begins a transaction of its own: an engine, a pool, a file of SQLite, a connection of Django's, or a function
that connects or begins.

``beginning(thing)`` makes of each one function, which gives a context manager: it begins a transaction, gives its
connection, commits it, and rolls it back after an error. That is what ``asking.within`` takes. Called with ``alone`` it
is for one statement, which PostgreSQL commits by itself: that saves the two round trips of BEGIN and COMMIT.
"""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager, contextmanager
from functools import partial
from inspect import isawaitable, iscoroutinefunction
from os import PathLike, fspath
from typing import Any, Protocol

from leasehold.errors import InvalidRequest
from leasehold.guards.sql.django import is_django
from leasehold.patterns.tables.autocommit import begun, begun_awaited

Call = Callable[[], Any]
Require = Callable[[bool], None]

TAKES = (
    "what begins a transaction is an engine, a pool, the path of a SQLite file, or a function that connects or begins, "
    "such as engine.begin or lambda: sqlite3.connect(path)"
)


class Begin(Protocol):
    """Gives a context manager of a transaction."""

    def __call__(self, alone: bool = False) -> AbstractContextManager[Any] | AbstractAsyncContextManager[Any]: ...


def transactions_of(thing: Any, require: Require | None = None) -> Begin:
    """From an engine or a sessionmaker of SQLAlchemy's, sync or async, a pool of psycopg's or asyncpg's, the path of a
    SQLite file, a connection of Django's, or a function that gives a context manager of a transaction, or a connection:
    the latter is committed or rolled back, and closed, each time.

    ``require`` is told whether it must be awaited as soon as that shows, here or at each use, and may refuse. Things
    are known by what they can do; no driver is imported."""
    several, one = _calls(thing)
    _tell(require, thing, _shown(thing))

    def begin(alone: bool = False) -> Any:
        found = (one if alone else several)()
        _tell(require, found, _is_awaited(found))
        return _transaction(found, alone)

    return begin


def _calls(thing: Any) -> tuple[Call, Call]:
    """What begins a transaction, and what lends a connection for one statement."""
    if isinstance(thing, str | PathLike):
        return _twice(partial(sqlite3.connect, _path(fspath(thing))))
    if is_django(thing):
        return _twice(partial(_of_django, thing))
    if not is_connection(thing):
        for name in ("begin", "connection", "acquire"):
            lend = getattr(thing, name, None)
            if callable(lend):
                return lend, _by_itself(thing) or lend
        if callable(thing):
            return _twice(thing)
    raise InvalidRequest(f"{TAKES}, and not {type(thing).__name__}: a single connection serves one caller only")


def _twice(call: Call) -> tuple[Call, Call]:
    return call, call


def _by_itself(engine: Any) -> Call | None:
    """SQLAlchemy's own words for a connection that commits each statement."""
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
def _of_django(connection: Any) -> Iterator[Any]:
    from django.db import transaction

    with transaction.atomic(using=connection.alias):
        yield connection


# ---------------------------------------------------------------- awaited, or not


def _tell(require: Require | None, thing: Any, awaited: bool | None) -> None:
    if require is None or awaited is None:
        return
    try:
        require(awaited)
    except InvalidRequest:
        if isinstance(thing, Coroutine):
            thing.close()  # nobody will await it
        raise


def _shown(thing: Any) -> bool | None:
    """None: what a function gives shows when it is called."""
    if any(
        cls.__name__.startswith(("Async", "async_")) or cls.__module__.startswith("asyncpg")
        for cls in type(thing).__mro__
    ):
        return True
    return None if callable(thing) and not hasattr(thing, "begin") else False


def _is_awaited(found: Any) -> bool | None:
    """None: it is nothing that we know."""
    if isawaitable(found) or (is_connection(found) and iscoroutinefunction(found.commit)):
        return True
    if is_connection(found) or hasattr(found, "__enter__"):
        return False
    return True if hasattr(found, "__aenter__") else None


# ---------------------------------------------------------------- one transaction


def _transaction(found: Any, alone: bool) -> Any:
    """What was lent or given. Connections are often context managers too: each of another meaning."""
    owned = is_connection(found) or (isawaitable(found) and not hasattr(found, "__aenter__"))
    awaited = _is_awaited(found)
    if awaited is None:
        return found
    if awaited:
        return _within_awaited(_opened_awaited(found) if owned else found, alone)
    return _within(_opened(found) if owned else found, alone)


def is_connection(found: Any) -> bool:
    """Or the class of one."""
    return all(callable(getattr(found, name, None)) for name in ("commit", "rollback", "close"))


@contextmanager
def _within(manager: Any, alone: bool) -> Iterator[Any]:
    with manager as connection, begun(connection, alone):
        yield connection


@asynccontextmanager
async def _within_awaited(manager: Any, alone: bool) -> AsyncIterator[Any]:
    async with manager as connection, begun_awaited(connection, alone):
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
async def _opened_awaited(found: Any) -> AsyncIterator[Any]:
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
