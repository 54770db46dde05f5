"""Connections of DB-API drivers: which dialect they speak, how values are marked, and whether a transaction is open.

A guard never opens, commits or closes anything: the transaction is the user's.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from leasehold.errors import InvalidRequest, Unsupported
from leasehold.guards.sql.dialects import DIALECTS, Dialect, Statement
from leasehold.guards.sql.wishes import Accept, Look, RowResult, Rows, Wish

IN_TRANSACTION = 1  # MariaDB's status flag
PG_IDLE, PG_FAILED = 0, 3  # libpq's transaction status


class Adapter:
    """Speaks through one connection. ``dialect`` is known from its driver."""

    mark = "%s"

    def __init__(self, connection: Any, dialect: Dialect) -> None:
        self.connection = connection
        self.dialect = dialect

    def require_transaction(self) -> None:
        """Raise InvalidRequest when every statement would be committed on its own."""
        if autocommits(self.connection):
            raise no_transaction("switch autocommit off for this connection")

    @contextmanager
    def step(self) -> Iterator[None]:
        """Around everything that one call of the guard does."""
        yield

    def grant(self, wish: Wish, table: str) -> RowResult:
        """Put a wish to the database."""
        if isinstance(wish, Look) and wish.hold:
            self.begin_to_read()
        return checked_row(self.dialect, wish, self.execute(self.dialect.phrase(wish, table)))

    def begin_to_read(self) -> None:
        """Begin a transaction where only a write would begin one."""

    def execute(self, statement: Statement) -> RowResult:
        cursor = self.cursor()
        try:
            cursor.execute(statement.marked(self.mark), statement.values)
            row = cursor.fetchone() if statement.gives else None  # first: in a pipeline of psycopg's it makes the count
            return RowResult(cursor.rowcount, row)
        finally:
            cursor.close()

    def fetch(self, statement: Statement) -> Rows:
        """The same for a statement that may give many rows."""
        cursor = self.cursor()
        try:
            cursor.execute(statement.marked(self.mark), statement.values)
            return fetched(cursor, cursor.fetchall() if statement.gives else [])
        finally:
            cursor.close()

    def cursor(self) -> Any:
        """One that gives plain tuples, whatever the user's own connection gives."""
        return self.connection.cursor()


def fetched(cursor: Any, rows: Iterable[Any]) -> Rows:
    """What a cursor of DB-API knows."""
    found = [tuple(one) for one in rows]
    return Rows(cursor.rowcount, tuple(one[0] for one in cursor.description or ()), found)


def checked_row(dialect: Dialect, wish: Wish, answer: RowResult) -> RowResult:
    """The answer, with the verdict on an Accept. Some connections give text as bytes."""
    answer = answer._replace(maybe_same=dialect.counts_changes, maybe_rounded=dialect.rounds)
    if answer.row is not None:
        answer = answer._replace(row=tuple(one.decode() if isinstance(one, bytes) else one for one in answer.row))
        if not isinstance(answer.row[0], int | None):
            raise unfit(f"a fence came back as {type(answer.row[0]).__name__}")
    return answer._replace(accepted=dialect.accepted(answer, wish.attempt)) if isinstance(wish, Accept) else answer


class SQLiteAdapter(Adapter):
    """``sqlite3``: it opens a transaction on its own, for a write; for a reader we open it. When that was for us, and
    we refuse, it must not stay open: it would keep the database locked for as long as the stale owner forgets to roll
    back."""

    mark = "?"

    def require_transaction(self) -> None:
        if commits_at_once(self.connection):
            raise no_transaction("execute BEGIN IMMEDIATE first, or leave isolation_level at its default")

    @contextmanager
    def step(self) -> Iterator[None]:
        began = not self.connection.in_transaction
        try:
            yield
        except BaseException:
            if began:
                self.connection.rollback()
            raise

    def begin_to_read(self) -> None:
        if not self.connection.in_transaction:
            self.connection.execute("BEGIN")

    def cursor(self) -> Any:
        cursor = self.connection.cursor()
        cursor.row_factory = None
        return cursor


class PsycopgAdapter(Adapter):
    """psycopg 3."""

    def require_transaction(self) -> None:
        require_psycopg(self.connection)

    def cursor(self) -> Any:
        from psycopg import Cursor
        from psycopg.rows import tuple_row

        return Cursor(self.connection, row_factory=tuple_row)  # the user's own class may want other marks


class Psycopg2Adapter(Adapter):
    """psycopg2."""

    def require_transaction(self) -> None:
        connection = self.connection
        if connection.closed:
            raise unusable("it is closed")
        require_postgres(connection.info.transaction_status, connection.autocommit)

    def cursor(self) -> Any:
        from psycopg2.extensions import cursor

        return self.connection.cursor(cursor_factory=cursor)


