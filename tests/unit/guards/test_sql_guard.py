"""FenceGuard through sqlite3 and through SQLAlchemy's connections and sessions: what it accepts and refuses."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import leasehold
from leasehold._core.types import owner_digest as digest
from leasehold.errors import StaleOwner
from leasehold.guards.fence import UNKNOWN_OWNER, accept
from leasehold.guards.sql import FenceGuard
from tests.support.examples import examples
from tests.support.guards.ways import RESOURCE, SECRET, A, B, Begin, rows, write
from tests.support.tables import each

guard = FenceGuard()


def test_a_newer_fence_is_remembered_with_its_owner(begin: Begin, path: Path) -> None:
    """After the commit the table holds the fence and the digest of its owner."""
    for fence, owner in ((10, A), (11, B)):
        with begin(path) as tx:
            guard.check(tx, fence, resource=RESOURCE, owner=owner)
        assert rows(path) == [(RESOURCE, fence, digest(owner))]


def test_one_owner_may_write_many_times(begin: Begin, path: Path) -> None:
    """The same fence of the same owner is accepted again and again."""
    for number in range(3):
        with begin(path) as tx:
            guard.check(tx, 10, resource=RESOURCE, owner=A)
            guard.check(tx, 10, resource=RESOURCE, owner=A)
            write(tx, f"export {number}")
    assert rows(path, "reports")[0][1] == "export 2"


@each(("fence", "owner"), [(9, A), (9, B), (10, B), (10, None), (1, None)])
def test_a_stale_owner_is_refused_and_nothing_changes(begin: Begin, path: Path, fence: int, owner: str | None) -> None:
    """StaleOwner says both fences; the transaction that it ends leaves no trace, not even of its own earlier writes."""
    with begin(path) as tx:
        guard.check(tx, 10, resource=RESOURCE, owner=A)
        write(tx, "of the newer owner")
    before = rows(path), rows(path, "reports")

    def come_late() -> None:
        with begin(path) as tx:
            write(tx, "before the check")
            guard.check(tx, fence, resource=RESOURCE, owner=owner)

    with pytest.raises(StaleOwner) as caught:
        come_late()
    assert (caught.value.fence, caught.value.seen, caught.value.resource) == (fence, 10, RESOURCE)
    assert (rows(path), rows(path, "reports")) == before


def test_resources_are_apart(begin: Begin, path: Path) -> None:
    """The fences of one resource say nothing about another."""
    with begin(path) as tx:
        guard.check(tx, 10, resource="report-export:42")
        guard.check(tx, 3, resource="report-export:43")


def test_a_rolled_back_check_was_never_made(begin: Begin, path: Path) -> None:
    """The guard remembers only what was committed together with a write."""

    def fail() -> None:
        with begin(path) as tx:
            guard.check(tx, 99, resource=RESOURCE, owner=A)
            write(tx, "lost")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert rows(path) == []
    with begin(path) as tx:
        guard.check(tx, 10, resource=RESOURCE, owner=B)


def test_leases_in_order(begin: Begin, path: Path) -> None:
    """The stale-owner model: A holds, B holds later and writes, A's write is refused."""

    def export(lease: leasehold.Lease, body: str) -> None:
        with begin(path) as tx:
            guard.check(tx, lease)
            write(tx, body)

    with leasehold.connect("memory://") as hold:
        lock = hold.lock("report-export", 42)
        with lock as of_a:
            pass
        with lock as of_b:
            export(of_b, "B")
        with pytest.raises(StaleOwner) as caught:
            export(of_a, "A")
    assert (caught.value.fence, caught.value.seen) == (of_a.fence, of_b.fence)
    assert rows(path, "reports") == [(42, "B", 0)]


def test_secrets_stay_out(begin: Begin, path: Path) -> None:
    """The owner token is in no table, no error, no cause and no repr."""
    with begin(path) as tx:
        guard.check(tx, 10, resource=RESOURCE, owner=A)
    with pytest.raises(StaleOwner) as caught, begin(path) as tx:
        guard.check(tx, 9, resource=RESOURCE, owner=B)
    shown = [str(rows(path)), str(caught.value), repr(caught.value), repr(vars(caught.value)), repr(guard)]
    assert all(SECRET not in one for one in shown)
    assert SECRET.encode() not in path.read_bytes()


def test_create_may_be_repeated(begin: Begin, tmp_path: Path) -> None:
    """Making the table twice forgets nothing; a schema may be named."""
    own = FenceGuard(table="main.own_fences")
    for _ in range(2):
        with begin(tmp_path / "new.db") as tx:
            own.create(tx)
            own.check(tx, 10, resource=RESOURCE)
    assert rows(tmp_path / "new.db", "own_fences") == [(RESOURCE, 10, UNKNOWN_OWNER)]


@settings(max_examples=examples(60))
@given(st.lists(st.tuples(st.integers(1, 9), st.sampled_from([None, A, B])), max_size=25))
def test_the_statement_is_the_rule(attempts: list[tuple[int, str | None]]) -> None:
    """The SQL decides as ``fence.accept`` does, for any sequence of fences and owners."""
    last: tuple[int | None, str] = (None, UNKNOWN_OWNER)
    with closing(sqlite3.connect(":memory:")) as connection:
        guard.create(connection)
        for fence, owner in attempts:
            wanted = fence, digest(owner) if owner else UNKNOWN_OWNER
            if accept(*last, *wanted):
                guard.check(connection, fence, resource=RESOURCE, owner=owner)
                last = wanted
            else:
                with pytest.raises(StaleOwner) as caught:
                    guard.check(connection, fence, resource=RESOURCE, owner=owner)
                assert caught.value.seen == last[0]
