"""The embedded store in one process: turns, waiting for others, replaced files, old rows, asyncio, closing."""

from __future__ import annotations

import asyncio
import sqlite3
import stat
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from leasehold._core import ops
from leasehold._core.ports import Store
from leasehold._core.types import Capabilities
from leasehold.errors import InvalidRequest, OutcomeUnknown, StoreUnavailable
from leasehold.stores.clock import ManualClock
from leasehold.stores.sqlite import SQLiteStore, database, default_path
from tests.support.sqlite import ROOM, TTL, claim, look, release, take


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where the database will be."""
    return tmp_path / "leases.db"


@pytest.fixture
def clock() -> ManualClock:
    """Time stands still."""
    return ManualClock()


@pytest.fixture
def store(path: Path, clock: ManualClock) -> Iterator[SQLiteStore]:
    """A store on a clock that tests turn."""
    made = SQLiteStore(str(path), clock)
    yield made
    made.close()


@pytest.fixture
def writer(path: Path, store: SQLiteStore) -> Iterator[sqlite3.Connection]:
    """Another connection to the same file, which can keep it locked."""
    look(store)
    connection = sqlite3.connect(path, timeout=0, isolation_level=None, check_same_thread=False)
    yield connection
    connection.close()


def mode(path: Path) -> int:
    """Who may do what with it."""
    return stat.S_IMODE(path.stat().st_mode)


# ---------------------------------------------------------------- turns


def test_it_is_a_store(store: SQLiteStore) -> None:
    """It has the shape of the port, and promises everything but several hosts."""
    port: Store = store
    assert port.name == "sqlite"
    assert port.capabilities == Capabilities(hosts=False)


def test_making_one_touches_nothing(path: Path) -> None:
    """The first op makes the file."""
    SQLiteStore(str(path)).close()
    assert list(path.parent.iterdir()) == []


def test_claim_renew_release(store: SQLiteStore, clock: ManualClock) -> None:
    """The ledger's answers, kept between turns and between store objects."""
    grant = take(store, "a")
    assert claim(store, "b", enqueue=False) == ops.Busy("?", TTL)
    clock.advance(4)
    assert claim(store, "a") == ops.Granted(grant.fence, TTL - 4000)
    assert store.execute(ops.Renew(ROOM, "a", grant.fence, TTL)) == ops.Renewed(TTL)
    assert release(store, "a", grant.fence) == ops.Released()
    assert take(store, "b").fence > grant.fence


def test_a_second_store_sees_the_same(store: SQLiteStore, path: Path, clock: ManualClock) -> None:
    """Two objects on one file are two clients of one store."""
    take(store, "a")
    other = SQLiteStore(str(path), clock)
    assert look(other) == look(store)
    other.close()


def test_fences_survive_a_wall_clock_that_steps_back(store: SQLiteStore, clock: ManualClock) -> None:
    """The record is a floor too (trap 14)."""
    grant = take(store, "a")
    release(store, "a", grant.fence)
    clock.step_wall(-3600)
    assert take(store, "b").fence == grant.fence + 1


def test_the_time_is_read_under_the_lock(path: Path) -> None:
    """Whoever waited for the write lock must not decide with the time from before it."""
    seen: list[bool] = []
    connection = sqlite3.connect(path, timeout=0, isolation_level=None)

    class Watching(ManualClock):
        def instant(self) -> Any:
            with pytest.raises(sqlite3.OperationalError, match="locked"):
                connection.execute("BEGIN IMMEDIATE")
            seen.append(True)
            return super().instant()

    store = SQLiteStore(str(path), Watching())
    take(store, "a")
    assert seen == [True]
    store.close()
    connection.close()


def test_many_ops_in_one_go(store: SQLiteStore) -> None:
    """Each has its own reply, in order; more than one transaction holds is split."""
    claims = [ops.Claim(f"room:{number}", "a", TTL) for number in range(1203)]
    replies = store.execute_many(claims)
    assert [type(reply) for reply in replies] == [ops.Granted] * 1203
    assert store.execute_many([]) == []
    mixed = store.execute_many([ops.Withdraw("room:1", "a"), claims[1]._replace(owner="b"), ops.Inspect("room:1")])
    assert mixed[0] == ops.Withdrawn("held")
    assert isinstance(mixed[1], ops.Granted)
    assert isinstance(mixed[2], ops.View)
    assert mixed[2].holders[0].owner == "b"


