"""Calls of one process that wait for a file which another process keeps busy: one thread asks for all of them."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from leasehold._core import ops
from leasehold._core.ports import Clock
from leasehold.errors import OutcomeUnknown, StoreUnavailable
from leasehold.stores.sqlite import SQLiteStore
from leasehold.stores.sqlite.database import Database
from leasehold.stores.sqlite.pending import Call, Pending, PendingGroup
from tests.support.sqlite import ROOM, TTL, claim, look, release, take
from tests.support.waiting import until

CROWD = 10
LONG = 60_000  # ms: a budget that only a failing test uses up


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SQLiteStore]:
    """A store whose file is open."""
    made = SQLiteStore(str(tmp_path / "leases.db"))
    look(made)
    yield made
    made.close()


@pytest.fixture
def writer(store: SQLiteStore) -> Iterator[sqlite3.Connection]:
    """Another process, as it were, that keeps the file locked."""
    connection = sqlite3.connect(store.path, timeout=0, isolation_level=None, check_same_thread=False)
    connection.execute("BEGIN IMMEDIATE")
    yield connection
    connection.close()


class Tries:
    """Which thread tried to get the file, and how many transactions were committed."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.threads: list[int] = []
        self.commits = 0
        begin, commit, plain_turn = Database.begin, Database.commit, Database.plain_turn

        def watched_begin(database: Database) -> None:
            self.threads.append(threading.get_ident())
            begin(database)

        def watched_commit(database: Database) -> None:
            commit(database)
            self.commits += 1

        def watched_plain_turn(database: Database, op: ops.StoreOp, clock: Clock) -> ops.Reply | None:
            reply = plain_turn(database, op, clock)
            if reply is not None:
                self.threads.append(threading.get_ident())
                self.commits += 1
            return reply

        monkeypatch.setattr(Database, "plain_turn", watched_plain_turn)
        monkeypatch.setattr(Database, "begin", watched_begin)
        monkeypatch.setattr(Database, "commit", watched_commit)


@pytest.fixture
def tries(monkeypatch: pytest.MonkeyPatch) -> Tries:
    """From now on."""
    return Tries(monkeypatch)


def waiting(store: SQLiteStore, count: int) -> None:
    """Until so many calls wait for the file."""
    until(lambda: len(store._pending.all()) == count, f"{count} calls wait")


def in_threads(call: Callable[[int], Any], count: int = CROWD) -> list[Any]:
    """What each gave, or raised, later."""
    pool = ThreadPoolExecutor(count)
    futures = [pool.submit(call, number) for number in range(count)]
    pool.shutdown(wait=False)
    return futures


# ---------------------------------------------------------------- one thread asks for all


def test_one_thread_asks_for_all(store: SQLiteStore, writer: sqlite3.Connection, tries: Tries) -> None:
    """However many threads wait, one of them tries to get the file, and one transaction serves all (trap 54)."""
    futures = in_threads(lambda number: claim(store, f"owner{number}", budget_ms=LONG))
    waiting(store, CROWD)
    del tries.threads[:]
    until(lambda: len(tries.threads) > 20, "the file is tried again and again")
    assert len(set(tries.threads)) == 1
    writer.execute("ROLLBACK")
    replies = [future.result(30) for future in futures]
    assert sum(isinstance(reply, ops.Granted) for reply in replies) == 1
    assert sum(isinstance(reply, ops.Queued) for reply in replies) == CROWD - 1
    assert tries.commits == 1
    assert len(look(store).queue) == CROWD - 1


def test_another_thread_goes_on_when_the_first_is_out_of_time(store: SQLiteStore, writer: sqlite3.Connection) -> None:
    """A call gives up when its own budget is over, whether it asks for the others or not; the others go on."""
    hasty = in_threads(lambda number: claim(store, f"hasty{number}", budget_ms=1500), 1)
    waiting(store, 1)
    futures = in_threads(lambda number: claim(store, f"owner{number}", budget_ms=LONG))
    with pytest.raises(StoreUnavailable, match="could not be used in time: another process") as raised:
        hasty[0].result(30)
    assert raised.value.resource == ROOM
    assert isinstance(raised.value.__cause__, sqlite3.OperationalError)
    waiting(store, CROWD)
    later = in_threads(lambda number: claim(store, "later", budget_ms=50), 1)
    with pytest.raises(StoreUnavailable):
        later[0].result(30)
    writer.execute("ROLLBACK")
    assert all(future.result(30) for future in futures)
    assert {waiter.owner for waiter in look(store).queue} <= {f"owner{number}" for number in range(CROWD)}


