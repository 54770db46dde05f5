"""The same counters in PostgreSQL and MariaDB, through each driver that differs from the others."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from importlib import import_module
from typing import Any

from tests.guards.model.sql import SqlTarget


class PsycopgTarget(SqlTarget):
    """psycopg 3."""

    serial = "BIGSERIAL"

    def __init__(self, url: str, isolation: str = "READ COMMITTED", **more: Any) -> None:
        import psycopg

        super().__init__(**more)
        self.connection = psycopg.connect(url, autocommit=True)
        self.connection.execute(f"SET default_transaction_isolation = '{isolation.lower()}'".encode())

    @contextmanager
    def transaction(self) -> Iterator[Any]:
        """Its own context manager."""
        with self.connection.transaction():
            yield self.connection

    def execute(self, tx: Any, statement: str) -> list[Any]:
        """As bytes: it takes no text that was put together."""
        cursor = tx.execute(statement.encode())
        rows: list[Any] = cursor.fetchall() if cursor.description else []
        return rows

    def close(self) -> None:
        """Leave."""
        self.connection.close()


class AlchemyTarget(SqlTarget):
    """SQLAlchemy, on whatever its URL says."""

    serial = "BIGSERIAL"

    def __init__(self, url: str, **more: Any) -> None:
        import sqlalchemy

        super().__init__(**more)
        self.engine = sqlalchemy.create_engine(url)
        self.text = sqlalchemy.text

    def transaction(self) -> AbstractContextManager[Any]:
        """In the form of the README."""
        return self.engine.begin()

    def execute(self, tx: Any, statement: str) -> list[Any]:
        """As text()."""
        result = tx.execute(self.text(statement))
        rows: list[Any] = result.fetchall() if result.returns_rows else []
        return rows

    def close(self) -> None:
        """Leave."""
        self.engine.dispose()


class AsyncpgTarget(SqlTarget):
    """asyncpg, on a loop that runs while something is asked."""

    serial = "BIGSERIAL"

    def __init__(self, url: str, **more: Any) -> None:
        asyncpg: Any = import_module("asyncpg")  # it has no types

        super().__init__(**more)
        self.runner = asyncio.Runner()
        self.connection: Any = self.runner.run(asyncpg.connect(url))

    def wait(self, answer: Any) -> Any:
        """Awaited."""
        return self.runner.run(answer)

    @contextmanager
    def transaction(self) -> Iterator[Any]:
        """Begun and ended by hand: its context manager is for coroutines."""
        transaction = self.connection.transaction()
        self.wait(transaction.start())
        try:
            yield self.connection
        except BaseException:
            self.wait(transaction.rollback())
            raise
        self.wait(transaction.commit())

    def execute(self, tx: Any, statement: str) -> list[Any]:
        """Rows, or none."""
        rows: list[Any] = self.wait(tx.fetch(statement))
        return rows

    def close(self) -> None:
        """Leave, also when the server has sent us away."""
        self.connection.terminate()
        self.runner.close()


class PyMySQLTarget(SqlTarget):
    """MariaDB through PyMySQL. ``server`` holds its parameters."""

    serial = "BIGINT AUTO_INCREMENT"

    def __init__(self, url: str, server: dict[str, Any], isolation: str = "REPEATABLE READ", **more: Any) -> None:
        import pymysql

        super().__init__(**more)
        start = f"SET SESSION TRANSACTION ISOLATION LEVEL {isolation}"
        # Without ssl_disabled PyMySQL reads every authority that the system trusts, 40 ms each time.
        self.connection = pymysql.connect(**server, ssl_disabled=True, init_command=start)

    @contextmanager
    def transaction(self) -> Iterator[Any]:
        """By hand: its context manager closes the connection."""
        self.connection.begin()
        try:
            yield self.connection
        except BaseException:
            self.connection.rollback()
            raise
        self.connection.commit()

    def execute(self, tx: Any, statement: str) -> list[Any]:
        """Through a cursor."""
        with tx.cursor() as cursor:
            cursor.execute(statement)
            return list(cursor.fetchall())

    def close(self) -> None:
        """Leave."""
        self.connection.close()
