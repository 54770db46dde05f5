"""What once went wrong with the embedded store: damaged rows, mailboxes, forks at bad moments, the end of a process."""

from __future__ import annotations

import logging
import sqlite3
from pathlib import Path

import pytest

import leasehold
from leasehold._core import ops
from leasehold.stores.sqlite import SQLiteStore
from leasehold.stores.sqlite.failures import DamagedRow
from tests.support.lock import StillClock, tick
from tests.support.sqlite import claim, run, take


def damage(path: Path, kind: str) -> None:
    """Make the rows of that kind unreadable."""
    connection = sqlite3.connect(path)
    with connection:
        assert connection.execute("UPDATE resources SET state = '{' WHERE name LIKE ?", (f"{kind}%",)).rowcount == 1
    connection.close()


def url_of(path: Path) -> str:
    """The database as a program names it."""
    return f"sqlite:///{path}"


# ---------------------------------------------------------------- damaged rows


def test_a_damaged_row_costs_its_own_lease_alone(tmp_path: Path) -> None:
    """Leases that are renewed in one batch with that of a damaged row stay held."""
    path = tmp_path / "leases.db"
    with leasehold.connect(SQLiteStore(str(path), StillClock())) as hold:
        bad = hold.lock("bad", 1, ttl=2).acquire(wait=0)
        good = [hold.lock("good", number, ttl=2).acquire(wait=0) for number in range(5)]
        damage(path, "bad")
        tick(hold, 4)
        assert bad is not None and bad.state == "lost"
        assert [lease.state for lease in good if lease is not None] == ["held"] * 5


NO_TEXT = "CAST(x'ff5b' AS TEXT)"


@pytest.mark.parametrize(
    "state", ["'{'", "''", "7", "x'00'", NO_TEXT, "'[[[1]],[],0,0,0,[]]'", "'[\"' || state || '\"]'"]
)
def test_a_damaged_row_does_not_end_a_listing(tmp_path: Path, state: str) -> None:
    """It is listed by its name, as unreadable; others as ever. Nobody is granted over it, and nobody says that it is
    free. When it is deleted, all is well."""
    path = tmp_path / "leases.db"
    with leasehold.connect(url_of(path)) as hold, hold.lock("after"), hold.lock("before"):
        change(path, f"INSERT INTO resources SELECT 'bad', boot, {state} FROM resources WHERE name = 'after'")
        seen = {one.resource: one for one in hold.scan()}
        assert [one.held for one in seen.values()] == [True, False, True]
        (why,) = seen["bad"].unreadable
        assert "is damaged" in why and hold.inspect("bad").unreadable == (why,) and "unreadable" in repr(seen["bad"])
        for ask in (hold.lock("bad").locked, hold.lock("bad").try_acquire, hold.semaphore("bad", limit=2).available):
            with pytest.raises(leasehold.StoreUnavailable, match="row") as raised:
                ask()
            assert raised.value.resource == "bad" and "leasehold inspect" in str(raised.value)
        change(path, "DELETE FROM resources WHERE name = 'bad'")
        with hold.lock("bad"):
            pass


def test_a_name_that_is_no_text_does_not_end_a_listing(tmp_path: Path) -> None:
    """Nor the sweep of old rows, which goes on behind it; a name that is a BLOB is shown as SQL writes it."""
    path = tmp_path / "leases.db"
    store = SQLiteStore(str(path))
    with leasehold.connect(store) as hold, hold.lock("zebra"):
        for number in range(400):
            change(path, f"INSERT INTO resources VALUES (CAST(x'62ff{number:04x}' AS TEXT), 'boot', '{{')")
        change(path, "INSERT INTO resources VALUES (x'6161', 'boot', '{')")
        seen = {one.resource: one for one in hold.scan()}
        assert seen.pop("zebra").held and len(seen) == 401 and "x'6161'" in seen
        assert {one.unreadable for one in seen.values()} == {("its name is no UTF-8",)}
        assert store._database is not None
        for _ in range(5):
            store._database.begin()
            store._database.sweep(store.clock.instant())
            store._database.commit()
        assert hold.lock("zebra").locked()


def test_a_field_of_another_type_costs_its_own_lease_alone(tmp_path: Path) -> None:
    """It is found when the row is read, not by the ledger in the middle of a batch."""
    path = tmp_path / "leases.db"
    store = SQLiteStore(str(path))
    fences = {name: store.execute(ops.Claim(name, "host:1:a", 60_000)).fence for name in ("a", "bad", "c")}  # type: ignore[union-attr]  # nobody else is here
    change(path, "UPDATE resources SET state = replace(state, 'mutex', 'nothing') WHERE name = 'bad'")
    replies = store.execute_many([ops.Renew(name, "host:1:a", fence, 60_000) for name, fence in fences.items()])
    assert [type(reply) for reply in replies] == [ops.Renewed, DamagedRow, ops.Renewed]
    store.close()


def change(path: Path, statement: str) -> None:
    """Somebody's own statement."""
    connection = sqlite3.connect(path)
    with connection:
        assert connection.execute(statement).rowcount == 1
    connection.close()


