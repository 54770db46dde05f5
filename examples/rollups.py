"""Rolls up sales every few seconds, in one process of many. The next run makes up for a run that was lost."""

import sqlite3
import sys
from datetime import datetime

import leasehold
from leasehold.guards.sql import FenceGuard

guard = FenceGuard()


def make_tables(db: sqlite3.Connection) -> None:
    guard.create(db)
    db.execute("CREATE TABLE IF NOT EXISTS sales (at REAL, amount INTEGER, rolled_up INTEGER DEFAULT 0)")
    db.execute("CREATE TABLE IF NOT EXISTS rollups (tick TEXT, amount INTEGER, fence INTEGER)")


def roll_up(db: sqlite3.Connection, tick: datetime, lease: leasehold.Lease) -> None:
    """Roll up all sales before the tick that are not rolled up yet, whether or not the last run finished."""
    with db:
        db.execute("BEGIN IMMEDIATE")
        guard.check(db, lease)  # refuses a run that was frozen for longer than its lease
        sold = db.execute(
            "SELECT rowid, amount FROM sales WHERE NOT rolled_up AND at < ?", [tick.timestamp()]
        ).fetchall()
        db.executemany("UPDATE sales SET rolled_up = 1 WHERE rowid = ?", [(row,) for row, _ in sold])
        amount = sum(amount for _, amount in sold)
        db.execute("INSERT INTO rollups VALUES (?, ?, ?)", (tick.isoformat(), amount, lease.fence))


def main(path: str, expression: str) -> None:
    """Run until interrupted."""
    db = sqlite3.connect(path, timeout=20)
    make_tables(db)
    with leasehold.connect() as hold:  # to the store in LEASEHOLD_URL

        @hold.cron(expression, "rollup", ttl="2s", lease_as="lease")
        def rollup(tick: datetime, *, lease: leasehold.Lease) -> None:
            roll_up(db, tick, lease)

        rollup.run()


if __name__ == "__main__":
    main(*sys.argv[1:])
