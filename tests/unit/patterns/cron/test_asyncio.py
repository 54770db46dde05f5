"""A cron in asyncio: the same, in a task."""

from __future__ import annotations

import asyncio
import contextlib
import time
import uuid
from collections.abc import AsyncIterator, Callable
from datetime import datetime
from typing import Any

import pytest

import leasehold
from leasehold.errors import InvalidRequest
from leasehold.patterns import AsyncCron
from tests.support.patterns.cron.bench import T
from tests.support.patterns.cron.clocks import TurnedClock
from tests.support.waiting import PATIENCE


class Loop:
    """A cron that notes its ticks, and waits when it is asked to."""

    def __init__(self) -> None:
        self.clock = TurnedClock(T + 100)
        self.hold = leasehold.aio.connect(f"memory://{uuid.uuid4().hex}")
        self.ran: list[int] = []
        self.ended: list[str] = []
        self.go_on = asyncio.Event()

    def cron(self, waits: bool = False, **options: Any) -> AsyncCron[Any, Any]:
        """Not yet started."""

        @self.hold.cron("*/5 * * * *", "rollup", clock=self.clock, **options)
        async def rollup(tick: datetime) -> None:
            self.ran.append(int(tick.timestamp()) - T)
            try:
                if waits:
                    await self.go_on.wait()
                self.ended.append("ok")
            except asyncio.CancelledError:
                self.ended.append("cancelled")
                raise

        return rollup

    async def known(self, cron: AsyncCron[Any, Any]) -> AsyncCron[Any, Any]:
        """Started, and the books are open."""
        cron.start()
        await self.until(lambda: self.hold._results.read("rollup") is not None)
        return cron

    async def until(self, condition: Callable[[], object]) -> None:
        """Wait, with an end."""
        give_up = time.monotonic() + PATIENCE
        while not condition():
            assert time.monotonic() < give_up, "it never came true"
            await asyncio.sleep(0.002)


@pytest.fixture
async def loop() -> AsyncIterator[Loop]:
    """Closed at the end."""
    loop = Loop()
    yield loop
    loop.go_on.set()
    await loop.hold.close()


async def outcomes(cron: AsyncCron[Any, Any]) -> list[tuple[int, str]]:
    """The oldest first."""
    return [(int(run.tick.timestamp()) - T, run.outcome) for run in reversed(await cron.history(100))]


async def test_each_tick_once(loop: Loop) -> None:
    """Two crons of one name; each tick is run by one of them."""
    one = await loop.known(loop.cron())
    loop.cron().start()
    for number in (1, 2, 3):
        loop.clock.set(T + 300 * number)
        await loop.until(lambda: loop.ran[-1:] == [loop.clock.now() - T])
    await one.stop()
    assert loop.ran == [300, 600, 900]
    assert await outcomes(one) == [(300, "ok"), (600, "ok"), (900, "ok")]


async def test_run_until_stopped(loop: Loop) -> None:
    """``await rollup.run()`` ends when it is stopped, the run under way first."""
    cron = loop.cron(waits=True)
    running = asyncio.create_task(cron.run())
    await loop.until(lambda: loop.hold._results.read("rollup") is not None)
    loop.clock.set(T + 300)
    await loop.until(lambda: loop.ran)
    stopping = asyncio.create_task(cron.stop())
    await asyncio.sleep(0.02)
    assert not running.done() and cron.stopping
    loop.go_on.set()
    assert await stopping is True
    await running
    assert loop.ended == ["ok"] and not cron.running


async def test_a_run_that_does_not_end_is_cancelled(loop: Loop) -> None:
    """After the wait; ``run()`` returns, and the history says what happened."""
    cron = loop.cron(waits=True)
    running = asyncio.create_task(cron.run())
    await loop.until(lambda: loop.hold._results.read("rollup") is not None)
    loop.clock.set(T + 300)
    await loop.until(lambda: loop.ran)
    assert await cron.stop(wait=0.02) is False
    await running
    assert loop.ended == ["cancelled"]
    assert [(run.outcome, run.error) for run in await cron.history()] == [("error", "CancelledError")]
    assert not await loop.hold.lock("rollup").locked()


