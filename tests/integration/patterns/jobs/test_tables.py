"""The user's own table: other names, other types, fewer columns; and what is said of one that does not fit."""

from __future__ import annotations

from typing import Any

import pytest

from leasehold import Backoff, InvalidRequest, StaleOwner, StoreUnavailable
from leasehold.patterns import Jobs
from tests.support.patterns.jobs.shops import Shop, got, mariadb_connect, place, postgres_pool

LEAST: dict[str, str | None] = {
    **dict.fromkeys(
        ["owner", "attempts", "payload", "result", "error", "run_at", "created_at", "finished_at", "queue", "key"]
    ),
    "id": "report_id",
    "state": "Status",
    "version": "row version",
    "lease_until": "locked_until",
}
WORDS = {"ready": "NEW", "running": "AT WORK", "done": "PRINTED", "dead": "GIVEN UP"}
TIME = {"sqlite": "DATETIME", "postgresql": "TIMESTAMP", "mariadb": "TIMESTAMP(6) NULL"}


def quoted(shop: Shop, name: str) -> str:
    """As each database writes names."""
    return f'"{name}"' if shop.dialect == "postgresql" else f"`{name}`"


def make(store: Shop) -> None:
    """A table of reports, as somebody has it: text as its key, odd names, and columns that are none of our business."""
    store.execute(
        f"CREATE TABLE reports (report_id VARCHAR(20) PRIMARY KEY, {quoted(store, 'Status')} VARCHAR(10) NOT NULL, "
        f"{quoted(store, 'row version')} INTEGER NOT NULL, locked_until {TIME[store.dialect]}, title VARCHAR(40))"
    )


async def test_a_table_with_the_least(store: Shop) -> None:
    """Four columns under other names, and other words for the states; the user's own columns come with the job."""
    make(store)
    jobs = store.jobs(table="reports", columns=LEAST, states=WORDS, retry=Backoff(base=60, cap=60, attempts=2))
    await got(jobs.check())
    assert await got(jobs.enqueue(values={"report_id": "r-1", "title": "Sales % of 2026"})) == "r-1"
    late = await got(jobs.claim())
    assert (late.id, late.row["title"], late.version, late.attempts) == ("r-1", "Sales % of 2026", 1, 1)
    assert late.payload is None and late.error is None and late.queue is None
    store.expire("reports", "locked_until")
    job = await got(jobs.claim())
    assert (job.version, job.attempts) == (2, 2)
    with pytest.raises(StaleOwner):
        await got(late.complete())
    await got(job.fail("no paper"))  # without a column for attempts the version counts them
    assert await got(jobs.counts()) == {"ready": 0, "running": 0, "done": 0, "dead": 1, "expired": 0}
    assert await got(jobs.retry_dead("r-1"))
    await got((await got(jobs.claim())).complete())
    assert store.execute(f"SELECT {quoted(store, 'Status')} FROM reports") == [("PRINTED",)]


async def test_columns_of_yours_with_names_of_ours(store: Shop) -> None:
    """A state of the union beside the state of the job: each keeps its own."""
    table = "CREATE TABLE parcels (nr INTEGER PRIMARY KEY, phase VARCHAR(9), version INTEGER, until {}, "
    rest = "state VARCHAR(9), owner VARCHAR(9), id INTEGER)"
    store.execute(table.format(TIME[store.dialect]) + rest)
    columns = {**LEAST, "id": "nr", "state": "phase", "version": "version", "lease_until": "until"}
    jobs = store.jobs(table="parcels", columns=columns)
    await got(jobs.enqueue(values={"nr": 7, "state": "Ohio", "owner": "acme", "id": 99}))
    job = await got(jobs.claim())
    assert (job.id, job.state, job.owner) == (7, "running", None)
    assert (job.row["state"], job.row["owner"], job.row["id"], job.row["phase"]) == ("Ohio", "acme", 99, "running")
    await got(job.complete())
    assert store.execute("SELECT nr, phase, state, owner, id FROM parcels") == [(7, "done", "Ohio", "acme", 99)]


async def test_what_the_table_lacks_is_refused_where_it_is_needed(store: Shop) -> None:
    """Before anything is sent, and the rest works."""
    make(store)
    jobs = store.jobs(table="reports", columns=LEAST, states=WORDS)
    for wrong in ({"payload": 1}, {"key": "k"}, {"delay": 1}, {"queue": "q"}):
        with pytest.raises(InvalidRequest, match="has none"):
            await got(jobs.enqueue(**wrong))
    with pytest.raises(InvalidRequest, match="has none"):
        await got(jobs.purge("1d"))
    assert store.execute("SELECT * FROM reports") == []


