"""A network between clients and a database that singles out requests by what they do."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import psycopg

from leasehold.stores.postgresql import statements
from leasehold.stores.postgresql.schema import TABLE, quoted
from leasehold.stores.postgresql.session import prepared_name
from leasehold.stores.postgresql.statements import Statements
from tests.support.servers.database import Database
from tests.support.servers.proxy import Proxy, Verdict

# What a request is.
STATEMENTS = Statements(quoted(TABLE))
TEXTS = {
    "claim": STATEMENTS.claim,
    "renewals": STATEMENTS.renew_many,
    "renew": STATEMENTS.renew,
    "release": STATEMENTS.release,
    "lock": statements.BEGIN,
    "commit": statements.COMMIT,
    "look": STATEMENTS.read,
}
# By its text, or by the name under which it was prepared.
MARKS = {name: (text, prepared_name(text)) for name, text in TEXTS.items()} | {"listen": (b"LISTEN leasehold_",)}


class Network(Proxy):
    """By ``url`` a client gets to the database through here."""

    def __init__(self, database: Database) -> None:
        super().__init__(database.port, self._verdict)
        self.database = database
        self.url = replace(database, port=self.port).url
        self.seen: list[str] = []
        self._plans: dict[str, tuple[Verdict, float]] = {}

    def plan(self, request: str, verdict: Verdict, times: float = math.inf) -> None:
        """What becomes of the next requests of this kind; the others pass."""
        self._plans[request] = (verdict, times)

    def heal(self) -> None:
        """Everything passes from now on; what waits is delivered, and connections that lost something are closed."""
        self._plans = {}
        self.release()

    def _verdict(self, chunk: bytes) -> Verdict:
        for name, mark in MARKS.items():
            if any(one in chunk for one in mark):
                verdict, times = self._plans.get(name, ("pass", 0))
                if times > 0:
                    self._plans[name] = (verdict, times - 1)
                self.seen.append(name)
                return verdict if times > 0 else "pass"
        return "pass"


def rows(database: Database) -> list[tuple[Any, ...]]:
    """The whole table: name, owner, state."""
    with psycopg.connect(database.dsn, autocommit=True) as connection:
        return connection.execute(f"SELECT name, owner, state FROM {TABLE} ORDER BY name".encode()).fetchall()
