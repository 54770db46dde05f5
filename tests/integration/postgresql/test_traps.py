"""Traps of locks in PostgreSQL: the page of traps names these tests."""

from __future__ import annotations

import psycopg

import leasehold
from tests.support.servers.database import Database
from tests.support.servers.postgres import PostgresServer
from tests.support.waiting import until

# Of this database, but for those of sessions that listen: taking the lock is the last thing that such a one asks for.
SESSION_LOCKS = """
SELECT count(*) FROM pg_locks JOIN pg_stat_activity USING (pid)
WHERE locktype = 'advisory' AND datname = current_database() AND query NOT LIKE 'SELECT pg_try_advisory_lock(%'
"""


def test_trap_33_a_lease_outlives_every_connection(
    postgres_server: PostgresServer, postgres_database: Database
) -> None:
    """All of its sessions are ended under a holder: nobody else is granted, and it goes on being renewed. The only
    session lock is the listener's."""
    url = postgres_database.url
    with leasehold.connect(url) as other, leasehold.connect(url) as hold, hold.lock("report", ttl=3) as lease:
        before = lease.deadline
        for pid in postgres_server.backends(postgres_database):
            postgres_server.end_backend(pid)
        assert other.lock("report").try_acquire() is None
        until(lambda: lease.deadline > before, "it is renewed over another connection")
        with psycopg.connect(postgres_database.dsn) as connection:
            ((others,),) = connection.execute(SESSION_LOCKS).fetchall()
        assert others == 0
        lease.check()
