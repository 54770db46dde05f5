"""Processes whose leases live in PostgreSQL."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import psycopg

from leasehold._core.types import State
from leasehold.stores.postgresql import rows
from leasehold.stores.postgresql.rows import Row
from leasehold.stores.postgresql.schema import TABLE
from tests.support.servers.database import Database
from tests.support.servers.postgres import PostgresServer
from tests.support.workers.crew import Crew, Worker

APP = "app"  # the name of the sessions of workers


class PostgresCrew(Crew):
    """The same workers, on another store."""

    def __init__(self, folder: Path, server: PostgresServer, database: Database) -> None:
        super().__init__(folder, f"{database.url}?application_name={APP}")
        self.server = server
        self.database = database
        self._look = psycopg.connect(database.dsn, autocommit=True)

    def peek(self, resource: str) -> State:
        """The stored state as it lies there: a look that advances nothing."""
        columns = ", ".join(Row._fields)
        query = f"SELECT {columns} FROM {TABLE} WHERE name = %s"
        try:
            found = self._look.execute(query.encode(), (resource,)).fetchone()
        except psycopg.errors.UndefinedTable:  # nobody has been there yet
            return State()
        return rows.decode(Row(*found)) if found else State()

    def freeze(self, worker: Worker) -> None:
        """At any moment: in the middle of a transaction it delays others by half a second."""
        worker.stop()

    def sessions(self) -> set[int]:
        """Those of the workers, by the server's processes."""
        query = f"SELECT pid FROM pg_stat_activity WHERE application_name = '{APP}'"
        found: list[Any] = self.server.execute(query)
        return {pid for (pid,) in found}

    def sound(self) -> None:
        """Every row can be read."""
        for (name,) in self._look.execute(f"SELECT name FROM {TABLE}".encode()).fetchall():
            self.peek(name)

    def close(self) -> None:
        """Reap everybody."""
        super().close()
        self._look.close()
