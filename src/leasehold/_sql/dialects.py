"""What differs between SQLite, PostgreSQL and MariaDB: one Dialect for each, and no table of ours.

MariaDB reads from a snapshot that may be older than the lock it waits for: a transaction that has read before its check
would go on reading what a newer owner has replaced. ``innodb_snapshot_isolation`` makes such a statement fail (error
1020), as PostgreSQL does by itself. A number that does not fit into its column is an error there only in strict mode;
otherwise it is cut to the highest number that fits. ``deciding`` asks for both with each statement that decides.

That error needs a row that has changed, and MariaDB does not touch one that would stay the same. So a conditional
upsert counts up a column there (``counter``) whenever it is accepted: older snapshots then notice it, also when an
owner presents its fence a second time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from leasehold._sql.statements import VALUE, Rows, decoded


class Dialect:
    """What the databases have in common; each subclass says what is different there."""

    name = ""
    quote = '"'
    deciding = ""  # prefix of a statement that decides: old snapshots and values that do not fit are errors
    strict = ""  # prefix of a statement that writes values of the user's: those that do not fit are errors
    share_lock = ""  # suffix of a SELECT whose row must stay as it is; others may lock it likewise
    current_read = ""  # suffix of a SELECT that must see what is there now
    skip_locked = ""  # suffix of a SELECT that locks its rows and leaves out those that others have locked
    update_returns = False  # can an UPDATE give rows?
    upsert_returns = True  # can an upsert give rows?
    upsert_returns_all = False  # does it also give a row that it has not changed?
    counts_changes = False  # may an UPDATE that changes nothing count no row?
    rounds = False  # may a column keep another number than was written, without an error?
    folds_case = True  # are two names that differ in capitals the same column?
    integer = "{}"  # a fence as a number, whatever the type of its column
    now_ms = ""  # milliseconds since 1970, read when the statement runs
    greatest = "GREATEST"

    def quoted(self, name: str) -> str:
        """A name as it is, reserved words and capitals included."""
        return self.quote + name.replace(self.quote, self.quote * 2) + self.quote

    def table(self, table: Any) -> str:
        """A name, with or without that of a schema; or a SQLAlchemy Table."""
        parts = table.split(".") if isinstance(table, str) else [one for one in (table.schema, table.name) if one]
        return ".".join(self.quoted(part) for part in parts)

    def each(self, names: Iterable[str], separator: str) -> str:
        """``name = value`` for each column."""
        return separator.join(f"{self.quoted(name)} = {VALUE}" for name in names)

    def creation(self, texts: list[str], table: str) -> list[str]:
        """The statements of a ``CREATE``, safe beside another process that executes the same."""
        return texts

    # ------------------------------------------------------------ columns of known types

    def cast(self, value: str, kind: str) -> str:
        """A value for a column of this type."""
        return value

    def readable(self, column: str, kind: str) -> str:
        """A quoted column of this type in a SELECT, such that every driver gives the same value for it."""
        return column

    def among(self, query: str) -> str:
        """A condition: is it one of the values that the query gives? The query is run once."""
        return f"IN ({query})"

    # ------------------------------------------------------------ conditional upserts

    def known(self, column: str) -> str:
        """In the condition of an upsert: what the row has."""
        return f"known.{column}"

    def new(self, column: str) -> str:
        """In the condition of an upsert: what is about to be inserted."""
        return f"excluded.{column}"

    def upsert(self, table: str, new: Mapping[str, str], sets: Mapping[str, str], when: str, counter: str) -> str:
        """Insert the row ``new``, or, when its key (the first column) is there and the condition ``when`` is true,
        change it as ``sets`` says. The columns that ``when`` reads are the last ones of ``sets``. ``counter`` is a
        column that MariaDB alone has and needs."""
        key, changed = next(iter(new)), ", ".join(f"{column} = {value}" for column, value in sets.items())
        return (
            f"{self.deciding}INSERT INTO {table} AS known ({', '.join(new)}) VALUES ({', '.join(new.values())}) "  # noqa: S608 - plain names
            f"ON CONFLICT ({key}) DO UPDATE SET {changed} WHERE {when}"
        )

    def upserted(self, rows: Rows, new: tuple[Any, ...]) -> bool:
        """Has the upsert written its row? ``new`` is what it returns then, where it returns something."""
        return bool(rows.rows)


class SQLite(Dialect):
    """3.24 or newer. A column of another type than INTEGER keeps fences as text, which must not be compared as such.
    Names stand in backticks: in double quotes a column that does not exist would be taken for text."""

    name, quote, integer = "sqlite", "`", "CAST({} AS INTEGER)"
    upsert_returns = False
    now_ms = "CAST(ROUND((julianday('now') - 2440587.5) * 86400000) AS INTEGER)"
    greatest = "MAX"

    def upserted(self, rows: Rows, new: tuple[Any, ...]) -> bool:
        return rows.changed == 1


class PostgreSQL(Dialect):
    """An UPDATE returns what it has written, so that a fence column of text or of floating point is noticed: it would
    compare fences wrongly. The clock is that of the statement: its transaction may have begun long ago.

    Drivers differ in the type that they send for a value, and an enum or JSON takes no text: so values are cast. They
    also differ in what they make of JSON: so it is read as text."""

    name, share_lock, update_returns, folds_case = "postgresql", " FOR SHARE", True, False
    skip_locked = " FOR UPDATE SKIP LOCKED"
    now_ms = "CAST(EXTRACT(EPOCH FROM statement_timestamp()) * 1000 AS BIGINT)"
    whole = {"character": "bpchar", "bit": "varbit"}  # noqa: RUF012 - a cast to CHARACTER keeps the first one alone

    def creation(self, texts: list[str], table: str) -> list[str]:
        """Two processes that create one table at the same time would fail: one waits for the other, in one statement,
        because a connection may be in autocommit."""
        lock = f"pg_advisory_xact_lock(hashtext('leasehold {table}'))"
        return [f"DO $$ BEGIN PERFORM {lock}; {'; '.join(texts)}; END $$"]

    def cast(self, value: str, kind: str) -> str:
        return f"CAST({value} AS {self.whole.get(kind, kind)})"

    def readable(self, column: str, kind: str) -> str:
        return f"CAST({column} AS text) AS {column}" if kind in {"json", "jsonb"} else column

    def among(self, query: str) -> str:
        """Through an array: a subquery in IN may be run again for each row."""
        return f"= ANY(ARRAY({query}))"


# The text is written in hex because MariaDB's connector reads a statement that has a quote in it letter by letter, in
# Python, at each execution: that took half of a check.
_STRICT_MODE = f"CONCAT(@@sql_mode, 0x{b',STRICT_ALL_TABLES'.hex()})"


class MariaDB(Dialect):
    """Its upsert also returns a row that it did not change. Its times are in UTC: local ones are ambiguous for an hour
    each year."""

    name, quote = "mariadb", "`"
    deciding = f"SET STATEMENT innodb_snapshot_isolation = ON, sql_mode = {_STRICT_MODE} FOR "
    strict = f"SET STATEMENT sql_mode = {_STRICT_MODE} FOR "
    share_lock, current_read, skip_locked = " LOCK IN SHARE MODE", " FOR UPDATE", " FOR UPDATE SKIP LOCKED"
    counts_changes = rounds = upsert_returns_all = True
    integer = "CAST({} AS SIGNED)"  # a column of text would be compared as floating point
    now_ms = "(TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(3)) DIV 1000)"

    def known(self, column: str) -> str:
        return column

    def new(self, column: str) -> str:
        return f"VALUES({column})"

    def upsert(self, table: str, new: Mapping[str, str], sets: Mapping[str, str], when: str, counter: str) -> str:
        """Assignments are made one after the other, and later ones see the new values."""
        changed = ", ".join(f"{column} = IF({when}, {value}, {column})" for column, value in sets.items())
        return (
            f"{self.deciding}INSERT INTO {table} ({', '.join(new)}) VALUES ({', '.join(new.values())}) "  # noqa: S608 - plain names
            f"ON DUPLICATE KEY UPDATE {counter} = {counter} + ({when}), {changed}"
        )

    def upserted(self, rows: Rows, new: tuple[Any, ...]) -> bool:
        return tuple(decoded(one) for one in rows.rows[0]) == new


DIALECTS: dict[str, Dialect] = {one.name: one for one in (SQLite(), PostgreSQL(), MariaDB())}
