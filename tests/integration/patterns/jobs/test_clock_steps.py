"""A database whose clock is set back: no job waits for the step, and no worker is robbed (trap 49)."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import AsyncIterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from leasehold import InvalidRequest
from leasehold.patterns import Jobs
from leasehold.patterns.jobs.clock_setback import ClockReadings
from leasehold.patterns.jobs.table import OPTIONAL
from tests.support.patterns.jobs.shops import Shop, got, mariadb_async_engine, postgres_connect
from tests.support.servers.clock import WallClock
from tests.support.servers.mariadb import MariaServer
from tests.support.servers.postgres import PostgresServer

HOUR = 3_600
DAY = 86_400
PATIENCE = 15.0  # seconds that something may take which takes two: less than the steps
SHORT = 0.5  # seconds: the lease of those who look for jobs
AHEAD = {
    "sqlite": "strftime('%Y-%m-%d %H:%M:%f', {}, '{} seconds')",
    "postgresql": "{} + interval '{} seconds'",
    "mariadb": "TIMESTAMPADD(SECOND, {1}, {0})",
}
NOW = {"sqlite": "'now'", "postgresql": "now()", "mariadb": "UTC_TIMESTAMP(6)"}


# ---------------------------------------------------------------- on a real clock that is set


@pytest.fixture(params=[postgres_connect, mariadb_async_engine], ids=lambda way: way.__name__)
async def set_back(request: pytest.FixtureRequest) -> AsyncIterator[tuple[Shop, WallClock]]:
    """A shop, and the clock of its server."""
    clock = WallClock()
    kind: Any = PostgresServer if request.param is postgres_connect else MariaServer
    with kind(clock=clock) as server:
        async with request.param(server.fresh()) as shop:
            yield shop, clock


async def claimed(jobs: Any) -> Any:
    """The next job, as soon as there is one."""
    end = time.monotonic() + PATIENCE
    while (job := await got(jobs.claim())) is None:
        assert time.monotonic() < end, "never claimed"
        await asyncio.sleep(0.02)
    return job


@pytest.mark.slow
async def test_no_job_waits_for_the_step(set_back: tuple[Shop, WallClock]) -> None:
    """Of a worker that died, one that waits in line, one that is to be tried again; and the living keep theirs."""
    shop, clock = set_back
    patient, hasty = shop.jobs(lease="1h"), shop.jobs(lease=SHORT)
    await got(patient.create())
    await got(patient.enqueue("long"))
    living = await got(patient.claim())
    assert await got(hasty.claim()) is None  # it has seen the clock as it was
    for step in (-20, -DAY):
        for name in ("orphan", "failed"):
            await got(hasty.enqueue(name))
        _, failed = await got(hasty.claim_many(2))  # the worker of the first dies here
        await got(failed.fail("try again"))
        await got(hasty.enqueue("waits"))
        clock.set_off(step)
        found: dict[str, int] = {}
        while len(found) < 3:
            job = await claimed(hasty)
            found[job.payload] = job.version
            await got(job.complete())
        assert found == {"orphan": 2, "failed": 2, "waits": 1}
    await got(living.heartbeat())
    await got(living.complete())


# ---------------------------------------------------------------- on rows that say what such a clock leaves


def later(store: Shop, column: str, seconds: int) -> str:
    """That column, so much later."""
    return AHEAD[store.dialect].format(column, seconds)


def set_clock_back(store: Shop, seconds: int) -> None:
    """Everything that is written down is further ahead then."""
    columns = ("lease_until", "run_at", "counted_from")
    store.execute("UPDATE jobs SET " + ", ".join(f"{one} = {later(store, one, seconds)}" for one in columns))


async def test_a_lease_goes_back_to_its_own_length(store: Shop) -> None:
    """Not to that of whoever looks: a worker whose heartbeats come seldom is not robbed by one in a hurry."""
    slow, quick = store.jobs(lease="30m"), store.jobs(lease="1s")
    await got(slow.create())
    await got(slow.enqueue(1))
    job = await got(slow.claim())
    set_clock_back(store, HOUR)
    assert await got(quick.claim()) is None
    until = later(store, NOW[store.dialect], 1_800), later(store, NOW[store.dialect], 1_700)
    assert store.execute(f"SELECT lease_until <= {until[0]}, lease_until > {until[1]} FROM jobs")[0] == (True, True)
    await got(job.complete())


async def test_what_is_due_stays_due(store: Shop) -> None:
    """At once, or as long from now as it was to wait; a moment that somebody has named is that moment."""
    jobs, noon = store.jobs(), datetime.now(UTC) + timedelta(hours=2)
    await got(jobs.create())
    for more in ({}, {"delay": "30m"}, {"run_at": noon}):
        await got(jobs.enqueue(1, **more))
    set_clock_back(store, HOUR)
    others = store.jobs()
    assert (await claimed(others)).id == 1
    assert await got(others.claim()) is None
    ends = [later(store, NOW[store.dialect], seconds) for seconds in (1_800, 1_700, 3 * HOUR, 3 * HOUR - 100)]
    [first, second] = store.execute(
        f"SELECT run_at <= {ends[0]}, run_at > {ends[1]}, run_at <= {ends[2]}, run_at > {ends[3]} "
        "FROM jobs WHERE id > 1 ORDER BY id"
    )
    assert tuple(first) == (True, True, True, False)
    assert tuple(second) == (False, True, True, True)


async def test_without_the_column_a_lease_lasts_for_a_day_at_most(store: Shop) -> None:
    """Nobody can ask for more; what is within that is left alone, for it may be somebody's."""
    jobs = store.jobs(columns={"counted_from": None})
    await got(jobs.create())
    await got(jobs.enqueue_many([1, 2]))
    await got(jobs.claim_many(2))
    store.execute(f"UPDATE jobs SET lease_until = {later(store, NOW[store.dialect], 30 * DAY)} WHERE id = 1")
    store.execute(f"UPDATE jobs SET lease_until = {later(store, NOW[store.dialect], 23 * HOUR)} WHERE id = 2")
    assert await got(store.jobs(columns={"counted_from": None}).claim()) is None
    ends = [later(store, NOW[store.dialect], seconds) for seconds in (DAY, DAY - 100, 23 * HOUR, 23 * HOUR - 100)]
    first, second = store.execute(
        f"SELECT lease_until <= {ends[0]}, lease_until > {ends[1]}, lease_until <= {ends[2]}, "
        f"lease_until > {ends[3]} FROM jobs ORDER BY id"
    )
    assert tuple(first) == (True, True, False, True)
    assert tuple(second) == (True, False, True, True)


