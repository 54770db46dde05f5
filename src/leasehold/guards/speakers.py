"""The two ways of speaking through a user's connection, and what their errors become.

A guard never opens, commits or closes anything: the transaction is the user's. The errors of a driver leave as the
``__cause__`` of ours:

    InvalidRequest      the caller's mistake: a closed connection, one of another thread, no transaction
    StoreUnavailable    the database said no: a missing table, busy, a deadlock, a serialization failure. Nothing
                        was accepted; what can be tried again is the user's to try, with a new transaction
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

from leasehold.errors import InvalidRequest, StoreUnavailable, Unsupported

if TYPE_CHECKING:
    import sqlite3

    import sqlalchemy

Values = Mapping[str, str | int]
DIALECTS = ("sqlite", "postgresql")
# A table that is missing or is not ours, as SQLite's texts and PostgreSQL's SQLSTATEs say it.
NO_SUCH_TABLE = ("no such table", "no such column", "table ", "ON CONFLICT", "42P01", "42703", "42P10")


class Result(Protocol):
    """What a statement gave: sqlite3's cursor and SQLAlchemy's result both look like this."""

    @property
    def rowcount(self) -> int: ...
    def fetchone(self) -> Any: ...


class SQLiteSpeaker:
    """A ``sqlite3.Connection``."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def require_transaction(self) -> None:
        """Raise InvalidRequest when every statement would be committed on its own."""
        if _commits_at_once(self._connection):
            raise _no_transaction("execute BEGIN IMMEDIATE first, or leave isolation_level at its default")

    def execute(self, sql: str, values: Values) -> Result:
        cursor = self._connection.cursor()
        cursor.row_factory = None  # the user's own may build anything
        return cursor.execute(sql, values)

    @contextmanager
    def step(self, table: str) -> Iterator[None]:
        """A context in which the errors of the driver become ours."""
        import sqlite3

        try:
            with self._undone_on_error():
                yield
        except sqlite3.ProgrammingError as error:  # closed, or made by another thread
            raise _unusable(error) from error
        except sqlite3.Error as error:
            raise _trouble(table, error) from error

    @contextmanager
    def _undone_on_error(self) -> Iterator[None]:
        """sqlite3 opens a transaction on its own. When that was for us, and we refuse, it must not stay open:
        it would keep the database locked for as long as the stale owner forgets to roll back."""
        began = not self._connection.in_transaction
        try:
            yield
        except BaseException:
            if began:
                self._connection.rollback()
            raise


class AlchemySpeaker:
    """A SQLAlchemy ``Connection``, or the one that a ``Session`` uses."""

    def __init__(self, connection: Callable[[], sqlalchemy.Connection]) -> None:
        self._connection = connection

    def require_transaction(self) -> None:
        connection = self._known_dialect()
        # Begun, not only looked at: an application may emit its own BEGIN when SQLAlchemy begins.
        began = None if connection.in_transaction() else connection.begin()
        raw = connection.connection
        if connection.dialect.name == "sqlite":
            at_once = _commits_at_once(raw.driver_connection)
        else:
            at_once = getattr(raw.dbapi_connection, "autocommit", False) is True
        if at_once:
            if began is not None:
                began.rollback()
            raise _no_transaction("use an engine or connection without isolation_level='AUTOCOMMIT'")

    def execute(self, sql: str, values: Values) -> Result:
        import sqlalchemy

        return self._known_dialect().execute(
            sqlalchemy.text(sql), dict(values), execution_options={"preserve_rowcount": True}
        )

    @contextmanager
    def step(self, table: str) -> Iterator[None]:
        from sqlalchemy import exc

        try:
            yield
        except exc.DBAPIError as error:
            raise _trouble(table, error.orig or error) from error
        except exc.SQLAlchemyError as error:  # closed, rolled back already, a session without a database
            raise _unusable(error) from error

    def _known_dialect(self) -> sqlalchemy.Connection:
        connection = self._connection()
        if connection.dialect.name not in DIALECTS:
            raise Unsupported(
                f"this guard knows {' and '.join(DIALECTS)}, not {connection.dialect.name}: in this version use "
                "one of them, or compare a fence column in your own UPDATE"
            )
        return connection


def _commits_at_once(connection: Any) -> bool:
    """Does SQLite commit after each statement? ``autocommit`` is there since Python 3.12."""
    if connection.in_transaction:
        return False
    return connection.isolation_level is None or getattr(connection, "autocommit", None) is True


def _no_transaction(remedy: str) -> InvalidRequest:
    return InvalidRequest(
        "this connection commits each statement on its own, so a stale owner could still slip in between the check "
        f"and your write: check and write in one transaction ({remedy})"
    )


def _unusable(error: Exception) -> InvalidRequest:
    return InvalidRequest(
        f"the guard cannot use this connection ({type(error).__name__}): pass one that is open, of this thread, "
        "and whose transaction has not failed"
    )


def _trouble(table: str, error: BaseException) -> StoreUnavailable:
    state = getattr(error, "sqlstate", None) or getattr(error, "pgcode", None)
    if str(state or error).startswith(NO_SUCH_TABLE):
        return StoreUnavailable(
            f"the table {table} is missing, or was not made for this guard: call guard.create(conn) once, in a "
            "migration or when the program starts"
        )
    what = state or getattr(error, "sqlite_errorname", None) or type(error).__name__
    return StoreUnavailable(
        f"the database did not let the guard use its table {table} ({what}): nothing was accepted. Roll back; when "
        "it was busy, a deadlock or a serialization failure, run the whole transaction again"
    )
