"""A PostgreSQL with a standby: what a promotion keeps and what it loses."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import closing

import psycopg
import pytest

from tests.support.servers.clock import WallClock
from tests.support.servers.postgres import PostgresServer
from tests.support.servers.postgres_replica import PostgresPair
from tests.support.waiting import PATIENCE, until

pytestmark = pytest.mark.slow

Start = Callable[..., PostgresPair]
NUMBERS = "SELECT number FROM numbers ORDER BY number"


def write(server: PostgresServer, number: int) -> None:
    """A commit that is acknowledged."""
    server.execute(f"INSERT INTO numbers VALUES ({number})")


@pytest.fixture(params=[True, False], ids=["synchronous", "asynchronous"])
def pair(request: pytest.FixtureRequest, own_postgres_pair: Start) -> PostgresPair:
    """Of each kind, with a table that both have."""
    pair = own_postgres_pair(synchronous=request.param)
    pair.primary.execute("CREATE TABLE numbers (number INT)")
    pair.settle()
    return pair


def test_the_standby_follows_and_takes_no_writes(pair: PostgresPair) -> None:
    """It has what the primary has; a write is refused with the code of a read-only transaction."""
    write(pair.primary, 1)
    until(lambda: pair.standby.execute(NUMBERS) == [(1,)], "it has followed")
    with pytest.raises(psycopg.errors.ReadOnlySqlTransaction):
        write(pair.standby, 2)


def test_a_promoted_standby_takes_the_place_of_a_dead_primary(pair: PostgresPair) -> None:
    """It has what was replicated, and one URL with both addresses leads to whichever takes writes."""
    with closing(psycopg.connect(pair.url)) as client:
        assert client.info.port == pair.primary.port
    write(pair.primary, 1)
    pair.settle()
    old = pair.primary
    old.kill()
    assert pair.promote() is pair.primary is not old
    with closing(psycopg.connect(pair.url, autocommit=True)) as client:
        assert client.info.port == pair.primary.port
        client.execute("INSERT INTO numbers VALUES (2)")
        assert client.execute(NUMBERS).fetchall() == [(1,), (2,)]


def test_an_asynchronous_standby_forgets_what_it_was_not_sent(own_postgres_pair: Start) -> None:
    """The commit was acknowledged, and is gone after the promotion."""
    pair = own_postgres_pair(synchronous=False)
    pair.primary.execute("CREATE TABLE numbers (number INT)")
    pair.settle()
    pair.cut_replication()
    write(pair.primary, 1)
    assert pair.primary.execute(NUMBERS) == [(1,)]
    pair.primary.kill()
    assert pair.promote().execute(NUMBERS) == []


def test_a_synchronous_commit_waits_for_its_standby(own_postgres_pair: Start) -> None:
    """While the link is cut nothing is acknowledged; when it is healed, the commit is."""
    pair = own_postgres_pair(synchronous=True)
    pair.primary.execute("CREATE TABLE numbers (number INT)")
    pair.cut_replication()
    commits = threading.Thread(target=write, args=(pair.primary, 1))
    commits.start()
    waiting = "SELECT 1 FROM pg_stat_activity WHERE wait_event = 'SyncRep'"
    until(lambda: pair.primary.execute(waiting), "the commit waits")
    assert commits.is_alive() and pair.standby.execute(NUMBERS) == []
    pair.heal()
    commits.join(PATIENCE)
    assert not commits.is_alive()
    assert pair.standby.execute(NUMBERS) == [(1,)]


def test_two_primaries_after_a_partition(own_postgres_pair: Start) -> None:
    """Promoted while the old one lives: both take writes, and neither sees those of the other."""
    pair = own_postgres_pair(synchronous=False)
    pair.primary.execute("CREATE TABLE numbers (number INT)")
    pair.settle()
    pair.cut_replication()
    old, new = pair.primary, pair.promote()
    write(old, 1)
    write(new, 2)
    assert (old.execute(NUMBERS), new.execute(NUMBERS)) == ([(1,)], [(2,)])


def test_each_has_a_clock_of_its_own(own_postgres_pair: Start) -> None:
    """A promoted standby may be behind the primary that it replaces."""
    pair = own_postgres_pair(clocks=True)
    behind: WallClock = pair.clocks[1]
    behind.set_off(-3600)
    now = "SELECT extract(epoch FROM clock_timestamp())"
    ((first,),), ((second,),) = pair.primary.execute(now), pair.standby.execute(now)
    assert 3500 < first - second < 3700
