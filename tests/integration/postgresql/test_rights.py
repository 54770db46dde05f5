"""What a role needs: what `leasehold store sql` grants is enough (tests/contract plays on it), and less is refused."""

from __future__ import annotations

import psycopg
import pytest

import leasehold
from leasehold import StoreUnavailable
from leasehold.stores.postgresql import schema
from tests.support.servers.database import Database
from tests.support.servers.postgres import PostgresServer

ROLE = "worker_of_a_test"


class Owner:
    """Who may do everything in a database, and a role that may do nothing in it yet."""

    def __init__(self, database: Database) -> None:
        self.database = database

    @property
    def url(self) -> str:
        """For the role."""
        return self.database.url.replace("//postgres@", f"//{ROLE}@")

    def do(self, *statements: str) -> list[tuple[object, ...]]:
        """The rows of the last one."""
        with psycopg.connect(self.database.dsn, autocommit=True) as connection:
            for statement in statements:
                cursor = connection.execute(statement.encode())
            return cursor.fetchall() if cursor.description else []


@pytest.fixture
def owner(postgres_server: PostgresServer, postgres_database: Database) -> Owner:
    """Of a database in which the role is known."""
    if not postgres_server.execute(f"SELECT 1 FROM pg_roles WHERE rolname = '{ROLE}'"):
        postgres_server.execute(f"CREATE ROLE {ROLE} LOGIN")
    return Owner(postgres_database)


def refusal(url: str) -> str:
    """One sentence about why nothing is granted, the same in asyncio."""
    with leasehold.connect(url) as hold, pytest.raises(StoreUnavailable) as refused:
        hold.lock("report").try_acquire()
    text = str(refused.value)
    assert "\n" not in text and "Traceback" not in text
    return text


@pytest.mark.parametrize("right", schema.RIGHTS)
def test_a_right_is_missing(owner: Owner, right: str) -> None:
    """The error names it, and nothing was written."""
    owner.do(*schema.ddl("leases"), *schema.grants("leases", ROLE), f"REVOKE {right} ON leases FROM {ROLE}")
    text = refusal(f"{owner.url}?table=leases")
    assert f"this user lacks {right} on the table leases; `leasehold store sql" in text
    assert owner.do("SELECT * FROM leases") == []


def test_no_right_at_all(owner: Owner) -> None:
    """All of them are named."""
    owner.do(*schema.ddl("leases"))
    assert "lacks SELECT, INSERT, UPDATE, DELETE on the table leases" in refusal(f"{owner.url}?table=leases&create=no")


async def test_a_right_is_missing_in_asyncio(owner: Owner) -> None:
    """The same."""
    owner.do(*schema.ddl("leases"), f"GRANT SELECT, INSERT, UPDATE ON leases TO {ROLE}")
    async with leasehold.aio.connect(f"{owner.url}?table=leases") as hold:
        with pytest.raises(StoreUnavailable, match="lacks DELETE on the table leases"):
            await hold.lock("report").try_acquire()
    assert owner.do("SELECT * FROM leases") == []


def test_the_schema_may_not_be_used(owner: Owner) -> None:
    """The server's own words say which one."""
    owner.do("CREATE SCHEMA ops", *schema.ddl("ops.leases"), f"GRANT ALL ON ops.leases TO {ROLE}")
    text = refusal(f"{owner.url}?table=leases&schema=ops")
    assert "permission denied for schema ops" in text and "prints the GRANT" in text
    owner.do(*schema.grants("ops.leases", ROLE))
    with leasehold.connect(f"{owner.url}?table=leases&schema=ops") as hold:
        assert hold.lock("report").try_acquire()


def test_a_table_may_not_be_made(owner: Owner) -> None:
    """Since PostgreSQL 15 nobody but the owner makes tables in public."""
    owner.do("REVOKE CREATE ON SCHEMA public FROM PUBLIC")
    text = refusal(owner.url)
    assert "permission denied for schema public" in text and "leasehold store sql" in text
    assert owner.do("SELECT to_regclass('leasehold_leases')") == [(None,)]


def test_no_table_and_none_is_made(owner: Owner) -> None:
    """create=no says what prints it."""
    assert "has no table of Leasehold: `leasehold store sql" in refusal(f"{owner.database.url}?create=no")
    assert owner.do("SELECT to_regclass('leasehold_leases')") == [(None,)]
