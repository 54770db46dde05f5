"""Patterns over leases of a majority, with results in a store of their own, on a server that is none of the nodes."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import pytest
import redis
import redis.asyncio

import leasehold
from leasehold.patterns.results import RedisResultStore
from tests.integration.redlock.stage import aged
from tests.support.servers.redlock import RedlockServers
from tests.support.waiting import until, until_async

pytestmark = pytest.mark.slow
EVERY_SECOND = "* * * * * *"


@pytest.fixture
def servers() -> Iterator[RedlockServers]:
    """Three nodes."""
    with aged(RedlockServers(3)) as servers:
        yield servers


def test_once_single_flight_and_an_election(servers: RedlockServers, redis_url: str) -> None:
    """Each result is computed once, and a decorated function and an election need no results at all."""
    calls = []
    with leasehold.connect(servers.url) as hold, redis.Redis.from_url(redis_url) as client:
        results = RedisResultStore(client)

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


async def test_once_and_single_flight_in_asyncio(servers: RedlockServers, redis_url: str) -> None:
    """Ten tasks ask at the same time, and one computes."""
    calls = []
    async with leasehold.aio.connect(servers.url) as hold, redis.asyncio.Redis.from_url(redis_url) as client:
        results = RedisResultStore(client)

        @hold.once("charge", "{number}", store=results)
        async def charge(number: int) -> int:
            calls.append(number)
            return number * 2

        @hold.single_flight("report", "{number}", cache=results)
        async def report(number: int) -> str:
            calls.append(number)
            return f"report {number}"

        assert await asyncio.gather(*[charge(3) for _ in range(10)]) == [6] * 10
        assert await asyncio.gather(*[report(4) for _ in range(10)]) == ["report 4"] * 10
        assert calls == [3, 4]


def test_cron_runs_each_tick_once_while_a_node_is_cut_off(servers: RedlockServers, redis_url: str) -> None:
    """Two hosts wait for the same ticks. No tick is run twice, and with one node less they go on."""
    ticks: list[datetime] = []
    with (
        leasehold.connect(servers.url) as one,
        leasehold.connect(servers.url) as two,
        redis.Redis.from_url(redis_url) as client,
    ):
        decorators: list[Any] = [
            hold.cron(EVERY_SECOND, "rollup", store=RedisResultStore(client), ttl=5) for hold in (one, two)
        ]

        def rollup(tick: datetime) -> None:
            ticks.append(tick)

        crons = [decorator(rollup).start() for decorator in decorators]
        until(lambda: len(ticks) >= 2, "ticks are run")
        servers.nodes[2].cut_off()
        before = len(ticks)
        until(lambda: len(ticks) >= before + 2, "ticks are run by a majority")
        for cron in crons:
            assert cron.stop() is True
        assert max(Counter(ticks).values()) == 1 and ticks == sorted(ticks)
        assert {run.outcome for run in crons[0].history()} == {"ok"}


@pytest.mark.soak  # the same decisions as of the test above
async def test_cron_in_asyncio(servers: RedlockServers, redis_url: str) -> None:
    """The same with two coordinators on one event loop."""
    ticks: list[datetime] = []
    async with (
        leasehold.aio.connect(servers.url) as one,
        leasehold.aio.connect(servers.url) as two,
        redis.asyncio.Redis.from_url(redis_url) as client,
    ):
        decorators: list[Any] = [
            hold.cron(EVERY_SECOND, "rollup", store=RedisResultStore(client), ttl=5) for hold in (one, two)
        ]

        async def rollup(tick: datetime) -> None:
            ticks.append(tick)

        crons = [decorator(rollup).start() for decorator in decorators]
        await until_async(lambda: len(ticks) >= 3, "ticks are run")
        for cron in crons:
            assert await cron.stop() is True
        assert max(Counter(ticks).values()) == 1 and ticks == sorted(ticks)


def test_a_cron_without_a_store_of_its_own(servers: RedlockServers) -> None:
    """It is refused when it is made: a history is not decided by a majority."""
    with leasehold.connect(servers.url) as hold, pytest.raises(leasehold.Unsupported, match="redlock"):
        hold.cron(EVERY_SECOND, "rollup")(print)
