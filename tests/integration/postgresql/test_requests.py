"""What the store sends: how many round trips an op takes, what is prepared, what is flushed, and what it leaves."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest

import leasehold
import leasehold.aio
from leasehold._core.ops import Claim, Granted, Inspect, Release, View, Withdraw
from leasehold._core.policy import DAY_US
from leasehold.stores.postgresql import store as module
from leasehold.stores.postgresql.schema import TABLE
from leasehold.stores.postgresql.session import Request, Rows, Session
from leasehold.stores.postgresql.sessions import Sessions
from leasehold.stores.postgresql.store import PostgresStore
from leasehold.stores.postgresql.turns import Turns
from tests.support.servers.database import Database
from tests.support.servers.pgbouncer import PgBouncer
from tests.support.waiting import PATIENCE, until

pytestmark = pytest.mark.slow


@contextmanager
def recorded(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Request]]:
    """The requests of this thread and of its event loop."""
    sent: list[Request] = []
    perform, perform_async, thread = Session.perform, Session.perform_async, threading.current_thread()

    def record(session: Session, request: Request, give_up: float) -> list[Rows]:
        if threading.current_thread() is thread:
            sent.append(request)
        return perform(session, request, give_up)

    async def record_async(session: Session, request: Request, give_up: float) -> list[Rows]:
        sent.append(request)
        return await perform_async(session, request, give_up)

    with monkeypatch.context() as patch:
        patch.setattr(Session, "perform", record)
        patch.setattr(Session, "perform_async", record_async)
        yield sent


def statements(sent: list[Request]) -> list[list[str]]:
    """The first word of each statement, request by request."""
    return [[text.decode().split()[0] for text, _ in request.statements] for request in sent]


def test_an_uncontended_pair_is_two_round_trips(postgres_database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """One statement to claim and one to release, each a transaction of its own; so is a renewal by hand."""
    with leasehold.connect(postgres_database.url) as hold:
        with hold.lock("job"):
            pass
        with recorded(monkeypatch) as sent, hold.lock("job") as lease:
            lease.check()
        assert statements(sent) == [["INSERT"], ["UPDATE"]]


async def test_so_it_is_for_a_task(postgres_database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same on an event loop."""
    async with leasehold.aio.connect(postgres_database.url) as hold:
        async with hold.lock("job"):
            pass
        with recorded(monkeypatch) as sent:
            async with hold.lock("job"):
                pass
        assert statements(sent) == [["INSERT"], ["UPDATE"]]


