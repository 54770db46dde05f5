"""Exports reports: one worker for each report at a time, and no late write of a worker that was paused."""

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable

import leasehold
from leasehold.guards.sql import FenceGuard

guard = FenceGuard()


def make_tables(db: sqlite3.Connection) -> None:
    guard.create(db)
    db.execute("CREATE TABLE IF NOT EXISTS reports (id INTEGER PRIMARY KEY, content TEXT)")


def export(hold: leasehold.Leasehold, db: sqlite3.Connection, report_id: int, render: Callable[[int], str]) -> None:
    """Render a report and save it. ``NotAcquired``: another worker is exporting it."""
    with hold.lock("report-export", report_id, ttl="30s", wait="5s") as lease:
        content = render(report_id)
        with db:
            guard.check(db, lease)
            db.execute("INSERT OR REPLACE INTO reports VALUES (?, ?)", (report_id, content))


def main(db: sqlite3.Connection) -> None:
    with leasehold.connect() as hold:  # to the store in LEASEHOLD_URL
        export(hold, db, 42, render=lambda report_id: f"report {report_id}")


async def serve(hold: leasehold.AsyncLeasehold, handle: Callable[[leasehold.AsyncLease], Awaitable[None]]) -> None:
    """Handle requests in one worker of the fleet; another one takes over when it is gone."""
    async with hold.lock("report-server", ttl="10s") as lease:
        while True:
            await handle(lease)
            await asyncio.sleep(0.01)