def test_many_ops_share_one_misfortune(store: SQLiteStore, writer: sqlite3.Connection) -> None:
    """A transaction that cannot be had is an error for each, and the shortest budget counts."""
    writer.execute("BEGIN IMMEDIATE")
    claims = [ops.Claim("a", "a", TTL, budget_ms=3_600_000), ops.Claim("b", "b", TTL, budget_ms=20)]
    replies = store.execute_many(claims)
    assert [type(reply) for reply in replies] == [StoreUnavailable] * 2
    writer.execute("ROLLBACK")
    assert store.execute(ops.Inspect("a")) == ops.View((), (), 0, 0, look(store).now_ms)


def test_new_files_are_private(store: SQLiteStore, path: Path) -> None:
    """0600 for the database and what SQLite keeps beside it; 0700 for the folder of sockets."""
    take(store, "a")
    connection = store.connection()
    claim(store, "b", address=connection.address)
    names = {one.name: mode(one) for one in path.parent.iterdir()}
    assert names == {"leases.db": 0o600, "leases.db-shm": 0o600, "leases.db-wal": 0o600, "leases.db.wake": 0o700}


def test_the_mode_of_an_existing_file_is_respected(path: Path) -> None:
    """Whoever shares the file with a group decides that."""
    path.touch(mode=0o660)
    path.chmod(0o660)
    store = SQLiteStore(str(path))
    take(store, "a")
    assert mode(path) == 0o660
    assert mode(path.with_name("leases.db-wal")) == 0o660
    store.close()


def test_the_default_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """XDG_STATE_HOME when it is absolute, else ~/.local/state; its folders are made, for the user only."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_STATE_HOME", "relative")
    assert default_path() == f"{tmp_path}/.local/state/leasehold/leasehold.db"
    store = SQLiteStore(default_path())
    take(store, "a")
    assert mode(tmp_path / ".local") == mode(tmp_path / ".local/state/leasehold") == 0o700
    store.close()
    monkeypatch.setenv("XDG_STATE_HOME", "/elsewhere")
    assert default_path() == "/elsewhere/leasehold/leasehold.db"


def test_a_relative_path_is_fixed_at_construction(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A later chdir must not lead to another file."""
    monkeypatch.chdir(tmp_path)
    store = SQLiteStore(":memory:")
    monkeypatch.chdir("/")
    take(store, "a")
    assert (tmp_path / ":memory:").exists()
    store.close()


@pytest.mark.parametrize("name", ["with space.db", "a%20b.db", "what?.db", "#1.db", "ünï.db", "a&mode=ro.db"])
def test_odd_names_of_files(name: str, tmp_path: Path) -> None:
    """The path is taken literally, whatever a URI would make of it."""
    store = SQLiteStore(str(tmp_path / name))
    take(store, "a")
    store.close()
    assert [one.name for one in tmp_path.iterdir()] == [name]


@pytest.mark.parametrize("path", ["", "a\0b"])
def test_impossible_paths(path: str) -> None:
    """Refused at construction."""
    with pytest.raises(InvalidRequest):
        SQLiteStore(path)


def test_odd_names_of_resources(store: SQLiteStore) -> None:
    """Quotes, NUL and emoji are text like any other; what is no UTF-8 is refused and leaves nothing behind."""
    for name in ("o'brien", 'say "x"', "nul\0nul", "🦊", "", "x" * 5000):
        assert isinstance(store.execute(ops.Claim(name, "a", TTL, meta=name + "\ud800")), ops.Granted)
        assert isinstance(store.execute(ops.Claim(name, "b", TTL, enqueue=False)), ops.Busy)
    with pytest.raises(StoreUnavailable):
        store.execute(ops.Claim("\ud800", "a", TTL))
    take(store, "a")


# ---------------------------------------------------------------- waiting for others


def test_a_locked_database_is_waited_for(store: SQLiteStore, writer: sqlite3.Connection) -> None:
    """Another process is at work: try again until it is done."""
    writer.execute("BEGIN IMMEDIATE")
    timer = threading.Timer(0.1, lambda: writer.execute("ROLLBACK"))
    timer.start()
    take(store, "a")
    assert not writer.in_transaction
    timer.join()


