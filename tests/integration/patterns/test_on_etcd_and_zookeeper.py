"""Patterns over leases of etcd and ZooKeeper, with results in a store of their own."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import closing
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
import redis.asyncio

import leasehold
from leasehold.patterns.results import RedisResultStore, SQLiteResultStore
from tests.support.waiting import until

pytestmark = pytest.mark.slow
EVERY_SECOND = "* * * * * *"


@pytest.fixture(params=["etcd", "zookeeper"])
def url(request: pytest.FixtureRequest) -> str:
    """Where nobody else is."""
    return str(request.getfixturevalue(f"{request.param}_url"))


def test_once_single_flight_and_an_election(url: str, tmp_path: Path) -> None:
    """Each result is computed once, and a decorated function and an election need no results at all."""
    calls = []
    with leasehold.connect(url) as hold, closing(SQLiteResultStore(tmp_path / "results.db")) as results:

        @hold.once("charge", "{number}", store=results)
        def charge(number: int) -> int:
            calls.append(number)
            return number * 2

        @hold.single_flight("report", "{number}", cache=results)
        def report(number: int) -> str:
            calls.append(number)
            return f"report {number}"

        @hold.locked("page", "{number}")
        def page(number: int) -> int:
            return number

        assert [charge(3), charge(3), report(4), report(4), page(5)] == [6, 6, "report 4", "report 4", 5]
        assert calls == [3, 4]
        with hold.election("scheduler", value="a").campaign(wait=5) as term:
            leader = hold.election("scheduler").leader()
            assert leader is not None and leader.value == "a" and term.term > 0


async def test_once_and_single_flight_in_asyncio(url: str, redis_url: str) -> None:
    """Ten tasks ask at the same time, and one computes."""
    calls = []
    async with leasehold.aio.connect(url) as hold, redis.asyncio.Redis.from_url(redis_url) as client:
        results = RedisResultStore(client)

        @hold.once("bill", "{number}", store=results)
        async def bill(number: int) -> int:
            calls.append(number)
            return number * 2

        @hold.single_flight("summary", "{number}", cache=results)
        async def summary(number: int) -> str:
            calls.append(number)
            return f"summary {number}"

        assert await asyncio.gather(*[bill(3) for _ in range(10)]) == [6] * 10
        assert await asyncio.gather(*[summary(4) for _ in range(10)]) == ["summary 4"] * 10
        assert calls == [3, 4]


def test_cron_runs_each_tick_once(url: str, tmp_path: Path) -> None:
    """Two hosts wait for the same ticks."""
    ticks: list[datetime] = []
    with (
        leasehold.connect(url) as one,
        leasehold.connect(url) as two,
        closing(SQLiteResultStore(tmp_path / "results.db")) as results,
    ):
        decorators: list[Any] = [hold.cron(EVERY_SECOND, "rollup", store=results, ttl=5) for hold in (one, two)]

        def rollup(tick: datetime) -> None:
            ticks.append(tick)

        crons = [decorator(rollup).start() for decorator in decorators]
        until(lambda: len(ticks) >= 2, "ticks are run")
        for cron in crons:
            assert cron.stop() is True
        assert max(Counter(ticks).values()) == 1 and ticks == sorted(ticks)
        assert {run.outcome for run in crons[0].history()} == {"ok"}
