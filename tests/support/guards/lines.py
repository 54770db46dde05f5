"""Connections for many transactions, one after the other, each driver at a chosen isolation."""

from __future__ import annotations

import asyncio
import sqlite3
from typing import Any

from tests.support.guards.desks import Place, Tx
from tests.support.servers.database import Database

LEVELS = ("READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE")


class Line:
    """One connection. ``number`` is what its server calls it."""

    raw: Any
    tx: Tx
    number = 0
    beaten: tuple[type[Exception], ...] = ()

    def __init__(self, place: Place, level: str) -> None:
        raise NotImplementedError

    def begin(self) -> None:
        """A transaction, unless the driver does so by itself."""

    def commit(self) -> None:
        """It may fail."""
        self.raw.commit()

    def rollback(self) -> None:
        """Also after a commit that failed."""
        self.raw.rollback()

    def close(self) -> None:
        """With whatever was not committed."""
        self.raw.close()

    def was_beaten(self, error: BaseException) -> bool:
        """Is it the driver's own word for *somebody else was faster*?"""
        return isinstance(error, self.beaten)


class PsycopgLine(Line):
    """psycopg."""

    def __init__(self, place: Place, level: str) -> None:
        import psycopg

        assert isinstance(place, Database)
        self.raw = psycopg.connect(place.dsn)
        self.raw.isolation_level = psycopg.IsolationLevel[level.replace(" ", "_")]
        self.tx = Tx(self.raw)
        self.number = self.raw.info.backend_pid
        self.beaten = (psycopg.errors.SerializationFailure, psycopg.errors.DeadlockDetected)


class AsyncpgLine(Line):
    """asyncpg, on an event loop of its own."""

    def __init__(self, place: Place, level: str) -> None:
        import asyncpg

        assert isinstance(place, Database)
        self.runner = asyncio.Runner()
        self.raw = self.runner.run(asyncpg.connect(place.dsn))
        self.level = level.lower().replace(" ", "_")
        self.tx = Tx(self.raw, self.runner, lambda job: job[0].fetch(job[1]))
        self.number = self.raw.get_server_pid()
        self.beaten = (asyncpg.SerializationError, asyncpg.DeadlockDetectedError)

    def begin(self) -> None:
        """As the user must."""
        self.transaction = self.raw.transaction(isolation=self.level)
        self.runner.run(self.transaction.start())

    def commit(self) -> None:
        """It may fail."""
        self.runner.run(self.transaction.commit())

    def rollback(self) -> None:
        """Unless a commit that failed has done so."""
        if self.raw.is_in_transaction():
            self.runner.run(self.transaction.rollback())

    def close(self) -> None:
        """With its event loop."""
        self.runner.run(self.raw.close())
        self.runner.close()


class SQLiteLine(Line):
    """sqlite3; its level says how it begins."""

    def __init__(self, place: Place, level: str) -> None:
        self.raw = sqlite3.connect(str(place), timeout=30, isolation_level=None)
        self.raw.execute("PRAGMA synchronous = OFF")
        self.level = level
        self.tx = Tx(self.raw)

    def begin(self) -> None:
        """Deferred or immediate."""
        self.raw.execute(f"BEGIN {self.level}")

    def was_beaten(self, error: BaseException) -> bool:
        """By the name of its code."""
        return isinstance(error, sqlite3.OperationalError) and error.sqlite_errorname.startswith("SQLITE_BUSY")


class PyMySQLLine(Line):
    """PyMySQL."""

    def __init__(self, place: Place, level: str) -> None:
        import pymysql

        assert isinstance(place, Database)
        self.raw = pymysql.connect(**place.parameters, ssl_disabled=True)
        self.tx = Tx(self.raw)
        self.tx.rows(f"SET SESSION TRANSACTION ISOLATION LEVEL {level}")
        self.number = self.raw.thread_id()
        self.failed = pymysql.MySQLError

    def begin(self) -> None:
        """As a user would."""
        self.raw.begin()

    def was_beaten(self, error: BaseException) -> bool:
        """By its number: an old snapshot, a lock that took too long, a deadlock."""
        return isinstance(error, self.failed) and error.args[0] in (1020, 1205, 1213)


LINES: dict[str, type[Line]] = {
    "psycopg": PsycopgLine, "asyncpg": AsyncpgLine, "sqlite3": SQLiteLine, "pymysql": PyMySQLLine,
}  # fmt: skip
