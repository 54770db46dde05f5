"""Patterns on a Redis whose clock is set back: nothing is younger than it is, and what is done stays done (trap 49)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import closing
from itertools import count
from typing import Any

import pytest

import leasehold
from leasehold import aio
from leasehold.patterns.results import RedisResultStore
from leasehold.testing.results import Presenter
from tests.support.patterns.cron.bench import Bench, T, settled
from tests.support.servers.clock import WallClock
from tests.support.servers.redis import RedisServer

pytestmark = pytest.mark.slow

HOUR = 3_600
NAME = "page:42"


@pytest.fixture(scope="module")
def turned() -> Iterator[tuple[WallClock, RedisServer]]:
    """A server, and its clock."""
    clock = WallClock()
    with RedisServer(clock=clock) as server:
        yield clock, server


@pytest.fixture
def clock(turned: tuple[WallClock, RedisServer]) -> WallClock:
    """Right, and of a server that is empty."""
    clock, server = turned
    clock.set_off(0)
    server.client().flushall()
    return clock


@pytest.fixture
def server(turned: tuple[WallClock, RedisServer]) -> RedisServer:
    """The server of that clock."""
    return turned[1]


def test_a_text_is_not_kept_for_longer_than_it_was_written_for(clock: WallClock, server: RedisServer) -> None:
    """What the result store says is left is never more than that, and it says how far the clock was set back."""
    results = RedisResultStore(server.client())
    results.write(Presenter(NAME, 10), "text", 60)
    clock.set_off(-HOUR)
    for found in (results.read(NAME), results.open(Presenter(NAME, 10))):
        assert found is not None
        assert (found.text, found.age, found.left) == ("text", 0.0, 60.0)
        assert HOUR - 60 < found.ahead <= HOUR


def test_a_value_is_not_fresh_for_the_step(clock: WallClock, server: RedisServer) -> None:
    """A single flight rebuilds what was written later than now; the new value counts as long as it should."""
    numbers = count(1)
    with leasehold.connect(server.url) as hold:
        page: Any = hold.single_flight("page", 42, fresh=60)
        assert [page.call(lambda: next(numbers)) for _ in range(2)] == [1, 1]
        clock.set_off(-HOUR)
        assert [page.call(lambda: next(numbers)) for _ in range(2)] == [2, 2]


async def test_a_value_is_not_fresh_for_the_step_in_tasks(clock: WallClock, server: RedisServer) -> None:
    """The same for asyncio."""
    numbers = count(1)

    async def build() -> int:
        await asyncio.sleep(0)
        return next(numbers)

    async with aio.connect(server.url) as hold:
        page: Any = hold.single_flight("page", 43, fresh=60)
        assert [await page.call(build) for _ in range(2)] == [1, 1]
        clock.set_off(-HOUR)
        assert [await page.call(build) for _ in range(2)] == [2, 2]


def test_what_was_done_once_stays_done(clock: WallClock, server: RedisServer) -> None:
    """An outcome is kept for longer rather than shorter: to forget it would be to do it again."""
    numbers = count(1)
    with leasehold.connect(server.url) as hold:
        payment: Any = hold.once("payment", 42, keep=60)
        assert payment.call(lambda: next(numbers)) == 1
        clock.set_off(-HOUR)
        assert payment.call(lambda: next(numbers)) == 1


def test_a_tick_is_not_run_again(clock: WallClock, server: RedisServer) -> None:
    """The books of a cron say what ran, whatever the clock of the store does; later ticks go on being run."""
    bench = Bench(url=server.url)
    with closing(bench):
        cron = bench.known(bench.cron())
        for number, off in enumerate((0, -20, -HOUR, 0), 1):
            clock.set_off(off)
            bench.clock.set(T + 300 * number)
            settled(cron, *[(300 * done, "ok") for done in range(1, number + 1)])
    assert bench.ran == [300, 600, 900, 1200]
