"""Database servers start, are harmed, come back with their data, and leave nothing behind."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import psycopg
import pymysql
import pytest

from tests.support.servers import mariadb, postgres, process
from tests.support.servers.database import Database, DatabaseServer
from tests.support.servers.mariadb import MariaServer
from tests.support.servers.postgres import PostgresServer
from tests.support.servers.process import status
from tests.support.waiting import PATIENCE, until

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[3]
Kind = type[PostgresServer] | type[MariaServer]
Start = Callable[..., PostgresServer | MariaServer]

CHILD = """
import time
import psycopg
from tests.support.servers import process
from tests.support.servers.mariadb import MariaServer
from tests.support.servers.postgres import PostgresServer

servers = [PostgresServer().start(), PostgresServer().start(), MariaServer().start(), MariaServer().start()]
clients = [psycopg.connect(server.dsn) for server in servers[:2]]
pids = [server.pid for server in servers]
pids += [child for pid in pids[:2] for child in process.children(pid)]
servers[1].freeze()
servers[3].freeze()
print(process.home(), servers[0].memory, servers[1].memory, *pids, flush=True)
time.sleep(60)
"""


@pytest.fixture(params=[PostgresServer, MariaServer], ids=["postgres", "mariadb"])
def kind(request: pytest.FixtureRequest) -> Kind:
    """Each kind of database server."""
    chosen: Kind = request.param
    return chosen


@pytest.fixture
def own(kind: Kind, request: pytest.FixtureRequest) -> Start:
    """Starts servers of that kind."""
    start: Start = request.getfixturevalue(f"own_{kind.program}")
    return start


@pytest.fixture
def shared(kind: Kind, request: pytest.FixtureRequest) -> PostgresServer | MariaServer:
    """The shared server of that kind."""
    server: PostgresServer | MariaServer = request.getfixturevalue(f"{kind.program}_server")
    return server


@pytest.fixture
def client() -> Iterator[Callable[..., Any]]:
    """Connect to a database or to the main one of a server, as its driver does; closed after the test."""
    with ExitStack() as stack:

        def connect(place: Database | DatabaseServer, **more: Any) -> Any:
            if place.url.startswith("mysql"):
                chosen: Any = pymysql.connect(**place.parameters, ssl_disabled=True, autocommit=True, **more)
            else:
                chosen = psycopg.connect(place.dsn, autocommit=True, **more)
            return stack.enter_context(closing(chosen)).cursor()

        yield connect


def rows(cursor: Any, statement: str) -> list[Any]:
    """What a statement answers."""
    cursor.execute(statement)
    return list(cursor.fetchall())


def shared_memory() -> set[str]:
    """The numbers of what the kernel keeps for any process."""
    return {line.split()[1] for line in Path("/proc/sysvipc/shm").read_text().splitlines()[1:]}


# ---------------------------------------------------------------- life


def test_a_socket_leads_to_the_same_data(
    postgres_server: PostgresServer, mariadb_server: MariaServer, client: Callable[..., Any]
) -> None:
    """TCP and the socket in the file system."""
    by_socket = psycopg.connect(postgres_server.dsn, host=str(postgres_server.socket_folder))
    with closing(by_socket):
        assert by_socket.execute("SHOW port").fetchone() == (str(postgres_server.port),)
    [(port,)] = rows(client(mariadb_server, unix_socket=mariadb_server.socket), "SELECT @@port")
    assert port == mariadb_server.port


def test_a_crash_and_a_restart_keep_place_and_data(own: Start, client: Callable[..., Any]) -> None:
    """Both times it is another process at the same address, with what was committed; a client does not prevent it."""
    server = own()
    port, pids = server.port, {server.pid}
    first = client(server)
    first.execute("CREATE TABLE memory (word VARCHAR(9))")
    for word, bring_back in (("crash", server.start), ("restart", server.restart)):
        client(server).execute(f"INSERT INTO memory VALUES ('{word}')")
        if word == "crash":
            server.kill()
        bring_back()
        pids.add(server.pid)
    assert rows(client(server), "SELECT word FROM memory ORDER BY word") == [("crash",), ("restart",)]
    assert server.port == port and len(pids) == 3


def test_a_frozen_server_is_silent_and_goes_on(own: Start, client: Callable[..., Any]) -> None:
    """Neither old nor new clients hear from it; then it answers the old one."""
    server = own()
    old, answers = client(server), []
    server.freeze()
    asks = threading.Thread(target=lambda: answers.extend(rows(old, "SELECT 1")))
    asks.start()
    with socket.create_connection(("127.0.0.1", server.port), 0.1) as new:
        new.sendall(b"\0\0\0\x08\x04\xd2\x16\x2f")  # PostgreSQL would answer this, and MariaDB would speak first
        with pytest.raises(TimeoutError):
            new.recv(1)
    assert asks.is_alive() and not answers
    server.thaw()
    asks.join(PATIENCE)
    assert answers == [(1,)]


def test_stop_leaves_nothing(kind: Kind, client: Callable[..., Any]) -> None:
    """No process, no folder, no listener; also when it was frozen with a client."""
    server = kind().start()
    client(server)
    pids = [server.pid, *process.children(server.pid)]
    server.freeze()
    server.stop()
    until(lambda: all(status(pid) in {"", "Z"} for pid in pids), "all are gone")
    assert status(pids[0]) == "" and not server.folder.exists()
    with socket.socket() as probe:
        assert probe.connect_ex(("127.0.0.1", server.port)) != 0


def test_a_dead_postgres_leaves_no_shared_memory() -> None:
    """The kernel would keep a piece for each, and has a limit; also when it had come back from a crash by itself."""
    server = PostgresServer().start()
    first = server.memory
    os.kill(process.children(server.pid)[0], signal.SIGKILL)
    until(lambda: server.memory not in {first, "none"}, "it has recovered")
    second = server.memory
    assert second in shared_memory()
    server.stop()
    assert not {first, second} & shared_memory()


def test_nothing_survives_the_tests() -> None:
    """kill -9 of the process that started them: all are gone, also the frozen ones and those that served a client."""
    child = subprocess.Popen(
        [sys.executable, "-c", CHILD],
        env={**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"},
        stdout=subprocess.PIPE,
        text=True,
    )
    with child:
        assert child.stdout is not None
        home, first, second, *pids = child.stdout.readline().split()
        assert {first, second} <= shared_memory()
        assert Path(home).is_dir() and len(pids) > 6 and all(status(int(pid)) for pid in pids)
        child.kill()
    until(lambda: all(status(int(pid)) in {"", "Z"} for pid in pids), "the servers are gone")
    until(lambda: not Path(home).exists() and not {first, second} & shared_memory(), "and what they kept")


# ---------------------------------------------------------------- starting


def test_options_are_handed_on(own_postgres: Start, own_mariadb: Start) -> None:
    """They come last, so they win."""
    assert own_postgres("-c", "max_connections=31").execute("SHOW max_connections") == [("31",)]
    assert own_mariadb("--max-connections=31").execute("SELECT @@max_connections") == [(31,)]


def test_a_server_that_cannot_start_says_why(kind: Kind) -> None:
    """The error holds its log, and nothing is left behind."""
    (postgres if kind is PostgresServer else mariadb).template()
    before = set(process.home().iterdir())
    with pytest.raises(RuntimeError, match="nonsense"), kind("--nonsense=1"):
        pass
    assert set(process.home().iterdir()) == before


def test_servers_are_not_run_as_root(shared: DatabaseServer) -> None:
    """PostgreSQL would refuse; MariaDB could be told to write anywhere."""
    assert Path(f"/proc/{shared.pid}").stat().st_uid != 0


# ---------------------------------------------------------------- databases


def test_fresh_databases_are_strangers(shared: PostgresServer | MariaServer, client: Callable[..., Any]) -> None:
    """What one test writes the next one does not see."""
    databases = [shared.fresh(), shared.fresh()]
    for database in databases:
        client(database).execute("CREATE TABLE mine (id INT)")  # the second time there is none yet
    for database in databases:
        shared.drop(database)


def test_a_dropped_database_takes_its_clients_with_it(
    shared: PostgresServer | MariaServer, client: Callable[..., Any]
) -> None:
    """A transaction that a test left open keeps nobody from going on."""
    database = shared.fresh()
    left = client(database)
    left.execute("CREATE TABLE mine (id INT)")
    left.execute("BEGIN")
    left.execute("SELECT * FROM mine")
    shared.drop(database)
    with pytest.raises((psycopg.OperationalError, pymysql.OperationalError)):
        left.execute("SELECT 1")


@pytest.mark.parametrize(
    ("fixture", "driver"),
    [
        ("postgres_database", "psycopg"),
        ("postgres_database", "psycopg2"),
        ("postgres_database", "asyncpg"),
        ("mariadb_database", "pymysql"),
        ("mariadb_database", "aiomysql"),
    ],
)
async def test_every_driver_finds_its_database(fixture: str, driver: str, request: pytest.FixtureRequest) -> None:
    """The address is right in the words of SQLAlchemy, for threads and for asyncio."""
    from sqlalchemy import create_engine, text
    from sqlalchemy.ext.asyncio import create_async_engine

    database: Database = request.getfixturevalue(fixture)
    question = text("SELECT current_database()" if database.scheme == "postgresql" else "SELECT database()")
    if driver in {"asyncpg", "aiomysql"}:
        engine = create_async_engine(database.sqlalchemy_url(driver))
        async with engine.connect() as connection:
            assert (await connection.execute(question)).scalar_one() == database.name
        await engine.dispose()
    else:
        sync_engine = create_engine(database.sqlalchemy_url(driver))
        with sync_engine.connect() as plain:
            assert plain.execute(question).scalar_one() == database.name
        sync_engine.dispose()
