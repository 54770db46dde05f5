"""The stale-owner model with real processes, for every guard: frozen past its ttl, overtaken, awake again, refused."""

from __future__ import annotations

import os
import random
from typing import Any

import pytest

from tests.model.stale_owner import scenes
from tests.model.stale_owner.crew import GuardCrew
from tests.support.guards.desks import NAMES

pytestmark = pytest.mark.slow

COLUMN = {"column": True}  # guard.update on a fence column, in place of guard.check on a table of its own
DATABASES: list[Any] = [  # check, read and write can be one transaction
    "sqlite",
    pytest.param(("sqlite", COLUMN), id="sqlite+column"),
    "postgresql-psycopg",
    pytest.param(("postgresql-psycopg", COLUMN), id="postgresql-psycopg+column"),
    "postgresql-sqlalchemy",
    "postgresql-asyncpg",
    "mariadb-pymysql",
    pytest.param(("mariadb-pymysql", COLUMN), id="mariadb-pymysql+column"),
]
ISOLATED: list[Any] = [  # transactions that fail are tried again, from their beginning
    pytest.param((way, {"isolation": level, **form}), id=f"{way}+{level.lower().replace(' ', '-')}+{name}")
    for way, levels in {
        "postgresql-psycopg": ("REPEATABLE READ", "SERIALIZABLE"),
        "mariadb-pymysql": ("READ COMMITTED", "SERIALIZABLE"),
    }.items()
    for level in levels
    for name, form in {"table": {}, "column": COLUMN}.items()
]
IN_PARTS: list[Any] = ["http", "s3"]  # a write takes more than one message
EVERY: list[Any] = [*DATABASES, "redis", *IN_PARTS]

every_target = pytest.mark.parametrize("crew", EVERY, indirect=True)
every_database = pytest.mark.parametrize("crew", DATABASES, indirect=True)
every_one_in_parts = pytest.mark.parametrize("crew", IN_PARTS, indirect=True)


@every_target
def test_stale_owner(crew: GuardCrew) -> None:
    """A is frozen past its ttl, B acquires, reads and writes, A wakes up: its writes are refused, nothing is lost."""
    pair = scenes.Pair(crew)
    scenes.overtaken(pair)
    scenes.read_modify_write(pair)
    scenes.equal_fences(pair)


@every_database
def test_in_one_transaction(crew: GuardCrew) -> None:
    """Frozen before it, or between its check and its write: the row stays locked, so nobody comes between."""
    one_transaction(scenes.Pair(crew))


def one_transaction(pair: scenes.Pair) -> None:
    """All that is about transactions."""
    scenes.late_transaction(pair)
    scenes.frozen_inside(pair)
    scenes.killed_inside(pair)


@pytest.mark.soak
@pytest.mark.parametrize("crew", [*NAMES, *ISOLATED], indirect=True)
def test_every_way_to_a_transaction(crew: GuardCrew) -> None:
    """The same through every driver, SQLAlchemy and Django, and at other levels of isolation."""
    pair = scenes.Pair(crew)
    scenes.overtaken(pair)
    scenes.read_modify_write(pair)
    scenes.equal_fences(pair)
    one_transaction(pair)


@every_one_in_parts
def test_in_the_middle_of_a_write(crew: GuardCrew) -> None:
    """Frozen or killed between its parts: it is one step all the same, or it did not happen."""
    pair = scenes.Pair(crew)
    scenes.frozen_in_write(pair)
    scenes.killed_in_write(pair)


@pytest.mark.parametrize("crew", [*EVERY[:3], "mariadb-pymysql", "redis", *IN_PARTS], indirect=True)
def test_storm(crew: GuardCrew) -> None:
    """Eight workers, whoever holds is frozen or killed: stale writes are tried, none is accepted, no update is lost."""
    verdict = scenes.storm(crew, 3, seed=1)
    assert (verdict.accepted, verdict.lost, verdict.phantoms) == (0, 0, 0)


@pytest.mark.soak
@pytest.mark.parametrize("crew", [*EVERY, *ISOLATED], indirect=True)
def test_storm_for_long(crew: GuardCrew) -> None:
    """Minutes of it. LEASEHOLD_SEED replays the choices."""
    verdict = scenes.storm(crew, 60, int(os.environ.get("LEASEHOLD_SEED") or random.randrange(2**32)))
    assert (verdict.accepted, verdict.lost, verdict.phantoms) == (0, 0, 0)