def test_a_database_that_stays_locked(store: SQLiteStore, writer: sqlite3.Connection) -> None:
    """After the budget: StoreUnavailable, with SQLite's error as its cause."""
    writer.execute("BEGIN IMMEDIATE")
    began = time.monotonic()
    with pytest.raises(StoreUnavailable, match="another process keeps the database locked") as caught:
        claim(store, "a", budget_ms=300)
    assert time.monotonic() - began > 0.29
    assert isinstance(caught.value.__cause__, sqlite3.OperationalError)
    writer.execute("ROLLBACK")
    take(store, "a")


def test_threads_do_not_wait_for_one_that_waits(store: SQLiteStore, writer: sqlite3.Connection, path: Path) -> None:
    """Whoever finds the file locked lets go of the threads' lock meanwhile."""
    writer.execute("BEGIN IMMEDIATE")
    first = threading.Thread(target=lambda: take(store, "a"))
    first.start()
    time.sleep(0.05)
    with pytest.raises(StoreUnavailable, match="another process"):
        claim(store, "b", budget_ms=300)
    writer.execute("ROLLBACK")
    first.join()


def test_a_turn_inside_a_turn_is_refused(path: Path) -> None:
    """A signal handler that calls the store in the middle of a turn gets an error, and harms nobody."""
    clock = ManualClock()
    errors: list[StoreUnavailable] = []

    class Interrupting(ManualClock):
        def instant(self) -> Any:
            if not errors:
                with pytest.raises(StoreUnavailable, match="interrupts") as caught:
                    look(inner)
                errors.append(caught.value)
            return clock.instant()

    inner = SQLiteStore(str(path), Interrupting())
    take(inner, "a")
    assert len(look(inner).holders) == 1
    inner.close()


def test_an_interrupt_leaves_nothing_locked(path: Path) -> None:
    """KeyboardInterrupt in the middle of a turn: rolled back, and every lock is free."""

    class Interrupted(ManualClock):
        broken = True

        def instant(self) -> Any:
            if self.broken:
                raise KeyboardInterrupt
            return super().instant()

    clock = Interrupted()
    store = SQLiteStore(str(path), clock)
    with pytest.raises(KeyboardInterrupt):
        claim(store, "a")
    clock.broken = False
    threads = [threading.Thread(target=lambda: look(store))]
    threads[0].start()
    threads[0].join()
    other = SQLiteStore(str(path), clock)
    assert look(other).holders == ()
    other.close()
    store.close()


# ---------------------------------------------------------------- the file goes away


def files_of(path: Path) -> list[Path]:
    """The database and what SQLite keeps beside it."""
    return [path, path.with_name(path.name + "-wal"), path.with_name(path.name + "-shm")]


@pytest.mark.parametrize("how_many", [1, 3])
def test_a_deleted_file_is_made_again(store: SQLiteStore, path: Path, how_many: int) -> None:
    """Two processes on two files would not exclude each other: all go on with the one at the path."""
    other = SQLiteStore(str(path), store.clock)
    old = take(store, "a")
    look(other)
    for one in files_of(path)[:how_many]:
        one.unlink()
    new = take(other, "b", floor=old.fence)
    assert new.fence > old.fence
    assert isinstance(claim(store, "c", enqueue=False), ops.Busy)
    assert store.execute(ops.Renew(ROOM, "a", old.fence, TTL)) == ops.NotYours("taken")
    assert mode(path) == 0o600
    other.close()
    assert isinstance(claim(store, "d", enqueue=False), ops.Busy)


def test_a_replaced_file_is_opened(store: SQLiteStore, path: Path, tmp_path: Path) -> None:
    """A rename over the file counts from the next turn."""
    take(store, "a")
    other = SQLiteStore(str(tmp_path / "other.db"), store.clock)
    take(other, "b")
    other.close()
    (tmp_path / "other.db").rename(path)
    for leftover in files_of(path)[1:]:
        leftover.unlink()
    assert [grant.owner for grant in look(store).holders] == ["b"]


