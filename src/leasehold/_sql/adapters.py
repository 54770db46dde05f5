"""Connections of each driver: the dialect, the placeholders, and whether a transaction is open.

An adapter executes a statement and gives its rows. It never opens, commits or closes anything: the transaction is the
caller's.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from leasehold._sql.dialects import DIALECTS, Dialect
from leasehold._sql.errors import no_transaction, require_mariadb, unusable
from leasehold._sql.statements import Rows, Statement
from leasehold.errors import InvalidRequest, Unsupported

if TYPE_CHECKING:
    import sqlalchemy

IN_TRANSACTION = 1  # a bit of the status that MariaDB sends with each reply
PG_IDLE, PG_BEGUN, PG_FAILED = 0, 2, 3  # libpq's transaction status


class Adapter:
    """Executes statements on one connection. ``dialect`` is known from its driver."""

    dialect: Dialect
    placeholder = "%s"

    def __init__(self, connection: Any) -> None:
        self.connection = connection

    def require_transaction(self) -> None:
        """Raise InvalidRequest when every statement would be committed on its own."""
        if autocommits(self.connection):
            raise no_transaction("switch autocommit off for this connection")

    def begins(self) -> bool:
        """Does a flow begin a transaction here that must be rolled back when it fails?"""
        return False

    def begin_read(self) -> None:
        """Begin a transaction where only a write would begin one."""

    def fetch(self, statement: Statement) -> Rows:
        """Execute one statement, and give all of its rows."""
        cursor = self.cursor()
        try:
            cursor.execute(statement.marked(self.placeholder), statement.values)
            return fetched(cursor, statement, cursor.fetchall() if statement.gives else ())
        finally:
            cursor.close()

    def cursor(self) -> Any:
        """A cursor that gives plain tuples, whatever the user's own connection gives."""
        return self.connection.cursor()


def fetched(cursor: Any, statement: Statement, rows: Iterable[Any]) -> Rows:
    """What a DB-API cursor knows. Rows are fetched first: in a psycopg pipeline that makes the count known."""
    found = list(map(tuple, rows))
    names = tuple(one[0] for one in cursor.description or ()) if statement.named else ()
    return Rows(cursor.rowcount, names, found)


# ---------------------------------------------------------------- DB-API drivers


class SQLiteAdapter(Adapter):
    """``sqlite3`` opens a transaction by itself for a write; for a read the adapter opens it. When a flow that began
    one fails, it is rolled back: otherwise it would keep the database locked for as long as a stale owner forgets to
    roll back."""

    dialect = DIALECTS["sqlite"]
    placeholder = "?"

    def require_transaction(self) -> None:
        if sqlite_autocommits(self.connection):
            raise no_transaction("execute BEGIN IMMEDIATE first, or leave isolation_level at its default")

    def begins(self) -> bool:
        return not self.connection.in_transaction

    def begin_read(self) -> None:
        if not self.connection.in_transaction:
            self.connection.execute("BEGIN")

    def cursor(self) -> Any:
        cursor = self.connection.cursor()
        cursor.row_factory = None
        return cursor


class PsycopgAdapter(Adapter):
    """psycopg 3."""

    dialect = DIALECTS["postgresql"]

    def require_transaction(self) -> None:
        require_begun(self.connection, self.connection.pgconn.transaction_status)

    def cursor(self) -> Any:
        import psycopg.rows  # the package: `from` would look a name up in it at each check

        # The user's own class may want other placeholders.
        return psycopg.Cursor(self.connection, row_factory=psycopg.rows.tuple_row)


class Psycopg2Adapter(Adapter):
    """psycopg2."""

    dialect = DIALECTS["postgresql"]

    def require_transaction(self) -> None:
        require_begun(self.connection, self.connection.get_transaction_status())

    def cursor(self) -> Any:
        import psycopg2.extensions

        return self.connection.cursor(cursor_factory=psycopg2.extensions.cursor)


class PyMySQLAdapter(Adapter):
    """PyMySQL, on MariaDB."""

    dialect = DIALECTS["mariadb"]

    def __init__(self, connection: Any) -> None:
        super().__init__(connection)
        require_mariadb("MariaDB" in str(connection.server_version))

    def require_transaction(self) -> None:
        connection = self.connection
        if not connection.open:
            raise unusable("it is closed")
        if connection.get_autocommit() and not connection.server_status & IN_TRANSACTION:
            raise no_transaction("call connection.begin() first, or switch autocommit off")

    def cursor(self) -> Any:
        import pymysql.cursors

        return self.connection.cursor(pymysql.cursors.Cursor)


