"""``leasehold store sql``: DDL that makes what the store needs, and the rights on it."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import psycopg
import pytest

import leasehold
from tests.processes.cli.test_completion import offered
from tests.support.cli.desk import Desk
from tests.support.cli.stage import run
from tests.support.servers.database import Database
from tests.support.servers.postgres import executable
from tests.support.waiting import PATIENCE

DIALECT = ("--dialect", "postgresql")


def printed(folder: Path, *arguments: str) -> str:
    """What it prints, when all is well."""
    done = run(folder, "store", "sql", *DIALECT, *arguments)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def by_psql(database: Database, text: str) -> int:
    """As people pipe it."""
    command = [executable("psql"), "--no-psqlrc", "--quiet", "--set=ON_ERROR_STOP=1", database.dsn]
    return subprocess.run(command, input=text, text=True, stderr=subprocess.DEVNULL, timeout=50, check=False).returncode


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "query", "kind"),
    [((), "", "p"), (("--table", "ops.leases", "--unlogged"), "&schema=ops&table=leases", "u")],
)
def test_the_store_works_with_what_is_printed(
    tmp_path: Path, postgres_database: Database, options: tuple[str, ...], query: str, kind: str
) -> None:
    """Piped into psql; a program needs to make nothing then."""
    with psycopg.connect(postgres_database.dsn, autocommit=True) as connection:
        connection.execute("CREATE SCHEMA ops")
        assert by_psql(postgres_database, printed(tmp_path, *options, "--role", "postgres")) == 0
        with leasehold.connect(f"{postgres_database.url}?create=no{query}") as hold:
            assert hold.lock("report").acquire(wait=PATIENCE)
        found = connection.execute("SELECT relpersistence FROM pg_class WHERE relname LIKE '%leases'").fetchall()
        assert found == [(kind,)]


@pytest.mark.slow
def test_a_table_of_that_name_is_left_alone(tmp_path: Path, postgres_database: Database) -> None:
    """It is somebody else's, and does not become ours."""
    with psycopg.connect(postgres_database.dsn, autocommit=True) as connection:
        connection.execute("CREATE TABLE leasehold_leases (mine int)")
        assert by_psql(postgres_database, printed(tmp_path)) != 0
        ((comment,),) = connection.execute("SELECT obj_description('leasehold_leases'::regclass)").fetchall()
        assert comment is None


@pytest.mark.slow
def test_json_has_the_statements_and_the_rights(tmp_path: Path, postgres_database: Database) -> None:
    """Each can be executed by itself."""
    found = json.loads(printed(tmp_path, "--table", "leases", "--role", 'a "role"', "--json"))
    assert list(found) == ["dialect", "statements", "grants"] and found["dialect"] == "postgresql"
    with psycopg.connect(postgres_database.dsn) as connection:
        connection.execute('CREATE ROLE "a ""role"""')
        for statement in (*found["statements"], *found["grants"]):
            connection.execute(statement)
        connection.rollback()


def test_the_rights_are_a_comment_without_a_role(tmp_path: Path) -> None:
    """So that what is printed can be executed as it is."""
    *_, last = printed(tmp_path).splitlines()
    assert last == '-- GRANT SELECT, INSERT, UPDATE, DELETE ON "leasehold_leases" TO "app";'


@pytest.mark.slow
def test_completion(desk: Desk) -> None:
    """The command, its options and the dialects."""
    assert offered(desk, "leasehold store ") == {"sql"}
    assert offered(desk, "leasehold store sql --un") == {"--unlogged"}
    assert offered(desk, "leasehold store sql --dialect ") == {"postgresql"}


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["--dialect", "sqlite"],
        [*DIALECT, "--table", "a b"],
        [*DIALECT, "--table", "a.b.c"],
        [*DIALECT, "--role", ""],
        [*DIALECT, "--role", "x" * 64],
    ],
)
def test_mistakes(tmp_path: Path, arguments: list[str]) -> None:
    """2, and what is wrong."""
    done = run(tmp_path, "store", "sql", *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert "Error:" in done.stderr and "Traceback" not in done.stderr
