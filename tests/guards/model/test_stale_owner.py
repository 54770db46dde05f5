"""The stale-owner model with real processes, for every guard: frozen past its ttl, overtaken, awake again, refused."""

from __future__ import annotations

import os
import random
from typing import Any

import pytest

from tests.guards.model import scenes
from tests.guards.model.crew import GuardCrew

pytestmark = pytest.mark.slow

COLUMN = {"column": True}  # guard.update on a fence column, in place of guard.check on a table of its own
DATABASES: list[Any] = [  # check, read and write can be one transaction
    "sqlite",
    pytest.param(("sqlite", COLUMN), id="sqlite-column"),
    "psycopg",
    pytest.param(("psycopg", COLUMN), id="psycopg-column"),
    "sqlalchemy",
    "asyncpg",
    "pymysql",
    pytest.param(("pymysql", COLUMN), id="pymysql-column"),
]
EVERY: list[Any] = [*DATABASES]

every_target = pytest.mark.parametrize("crew", EVERY, indirect=True)
every_database = pytest.mark.parametrize("crew", DATABASES, indirect=True)


@every_target
def test_overtaken(crew: GuardCrew) -> None:
    """A is frozen past its ttl, B acquires, reads and writes, A wakes up: its writes are refused (I3)."""
    scenes.overtaken(crew)


@every_target
def test_read_modify_write(crew: GuardCrew) -> None:
    """A wakes up between B's read and B's write: no update is lost (I4, trap 46)."""
    scenes.read_modify_write(crew)


@every_target
def test_equal_fences(crew: GuardCrew) -> None:
    """One fence from two owners: the second is refused, and the value is the first one's."""
    scenes.equal_fences(crew)


@every_database
def test_late_transaction(crew: GuardCrew) -> None:
    """The same pause, and everything in one transaction: it is refused before it reads."""
    scenes.late_transaction(crew)


@every_database
def test_frozen_between_check_and_write(crew: GuardCrew) -> None:
    """The row stays locked: B waits, or is told that it is locked, and then adds to what A wrote."""
    scenes.frozen_inside(crew)


@every_database
def test_killed_between_check_and_write(crew: GuardCrew) -> None:
    """Its connection ends with it: B goes on, and nothing is half done."""
    scenes.killed_inside(crew)


@every_target
def test_storm(crew: GuardCrew) -> None:
    """Eight workers, whoever holds is frozen or killed: stale writes are tried, none is accepted, no update is lost."""
    verdict = scenes.storm(crew, 3, seed=1)
    assert (verdict.accepted, verdict.lost, verdict.phantoms) == (0, 0, 0)


@pytest.mark.soak
@every_target
def test_storm_for_long(crew: GuardCrew) -> None:
    """Minutes of it. LEASEHOLD_SEED replays the choices."""
    verdict = scenes.storm(crew, 120, int(os.environ.get("LEASEHOLD_SEED") or random.randrange(2**32)))
    assert (verdict.accepted, verdict.lost, verdict.phantoms) == (0, 0, 0)
