"""Patterns of a coordinator on PostgreSQL: results are beside the leases, for threads and for asyncio."""

from __future__ import annotations

import asyncio
import threading
from datetime import datetime
from pathlib import Path
from typing import Any

import httpx
import psycopg
import psycopg_pool
import pytest
from sqlalchemy.ext.asyncio import create_async_engine
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

import leasehold
from leasehold import InvalidRequest, StaleOwner, StoreUnavailable, Unsupported
from leasehold.patterns import Jobs
from leasehold.patterns.idempotency import GLOBAL, IdempotencyMiddleware
from leasehold.stores.postgresql import schema
from leasehold.testing.results import Presenter
from tests.support.cli.stage import run
from tests.support.servers.database import Database
from tests.support.servers.postgres import PostgresServer

pytestmark = pytest.mark.slow


def test_cron(postgres_database: Database) -> None:
    """A tick is claimed and recorded in the database, and every coordinator sees the run."""
    ran = threading.Event()
    with leasehold.connect(postgres_database.url) as hold, leasehold.connect(postgres_database.url) as other:

        def rollup(tick: datetime) -> None:
            ran.set()

        cron = hold.cron("* * * * * *", "rollup")(rollup)
        cron.start()
        assert ran.wait(30) and cron.stop()
        history = other.cron("* * * * * *", "rollup")(rollup).history()
        assert history and {run.outcome for run in history} == {"ok"}


async def test_cron_in_asyncio(postgres_database: Database) -> None:
    """The same."""
    async with leasehold.aio.connect(postgres_database.url) as hold:
        ran = asyncio.Event()

        async def rollup(tick: datetime) -> None:
            ran.set()

        cron = hold.cron("* * * * * *", "rollup")(rollup)
        cron.start()
        await asyncio.wait_for(ran.wait(), 30)
        assert await cron.stop()
        assert {run.outcome for run in await cron.history()} == {"ok"}


async def test_by_a_pool_and_an_engine_of_asyncio(postgres_database: Database) -> None:
    """A pattern that reads a result before it takes any lease connects on the loop that it is used on."""
    pool = psycopg_pool.AsyncConnectionPool(postgres_database.dsn, open=False)
    engine = create_async_engine(postgres_database.sqlalchemy_url("psycopg"))
    targets: list[Any] = [pool, engine]
    for number, target in enumerate(targets):

        async def work(key: str, number: int = number) -> str:
            return f"{key} {number}"

        async with leasehold.aio.connect(target) as hold:
            assert await hold.single_flight("page", "{key}", fresh="1m")(work)("a") == "a 0"
    await engine.dispose()


def test_a_pool_of_asyncio_is_refused_by_threads(postgres_database: Database) -> None:
    """By results as by leases."""
    mistake = pytest.raises(InvalidRequest, match=r"needs leasehold.aio.connect")
    pool = psycopg_pool.AsyncConnectionPool(postgres_database.dsn, open=False)
    with leasehold.connect(pool) as hold, mistake:
        hold._results.read("page:42")


def test_jobs_beside_leases(postgres_database: Database) -> None:
    """Jobs have a table of their own in the same database; a lease beside them is a coordinator's."""
    with leasehold.connect(postgres_database.url) as hold:
        jobs = Jobs(lambda: psycopg.connect(postgres_database.dsn))
        jobs.create()
        jobs.enqueue({"report": 42})
        with hold.lock("report", 42):
            job = jobs.claim()
            assert job is not None and job.payload == {"report": 42}
            job.complete()


async def test_idempotency_key(postgres_database: Database) -> None:
    """A repeated request gets the response of the first, from another coordinator as well, and nothing runs again."""
    payments: list[bytes] = []

    async def pay(request: Request) -> Response:
        payments.append(await request.body())
        return Response(f"payment {len(payments)}", 201)

    async def post(body: str) -> tuple[int, str]:
        async with leasehold.aio.connect(postgres_database.url) as hold:
            site = IdempotencyMiddleware(Starlette(routes=[Route("/", pay, methods=["POST"])]), hold, caller=GLOBAL)
            transport = httpx.ASGITransport(site)
            async with httpx.AsyncClient(transport=transport, base_url="http://shop") as client:
                response = await client.post("/", content=body, headers={"Idempotency-Key": "order-7"})
        return response.status_code, response.text

    assert [await post("5"), await post("5")] == [(201, "payment 1")] * 2
    assert (await post("500"))[0] == 422
    assert payments == [b"5"]


def test_a_result_in_a_transaction_of_ones_own(postgres_database: Database) -> None:
    """It is there if and only if the transaction is committed."""
    with leasehold.connect(postgres_database.url) as hold, psycopg.connect(postgres_database.dsn) as tx:
        results, holder = hold._results, Presenter("order:7", 2**40)
        assert results.open(holder) is None
        results.write(holder, "undone", "1h", tx=tx)  # type: ignore[call-arg]  # one in a database takes it
        tx.rollback()
        assert results.read("order:7") is None
        results.write(holder, "paid", "1h", tx=tx)  # type: ignore[call-arg]
        tx.commit()
        found = results.read("order:7")
        assert found is not None and found.text == "paid"  # type: ignore[union-attr]
        with pytest.raises(StaleOwner):
            results.write(holder._replace(fence=holder.fence - 1), "late", "1h")


def test_rights_and_a_table_that_is_not_made(
    postgres_server: PostgresServer, postgres_database: Database, tmp_path: Path
) -> None:
    """With create=no the error says what prints the table; a role with the rights that are printed can keep results."""
    role = "keeper_of_results"
    if not postgres_server.execute(f"SELECT 1 FROM pg_roles WHERE rolname = '{role}'"):
        postgres_server.execute(f"CREATE ROLE {role} LOGIN")
    url = postgres_database.url.replace("//postgres@", f"//{role}@") + "?create=no"
    with psycopg.connect(postgres_database.dsn, autocommit=True) as owner:
        for statement in (*schema.ddl(schema.TABLE), *schema.grants(schema.TABLE, role)):
            owner.execute(statement.encode())
        with leasehold.connect(url) as hold:
            with pytest.raises(StoreUnavailable, match="has no table leasehold_results for results: `leasehold store"):
                hold._results.read("page:42")
            owner.execute(f"DROP TABLE {schema.TABLE}")
            printed = run(tmp_path, "store", "sql", "--dialect", "postgresql", "--results", "--role", role)
            owner.execute(printed.stdout.encode())
            assert hold.once("payment", "{key}", keep="1h")(lambda key: f"done {key}")("a") == "done a"


def test_the_names_of_the_tables() -> None:
    """Beside each table of leases; capitals are refused with what to do instead."""
    assert schema.results_table("leasehold_leases") == "leasehold_results"
    assert schema.results_table("ops.leasehold_leases") == "ops.leasehold_results"
    assert schema.results_table("ops." + "x" * 63) == "ops." + "x" * 55 + "_results"
    mistake = pytest.raises(Unsupported, match="capital letters: say where to keep results, such as SQLResultStore")
    with leasehold.connect("postgresql://localhost/app?table=Leases") as hold, mistake:
        hold._results.read("page:42")
