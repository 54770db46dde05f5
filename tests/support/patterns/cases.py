"""A table of cases that wait for a clerk: what a test of patterns works on, by whatever way to a transaction."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.support.guards.desks import WAYS, Desk, Tx

_numbers = itertools.count(1)
# One of each kind, for what does not differ from one way to the next.
ONE_OF_EACH = pytest.mark.parametrize(
    "desk",
    [
        *("sqlite-sqlite3", "sqlite-async-session"),
        *(
            pytest.param(one, marks=pytest.mark.slow)
            for one in (
                "postgresql-psycopg2", "postgresql-asyncpg", "postgresql-sqlalchemy",
                "mariadb-pymysql", "mariadb-connector", "mariadb-django",
            )
        ),
    ],
    indirect=True,
)  # fmt: skip
COLUMNS = "case_id INTEGER PRIMARY KEY, status VARCHAR(20), clerk VARCHAR(20), version INTEGER"
READY = {"status": "READY", "version": 3}
ASSIGNED = {"status": "ASSIGNED"}


class Cases:
    """One table of its own, and transactions on it."""

    def __init__(self, desk: Desk, columns: str = COLUMNS, rows: str = "(7, 'READY', NULL, 3)") -> None:
        self.desk = desk
        self.name = f"cases_{desk.number}_{next(_numbers)}"  # drivers remember what a statement gave
        with desk.begin() as tx:
            tx.rows(f"CREATE TABLE {self.name} ({columns})")
            if rows:
                tx.rows(f"INSERT INTO {self.name} VALUES {rows}")

    @property
    def database(self) -> str:
        """Which one it is on."""
        place = self.desk.place
        if isinstance(place, str):
            return "sqlite"
        return "postgresql" if place.scheme == "postgresql" else "mariadb"

    def call(self, pattern: Any, *arguments: Any, **more: Any) -> Any:
        """One pattern in a transaction of its own."""
        with self.desk.begin() as tx:
            return tx.do(lambda raw: pattern(raw, self.name, *arguments, **more))

    def rows(self, order: str = "1") -> list[tuple[Any, ...]]:
        """What is there for everybody to see."""
        with self.desk.begin() as tx:
            return tx.rows(f"SELECT * FROM {self.name} ORDER BY {order}")

    @contextmanager
    def rival(self) -> Iterator[Tx]:
        """Somebody else's transaction, on a connection of his own."""
        way = {"sqlite": "sqlite3", "postgresql": "psycopg", "mariadb": "pymysql"}[self.database]
        with Desk(self.desk.place, WAYS[self.database][way]).begin() as tx:
            yield tx
