"""What can be done to a PostgreSQL: its clock is set, its disk is full, one of its backends is frozen or killed."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager

import psycopg
import pytest

from tests.support.servers.clock import OneClock, WallClock
from tests.support.servers.disk import Disk
from tests.support.servers.postgres import PostgresServer
from tests.support.servers.process import status
from tests.support.waiting import until

pytestmark = pytest.mark.slow

Start = Callable[..., PostgresServer]
NOW = "SELECT extract(epoch FROM clock_timestamp())::float8"


@contextmanager
def client(server: PostgresServer) -> Iterator[psycopg.Connection]:
    """A connection that commits each statement."""
    with closing(psycopg.connect(server.dsn, autocommit=True)) as connection:
        yield connection


def value(connection: psycopg.Connection, query: str) -> object:
    """The first value of the first row."""
    row = connection.execute(query.encode()).fetchone()
    assert row is not None
    return row[0]


def fill_the_log(connection: psycopg.Connection) -> None:
    """Until it needs another file, which has 1 MB; several may be there for later."""
    for _ in range(10_000):
        connection.execute("SELECT pg_logical_emit_message(false, 'leasehold', repeat('x', 50000))")


# ---------------------------------------------------------------- its clock


def test_its_clock_is_set_while_it_runs(own_postgres: Start) -> None:
    """Forward and back, at once, also for a client that is connected."""
    clock = WallClock()
    with client(own_postgres(clock=clock)) as connection:
        for off in (0, 3600, -3600, 90_000, 0):
            clock.set_off(off)
            seen = value(connection, NOW)
            assert isinstance(seen, float)
            assert abs(seen - time.time() - off) < 30


def test_its_clock_stands_still(own_postgres: Start) -> None:
    """The test's own clock, to the microsecond: what the server calls now is what the test has set."""
    clock = OneClock()
    micros = "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint"
    with client(own_postgres(clock=clock)) as connection:
        for turn in (0, 0.000_001, 1.5, -0.25):
            clock.step_wall(turn)
            assert value(connection, micros) == clock.instant().wall_us


# ---------------------------------------------------------------- its disk


def test_a_full_disk_refuses_what_needs_room(own_postgres: Start) -> None:
    """A table cannot grow (53100); a row is changed in place; with room again everything works."""
    disk = Disk()
    with client(own_postgres(disk=disk)) as connection:
        connection.execute("CREATE TABLE things (id INT PRIMARY KEY, body TEXT) WITH (fillfactor = 50)")
        connection.execute("INSERT INTO things VALUES (1, 'small')")
        grow = "INSERT INTO things SELECT n, repeat('x', 1000) FROM generate_series(2, 100) AS n"
        disk.fill()
        with pytest.raises(psycopg.errors.DiskFull):
            connection.execute(grow)
        connection.execute("UPDATE things SET body = 'other' WHERE id = 1")
        disk.free()
        connection.execute(grow)
        assert value(connection, "SELECT count(*) FROM things") == 100


def test_a_log_without_room_is_a_crash(own_postgres: Start) -> None:
    """The next file of the log cannot be written: the server ends, and starts with what was committed."""
    disk = Disk()
    server = own_postgres(disk=disk)
    with client(server) as connection:
        connection.execute("CREATE TABLE things (id INT PRIMARY KEY, body TEXT)")
        connection.execute("INSERT INTO things VALUES (1, 'kept')")
        disk.fill()
        with pytest.raises(psycopg.OperationalError):
            fill_the_log(connection)
    disk.free()
    server.kill()
    server.start()
    with client(server) as connection:
        assert value(connection, "SELECT body FROM things") == "kept"


# ---------------------------------------------------------------- one backend


def test_a_frozen_backend_keeps_its_lock(own_postgres: Start) -> None:
    """The others are served; what waits for its lock waits until it is thawed."""
    server = own_postgres()
    server.execute("CREATE TABLE things (id INT)")
    server.execute("INSERT INTO things VALUES (1)")
    with client(server) as holder, client(server) as other:
        pid = holder.info.backend_pid
        holder.execute("BEGIN")
        holder.execute("SELECT * FROM things FOR UPDATE")
        server.freeze_backend(pid)
        assert status(pid) == "T" and pid in server.backends()
        assert other.execute("SELECT * FROM things FOR UPDATE SKIP LOCKED").fetchall() == []
        server.thaw_backend(pid)
        holder.execute("COMMIT")
        assert other.execute("SELECT * FROM things FOR UPDATE SKIP LOCKED").fetchall() == [(1,)]


def test_a_backend_that_is_ended_tells_its_client(own_postgres: Start) -> None:
    """57P01, its transaction is rolled back, and the others stay."""
    server = own_postgres()
    server.execute("CREATE TABLE things (id INT)")
    with client(server) as one, client(server) as other:
        one.execute("BEGIN")
        one.execute("INSERT INTO things VALUES (1)")
        server.end_backend(one.info.backend_pid)
        with pytest.raises(psycopg.errors.AdminShutdown):
            one.execute("COMMIT")
        assert value(other, "SELECT count(*) FROM things") == 0


def test_a_backend_that_is_killed_takes_all_others_with_it(own_postgres: Start) -> None:
    """The server recovers as after a crash, by itself: the same process, with what was committed."""
    server = own_postgres()
    server.execute("CREATE TABLE things (id INT)")
    server.execute("INSERT INTO things VALUES (1)")
    pid = server.pid
    with client(server) as one, client(server) as other:
        server.kill_backend(one.info.backend_pid)
        for cut in (one, other):
            with pytest.raises(psycopg.OperationalError):
                cut.execute("SELECT 1")
    assert server.pid == pid
    assert server.execute("SELECT * FROM things") == [(1,)]


def test_a_server_with_a_frozen_backend_stops(own_postgres: Start) -> None:
    """Nothing of it is left: a frozen process cannot see that the server is gone."""
    server = own_postgres()
    with client(server) as one:
        pid = one.info.backend_pid
        server.freeze_backend(pid)
        server.kill()
        until(lambda: status(pid) in {"", "Z"}, "the backend is gone")
    server.start()
    assert server.execute("SELECT 1") == [(1,)]
