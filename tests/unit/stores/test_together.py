"""Several ops in one step, and watching, on the stores that run the ledger: memory and SQLite."""

from __future__ import annotations

import os
import signal
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from leasehold._core import ops
from leasehold._core.policy import WATCH_MS
from leasehold.errors import StoreUnavailable
from leasehold.stores.clock import ManualClock
from leasehold.stores.memory import MemoryStore
from leasehold.stores.sqlite import SQLiteStore
from leasehold.stores.sqlite.failures import DamagedRow
from tests.support.sqlite import TTL, next_line, start

AnyStore = MemoryStore | SQLiteStore


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where the database will be."""
    return tmp_path / "leases.db"


@pytest.fixture
def clock() -> ManualClock:
    """Turned by tests."""
    return ManualClock()


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, path: Path, clock: ManualClock) -> Iterator[AnyStore]:
    """One of those that run the ledger."""
    made: AnyStore = MemoryStore(clock) if request.param == "memory" else SQLiteStore(str(path), clock)
    yield made
    made.close()


@pytest.fixture
def embedded(path: Path) -> Iterator[SQLiteStore]:
    """SQLite, on the system's clock."""
    made = SQLiteStore(str(path))
    yield made
    made.close()


def claim(name: str, owner: str = "a", **more: Any) -> ops.Claim:
    """One of several."""
    return ops.Claim(name, owner, TTL, **more)


def ask(store: AnyStore, *steps: Any) -> list[Any]:
    """All of them in one step."""
    reply = store.execute(ops.Group(steps))
    assert isinstance(reply, ops.Replies)
    return list(reply.replies)


def holders(store: AnyStore, name: str) -> list[str]:
    """Who holds it."""
    reply = store.execute(ops.Inspect(name))
    assert isinstance(reply, ops.View)
    return [one.owner for one in reply.holders]


# ---------------------------------------------------------------- several in one step


def test_all_are_granted_and_given_back_in_one_step(store: AnyStore) -> None:
    """Each with its own fence."""
    replies = ask(store, claim("x"), claim("y"), claim("z"))
    assert [type(one) for one in replies] == [ops.Granted] * 3
    releases = [ops.Release(name, "a", one.fence) for name, one in zip("xyz", replies, strict=True)]
    assert ask(store, *releases) == [ops.Released()] * 3
    assert [holders(store, name) for name in "xyz"] == [[], [], []]


@pytest.mark.parametrize(("enqueue", "kind"), [(True, ops.Queued), (False, ops.Busy)])
def test_nothing_is_claimed_after_the_first_that_is_not_granted(store: AnyStore, enqueue: bool, kind: type) -> None:
    """Whoever waits for one must not take the next."""
    store.execute(claim("y", "other"))
    replies = ask(store, *[claim(name, enqueue=enqueue) for name in "xyz"])
    assert [type(one) for one in replies] == [ops.Granted, kind]
    assert [holders(store, name) for name in "xyz"] == [["a"], ["other"], []]


def test_a_release_that_is_not_ours_stops_no_other(store: AnyStore) -> None:
    """Claims end at the first that fails, releases do not."""
    (x, z) = ask(store, claim("x"), claim("z"))
    replies = ask(store, ops.Release("x", "a", x.fence), ops.Release("y", "a", 7), ops.Release("z", "a", z.fence))
    assert [type(one) for one in replies] == [ops.Released, ops.NotYours, ops.Released]
    assert holders(store, "z") == []


def test_repeated_it_gets_the_same(store: AnyStore) -> None:
    """A reply that was lost (trap 10)."""
    steps = [claim("x"), claim("y", rule="semaphore", permits=2, limit=2)]
    first = ask(store, *steps)
    assert [(one.fence, one.slots) for one in ask(store, *steps)] == [(one.fence, one.slots) for one in first]


def test_delivered_late_it_takes_nothing(store: AnyStore) -> None:
    """Its sender gave up, and left a tombstone for each."""
    for name in "xyz":
        store.execute(ops.Withdraw(name, "a", 60_000))
    assert ask(store, *[claim(name) for name in "xyz"]) == [ops.NoClaim("withdrawn")]
    assert [holders(store, name) for name in "xyz"] == [[], [], []]


