"""Which kind of connection did the user hand over? sqlite3's, or SQLAlchemy 2's on SQLite or PostgreSQL.

SQLAlchemy is optional, so its classes are looked up where they must be already when an object comes from it.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from leasehold.errors import InvalidRequest, Unsupported
from leasehold.guards.speakers import AlchemySpeaker, SQLiteSpeaker

if TYPE_CHECKING:
    import sqlite3

    import sqlalchemy
    from sqlalchemy.orm import Session, scoped_session

    Transaction = sqlite3.Connection | sqlalchemy.Connection | Session | scoped_session[Session]

Speaker = SQLiteSpeaker | AlchemySpeaker


def speaker(tx: object) -> Speaker:
    """The right one for what the user handed over."""
    found = _sqlite(tx) or _alchemy(tx)
    if found is not None:
        return found
    kind = f"{type(tx).__module__.partition('.')[0]}.{type(tx).__name__}"
    raise InvalidRequest(
        "a guard works inside your own transaction: pass a sqlite3 connection, or a SQLAlchemy 2 connection or "
        f"session, not {kind.removeprefix('builtins.')}"
    )


def _sqlite(tx: Any) -> Speaker | None:
    module: Any = sys.modules.get("sqlite3")
    return SQLiteSpeaker(tx) if module is not None and isinstance(tx, module.Connection) else None


def _alchemy(tx: Any) -> Speaker | None:
    core: Any = sys.modules.get("sqlalchemy")
    orm: Any = sys.modules.get("sqlalchemy.orm")
    if core is None:
        return None
    if isinstance(tx, getattr(core, "Connection", ())):
        connection: Any = tx
        return AlchemySpeaker(lambda: connection)
    if orm is not None and isinstance(tx, (orm.Session, orm.scoped_session)):
        return AlchemySpeaker(tx.connection)
    if type(tx).__name__ in ("AsyncConnection", "AsyncSession"):
        raise Unsupported(
            "an async connection or session is not awaited here: write await tx.run_sync(guard.check, lease)"
        )
    return None
