"""Transactions beside the ops of the store: what is sent, and what is known when a session breaks. Without a server."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import pytest

from leasehold import OutcomeUnknown
from leasehold.errors import LeaseholdError
from leasehold.stores.postgresql import failures
from leasehold.stores.postgresql.session import Broken, Refused, Rows
from leasehold.stores.postgresql.statements import ROLLBACK
from leasehold.stores.postgresql.transactions import BEGIN, COMMIT, transaction
from leasehold.stores.postgresql.turns import Again

SERVER = "PostgreSQL at host:5432"


def writing() -> Generator[tuple[str, list[Any]], list[tuple[Any, ...]], str]:
    """Two statements."""
    found = yield "INSERT INTO t VALUES ($1, $2) RETURNING a", ["text", None]
    yield "UPDATE t SET a = $1", [7]
    return f"wrote {found}"


def reading() -> Generator[tuple[str, list[Any]], list[tuple[Any, ...]], Any]:
    """A query alone."""
    return (yield "SELECT a FROM t", [])


def refusing() -> Generator[tuple[str, list[Any]], list[tuple[Any, ...]], None]:
    """It finds out by itself that nothing may be written."""
    yield "INSERT INTO t VALUES (1)", []
    raise LeaseholdError("no")


def rows(*found: tuple[str, ...]) -> list[Rows]:
    """The answer to one statement."""
    return [Rows(list(found))]


def test_a_transaction() -> None:
    """It begins with the first statement, executes each other, and commits."""
    flow = transaction(SERVER, writing)
    first = next(flow)
    assert first.statements[:-1] == BEGIN and first.statements[-1][0].startswith(b"INSERT")
    second = flow.send([*rows() * len(BEGIN), *rows(("1",))])
    assert [text for text, _ in second.statements] == [b"UPDATE t SET a = $1"]
    assert flow.send(rows()) is COMMIT
    with pytest.raises(StopIteration) as end:
        flow.send(rows())
    assert end.value.value == "wrote [('1',)]"


def test_a_query_needs_none() -> None:
    """One round trip."""
    flow = transaction(SERVER, reading)
    assert [text for text, _ in next(flow).statements] == [b"SELECT a FROM t"]
    with pytest.raises(StopIteration) as end:
        flow.send(rows(("1",)))
    assert end.value.value == [("1",)]


def test_a_session_that_breaks_before_the_commit() -> None:
    """Nothing has happened: whoever drives it begins anew."""
    flow = transaction(SERVER, writing)
    next(flow)
    flow.send(rows())
    with pytest.raises(Broken):
        flow.throw(Broken("gone"))


@pytest.mark.parametrize(("sqlstate", "kind"), [("", OutcomeUnknown), (failures.STOOD_STILL, Again)])
def test_a_session_that_breaks_at_the_commit(sqlstate: str, kind: type[Exception]) -> None:
    """Nobody knows; unless the server says that it had ended the transaction before."""
    flow = transaction(SERVER, writing)
    next(flow)
    for answer in (rows(), rows()):
        last = flow.send(answer)
    assert last is COMMIT
    with pytest.raises(kind):
        flow.throw(Broken("gone", sqlstate))


def test_a_refusal() -> None:
    """Of the server, or of the work itself: the transaction is rolled back first."""
    flow = transaction(SERVER, writing)
    next(flow)
    assert flow.throw(Refused("42P01", "no table")) is ROLLBACK
    with pytest.raises(Refused):
        flow.send(rows())
    other = transaction(SERVER, refusing)
    next(other)
    assert other.send(rows()) is ROLLBACK
    with pytest.raises(LeaseholdError, match="no"):
        other.send(rows())
