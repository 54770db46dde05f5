"""A network between clients and a database that singles out requests by what they do."""

from __future__ import annotations

import math
import re
import weakref
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import psycopg

from leasehold.stores.postgresql.schema import TABLE
from tests.support.servers.database import Database
from tests.support.servers.link import Link
from tests.support.servers.proxy import Proxy, Verdict

# What a request is, by a piece of its statements.
MARKS = {
    "claim": rb"INSERT INTO \S+ AS known",
    "renewals": rb"ctid = ANY",
    "renew": rb"SET expires = us",
    "release": rb"SET owner = NULL",
    "lock": rb"BEGIN ISOLATION",
    "commit": rb"COMMIT",
    "look": rb"LEFT JOIN \S+ ON name",
    "listen": rb"LISTEN leasehold_",
}


class Network(Proxy):
    """By ``url`` a client gets to the database through here."""

    def __init__(self, database: Database) -> None:
        super().__init__(database.port, self._verdict)
        self.database = database
        self.url = replace(database, port=self.port).url
        self.seen: list[str] = []
        self._plans: dict[str, tuple[Verdict, float]] = {}
        self._prepared: weakref.WeakKeyDictionary[Link, dict[bytes, bytes]] = weakref.WeakKeyDictionary()
        self._statements = b""  # of the request that is judged now

    def plan(self, request: str, verdict: Verdict, times: float = math.inf) -> None:
        """What becomes of the next requests of this kind; the others pass."""
        self._plans[request] = (verdict, times)

    def heal(self) -> None:
        """Everything passes from now on; what waits is delivered, and connections that lost something stay so."""
        self._plans = {}
        self.release()

    def _judge(self, link: Link, chunk: bytes) -> bytes:
        self._statements = b"; ".join(statements(chunk, self._prepared.setdefault(link, {})))
        return super()._judge(link, chunk)

    def _verdict(self, _: bytes) -> Verdict:
        for name, mark in MARKS.items():
            if re.search(mark, self._statements):
                verdict, times = self._plans.get(name, ("pass", 0))
                if times > 0:
                    self._plans[name] = (verdict, times - 1)
                self.seen.append(name)
                return verdict if times > 0 else "pass"
        return "pass"


def statements(chunk: bytes, prepared: dict[bytes, bytes]) -> Iterator[bytes]:
    """Those that a chunk executes, in the protocol of PostgreSQL; ``prepared`` is what its connection has prepared."""
    while len(chunk) > 5 and chunk[:1].isalpha():
        kind, length = chunk[:1], int.from_bytes(chunk[1:5], "big")
        body, chunk = chunk[5 : length + 1], chunk[length + 1 :]
        first, _, rest = body.partition(b"\0")
        if kind == b"Q":
            yield first
        elif kind == b"P":
            prepared[first] = rest.partition(b"\0")[0]
        elif kind == b"B":
            yield prepared.get(rest.partition(b"\0")[0], b"")


def rows(database: Database) -> list[tuple[Any, ...]]:
    """The whole table: name, owner, state."""
    with psycopg.connect(database.dsn, autocommit=True) as connection:
        return connection.execute(f"SELECT name, owner, state FROM {TABLE} ORDER BY name".encode()).fetchall()
