"""``insert_once``: one row for each key, however often it is inserted. A unique constraint, and no lock."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, overload

from leasehold._sql import names
from leasehold._sql.dialects import Dialect
from leasehold._sql.errors import NO_KEY, Translation, has_code, table_errors
from leasehold._sql.rows import PLACE, Columns, Row, unique_indexes
from leasehold._sql.run import StatementFlow, run
from leasehold._sql.statements import VALUE, Rows, Statement
from leasehold.errors import Conflict, InvalidRequest, LeaseholdError

if TYPE_CHECKING:
    from leasehold._sql.connections import AsyncTransaction, Transaction

NOT_UNIQUE = (*NO_KEY, "55000")  # or one that is deferrable
DUPLICATE = ("1062",)


@dataclass(frozen=True, slots=True, repr=False)
class Insertion:
    """The result of ``insert_once``: true when this call has inserted the row, false when it was there.

    ``row`` is the row as it stands in the table, in either case: with its defaults, and with the number that the
    database gave it."""

    inserted: bool
    row: dict[str, Any]

    def __bool__(self) -> bool:
        return self.inserted

    def __repr__(self) -> str:
        return f"<Insertion: {'inserted' if self.inserted else 'was there'}, with {', '.join(self.row)}>"


@overload
def insert_once(
    tx: Transaction, table: str | Any, values: Mapping[str, Any], *, key: str | Sequence[str]
) -> Insertion: ...
@overload
def insert_once(
    tx: AsyncTransaction, table: str | Any, values: Mapping[str, Any], *, key: str | Sequence[str]
) -> Coroutine[Any, Any, Insertion]: ...
def insert_once(
    tx: Any, table: str | Any, values: Mapping[str, Any], *, key: str | Sequence[str]
) -> Insertion | Coroutine[Any, Any, Insertion]:
    """Insert a row unless one with this key is there. True: you have inserted it; else ``.row`` is the one that was.

    ``table`` is a name or a SQLAlchemy ``Table``; ``key`` names the column, or the columns, of a unique constraint, and
    ``values`` has a value for each of them. When another transaction is about to insert the same key, the database
    waits for its end, and knows then. It happens in your transaction, and you commit it. With an async connection or
    session the same call is awaited.

    Raises InvalidRequest when the table has no unique constraint on these columns, or when the values break another
    rule of the table; Conflict when the database wants you to roll back and to run the transaction again.

    >>> import sqlite3
    >>> tx = sqlite3.connect(":memory:")
    >>> _ = tx.execute("CREATE TABLE payments (request_id TEXT PRIMARY KEY, amount INTEGER)")
    >>> insert_once(tx, "payments", {"request_id": "r-1", "amount": 9900}, key="request_id")
    <Insertion: inserted, with request_id, amount>
    >>> again = insert_once(tx, "payments", {"request_id": "r-1", "amount": 1}, key="request_id")
    >>> bool(again), again.row["amount"]
    (False, 9900)
    >>> tx.close()
    """
    row, new = _checked(table, values, key)
    return run(tx, lambda dialect: _FLOWS[dialect.name](row, new, dialect), _translation(row))


def _checked(table: Any, values: object, key: object) -> tuple[Row, Columns]:
    names.table(table)
    new = names.mapping(values, "values")
    wanted = (key,) if isinstance(key, str) else key
    if not isinstance(wanted, Sequence) or isinstance(wanted, (bytes, bytearray)) or not wanted:
        raise InvalidRequest(
            "key= names the column of a unique constraint, such as 'request_id', or all of its columns"
        )
    columns = [names.column(one, "key") for one in wanted]
    if any(new.get(one) is None for one in columns) or len(set(columns)) != len(columns):
        raise InvalidRequest("each column of key= stands in it once and has a value in values=: NULL is never unique")
    names.require_columns(table, new)
    return Row(table, {one: new[one] for one in columns}), new


def _in_sqlite(row: Row, new: Columns, dialect: Dialect) -> StatementFlow[Insertion]:
    inserted = (yield _insert(row, new, dialect, gives=False)).changed == 1
    return _found(row, (yield _select(row, dialect)), inserted=inserted)


def _in_postgres(row: Row, new: Columns, dialect: Dialect) -> StatementFlow[Insertion]:
    inserted = yield _insert(row, new, dialect, gives=True)
    if inserted.rows:
        return _found(row, inserted, inserted=True)
    return _found(row, (yield _select(row, dialect)), inserted=False)


def _insert(row: Row, new: Columns, dialect: Dialect, *, gives: bool) -> Statement:
    key = ", ".join(row.column(dialect, name) for name in row.key)
    more = f" ON CONFLICT ({key}) DO NOTHING{' RETURNING *' if gives else ''}"
    return row.statement(_plain(row, new, dialect) + more, new.items(), gives=gives)


def _plain(row: Row, new: Columns, dialect: Dialect) -> str:
    columns = ", ".join(row.column(dialect, name) for name in new)
    return f"INSERT INTO {dialect.table(row.table)} ({columns}) VALUES ({', '.join([VALUE] * len(new))})"  # noqa: S608 - quoted names


def _select(row: Row, dialect: Dialect) -> Statement:
    """MariaDB would read from an old snapshot, so it must lock; several transactions may do so side by side."""
    locking = dialect.share_lock if dialect.deciding else ""
    select = f"{dialect.deciding}SELECT * FROM {dialect.table(row.table)} WHERE {row.where(dialect)}{locking}"  # noqa: S608 - quoted names
    return row.statement(select, row.key.items(), gives=True)


def _found(row: Row, rows: Rows, *, inserted: bool) -> Insertion:
    found = rows.mappings()
    if len(found) > 1:
        raise row.ambiguous(len(found))
    if not found:
        raise Conflict(
            f"the row of {row.label} was there, and has gone: nothing was inserted. Roll back, and run the whole "
            "transaction again"
        )
    return Insertion(inserted, found[0])


# ---------------------------------------------------------------- MariaDB

# It has no ON CONFLICT for one key alone. A duplicate is an error there, which undoes nothing but its own statement;
# reading the row shows whether it is a duplicate of *this* key. The catalogue shows whether there is such a key: it is
# read once for each database, and the INSERT returns in which one it was made.
_MOST = 1000  # databases times tables; then the catalogue is read again
_unique: dict[tuple[str, tuple[str, ...]], set[tuple[Any, ...]]] = {}


def _in_mariadb(row: Row, new: Columns, dialect: Dialect) -> StatementFlow[Insertion]:
    where = (dialect.table(row.table), tuple(row.key))
    if not _unique.get(where):
        yield from _require_unique(row, where)
    insert = f"{dialect.deciding}{_plain(row, new, dialect)} RETURNING *, {PLACE}"
    try:
        rows = yield row.statement(insert, new.items(), gives=True)
    except Exception as error:
        if not has_code(error, DUPLICATE):
            raise
        found = yield _select(row, dialect)
        if not found.rows:
            raise  # it breaks another rule of the table
        return _found(row, found, inserted=False)
    if rows.rows[0][-3:] not in _unique.get(where, ()):
        yield from _require_unique(row, where)
    new_row = Rows(rows.changed, rows.names[:-3], [one[:-3] for one in rows.rows])
    return _found(row, new_row, inserted=True)


def _require_unique(row: Row, where: tuple[str, tuple[str, ...]]) -> StatementFlow[None]:
    table = row.table if isinstance(row.table, str) else str(row.table.fullname)
    unique = yield from unique_indexes(table)
    if {one.casefold() for one in row.key} not in unique.whole:
        raise _not_unique(row)
    if len(_unique) >= _MOST:
        _unique.clear()
    _unique.setdefault(where, set()).add(unique.place)


_FLOWS: dict[str, Callable[[Row, Columns, Dialect], StatementFlow[Insertion]]] = {
    "postgresql": _in_postgres, "mariadb": _in_mariadb, "sqlite": _in_sqlite,
}  # fmt: skip


def _translation(row: Row) -> Translation:
    usual = table_errors(row.label)

    def translate(error: BaseException) -> LeaseholdError:
        return _not_unique(row) if has_code(error, NOT_UNIQUE) else usual(error)

    return translate


def _not_unique(row: Row) -> InvalidRequest:
    return InvalidRequest(
        f"the table {row.label} has no unique constraint on ({', '.join(row.key)}), so nothing keeps a second row out: "
        "roll back, add one (UNIQUE, or a primary key), or name the columns of the one that it has"
    )
