"""A transaction of our own out of whatever the user has: an engine, a pool, something that connects, a file of SQLite.

``opened`` gives a function: ``begin(alone)`` is a context manager of one transaction. ``alone``: it is going to be one
statement, which PostgreSQL commits by itself; that saves the two round trips of BEGIN and COMMIT.
"""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, nullcontext
from inspect import isawaitable, iscoroutine
from os import PathLike, fspath
from typing import Any

from leasehold.errors import InvalidRequest

Begin = Callable[[bool], Any]
IDLE = 0  # libpq's word for a connection that is in no transaction

TAKES = (
    "an Engine of SQLAlchemy's, a pool of psycopg, or a function that connects or begins, such as engine.begin or "
    "lambda: sqlite3.connect('app.db')"
)


def opened(engine: Any, awaited: bool) -> Begin:
    """Known by what it can do; a driver is never imported here."""
    if isinstance(engine, str | PathLike) and not awaited:
        return _file(fspath(engine))
    name = type(engine).__name__
    later = any(
        cls.__name__.startswith(("Async", "async_")) or cls.__module__.startswith("asyncpg")
        for cls in type(engine).__mro__
    )
    _require_flavour(later, awaited, known=later or not callable(engine) or hasattr(engine, "begin"))
    begin, alone = _beginnings(engine, awaited)
    if begin is None:
        raise InvalidRequest(f"engine is {TAKES}, not {name}")
    through = _awaited if awaited else _plain
    return lambda one: through(alone if one else begin, one)


def _beginnings(engine: Any, awaited: bool) -> tuple[Any, Any]:
    """What begins a transaction, and what lends a connection for one statement."""
    if callable(getattr(engine, "begin", None)):
        dialect = getattr(getattr(engine, "dialect", None), "name", "")
        if dialect == "postgresql" and callable(getattr(engine, "execution_options", None)):
            return engine.begin, engine.execution_options(isolation_level="AUTOCOMMIT").begin
        return engine.begin, engine.begin
    if callable(getattr(engine, "connection", None)):
        return engine.connection, engine.connection
    if awaited and callable(getattr(engine, "acquire", None)):
        return engine.acquire, engine.acquire
    return (engine, engine) if callable(engine) else (None, None)


def _file(path: str) -> Begin:
    if "://" in path:
        raise InvalidRequest(f"a URL is for create_engine: engine is {TAKES}, or the path of a SQLite file")
    if path in {"", ":memory:"}:
        raise InvalidRequest("a database in memory belongs to one connection: give the path of a file")
    return lambda one: _plain(lambda: sqlite3.connect(path), one)


def _require_flavour(later: bool, awaited: bool, known: bool) -> None:
    if known and later != awaited:
        raise _other_flavour(later)


def _other_flavour(later: bool) -> InvalidRequest:
    if later:
        return InvalidRequest("this engine is awaited: give it to AsyncJobs, or Jobs one that is not")
    return InvalidRequest("this engine blocks the event loop: give it to Jobs, or AsyncJobs one that is awaited")


# ---------------------------------------------------------------- one transaction, on a thread


@contextmanager
def _plain(call: Callable[[], Any], alone: bool) -> Iterator[Any]:
    thing = call()
    if iscoroutine(thing):
        thing.close()
        raise _other_flavour(True)
    if hasattr(thing, "__aenter__") and not hasattr(thing, "__enter__"):
        raise _other_flavour(True)
    if hasattr(thing, "commit") and hasattr(thing, "close"):
        manager: Any = _own(thing)
    elif hasattr(thing, "__enter__"):
        manager = thing
    else:
        raise _no_connection(thing)
    with manager as tx, _by_itself(tx) if alone else _begun(tx):
        yield tx


@contextmanager
def _own(connection: Any) -> Iterator[Any]:
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


def _begun(connection: Any) -> Any:
    """A transaction on a connection that would commit each statement."""
    if _psycopg(connection, autocommit=True):
        return connection.transaction()
    if isinstance(connection, sqlite3.Connection) and connection.isolation_level is None:
        connection.execute("BEGIN IMMEDIATE")
    elif _of("pymysql", connection) and connection.get_autocommit():
        connection.begin()
    return nullcontext()


@contextmanager
def _by_itself(connection: Any) -> Iterator[None]:
    """psycopg: a connection in no transaction is in autocommit for this statement. Nothing is sent for that."""
    if not _psycopg(connection):
        yield
        return
    connection.autocommit = True
    try:
        yield
    finally:
        if not connection.closed:
            connection.autocommit = False


def _psycopg(connection: Any, autocommit: bool = False) -> bool:
    return (
        _of("psycopg", connection)
        and connection.autocommit is autocommit
        and connection.info.transaction_status == IDLE
    )


def _of(package: str, connection: object) -> bool:
    """The user's own class may stand before the driver's."""
    return any(cls.__module__.partition(".")[0] == package for cls in type(connection).__mro__)


def _no_connection(thing: object) -> InvalidRequest:
    return InvalidRequest(f"engine is {TAKES}; what it gave is {type(thing).__name__}")


# ---------------------------------------------------------------- and on an event loop


@asynccontextmanager
async def _awaited(call: Callable[[], Any], alone: bool) -> AsyncIterator[Any]:
    thing = call()
    if hasattr(thing, "__aenter__") and not hasattr(thing, "commit"):
        manager: Any = thing
    elif isawaitable(thing):
        manager = _own_awaited(thing)
    elif hasattr(thing, "__aenter__"):
        manager = thing
    else:
        blocks = hasattr(thing, "__enter__") or hasattr(thing, "commit")
        raise _other_flavour(False) if blocks else _no_connection(thing)
    async with manager as tx, _quietly(tx, alone):
        yield tx


@asynccontextmanager
async def _own_awaited(opening: Awaitable[Any]) -> AsyncIterator[Any]:
    connection = await opening
    try:
        try:
            yield connection
        except BaseException:
            if hasattr(connection, "rollback"):
                await connection.rollback()
            raise
        if hasattr(connection, "commit"):
            await connection.commit()
    finally:
        await connection.close()


@asynccontextmanager
async def _quietly(connection: Any, alone: bool) -> AsyncIterator[None]:
    """asyncpg is in a transaction only where somebody begins one; psycopg is out of one only where somebody says so."""
    asyncpg = hasattr(connection, "is_in_transaction") and not connection.is_in_transaction()
    if not alone and (asyncpg or _psycopg(connection, autocommit=True)):
        async with connection.transaction():
            yield
    elif alone and _psycopg(connection):
        await connection.set_autocommit(True)
        try:
            yield
        finally:
            if not connection.closed:
                await connection.set_autocommit(False)
    else:
        yield
