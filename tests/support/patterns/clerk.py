"""One process with one transaction, as a program that a test freezes and kills. It says what it has done, line by line.

transition    sees the row, waits for a word, and changes it if it is still so
row_lock      locks the row, changes it, waits for a word, and commits
insert_once   inserts the row, waits for a word, and commits
"""

from __future__ import annotations

import json
import sys
from typing import Any

from leasehold.patterns import insert_once, row_lock, transition
from tests.support.guards.desks import Tx
from tests.support.patterns.crowd import opened
from tests.support.servers.database import Database

KEY = {"case_id": 7}


def main(database: str, told: str, what: str) -> None:
    """Its work."""
    where = json.loads(told)
    desk = opened(database, where if isinstance(where, str) else Database(**where))
    if what == "transition":
        with desk.begin() as tx:
            ((status, version),) = tx.rows("SELECT status, version FROM cases")
        say("saw")
        new: dict[str, Any] = {"when": {"status": status, "version": version}, "set": {"clerk": "paused"}}
        with desk.begin() as tx:
            moved = tx.do(lambda raw: transition(raw, "cases", key=KEY, **new))
        say("moved" if moved else "late", wait=False)
        return
    with desk.begin() as tx:
        begin(tx, what)
        say("locked" if what == "row_lock" else "inserted")
    say("committed", wait=False)


def begin(tx: Tx, what: str) -> None:
    """What stays open until somebody says a word."""
    if what == "row_lock":
        tx.do(lambda raw: row_lock(raw, "cases", key=KEY))
        tx.rows("UPDATE cases SET clerk = 'paused'")
    else:
        values = {"case_id": 8, "status": "READY", "clerk": "paused"}
        assert tx.do(lambda raw: insert_once(raw, "cases", values, key="case_id"))


def say(word: str, wait: bool = True) -> None:
    """To the test; and wait for its answer."""
    sys.stdout.write(word + "\n")
    sys.stdout.flush()
    if wait:
        sys.stdin.readline()


if __name__ == "__main__":
    main(*sys.argv[1:])
