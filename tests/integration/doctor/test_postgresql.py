"""The examination of PostgreSQL: durability, connections, the table, rights that it printed itself, poolers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import quote

import psycopg
import pytest

import leasehold
from leasehold.doctor import postgresql
from tests.support.doctor import every_finding_helps, examined, found, only
from tests.support.servers.database import Database
from tests.support.servers.pgbouncer import PgBouncer
from tests.support.servers.postgres import PostgresServer
from tests.support.waiting import until

pytestmark = pytest.mark.slow
ROLE = "patient_of_a_test"


@pytest.fixture
def do(postgres_database: Database) -> Callable[[str], None]:
    """Execute a statement in the database of this test."""

    def execute(statement: str) -> None:
        with psycopg.connect(postgres_database.dsn, autocommit=True) as connection:
            connection.execute(statement.encode())

    return execute


def test_a_database(postgres_database: Database) -> None:
    """Every check is made. The servers of tests have no disk that they wait for, and that is found."""
    seen = examined(postgres_database.url)
    every_finding_helps(seen)
    assert {"lease", "version", "persistence", "replicas", "connections", "bloat", "permissions", "channels",
            "clock"} <= {one.check for one in seen.report.findings}  # fmt: skip
    assert seen.trial is not None and all(seen.trial[1:])
    assert only(seen, "channels").severity == "ok" and only(seen, "clock").severity == "ok"
    assert found(seen, "persistence")["problem"].text == "fsync is off"


def test_what_a_crash_would_lose(postgres_database: Database, do: Callable[[str], None]) -> None:
    """synchronous_commit, and a table that is not logged."""
    do(f"ALTER DATABASE {postgres_database.name} SET synchronous_commit = off")
    texts = [one.text for one in examined(postgres_database.url).report.of("persistence") if one.severity == "warning"]
    assert any("synchronous_commit is off" in text for text in texts)
    url = f"{postgres_database.url}?table=quick&unlogged=yes"
    assert any("unlogged" in one.text for one in examined(url).report.of("persistence"))


def test_dead_rows(postgres_database: Database, do: Callable[[str], None], monkeypatch: pytest.MonkeyPatch) -> None:
    """A transaction that stays open keeps them, and is found as well."""
    monkeypatch.setattr(postgresql, "OLD_TRANSACTION", 0.01)
    monkeypatch.setattr(postgresql, "DEAD_ROWS", 100)
    examined(postgres_database.url)  # makes the table
    with psycopg.connect(postgres_database.dsn) as old:
        old.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        old.execute("SELECT count(*) FROM leasehold_leases")
        do("DO $$ BEGIN FOR i IN 1..400 LOOP UPDATE leasehold_leases SET fence = fence + 1; END LOOP; END $$")

        def warned() -> Any:
            texts = [one.text for one in examined(postgres_database.url).report.of("bloat")
                     if one.severity == "warning"]  # fmt: skip
            return any("dead ones" in text for text in texts) and texts

        assert any("a transaction has been open" in text for text in until(warned, "the dead rows are counted"))


def test_settings_of_the_server(own_postgres: Callable[..., PostgresServer]) -> None:
    """Few connections are left; autovacuum is off; the isolation is another one."""
    server = own_postgres("-cmax_connections=10", "-cautovacuum=off", "-cfull_page_writes=off",
                          "-cdefault_transaction_isolation=serializable")  # fmt: skip
    with psycopg.connect(server.dsn), psycopg.connect(server.dsn), psycopg.connect(server.dsn):
        seen = examined(server.url)
    assert any("autovacuum is off" in one.text for one in seen.report.of("bloat"))
    assert only(seen, "isolation").severity == "note"
    assert found(seen, "persistence")["warning"].text == "full_page_writes is off"
    assert "of 7 connections" in only(seen, "connections").text


# ---------------------------------------------------------------- rights


@pytest.fixture
def role(postgres_server: PostgresServer, postgres_database: Database) -> Iterator[str]:
    """The URL of a role that may connect, and nothing more."""
    if not postgres_server.execute(f"SELECT 1 FROM pg_roles WHERE rolname = '{ROLE}'"):
        postgres_server.execute(f"CREATE ROLE {ROLE} LOGIN")
    yield postgres_database.url.replace("//postgres@", f"//{ROLE}@") + "?create=no"
    with psycopg.connect(postgres_database.dsn, autocommit=True) as connection:
        connection.execute(f"DROP OWNED BY {ROLE}".encode())


def test_the_grants_that_it_prints_are_enough(
    postgres_database: Database, role: str, do: Callable[[str], None]
) -> None:
    """What it prints to a superuser makes the table and the role's rights; the role then takes leases."""
    with leasehold.connect(postgres_database.url + "?create=no") as hold:
        printed = only(leasehold.doctor.examine(hold), "permissions").fix
    assert printed.startswith("CREATE TABLE") and printed.endswith('TO "app"')
    for statement in printed.replace('"app"', f'"{ROLE}"').split("; "):
        do(statement)
    with leasehold.connect(role) as one, leasehold.connect(role) as other:
        with one.lock("job"):
            assert other.lock("job").try_acquire() is None
        with other.lock("job", wait=5):
            pass
    seen = examined(role)
    assert only(seen, "permissions").severity == "ok" and seen.trial is not None
    assert "DELETE" in only(seen, "permissions").fix
    do(f"REVOKE DELETE ON leasehold_leases FROM {ROLE}")
    seen = examined(role)
    assert only(seen, "permissions").severity == "problem" and "lacks DELETE" in only(seen, "permissions").text
    assert seen.trial is None and seen.report.reachable


# ---------------------------------------------------------------- poolers, servers that are away, standbys


def test_a_pooler(pgbouncer: PgBouncer, postgres_database: Database) -> None:
    """LISTEN receives nothing there; the fix, a URL of the server to listen at, helps."""
    url = pgbouncer.before(postgres_database).url
    assert only(examined(url), "channels").severity == "warning"
    seen = examined(f"{url}?listen={quote(postgres_database.url, safe='')}")
    assert only(seen, "channels").severity == "ok" and only(seen, "pooler").severity == "note"
    assert only(examined(f"{url}?listen=no"), "channels").severity == "note"


def test_a_server_that_is_gone() -> None:
    """A finding: nothing listens there."""
    seen = examined("postgresql://postgres@127.0.0.1:1/postgres?connect_timeout=2")
    assert not seen.report.reachable and found(seen, "reachable")["problem"].place == "PostgreSQL at 127.0.0.1:1"


@pytest.mark.soak  # two servers of its own take seconds to start
def test_standbys(own_postgres_pair: Callable[..., Any]) -> None:
    """One that streams but is waited for by no commit; then the standby itself, which takes no writes."""
    pair = own_postgres_pair(synchronous=False)
    seen = examined(pair.main.url)
    assert found(seen, "replicas").keys() == {"ok", "warning"}
    assert "no commit waits" in found(seen, "replicas")["warning"].text
    standby = pair.standby.main.url
    seen = examined(standby)
    assert only(seen, "role").severity == "problem" and seen.trial is None
