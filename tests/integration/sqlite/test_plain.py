"""Plain turns over a file: what a process knows of a row is used, and never trusted."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

import pytest

from leasehold._core import ledger, ops
from leasehold._core.types import State
from leasehold.errors import OutcomeUnknown, StoreUnavailable
from leasehold.stores import state_text
from leasehold.stores.clock import ManualClock
from leasehold.stores.sqlite import SQLiteStore, database
from tests.support.sqlite import ROOM, TTL, claim, look, release, take
from tests.support.tables import each

ROOMS = (ROOM, "acme/règle:%7B:1")
OWNERS = tuple([f"host:{number}:secret" for number in range(3)])


@pytest.fixture
def clock() -> ManualClock:
    """Time stands still."""
    return ManualClock()


@pytest.fixture
def stores(tmp_path: Path, clock: ManualClock) -> Iterator[tuple[SQLiteStore, SQLiteStore]]:
    """Two of one file, as two processes have them."""
    made = SQLiteStore(str(tmp_path / "leases.db"), clock), SQLiteStore(str(tmp_path / "leases.db"), clock)
    yield made
    for store in made:
        store.close()


@pytest.fixture
def store(stores: tuple[SQLiteStore, SQLiteStore]) -> SQLiteStore:
    """One of them."""
    return stores[0]


@pytest.fixture
def other(stores: tuple[SQLiteStore, SQLiteStore]) -> SQLiteStore:
    """The other one."""
    return stores[1]


@pytest.fixture
def rows(tmp_path: Path, store: SQLiteStore) -> Iterator[sqlite3.Connection]:
    """The file as it is."""
    look(store)
    connection = sqlite3.connect(tmp_path / "leases.db", isolation_level=None)
    yield connection
    connection.close()


def use(store: SQLiteStore, owner: str) -> int:
    """Take it and give it back."""
    fence = take(store, owner).fence
    release(store, owner, fence)
    return fence


@pytest.mark.parametrize("seed", range(6))
def test_rows_are_the_ledgers(
    seed: int,
    stores: tuple[SQLiteStore, SQLiteStore],
    rows: sqlite3.Connection,
    clock: ManualClock,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Every reply and every row is what the ledger makes of the same random ops, mostly plain ones, whoever of two
    processes knows the row."""
    monkeypatch.setattr(database, "SWEEP_EVERY", 10**9)
    chance = random.Random(seed)
    states = dict.fromkeys(ROOMS, ledger.EMPTY)
    for _ in range(400):
        op = any_op(chance, states)
        now = clock.instant()
        outcome = ledger.apply(states[op.resource], now, op)
        states[op.resource] = outcome.state
        assert chance.choice(stores).execute(op) == outcome.reply, op
        row = rows.execute("SELECT state FROM resources WHERE name = ?", (op.resource,)).fetchone()
        expected = None if outcome.state == ledger.EMPTY else (state_text.encode(outcome.state),)
        assert row == expected, op
        clock.advance(chance.choice([0, 0, 0.001, 0.5, 2, 9.999, 29.5, 31]))


def any_op(chance: random.Random, states: dict[str, State]) -> ops.ResourceOp:
    """Of somebody who holds, if anybody does, or of anybody."""
    room, owner = chance.choice(ROOMS), chance.choice(OWNERS)
    fence = states[room].fence
    if states[room].holders and chance.random() < 0.8:
        owner, fence = states[room].holders[0][:2]
    rule = chance.choice(["mutex", "mutex", "write", "read"])
    often: list[ops.ResourceOp] = [
        ops.Claim(room, owner, TTL, enqueue=False, meta=chance.choice(["", '{"né":"\\ud800"}'])),
        ops.Release(room, owner, fence),
        ops.Renew(room, owner, fence, TTL, number=chance.randrange(4)),
    ]
    rare: list[ops.ResourceOp] = [
        ops.Claim(room, owner, TTL, beat=chance.randrange(9), rule=rule, floor=fence),
        ops.Release(room, owner, fence, forget_ms=700),
        ops.Renew(room, owner, fence, TTL, exact=True, closed_ms=chance.choice([0, 800])),
        ops.Withdraw(room, owner, chance.choice([0, 700])),
        ops.Evict(room, owner, fence, "r", 0, True),
        ops.Inspect(room),
    ]
    return chance.choice(often if chance.random() < 0.85 else rare)