def test_a_file_replaced_by_something_else(store: SQLiteStore, path: Path) -> None:
    """What is opened again is checked again."""
    take(store, "a")
    for one in files_of(path):
        one.unlink()
    path.write_text("shopping list\n" * 100)
    with pytest.raises(StoreUnavailable, match="not a database"):
        look(store)
    path.unlink()
    take(store, "b")


# ---------------------------------------------------------------- COMMIT


def failing(name: str, done: bool) -> Callable[[database.Database], None]:
    """A COMMIT that fails in a given way, before or after it was done."""

    def commit(opened: database.Database) -> None:
        if done:
            opened._execute("COMMIT")
        error = sqlite3.OperationalError("made up")
        error.sqlite_errorname = name
        raise error

    return commit


@pytest.mark.parametrize("done", [False, True])
def test_an_error_at_commit_is_unknown(store: SQLiteStore, monkeypatch: pytest.MonkeyPatch, done: bool) -> None:
    """It may have happened: the caller may ask again with the same owner, on a new connection."""
    look(store)
    with monkeypatch.context() as patch:
        patch.setattr(database.Database, "commit", failing("SQLITE_IOERR_WRITE", done))
        with pytest.raises(OutcomeUnknown) as caught:
            claim(store, "a")
    assert isinstance(caught.value.__cause__, sqlite3.OperationalError)
    assert len(look(store).holders) == done
    take(store, "a")


