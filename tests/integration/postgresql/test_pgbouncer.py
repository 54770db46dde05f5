"""Behind PgBouncer in transaction mode: leases work, nothing is left in a session, and waiters poll unless they know
where the server itself is."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from itertools import pairwise
from typing import Any
from urllib.parse import quote

import psycopg
import pytest

import leasehold
from leasehold import OutcomeUnknown, StoreUnavailable
from leasehold._core import policy
from tests.support.servers.database import Database
from tests.support.servers.pgbouncer import PgBouncer
from tests.support.servers.postgres import PostgresServer
from tests.support.waiting import PATIENCE, until
from tests.support.workers.journal import now

pytestmark = pytest.mark.slow

TTL = 30.0  # seconds
WORKERS = 30
RESOURCES = 10
ROUNDS = 2
# What a session could be left with. The last two are of the session that answers.
SETTINGS = ("lock_timeout", "idle_in_transaction_session_timeout", "statement_timeout", "default_transaction_isolation")
LEFT = "SELECT (SELECT count(*) FROM pg_prepared_statements), (SELECT count(*) FROM pg_listening_channels())"
LOCKS = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = ANY(%s)"


@contextmanager
def opened(url: str) -> Iterator[Any]:
    """A coordinator."""
    with leasehold.connect(url) as hold:
        yield hold


@pytest.fixture
def url(pgbouncer: PgBouncer, postgres_database: Database) -> str:
    """The database by way of PgBouncer, which has two connections to it."""
    return pgbouncer.before(postgres_database).url


def insist(call: Callable[[], Any]) -> Any:
    """What it returns, as soon as the server can be reached."""
    end = time.monotonic() + PATIENCE
    while True:
        try:
            return call()
        except (OutcomeUnknown, StoreUnavailable):
            assert time.monotonic() < end, "the server is never reached"


def waiting(hold: Any, kind: str = "job") -> int:
    """How many wait."""
    return len(hold.inspect(kind).waiters)


# ---------------------------------------------------------------- at work


def test_every_primitive_works(url: str) -> None:
    """Also those whose turns are transactions."""
    with opened(url) as hold, opened(url) as other:
        with hold.lock("job", ttl=TTL) as lease:
            assert other.lock("job").try_acquire() is None
            lease.extend(TTL)
        with hold.semaphore("seats", limit=2, ttl=TTL), other.semaphore("seats", limit=2, ttl=TTL):
            assert hold.semaphore("seats", limit=2, ttl=TTL).try_acquire() is None
        with hold.rwlock("page").write(ttl=TTL) as writer:
            assert other.rwlock("page").read(ttl=TTL).try_acquire() is None
            writer.downgrade()
            with other.rwlock("page").read(ttl=TTL):
                pass
        with hold.all(hold.lock("a", ttl=TTL), hold.lock("b", ttl=TTL)):
            assert other.lock("b").try_acquire() is None
        adopted = other.adopt(hold.lock("gift", ttl=TTL).acquire(wait=0).transfer())
        assert adopted.release() is True
        held = hold.lock("job", ttl=TTL).acquire(wait=0)
        other.evict("job", fence=held.fence, reason="a test")
        assert held.release() is False


def test_thirty_workers_over_two_connections(url: str) -> None:
    """Three coordinators with ten threads each: nobody is inside with another, and fences grow."""
    turns: dict[int, list[tuple[float, float, int]]] = {resource: [] for resource in range(RESOURCES)}

    def work(hold: Any, resource: int) -> None:
        for _ in range(ROUNDS):
            with hold.lock("job", resource, ttl=TTL) as lease:
                since = now()
                turns[resource].append((since, now(), lease.fence))

    with opened(url) as one, opened(url) as two, opened(url) as three, ThreadPoolExecutor(WORKERS) as threads:
        works = [threads.submit(work, (one, two, three)[each % 3], each // 3) for each in range(WORKERS)]
        for done in works:
            done.result(PATIENCE)
    for one_after_the_other in turns.values():
        assert len(one_after_the_other) == WORKERS // RESOURCES * ROUNDS
        one_after_the_other.sort()
        assert all(one[1] <= other[0] and one[2] < other[2] for one, other in pairwise(one_after_the_other))


# ---------------------------------------------------------------- what it leaves behind


def test_nothing_is_left_in_a_session(
    own_pgbouncer: Callable[..., PgBouncer], postgres_server: PostgresServer, postgres_database: Database
) -> None:
    """No setting, no prepared statement, no LISTEN and no lock meets the next client of the only connection."""
    place = own_pgbouncer(postgres_server, size=1).before(postgres_database)
    with closing(psycopg.connect(place.dsn, autocommit=True, prepare_threshold=None)) as next_client:

        def settings() -> list[Any]:
            return [next_client.execute(f"SHOW {name}".encode()).fetchone() for name in SETTINGS]

        before = settings()
        with opened(place.url) as hold, opened(place.url) as other:
            lease = hold.lock("job", ttl=TTL).acquire(wait=0)
            assert other.lock("job", ttl=TTL).acquire(wait=0.3) is None, "it has waited in the queue"
            lease.release()
            with hold.all(hold.lock("a", ttl=TTL), hold.lock("b", ttl=TTL)):
                pass
            assert settings() == before
            assert next_client.execute(LEFT).fetchone() == (0, 0)
            backends = postgres_server.backends(postgres_database)
            assert len(backends) == 1
            assert next_client.execute(LOCKS, (backends,)).fetchone() == (0,)


# ---------------------------------------------------------------- waiting


def test_a_waiter_polls(url: str, postgres_database: Database) -> None:
    """Nothing listens, although PgBouncer accepts LISTEN; the first in the queue asks often."""
    with opened(url) as hold, opened(url) as other, ThreadPoolExecutor(1) as threads:
        lease = hold.lock("job", ttl=TTL).acquire(wait=0)
        claim = threads.submit(other.lock("job", ttl=TTL).acquire, wait=PATIENCE)
        until(lambda: waiting(hold) == 1, "it waits")
        lease.release()
        assert claim.result(PATIENCE).fence > lease.fence


def test_a_waiter_is_told_that_listens_at_the_server(
    url: str, postgres_database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``?listen=`` names the server: a waiter that never asks again hears of its grant."""
    direct = f"{url}?listen={quote(postgres_database.url, safe='')}"
    with opened(url) as hold, opened(direct) as other, ThreadPoolExecutor(1) as threads:
        lease = hold.lock("job", ttl=TTL).acquire(wait=0)
        monkeypatch.setattr(policy, "beat_every_ms", lambda ttl_ms: 600_000)
        claim = threads.submit(other.lock("job", ttl=TTL).acquire, wait=PATIENCE)
        until(lambda: waiting(hold) == 1, "it waits")
        lease.release()
        assert claim.result(PATIENCE).fence > lease.fence


