"""The SQL guard through every driver, SQLAlchemy and Django, on SQLite, PostgreSQL and MariaDB."""

from __future__ import annotations

from typing import Any

import pytest

from leasehold._core.types import owner_digest
from leasehold.errors import InvalidRequest, StaleOwner
from leasehold.guards.sql import NoSuchRow
from tests.support.guards.desks import Desk
from tests.support.guards.fixtures import EVERY_WAY
from tests.support.guards.ways import RESOURCE, A, B
from tests.support.servers.database import Database


def check(desk: Desk, fence: int, owner: str | None = None, resource: str = RESOURCE, **more: Any) -> None:
    """In a transaction of its own."""
    with desk.begin() as tx:
        tx.do(lambda raw: desk.guard.check(raw, fence, resource=resource, owner=owner, **more))


def update(desk: Desk, fence: int, owner: str | None = None, body: str = "written", **more: Any) -> None:
    """Write the report, in a transaction of its own."""
    change: dict[str, Any] = {"key": {"report_id": 42}, "values": {"body": body}, **more}
    with desk.begin() as tx:
        tx.do(lambda raw: desk.guard.update(raw, desk.reports, lease=fence, resource=RESOURCE, owner=owner, **change))


@EVERY_WAY
def test_accepted_and_refused(desk: Desk) -> None:
    """A newer fence and the same owner again are accepted and remembered; everybody else is refused."""
    for fence, owner in ((10, A), (10, A), (11, B), (1794768018952706, A)):
        check(desk, fence, owner)
        assert desk.seen() == [(RESOURCE, fence, owner_digest(owner))]
    for fence, owner in ((11, B), (1794768018952706, B)):
        with pytest.raises(StaleOwner) as caught:
            check(desk, fence, owner)
        assert (caught.value.fence, caught.value.seen) == (fence, 1794768018952706)
    assert desk.seen() == [(RESOURCE, 1794768018952706, owner_digest(A))]


@EVERY_WAY
def test_a_refusal_rolls_everything_back(desk: Desk) -> None:
    """What the stale owner wrote before the check is gone with its transaction."""
    check(desk, 10, A)
    with pytest.raises(StaleOwner), desk.begin() as tx:  # noqa: PT012 - one transaction
        tx.rows(f"UPDATE {desk.reports} SET body = 'stale'")
        tx.do(lambda raw: desk.guard.check(raw, 9, resource=RESOURCE, owner=B))
    assert desk.report()[0] == ""


@EVERY_WAY
def test_a_rolled_back_check_was_never_made(desk: Desk) -> None:
    """The guard remembers only what was committed together with a write."""
    with pytest.raises(ZeroDivisionError), desk.begin() as tx:  # noqa: PT012 - one transaction
        tx.do(lambda raw: desk.guard.check(raw, 99, resource=RESOURCE, owner=A))
        raise ZeroDivisionError
    assert desk.seen() == []
    check(desk, 10, B)


@EVERY_WAY
def test_check_read_and_write_in_one_transaction(desk: Desk) -> None:
    """As the documents show it."""
    with desk.begin() as tx:
        tx.do(lambda raw: desk.guard.check(raw, 10, resource=RESOURCE, owner=A))
        ((exports,),) = tx.rows(f"SELECT exports FROM {desk.reports} WHERE report_id = 42")
        tx.rows(f"UPDATE {desk.reports} SET exports = {exports + 1} WHERE report_id = 42")
    assert desk.report()[1] == 1


@EVERY_WAY
def test_readers(desk: Desk) -> None:
    """A shared check is refused below the last writer, and remembers nothing."""
    check(desk, 50, A, shared=True)
    assert desk.seen() == []
    check(desk, 10, A)
    check(desk, 11, B, shared=True)
    check(desk, 10, A, shared=True)
    with pytest.raises(StaleOwner) as caught:
        check(desk, 9, B, shared=True)
    assert (caught.value.fence, caught.value.seen) == (9, 10)
    assert desk.seen() == [(RESOURCE, 10, owner_digest(A))]


def test_create_again(desk: Desk) -> None:
    """Making the table twice does no harm, and forgets nothing."""
    check(desk, 10, A)
    with desk.begin() as tx:
        tx.do(desk.guard.create)
    assert len(desk.seen()) == 1


# ---------------------------------------------------------------- update


@EVERY_WAY
def test_update(desk: Desk) -> None:
    """A NULL column counts as 0; the same fence may write again, also the same values; an older one is refused."""
    for fence, body in ((10, "a"), (10, "b"), (10, "b"), (1794768018952706, "c")):
        update(desk, fence, A, body)
        assert desk.report() == (body, 0, fence, None)
    with pytest.raises(StaleOwner) as caught:
        update(desk, 11, B, "stale")
    assert (caught.value.fence, caught.value.seen) == (11, 1794768018952706)
    assert desk.report()[0] == "c"