class MariaDBAdapter(Adapter):
    """MariaDB's own connector. ``connection.open`` is not asked: it sends a ping, and waits for the reply."""

    dialect = DIALECTS["mariadb"]
    placeholder = "?"

    def require_transaction(self) -> None:
        connection = self.connection
        require_mariadb("MariaDB" in str(connection.server_info))
        if connection.autocommit and not connection.server_status & IN_TRANSACTION:
            raise no_transaction("call connection.begin() first, or switch autocommit off")


DRIVERS: dict[str, type[Adapter]] = {
    "sqlite3": SQLiteAdapter,
    "psycopg": PsycopgAdapter,
    "psycopg2": Psycopg2Adapter,
    "pymysql": PyMySQLAdapter,
    "mariadb": MariaDBAdapter,
}
PLACEHOLDERS = {"qmark": "?", "format": "%s", "pyformat": "%s"}


def dbapi_adapter(connection: Any, package: str, dialect: str | None) -> Adapter | None:
    """For a connection of any other driver, whose dialect the user has named."""
    if dialect is None or not hasattr(connection, "commit") or not callable(getattr(connection, "cursor", None)):
        return None
    like_sqlite3 = dialect == "sqlite" and hasattr(connection, "in_transaction")  # such as pysqlite3, sqlcipher3
    adapter = (SQLiteAdapter if like_sqlite3 else Adapter)(connection)
    adapter.dialect = DIALECTS[dialect]
    adapter.placeholder = _placeholder(package)
    return adapter


def _placeholder(package: str) -> str:
    style = getattr(sys.modules.get(package), "paramstyle", None)
    if style not in PLACEHOLDERS:
        raise Unsupported(f"the driver {package} has the paramstyle {style!r}; a guard knows {', '.join(PLACEHOLDERS)}")
    return PLACEHOLDERS[style]


def sqlite_autocommits(connection: Any) -> bool:
    """Does SQLite commit after each statement? ``autocommit`` exists since Python 3.12."""
    if connection.in_transaction:
        return False
    return connection.isolation_level is None or getattr(connection, "autocommit", None) is True


def autocommits(connection: Any) -> bool:
    """Does another driver commit after each statement? PyMySQL and MySQLdb have a method, others an attribute."""
    method = getattr(connection, "get_autocommit", None)
    return bool(method()) if callable(method) else getattr(connection, "autocommit", False) is True


def require_begun(connection: Any, status: int) -> None:
    """``require_transaction`` for psycopg 3, sync and async, and psycopg2. ``status`` is libpq's own number: what
    ``connection.info`` makes of it takes longer than all of this."""
    if status == PG_BEGUN:
        return
    if connection.closed:
        raise unusable("it is closed")
    if status == PG_FAILED:
        raise unusable("its transaction has failed: roll back")
    if connection.autocommit and status == PG_IDLE:
        raise no_transaction("use `with connection.transaction():`, or switch autocommit off")


# ---------------------------------------------------------------- SQLAlchemy

_COUNTED: Any = {"preserve_rowcount": True}
ALCHEMY_DIALECTS = {"sqlite": "sqlite", "postgresql": "postgresql", "mysql": "mariadb", "mariadb": "mariadb"}


class AlchemyAdapter(Adapter):
    """A Connection of SQLAlchemy 2."""

    def __init__(self, connection: sqlalchemy.Connection) -> None:
        super().__init__(connection)
        self.dialect = _alchemy_dialect(connection)

    def require_transaction(self) -> None:
        """A transaction is begun where none is open: an application may emit its own BEGIN when SQLAlchemy begins."""
        connection = self.connection
        began = None if connection.in_transaction() else connection.begin()
        if _alchemy_autocommits(connection, connection.connection):
            if began is not None:
                began.rollback()
            raise no_transaction("use an engine or connection without isolation_level='AUTOCOMMIT'")
        if connection.dialect.name == "sqlite":
            _refuse_savepoint(connection)

    def begin_read(self) -> None:
        connection = self.connection
        if connection.dialect.name == "sqlite" and not _sqlite3_of(connection).in_transaction:
            connection.exec_driver_sql("BEGIN")

    def fetch(self, statement: Statement) -> Rows:
        if statement.expression is None:
            values = {f"p{number}": value for number, value in enumerate(statement.values, 1)}
            result = self.connection.execute(_alchemy_text(statement), values)
        else:
            expression, values = statement.expression()
            result = self.connection.execute(expression, values, execution_options=_COUNTED)
        if not statement.gives:
            return Rows(result.rowcount)
        names = tuple(result.keys()) if statement.named else ()
        return Rows(result.rowcount, names, [tuple(one) for one in result.fetchall()])