def test_one_step_hands_on_to_all_who_wait(store: AnyStore) -> None:
    """A release of several wakes a waiter of each."""
    (x, y) = ask(store, claim("x"), claim("y"))
    connections = {name: store.connection() for name in "xy"}
    for name, connection in connections.items():
        connection.execute(claim(name, f"next-{name}", address=connection.address))
    ask(store, ops.Release("x", "a", x.fence), ops.Release("y", "a", y.fence))
    for name, connection in connections.items():
        push = connection.next_push(30)
        assert push is not None
        assert (push.event, push.resource, push.owner) == ("granted", name, f"next-{name}")
        connection.close()


def test_whoever_waits_after_one_step_can_be_woken_from_its_commit_on(embedded: SQLiteStore) -> None:
    """Its mailbox is bound before others can ask whether it is alive."""
    other = embedded.execute(claim("y", "other"))
    assert isinstance(other, ops.Granted)
    connection = embedded.connection()
    bound = [connection.bound]
    replies = ask(embedded, claim("x", address=connection.address), claim("y", address=connection.address))
    assert [type(one) for one in replies] == [ops.Granted, ops.Queued]
    assert [*bound, connection.bound] == [False, True]
    embedded.execute(ops.Release("y", "other", other.fence))
    push = connection.next_push(30)
    assert push is not None
    assert (push.owner, push.resource) == ("a", "y")


def test_a_damaged_row_changes_nothing_of_one_step(embedded: SQLiteStore, path: Path) -> None:
    """Unavailable says that nothing was taken: then nothing may be held, neither before nor behind it."""
    embedded.execute(claim("y", "other"))
    with closing(sqlite3.connect(path)) as file, file:
        file.execute("UPDATE resources SET state = 'nonsense' WHERE name = 'y'")
    file.close()
    with pytest.raises(StoreUnavailable):
        ask(embedded, claim("x"), claim("y"), claim("z"))
    assert (holders(embedded, "x"), holders(embedded, "z")) == ([], [])


def test_a_damaged_row_spares_the_others_of_a_batch(embedded: SQLiteStore, path: Path) -> None:
    """The watchdog's errands are many ops, and one of them fails."""
    embedded.execute(claim("y", "other"))
    with closing(sqlite3.connect(path)) as file, file:
        file.execute("UPDATE resources SET state = 'nonsense' WHERE name = 'y'")
    file.close()
    steps = (claim("x"), claim("y"))
    answers = embedded.execute_many([claim("w"), ops.Group(steps), claim("z")])
    assert [type(one) for one in answers] == [ops.Granted, DamagedRow, ops.Granted]
    assert holders(embedded, "x") == []


# ---------------------------------------------------------------- watching


def watch(store: AnyStore, connection: Any, name: str = "x") -> ops.View:
    """Look, and be told there."""
    reply = connection.execute(ops.Watch(name, "eye:1:x", connection.address))
    assert isinstance(reply, ops.View)
    return reply


def test_a_watcher_is_woken_by_every_change(store: AnyStore) -> None:
    """Taken, lowered, given back."""
    connection = store.connection()
    assert watch(store, connection).holders == ()
    granted = store.execute(claim("x", rule="write"))
    assert isinstance(granted, ops.Granted)
    store.execute(ops.Renew("x", "a", granted.fence, TTL, number=1, shared=True))
    store.execute(ops.Renew("x", "a", granted.fence, TTL, number=2))
    store.execute(ops.Release("x", "a", granted.fence))
    pushes = [connection.next_push(30) for _ in range(3)]
    assert [(push.event, push.owner) for push in pushes if push is not None] == [("changed", "eye:1:x")] * 3
    assert connection.next_push(0) is None
    connection.close()


def test_pushes_that_came_together_are_taken_one_after_the_other(store: AnyStore) -> None:
    """Nobody waits for the second until something else happens."""
    connection = store.connection()
    watch(store, connection, "x")
    watch(store, connection, "y")
    ask(store, claim("x"), claim("y"))
    pushes = [connection.next_push(3_600) for _ in range(2)]
    assert [push.resource for push in pushes if push is not None] == ["x", "y"]
    connection.close()


