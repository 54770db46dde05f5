"""Which adapter fits the connection that the user passed. Drivers are optional: a class is known by its package."""

from __future__ import annotations

import sys
from collections.abc import Awaitable
from typing import Any, Protocol

from leasehold._sql.adapters import DRIVERS, Adapter, AlchemyAdapter, DjangoAdapter, dbapi_adapter, is_django
from leasehold._sql.async_adapters import ASYNC_DRIVERS, AsyncAdapter, AsyncAlchemyConnection
from leasehold.errors import InvalidRequest


class Transaction(Protocol):
    """A connection or session of yours: sqlite3, psycopg, PyMySQL, SQLAlchemy, Django."""

    def close(self) -> None: ...


class AsyncTransaction(Protocol):
    """One that is awaited: psycopg, asyncpg, aiosqlite, SQLAlchemy."""

    def close(self) -> Awaitable[Any]: ...


def adapter_for(tx: Any, dialect: str | None = None) -> Adapter | AsyncAdapter | AsyncAlchemyConnection:
    """The adapter for a connection. ``dialect`` is for a DB-API driver that is not known. Raises InvalidRequest."""
    package, name = _origin(tx)
    found: Adapter | AsyncAdapter | AsyncAlchemyConnection | None
    if package == "sqlalchemy":
        found = _alchemy(tx)
    elif is_django(tx):
        found = DjangoAdapter(tx)
    elif package in ASYNC_DRIVERS and (package != "psycopg" or name.startswith("Async")):
        found = ASYNC_DRIVERS[package](tx) if "Connection" in name else None
    else:
        found = dbapi_adapter(tx, package, dialect) if hasattr(tx, "commit") else None
    if found is None:
        raise InvalidRequest(
            "this works inside your own transaction: pass a connection of sqlite3, psycopg, PyMySQL, mariadb, "
            "asyncpg, aiosqlite, SQLAlchemy 2 or Django, or a session of SQLAlchemy's, and no engine, pool or cursor; "
            f"a guard takes another driver with FenceGuard(dialect=...). This is {_class_name(tx)}"
        )
    return found


def _alchemy(tx: Any) -> Adapter | AsyncAlchemyConnection | None:
    core: Any = sys.modules["sqlalchemy"]
    orm: Any = sys.modules.get("sqlalchemy.orm")
    if isinstance(tx, getattr(core, "Connection", ())):
        connection: Any = tx
        return AlchemyAdapter(lambda: connection)
    if orm is not None and isinstance(tx, (orm.Session, orm.scoped_session)):
        return AlchemyAdapter(tx.connection)
    asynchronous: Any = sys.modules.get("sqlalchemy.ext.asyncio")
    if asynchronous is not None and isinstance(tx, asynchronous.async_scoped_session):
        return AsyncAlchemyConnection(tx())
    return AsyncAlchemyConnection(tx) if callable(getattr(tx, "run_sync", None)) else None


def _origin(tx: object) -> tuple[str, str]:
    """The package and the name of the driver's class: the user's own class may derive from it."""
    for cls in type(tx).__mro__:
        package = cls.__module__.partition(".")[0]
        if package in _PACKAGES:
            return package, cls.__name__
    return type(tx).__module__.partition(".")[0], type(tx).__name__


_PACKAGES = {"sqlalchemy", *DRIVERS, *ASYNC_DRIVERS}


def _class_name(tx: object) -> str:
    package = type(tx).__module__.partition(".")[0]
    return f"{package}.{type(tx).__name__}".removeprefix("builtins.")
