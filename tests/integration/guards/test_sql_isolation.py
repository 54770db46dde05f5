"""Stale and fresh owners in a race, on every database and at every isolation that it has: no lost update, ever."""

from __future__ import annotations

import os
from typing import Any

import pytest

from tests.support.guards.desks import Place
from tests.support.guards.lines import LEVELS
from tests.support.guards.race import MANNERS, Race, in_processes, in_threads, judge, prepare

SEED = int(os.environ.get("RACE_SEED", "20261116"))
LANES = 4
SHORT, LONG = 20, 1000  # rounds of each lane; one is about two transactions

WAYS = [
    *[("psycopg", level) for level in LEVELS],
    *[("asyncpg", level) for level in LEVELS],
    *[("pymysql", level) for level in LEVELS],
    *[("sqlite3", f"{begin} {journal}") for begin in ("DEFERRED", "IMMEDIATE") for journal in ("DELETE", "WAL")],
]
ONE_OF_EACH = [("psycopg", "REPEATABLE READ"), ("pymysql", "REPEATABLE READ"), ("sqlite3", "DEFERRED WAL")]


def parameters(ways: list[tuple[str, str]], mark: Any) -> list[Any]:
    """Each with its name."""
    return [pytest.param(*way, marks=mark, id="-".join(way).replace(" ", "_").lower()) for way in ways]


def run(request: pytest.FixtureRequest, line: str, level: str, by: str, rounds: int, where: Any) -> None:
    """A race from its beginning to its judgement."""
    begin, _, journal = level.partition(" ") if line == "sqlite3" else (level, "", "")
    race = Race(line, begin, by, place_for(line, request), LANES, rounds, SEED)
    prepare(race, journal)
    judge(race, where(race))


def place_for(line: str, request: pytest.FixtureRequest) -> Place:
    """A database that nobody else uses."""
    if line == "sqlite3":
        return str(request.getfixturevalue("tmp_path") / "race.db")
    place: Place = request.getfixturevalue("mariadb_database" if line == "pymysql" else "postgres_database")
    return place


@pytest.mark.parametrize("by", MANNERS)
@pytest.mark.parametrize(("line", "level"), parameters(WAYS, pytest.mark.slow))
def test_threads(request: pytest.FixtureRequest, line: str, level: str, by: str) -> None:
    """Lanes in threads: every accepted write is there, and fences never decrease."""
    run(request, line, level, by, SHORT, in_threads)


@pytest.mark.parametrize("by", MANNERS)
@pytest.mark.parametrize(("line", "level"), parameters(ONE_OF_EACH, pytest.mark.slow))
def test_processes(request: pytest.FixtureRequest, line: str, level: str, by: str) -> None:
    """Lanes in processes: the same."""
    run(request, line, level, by, SHORT, in_processes)


@pytest.mark.parametrize("where", [in_threads, in_processes])
@pytest.mark.parametrize("by", MANNERS)
@pytest.mark.parametrize(("line", "level"), parameters(WAYS, pytest.mark.soak))
def test_thousands(request: pytest.FixtureRequest, line: str, level: str, by: str, where: Any) -> None:
    """Some eight thousand transactions in each race."""
    run(request, line, level, by, LONG, where)
