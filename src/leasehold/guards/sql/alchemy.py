"""SQLAlchemy 2: a Connection, or the one that a Session uses. Async ones are reached through their ``run_sync``."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from leasehold.errors import InvalidRequest, Unsupported
from leasehold.guards.sql.dialects import DIALECTS, Dialect, Statement
from leasehold.guards.sql.drivers import (
    Adapter,
    autocommits,
    checked_row,
    commits_at_once,
    no_transaction,
    require_mariadb,
)
from leasehold.guards.sql.wishes import LookAt, RowResult, Rows, Update, Wish

if TYPE_CHECKING:
    import sqlalchemy

NAMES = {"sqlite": "sqlite", "postgresql": "postgresql", "mysql": "mariadb", "mariadb": "mariadb"}


class AlchemyAdapter(Adapter):
    """``connect`` gives the Connection; a Session may begin a transaction for that."""

    def __init__(self, connect: Callable[[], sqlalchemy.Connection]) -> None:
        connection = connect()
        super().__init__(connection, _dialect(connection))

    def require_transaction(self) -> None:
        """Begun, not only looked at: an application may emit its own BEGIN when SQLAlchemy begins."""
        connection = self.connection
        began = None if connection.in_transaction() else connection.begin()
        if _commits(connection, connection.connection):
            if began is not None:
                began.rollback()
            raise no_transaction("use an engine or connection without isolation_level='AUTOCOMMIT'")
        if connection.dialect.name == "sqlite":
            _refuse_savepoint(connection)

    def begin_to_read(self) -> None:
        connection = self.connection
        if connection.dialect.name == "sqlite" and not _sqlite3(connection).in_transaction:
            connection.exec_driver_sql("BEGIN")

    def grant(self, wish: Wish, table: str) -> RowResult:
        """The user's own table goes through SQLAlchemy's expressions: they know its types and its names."""
        from leasehold.guards.sql import expressions

        if isinstance(wish, Update):
            update = expressions.update(wish.change, self.dialect)
            result = self.connection.execute(update, execution_options={"preserve_rowcount": True})
            row = result.fetchone() if self.dialect.returning else None
            return checked_row(self.dialect, wish, RowResult(result.rowcount, row))
        if isinstance(wish, LookAt):
            look = expressions.look_at(wish.change, self.dialect)
            return checked_row(self.dialect, wish, RowResult(0, self.connection.execute(look).fetchone()))
        return super().grant(wish, table)

    def execute(self, statement: Statement) -> RowResult:
        import sqlalchemy

        text = sqlalchemy.text(statement.numbered(":p{}".format))
        values = {f"p{number}": value for number, value in enumerate(statement.values, 1)}
        result = self.connection.execute(text, values, execution_options={"preserve_rowcount": True})
        return RowResult(result.rowcount, result.fetchone() if statement.gives else None)

    def fetch(self, statement: Statement) -> Rows:
        values = {f"p{number}": value for number, value in enumerate(statement.values, 1)}
        result = self.connection.execute(_text(statement), values, execution_options={"preserve_rowcount": True})
        if not statement.gives:
            return Rows(result.rowcount)
        return Rows(result.rowcount, tuple(result.keys()), [tuple(one) for one in result.fetchall()])


def _text(statement: Statement) -> Any:
    """As the types of the user's own Table want it, if he named one. A colon in somebody's name is no value."""
    import sqlalchemy

    parts = tuple(part.replace(":", "\\:") for part in statement.parts)
    text = sqlalchemy.text(statement._replace(parts=parts).numbered(":p{}".format))
    if statement.of is None:
        return text
    known = statement.of.c
    kinds = {f"p{number}": known[column].type for number, column in enumerate(statement.columns, 1)}
    typed = text.bindparams(*(sqlalchemy.bindparam(name, type_=kind) for name, kind in kinds.items()))
    return typed.columns(**{one.name: one.type for one in known}) if statement.gives else typed


def _dialect(connection: sqlalchemy.Connection) -> Dialect:
    name = connection.dialect.name
    if name not in NAMES:
        raise Unsupported(
            f"this guard knows {', '.join(DIALECTS)}, not {name}: use one of them, or compare a fence column in your "
            "own UPDATE"
        )
    if NAMES[name] == "mariadb":
        require_mariadb(bool(getattr(connection.dialect, "is_mariadb", False)))
    return DIALECTS[NAMES[name]]


def _commits(connection: sqlalchemy.Connection, raw: Any) -> bool:
    """Does the driver commit after each statement? Each says it in its own way."""
    if connection.dialect.name == "sqlite":
        return commits_at_once(_sqlite3(connection))
    return autocommits(raw.dbapi_connection)


def _refuse_savepoint(connection: sqlalchemy.Connection) -> None:
    """Where sqlite3 begins on its own it does so for a write, and not for a SAVEPOINT. That is then the transaction,
    and its end a commit. ``autocommit=False``, since Python 3.12, begins at once."""
    driver = _sqlite3(connection)
    by_itself = driver.isolation_level is not None and getattr(driver, "autocommit", None) is not False
    if by_itself and connection.in_nested_transaction():
        raise InvalidRequest(
            "on SQLite begin_nested() may be the whole transaction, and its end commits the check before you write: "
            "check before begin_nested(), or let the engine emit BEGIN itself, as SQLAlchemy's page on SQLite shows"
        )


def _sqlite3(connection: sqlalchemy.Connection) -> Any:
    """aiosqlite keeps the one of the standard library inside."""
    driver = connection.connection.driver_connection
    return getattr(driver, "_conn", driver)