async def test_the_column_may_be_missing_or_have_another_name(store: Shop) -> None:
    """A table from before goes on; one that was named and is not there is an error."""
    old = store.jobs(columns={"counted_from": None})
    await got(old.create())
    jobs = store.jobs()
    await got(jobs.check())
    await got(jobs.enqueue(1))
    await got((await got(jobs.claim())).release())
    with pytest.raises(InvalidRequest, match=r"no column set_at \(for counted_from\)"):
        await got(store.jobs(columns={"counted_from": "set_at"}).check())
    kind = {"sqlite": "TEXT", "postgresql": "TIMESTAMP", "mariadb": "DATETIME(6)"}[store.dialect]
    store.execute(f"ALTER TABLE jobs ADD COLUMN set_at {kind}")
    named = store.jobs(columns={"counted_from": "set_at"})
    job = await got(named.claim())
    assert store.execute("SELECT set_at IS NULL FROM jobs") == [(False,)]
    await got(job.complete())


def test_seconds_since_1970(tmp_path: Path) -> None:
    """Times that are numbers are brought back as well."""
    path = tmp_path / "app.db"

    def execute(sql: str) -> list[tuple[Any, ...]]:
        with closing(sqlite3.connect(path)) as db, db:
            return db.execute(sql).fetchall()

    execute(
        "CREATE TABLE jobs (id INTEGER PRIMARY KEY AUTOINCREMENT, state TEXT, version INTEGER, lease_until REAL, "
        "run_at REAL, counted_from REAL)"
    )
    columns = dict.fromkeys(name for name in OPTIONAL if name != "run_at")
    Jobs(path, columns=columns).enqueue()
    assert Jobs(path, columns=columns, lease="10m").claim() is not None
    execute("UPDATE jobs SET lease_until = lease_until + 3600, counted_from = counted_from + 3600")
    assert Jobs(path, columns=columns).claim() is None
    [(until, counted_from)] = execute("SELECT lease_until, counted_from FROM jobs")
    assert 500 < until - time.time() <= 600 and counted_from <= time.time()


# ---------------------------------------------------------------- who notices


def test_a_glance_now_and_then() -> None:
    """Every third of the lease, and not more often than every second; after one that failed at once."""
    glances = ClockReadings(30.0)
    assert glances.due(100.0) and not glances.due(109.0) and glances.due(110.0)
    glances.failed()
    assert glances.due(110.0)
    hasty = ClockReadings(0.1)
    assert hasty.due(100.0) and not hasty.due(100.9) and hasty.due(101.0)


@pytest.mark.parametrize(("shown", "noticed"), [(1_010.0, False), (1_008.95, False), (1_008.5, True), (1.0, True)])
def test_a_step_is_noticed(shown: float, noticed: bool) -> None:
    """A clock that lags a little is none that was set; forward is nothing to mend; who has not looked knows nothing."""
    glances = ClockReadings(30.0)
    assert glances.set_back(90.0, 0.0)
    glances.keep(100.0, 1_000.0)
    assert glances.set_back(110.0, shown) is noticed
    assert not glances.set_back(110.0, 90_000.0)
