"""A server that is killed, restarted, full, read-only, or ends sessions: what clients are told, and how they go on."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from functools import partial
from typing import Any

import psycopg
import pytest

import leasehold
from leasehold import OutcomeUnknown, StaleOwner, StoreUnavailable
from leasehold._core.guarantee_table import Cell
from leasehold.guards.memory import FenceGuard
from leasehold.stores.postgresql.store import PostgresStore
from tests.support.guarantees import show_cell
from tests.support.parties import FLAVOURS, Party
from tests.support.servers.clock import WallClock
from tests.support.servers.database import Database
from tests.support.servers.disk import Disk
from tests.support.servers.postgres import PostgresServer
from tests.support.servers.postgres_replica import PostgresPair
from tests.support.waiting import PATIENCE, until

pytestmark = pytest.mark.slow

TTL = 600.0  # seconds: nothing expires meanwhile
HOUR = 3600.0
ENOUGH = 2_000  # locks, which do not fit into the pages that a small table has
HOLDS = Cell("holds", "holds", "holds", "", "")
Start = Callable[..., PostgresServer]


@pytest.fixture
def parties() -> Iterator[Callable[..., Party]]:
    """Makes parties of either flavour."""
    with ExitStack() as stack:

        def make(url: str, flavour: str = "sync") -> Party:
            made = FLAVOURS[flavour](PostgresStore(url))
            stack.callback(made.close)
            return made

        yield make


def connect(url: str) -> Any:
    """A coordinator."""
    return leasehold.connect(url)


def insist(call: Callable[[], Any]) -> Any:
    """What it returns, as soon as the server can be reached."""
    end = time.monotonic() + PATIENCE
    while True:
        try:
            return call()
        except (OutcomeUnknown, StoreUnavailable):
            assert time.monotonic() < end, "the server is never reached"


def acquire(hold: Any, wait: float = 0) -> Any:
    """The lease that most of these tests are about."""
    return hold.lock("job", ttl=TTL).acquire(wait=wait)


def waiters_are(party: Party, count: int) -> bool:
    """Whether so many wait."""
    return len(party.do(lambda hold: hold.inspect("job").waiters)) == count


# ---------------------------------------------------------------- crashes


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_kill_9_while_a_lease_is_held_and_others_wait(
    own_postgres: Start, parties: Callable[..., Party], flavour: str
) -> None:
    """Both waiters are served, one after the other, and fences grow. The second may come first: a grant goes to a
    waiter that listens already."""
    server = own_postgres()
    holder, *waiting = [parties(server.url, flavour) for _ in range(3)]
    look = parties(server.url)
    lease = holder.do(acquire)
    claims = []
    for number, party in enumerate(waiting, start=1):
        claims.append(party.start(lambda hold: acquire(hold, PATIENCE)))
        until(partial(waiters_are, look, number), "it waits")
    server.kill()
    server.start()
    assert insist(lambda: holder.do(lambda _: lease.release())) is True
    until(lambda: claims[0].done() or claims[1].done(), "one of them has it")
    place = 0 if claims[0].done() else 1
    first, rest = claims.pop(place).result(), claims.pop()
    assert not rest.done()
    assert insist(lambda: waiting[place].do(lambda _: first.release())) is True
    assert lease.fence < first.fence < rest.result(PATIENCE).fence


def test_many_crashes_with_an_unlogged_table(own_postgres: Start) -> None:
    """After each crash there are two holders. The fence of the second is always higher, and the guard accepts none of
    the writes of the first."""
    server = own_postgres()
    guard, violations = FenceGuard(), 0
    with connect(f"{server.url}?unlogged=yes") as one, connect(server.url) as two:
        for _ in range(5):
            old = insist(lambda: one.lock("job", ttl=TTL, renew=False).acquire(wait=0))
            guard.check(old)
            server.kill()
            server.start()
            new = insist(lambda: two.lock("job", ttl=TTL, renew=False).acquire(wait=0))
            violations += new is not None and old.remaining() > 0
            assert new.fence > old.fence
            guard.check(new)
            with pytest.raises(StaleOwner):
                guard.check(old)
            assert insist(new.release) is True
    assert violations == 5


def test_the_table_is_unlogged_or_logged_as_asked(own_postgres: Start) -> None:
    """``unlogged=yes`` is for a new table; one that is there stays as it is."""
    server = own_postgres()
    for table, more, kind in (("a", "", "p"), ("b", "&unlogged=yes", "u"), ("a", "&unlogged=yes", "p")):
        with connect(f"{server.url}?table={table}{more}") as hold:
            hold.lock("job").locked()
        assert server.execute(f"SELECT relpersistence FROM pg_class WHERE relname = '{table}'") == [(kind,)]


def test_sessions_are_ended_by_an_administrator(
    postgres_server: PostgresServer, postgres_database: Database, parties: Callable[..., Party]
) -> None:
    """Whoever holds goes on, whoever waits gets it, and all of them have new sessions."""
    holder, waiter = parties(postgres_database.url), parties(postgres_database.url)
    lease = holder.do(acquire)
    claim = waiter.start(lambda hold: acquire(hold, PATIENCE))
    until(lambda: holder.do(lambda hold: hold.inspect("job").waiters), "it waits")
    for backend in postgres_server.backends(postgres_database):
        postgres_server.end_backend(backend)
    assert insist(lambda: holder.do(lambda _: lease.release())) is True
    assert claim.result(PATIENCE).fence > lease.fence


def test_kill_9_of_the_session_of_a_holder(own_postgres: Start) -> None:
    """The server ends every session and recovers; the lease is still held."""
    server = own_postgres()
    show_cell(HOLDS, server.url, lambda: server.kill_backend(server.backends()[0]))


def test_a_restart_of_the_server(own_postgres: Start) -> None:
    """Every session is told that it ends; the lease is still held, also in an unlogged table."""
    server = own_postgres()
    show_cell(HOLDS, f"{server.url}?unlogged=yes", server.restart)


@pytest.mark.parametrize("kind", ["", "&unlogged=yes"])
def test_many_make_the_table_at_once(postgres_database: Database, kind: str) -> None:
    """Clients that come at the same time all find it made, by one of them."""
    many = 6
    together = threading.Barrier(many)

    def first_use(table: str) -> int:
        with connect(f"{postgres_database.url}?table={table}{kind}") as hold:
            together.wait(PATIENCE)
            lease = hold.lock("job", ttl=TTL).acquire(wait=PATIENCE)
            assert lease.release() is True
            return int(lease.fence)

    with ThreadPoolExecutor(many) as threads:
        for number in range(5):
            fences = list(threads.map(first_use, [f"leases{number}"] * many))
            assert len(set(fences)) == many


# ---------------------------------------------------------------- its disk


def test_the_disk_is_full(own_postgres: Start) -> None:
    """A claim that needs room takes nothing and says why; what is there is renewed and released. With room again all
    goes on."""
    disk = Disk()
    server = own_postgres(disk=disk)
    with connect(server.url) as hold:
        lease = acquire(hold)
        disk.fill()
        refused = 0

        def grow() -> None:
            nonlocal refused
            for refused in range(ENOUGH):
                hold.lock("grow", refused, ttl=TTL).acquire(wait=0).release()

        with pytest.raises(StoreUnavailable, match="no space left on its disk"):
            grow()
        lease.extend(TTL)
        assert lease.release() is True
        disk.free()
        again = hold.lock("grow", refused, ttl=TTL).acquire(wait=0)
        assert again is not None, "the refused claim has taken nothing"
        assert acquire(hold).fence > lease.fence


def fill_the_log(server: PostgresServer) -> None:
    """Until it crashes."""
    for _ in range(ENOUGH):
        server.execute("SELECT pg_logical_emit_message(true, 'fill', repeat('x', 200000))")


def test_the_log_has_no_room(own_postgres: Start) -> None:
    """The server crashes. A lease that was granted is held after the restart, with its fence."""
    disk = Disk()
    server = own_postgres(disk=disk)
    with connect(server.url) as hold:
        lease = acquire(hold)
        disk.fill()
        with pytest.raises(psycopg.OperationalError):
            fill_the_log(server)
        with pytest.raises((OutcomeUnknown, StoreUnavailable)):
            hold.lock("other", ttl=TTL).acquire(wait=0)
        disk.free()
        server.kill()
        server.start()
        holder = insist(lambda: hold.inspect("job").holder)
        assert holder.fence == lease.fence and insist(lease.release) is True


# ---------------------------------------------------------------- its clock


def test_the_clock_is_set_back_and_nobody_waits_for_longer_than_the_ttl(own_postgres: Start) -> None:
    """An hour back: the holder is gone without a release, and another has it when its ttl has passed."""
    clock = WallClock()
    server = own_postgres(clock=clock)
    with connect(server.url) as one, connect(server.url) as two:
        old = one.lock("job", ttl=1, renew=False).acquire(wait=0)
        clock.set_off(-HOUR)
        new = two.lock("job", ttl=TTL).acquire(wait=PATIENCE)
        assert new is not None and new.fence > old.fence
        assert old.remaining() == 0, "two held it at the same time"


def test_the_clock_jumps_about(own_postgres: Start) -> None:
    """Forward and back, again and again: fences grow by every grant."""
    clock = WallClock()
    server = own_postgres(clock=clock)
    fences = []
    with connect(server.url) as hold:
        for off in (0, HOUR, -HOUR, 24 * HOUR, 0, -48 * HOUR, 1):
            clock.set_off(off)
            for lock in (hold.lock("job", ttl=TTL), hold.semaphore("job", limit=1, ttl=TTL)):
                lease = lock.acquire(wait=0)
                fences.append(lease.fence)
                assert lease.release() is True
    assert fences == sorted(set(fences))


# ---------------------------------------------------------------- it is read-only


def test_a_read_only_database(postgres_server: PostgresServer, postgres_database: Database) -> None:
    """A claim is refused with a reason; when it takes writes again, the same coordinator goes on."""
    set_read_only = f"ALTER DATABASE {postgres_database.name} SET default_transaction_read_only"
    with connect(postgres_database.url) as hold:
        acquire(hold).release()
        postgres_server.execute(f"{set_read_only} = on")
        for backend in postgres_server.backends(postgres_database):
            postgres_server.end_backend(backend)
        with suppress(OutcomeUnknown, StoreUnavailable):  # it finds the end of its session
            acquire(hold)
        with pytest.raises(StoreUnavailable, match="read-only"):
            acquire(hold)
        postgres_server.execute(f"{set_read_only} = off")
        lease = acquire(hold)
        assert lease is not None and lease.release() is True, "its session was left"


def test_a_standby_is_refused(own_postgres_pair: Callable[..., PostgresPair]) -> None:
    """Without target_session_attrs a client may get to a standby. It says so, and nothing was written."""
    pair = own_postgres_pair()
    with connect(pair.standby.url) as hold, pytest.raises(StoreUnavailable, match="read-only"):
        acquire(hold)


def test_a_primary_that_stands_still_is_left_for_its_standby(own_postgres_pair: Callable[..., PostgresPair]) -> None:
    """The primary is frozen, and its standby promoted: with both in the URL a client gets there."""
    pair = own_postgres_pair()
    with connect(pair.url) as hold:
        lease = acquire(hold)
        old = pair.primary
        old.freeze()
        pair.promote()
        again = insist(lambda: hold.lock("other", ttl=TTL).acquire(wait=0))
        assert again is not None
        assert insist(lease.release) is True, "the standby knows the lease"
        old.thaw()
        holder = hold.inspect("other").holder
        assert holder is not None and holder.fence == again.fence


def test_a_client_leaves_a_server_that_takes_no_writes_any_more(
    own_postgres_pair: Callable[..., PostgresPair],
) -> None:
    """Its sessions stay open and refuse (25006): the next call opens new ones, where writes are taken."""
    pair = own_postgres_pair(synchronous=False)
    with connect(pair.url) as hold:
        lease = acquire(hold)
        acquire_in_threads(hold, 3)
        pair.settle()
        old = pair.primary
        old.execute("ALTER SYSTEM SET default_transaction_read_only = on")
        old.execute("SELECT pg_reload_conf()")
        until(lambda: old.execute("SHOW default_transaction_read_only") == [("on",)], "it takes no writes")
        new = pair.promote()
        with pytest.raises(StoreUnavailable, match="read-only"):
            hold.lock("other", ttl=TTL).acquire(wait=0)
        assert hold.lock("other", ttl=TTL).acquire(wait=0) is not None, "one refusal is enough to leave it"
        assert lease.release() is True
        assert new.execute("SELECT count(*) FROM leasehold_leases WHERE name = 'other'") == [(1,)]


def acquire_in_threads(hold: Any, count: int) -> None:
    """So that the coordinator has several sessions."""
    together = threading.Barrier(count)

    def use(number: int) -> None:
        together.wait()
        for _ in range(20):
            hold.lock("thread", number).acquire(wait=0).release()

    threads = [threading.Thread(target=use, args=[number]) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