def test_a_full_disk_at_commit_is_definite(store: SQLiteStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """The commit record is what did not fit."""
    look(store)
    with monkeypatch.context() as patch:
        patch.setattr(database.Database, "commit", failing("SQLITE_FULL", done=False))
        with pytest.raises(StoreUnavailable, match="full disk"):
            claim(store, "a")
    assert look(store).holders == ()


# ---------------------------------------------------------------- old rows


def rows(path: Path) -> int:
    """How many resources the file knows."""
    connection = sqlite3.connect(path)
    (count,) = connection.execute("SELECT count(*) FROM resources").fetchone()
    connection.close()
    return int(count)


def test_old_rows_are_swept(store: SQLiteStore, clock: ManualClock, path: Path) -> None:
    """Names that nobody has used for a day leave the file (trap 37); what is held stays."""
    store.execute_many([ops.Claim(f"room:{number}", "a", 1000) for number in range(1000)])
    assert rows(path) == 1000
    clock.advance(25 * 3600)
    take(store, "a", ttl_ms=3600_000)
    for _ in range(2):  # those leases were never given back: first they are written down as expired
        clock.advance(61)
        for _ in range(256 * 7):
            look(store)
    assert rows(path) == 1


def test_batches_of_new_names_do_not_pile_up(store: SQLiteStore, clock: ManualClock, path: Path) -> None:
    """As many rows are swept as a batch can bring; renewals bring none, and cost no sweep."""
    names = 500
    for day in range(4):
        for number in range(0, names, 100):
            batch = [f"day-{day}:{place}" for place in range(number, number + 100)]
            replies = store.execute_many([ops.Claim(name, "a", TTL) for name in batch])
            fences = [reply.fence for reply in replies if isinstance(reply, ops.Granted)]
            assert len(fences) == len(batch)
            store.execute_many([ops.Release(name, "a", fence) for name, fence in zip(batch, fences, strict=True)])
        assert rows(path) <= 2 * names
        clock.advance(25 * 3600)


def test_sweeping_goes_round(store: SQLiteStore, clock: ManualClock, path: Path) -> None:
    """The cursor moves over rows that stay, and begins anew at the end; it is shared by all processes."""
    look(store)
    opened = store._database
    assert opened is not None
    opened._turns = -1_000  # it starts anywhere, and a turn would sweep by itself
    store.execute_many([ops.Claim(f"room:{number:04}", "a", 24 * 3600_000) for number in range(500)])
    clock.advance(3600)
    seen = []
    for _ in range(5):
        opened.begin()
        opened.sweep(clock.instant())
        opened.commit()
        connection = sqlite3.connect(path)
        seen += connection.execute("SELECT value FROM meta WHERE key = 'swept'").fetchone()
        connection.close()
    assert seen == ["room:0199", "room:0399", "room:0499", "", "room:0199"]
    assert rows(path) == 500


def test_a_damaged_row_is_left_for_its_reader(store: SQLiteStore, path: Path, clock: ManualClock) -> None:
    """Sweeping goes on past it; whoever asks for it is told which row it is."""
    take(store, "a")
    connection = sqlite3.connect(path)
    connection.execute("UPDATE resources SET state = '[[1]]'")
    connection.commit()
    connection.close()
    opened = store._database
    assert opened is not None
    opened.begin()
    opened.sweep(clock.instant())
    opened.commit()
    with pytest.raises(StoreUnavailable, match=r"damaged.*this resource"):
        store.execute(ops.Claim(ROOM, "b", TTL))
    assert look(store).unreadable[0].blocks
    assert isinstance(store.execute(ops.Claim("other", "a", TTL)), ops.Granted)


# ---------------------------------------------------------------- asyncio


async def test_the_loop_thread_does_the_turn(store: SQLiteStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing to wait for: no worker thread. The first op opens the file, which is left to a worker."""
    threads: list[int] = []
    turn = SQLiteStore._turn

    def watched(self: SQLiteStore, *arguments: Any) -> Any:
        threads.append(threading.get_ident())
        return turn(self, *arguments)

    monkeypatch.setattr(SQLiteStore, "_turn", watched)
    for _ in range(3):
        assert isinstance(await store.execute_async(ops.Claim(ROOM, "a", TTL)), ops.Granted)
    assert threads[0] != threading.get_ident()
    assert threads[1:] == [threading.get_ident()] * 2


async def test_waiting_does_not_block_the_loop(store: SQLiteStore, writer: sqlite3.Connection) -> None:
    """A locked file is waited for on a worker thread."""
    writer.execute("BEGIN IMMEDIATE")
    call = asyncio.create_task(store.execute_async(ops.Claim(ROOM, "a", TTL)))
    await asyncio.sleep(0.02)  # the loop goes on: it would stand still until the file is free
    assert not call.done()
    writer.execute("ROLLBACK")
    assert isinstance(await call, ops.Granted)


async def test_a_cancelled_call_is_cancelled(store: SQLiteStore, writer: sqlite3.Connection) -> None:
    """The worker may still do it: that is what the flow's tombstone is for (trap 9)."""
    writer.execute("BEGIN IMMEDIATE")
    call = asyncio.create_task(store.execute_async(ops.Claim(ROOM, "a", TTL, budget_ms=500)))
    await asyncio.sleep(0.02)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    writer.execute("ROLLBACK")
    await asyncio.get_running_loop().shutdown_default_executor()


async def test_errors_are_the_same_in_asyncio(store: SQLiteStore, writer: sqlite3.Connection) -> None:
    """StoreUnavailable after the budget."""
    writer.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreUnavailable, match="another process"):
        await store.execute_async(ops.Claim(ROOM, "a", TTL, budget_ms=300))
    writer.execute("ROLLBACK")


# ---------------------------------------------------------------- the end


def test_a_closed_store_says_so(store: SQLiteStore, path: Path) -> None:
    """close() may be repeated; SQLite's own files and the sockets are gone."""
    take(store, "a")
    connection = store.connection()
    claim(store, "b", address=connection.address)
    store.close()
    store.close()
    with pytest.raises(StoreUnavailable, match="closed"):
        look(store)
    assert isinstance(store.execute_many([ops.Inspect(ROOM)])[0], StoreUnavailable)
    assert sorted(one.name for one in path.parent.iterdir()) == ["leases.db", "leases.db.wake"]
    assert list(path.with_name("leases.db.wake").iterdir()) == []
    connection.close()


def test_one_store_closes_and_another_goes_on(store: SQLiteStore, path: Path) -> None:
    """Closing a descriptor must not drop the locks of another connection of this process."""
    other = SQLiteStore(str(path), store.clock)
    look(other)
    take(store, "a")
    other.close()
    connection = sqlite3.connect(path, timeout=0, isolation_level=None)
    opened = store._database
    assert opened is not None
    opened.begin()
    SQLiteStore(str(path), store.clock).close()
    with pytest.raises(sqlite3.OperationalError, match="locked"):
        connection.execute("BEGIN IMMEDIATE")
    opened.rollback()
    connection.close()