def test_one_statement(store: SQLiteStore) -> None:
    """A plain claim, renewal or release of a row that is known is one statement, and a transaction of its own."""
    use(store, "a")
    said: list[str] = []
    assert store._database is not None
    store._database._turns = 0  # the next ones sweep nothing
    store._database._connection.set_trace_callback(said.append)
    grant = take(store, "b")
    store.execute(ops.Renew(ROOM, "b", grant.fence, TTL))
    release(store, "b", grant.fence)
    assert [one.split(" ")[0] for one in said] == ["UPDATE"] * 3


def test_what_another_process_wrote_counts(store: SQLiteStore, other: SQLiteStore) -> None:
    """Nobody takes what was free when it looked last, and fences go on above those of others."""
    use(store, "a")
    theirs = take(other, "b")
    assert isinstance(claim(store, "c", enqueue=False), ops.Busy)
    release(other, "b", theirs.fence)
    use(other, "b2")
    last = use(other, "b3")
    assert take(store, "d").fence > last


def test_a_row_that_is_gone(store: SQLiteStore, rows: sqlite3.Connection) -> None:
    """It is made anew."""
    grant = take(store, "a")
    rows.execute("DELETE FROM resources")
    assert store.execute(ops.Release(ROOM, "a", grant.fence)) == ops.NotYours("deleted")
    take(store, "b")
    assert [one.owner for one in look(store).holders] == ["b"]


def test_a_row_of_an_earlier_boot(store: SQLiteStore, rows: sqlite3.Connection) -> None:
    """Its text may be the known one; its claims are over nevertheless, and the next one is of this boot."""
    first = take(store, "a")
    rows.execute("UPDATE resources SET boot = 'an earlier one'")
    assert store.execute(ops.Renew(ROOM, "a", first.fence, TTL)) == ops.NotYours("deleted")
    assert take(store, "b").fence > first.fence
    rows.execute("UPDATE resources SET boot = 'an earlier one'")
    assert look(store).holders == ()


def test_a_file_that_was_replaced(store: SQLiteStore, tmp_path: Path) -> None:
    """What is known of the old file is worth nothing: somebody holds in the new one."""
    use(store, "a")
    for one in tmp_path.glob("leases.db*"):
        if one.is_file():
            one.unlink()
    anew = SQLiteStore(str(tmp_path / "leases.db"), store.clock)
    take(anew, "b")
    assert isinstance(claim(store, "c", enqueue=False), ops.Busy)
    assert [one.owner for one in look(anew).holders] == ["b"]
    anew.close()


def test_a_file_that_is_locked(store: SQLiteStore, rows: sqlite3.Connection) -> None:
    """A plain claim waits for it as any other does, and takes nothing when it gives up."""
    use(store, "a")
    rows.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreUnavailable, match="locked"):
        claim(store, "b", budget_ms=20)
    rows.execute("ROLLBACK")
    assert look(store).holders == ()
    take(store, "c")


@each(
    "name, expected",
    [
        ("SQLITE_IOERR_WRITE", OutcomeUnknown),
        ("SQLITE_IOERR_SHMMAP", OutcomeUnknown),
        ("SQLITE_NOMEM", OutcomeUnknown),
        ("SQLITE_FULL", StoreUnavailable),
        ("SQLITE_READONLY", StoreUnavailable),
        ("SQLITE_CORRUPT", StoreUnavailable),
    ],
)
def test_a_statement_that_fails(store: SQLiteStore, name: str, expected: type[Exception]) -> None:
    """The statement commits by itself: whether it did is unknown, unless SQLite says what comes before that."""
    use(store, f"before {name}")
    opened = store._database
    assert opened is not None

    def fail(statement: str, *arguments: object) -> NoReturn:
        assert statement == database.CHANGE_KNOWN
        error = sqlite3.OperationalError("it fails")
        error.sqlite_errorname = name
        raise error

    opened._turns = 0  # the next one sweeps nothing
    opened._execute = fail
    with pytest.raises(expected):
        take(store, "b")
    assert store._database is None  # a connection that may be broken is not used again


def test_plain_turns_sweep_too(store: SQLiteStore, rows: sqlite3.Connection, clock: ManualClock) -> None:
    """Old names go, also when every turn is plain."""
    store.execute(ops.Claim("old", "a", TTL))
    clock.advance(25 * 3600)
    for number in range(4 * database.SWEEP_EVERY):
        use(store, str(number))
    assert rows.execute("SELECT name FROM resources").fetchall() == [(ROOM,)]