def test_a_damaged_row_is_logged_without_its_id(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The record of a renewal that met a damaged row says what is wrong, and never a full id."""
    path = tmp_path / "leases.db"
    secret = "customer-8151-4242"
    with (
        caplog.at_level(logging.DEBUG, "leasehold"),
        leasehold.connect(SQLiteStore(str(path), StillClock())) as hold,
    ):
        lease = hold.lock("bad", secret, ttl=2).acquire(wait=0)
        damage(path, "bad")
        tick(hold, 4)
        assert lease is not None and lease.state == "lost"
    assert any("lease_unsure" in record.getMessage() and "damaged" in record.getMessage() for record in caplog.records)
    assert not [record for record in caplog.records if secret in f"{record.getMessage()} {record.__dict__}"]
    assert secret not in caplog.text


# ---------------------------------------------------------------- mailboxes


def test_a_mailbox_that_could_not_bind_is_tried_again(tmp_path: Path) -> None:
    """One failed bind is not for ever: when the trouble is over, the next waiter can be reached."""
    store = SQLiteStore(str(tmp_path / "leases.db"))
    take(store, "holder")
    folder = tmp_path / "leases.db.wake"
    folder.touch()  # a file in the way for a moment
    connection = store.connection()
    assert isinstance(claim(store, "first", address=connection.address), ops.Queued)
    reachable = [connection.bound]
    folder.unlink()
    assert isinstance(claim(store, "second", address=connection.address), ops.Queued)
    reachable.append(connection.bound)
    assert reachable == [False, True] and folder.is_dir()
    store.close()


def test_a_coordinator_uses_its_mailbox_again_after_trouble(tmp_path: Path) -> None:
    """The same from a user's side: the idle mailbox of a waiter that could not be reached is not given up."""
    url = url_of(tmp_path / "leases.db")
    (tmp_path / "leases.db.wake").touch()
    with leasehold.connect(url) as hold, leasehold.connect(url) as other:
        lease = other.lock("job").acquire(wait=0)
        assert lease is not None
        assert hold.lock("job").acquire(wait=0.05) is None
        (tmp_path / "leases.db.wake").unlink()
        assert hold.lock("job").acquire(wait=0.05) is None
        (connection,) = hold._engine.connections._idle
        assert connection.address and getattr(connection, "bound", False)
        assert lease.release()


# ---------------------------------------------------------------- forks

DROPPED = """
import gc, leasehold
url = "sqlite:///" + path
hold = leasehold.connect(url)
hold.lock("warm").acquire(wait=0).release()
del hold
gc.collect()
child = os.fork()
if child == 0:
    lease = leasehold.connect(url).lock("job").acquire(wait=30)
    inode = ":" + str(os.stat(path).st_ino)
    owners = {line.split()[4] for line in open("/proc/locks") if line.split()[5].endswith(inode)}
    print(lease.state, str(os.getpid()) in owners, flush=True)
    os._exit(0)
os.waitpid(child, 0)
"""


def test_a_fork_after_a_coordinator_was_dropped(tmp_path: Path) -> None:
    """A connection that nobody closed is not inherited: the child has SQLite's locks under its own process id."""
    assert run(DROPPED, tmp_path / "leases.db") == "held True"


MIDDLE = """
import leasehold
from leasehold.stores.sqlite.database import Database
url = "sqlite:///" + path
hold = leasehold.connect(url)
hold.lock("warm").acquire(wait=0).release()
count_turns = Database.count_turns
def fork(self, count, now):
    Database.count_turns = count_turns
    count_turns(self, count, now)
    child = os.fork()
    if child == 0:
        try:
            print(leasehold.connect(url).lock("job").acquire(wait=30), flush=True)
        except BaseException as error:
            print(type(error).__name__, error, flush=True)
        os._exit(0)
    os.waitpid(child, 0)
Database.count_turns = fork
print(hold.lock("mine").acquire(wait=0).state, flush=True)
"""


def test_a_fork_in_the_middle_of_a_turn_of_the_same_thread(tmp_path: Path) -> None:
    """As from a signal handler: the child is refused the file and told why, and its parent goes on."""
    child, parent = run(MIDDLE, tmp_path / "leases.db").splitlines()
    assert child.startswith("StoreUnavailable") and "forked" in child
    assert parent == "held"


# ---------------------------------------------------------------- the end of a process

LEAVING = """
import leasehold, threading
url = "sqlite:///" + path
first, second = leasehold.connect(url), leasehold.connect(url)
lease = first.lock("job", ttl=20).acquire(wait=0)
lease.on_lost(lambda error: None)
threading.Thread(target=lambda: second.lock("job", ttl=20).acquire(), daemon=True).start()
end = time.monotonic() + 30
while not store.execute(ops.Inspect("job")).queue and time.monotonic() < end:
    time.sleep(.01)
print("leaving")
"""


def test_a_process_that_ends_leaves_nothing_behind(tmp_path: Path) -> None:
    """What it held is not handed to a waiter of its own that ends with it: the next process finds it free."""
    path = tmp_path / "leases.db"
    assert run(LEAVING, path) == "leaving"
    with leasehold.connect(url_of(path)) as hold:
        assert hold.lock("job").try_acquire() is not None
