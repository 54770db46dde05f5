"""Which kind of connection did the user hand over? Drivers are optional, so they are known by where a class is from."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from leasehold.errors import InvalidRequest
from leasehold.guards.sql.alchemy import AlchemyAdapter
from leasehold.guards.sql.awaited import KNOWN as AWAITED
from leasehold.guards.sql.awaited import AsyncAdapter
from leasehold.guards.sql.django import DjangoAdapter, is_django
from leasehold.guards.sql.drivers import Adapter, dbapi_adapter


class Transaction(Protocol):
    """A connection or session of yours: sqlite3, psycopg, PyMySQL, SQLAlchemy, Django."""

    def close(self) -> None: ...


class AsyncTransaction(Protocol):
    """One that is awaited: psycopg, asyncpg, aiosqlite, SQLAlchemy."""

    def close(self) -> Awaitable[Any]: ...


class LentConnection:
    """An async connection or session of SQLAlchemy's: it lends its sync self to whoever works there."""

    def __init__(self, connection: Any) -> None:
        self.connection = connection

    async def run(self, work: Callable[[Any], None]) -> None:
        """Do it there."""
        await self.connection.run_sync(work)


def adapter(tx: Any, dialect: str | None) -> Adapter | AsyncAdapter | LentConnection:
    """The right one for what the user handed over."""
    package, name = _origin(tx)
    found: Adapter | AsyncAdapter | LentConnection | None
    if package == "sqlalchemy":
        found = _alchemy(tx)
    elif is_django(tx):
        found = DjangoAdapter(tx)
    elif package in AWAITED and (package != "psycopg" or name.startswith("Async")):
        found = AWAITED[package](tx) if "Connection" in name else None
    else:
        found = dbapi_adapter(tx, package, dialect) if hasattr(tx, "commit") else None
    if found is None:
        raise InvalidRequest(
            "this works inside your own transaction: pass a connection of sqlite3, psycopg, PyMySQL, mariadb, "
            "asyncpg, aiosqlite, SQLAlchemy 2 or Django, or a session of SQLAlchemy's, and no engine, pool or cursor; "
            f"a guard takes another driver with FenceGuard(dialect=...). This is {_shown(tx)}"
        )
    return found


def _alchemy(tx: Any) -> Adapter | LentConnection | None:
    core: Any = sys.modules["sqlalchemy"]
    orm: Any = sys.modules.get("sqlalchemy.orm")
    if isinstance(tx, getattr(core, "Connection", ())):
        connection: Any = tx
        return AlchemyAdapter(lambda: connection)
    if orm is not None and isinstance(tx, (orm.Session, orm.scoped_session)):
        return AlchemyAdapter(tx.connection)
    later: Any = sys.modules.get("sqlalchemy.ext.asyncio")
    if later is not None and isinstance(tx, later.async_scoped_session):
        return LentConnection(tx())
    return LentConnection(tx) if callable(getattr(tx, "run_sync", None)) else None


def _origin(tx: object) -> tuple[str, str]:
    """The package and class that make it what it is: the user's own class may stand before them."""
    for cls in type(tx).__mro__:
        package = cls.__module__.partition(".")[0]
        if package in _PACKAGES:
            return package, cls.__name__
    return type(tx).__module__.partition(".")[0], type(tx).__name__


_PACKAGES = {"sqlalchemy", "sqlite3", "psycopg", "psycopg2", "pymysql", "mariadb", *AWAITED}


def _shown(tx: object) -> str:
    package = type(tx).__module__.partition(".")[0]
    return f"{package}.{type(tx).__name__}".removeprefix("builtins.")
