"""What happens to the server while a lease is held: which faults exclusion survives, and which it does not. Fences grow
and the guard accepts no stale write in every one of them."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from leasehold._core.guarantee_table import Cell
from tests.support.guarantees import LONG, show_a_frozen_holder, show_a_killed_holder, show_cell
from tests.support.servers.clock import WallClock
from tests.support.servers.database import Database
from tests.support.servers.postgres import PostgresServer
from tests.support.servers.postgres_replica import PostgresPair
from tests.support.servers.proxy import Proxy

pytestmark = pytest.mark.slow

HOUR = 3600.0  # seconds
HOLDS = Cell("holds", "holds", "holds", "", "")
REFUSED = Cell("refused", "holds", "holds", "", "")
LOST = Cell("lost", "holds", "holds", "", "")
Start = Callable[..., PostgresServer]


def crash(server: PostgresServer) -> None:
    """kill -9 of all its processes, and it is back at once with what is on its disk."""
    server.kill()
    server.start()


# ---------------------------------------------------------------- crashes


def test_kill_9_of_the_server(own_postgres: Start) -> None:
    """The lease is still held, goes on being renewed, and its fence is known."""
    server = own_postgres()
    show_cell(HOLDS, server.url, lambda: crash(server))


def test_kill_9_of_the_server_with_an_unlogged_table(own_postgres: Start) -> None:
    """The table is empty: there are two holders, and the clock gives the second the higher fence."""
    server = own_postgres()
    show_cell(LOST, f"{server.url}?unlogged=yes", lambda: crash(server))


def test_kill_9_of_the_server_with_asynchronous_commits(own_postgres: Start) -> None:
    """A commit that was acknowledged before it was in the log is gone: there are two holders."""
    server = own_postgres("-csynchronous_commit=off", "-cwal_writer_delay=10s")
    show_cell(LOST, server.url, lambda: crash(server))


def test_kill_9_of_the_backend_of_a_holder(own_postgres: Start) -> None:
    """The server ends every session and recovers; the lease is still held."""
    server = own_postgres()
    show_cell(HOLDS, server.url, lambda: server.kill_backend(server.backends()[0]))


def test_a_restart_of_the_server(own_postgres: Start) -> None:
    """Every session is told that it ends; the lease is still held, also in an unlogged table."""
    server = own_postgres()
    show_cell(HOLDS, f"{server.url}?unlogged=yes", server.restart)


# ---------------------------------------------------------------- it cannot be reached


def test_the_server_stands_still(own_postgres: Start) -> None:
    """Nothing is granted until it goes on, and by then the holder has stopped."""
    server = own_postgres()
    show_cell(REFUSED, server.url, server.freeze, server.thaw)


def test_the_network_is_cut(postgres_server: PostgresServer, postgres_database: Database) -> None:
    """Neither the holder nor anybody else reaches it; nobody is told that a connection is gone."""
    with Proxy(postgres_server.port) as network:

        def heal() -> None:
            network.release()
            network.cut()

        url = postgres_database.url.replace(f":{postgres_server.port}/", f":{network.port}/")
        show_cell(REFUSED, url, network.blackhole, heal)


# ---------------------------------------------------------------- clocks


def test_the_clock_is_set_forward_under_a_holder(own_postgres: Start) -> None:
    """The lease ends early on the server, and its holder does not know."""
    clock = WallClock()
    server = own_postgres(clock=clock)
    show_cell(LOST, server.url, lambda: clock.set_off(LONG + 1))


def test_the_clock_is_set_back_under_a_holder(own_postgres: Start) -> None:
    """The lease goes on, and the next one has a higher fence although the clock is behind."""
    clock = WallClock()
    server = own_postgres(clock=clock)
    show_cell(HOLDS, server.url, lambda: clock.set_off(-HOUR))


# ---------------------------------------------------------------- a standby is promoted


def fail_over(pair: PostgresPair) -> None:
    """kill -9 of the primary, and its standby takes its place."""
    pair.primary.kill()
    pair.promote()


def test_a_synchronous_standby_is_promoted(own_postgres_pair: Callable[..., PostgresPair]) -> None:
    """It has every grant that was acknowledged: the lease is still held, and renewed there."""
    pair = own_postgres_pair()
    show_cell(HOLDS, pair.url, lambda: fail_over(pair))


def test_an_asynchronous_standby_is_promoted_that_was_cut_off(own_postgres_pair: Callable[..., PostgresPair]) -> None:
    """The grant never reached it: there are two holders."""
    pair = own_postgres_pair(synchronous=False)
    pair.cut_replication()
    show_cell(LOST, pair.url, lambda: fail_over(pair))


# ---------------------------------------------------------------- the holder itself


def test_kill_9_of_the_holder(postgres_database: Database) -> None:
    """The next is granted when its ttl is over."""
    show_a_killed_holder("sqlite", postgres_database.url)


def test_the_holder_stands_still(postgres_database: Database) -> None:
    """The next is granted when its ttl is over, and the holder knows at its next call."""
    show_a_frozen_holder("sqlite", postgres_database.url)
