"""``transition``: change a row if it is still as the caller saw it. One conditional UPDATE, and no lock."""

from __future__ import annotations

import re
from collections.abc import Coroutine, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, overload

from leasehold._sql import names
from leasehold._sql.dialects import Dialect
from leasehold._sql.errors import NO_COLUMN, Translation, has_code, table_errors
from leasehold._sql.rows import Columns, Row, checked_row
from leasehold._sql.run import StatementFlow, run
from leasehold._sql.statements import VALUE, Statement
from leasehold.errors import InvalidRequest, LeaseholdError

if TYPE_CHECKING:
    from leasehold._sql.connections import AsyncTransaction, Transaction

VERSION = "version"


@overload
def transition(
    tx: Transaction,
    table: str | Any,
    *,
    key: Mapping[str, Any],
    when: Mapping[str, Any],
    set: Mapping[str, Any],
    version: str | None = VERSION,
) -> bool: ...
@overload
def transition(
    tx: AsyncTransaction,
    table: str | Any,
    *,
    key: Mapping[str, Any],
    when: Mapping[str, Any],
    set: Mapping[str, Any],
    version: str | None = VERSION,
) -> Coroutine[Any, Any, bool]: ...
def transition(
    tx: Any,
    table: str | Any,
    *,
    key: Mapping[str, Any],
    when: Mapping[str, Any],
    set: Mapping[str, Any],  # noqa: A002 - the word of SQL
    version: str | None = VERSION,
) -> bool | Coroutine[Any, Any, bool]:
    """Change one row of your table if it is still as you saw it. True: it was, and you have changed it.

    ``table`` is a name or a SQLAlchemy ``Table``. ``key`` names the row, ``when`` is what you saw in it (None is NULL),
    ``set`` is what to write. False: it has changed, and nothing was written; read the row again, and decide anew.
    It happens in your transaction, and you commit it. With an async connection or session the same call is awaited.

    Each transition counts the column ``version`` up by one, also where ``when`` does not name it: a caller that saw an
    older version then cannot change the row. Name another column with ``version=``, or None for a table that has none.

    Raises NoSuchRow, which is a LookupError, when no row has that key; Conflict when the database wants you to roll
    back and to run the transaction again; InvalidRequest when several rows have that key: roll back.

    >>> import sqlite3
    >>> tx = sqlite3.connect(":memory:")
    >>> _ = tx.execute("CREATE TABLE cases (case_id INTEGER PRIMARY KEY, status TEXT, version INTEGER)")
    >>> _ = tx.execute("INSERT INTO cases VALUES (7, 'READY', 3)")
    >>> seen = {"status": "READY", "version": 3}
    >>> transition(tx, "cases", key={"case_id": 7}, when=seen, set={"status": "ASSIGNED"})
    True
    >>> transition(tx, "cases", key={"case_id": 7}, when=seen, set={"status": "CLOSED"})
    False
    >>> tx.execute("SELECT * FROM cases").fetchall()
    [(7, 'ASSIGNED', 4)]
    >>> tx.close()
    """
    move = _checked(checked_row(table, key), when, set, version)
    return run(tx, partial(_move, move), _translation(move))


class Transition(NamedTuple):
    """A row, what the caller saw in it, what to write, and the column that counts."""

    row: Row
    when: Columns
    new: Columns
    version: str | None


def _checked(row: Row, when: object, new: object, version: object) -> Transition:
    seen, written = names.mapping(when, "when"), names.mapping(new, "set")
    if not seen or not written:
        raise InvalidRequest(
            "when= is what you saw in the row, and set= what to write, such as {'status': 'READY'} and "
            "{'status': 'ASSIGNED'}: neither is empty"
        )
    counted = None if version is None else names.column(version, "version")
    for one, other, why in (
        (seen, row.key, "a column is in key= or in when=, not in both"),
        (written, row.key, "set= would change the key of the row: it stays as it is"),
        (written, () if counted is None else (counted,), f"{counted} counts up by itself: leave it out of set="),
        (row.key, () if counted is None else (counted,), f"{counted} is what you saw: it is in when=, not in key="),
    ):
        if {name.casefold() for name in one} & {name.casefold() for name in other}:
            raise InvalidRequest(why)
    names.require_columns(row.table, [*seen, *written])
    _require_version(row, counted)
    return Transition(row, seen, written, counted)


def _move(move: Transition, dialect: Dialect) -> StatementFlow[bool]:
    updated = yield _update(move, dialect)
    if (len(updated.rows) or updated.changed) == 1:
        return True
    rows = (yield _compare(move, dialect)).rows
    if not rows:
        raise move.row.missing()
    if len(rows) > 1:
        raise move.row.ambiguous(len(rows))
    if not (rows[0][0] and dialect.counts_changes and move.version is None):
        return False
    # MariaDB may count only rows that have changed. The row is as the caller saw it, and locked now: it was written, or
    # is written by this.
    yield _update(move, dialect)
    return True


def _update(move: Transition, dialect: Dialect) -> Statement:
    row = move.row
    new = [f"{row.column(dialect, name)} = {VALUE}" for name in move.new]
    if move.version is not None:
        version = row.column(dialect, move.version)
        new.append(f"{version} = COALESCE({version}, 0) + 1")
    where = f"{row.where(dialect)} AND {_seen(move, dialect)}"
    gives = " RETURNING 1" if dialect.update_returns else ""
    update = f"{dialect.deciding}UPDATE {dialect.table(row.table)} SET {', '.join(new)} WHERE {where}{gives}"  # noqa: S608 - quoted names
    return row.statement(update, [*move.new.items(), *row.key.items(), *_bound(move)], gives=dialect.update_returns)


def _compare(move: Transition, dialect: Dialect) -> Statement:
    """-> is the row as the caller saw it? MariaDB also locks it, so that it stays so for another try."""
    row = move.row
    where = f"{row.where(dialect)}{dialect.current_read}"
    select = f"SELECT {_seen(move, dialect)} FROM {dialect.table(row.table)} WHERE {where}"  # noqa: S608 - quoted names
    return row.statement(select, [*_bound(move), *row.key.items()], gives=True)


def _seen(move: Transition, dialect: Dialect) -> str:
    return " AND ".join(
        f"{move.row.column(dialect, name)} {'IS NULL' if value is None else f'= {VALUE}'}"
        for name, value in move.when.items()
    )


def _bound(move: Transition) -> list[tuple[str, Any]]:
    return [(name, value) for name, value in move.when.items() if value is not None]


def _translation(move: Transition) -> Translation:
    usual = table_errors(move.row.label)

    def translate(error: BaseException) -> LeaseholdError:
        message = str(error).partition("\n")[0]
        if move.version and has_code(error, NO_COLUMN) and re.search(rf"\b{re.escape(move.version)}\b", message):
            return _no_version(move.row, move.version)
        return usual(error)

    return translate


def _require_version(row: Row, version: str | None) -> None:
    if version is not None and not isinstance(row.table, str) and version not in row.table.c:
        raise _no_version(row, version)


def _no_version(row: Row, version: str) -> InvalidRequest:
    return InvalidRequest(
        f"the table {row.label} has no column {version}, which each transition counts up: add it (INTEGER NOT NULL "
        "DEFAULT 0), name yours with version=, or say version=None and let when= alone decide"
    )