def _alchemy_text(statement: Statement) -> Any:
    """With the types of the user's own Table, if one was named."""
    import sqlalchemy

    text = _plain_alchemy_text(statement.parts)
    if statement.table is None:
        return text
    known = statement.table.c
    kinds = {f"p{number}": known[column].type for number, column in enumerate(statement.columns, 1)}
    typed = text.bindparams(*(sqlalchemy.bindparam(name, type_=kind) for name, kind in kinds.items()))
    return typed.columns(**{one.name: one.type for one in known}) if statement.gives else typed


@lru_cache(maxsize=256)  # SQLAlchemy parses each new text, and remembers with the object what it found
def _plain_alchemy_text(parts: tuple[str, ...]) -> Any:
    """A colon in a name does not begin a placeholder."""
    import sqlalchemy

    sql = Statement(tuple(part.replace(":", "\\:") for part in parts), (), gives=False).numbered(":p")
    return sqlalchemy.text(sql).execution_options(**_COUNTED)


def _alchemy_dialect(connection: sqlalchemy.Connection) -> Dialect:
    name = connection.dialect.name
    if name not in ALCHEMY_DIALECTS:
        raise Unsupported(
            f"this guard knows {', '.join(DIALECTS)}, not {name}: use one of them, or compare a fence column in your "
            "own UPDATE"
        )
    if ALCHEMY_DIALECTS[name] == "mariadb":
        require_mariadb(bool(getattr(connection.dialect, "is_mariadb", False)))
    return DIALECTS[ALCHEMY_DIALECTS[name]]


def _alchemy_autocommits(connection: sqlalchemy.Connection, raw: Any) -> bool:
    if connection.dialect.name == "sqlite":
        return sqlite_autocommits(_sqlite3_of(connection))
    return autocommits(raw.dbapi_connection)


def _refuse_savepoint(connection: sqlalchemy.Connection) -> None:
    """Where sqlite3 begins a transaction by itself it does so for a write, and not for a SAVEPOINT. The savepoint is
    then the transaction, and its end a commit. ``autocommit=False``, since Python 3.12, begins at once."""
    driver = _sqlite3_of(connection)
    by_itself = driver.isolation_level is not None and getattr(driver, "autocommit", None) is not False
    if by_itself and connection.in_nested_transaction():
        raise InvalidRequest(
            "on SQLite begin_nested() may be the whole transaction, and its end commits the check before you write: "
            "check before begin_nested(), or let the engine emit BEGIN itself, as SQLAlchemy's page on SQLite shows"
        )


def _sqlite3_of(connection: sqlalchemy.Connection) -> Any:
    """The connection of the standard library; aiosqlite keeps it inside its own."""
    driver = connection.connection.driver_connection
    return getattr(driver, "_conn", driver)


# ---------------------------------------------------------------- Django

DJANGO_DIALECTS = {"sqlite": "sqlite", "postgresql": "postgresql", "mysql": "mariadb"}


class DjangoAdapter(Adapter):
    """``django.db.connection``, or one of ``connections``, inside ``transaction.atomic()``. It uses Django's own
    cursors, so that Django's logging and test cases see the statements."""

    def __init__(self, connection: Any) -> None:
        name = DJANGO_DIALECTS.get(connection.vendor)
        if name is None:
            raise Unsupported(f"this guard knows {', '.join(DIALECTS)}, not {connection.vendor}")
        super().__init__(connection)
        self.dialect = DIALECTS[name]

    def require_transaction(self) -> None:
        connection = self.connection
        if not connection.in_atomic_block:
            raise no_transaction("use `with transaction.atomic():`")
        if connection.needs_rollback:
            raise unusable("its transaction has failed: roll back")
        if connection.vendor == "mysql":
            require_mariadb(bool(connection.mysql_is_mariadb))


def is_django(connection: Any) -> bool:
    """Has it what Django's connections have? ``django.db.connection`` itself is a proxy of a class of its own."""
    return hasattr(type(connection), "vendor") or (
        type(connection).__module__.startswith("django.") and hasattr(connection, "in_atomic_block")
    )
