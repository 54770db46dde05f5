"""How a task that waits in a cohort is woken."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

from leasehold._runtime.task_wakeup import SharedTimer, TaskWakeup
from tests.support.waiting import until_async

PERIOD = 0.02
LONG = 600.0


class Timers(asyncio.SelectorEventLoop):
    """Counts the timers that are made."""

    made = 0

    def call_at(self, when: float, callback: Callable[..., object], *arguments: Any, **options: Any) -> Any:  # type: ignore[override]
        """As that of every loop."""
        self.made += 1
        return super().call_at(when, callback, *arguments, **options)


def test_who_is_woken_before_it_sleeps_does_not_sleep() -> None:
    """A wake is remembered until the next sleep, and not for longer."""

    async def play() -> None:
        loop = asyncio.get_running_loop()
        wakeup, timer = TaskWakeup(loop), SharedTimer(loop, LONG)
        wakeup.wake()
        await wakeup.sleep(LONG)
        wakeup.wake()
        wakeup.wake()
        await wakeup.sleep_with(timer)
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(wakeup.sleep(LONG), PERIOD)

    asyncio.run(play())


def test_another_thread_wakes_it() -> None:
    """And the loop runs at once."""

    async def play() -> None:
        wakeup = TaskWakeup(asyncio.get_running_loop())
        sleeper = asyncio.ensure_future(wakeup.sleep(LONG))
        await asyncio.sleep(0)
        waker = threading.Thread(target=wakeup.wake)
        waker.start()
        await asyncio.wait_for(sleeper, 30)
        waker.join()

    asyncio.run(play())


def test_whoever_wakes_a_task_of_a_closed_loop_goes_on() -> None:
    """Its task never runs again."""
    loop = asyncio.new_event_loop()
    wakeup = TaskWakeup(loop)
    loop.close()
    wakeup.wake()


def test_a_sleep_of_its_own_ends() -> None:
    """After its seconds, and its timer is not kept."""

    async def play() -> None:
        await TaskWakeup(asyncio.get_running_loop()).sleep(PERIOD)

    asyncio.run(play())


def test_many_tasks_share_a_timer_that_wakes_each() -> None:
    """Each sleeps for its period, and at most for two."""
    woken: list[float] = []

    async def sleep(timer: SharedTimer) -> None:
        loop = asyncio.get_running_loop()
        began = loop.time()
        await TaskWakeup(loop).sleep_with(timer)
        woken.append(loop.time() - began)

    async def play() -> int:
        timer = SharedTimer(asyncio.get_running_loop(), PERIOD)
        await asyncio.gather(*[sleep(timer) for _ in range(100)])
        return loop.made

    loop = Timers()
    try:
        made = loop.run_until_complete(play())
    finally:
        loop.close()
    assert len(woken) == 100 and min(woken) >= PERIOD - 0.001
    assert made <= 4, f"{made} timers for 100 tasks"


def test_a_timer_that_nobody_needs_stops() -> None:
    """Who was woken, or was cancelled, does not keep it; it runs again for the next one."""

    async def play() -> None:
        loop = asyncio.get_running_loop()
        timer = SharedTimer(loop, PERIOD)
        wakeup = TaskWakeup(loop)
        sleeper = asyncio.ensure_future(wakeup.sleep_with(timer))
        other = asyncio.ensure_future(TaskWakeup(loop).sleep_with(timer))
        await asyncio.sleep(0)
        wakeup.wake()
        other.cancel()
        await sleeper
        with pytest.raises(asyncio.CancelledError):
            await other
        await until_async(lambda: not timer.runs, "it stops")
        await asyncio.wait_for(TaskWakeup(loop).sleep_with(timer), 30)

    asyncio.run(play())
