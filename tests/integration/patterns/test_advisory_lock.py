"""``advisory_lock``: a name for one transaction alone, over every connection to PostgreSQL, behind PgBouncer too."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from datetime import date
from typing import Any
from uuid import UUID

import asyncpg
import psycopg
import pytest
import sqlalchemy
from sqlalchemy.ext.asyncio import create_async_engine

from leasehold._core.names import make_name
from leasehold.errors import InvalidRequest, NotAcquired, StoreUnavailable, Unsupported
from leasehold.guards import Conflict
from leasehold.patterns import advisory_lock
from leasehold.patterns.tables.advisory_lock import key_of
from tests.support.guards.desks import NAMES, Desk, Tx
from tests.support.servers.database import Database
from tests.support.servers.pgbouncer import PgBouncer
from tests.support.servers.postgres import PostgresServer
from tests.support.servers.postgres_replica import PostgresPair
from tests.support.waiting import PATIENCE, until, until_async

slow = pytest.mark.slow
EVERY_WAY = pytest.mark.parametrize("desk", [one for one in NAMES if one.startswith("postgresql")], indirect=True)
HELD = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND granted"
WAITING = "SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"


def lock(tx: Tx, *name: Any, **more: Any) -> None:
    """In a transaction that goes on."""
    tx.do(lambda raw: advisory_lock(raw, *(name or ("ledger", 7)), **more))


@contextmanager
def begun(database: Database, **more: Any) -> Iterator[psycopg.Connection]:
    """A transaction that is rolled back at its end."""
    with closing(psycopg.connect(database.dsn, **more)) as connection:
        yield connection


@contextmanager
def in_a_thread(call: Callable[[], object]) -> Iterator[list[BaseException]]:
    """The call runs beside the body, and has ended after it; what it raised is in the list."""
    raised: list[BaseException] = []

    def run() -> None:
        try:
            call()
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield raised
    finally:
        thread.join(PATIENCE)
    assert not thread.is_alive()


# ---------------------------------------------------------------- by every way


@slow
@EVERY_WAY
def test_one_transaction_at_a_time(desk: Desk, postgres_server: PostgresServer) -> None:
    """Busy at once, and the transaction goes on; free when the other one ends, and by commit or rollback alike."""
    with desk.begin() as tx:
        tx.rows(f"UPDATE {desk.reports} SET body = 'kept'")
        with begun(postgres_server.main) as rival:
            advisory_lock(rival, "ledger", 7)
            for wait in (0, 0.001, "20ms"):
                with pytest.raises(NotAcquired, match=r"ledger#\w+.*Your transaction goes on"):
                    lock(tx, wait=wait)
            lock(tx, "ledger", 8)  # another name is free
        until(lambda: postgres_server.execute(HELD) == [(1,)], "the rival's lock is gone")
        lock(tx)
        lock(tx, wait=1)  # again
        lock(tx, wait=None)
        assert tx.rows("SHOW lock_timeout") == [("0",)]
    assert desk.report()[0] == "kept"
    assert postgres_server.execute(HELD) == [(0,)]


@slow
@EVERY_WAY
def test_a_wait_ends_when_the_lock_is_free(desk: Desk, postgres_server: PostgresServer) -> None:
    """Bounded or not; afterwards the transaction has the lock, and the lock_timeout that it had."""
    for wait in (60, None):
        with ExitStack() as stack:
            rival = stack.enter_context(begun(postgres_server.main))
            advisory_lock(rival, "ledger", 7)
            tx = stack.enter_context(desk.begin())
            tx.rows("SET LOCAL lock_timeout = '70s'")

            def free(rival: psycopg.Connection = rival) -> None:
                until(lambda: postgres_server.execute(WAITING), "it waits")
                rival.rollback()

            with in_a_thread(free) as raised:
                lock(tx, wait=wait)
            assert not raised
            assert tx.rows("SHOW lock_timeout") == [("70s",)]
            assert postgres_server.execute(HELD) == [(1,)]
        assert postgres_server.execute(HELD) == [(0,)]


@slow
async def test_without_a_transaction(postgres_database: Database) -> None:
    """Where each statement is committed on its own the lock would end at once: refused, and nothing is locked."""
    with begun(postgres_database, autocommit=True) as connection:
        with pytest.raises(InvalidRequest, match="commits each statement"):
            advisory_lock(connection, "ledger", 7)
        awaited = await asyncpg.connect(postgres_database.dsn)
        with pytest.raises(InvalidRequest, match="commits each statement"):
            await advisory_lock(awaited, "ledger", 7)
        await awaited.close()
        assert connection.execute(HELD).fetchone() == (0,)


# ---------------------------------------------------------------- behind PgBouncer


@slow
def test_behind_pgbouncer(
    own_pgbouncer: Callable[..., PgBouncer], postgres_server: PostgresServer, postgres_database: Database
) -> None:
    """Clients that share two connections exclude each other, and leave neither a lock nor a setting behind."""
    place = own_pgbouncer(postgres_server, size=2).before(postgres_database)
    plain = {"prepare_threshold": None}
    with begun(place, **plain) as one, begun(place, **plain) as other, begun(place, **plain) as third:
        for _ in range(8):  # more than psycopg needs to prepare a statement
            advisory_lock(one, "ledger", 7)
            for wait in (0, "5ms"):
                with pytest.raises(NotAcquired):
                    advisory_lock(other, "ledger", 7, wait=wait)
            one.commit()
            advisory_lock(other, "ledger", 7, wait=5)
            other.rollback()
            for _ in range(2):
                assert third.execute("SHOW lock_timeout").fetchone() == ("0",)
                third.rollback()
        assert postgres_server.execute(HELD) == [(0,)]


@slow
async def test_behind_pgbouncer_awaited(
    own_pgbouncer: Callable[..., PgBouncer], postgres_server: PostgresServer, postgres_database: Database
) -> None:
    """asyncpg, and SQLAlchemy over async psycopg; eight at once on three connections never share the lock."""
    place = own_pgbouncer(postgres_server, size=3).before(postgres_database)
    inside, most = 0, 0

    async def enter() -> None:
        nonlocal inside, most
        inside += 1
        most = max(most, inside)
        await asyncio.sleep(0.002)
        inside -= 1

    async def by_asyncpg() -> None:
        connection = await asyncpg.connect(place.dsn, statement_cache_size=0)
        try:
            async with connection.transaction():
                await advisory_lock(connection, "ledger", 7, wait=PATIENCE)
                await enter()
        finally:
            await connection.close()

    engine = create_async_engine(place.sqlalchemy_url("psycopg"), connect_args={"prepare_threshold": None}, pool_size=8)

    async def by_sqlalchemy() -> None:
        async with engine.begin() as tx:
            await advisory_lock(tx, "ledger", 7, wait=PATIENCE)
            await enter()

    await asyncio.gather(*(by_asyncpg() for _ in range(4)), *(by_sqlalchemy() for _ in range(4)))
    await engine.dispose()
    assert most == 1
    assert postgres_server.execute(HELD) == [(0,)]


# ---------------------------------------------------------------- what it refuses


def test_another_database(tmp_path: Any) -> None:
    """Unsupported names what to use there, and no transaction is left open."""
    with closing(sqlite3.connect(tmp_path / "app.db")) as connection:
        with pytest.raises(Unsupported, match=r"PostgreSQL, and this is sqlite.*row_lock.*hold\.lock"):
            advisory_lock(connection, "ledger", 7)
        assert not connection.in_transaction


@pytest.mark.parametrize(
    ("name", "wait", "said"),
    [
        ((7,), 0, "kind must be str"),
        (("ledger", 1.5), 0, "id must be str, int, UUID or date"),
        (("ledger", True), 0, "id must be str, int, UUID or date"),
        (("",), 0, "kind must not be empty"),
        (("ledger",), -1, "wait must not be negative"),
        (("ledger",), float("nan"), "wait"),
        (("ledger",), "soon", "wait"),
    ],
)
def test_bad_input_is_refused_before_anything_is_sent(name: tuple[Any, ...], wait: Any, said: str) -> None:
    """The error says what is expected."""
    with closing(sqlite3.connect(":memory:")) as connection, pytest.raises(InvalidRequest, match=said):
        advisory_lock(connection, *name, wait=wait)


def test_no_connection() -> None:
    """An engine or a pool is no transaction."""
    engine = sqlalchemy.create_engine("sqlite://")
    with pytest.raises(InvalidRequest, match="inside your own transaction"):
        advisory_lock(engine, "ledger", 7)  # type: ignore[call-overload]  # the mistake that is tested


@slow
def test_a_snapshot_older_than_the_lock(postgres_database: Database) -> None:
    """REPEATABLE READ would miss what the last holder wrote, so it is refused; SERIALIZABLE is not."""
    with begun(postgres_database) as tx:
        tx.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        with pytest.raises(InvalidRequest, match=r"REPEATABLE READ.*READ COMMITTED"):
            advisory_lock(tx, "ledger", 7)
        assert tx.execute(HELD).fetchone() == (0,)
        tx.rollback()
        tx.execute("SET TRANSACTION ISOLATION LEVEL SERIALIZABLE")
        advisory_lock(tx, "ledger", 7)


@slow
def test_a_standby(own_postgres_pair: Callable[..., PostgresPair]) -> None:
    """Its locks exclude no one on the primary: refused."""
    pair = own_postgres_pair(synchronous=False)
    with begun(pair.standby.main) as tx, pytest.raises(InvalidRequest, match="standby"):
        advisory_lock(tx, "ledger", 7)


# ---------------------------------------------------------------- how a wait can end


@slow
def test_a_limit_of_the_users_own(postgres_database: Database) -> None:
    """statement_timeout ends a wait, and lock_timeout an endless one: NotAcquired, and the transaction has failed."""
    with begun(postgres_database) as rival, begun(postgres_database) as tx:
        advisory_lock(rival, "ledger", 7)
        for setting, wait in (("statement_timeout", 60), ("statement_timeout", None), ("lock_timeout", None)):
            tx.execute(f"SET LOCAL {setting} = '20ms'".encode())
            with pytest.raises(NotAcquired, match="Roll back") as caught:
                advisory_lock(tx, "ledger", 7, wait=wait)
            assert isinstance(caught.value.__cause__, psycopg.Error)
            with pytest.raises(InvalidRequest, match="has failed: roll back"):
                advisory_lock(tx, "ledger", 7)
            tx.rollback()


@slow
def test_a_deadlock(own_postgres: Callable[..., PostgresServer]) -> None:
    """Two that wait for each other: one gets Conflict, the other one the lock."""
    server = own_postgres("-c", "deadlock_timeout=20ms")
    with begun(server.main) as one, begun(server.main) as other:
        advisory_lock(one, "ledger", 1)
        advisory_lock(other, "ledger", 2)

        def cross(tx: psycopg.Connection, number: int, raised: list[BaseException]) -> None:
            try:
                advisory_lock(tx, "ledger", number, wait=PATIENCE)
            except Conflict as error:
                raised.append(error)
                tx.rollback()

        conflicts: list[BaseException] = []
        with in_a_thread(lambda: cross(one, 2, conflicts)) as raised:
            cross(other, 1, conflicts)
        assert not raised and len(conflicts) == 1


@slow
def test_a_lost_connection(own_postgres: Callable[..., PostgresServer]) -> None:
    """Nothing was locked: StoreUnavailable; and the lock of a client whose connection ends is free."""
    server = own_postgres()
    with begun(server.main) as one, begun(server.main) as other:
        advisory_lock(one, "ledger", 7)
        server.end_backend(one.info.backend_pid)
        advisory_lock(other, "ledger", 7)
        with pytest.raises((StoreUnavailable, InvalidRequest)):
            advisory_lock(one, "ledger", 7)


@slow
def test_a_frozen_holder_keeps_it(own_postgres: Callable[..., PostgresServer]) -> None:
    """It has no ttl. A wait has an end all the same, and a holder whose server process is killed has nothing left."""
    server = own_postgres()
    with begun(server.main) as one, begun(server.main) as other:
        advisory_lock(one, "ledger", 7)
        server.freeze_backend(one.info.backend_pid)
        with pytest.raises(NotAcquired):
            advisory_lock(other, "ledger", 7, wait="20ms")
        server.thaw_backend(one.info.backend_pid)
        server.kill_backend(one.info.backend_pid)
    with begun(server.main) as third:
        advisory_lock(third, "ledger", 7)


@slow
async def test_a_cancelled_wait(postgres_database: Database) -> None:
    """It leaves no lock and no waiter once the transaction is rolled back."""
    with begun(postgres_database) as rival:
        advisory_lock(rival, "ledger", 7)
        connection = await psycopg.AsyncConnection.connect(postgres_database.dsn)
        async with connection:
            waits = asyncio.ensure_future(advisory_lock(connection, "ledger", 7, wait=PATIENCE))
            await until_async(lambda: rival.execute(WAITING).fetchone(), "it waits")
            waits.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waits
            await connection.rollback()
            assert rival.execute(WAITING).fetchone() is None
            assert rival.execute(HELD).fetchone() == (1,)


@slow
def test_a_savepoint(postgres_database: Database) -> None:
    """What was locked after it ends with a rollback to it; what a wait locked stays as long as the transaction."""
    with begun(postgres_database) as tx, begun(postgres_database) as rival:
        with pytest.raises(ZeroDivisionError), tx.transaction():  # noqa: PT012 - one transaction
            advisory_lock(tx, "ledger", 7)
            raise ZeroDivisionError
        advisory_lock(rival, "ledger", 7)


@slow
def test_what_is_sent(postgres_database: Database) -> None:
    """One statement where the lock is free or nobody waits; a wait is two more."""
    engine = sqlalchemy.create_engine(postgres_database.sqlalchemy_url("psycopg"))
    sent: list[str] = []
    sqlalchemy.event.listen(engine, "before_cursor_execute", lambda *told: sent.append(told[2]))
    with engine.begin() as rival, engine.begin() as tx:
        for holder, wait, expected in ((tx, 0, 1), (tx, 5, 1), (tx, None, 1), (rival, 0, 1), (rival, "1ms", 3)):
            advisory_lock(holder, "ledger", 7 if holder is tx else 8)
            sent.clear()
            try:
                advisory_lock(tx, "ledger", 7 if holder is tx else 8, wait=wait)
            except NotAcquired:
                assert holder is rival
            assert len(sent) == expected, sent
    engine.dispose()


# ---------------------------------------------------------------- the key


def key(kind: Any, *ids: Any) -> int:
    """The number of that name."""
    return key_of(make_name("", kind, ids))


def test_keys_are_frozen() -> None:
    """Two versions of a program must agree: these numbers never change. They fit a bigint."""
    frozen = {
        ("ledger",): -3_799_969_198_910_201_533,
        ("ledger", 7): 7_972_421_592_483_515_958,
        ("ledger", "7"): 7_972_421_592_483_515_958,
        ("ledger", UUID(int=7)): -2_494_738_105_410_881_889,
        ("ledger", date(2026, 11, 17)): 3_008_493_102_713_929_968,
        ("büro", "ä:b"): -4_668_742_847_674_903_188,
    }
    assert {name: key(*name) for name in frozen} == frozen
    assert all(-(2**63) <= number < 2**63 for number in frozen.values())


def test_names_are_not_confused() -> None:
    """Where one part ends and the next begins matters, also when a part has a colon in it."""
    names = [("a", "bc"), ("ab", "c"), ("a", "b", "c"), ("a", "b:c"), ("a:b", "c"), ("abc",), ("a:bc",), ("a", "b%3Ac")]
    assert len({key(*name) for name in names}) == len(names)