def test_a_claim_that_is_refused_locks_no_row(postgres_database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """One try: the statement that may be enough, and a look."""
    with leasehold.connect(postgres_database.url) as hold, leasehold.connect(postgres_database.url) as other:
        assert other.lock("job").try_acquire() and hold.lock("warm").try_acquire()
        with recorded(monkeypatch) as sent:
            assert hold.lock("job").try_acquire() is None
        assert statements(sent) == [["INSERT"], ["SELECT"]]


def test_a_turn_is_two_round_trips(postgres_database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that several hold is never tried with one statement again."""
    with leasehold.connect(postgres_database.url) as hold:
        permits = hold.semaphore("job", limit=2)
        with permits:
            pass
        with recorded(monkeypatch) as sent, permits:
            pass
        lock, write = ["BEGIN", "SELECT", "SELECT", "SELECT"], ["UPDATE", "COMMIT"]
        assert statements(sent) == [lock, write, lock, ["SET", *write]]  # what is released need not be flushed


def test_what_is_promised_is_flushed(postgres_database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """A place in the queue need not be; a lease, its handover, and a door must."""
    with leasehold.connect(postgres_database.url) as hold, leasehold.connect(postgres_database.url) as other:
        lease = hold.lock("job", ttl=30).acquire(wait=0)
        assert lease is not None
        got: list[Any] = []
        waiting = threading.Thread(target=lambda: got.append(other.lock("job", ttl=30).acquire(wait=30)))
        waiting.start()
        until(lambda: len(hold.inspect("job").waiters) == 1, "the other waits")
        with recorded(monkeypatch) as sent:
            lease.release()
        waiting.join()
        assert any("pg_notify" in text.decode() for request in sent for text, _ in request.statements)
        assert "SET" not in statements(sent)[-1]
        with recorded(monkeypatch) as sent:
            hold.evict("job", fence=got[0].fence, reason="a test")
        assert "SET" not in statements(sent)[-1]


def prepared(database: Database) -> int:
    """How many statements a session has prepared that anybody gets."""
    with psycopg.connect(database.dsn) as connection:
        return len(connection.execute("SELECT FROM pg_prepared_statements").fetchall())


def test_nothing_is_prepared_behind_a_pooler(
    pgbouncer: PgBouncer, postgres_database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its sessions are shared; elsewhere statements are prepared, once for each session."""
    seen: list[bool] = []
    taken = Sessions.take

    def take(self: Any, give_up: float) -> Session:
        session = taken(self, give_up)
        seen.append(session.prepares)
        return session

    monkeypatch.setattr(Sessions, "take", take)
    for url in (postgres_database.url, pgbouncer.before(postgres_database).url):
        with leasehold.connect(url) as hold:
            for _ in range(3):
                with hold.lock("job"):
                    pass
    assert set(seen[:6]) == {True} and set(seen[6:]) == {False} and len(seen) == 12
    assert prepared(pgbouncer.before(postgres_database)) == 0


def test_a_prepared_statement_that_is_gone_is_not_missed(postgres_database: Database) -> None:
    """Somebody has executed DEALLOCATE ALL: the op is done all the same, and nothing is prepared from then on."""
    with leasehold.connect(postgres_database.url) as hold:
        with hold.lock("job"):
            pass
        store: Any = hold._engine.store
        (session,) = store._sessions._idle
        session.perform(Request((b"DEALLOCATE ALL", ())), time.monotonic() + PATIENCE)
        with hold.lock("job"):
            assert not session.prepares


def test_renewals_in_bulk_are_planned_anew(postgres_database: Database) -> None:
    """A plan that was made without their number takes a hundred times as long for a thousand leases."""
    with leasehold.connect(postgres_database.url) as hold:
        leases = [hold.lock("job", number, ttl=30).acquire(wait=0) for number in range(20)]
        store: Any = hold._engine.store
        held = hold._engine.watchdog.leases()
        assert len(held) == len(leases)
        for _ in range(3):
            assert store.renew_many([held], 5_000) == [[]]
        assert store._turns._statements.renew_many not in store._sessions._idle[-1]._prepared
        assert store._turns._statements.claim in store._sessions._idle[-1]._prepared


def test_idle_names_vanish(postgres_database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """A day after their last lease; those that are held stay, and so do names with a closed door."""
    monkeypatch.setattr(module, "SWEEP_EVERY", 1)
    store = PostgresStore(postgres_database.url)
    with leasehold.connect(store) as hold, psycopg.connect(postgres_database.dsn) as connection:
        for number in range(5):
            with hold.lock("old", number):
                pass
        store.execute(Withdraw("withdrawn", "host:1:x", forget_ms=1))  # its tombstone is not in columns
        kept = hold.lock("kept", ttl="1h").acquire(wait=0)
        closed = hold.lock("closed", ttl="1h").acquire(wait=0)
        assert kept is not None and closed is not None
        hold.evict("closed", fence=closed.fence, reason="a test")
        connection.execute(f"UPDATE {TABLE} SET fence = fence - {DAY_US} - 1 WHERE name LIKE 'old:%'")
        connection.commit()

        def names() -> set[str]:
            with hold.lock("busy"):  # each op sweeps
                pass
            rows = connection.execute(f"SELECT name FROM {TABLE}").fetchall()
            connection.rollback()
            return {name for (name,) in rows}

        until(lambda: names() == {"busy", "kept", "closed"}, "the old names are gone")


def test_idle_names_vanish_beside_a_program_that_only_takes_batches(postgres_database: Database) -> None:
    """Each op of a batch counts as one that could have brought a new name."""
    with leasehold.connect(postgres_database.url) as hold, psycopg.connect(postgres_database.dsn) as connection:
        with hold.lock("old"):
            pass
        connection.execute(f"UPDATE {TABLE} SET fence = fence - {DAY_US} - 1")
        connection.commit()

        def is_there() -> bool:
            hold.release_many(hold.acquire_many([hold.lock("new", number) for number in range(module.SWEEP_EVERY)]))
            found = connection.execute(f"SELECT 1 FROM {TABLE} WHERE name = 'old'").fetchone()
            connection.rollback()
            return found is not None

        until(lambda: not is_there(), "the old name is gone")


def test_a_sweep_that_fails_harms_no_op(postgres_database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """A lease that was granted is not lost because something else went wrong."""

    def broken(self: Turns, give_up: float) -> Iterator[Any]:
        yield from ()
        raise leasehold.StoreUnavailable("a test")

    monkeypatch.setattr(module, "SWEEP_EVERY", 1)
    monkeypatch.setattr(Turns, "sweep", broken)
    with leasehold.connect(postgres_database.url) as hold, hold.lock("job") as lease:
        lease.check()


async def test_the_beats_of_many_are_one_transaction(
    postgres_database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sixty tasks wait for one lock: their beats travel together."""
    async with leasehold.aio.connect(postgres_database.url) as hold:
        lease = await hold.lock("job", ttl=30).acquire(wait=0)
        assert lease is not None

        async def wait() -> None:
            async with hold.lock("job", ttl=3, wait=60):
                pass

        waiting = [asyncio.create_task(wait()) for _ in range(60)]
        async with asyncio.timeout(PATIENCE):
            while len((await hold.inspect("job")).waiters) < 60:  # noqa: ASYNC110 - the store does not say
                await asyncio.sleep(0.01)
        beats: list[int] = []
        real = PostgresStore._send_async

        async def send(self: PostgresStore, ops: Any, give_up: float, forks: int | None = None) -> Any:
            beats.append(len(ops))
            return await real(self, ops, give_up, forks)

        monkeypatch.setattr(PostgresStore, "_send_async", send)
        async with asyncio.timeout(PATIENCE):
            while sum(beats) < 100:  # noqa: ASYNC110 - whoever beats does not know that it is counted
                await asyncio.sleep(0.01)
        assert sum(beats) / len(beats) > 3
        await lease.release()
        await asyncio.gather(*waiting)


def test_a_grant_that_nobody_waits_for_goes_on(postgres_database: Database) -> None:
    """A thread of a coordinator that was closed had its place in the queue: the next one is served at once."""
    store, url = PostgresStore(postgres_database.url), postgres_database.url
    with leasehold.connect(url) as hold:
        lease = hold.lock("job", ttl=60).acquire(wait=0)
        assert lease is not None
        gone = store.connection()
        store.execute(Claim("job", "gone:1:x", 60_000, address=gone.address))
        other = store.connection()
        store.execute(Claim("job", "next:1:x", 60_000, address=other.address))
        gone.close()
        lease.release()
        push = other.next_push(30)
        while push is not None and push.event == "wake":
            push = other.next_push(30)
        assert push is not None and push.owner == "next:1:x"
        view = store.execute(Inspect("job"))
        assert isinstance(view, View) and [one.owner for one in view.holders] == ["next:1:x"]
    store.close()


@pytest.mark.parametrize("updates", [4_000, pytest.param(500_000, marks=pytest.mark.soak)])
def test_hot_rows_do_not_bloat(postgres_database: Database, updates: int) -> None:
    """One hundred rows that are written again and again: the table is at most twice its first size, and each new
    version finds its place beside the old one."""
    store = PostgresStore(postgres_database.url)
    with psycopg.connect(postgres_database.dsn, autocommit=True) as connection:

        def size() -> int:
            row = connection.execute("SELECT pg_relation_size(%s::regclass)", (TABLE,)).fetchone()
            assert row is not None
            return int(row[0])

        first = 0
        for number in range(updates // 2):
            granted = store.execute(Claim(f"job:{number % 100}", f"host:1:{number}", 60_000))
            assert isinstance(granted, Granted)
            store.execute(Release(f"job:{number % 100}", f"host:1:{number}", granted.fence))
            if number == 100:
                first = size()
        assert 0 < size() <= 2 * first
    store.close()
