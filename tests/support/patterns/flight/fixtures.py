"""Sides: every store that has a result store beside it, for threads and for asyncio."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from leasehold.testing.standin import StandInStore
from tests.support.patterns.flight.sides import Counted, Side

PLACES = ["memory", "sqlite", *[pytest.param(one, marks=pytest.mark.slow) for one in ("redis", "postgresql")]]


@pytest.fixture(params=PLACES)
def side(request: pytest.FixtureRequest, flavour: str, tmp_path: Path) -> Iterator[Side]:
    """On every store."""
    if request.param == "memory":
        side = near(request.getfixturevalue("leasehold_store"), flavour)
    elif request.param == "sqlite":
        side = Side(f"sqlite:///{tmp_path}/leases.db", flavour, time.sleep)
    elif request.param == "postgresql":
        side = Side(request.getfixturevalue("postgres_database").url, flavour, time.sleep)
    else:
        side = Side(request.getfixturevalue("redis_url"), flavour, time.sleep)
    yield side
    side.close()


@pytest.fixture
def memory(leasehold_store: StandInStore, flavour: str) -> Iterator[Side]:
    """In memory, where time is turned."""
    side = near(leasehold_store, flavour)
    yield side
    side.close()


@pytest.fixture
def counted() -> Counted:
    """What is rebuilt."""
    return Counted()


def near(store: StandInStore, flavour: str) -> Side:
    """On the clock that the test turns."""
    return Side(store, flavour, store.clock.advance)
