"""Which adapter fits the connection that the user passed. Drivers are optional: a class is known by its package."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from functools import lru_cache
from typing import Any, Protocol

from leasehold._sql.adapters import DRIVERS, Adapter, AlchemyAdapter, DjangoAdapter, dbapi_adapter, is_django
from leasehold._sql.async_adapters import ASYNC_DRIVERS, AsyncAdapter, AsyncAlchemyConnection
from leasehold.errors import InvalidRequest

AnyAdapter = Adapter | AsyncAdapter | AsyncAlchemyConnection
Make = Callable[[Any], AnyAdapter | None]  # None: it is not a connection


class Transaction(Protocol):
    """A connection or session of yours: sqlite3, psycopg, PyMySQL, SQLAlchemy, Django."""

    def close(self) -> None: ...


class AsyncTransaction(Protocol):
    """One that is awaited: psycopg, asyncpg, aiosqlite, SQLAlchemy."""

    def close(self) -> Awaitable[Any]: ...


def adapter_for(tx: Any, dialect: str | None = None) -> AnyAdapter:
    """The adapter for a connection. ``dialect`` is for a DB-API driver that is not known. Raises InvalidRequest."""
    make = _known(type(tx))  # type: ignore[arg-type]  # mypy takes a class with a metaclass of its own for unhashable
    found = _unknown(tx, dialect) if make is None else make(tx)
    if found is None:
        raise InvalidRequest(
            "this works inside your own transaction: pass a connection of sqlite3, psycopg, PyMySQL, mariadb, "
            "asyncpg, aiosqlite, SQLAlchemy 2 or Django, or a session of SQLAlchemy's, and no engine, pool or cursor; "
            f"a guard takes another driver with FenceGuard(dialect=...). This is {_class_name(tx)}"
        )
    return found


@lru_cache(maxsize=64)  # classes of connections, of which a program has few: none is looked at twice
def _known(cls: type) -> Make | None:
    """What makes the adapter for connections of this class, which may be the user's own and derive from a driver's.
    None: it derives from no class that is known."""
    for base in cls.__mro__:
        package = _package(base)
        if package == "sqlalchemy":
            return _alchemy(cls)
        if package in ASYNC_DRIVERS and (package != "psycopg" or base.__name__.startswith("Async")):
            return ASYNC_DRIVERS[package] if "Connection" in base.__name__ else _no_connection
        if package in DRIVERS:
            return DRIVERS[package] if hasattr(cls, "commit") else _no_connection
    return None


def _no_connection(tx: Any) -> None:
    """A pool, a cursor, an engine."""


def _unknown(tx: Any, dialect: str | None) -> Adapter | None:
    """Django's, whose ``connection`` stands for another object; or one of a driver whose dialect the user has named."""
    return DjangoAdapter(tx) if is_django(tx) else dbapi_adapter(tx, _package(type(tx)), dialect)


def _alchemy(cls: type) -> Make:
    core, orm, asynchronous = (
        sys.modules.get(name) for name in ("sqlalchemy", "sqlalchemy.orm", "sqlalchemy.ext.asyncio")
    )
    if issubclass(cls, getattr(core, "Connection", ())):
        return AlchemyAdapter
    if orm is not None and issubclass(cls, (orm.Session, orm.scoped_session)):
        return lambda session: AlchemyAdapter(session.connection())  # which begins a transaction where none is open
    if asynchronous is not None and issubclass(cls, asynchronous.async_scoped_session):
        return lambda scoped: AsyncAlchemyConnection(scoped())
    return AsyncAlchemyConnection if callable(getattr(cls, "run_sync", None)) else _no_connection


def _package(cls: type) -> str:
    return cls.__module__.partition(".")[0]


def _class_name(tx: object) -> str:
    return f"{_package(type(tx))}.{type(tx).__name__}".removeprefix("builtins.")