async def test_a_missing_table(store: Shop) -> None:
    """Said at the first use, whatever that is."""
    jobs = store.jobs(table="nowhere")
    for call in (jobs.check, jobs.claim, lambda: jobs.enqueue(1), jobs.counts):
        with pytest.raises(StoreUnavailable, match="there is no table nowhere"):
            await got(call())
    await got(jobs.create())
    await got(jobs.check())


async def test_missing_columns_are_all_named(store: Shop) -> None:
    """At once, with what to do; nothing is written."""
    make(store)
    jobs = store.jobs(table="reports", columns={**LEAST, "payload": "body", "key": "once"}, states=WORDS)
    with pytest.raises(InvalidRequest) as error:
        await got(jobs.enqueue(values={"report_id": "r-1"}))
    said = str(error.value)
    assert "no column body (for payload)" in said and "no column once (for key)" in said and "columns=" in said
    assert store.execute("SELECT * FROM reports") == []


async def test_columns_of_a_wrong_type(store: Shop) -> None:
    """A version that is text would compare 10 with 9 as text."""
    time = TIME[store.dialect]
    store.execute(f"CREATE TABLE jobs (id INTEGER, state VARCHAR(9), version VARCHAR(9), lease_until {time})")
    rest = {name: None for name in LEAST if name not in ("id", "state", "version", "lease_until")}
    with pytest.raises(InvalidRequest, match="version must be a"):
        await got(store.jobs(columns=rest).claim())
    if store.dialect != "sqlite":
        with pytest.raises(InvalidRequest, match=r"version must be .*lease_until must be"):
            await got(store.jobs(columns={**rest, "lease_until": "state"}).claim())


async def test_a_table_that_changed_is_looked_at_again(store: Shop) -> None:
    """A column that went away is named, and the next call finds the table as it is."""
    jobs = store.jobs()
    await got(jobs.create())
    await got(jobs.enqueue(1))
    store.execute("ALTER TABLE jobs DROP COLUMN owner")
    with pytest.raises(InvalidRequest, match="owner"):
        await got(jobs.claim())
    with pytest.raises(InvalidRequest, match="no column owner"):
        await got(jobs.claim())
    store.execute("ALTER TABLE jobs ADD COLUMN owner VARCHAR(255)")
    assert (await got(jobs.claim())).payload == 1


async def test_a_rule_of_the_table_that_is_broken(store: Shop) -> None:
    """The user's own constraints are his: said, and nothing is half done."""
    make(store)
    jobs = store.jobs(table="reports", columns=LEAST, states=WORDS)
    await got(jobs.enqueue(values={"report_id": "r-1"}))
    with pytest.raises(InvalidRequest, match="break a rule"):
        await got(jobs.enqueue(values={"report_id": "r-1"}))
    assert len(store.execute("SELECT * FROM reports")) == 1


async def test_many_are_all_or_none(store: Shop) -> None:
    """One that the table refuses takes back those that were written before it."""
    jobs = store.jobs()
    types = {"sqlite": "TEXT", "postgresql": "JSONB", "mariadb": "LONGTEXT"}
    column = f"{quoted(store, 'payload')} {types[store.dialect]}"
    ddl = jobs.ddl(store.dialect).replace(column, f"{column} CHECK ({quoted(store, 'payload')} <> '300')")
    for statement in ddl.split(";"):
        if statement.strip():
            store.execute(statement)
    with pytest.raises(InvalidRequest, match="break a rule"):
        await got(jobs.enqueue_many(range(301)))  # 300 is in the second INSERT
    assert (await got(jobs.counts()))["ready"] == 0
    assert len(await got(jobs.enqueue_many(range(300)))) == 300


async def test_a_key_without_a_unique_index(store: Shop) -> None:
    """It could be enqueued twice, so it is refused."""
    await got(store.jobs().create())
    store.execute("CREATE TABLE tasks AS SELECT * FROM jobs")
    with pytest.raises(InvalidRequest, match="unique"):
        await got(store.jobs(table="tasks").enqueue(1, key="once"))


