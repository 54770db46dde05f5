"""``leasehold guard sql``: DDL that makes what the guard needs."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from leasehold.errors import StaleOwner
from leasehold.guards.sql import FenceGuard
from tests.support.cli.stage import run
from tests.support.servers.database import Database


def printed(folder: Path, *arguments: str) -> str:
    """What it prints, when all is well."""
    done = run(folder, "guard", "sql", *arguments)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def by_psycopg(database: Database) -> Any:
    """A connection to PostgreSQL."""
    import psycopg

    return psycopg.connect(database.dsn)


def by_pymysql(database: Database) -> Any:
    """A connection to MariaDB."""
    import pymysql

    return pymysql.connect(**database.parameters, ssl_disabled=True)


def use(connection: Any, ddl: list[str], guard: FenceGuard, use_it: Callable[[int], None]) -> None:
    """Run the DDL, and see the guard refuse somebody."""
    with closing(connection), closing(connection.cursor()) as cursor:
        for statement in ddl:
            cursor.execute(statement)
        use_it(10)
        with pytest.raises(StaleOwner):
            use_it(9)


SERVERS = [
    pytest.param("postgresql", "postgres_database", by_psycopg, marks=pytest.mark.slow),
    pytest.param("mariadb", "mariadb_database", by_pymysql, marks=pytest.mark.slow),
    ("sqlite", None, None),
]


@pytest.mark.parametrize(("dialect", "server", "connect"), SERVERS)
def test_the_guard_works_with_what_is_printed(
    dialect: str, server: str | None, connect: Any, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """The table, and the columns of a table of one's own."""
    connection: Any = connect(request.getfixturevalue(server)) if server else sqlite3.connect(":memory:")
    guard = FenceGuard("fences")
    ddl = json.loads(printed(tmp_path, "--dialect", dialect, "--table", "fences", "--json"))
    assert ddl["dialect"] == dialect
    more = json.loads(printed(tmp_path, "--json", "--dialect", dialect, "--column", "reports"))
    statements = [
        *ddl["statements"],
        "CREATE TABLE reports (id INTEGER PRIMARY KEY)",
        "INSERT INTO reports VALUES (1)",
        *more["statements"],
    ]
    assert len(more["statements"]) == 2

    def use_it(fence: int) -> None:
        guard.check(connection, fence, resource="a")
        guard.update(
            connection, "reports", key={"id": 1}, values={}, lease=fence, resource="a", owner_column="last_owner"
        )

    use(connection, statements, guard, use_it)


def test_what_is_printed_for_people(tmp_path: Path) -> None:
    """SQL that can be piped into a client."""
    text = printed(tmp_path, "--dialect", "sqlite")
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.executescript(text)
        FenceGuard().check(connection, 10, resource="a")


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["--dialect", "oracle"],
        ["--dialect", "sqlite", "--table", "a b"],
        ["--dialect", "sqlite", "--owner-column", "o"],
        ["--dialect", "sqlite", "--column", "reports", "--table", "fences"],
        ["--dialect", "sqlite", "--column", "reports", "--fence-column", "x" * 64],
    ],
)
def test_mistakes(tmp_path: Path, arguments: list[str]) -> None:
    """2, and what is wrong."""
    done = run(tmp_path, "guard", "sql", *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert "Error:" in done.stderr and "Traceback" not in done.stderr
