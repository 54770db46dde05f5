"""Stores for faults: an address that several coordinators share, and a user of each flavour."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import leasehold
from tests.support.faults.user import USERS, User
from tests.support.servers.database import Database

STORES = ("redis", "sqlite", "postgresql", "etcd", "zookeeper")
HASTE = 1  # second after which a reply counts as lost; an interrupt inside asyncio loses one that has come


@pytest.fixture(params=STORES)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The address of an empty store."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/leases.db"
    if request.param == "postgresql":
        database: Database = request.getfixturevalue("postgres_database")
        return database.url
    if request.param in ("etcd", "zookeeper"):
        return str(request.getfixturevalue(f"{request.param}_url"))
    return f"{request.getfixturevalue('redis_url')}?socket_timeout={HASTE}"


@pytest.fixture(params=USERS)
def new_user(request: pytest.FixtureRequest) -> Callable[[str], User]:
    """Makes users of one flavour."""
    return USERS[request.param]


@pytest.fixture
def other(url: str) -> Iterator[leasehold.Leasehold]:
    """Another user's coordinator on the same store."""
    with leasehold.connect(url) as other:
        yield other
