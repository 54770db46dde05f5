"""The application: reports that are exported again and again. Every write is guarded, in one of two forms.

``guard.check(tx, lease)`` inside a transaction protects whatever that transaction reads and writes.
``guard.update(tx, ...)`` protects one row that has a fence column, with one statement and without another table.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Mapping
from typing import Any

import psycopg

from leasehold import Lease
from leasehold.guards.sql import FenceGuard

SCHEMA = """
CREATE TABLE reports (id int PRIMARY KEY, edition int NOT NULL DEFAULT 0, content text);
CREATE TABLE progress (report int PRIMARY KEY, state text NOT NULL DEFAULT 'new', last_fencing_token bigint,
                       last_owner varchar(32));
CREATE TABLE history (id bigserial PRIMARY KEY, report int, what text, fence bigint, worker int);
"""
guard = FenceGuard(downstream="reports")


def create(connection: psycopg.Connection, reports: int) -> None:
    """Run once, in a migration. The guard keeps its fences in a table of its own: leasehold_fences."""
    with connection.transaction():
        connection.execute(SCHEMA)
        guard.create(connection)
        connection.execute("INSERT INTO reports (id) SELECT generate_series(1, %s)", [reports])
        connection.execute("INSERT INTO progress (report) SELECT id FROM reports")


class Exporter:
    """What a worker does with the database."""

    def __init__(self, connection: psycopg.Connection, guard: FenceGuard | NoGuard = guard) -> None:
        self.connection = connection
        self.guard = guard

    def export(self, lease: Lease, report: int) -> None:
        """Make the next edition. StaleOwner: another worker does it now, and we have changed nothing since then."""
        self.set_state(lease, report, "exporting")
        edition = self.begin(lease, report)
        content = render(report, edition + 1)
        lease.check()  # a worker that was paused while it rendered finds out here, and stops: LeaseLost
        upload(content)  # but a pause can come after every check of the lease ...
        self.save(lease, report, edition + 1, content)  # ... and only the guard checks in the same step as the write
        self.set_state(lease, report, "done")

    def begin(self, lease: Lease, report: int) -> int:
        """Show the guard our fence before the first read: from then on no older owner can change what we read."""
        with self.connection.transaction():
            self.guard.check(self.connection, lease)
            found = self.connection.execute("SELECT edition FROM reports WHERE id = %s", [report]).fetchone()
            self.note("began", lease.fence, report)
        assert found, "no such report"
        return int(found[0])

    def save(self, lease: Lease, report: int, edition: int, content: str) -> None:
        """Check and write in one transaction. The check locks its row, so a newer owner waits until we have committed.

        Rendering takes long, so it is not part of the transaction. If it were short, all would be one transaction:
        check, read, write."""
        with self.connection.transaction():
            self.guard.check(self.connection, lease)
            self.connection.execute(
                "UPDATE reports SET edition = %s, content = %s WHERE id = %s", [edition, content, report]
            )
            self.note("saved", lease.fence, report)

    def set_state(self, lease: Lease, report: int, state: str) -> None:
        """The form for a single row: the row itself remembers the fence of its last writer."""
        with self.connection.transaction():
            self.guard.update(
                self.connection,
                "progress",
                key={"report": report},
                values={"state": state},
                lease=lease,
                owner_column="last_owner",
            )
            self.note("state", lease.fence, report)

    def note(self, what: str, fence: int | None, report: int) -> None:
        """A record for the judge, committed together with the change. The application itself does not need it."""
        values = [report, what, fence, os.getpid()]
        self.connection.execute("INSERT INTO history (report, what, fence, worker) VALUES (%s, %s, %s, %s)", values)


class NoGuard:
    """What people write when they trust the lock alone: the same steps, without anything that refuses."""

    def check(self, tx: psycopg.Connection, lease: Lease) -> None:
        """Checks nothing."""

    def update(
        self, tx: psycopg.Connection, table: str, *, key: Mapping[str, Any], values: Mapping[str, Any], **_: Any
    ) -> None:
        """The bare UPDATE."""
        tx.execute("UPDATE progress SET state = %s WHERE report = %s", [values["state"], key["report"]])


def render(report: int, edition: int) -> str:
    """Takes long in real life."""
    time.sleep(random.uniform(0.02, 0.06))  # the work
    return f"edition {edition} of report {report}"


def upload(content: str) -> None:
    """Takes long in real life, too."""
    time.sleep(random.uniform(0.06, 0.15))  # the work
