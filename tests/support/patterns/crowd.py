"""Many processes at once on one table, as a program. It forks them, so that they begin together, and prints the sums.

Each of them moves a row on from version to version with ``transition``, and inserts the same requests as everybody else
with ``insert_once``. What the database wants to be run again is run again.
"""

from __future__ import annotations

import json
import os
import random
import sys
from collections import Counter
from collections.abc import Callable
from typing import Any

from leasehold.guards import Conflict
from leasehold.patterns import insert_once, transition
from tests.support.guards.desks import WAYS, Desk, Place, Tx
from tests.support.servers.database import Database

TRIES = 1000  # of one transaction; then something never ends
ROUNDS, REQUESTS = 12, 8


def opened(database: str, place: Place) -> Desk:
    """The plainest way to that database."""
    return Desk(place, WAYS[database][{"sqlite": "sqlite3", "postgresql": "psycopg", "mariadb": "pymysql"}[database]])


def again(desk: Desk, work: Callable[[Tx], Any]) -> Any:
    """A transaction, run again when somebody else was faster."""
    for _ in range(TRIES):
        try:
            with desk.begin() as tx:
                return work(tx)
        except Conflict:
            continue
    raise AssertionError(f"{TRIES} tries of one transaction")


def count(desk: Desk) -> bool:
    """Read the row in one transaction; write it in another, if it is still so."""
    ((number, version),) = again(desk, lambda tx: tx.rows("SELECT number, version FROM crowd_counter WHERE id = 1"))
    change: dict[str, Any] = {"key": {"id": 1}, "when": {"version": version}, "set": {"number": number + 1}}
    return bool(again(desk, lambda tx: tx.do(lambda raw: transition(raw, "crowd_counter", **change))))


def request(desk: Desk, number: int) -> bool:
    """Handle a request, unless somebody else has."""
    values = {"request_id": f"r-{number}", "worker": os.getpid()}
    done = again(desk, lambda tx: tx.do(lambda raw: insert_once(raw, "crowd_requests", values, key="request_id")))
    assert done.row["request_id"] == values["request_id"]
    assert done.inserted == (done.row["worker"] == os.getpid())
    return bool(done)


def worker(database: str, place: Place) -> Counter[str]:
    """-> how often it won and lost, and which requests were its own."""
    desk, counts = opened(database, place), Counter[str]()
    for _ in range(ROUNDS):
        counts["moved" if count(desk) else "late"] += 1
    for number in random.sample(range(REQUESTS), REQUESTS):
        counts[f"r-{number}"] += request(desk, number)
    return counts


def main(database: str, told: str, many: str) -> None:
    """Every worker in a process of its own."""
    where = json.loads(told)
    place = where if isinstance(where, str) else Database(**where)
    pipes = []
    for _ in range(int(many)):
        reading, writing = os.pipe()
        if os.fork() == 0:
            os.write(writing, json.dumps(worker(database, place)).encode())
            os._exit(0)
        os.close(writing)
        pipes.append(reading)
    total = Counter[str]()
    for pipe in pipes:
        with os.fdopen(pipe, "rb") as answer:
            total += Counter(json.loads(answer.read()))  # a worker that has failed says nothing
    sys.stdout.write(json.dumps(total))


if __name__ == "__main__":
    main(*sys.argv[1:])
