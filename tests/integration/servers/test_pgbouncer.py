"""PgBouncer in transaction mode: clients share connections, and it is harmed apart from its server."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace

import psycopg
import pytest

from tests.support.servers.database import Database
from tests.support.servers.pgbouncer import PgBouncer
from tests.support.servers.postgres import PostgresServer
from tests.support.waiting import PATIENCE, until

pytestmark = pytest.mark.slow

BACKEND = "SELECT pg_backend_pid()"


def connect(place: PgBouncer | Database) -> psycopg.Connection:
    """A client that commits each statement and prepares none."""
    return psycopg.connect(place.dsn, autocommit=True, prepare_threshold=None)


def test_clients_share_connections_to_the_server(
    postgres_server: PostgresServer, postgres_database: Database, pgbouncer: PgBouncer
) -> None:
    """Six clients, and never more than two backends; one in a transaction has a backend to itself."""
    clients = [connect(pgbouncer.before(postgres_database)) for _ in range(6)]
    try:
        with clients[0].transaction():
            kept = clients[0].execute(BACKEND).fetchone()
            others = {client.execute(BACKEND).fetchone() for client in clients[1:] * 3}
            assert len(others) == 1 and kept not in others
            assert clients[0].execute(BACKEND).fetchone() == kept
        assert len(postgres_server.backends(postgres_database)) == 2
    finally:
        for client in clients:
            client.close()


def test_what_is_left_in_a_session_meets_the_next_client(
    own_pgbouncer: Callable[..., PgBouncer], postgres_server: PostgresServer, postgres_database: Database
) -> None:
    """A SET, a lock of the session and a LISTEN stay with the connection; a SET LOCAL ends with its transaction."""
    place = own_pgbouncer(postgres_server, size=1).before(postgres_database)
    with closing(connect(place)) as one, closing(connect(place)) as other:
        one.execute("SET lock_timeout = '7s'")
        assert other.execute("SHOW lock_timeout").fetchone() == ("7s",)
        with one.transaction():
            one.execute("SET LOCAL lock_timeout = '9s'")
        assert other.execute("SHOW lock_timeout").fetchone() == ("7s",)
        one.execute("SELECT pg_advisory_lock(1)")
        assert other.execute("SELECT pg_try_advisory_lock(1)").fetchone() == (True,)  # and it is not alone
        one.execute("LISTEN news")
        assert other.execute("SELECT pg_listening_channels()").fetchall() == [("news",)]


def test_every_role_of_the_server_may_connect(postgres_server: PostgresServer, pgbouncer: PgBouncer) -> None:
    """Also one that was created after the start; a stranger may not."""
    postgres_server.execute("CREATE ROLE bouncer_clerk LOGIN")
    try:
        with closing(connect(replace(pgbouncer.main, user="bouncer_clerk"))) as client:
            assert client.execute("SELECT current_user").fetchone() == ("bouncer_clerk",)
    finally:
        postgres_server.execute("DROP ROLE bouncer_clerk")
    with pytest.raises(psycopg.OperationalError):
        connect(replace(pgbouncer.main, user="bouncer_stranger"))


def test_a_restart_and_a_crash_cut_its_clients_alone(postgres_server: PostgresServer, pgbouncer: PgBouncer) -> None:
    """It comes back at the same port; the server and those who are connected to it directly notice nothing."""
    with closing(psycopg.connect(postgres_server.dsn, autocommit=True)) as direct:
        for crash in (False, True):
            with closing(connect(pgbouncer)) as client:
                if crash:
                    pgbouncer.kill()
                    pgbouncer.start()
                else:
                    pgbouncer.restart()
                with pytest.raises(psycopg.OperationalError):
                    client.execute("SELECT 1")
            with closing(connect(pgbouncer)) as client:
                assert client.execute("SELECT 1").fetchone() == (1,)
        assert direct.execute("SELECT 1").fetchone() == (1,)


def test_a_frozen_one_is_silent_and_goes_on(postgres_server: PostgresServer, pgbouncer: PgBouncer) -> None:
    """Its client waits; the server answers everybody else."""
    answers: list[object] = []
    with closing(connect(pgbouncer)) as client:
        client.execute("SELECT 1")
        pgbouncer.freeze()
        asks = threading.Thread(target=lambda: answers.append(client.execute("SELECT 2").fetchone()))
        asks.start()
        assert postgres_server.execute("SELECT 3") == [(3,)]
        assert asks.is_alive() and not answers
        pgbouncer.thaw()
        asks.join(PATIENCE)
    assert answers == [(2,)]


def test_a_client_that_waits_for_a_connection(
    own_pgbouncer: Callable[..., PgBouncer], postgres_server: PostgresServer
) -> None:
    """With one connection a second transaction waits for the first, and the console says so."""
    bouncer = own_pgbouncer(postgres_server, size=1)
    with closing(connect(bouncer)) as one, closing(connect(bouncer)) as other:
        with one.transaction():
            one.execute("SELECT 1")
            waits = threading.Thread(target=lambda: other.execute("SELECT 2"))
            waits.start()
            until(lambda: any(pool["cl_waiting"] == 1 for pool in bouncer.order("SHOW POOLS")), "it waits")
        waits.join(PATIENCE)
        assert not waits.is_alive()


def test_a_server_that_comes_back(
    own_postgres: Callable[..., PostgresServer], own_pgbouncer: Callable[..., PgBouncer]
) -> None:
    """A crash of the server cuts who is in a transaction; it is found again without a restart of PgBouncer."""
    server = own_postgres()
    bouncer = own_pgbouncer(server)
    with closing(psycopg.connect(bouncer.dsn)) as client:
        client.execute("SELECT 1")
        server.kill()
        with pytest.raises(psycopg.OperationalError):
            client.execute("SELECT 1")
    server.start()

    def serves() -> bool:
        try:
            with closing(connect(bouncer)) as again:
                return again.execute("SELECT 1").fetchone() == (1,)
        except psycopg.OperationalError:
            return False

    until(serves, "it serves again")


def test_stop_leaves_nothing(postgres_server: PostgresServer) -> None:
    """No process and no folder, also when it was frozen; the server stays."""
    with PgBouncer(postgres_server) as bouncer:
        pid = bouncer.pid
        bouncer.freeze()
    assert not bouncer.folder.exists() and not bouncer.runs
    assert postgres_server.runs and pid != postgres_server.pid
