"""What a call costs, as the page says: how many requests go to the server, and none of them in vain."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

import leasehold
from leasehold.stores.postgresql.session import Session
from tests.support.servers.database import Database


@pytest.fixture
def count(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], Any]], tuple[int, Any]]:
    """How many requests a call sends, on the thread that makes it, and what it gives."""
    sent: list[Any] = []
    perform = Session.perform

    def counted(session: Session, request: Any, give_up: float) -> Any:
        sent.append(request)
        return perform(session, request, give_up)

    monkeypatch.setattr(Session, "perform", counted)

    def run(call: Callable[[], Any]) -> tuple[int, Any]:
        before = len(sent)
        result = call()
        return len(sent) - before, result

    return run


@pytest.fixture
def hold(postgres_database: Database) -> Iterator[leasehold.Leasehold]:
    """It is connected, and nothing runs beside the calls of a test."""
    with leasehold.connect(f"{postgres_database.url}?listen=no") as hold:
        with hold.lock("first", renew=False):
            pass
        yield hold


def test_what_a_call_costs(hold: leasehold.Leasehold, count: Any) -> None:
    """A free lock is one request to take and one to give back; what the ledger decides is two."""
    for _ in range(2):  # with a row, and without
        trips, lease = count(hold.lock("report", renew=False).acquire)
        assert trips == 1
        assert count(hold.lock("report").try_acquire) == (2, None)
        assert count(lambda: hold.inspect("report"))[0] == 1
        assert count(lease.release) == (1, True)
    trips, permit = count(hold.semaphore("exports", limit=2, renew=False).acquire)
    assert trips == 2
    assert count(permit.release)[0] <= 3