def test_update_strict(desk: Desk) -> None:
    """One write for each fence."""
    update(desk, 10, A, "a", strict=True)
    for fence in (10, 9):
        with pytest.raises(StaleOwner) as caught:
            update(desk, fence, A, "again", strict=True)
        assert caught.value.seen == 10
        assert ("strict=True" in str(caught.value)) is (fence == 10)  # nobody else was there
    update(desk, 11, A, "b", strict=True)
    assert desk.report() == ("b", 0, 11, None)


def test_update_with_an_owner_column(desk: Desk) -> None:
    """Equal fences of two owners: the second is refused. The column holds a digest, never the token."""
    for _ in range(2):
        update(desk, 10, A, "a", owner_column="last_owner")
    with pytest.raises(StaleOwner) as caught:
        update(desk, 10, B, "b", owner_column="last_owner")
    assert (caught.value.fence, caught.value.seen) == (10, 10)
    assert desk.report() == ("a", 0, 10, owner_digest(A))
    update(desk, 11, B, "b", owner_column="last_owner")
    assert desk.report() == ("b", 0, 11, owner_digest(B))


def test_update_without_an_owner_column_goes_by_the_fence_alone(desk: Desk) -> None:
    """The exception that is stated where the rule is: an equal fence is accepted, whoever shows it; not with strict."""
    update(desk, 10, A, "a")
    update(desk, 10, B, "b")
    assert desk.report() == ("b", 0, 10, None)
    with pytest.raises(StaleOwner):
        update(desk, 10, A, "a", strict=True)
    with pytest.raises(StaleOwner):  # who it was is not known, so nobody is taken for the same
        update(desk, 10, B, "c", owner_column="last_owner")


def test_update_of_nothing_presents_the_fence(desk: Desk) -> None:
    """Before the first read: from then on an older one is refused."""
    with desk.begin() as tx:
        tx.do(
            lambda raw: desk.guard.update(
                raw, desk.reports, key={"report_id": 42}, values={}, lease=10, resource=RESOURCE
            )
        )
        assert tx.rows(f"SELECT body, last_fencing_token FROM {desk.reports}") == [("", 10)]
    with pytest.raises(StaleOwner):
        update(desk, 9)


def test_no_such_row(desk: Desk) -> None:
    """It is a LookupError, and no stale owner."""
    with pytest.raises(NoSuchRow) as caught:
        update(desk, 10, key={"report_id": 43})
    assert isinstance(caught.value, LookupError)


@EVERY_WAY
def test_values_that_a_table_refuses(desk: Desk) -> None:
    """A row that breaks a rule of its table is the caller's mistake: no outage, so nobody tries again."""
    with desk.begin() as tx:
        tx.rows(f"CREATE UNIQUE INDEX unique_{desk.number} ON {desk.reports} (exports)")
        tx.rows(f"INSERT INTO {desk.reports} (report_id, body, exports) VALUES (43, '', 1)")
    with pytest.raises(InvalidRequest, match="break a rule of the table") as caught:
        update(desk, 10, values={"exports": 1})
    assert caught.value.__cause__ is not None


def test_a_key_that_names_many_rows(desk: Desk) -> None:
    """A fence belongs to one row: nothing is written."""
    with desk.begin() as tx:
        tx.rows(f"INSERT INTO {desk.reports} (report_id, body, exports) VALUES (43, '', 0)")
    with pytest.raises(InvalidRequest, match="2 rows"):
        update(desk, 10, key={"exports": 0})
    with desk.begin() as tx:
        assert tx.rows(f"SELECT DISTINCT body FROM {desk.reports}") == [("",)]


def test_names_are_taken_as_they_are(desk: Desk) -> None:
    """Reserved words, capitals, spaces and percent signs in the names of columns."""
    quote = '"' if isinstance(desk.place, Database) and desk.place.scheme == "postgresql" else "`"
    odd = f"odd_{desk.number}"
    with desk.begin() as tx:
        tx.rows(f"CREATE TABLE {odd} (id INTEGER PRIMARY KEY, {quote}Order by %s{quote} BIGINT)")
        tx.rows(f"INSERT INTO {odd} (id) VALUES (1)")
    with desk.begin() as tx:
        tx.do(
            lambda raw: desk.guard.update(
                raw, odd, key={"id": 1}, values={}, lease=10, resource=RESOURCE, fence_column="Order by %s"
            )
        )