class PyMySQLAdapter(Adapter):
    """PyMySQL, on MariaDB."""

    def __init__(self, connection: Any, dialect: Dialect) -> None:
        super().__init__(connection, dialect)
        require_mariadb("MariaDB" in str(connection.server_version))

    def require_transaction(self) -> None:
        connection = self.connection
        if not connection.open:
            raise unusable("it is closed")
        if connection.get_autocommit() and not connection.server_status & IN_TRANSACTION:
            raise no_transaction("call connection.begin() first, or switch autocommit off")

    def cursor(self) -> Any:
        from pymysql.cursors import Cursor

        return self.connection.cursor(Cursor)


class MariaDBAdapter(Adapter):
    """MariaDB's own connector."""

    mark = "?"

    def require_transaction(self) -> None:
        connection = self.connection
        if getattr(connection, "open", True) is False:
            raise unusable("it is closed")
        require_mariadb("MariaDB" in str(connection.server_info))
        if connection.autocommit and not connection.server_status & IN_TRANSACTION:
            raise no_transaction("call connection.begin() first, or switch autocommit off")


KNOWN: dict[str, tuple[type[Adapter], str]] = {
    "sqlite3": (SQLiteAdapter, "sqlite"),
    "psycopg": (PsycopgAdapter, "postgresql"),
    "psycopg2": (Psycopg2Adapter, "postgresql"),
    "pymysql": (PyMySQLAdapter, "mariadb"),
    "mariadb": (MariaDBAdapter, "mariadb"),
}
MARKS = {"qmark": "?", "format": "%s", "pyformat": "%s"}


def dbapi_adapter(connection: Any, package: str, dialect: str | None) -> Adapter | None:
    """For a connection of a driver that we know, or of any other whose dialect the user has named."""
    if package in KNOWN:
        kind, speaks = KNOWN[package]
        return kind(connection, DIALECTS[speaks])
    if dialect is None or not callable(getattr(connection, "cursor", None)):
        return None
    like_sqlite3 = dialect == "sqlite" and hasattr(connection, "in_transaction")  # such as pysqlite3, sqlcipher3
    speaker = (SQLiteAdapter if like_sqlite3 else Adapter)(connection, DIALECTS[dialect])
    speaker.mark = _mark_of(package)
    return speaker


def _mark_of(package: str) -> str:
    style = getattr(sys.modules.get(package), "paramstyle", None)
    if style not in MARKS:
        raise Unsupported(f"the driver {package} has the paramstyle {style!r}; a guard knows {', '.join(MARKS)}")
    return MARKS[style]


# ---------------------------------------------------------------- transactions


def commits_at_once(connection: Any) -> bool:
    """Does SQLite commit after each statement? ``autocommit`` is there since Python 3.12."""
    if connection.in_transaction:
        return False
    return connection.isolation_level is None or getattr(connection, "autocommit", None) is True


def autocommits(connection: Any) -> bool:
    """Does any other driver? PyMySQL and MySQLdb are asked, others have it as an attribute."""
    ask = getattr(connection, "get_autocommit", None)
    return bool(ask()) if callable(ask) else getattr(connection, "autocommit", False) is True


def require_psycopg(connection: Any) -> None:
    """The same for its two flavours."""
    if connection.closed:
        raise unusable("it is closed")
    require_postgres(connection.info.transaction_status, connection.autocommit)


def require_postgres(status: int, autocommit: bool) -> None:
    """By what libpq says of the transaction."""
    if status == PG_FAILED:
        raise unusable("its transaction has failed: roll back")
    if autocommit and status == PG_IDLE:
        raise no_transaction("use `with connection.transaction():`, or switch autocommit off")


def require_mariadb(is_mariadb: bool) -> None:
    """MySQL has neither RETURNING nor a way to refuse an old snapshot."""
    if not is_mariadb:
        raise Unsupported(
            "this guard knows MariaDB (10.6.18, 10.11.8 or newer), not MySQL, which cannot refuse a check in a "
            "transaction whose snapshot is too old: compare a version or fence column in your own UPDATE"
        )


def no_transaction(remedy: str) -> InvalidRequest:
    return InvalidRequest(
        "this connection commits each statement on its own, so somebody could still slip in between the check and "
        f"your write: do both in one transaction ({remedy})"
    )


def unusable(why: str) -> InvalidRequest:
    return InvalidRequest(
        f"Leasehold cannot use this connection ({why}): pass one that is open, of this thread, and whose transaction "
        "has not failed"
    )


def unfit(why: str) -> InvalidRequest:
    return InvalidRequest(
        f"a value does not fit into its column ({why}): roll back. A fence needs a BIGINT: it counts microseconds "
        "since 1970; an owner column needs VARCHAR(32); key= and values= must be of the types of their columns"
    )
