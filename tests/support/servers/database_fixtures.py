"""Database servers for tests: one of each kind that is shared, and as many of one's own as one likes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from tests.support.servers.database import Database
from tests.support.servers.mariadb import MariaServer
from tests.support.servers.pgbouncer import PgBouncer
from tests.support.servers.postgres import PostgresServer
from tests.support.servers.postgres_replica import PostgresPair


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """A PostgreSQL for the whole run; who freezes or kills one takes ``own_postgres``."""
    with PostgresServer() as server:
        yield server


@pytest.fixture(scope="session")
def mariadb_server() -> Iterator[MariaServer]:
    """A MariaDB for the whole run; who freezes or kills one takes ``own_mariadb``."""
    with MariaServer() as server:
        yield server


@pytest.fixture
def postgres_database(postgres_server: PostgresServer) -> Iterator[Database]:
    """An empty database of the shared PostgreSQL, gone after the test with whoever is still connected."""
    database = postgres_server.fresh()
    yield database
    postgres_server.drop(database)


@pytest.fixture
def mariadb_database(mariadb_server: MariaServer) -> Iterator[Database]:
    """An empty database of the shared MariaDB, gone after the test with whoever is still connected."""
    database = mariadb_server.fresh()
    yield database
    mariadb_server.drop(database)


@pytest.fixture
def own_postgres() -> Iterator[Callable[..., PostgresServer]]:
    """Start a PostgreSQL of one's own; it takes what ``PostgresServer`` takes."""
    with ExitStack() as stack:

        def start(*options: str, **more: Any) -> PostgresServer:
            return stack.enter_context(PostgresServer(*options, **more))

        yield start


@pytest.fixture
def own_mariadb() -> Iterator[Callable[..., MariaServer]]:
    """Start a MariaDB of one's own; it takes what ``MariaServer`` takes."""
    with ExitStack() as stack:

        def start(*options: str, **more: Any) -> MariaServer:
            return stack.enter_context(MariaServer(*options, **more))

        yield start


# ---------------------------------------------------------------- around a PostgreSQL


@pytest.fixture
def pgbouncer(postgres_server: PostgresServer) -> Iterator[PgBouncer]:
    """A PgBouncer of one's own in front of the shared PostgreSQL, to freeze, kill and restart."""
    with PgBouncer(postgres_server) as bouncer:
        yield bouncer


@pytest.fixture
def own_pgbouncer() -> Iterator[Callable[..., PgBouncer]]:
    """Start a PgBouncer in front of a server; it takes what ``PgBouncer`` takes."""
    with ExitStack() as stack:

        def start(server: PostgresServer, **more: Any) -> PgBouncer:
            return stack.enter_context(PgBouncer(server, **more))

        yield start


@pytest.fixture
def own_postgres_pair() -> Iterator[Callable[..., PostgresPair]]:
    """Start a primary and its standby; it takes what ``PostgresPair`` takes."""
    with ExitStack() as stack:

        def start(*options: str, **more: Any) -> PostgresPair:
            return stack.enter_context(PostgresPair(*options, **more))

        yield start
