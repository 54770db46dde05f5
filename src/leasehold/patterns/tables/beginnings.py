"""What begins a transaction of its own: an engine, a pool, a connection of Django's, or a function that gives either.

``beginning(thing)`` makes of each one function, which gives a context manager: it begins a transaction, gives its
connection, commits it, and rolls it back after an error. That is what ``asking.within`` takes.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager, contextmanager
from typing import Any

from leasehold.errors import InvalidRequest
from leasehold.guards.sql.django import is_django

Begin = Callable[[], AbstractContextManager[Any] | AbstractAsyncContextManager[Any]]


def beginning(thing: Any) -> Begin:
    """From an engine or a sessionmaker of SQLAlchemy's, sync or async, a pool of psycopg's or asyncpg's, a connection
    of Django's, or a function that gives a context manager of a transaction, or a connection: the latter is committed
    or rolled back, and closed, each time."""
    package = _package(thing)
    if package == "sqlalchemy" and _makes_connections(thing):
        begin: Begin = thing.begin
        return begin
    if package == "psycopg_pool":
        lend: Begin = thing.connection
        return lend
    if package == "asyncpg" and hasattr(thing, "acquire"):
        return lambda: _of_asyncpg_pool(thing)
    if is_django(thing):
        return lambda: _of_django(thing)
    if not callable(thing) or inspect.isclass(thing) or _is_connection(thing):
        raise InvalidRequest(
            "what begins a transaction is an engine, a pool, or a function that gives one, such as engine.begin or "
            f"lambda: sqlite3.connect(path), and not {type(thing).__name__}: a single connection serves one caller only"
        )
    return lambda: _given(thing())


def _makes_connections(thing: Any) -> bool:
    """An engine, or a sessionmaker; a connection and a session have a ``begin`` too, and are one caller's."""
    return hasattr(thing, "begin") and not hasattr(thing, "commit")


def _given(found: Any) -> Any:
    """What a function of the user's gave. Connections are often context managers too: each of another meaning."""
    if inspect.isawaitable(found) and (_is_connection(found) or not hasattr(found, "__aenter__")):
        return _opened_awaited(found)
    if _is_connection(found):
        return _opened_awaited(found) if inspect.iscoroutinefunction(found.commit) else _opened(found)
    return found


def _is_connection(found: Any) -> bool:
    return all(callable(getattr(found, name, None)) for name in ("commit", "rollback", "close"))


@contextmanager
def _opened(connection: Any) -> Iterator[Any]:
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
        if not _is_connection(connection):  # asyncpg: it commits what it has begun
            async with connection.transaction():
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


@asynccontextmanager
async def _of_asyncpg_pool(pool: Any) -> AsyncIterator[Any]:
    async with pool.acquire() as connection, connection.transaction():
        yield connection


@contextmanager
def _of_django(connection: Any) -> Iterator[Any]:
    from django.db import transaction

    with transaction.atomic(using=connection.alias):
        yield connection


def _package(thing: object) -> str:
    known = ("sqlalchemy", "psycopg_pool", "asyncpg")
    for cls in type(thing).__mro__:
        package = cls.__module__.partition(".")[0]
        if package in known:
            return package
    return ""
