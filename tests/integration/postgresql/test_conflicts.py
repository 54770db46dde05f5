"""Transactions of somebody else that come in between: what PostgreSQL undoes for that reason is done again."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest

import leasehold
from leasehold.stores.postgresql import failures
from leasehold.stores.postgresql.schema import TABLE
from tests.support.servers.database import Database
from tests.support.waiting import PATIENCE, until

pytestmark = pytest.mark.slow

REPEATABLE = "options=-cdefault_transaction_isolation%3Drepeatable%5C%20read"
TOUCH = f"UPDATE {TABLE} SET fence = fence + 1 WHERE name = %s"


@pytest.fixture
def undone(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The SQLSTATEs with which the server refused something of ours."""
    found: list[str] = []
    passing = failures.passing

    def record(sqlstate: str) -> bool:
        found.append(sqlstate)
        return passing(sqlstate)

    monkeypatch.setattr(failures, "passing", record)
    return found


@pytest.fixture
def stranger(postgres_database: Database) -> Iterator[psycopg.Connection[Any]]:
    """Somebody who changes rows of ours."""
    with psycopg.connect(postgres_database.dsn) as connection:
        yield connection


def blocked(database: Database) -> bool:
    """Does anybody wait for a lock?"""
    query = "SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
    with psycopg.connect(database.dsn) as connection:
        return connection.execute(query).fetchone() is not None


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    """For callers that wait."""
    with ThreadPoolExecutor(2) as pool:
        yield pool


def test_a_serialization_failure(
    postgres_database: Database, stranger: psycopg.Connection[Any], threads: ThreadPoolExecutor, undone: list[str]
) -> None:
    """The sessions have a stricter isolation by default: a statement that another overtook becomes a turn."""
    with leasehold.connect(f"{postgres_database.url}?{REPEATABLE}") as hold:
        with hold.lock("job") as before:
            pass
        stranger.execute(TOUCH, ("job",))
        claim = threads.submit(hold.lock("job").acquire, wait=PATIENCE)
        until(lambda: blocked(postgres_database), "the claim waits for the row")
        stranger.commit()
        lease = claim.result(PATIENCE)
        assert lease is not None and lease.fence > before.fence and lease.release()
    assert undone == ["40001"]


def test_a_deadlock(
    postgres_database: Database, stranger: psycopg.Connection[Any], threads: ThreadPoolExecutor, undone: list[str]
) -> None:
    """Somebody locks two of our rows in another order than we do: our transaction is undone, and succeeds then."""
    with leasehold.connect(postgres_database.url) as hold:
        both = hold.all(hold.lock("a"), hold.lock("b"))
        with both:
            pass
        stranger.execute("SET LOCAL deadlock_timeout = '1h'")  # so that it is not the one that gives way
        stranger.execute(TOUCH, ("b",))
        claim = threads.submit(both.acquire, wait=PATIENCE)
        until(lambda: blocked(postgres_database), "the claim has the first row, and waits for the second")
        stranger.execute(TOUCH, ("a",))
        stranger.commit()
        leases = claim.result(PATIENCE)
        assert leases is not None and leases.release()
    assert undone == ["40P01"]
