"""Guards and readers: a reader is refused below the last writer, leaves no trace, and never writes."""

from __future__ import annotations

import sqlite3
import weakref
from collections.abc import Iterator
from typing import Any, Protocol

import pytest

from leasehold import InvalidRequest, StaleOwner
from leasehold.guards import memory, sql
from leasehold.guards.http import check_response
from leasehold.stores.clock import ManualClock
from leasehold.stores.memory import MemoryStore
from tests.support.guards.http_tools import WSGIService
from tests.support.parties import FLAVOURS, Party

RESOURCE = "doc:1"


class Desk(Protocol):
    """A resource with a guard in front of it."""

    def write(self, lease: Any) -> None:
        """As the holder of a lease that may write."""

    def read(self, lease: Any) -> None:
        """As the holder of one that may read."""

    def seen(self) -> int | None:
        """The fence that is remembered."""


class MemoryDesk:
    """A guard of this process."""

    def __init__(self) -> None:
        self.guard = memory.FenceGuard()

    def write(self, lease: Any) -> None:
        """Check it."""
        self.guard.check(lease)

    def read(self, lease: Any) -> None:
        """Check it as one that shares."""
        self.guard.check(lease, shared=True)

    def seen(self) -> int | None:
        """The fence that is remembered."""
        return self.guard.seen(RESOURCE)


class SQLDesk:
    """A guard inside a transaction of sqlite3."""

    def __init__(self) -> None:
        self.connection = sqlite3.connect(":memory:", check_same_thread=False)
        weakref.finalize(self, self.connection.close)
        self.guard = sql.FenceGuard()
        self.guard.create(self.connection)

    def write(self, lease: Any) -> None:
        """In one transaction."""
        with self.connection:
            self.guard.check(self.connection, lease)

    def read(self, lease: Any) -> None:
        """The same, as one that shares."""
        with self.connection:
            self.guard.check(self.connection, lease, shared=True)

    def seen(self) -> int | None:
        """The fence that is remembered."""
        found = self.connection.execute("SELECT * FROM leasehold_fences").fetchall()
        return found[0][1] if found else None


class HTTPDesk:
    """A guarded service, as its client sees it: whatever the lease says of itself is in the headers."""

    def __init__(self) -> None:
        self.guard = memory.FenceGuard()
        self.service = WSGIService(self.guard)

    def _send(self, method: str, lease: Any) -> None:
        answer = self.service.send(method, list(lease.headers().items()))
        check_response(answer.status, answer.body, lease)
        assert answer.status == 200

    def write(self, lease: Any) -> None:
        """POST."""
        self._send("POST", lease)

    def read(self, lease: Any) -> None:
        """GET."""
        self._send("GET", lease)

    def seen(self) -> int | None:
        """The fence that is remembered."""
        return self.guard.seen(RESOURCE)


@pytest.fixture(params=[MemoryDesk, SQLDesk, HTTPDesk], ids=["memory", "sql", "http"])
def desk(request: pytest.FixtureRequest) -> Desk:
    """A guard that has seen nothing."""
    made: Desk = request.param()
    return made


@pytest.fixture
def clock() -> ManualClock:
    """Time that the test turns."""
    return ManualClock()


@pytest.fixture(params=FLAVOURS)
def party(request: pytest.FixtureRequest, clock: ManualClock) -> Iterator[Party]:
    """Threads, then asyncio."""
    party = FLAVOURS[request.param](MemoryStore(clock))
    yield party
    party.close()


def taken(party: Party, side: str, **options: Any) -> Any:
    """A lease of that side."""
    return party.do(lambda hold: getattr(hold.rwlock("doc", 1), side)(**options).acquire())


def test_a_reader_reads_and_is_not_recorded(party: Party, desk: Desk) -> None:
    """Before any writer and after one: readers side by side are all accepted, in whatever order."""
    one, two = taken(party, "read"), taken(party, "read")
    for lease in (two, one, two):
        desk.read(lease)
    assert desk.seen() is None and one.guarded == (not isinstance(desk, HTTPDesk))
    for lease in (one, two):
        assert party.do(lambda _, lease=lease: lease.release())  # type: ignore[misc]  # a lambda with a default
    writer = taken(party, "write")
    desk.write(writer)
    assert party.do(lambda _: writer.release())
    reader = taken(party, "read")
    desk.read(reader)
    assert desk.seen() == writer.fence


def test_a_reader_does_not_write(party: Party, desk: Desk) -> None:
    """Without shared=True it is a mistake of its caller, and nothing is recorded."""
    reader = taken(party, "read")
    with pytest.raises(InvalidRequest):
        desk.write(reader)
    assert desk.seen() is None


def test_a_stale_reader_is_refused(party: Party, desk: Desk, clock: ManualClock) -> None:
    """Once a later writer was here, what it read before is no longer so."""
    stale = taken(party, "read", ttl=1, renew=False)
    clock.advance(1.1)
    writer = taken(party, "write")
    desk.read(stale)  # nobody has written yet, as far as the guard knows
    desk.write(writer)
    with pytest.raises(StaleOwner) as info:
        desk.read(stale)
    assert (info.value.fence, info.value.seen) == (stale.fence, writer.fence)
    assert desk.seen() == writer.fence


def test_a_downgraded_lease_reads_and_does_not_write(party: Party, desk: Desk) -> None:
    """By the same fence, which its own writing has left; readers beside it are accepted too."""
    lease = taken(party, "write")
    desk.write(lease)
    party.do(lambda _: lease.downgrade())
    with pytest.raises(InvalidRequest):
        desk.write(lease)
    desk.read(lease)
    desk.read(taken(party, "read"))
    desk.read(lease)
    assert desk.seen() == lease.fence


def test_an_update_of_a_row_needs_a_writer(party: Party) -> None:
    """``guard.update`` writes, so there is no shared way to call it: a downgraded lease is refused."""
    connection = sqlite3.connect(":memory:")
    connection.execute("CREATE TABLE docs (id INTEGER, body TEXT, last_fencing_token BIGINT)")
    connection.execute("INSERT INTO docs VALUES (1, 'old', NULL)")
    guard, lease = sql.FenceGuard(), taken(party, "write")
    guard.update(connection, "docs", key={"id": 1}, values={"body": "new"}, lease=lease)
    party.do(lambda _: lease.downgrade())
    with pytest.raises(InvalidRequest, match="shared"):
        guard.update(connection, "docs", key={"id": 1}, values={"body": "newer"}, lease=lease)
    assert connection.execute("SELECT body, last_fencing_token FROM docs").fetchall() == [("new", lease.fence)]
    connection.close()