def test_a_closed_mailbox_is_told_nothing_and_forgotten(store: AnyStore) -> None:
    """With the next change."""
    connection = store.connection()
    watch(store, connection)
    connection.close()
    granted = store.execute(claim("x"))
    assert isinstance(granted, ops.Granted)
    assert watchers(store) == 0


def test_a_silent_watcher_is_forgotten(store: AnyStore, clock: ManualClock) -> None:
    """Also where nothing ever changes: a name that was watched once does not stay for ever (trap 37)."""
    connection = store.connection()
    watch(store, connection)
    assert watchers(store) == 1
    clock.advance(WATCH_MS / 1000 + 1)
    store.execute(ops.Inspect("x"))
    assert watchers(store) == 0
    connection.close()


def test_a_watcher_of_a_dead_process_is_forgotten(embedded: SQLiteStore, path: Path) -> None:
    """Nobody listens at its socket any more; the next change finds that out."""
    code = """
box = store.connection()
store.execute(ops.Watch("x", "dead:1:x", box.address))
print("watches", flush=True)
time.sleep(60)
"""
    embedded.execute(ops.Inspect("x"))
    with start(code, path) as process:
        assert next_line(process) == "watches"
        there = watchers(embedded)
        os.kill(process.pid, signal.SIGKILL)
    assert there == 1
    embedded.execute(claim("x"))
    assert watchers(embedded) == 0


def test_where_no_socket_can_be_bound_nothing_is_written_for_a_watcher(
    embedded: SQLiteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It looks by itself, several times a second: that must not be as many writes."""
    connection = embedded.connection()
    monkeypatch.setattr(type(connection), "bind", lambda self: False)
    watch(embedded, connection)
    assert watchers(embedded) == 0


def watchers(store: AnyStore) -> int:
    """How many the store keeps for ``x``, as it stands."""
    if isinstance(store, MemoryStore):
        state = store._states.get("x")
        return len(state.watchers) if state is not None else 0
    database = store._database
    assert database is not None
    database.begin()
    read = database.read("x")
    database.rollback()
    return len(read.watchers) if read is not None else 0


# ---------------------------------------------------------------- files of the previous version

OLD = (
    '[[["host:1:a",1794820188453325,3600000,{end},"mutex",[0],1794820188453325,"{{}}","n",0,"",0,0]],'
    '[["host:1:b",3600000,1,{now},"",0,"mutex",1,1,1794820188464179,"","",0]],'
    '[[0,1794820188453325]],1794906588453325,0,[["host:1:c",0,"withdrawn",{end},""]]]'
)


def test_a_row_of_the_previous_version_is_read_and_goes_on(embedded: SQLiteStore, path: Path) -> None:
    """Holder, waiter, tombstone and fence are what they were; what is written then is read again."""
    holders(embedded, "x")  # makes the file
    now = embedded.clock.instant().ms
    (boot,) = rows(path, "SELECT value FROM meta WHERE key = 'boot'")
    old = OLD.format(now=now, end=now + 3_600_000)
    with closing(sqlite3.connect(path)) as file, file:
        file.execute("INSERT INTO resources (boot, state, name) VALUES (?, ?, 'x')", (boot, old))
    file.close()
    assert holders(embedded, "x") == ["host:1:a"]
    assert embedded.execute(claim("x", "host:1:c")) == ops.NoClaim("withdrawn")
    assert isinstance(embedded.execute(ops.Release("x", "host:1:a", 1794820188453325)), ops.Released)
    granted = embedded.execute(ops.Beat("x", "host:1:b", 2))
    assert isinstance(granted, ops.Granted)
    assert granted.fence > 1794820188453325
    (text,) = rows(path, "SELECT state FROM resources WHERE name = 'x'")
    assert text != old
    assert holders(embedded, "x") == ["host:1:b"]


def rows(path: Path, query: str) -> list[str]:
    """The first column, as another program sees it."""
    file = sqlite3.connect(path)
    found = [row[0] for row in file.execute(query)]
    file.close()
    return found
