"""What PostgreSQL promises: each cell of its column on a real server, with the fault itself."""

from __future__ import annotations

from collections.abc import Callable

import leasehold
from leasehold.stores.postgresql.schema import TABLE
from tests.support.guarantees import LONG, claim, show, show_a_frozen_holder, show_a_killed_holder
from tests.support.servers.clock import WallClock
from tests.support.servers.database import Database, run
from tests.support.servers.postgres import PostgresServer
from tests.support.servers.postgres_replica import PostgresPair
from tests.support.servers.proxy import Proxy

Start = Callable[..., PostgresServer]
StartPair = Callable[..., PostgresPair]


def crash(server: PostgresServer) -> None:
    """kill -9, and it is back at once, with what is on its disk."""
    server.kill()
    server.start()


def held(url: str, kind: str) -> bool:
    """Whether somebody holds it, as a new client finds it."""
    with leasehold.connect(url) as hold:
        return hold.lock(kind).locked()


# ---------------------------------------------------------------- holders


def test_a_killed_holder(postgres_database: Database) -> None:
    """The next is granted when the ttl is over."""
    show_a_killed_holder("postgresql", postgres_database.url)


def test_a_frozen_holder(postgres_database: Database) -> None:
    """The next is granted meanwhile; a guard refuses what the first writes late."""
    show_a_frozen_holder("postgresql", postgres_database.url)


# ---------------------------------------------------------------- crashes


def test_kill_9_of_the_server(own_postgres: Start) -> None:
    """The lease is still held, and goes on being renewed."""
    server = own_postgres()
    show("postgresql", "crash_synchronous", server.url, lambda: crash(server))


def test_kill_9_with_synchronous_commit_off(own_postgres: Start) -> None:
    """What is not in the log yet is gone, and has two holders; what is there is kept."""
    server = own_postgres("-csynchronous_commit=off", "-cwal_writer_delay=10s")
    with leasehold.connect(server.url) as hold:
        kept = hold.lock("kept", ttl=LONG, renew=False).acquire()
        server.execute("CHECKPOINT")
        show("postgresql", "crash_asynchronous", server.url, lambda: crash(server))
        assert kept and held(server.url, "kept")


def test_kill_9_with_an_unlogged_table(own_postgres: Start) -> None:
    """Everything is gone: there are two holders."""
    server = own_postgres()
    show("postgresql", "crash_unlogged", f"{server.url}?unlogged=yes", lambda: crash(server))


# ---------------------------------------------------------------- a standby


def test_an_asynchronous_standby_is_promoted(own_postgres_pair: StartPair) -> None:
    """A grant that had not reached it is unknown there: there are two holders."""
    pair = own_postgres_pair(synchronous=False)
    with leasehold.connect(pair.url) as hold:
        kept = hold.lock("kept", ttl=LONG, renew=False).acquire()
        pair.settle()
        pair.cut_replication()

        def fail_over() -> None:
            pair.primary.kill()
            pair.promote()

        show("postgresql", "failover", pair.url, fail_over)
        assert kept and held(pair.url, "kept")


def test_a_synchronous_standby_is_promoted(own_postgres_pair: StartPair) -> None:
    """The lease is held there too, and goes on being renewed. The old primary is killed first."""
    pair = own_postgres_pair(synchronous=True)

    def fail_over() -> None:
        pair.primary.kill()
        pair.promote()

    show("postgresql", "failover_synchronous", pair.url, fail_over)


# ---------------------------------------------------------------- it cannot be reached


def test_the_server_stands_still(own_postgres: Start) -> None:
    """Nothing is granted until it goes on, and by then the holder has stopped."""
    server = own_postgres()
    show("postgresql", "server_pause", server.url, server.freeze, server.thaw)


def test_the_network_is_cut(own_postgres: Start) -> None:
    """Neither the holder nor anybody else reaches it; nobody is told that a connection is gone."""
    server = own_postgres()
    with Proxy(server.port) as network:

        def heal() -> None:
            network.release()
            network.cut()

        url = server.url.replace(f":{server.port}/", f":{network.port}/")
        show("postgresql", "partition", url, network.blackhole, heal)


# ---------------------------------------------------------------- clocks


def test_the_clock_is_set_forward_under_a_holder(own_postgres: Start) -> None:
    """The lease ends early on the server, and its holder does not know."""
    clock = WallClock()
    server = own_postgres(clock=clock)
    show("postgresql", "clock_forward", server.url, lambda: clock.set_off(LONG + 1))


def test_the_clock_is_set_back_under_a_holder(own_postgres: Start) -> None:
    """The lease goes on, and the next one has a higher fence although the clock is behind."""
    clock = WallClock()
    server = own_postgres(clock=clock)
    show("postgresql", "clock_back", server.url, lambda: clock.set_off(-3600))


def test_emptied_while_the_clock_is_behind(own_postgres: Start) -> None:
    """Two holders, and the second has the lower fence: the guard refuses it, and accepts the one that it takes next."""
    clock = WallClock()
    server = own_postgres(clock=clock)

    def lose() -> None:
        clock.set_off(-3600)
        server.execute(f"TRUNCATE {TABLE}")

    show("postgresql", "clock_back_and_loss", server.url, lose)


# ---------------------------------------------------------------- data that is gone


def test_the_table_is_truncated_under_a_holder(own_postgres: Start) -> None:
    """There are two holders; the fence of the second is above that of the first, from the clock."""
    server = own_postgres()
    show("postgresql", "flush", server.url, lambda: server.execute(f"TRUNCATE {TABLE}"))


def test_a_backup_is_put_back(own_postgres: Start) -> None:
    """What was granted after the backup is unknown, although the server lost nothing by itself."""
    server = own_postgres()
    with leasehold.connect(server.url) as hold:
        claim(hold, ttl=LONG).lease.release()  # the backup has a fence of this resource
    backup = server.folder / "backup"
    server.execute("CHECKPOINT")
    server.kill()
    run(["cp", "--archive", str(server.data), str(backup)])
    server.start()

    def put_back() -> None:
        server.kill()
        run(["rm", "--recursive", str(server.data)])
        run(["cp", "--archive", str(backup), str(server.data)])
        server.start()

    show("postgresql", "restore", server.url, put_back)


# ---------------------------------------------------------------- what its settings rule out


def ruled_out(url: str) -> set[str]:
    """Events that cannot happen there, beside those that can happen on no PostgreSQL."""
    with leasehold.connect(url) as hold:
        before = {one.event for one in hold.guarantees.events if not one.happens}
        hold.lock("report").locked()
        return {one.event for one in hold.guarantees.events if not one.happens} - before


def test_what_the_server_has_decides(own_postgres: Start) -> None:
    """Once a session has asked for them, the table and synchronous_commit leave one kind of crash."""
    url = own_postgres().url
    assert ruled_out(url) == {"crash_asynchronous", "crash_unlogged"}
    assert ruled_out(f"{url}?options=-csynchronous_commit%3Doff") == {
        "crash_synchronous",
        "crash_unlogged",
        "failover_synchronous",
    }
    assert ruled_out(f"{url}?table=fast&unlogged=yes") == {
        "crash_synchronous",
        "crash_asynchronous",
        "failover_synchronous",
    }
