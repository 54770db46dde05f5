"""Fixtures for guards: every way to a transaction, and a database with one row that is worth guarding."""

from __future__ import annotations

from pathlib import Path

import pytest

from leasehold.guards.sql import FenceGuard
from tests.guards.s3_fixtures import bucket, requests, s3, s3_guard, s3_put_guard, s3_server
from tests.guards.ways import WAYS, Begin, by_sqlite3

__all__ = ["bucket", "requests", "s3", "s3_guard", "s3_put_guard", "s3_server"]


@pytest.fixture(params=WAYS, ids=lambda way: way.__name__)
def begin(request: pytest.FixtureRequest) -> Begin:
    """One way to a transaction."""
    way: Begin = request.param
    return way


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A database with the guard's table, and one row that is worth guarding."""
    path = tmp_path / "app.db"
    with by_sqlite3(path) as connection:
        FenceGuard().create(connection)
        connection.execute("CREATE TABLE reports (report_id INTEGER PRIMARY KEY, body TEXT, exports INTEGER)")
        connection.execute("INSERT INTO reports VALUES (42, '', 0)")
    return path
