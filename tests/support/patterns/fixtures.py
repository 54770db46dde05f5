"""Fixtures for patterns: every way to a transaction, on every database; a table of cases; both flavours."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.guards.desks import NAMES, Desk, Place, open_desk
from tests.support.patterns.cases import Cases


@pytest.fixture(scope="session")
def desks() -> Iterator[dict[str, Desk]]:
    """Those that were opened: the tables of each test have names of their own, so they are kept for the next."""
    opened: dict[str, Desk] = {}
    yield opened
    for one in opened.values():
        one.close()


@pytest.fixture(params=NAMES)
def desk(request: pytest.FixtureRequest, desks: dict[str, Desk], tmp_path_factory: pytest.TempPathFactory) -> Desk:
    """Every way to a transaction, on every database."""
    name: str = request.param
    if name not in desks:
        desks[name] = open_desk(name, _place(request, name.partition("-")[0], tmp_path_factory.mktemp("desk")))
    return desks[name]


def _place(request: pytest.FixtureRequest, database: str, folder: Path) -> Place:
    if database == "sqlite":
        return str(folder / "app.db")
    place: Place = request.getfixturevalue(
        {"postgresql": "postgres_server", "mariadb": "mariadb_server"}[database]
    ).main
    return place


@pytest.fixture(params=["sync", "asyncio"])
def flavour(request: pytest.FixtureRequest) -> str:
    """For threads, or for asyncio."""
    return str(request.param)


@pytest.fixture
def cases(desk: Desk) -> Cases:
    """A table with one case that is ready, by every way."""
    return Cases(desk)
