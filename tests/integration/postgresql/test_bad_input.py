"""A server, a database or a table that the store cannot work with: one sentence, and nothing is written."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

import psycopg
import pytest

import leasehold
from leasehold import InvalidRequest, LeaseholdError, StoreUnavailable, Unsupported
from leasehold.stores.postgresql.schema import MARK, TABLE, VERSION, ddl
from tests.support.servers.database import Database
from tests.support.servers.postgres import PostgresServer
from tests.support.servers.postgres_replica import PostgresPair

SECRET = "hunter2"


def refusal(url: str) -> LeaseholdError:
    """What both flavours say, to a claim and to whoever only looks."""
    with leasehold.connect(url) as hold:
        with pytest.raises(LeaseholdError) as refused:
            hold.lock("report").try_acquire()
        with pytest.raises(type(refused.value)) as looked:
            hold.inspect("report")
    text = str(refused.value)
    assert str(looked.value) == text == str(asyncio.run(awaited(url)))
    assert "\n" not in text and len(text) < 300
    return refused.value


async def awaited(url: str) -> LeaseholdError:
    """The same in asyncio."""
    async with leasehold.aio.connect(url) as hold:
        with pytest.raises(LeaseholdError) as refused:
            await hold.lock("report").try_acquire()
    return refused.value


def execute(database: Database, *statements: str) -> list[tuple[object, ...]]:
    """The rows of the last one."""
    with psycopg.connect(database.dsn, autocommit=True) as connection:
        for statement in statements:
            cursor = connection.execute(statement.encode())
        return cursor.fetchall() if cursor.description else []


# ---------------------------------------------------------------- tables


@pytest.mark.parametrize(
    "made",
    [
        f"CREATE TABLE {TABLE} (name text, fence bigint)",
        f"CREATE VIEW {TABLE} AS SELECT 1 AS name",
        f"CREATE TABLE {TABLE} AS SELECT 'a' AS name; COMMENT ON TABLE {TABLE} IS 'our customers'",
    ],
)
def test_a_table_of_somebody_else(postgres_database: Database, made: str) -> None:
    """It is refused, and stays as it is."""
    execute(postgres_database, *made.split("; "))
    before = execute(postgres_database, f"SELECT * FROM {TABLE}")
    error = refusal(postgres_database.url)
    assert isinstance(error, InvalidRequest) and "was not made by Leasehold: name another one with ?table=" in str(
        error
    )
    assert execute(postgres_database, f"SELECT * FROM {TABLE}") == before
    with leasehold.connect(f"{postgres_database.url}?table=others") as hold:
        assert hold.lock("report").try_acquire()


def test_a_table_of_a_newer_version(postgres_database: Database) -> None:
    """An older Leasehold writes nothing that a newer one could misread."""
    execute(postgres_database, *ddl(TABLE), f"COMMENT ON TABLE {TABLE} IS '{MARK}{VERSION + 1}'")
    error = refusal(postgres_database.url)
    assert isinstance(error, Unsupported) and f"has version '{VERSION + 1}'" in str(error)
    assert execute(postgres_database, f"SELECT * FROM {TABLE}") == []


def test_a_table_that_lost_a_column(postgres_database: Database) -> None:
    """The comment says that it is ours, and it is not what we made."""
    execute(postgres_database, *ddl(TABLE), f"ALTER TABLE {TABLE} DROP COLUMN details")
    error = refusal(postgres_database.url)
    assert isinstance(error, StoreUnavailable) and "of another version, or of somebody else (42703)" in str(error)
    assert execute(postgres_database, f"SELECT * FROM {TABLE}") == []


def test_a_schema_that_is_not_there(postgres_database: Database) -> None:
    """It is not made: only tables are."""
    error = refusal(f"{postgres_database.url}?schema=ops")
    assert isinstance(error, StoreUnavailable) and 'schema "ops" does not exist' in str(error)


# ---------------------------------------------------------------- databases


def test_a_database_in_latin1(postgres_server: PostgresServer) -> None:
    """Names of resources and metadata are any text, which such a database cannot keep."""
    postgres_server.execute(
        "CREATE DATABASE in_latin1 ENCODING 'LATIN1' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0 STRATEGY file_copy"
    )
    url = postgres_server.url.removesuffix("/postgres") + "/in_latin1"
    try:
        error = refusal(url)
        assert isinstance(error, Unsupported) and "has the encoding LATIN1, and a lease needs UTF8" in str(error)
        with psycopg.connect(url) as connection:
            assert connection.execute(f"SELECT to_regclass('{TABLE}')").fetchall() == [(None,)]
    finally:
        postgres_server.execute("DROP DATABASE in_latin1 WITH (FORCE)")


def test_a_database_and_a_user_that_are_not_there(postgres_database: Database) -> None:
    """The server says which."""
    assert f'database "{postgres_database.name}_missing" does not exist' in str(
        refusal(postgres_database.url + "_missing")
    )
    url = postgres_database.url.replace("//postgres@", f"//nobody_here:{SECRET}@")
    assert 'role "nobody_here" does not exist' in str(refusal(url))


def test_sessions_that_may_not_write(postgres_database: Database) -> None:
    """A role or a database can be read-only by default."""
    error = refusal(f"{postgres_database.url}?options=-cdefault_transaction_read_only%3Don")
    assert isinstance(error, StoreUnavailable) and "is read-only" in str(error)
    assert execute(postgres_database, f"SELECT to_regclass('{TABLE}')") == [(None,)]


def test_a_standby(own_postgres_pair: Callable[..., PostgresPair]) -> None:
    """It is read-only, and the error says how to find the primary."""
    pair = own_postgres_pair(synchronous=False)
    error = refusal(pair.standby.url)
    assert isinstance(error, StoreUnavailable)
    assert "is read-only: a standby" in str(error) and "target_session_attrs=read-write" in str(error)
    first, second = pair.standby, pair.primary
    url = (
        f"postgresql://postgres@127.0.0.1:{first.port},127.0.0.1:{second.port}/postgres?target_session_attrs=read-write"
    )
    with leasehold.connect(url) as hold:
        assert hold.lock("report").try_acquire()


# ---------------------------------------------------------------- secrets


def test_no_log_and_no_error_shows_the_password(postgres_database: Database, caplog: pytest.LogCaptureFixture) -> None:
    """With every logger at DEBUG, a server that is not there and one that refuses."""
    with caplog.at_level(logging.DEBUG):
        with_password = postgres_database.url.replace("//postgres@", f"//nobody_here:{SECRET}@")
        nowhere = f"postgresql://app:{SECRET}@127.0.0.1:1/app"
        texts = [str(refusal(url)) for url in (with_password, nowhere)]
        with leasehold.connect(with_password.replace("nobody_here", "postgres")) as hold, hold.lock("report"):
            pass
    assert "cannot be reached" in texts[1]
    assert SECRET not in "".join([*texts, caplog.text])