# ---------------------------------------------------------------- when it is restarted, killed, frozen


def crash(bouncer: PgBouncer) -> None:
    """kill -9, and it is back."""
    bouncer.kill()
    bouncer.start()


def stand_still(bouncer: PgBouncer) -> None:
    """SIGSTOP for a moment."""
    bouncer.freeze()
    threading.Timer(0.5, bouncer.thaw).start()


@pytest.mark.parametrize("trouble", [PgBouncer.restart, crash, stand_still])
def test_pgbouncer_is_in_trouble_while_a_lease_is_held_and_waited_for(
    pgbouncer: PgBouncer, url: str, trouble: Callable[[PgBouncer], None]
) -> None:
    """The holder keeps its lease and renews it, the waiter keeps its place and gets it after the release."""
    with opened(url) as hold, opened(url) as other, ThreadPoolExecutor(1) as threads:
        lease = hold.lock("job", ttl=6).acquire(wait=0)
        claim = threads.submit(other.lock("job", ttl=TTL).acquire, wait=PATIENCE)
        until(lambda: waiting(hold) == 1, "it waits")
        deadline = lease.deadline
        trouble(pgbouncer)
        until(lambda: lease.deadline > deadline, "it is renewed")
        assert lease.state == "held" and not claim.done()
        assert insist(lease.release) is True
        assert claim.result(PATIENCE).fence > lease.fence


def test_the_server_crashes_behind_pgbouncer(
    own_postgres: Callable[..., PostgresServer], own_pgbouncer: Callable[..., PgBouncer]
) -> None:
    """A lease is held after it, and a claim gets through as soon as the server is back."""
    server = own_postgres()
    with opened(own_pgbouncer(server).main.url) as hold:
        lease = hold.lock("job", ttl=TTL).acquire(wait=0)
        server.kill()
        server.start()
        other = insist(lambda: hold.lock("other", ttl=TTL).acquire(wait=0))
        assert other.fence and insist(lease.release) is True


def test_a_client_frozen_in_a_transaction_frees_its_connection(
    own_pgbouncer: Callable[..., PgBouncer], postgres_server: PostgresServer, postgres_database: Database
) -> None:
    """PgBouncer gives a connection to one transaction at a time. One that stands still is ended by the server, and the
    only connection is there for the others."""
    place = own_pgbouncer(postgres_server, size=1).before(postgres_database)
    with opened(place.url) as hold:
        hold.lock("job", ttl=TTL).locked()
        with closing(psycopg.connect(place.dsn, autocommit=True, prepare_threshold=None)) as frozen:
            frozen.execute("BEGIN")
            frozen.execute("SET LOCAL idle_in_transaction_session_timeout = 500")
            frozen.execute("SELECT 1 FROM leasehold_leases FOR UPDATE")
            assert insist(lambda: hold.lock("job", ttl=TTL).acquire(wait=0)) is not None
