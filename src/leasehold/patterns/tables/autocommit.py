"""Connections that commit each statement by themselves: a transaction is begun on them; and the reverse, where one
statement is all there is to do. A connection is left as it was."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, nullcontext
from typing import Any

IDLE = 0  # libpq's word for a connection that is in no transaction
IN_TRANSACTION = 1  # a bit of the status that MariaDB sends with each answer


def begun(connection: Any, alone: bool) -> Any:
    """A context manager: inside it is in a transaction, or needs none."""
    if alone:
        return _by_itself(connection) if _psycopg(connection) else nullcontext()
    if _psycopg(connection, autocommit=True):
        return connection.transaction()
    if isinstance(connection, sqlite3.Connection):
        if connection.isolation_level is None and not connection.in_transaction:
            connection.execute("BEGIN IMMEDIATE")
    elif _of("pymysql", connection) and connection.get_autocommit() and not connection.server_status & IN_TRANSACTION:
        connection.begin()
    return nullcontext()


@contextmanager
def _by_itself(connection: Any) -> Iterator[None]:
    """psycopg: a connection in no transaction is in autocommit for this statement. Nothing is sent for that."""
    connection.autocommit = True
    try:
        yield
    finally:
        if not connection.closed:
            connection.autocommit = False


@asynccontextmanager
async def begun_awaited(connection: Any, alone: bool) -> AsyncIterator[None]:
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


def _psycopg(connection: Any, autocommit: bool = False) -> bool:
    return (
        _of("psycopg", connection)
        and connection.autocommit is autocommit
        and connection.info.transaction_status == IDLE
    )


def _of(package: str, connection: object) -> bool:
    """The user's own class may stand before the driver's."""
    return any(cls.__module__.partition(".")[0] == package for cls in type(connection).__mro__)