async def test_a_lost_lease_cancels_the_run(loop: Loop) -> None:
    """And nothing but the run: the cron goes on."""
    cron = await loop.known(loop.cron(waits=True, at_most=0.3))
    loop.clock.set(T + 300)
    await loop.until(lambda: loop.ended == ["cancelled"])
    loop.go_on.set()
    loop.clock.set(T + 600)
    await loop.until(lambda: loop.ended == ["cancelled", "ok"])
    await cron.stop()
    assert await outcomes(cron) == [(300, "lost"), (600, "ok")]


async def test_a_cancelled_run_call(loop: Loop) -> None:
    """Who cancels ``run()`` cancels the run under way, and the cancellation comes out."""
    cron = loop.cron(waits=True)
    running = asyncio.create_task(cron.run())
    await loop.until(lambda: loop.hold._results.read("rollup") is not None)
    loop.clock.set(T + 300)
    await loop.until(lambda: loop.ran)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert loop.ended == ["cancelled"] and not cron.running
    assert not await loop.hold.lock("rollup").locked()


async def test_a_run_that_waits_for_something_cancelled(loop: Loop) -> None:
    """That is an error of the run, and not the end of the cron."""

    @loop.hold.cron("*/5 * * * *", "rollup", clock=loop.clock)
    async def rollup(tick: datetime) -> None:
        loop.ran.append(int(tick.timestamp()) - T)
        waited = asyncio.get_running_loop().create_future()
        waited.cancel()
        await waited

    await loop.known(rollup)
    loop.clock.set(T + 300)
    await loop.until(lambda: loop.ran == [300])
    loop.clock.set(T + 600)
    await loop.until(lambda: loop.ran == [300, 600])
    await rollup.stop()
    assert await outcomes(rollup) == [(300, "error"), (600, "error")]


async def test_stop_from_inside_the_run(loop: Loop) -> None:
    """It returns at once, and the run is the last."""

    @loop.hold.cron("*/5 * * * *", "rollup", clock=loop.clock, lease_as="lease")
    async def rollup(tick: datetime, *, lease: leasehold.AsyncLease) -> None:
        loop.ran.append(lease.fence)
        assert await rollup.stop() is False

    await loop.known(rollup)
    loop.clock.set(T + 300)
    await loop.until(lambda: not rollup.running)
    assert len(loop.ran) == 1 and await outcomes(rollup) == [(300, "ok")]


async def test_close_stops_it(loop: Loop) -> None:
    """A coordinator that is closed has no task left."""
    cron = await loop.known(loop.cron())
    await loop.hold.close()
    assert not cron.running and len(asyncio.all_tasks()) == 1


async def test_start_twice(loop: Loop) -> None:
    """It is refused, and the first is not harmed."""
    cron = await loop.known(loop.cron())
    with pytest.raises(InvalidRequest, match="running already"):
        cron.start()
    loop.clock.set(T + 300)
    await loop.until(lambda: loop.ended == ["ok"])


async def test_a_plain_function_is_refused(loop: Loop) -> None:
    """It would block the loop."""
    decorate: Any = loop.hold.cron("@daily", "rollup")
    with pytest.raises(InvalidRequest, match="no coroutine function"):
        decorate(lambda tick: tick)


def test_start_without_a_loop() -> None:
    """There is nothing to run it on, and nothing is half started."""
    cron = Loop().cron()
    with pytest.raises(RuntimeError):
        cron.start()
    assert not cron.running


async def test_a_task_that_is_cancelled_before_it_begins(loop: Loop) -> None:
    """It is over, and can be started again."""
    cron = loop.cron().start()
    assert cron._task is not None
    cron._task.cancel()
    await loop.until(lambda: not cron.running)
    assert await cron.stop()
    await loop.known(cron)
    loop.clock.set(T + 300)
    await loop.until(lambda: loop.ended == ["ok"])


async def test_a_run_that_ignores_its_cancellation(loop: Loop, monkeypatch: pytest.MonkeyPatch) -> None:
    """``stop`` does not wait for it for ever; it still runs, and says so."""
    monkeypatch.setattr("leasehold.patterns.cron.cron.PATIENCE", 0.01)

    @loop.hold.cron("*/5 * * * *", "rollup", clock=loop.clock)
    async def rollup() -> None:
        loop.ran.append(1)
        while not loop.go_on.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await loop.go_on.wait()

    await loop.known(rollup)
    loop.clock.set(T + 300)
    await loop.until(lambda: loop.ran)
    assert await asyncio.wait_for(rollup.stop(wait=0.01), PATIENCE) is False
    assert rollup.running
    loop.go_on.set()
    await loop.until(lambda: not rollup.running)
