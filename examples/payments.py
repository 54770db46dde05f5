"""Payments that are made once, however often they are requested: the money and the result in one transaction."""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from typing import Any

import leasehold
from leasehold.patterns.results import SQLResultStore

Pay = Callable[[str, str, int], Any]


def database(path: str) -> Callable[[], AbstractContextManager[sqlite3.Connection]]:
    """A function that begins a transaction; leaving its ``with`` block commits it."""

    @contextmanager
    def begin() -> Iterator[sqlite3.Connection]:
        with closing(sqlite3.connect(path)) as db, db:
            yield db

    return begin


def make_tables(path: str) -> SQLResultStore:
    with database(path)() as db:
        db.execute("CREATE TABLE IF NOT EXISTS payments (account TEXT, amount INTEGER)")
    results = SQLResultStore(database(path))
    results.create()
    return results


def payments(hold: leasehold.Leasehold, path: str, screen: Callable[[Any], None] = lambda lease: None) -> Pay:
    """A function that pays once for each ``request_id``, after a check by ``screen``, which may take a while.
    ``KeyReused``: the same id came with another payment."""
    once = hold.once("payment", "{request_id}", keep="24h", fingerprint="{account}{amount}", store=make_tables(path))
    begin = database(path)

    def pay(request_id: str, account: str, amount: int) -> Any:
        with once.begin(request_id=request_id, account=account, amount=amount) as key:
            if key.done:
                return key.result
            screen(key.lease)
            with begin() as db:
                db.execute("INSERT INTO payments VALUES (?, ?)", (account, amount))
                key.complete({"account": account, "paid": amount}, tx=db)
        return key.result

    return pay


def paid(path: str) -> list[tuple[str, int]]:
    with database(path)() as db:
        return db.execute("SELECT account, amount FROM payments ORDER BY rowid").fetchall()


def main(path: str) -> None:
    with leasehold.connect() as hold:  # to the store in LEASEHOLD_URL
        pay = payments(hold, path)
        print(pay("r-1", "alice", 5), pay("r-1", "alice", 5), paid(path))
