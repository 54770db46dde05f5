"""A bank whose clerks are killed:    python -m tests.processes.patterns.once.bank sync URL BANK.db NAME

``hatch`` starts a clerk, a child that makes all transfers, each once, in one transaction with its result; ``reap`` says
how it ended.
"""

from __future__ import annotations

import json
import os
import sqlite3
import sys
from contextlib import closing
from typing import Any

import leasehold
from leasehold.patterns.results import SQLResultStore

KEYS = 80
TTL = 0.3


def connected(path: str) -> sqlite3.Connection:
    """The bank. Nobody pulls the plug here: nothing waits for a disk."""
    db = sqlite3.connect(path, timeout=20)
    db.execute("PRAGMA synchronous = OFF")
    return db


def create(path: str) -> None:
    """No transfers yet. Whoever reads holds up nobody who writes."""
    with closing(connected(path)) as db:
        db.execute("PRAGMA journal_mode = WAL")
    SQLResultStore(lambda: connected(path)).create()
    with closing(connected(path)) as db, db:
        db.execute("CREATE TABLE transfers (number INTEGER, clerk INTEGER)")


def clerk(url: str, path: str, together: bool = True) -> None:
    """All transfers. Not ``together``: the effect is committed before the result."""
    hold = leasehold.connect(url)
    once = hold.once("transfer", "{number}", ttl=TTL, store=SQLResultStore(lambda: connected(path)))
    for number in range(KEYS):
        while not transferred(once, number, path, together):
            continue


def transferred(once: Any, number: int, path: str, together: bool) -> bool:
    """One of them. False: the machine stood still past the ttl; whether it was made is looked at again."""
    try:
        with once.begin(number=number) as key:
            if key.done:
                return True
            with closing(connected(path)) as db, db:
                db.execute("INSERT INTO transfers VALUES (?, ?)", (number, os.getpid()))
                if together:
                    key.complete(os.getpid(), tx=db)
            if not together:
                key.complete(os.getpid())
    except (leasehold.LeaseLost, leasehold.StaleOwner):
        return False
    return True


def main(url: str, path: str) -> None:
    """Obey."""
    for line in sys.stdin:
        command = json.loads(line)
        answer: dict[str, Any] = {}
        if command["do"] == "hatch":
            answer["pid"] = os.fork()
            if answer["pid"] == 0:
                clerk(url, path, command.get("together", True))
                os._exit(0)
        elif command["do"] == "reap":
            answer["code"] = os.waitstatus_to_exitcode(os.waitpid(command["pid"], 0)[1])
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(*sys.argv[2:4])
