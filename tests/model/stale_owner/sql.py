"""Counters in a table, behind the SQL guard: in one transaction, or read in one and written in another."""

from __future__ import annotations

import sqlite3
from abc import abstractmethod
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from leasehold._sql.errors import translated
from leasehold.errors import LeaseholdError
from leasehold.guards.fence import Fenced
from leasehold.guards.sql import FenceGuard
from tests.model.stale_owner.targets import Target, Write, nothing

GUARD = FenceGuard()
COUNTERS = """CREATE TABLE IF NOT EXISTS counters (
    name VARCHAR(100) PRIMARY KEY, value BIGINT NOT NULL, last_fencing_token BIGINT, last_owner VARCHAR(32))"""
WRITES = """CREATE TABLE IF NOT EXISTS writes (
    number {serial} PRIMARY KEY, name VARCHAR(100), fence BIGINT, value BIGINT, note VARCHAR(100))"""


class SqlTarget(Target):
    """What databases share. Statements carry their values as text: every driver has another word for a parameter.

    The guard keeps its own table (``check``), or with ``column`` compares a column of the counter's row (``update``).
    """

    one_step = True
    serial = "INTEGER"

    def __init__(self, column: bool = False) -> None:
        self.column = column

    @abstractmethod
    def transaction(self) -> AbstractContextManager[Any]:
        """Committed when its body ends and rolled back when it raises."""

    @abstractmethod
    def execute(self, tx: Any, statement: str) -> list[Any]:
        """Run one statement; its rows."""

    def guarded(self, tx: Any, call: Callable[[Any], Any]) -> None:
        """A call of the guard in this transaction."""
        call(tx)

    @contextmanager
    def begin(self) -> Iterator[Any]:
        """A transaction, whose own failures, such as one to serialize, are told in our words too."""
        try:
            with self.transaction() as tx:
                yield tx
        except LeaseholdError:
            raise
        except Exception as error:
            raise translated(error, "counters") from error

    # ------------------------------------------------------------ in the workers

    def read(self, lease: Fenced) -> int:
        """Check and read; the write is another transaction."""
        with self.begin() as tx:
            self.present(tx, lease)
            return self.select(tx, lease.resource)

    def write(self, lease: Fenced, value: int, note: str, midway: Callable[[], None] = nothing) -> None:
        """Check and write."""
        with self.begin() as tx:
            if not self.column:
                self.present(tx, lease)
            self.update(tx, lease, value, note)

    def add_one(self, lease: Fenced, note: str, midway: Callable[[], None] = nothing) -> int:
        """Check, read and write."""
        with self.begin() as tx:
            self.present(tx, lease)
            value = self.select(tx, lease.resource) + 1
            midway()
            self.update(tx, lease, value, note)
        return value

    def present(self, tx: Any, lease: Fenced) -> None:
        """Before the first read."""
        if self.column:
            self.guarded_update(tx, lease, {})
        else:
            self.guarded(tx, lambda raw: GUARD.check(raw, lease))

    def guarded_update(self, tx: Any, lease: Fenced, values: dict[str, int]) -> None:
        """Check and write in one statement. Fences of one owner are told apart from another's equal ones."""
        row: dict[str, Any] = {"key": {"name": lease.resource}, "values": values, "owner_column": "last_owner"}
        self.guarded(tx, lambda raw: GUARD.update(raw, "counters", lease=lease, **row))

    def select(self, tx: Any, resource: str) -> int:
        """The counter."""
        ((value,),) = self.execute(tx, f"SELECT value FROM counters WHERE name = '{resource}'")
        return int(value)

    def update(self, tx: Any, lease: Fenced, value: int, note: str) -> None:
        """The counter, and who wrote it."""
        if self.column:
            self.guarded_update(tx, lease, {"value": value})
        else:
            self.execute(tx, f"UPDATE counters SET value = {value} WHERE name = '{lease.resource}'")
        row = f"'{lease.resource}', {lease.fence}, {value}, '{note}'"
        self.execute(tx, f"INSERT INTO writes (name, fence, value, note) VALUES ({row})")

    # ------------------------------------------------------------ in the test

    def prepare(self, resource: str) -> None:
        """Tables and a row."""
        with self.begin() as tx:
            self.guarded(tx, GUARD.create)
            self.execute(tx, COUNTERS)
            self.execute(tx, WRITES.format(serial=self.serial))
            self.execute(tx, f"INSERT INTO counters (name, value) VALUES ('{resource}', 0)")

    def value(self, resource: str) -> int:
        """The counter."""
        with self.begin() as tx:
            return self.select(tx, resource)

    def history(self, resource: str) -> list[Write]:
        """In the order of their numbers: they are drawn while the guard's row is locked."""
        chosen = f"SELECT fence, value, note FROM writes WHERE name = '{resource}' ORDER BY number"
        with self.begin() as tx:
            return [Write(*row) for row in self.execute(tx, chosen)]


class SqliteTarget(SqlTarget):
    """sqlite3. A writer that stands still locks the whole database: others are told so, soon, and try again."""

    impatient = True

    def __init__(self, url: str, busy: float = 0.1, **more: Any) -> None:
        super().__init__(**more)
        self.connection = sqlite3.connect(url, timeout=busy, isolation_level=None)
        self.connection.execute("PRAGMA journal_mode = WAL")  # else a reader could keep a commit from happening
        self.connection.execute("PRAGMA synchronous = OFF")

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """Deferred: the guard's own statement is the first and takes the lock."""
        self.connection.execute("BEGIN")
        with self.connection as tx:
            yield tx

    def execute(self, tx: sqlite3.Connection, statement: str) -> list[Any]:
        """As it is."""
        return tx.execute(statement).fetchall()

    def close(self) -> None:
        """Leave the file."""
        self.connection.close()