@pytest.mark.slow
def test_types_of_postgres(postgres_database: Any) -> None:
    """An enum for the state, a UUID for the id, numbers that are small, a schema of its own."""
    import psycopg

    with psycopg.connect(postgres_database.dsn) as connection:
        connection.execute("CREATE SCHEMA app")
        connection.execute("CREATE TYPE app.state AS ENUM ('ready', 'running', 'done', 'dead')")
        connection.execute(
            "CREATE TABLE app.jobs (id UUID PRIMARY KEY DEFAULT gen_random_uuid(), state app.state NOT NULL, version "
            "SMALLINT, lease_until TIMESTAMP, attempts INT, payload JSON, result TEXT, error VARCHAR(5000), "
            "run_at TIMESTAMP, created_at TIMESTAMPTZ, finished_at TIMESTAMPTZ, queue TEXT, key TEXT UNIQUE, "
            "owner TEXT)"
        )
    jobs = Jobs(lambda: psycopg.connect(postgres_database.dsn, options="-c timezone=Asia/Tokyo"), table="app.jobs")
    job_id = jobs.enqueue({"a": 1}, key="once")
    assert jobs.enqueue({"a": 1}, key="once") == job_id
    job = jobs.claim()
    assert job is not None and job.id == job_id and job.payload == {"a": 1}
    assert jobs.claim() is None  # its lease is as long in Tokyo
    job.complete(["done"])
    found = jobs.get(job_id)
    assert found is not None and found.result == ["done"]


@pytest.mark.slow
@pytest.mark.parametrize("dialect", ["postgresql", "mariadb"])
async def test_columns_of_a_fixed_length(dialect: str, request: pytest.FixtureRequest) -> None:
    """CHAR keeps all of its characters, and spaces behind them change nothing."""
    async with place(postgres_pool if dialect == "postgresql" else mariadb_connect, request) as store:
        store.execute(
            "CREATE TABLE jobs (id CHAR(36) PRIMARY KEY, state CHAR(10) NOT NULL, version BIGINT, "
            f"lease_until {TIME[dialect]}, {quoted(store, 'key')} CHAR(20) UNIQUE, queue CHAR(12))"
        )
        columns = dict.fromkeys(
            ["owner", "attempts", "payload", "result", "error", "run_at", "created_at", "finished_at"]
        )
        jobs = store.jobs(columns=columns)
        for number in (1, 2):
            jobs.enqueue(values={"id": f"id-{number}"}, key=f"order:{number}", queue=f"queue-{number}")
        job = jobs.claim(queue="queue-2")
        assert job is not None and job.id.strip() == "id-2" and jobs.claim(queue="queue-2") is None
        job.complete()
        assert jobs.counts() == {"ready": 1, "running": 0, "done": 1, "dead": 0, "expired": 0}
        found = jobs.get("id-2")
        assert found is not None and found.state == "done"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "states"), [("VARCHAR(20)", {"ready": 0, "running": 1, "done": 2, "dead": 3}), ("INT", {})]
)
async def test_states_of_another_type(kind: str, states: Any, request: pytest.FixtureRequest) -> None:
    """MariaDB finds that 'cancelled' = 0, and would claim it."""
    async with place(mariadb_connect, request) as store:
        store.execute(
            f"CREATE TABLE reports (report_id INT PRIMARY KEY, `Status` {kind}, `row version` INT, "
            "locked_until DATETIME(6))"
        )
        jobs = store.jobs(table="reports", columns=LEAST, states=states)
        with pytest.raises(InvalidRequest, match="state must be"):
            jobs.claim()


@pytest.mark.slow
def test_a_table_without_transactions(mariadb_database: Any) -> None:
    """MyISAM would keep half of what was rolled back."""
    import pymysql

    def connect() -> Any:
        return pymysql.connect(**mariadb_database.parameters, ssl_disabled=True)

    jobs = Jobs(connect)
    with connect() as connection, connection.cursor() as cursor:
        cursor.execute(jobs.ddl("mariadb").rstrip(";").replace("InnoDB", "MyISAM"))
    with pytest.raises(InvalidRequest, match="InnoDB"):
        jobs.check()


@pytest.mark.slow
async def test_ddl_is_what_create_makes(store: Shop) -> None:
    """For migrations: the same table, made by hand."""
    jobs = store.jobs(columns={"id": "job id", "key": None}, states={"ready": 1, "running": 2, "done": 3, "dead": 4})
    for statement in jobs.ddl(store.dialect).split(";"):
        if statement.strip():
            store.execute(statement)
    await got(jobs.check())
    await got(jobs.enqueue(1))
    await got((await got(jobs.claim())).complete())
    assert store.execute("SELECT state FROM jobs") == [(3,)]


@pytest.mark.slow
def test_heartbeats_within_one_tick_of_the_column(mariadb_database: Any) -> None:
    """MariaDB counts no row that stays the same: the second beat of a second is no loss."""
    import pymysql

    def connect() -> Any:
        return pymysql.connect(**mariadb_database.parameters, ssl_disabled=True)

    jobs = Jobs(connect)
    with connect() as connection, connection.cursor() as cursor:
        cursor.execute(jobs.ddl("mariadb").rstrip(";").replace("DATETIME(6)", "DATETIME"))
    jobs.enqueue("work")
    job = jobs.claim()
    assert job is not None
    for _ in range(5):
        job.heartbeat()
    job.complete()
