"""Fixtures for guards: every way to a transaction, and a database with one row that is worth guarding."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from leasehold.guards.sql import FenceGuard
from tests.support.guards.desks import NAMES, Desk, Place, open_desk
from tests.support.guards.redis_stage import cluster, data, guard, make_guard, old_server, place, valkey_server
from tests.support.guards.s3_fixtures import bucket, requests, s3, s3_guard, s3_put_guard, s3_server
from tests.support.guards.ways import WAYS, Begin, by_sqlite3

__all__ = [  # fixtures
    "bucket", "cluster", "data", "guard", "make_guard", "old_server", "place", "requests", "s3", "s3_guard",
    "s3_put_guard", "s3_server", "valkey_server",
]  # fmt: skip


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


FULLY = ("sqlite-sqlite3", "postgresql-psycopg", "postgresql-asyncpg", "mariadb-pymysql")
EVERY_WAY = pytest.mark.parametrize("desk", NAMES, indirect=True)  # for the handful of cases that each way must show


@pytest.fixture(params=[pytest.param(name, marks=[pytest.mark.soak] * (name not in FULLY)) for name in NAMES])
def desk(request: pytest.FixtureRequest) -> Iterator[Desk]:
    """A way to a transaction: one for each database, and one that is awaited. The others are for the soak."""
    desk = open_desk(request.param, place_of(request.param, request))
    yield desk
    desk.close()


def place_of(name: str, request: pytest.FixtureRequest) -> Place:
    """A new file, or the database of the server that the whole run shares."""
    database = name.partition("-")[0]
    if database == "sqlite":
        return str(request.getfixturevalue("tmp_path") / "app.db")
    place: Place = request.getfixturevalue(f"{'postgres' if database == 'postgresql' else database}_server").main
    return place
