"""SQLAlchemy 2: a Connection, or the one that a Session uses. Async ones are reached through their ``run_sync``."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from leasehold.errors import Unsupported
from leasehold.guards.sql.dialects import DIALECTS, Dialect, Statement
from leasehold.guards.sql.drivers import Speaker, commits_at_once, judged, no_transaction, require_mariadb
from leasehold.guards.sql.wishes import Answer, LookAt, Update, Wish

if TYPE_CHECKING:
    import sqlalchemy

NAMES = {"sqlite": "sqlite", "postgresql": "postgresql", "mysql": "mariadb", "mariadb": "mariadb"}


class AlchemySpeaker(Speaker):
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

    def grant(self, wish: Wish, table: str) -> Answer:
        """The user's own table goes through SQLAlchemy's expressions: they know its types and its names."""
        from leasehold.guards.sql import expressions

        if isinstance(wish, Update):
            update = expressions.update(wish.change)
            return Answer(self.connection.execute(update, execution_options={"preserve_rowcount": True}).rowcount)
        if isinstance(wish, LookAt):
            look = expressions.look_at(wish.change, locking=bool(self.dialect.locking))
            return judged(self.dialect, wish, Answer(0, self.connection.execute(look).fetchone()))
        return super().grant(wish, table)

    def execute(self, statement: Statement) -> Answer:
        import sqlalchemy

        text = sqlalchemy.text(statement.numbered(":p{}".format))
        values = {f"p{number}": value for number, value in enumerate(statement.values, 1)}
        result = self.connection.execute(text, values, execution_options={"preserve_rowcount": True})
        return Answer(result.rowcount, result.fetchone() if statement.gives else None)


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
        return commits_at_once(_sqlite3(raw.driver_connection))
    ask = getattr(raw.dbapi_connection, "get_autocommit", None)
    return bool(ask()) if ask is not None else getattr(raw.dbapi_connection, "autocommit", False) is True


def _sqlite3(connection: Any) -> Any:
    """aiosqlite keeps the one of the standard library inside."""
    return getattr(connection, "_conn", connection)
