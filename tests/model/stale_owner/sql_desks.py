"""The same counters through any way to a transaction that the SQL guard knows."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.model.stale_owner.sql import SqlTarget
from tests.support.guards.desks import WAYS, Desk, Tx
from tests.support.servers.database import Database

SERIALS = {"sqlite": "INTEGER", "postgresql": "BIGSERIAL", "mariadb": "BIGINT AUTO_INCREMENT"}


class DeskTarget(SqlTarget):
    """Often a connection for each transaction. ``way`` is the name of a desk, ``isolation`` what to ask for in each."""

    def __init__(
        self, url: str, way: str, server: dict[str, Any] | None = None, isolation: str = "", **more: Any
    ) -> None:
        super().__init__(**more)
        database, _, how = way.partition("-")
        self.desk = Desk(Database(**server) if server else url, WAYS[database][how])
        self.serial = SERIALS[database]
        self.isolation = isolation

    @contextmanager
    def transaction(self) -> Iterator[Tx]:
        """The desk's."""
        with self.desk.begin() as tx:
            if self.isolation:
                tx.rows(f"SET TRANSACTION ISOLATION LEVEL {self.isolation}")
            yield tx

    def execute(self, tx: Tx, statement: str) -> list[Any]:
        """Through the connection that the guard is given."""
        return tx.rows(statement)

    def guarded(self, tx: Tx, call: Any) -> None:
        """Awaited, where it must be."""
        tx.do(call)

    def close(self) -> None:
        """Leave."""
        self.desk.close()