def test_an_interrupted_claimant_leaves_nobody_behind(
    store: SQLiteStore, writer: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C in the thread that asks for all, in the middle of their transaction: nobody waits for ever, and nobody is
    told what is not known."""
    interrupted = threading.Event()

    def interrupt(database: Database) -> None:
        if not interrupted.is_set():
            interrupted.set()
            raise KeyboardInterrupt
        commit(database)

    futures = in_threads(lambda number: claim(store, f"owner{number}", budget_ms=LONG))
    waiting(store, CROWD)
    commit = Database.commit
    monkeypatch.setattr(Database, "commit", interrupt)
    writer.execute("ROLLBACK")
    errors = [future.exception(30) for future in futures]
    assert interrupted.is_set()
    assert sum(isinstance(error, KeyboardInterrupt) for error in errors) == 1
    assert all(error is None or isinstance(error, (KeyboardInterrupt, OutcomeUnknown)) for error in errors)
    assert isinstance(claim(store, "next"), (ops.Granted, ops.Queued))


def test_a_claimant_interrupted_between_two_tries(
    store: SQLiteStore, writer: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Then nothing was begun: another thread asks, and the calls of the others succeed."""
    rest = SQLiteStore._rest
    interrupted = threading.Event()

    def interrupt(self: SQLiteStore, *arguments: float) -> None:
        if len(self._pending.all()) == CROWD and not interrupted.is_set():
            interrupted.set()
            raise KeyboardInterrupt
        rest(self, *arguments)

    monkeypatch.setattr(SQLiteStore, "_rest", interrupt)
    futures = in_threads(lambda number: claim(store, f"owner{number}", budget_ms=LONG))
    until(interrupted.is_set, "the claimant is interrupted")
    waiting(store, CROWD - 1)
    writer.execute("ROLLBACK")
    errors = [future.exception(30) for future in futures]
    assert sum(isinstance(error, KeyboardInterrupt) for error in errors) == 1
    assert errors.count(None) == CROWD - 1


def test_a_file_that_cannot_be_used_is_said_to_all(store: SQLiteStore, writer: sqlite3.Connection) -> None:
    """What is wrong with the store is wrong for every call that waits, and each raises an error of its own."""
    futures = in_threads(lambda number: claim(store, f"owner{number}", budget_ms=LONG))
    waiting(store, CROWD)
    store.close()
    errors = [future.exception(30) for future in futures]
    assert all(isinstance(error, StoreUnavailable) and error.resource == ROOM for error in errors)
    assert len({id(error) for error in errors}) == CROWD


def test_a_signal_handler_while_its_thread_asks_for_all(
    store: SQLiteStore, writer: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A call inside the claimant's own pause, as from a handler, does not wait for the claimant."""
    rest = SQLiteStore._rest
    inner: list[ops.Reply] = []

    def handler(self: SQLiteStore, *arguments: float) -> None:
        if not inner:
            inner.append(ops.Rejected("not yet"))
            writer.execute("ROLLBACK")
            inner[:] = [claim(store, "handler", budget_ms=LONG)]
        rest(self, *arguments)

    monkeypatch.setattr(SQLiteStore, "_rest", handler)
    outer = claim(store, "outer", budget_ms=LONG)
    assert sorted(type(reply).__name__ for reply in (outer, *inner)) == ["Granted", "Queued"]


# ---------------------------------------------------------------- what comes first


def test_what_keeps_or_ends_a_lease_comes_first() -> None:
    """Renewals, releases and withdrawals are served before claims and beats that came earlier."""
    pending = Pending()
    order: list[ops.StoreOp] = [
        ops.Claim(ROOM, "a", TTL),
        ops.Beat(ROOM, "b", 2),
        ops.Renew(ROOM, "c", 1, TTL),
        ops.Group((ops.Claim(ROOM, "d", TTL), ops.Claim("other", "d", TTL))),
        ops.Release(ROOM, "e", 1),
        ops.Withdraw(ROOM, "f"),
    ]
    for op in order:
        pending.add(Call([op]))
    found = [type(op) for op in PendingGroup(pending).ops()]
    assert found == [ops.Renew, ops.Release, ops.Withdraw, ops.Claim, ops.Beat, ops.Group]
    assert not pending


def test_a_release_does_not_stand_behind_a_crowd(store: SQLiteStore, tries: Tries) -> None:
    """It tries the file by itself, also while others of its process wait."""
    mine = take(store, "holder")
    del tries.threads[:]
    store._pending.add(Call([ops.Beat(ROOM, "nobody", 2)]))
    assert release(store, "holder", mine.fence) == ops.Released()
    assert tries.threads == [threading.get_ident()]
    assert len(store._pending.all()) == 1


def test_one_transaction_is_bounded() -> None:
    """Many calls are served in several transactions: the other processes get their turn in between."""
    pending = Pending()
    for number in range(250):
        pending.add(Call([ops.Beat(ROOM, str(number), 2)]))
    sizes = [len(PendingGroup(pending).ops()) for _ in range(4)]
    assert sizes == [100, 100, 50, 0]


# ---------------------------------------------------------------- asyncio


async def test_tasks_need_one_worker_thread(store: SQLiteStore, writer: sqlite3.Connection, tries: Tries) -> None:
    """A crowd of tasks takes one thread of the loop's executor, not one each."""
    loop = asyncio.get_running_loop()
    loop.set_default_executor(ThreadPoolExecutor(1))
    calls = [
        asyncio.ensure_future(store.execute_async(ops.Claim(ROOM, f"owner{number}", TTL, budget_ms=LONG)))
        for number in range(CROWD)
    ]
    await asyncio.sleep(0)
    assert len(store._pending.all()) == CROWD
    writer.execute("ROLLBACK")
    replies = await asyncio.wait_for(asyncio.gather(*calls), 30)
    assert sum(isinstance(reply, ops.Granted) for reply in replies) == 1
    assert len(look(store).queue) == CROWD - 1


async def test_a_task_is_told_when_its_time_is_over(store: SQLiteStore, writer: sqlite3.Connection) -> None:
    """It waits no longer than its budget allows, also behind a thread with more time."""
    patient = in_threads(lambda number: claim(store, "patient", budget_ms=LONG), 1)
    waiting(store, 1)
    with pytest.raises(StoreUnavailable, match="could not be used in time"):
        await asyncio.wait_for(store.execute_async(ops.Claim(ROOM, "hasty", TTL, budget_ms=50)), 30)
    writer.execute("ROLLBACK")
    assert isinstance(await asyncio.to_thread(patient[0].result, 30), ops.Granted)


async def test_a_cancelled_task_waits_no_more(store: SQLiteStore, writer: sqlite3.Connection) -> None:
    """Its op is not run later, and the tasks behind it are served."""
    calls = [
        asyncio.ensure_future(store.execute_async(ops.Claim(ROOM, f"owner{number}", TTL, budget_ms=LONG)))
        for number in range(3)
    ]
    await asyncio.sleep(0)
    calls[0].cancel()
    with pytest.raises(asyncio.CancelledError):
        await calls[0]
    assert len(store._pending.all()) == 2
    writer.execute("ROLLBACK")
    assert isinstance((await asyncio.wait_for(asyncio.gather(*calls[1:]), 30))[0], ops.Granted)
    view = look(store)
    assert [grant.owner for grant in view.holders] + [waiter.owner for waiter in view.queue] == ["owner1", "owner2"]


async def test_a_thread_hands_the_asking_on_to_a_loop(store: SQLiteStore, writer: sqlite3.Connection) -> None:
    """The thread that asked for all is out of time: a task's call goes on."""
    hasty = in_threads(lambda number: claim(store, "hasty", budget_ms=1500), 1)
    waiting(store, 1)
    call = asyncio.ensure_future(store.execute_async(ops.Claim(ROOM, "task", TTL, budget_ms=LONG)))
    assert isinstance(await asyncio.to_thread(hasty[0].exception, 30), StoreUnavailable)
    writer.execute("ROLLBACK")
    assert isinstance(await asyncio.wait_for(call, 30), ops.Granted)
