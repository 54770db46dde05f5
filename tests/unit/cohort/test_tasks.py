"""A lease passes between the tasks of one process, and between its event loops; and what a fork makes of it."""

from __future__ import annotations

import asyncio
import os
import threading
from typing import Any

import pytest

import leasehold
from leasehold._core.ops import Claim, Release
from leasehold.stores.memory import MemoryStore
from tests.support.lock import Spy, look, nothing_left, waiting
from tests.support.waiting import PATIENCE, until, until_async

TTL = 60


async def leading(hold: Any, spy: Spy, count: int, tasks: list[asyncio.Task[Any]], turn: Any) -> None:
    """So many tasks wait, one behind the other."""
    for number in range(count):
        tasks.append(asyncio.create_task(turn(number)))
        await until_async(lambda: waiting(spy, "job") == number + 1 and hold._engine.cohorts, "it waits")  # noqa: B023 # called here


async def test_tasks_pass_it_on_in_order() -> None:
    """Ten tasks: one claim, in the order of arrival, each with a fence above the one before."""
    spy = Spy(MemoryStore())
    async with leasehold.aio.connect(spy) as hold:
        fences: list[int] = []
        order: list[int] = []

        async def turn(number: int) -> None:
            async with hold.lock("job", ttl=TTL) as lease:
                order.append(number)
                fences.append(lease.fence)
                await asyncio.sleep(0)

        first = await hold.lock("job", ttl=TTL).acquire()
        tasks: list[asyncio.Task[Any]] = []
        await leading(hold, spy, 10, tasks, turn)
        assert first is not None and await first.release()
        await asyncio.wait_for(asyncio.gather(*tasks), PATIENCE)
        assert order == list(range(10)) and fences == sorted(set(fences))
        assert len(spy.of(Claim)) == 2 and len(spy.of(Release)) == 2 and nothing_left(spy, "job")


async def test_a_task_is_cancelled_in_the_moment_of_the_pass() -> None:
    """It was passed to a task that is cancelled before it runs: it goes on to the next one."""
    spy = Spy(MemoryStore())
    async with leasehold.aio.connect(spy) as hold:
        got: list[int] = []

        async def turn(number: int) -> None:
            lease = await hold.lock("job", ttl=TTL).acquire()
            assert lease is not None
            got.append(number)
            if number:
                await lease.release()
            else:
                held.append(lease)

        held: list[Any] = []
        first = await hold.lock("job", ttl=TTL).acquire()
        tasks: list[asyncio.Task[Any]] = []
        await leading(hold, spy, 3, tasks, turn)
        assert first is not None and await first.release()
        await until_async(lambda: bool(held), "the first of them has it")
        assert await held[0].release()
        assert hold._engine.watchdog.passing  # the second has it, and does not know yet
        tasks[1].cancel()
        with pytest.raises(asyncio.CancelledError):
            await tasks[1]
        await asyncio.wait_for(tasks[2], PATIENCE)
        assert got == [0, 2] and not hold._engine.watchdog.passing
        await until_async(lambda: nothing_left(spy, "job"), "nothing is held")


async def test_a_task_that_is_cancelled_while_it_waits() -> None:
    """The leader, or one behind it: the others get their turns."""
    spy = Spy(MemoryStore())
    async with leasehold.aio.connect(spy) as hold:
        got: list[int] = []

        async def turn(number: int) -> None:
            async with hold.lock("job", ttl=TTL):
                got.append(number)

        first = await hold.lock("job", ttl=TTL).acquire()
        tasks: list[asyncio.Task[Any]] = []
        await leading(hold, spy, 4, tasks, turn)
        for place in (0, 2):
            tasks[place].cancel()
        await asyncio.gather(tasks[0], tasks[2], return_exceptions=True)
        assert first is not None and await first.release()
        await asyncio.wait_for(asyncio.gather(tasks[1], tasks[3]), PATIENCE)
        assert got == [1, 3] and nothing_left(spy, "job")


def test_two_loops_of_one_coordinator() -> None:
    """Tasks of two event loops, each in a thread of its own: one cohort."""
    spy = Spy(MemoryStore())
    hold = leasehold.aio.connect(spy)
    inside: list[int] = []
    fences: list[int] = []

    async def turns(loop: int) -> None:
        async def turn() -> None:
            for _ in range(20):
                async with hold.lock("job", ttl=TTL) as lease:
                    inside.append(loop)
                    assert len(inside) == 1
                    fences.append(lease.fence)
                    await asyncio.sleep(0)
                    inside.pop()

        await asyncio.wait_for(asyncio.gather(*[turn() for _ in range(5)]), PATIENCE)

    threads = [threading.Thread(target=lambda loop=loop: asyncio.run(turns(loop)), daemon=True) for loop in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert fences == sorted(set(fences)) and len(fences) == 200
    assert len(spy.of(Claim)) < 200, "nothing was passed on"
    asyncio.run(hold.close())


def test_a_child_of_a_fork_has_no_cohort() -> None:
    """The parent's waiters do not exist in the child, and what was passed to one is lost there."""
    spy = Spy(MemoryStore())
    with leasehold.connect(spy) as hold:
        first = hold.lock("job", ttl=TTL).acquire()
        done: list[int] = []

        def turn() -> None:
            with hold.lock("job", ttl=TTL) as lease:
                done.append(lease.fence)

        threads = [threading.Thread(target=turn, daemon=True) for _ in range(3)]
        for count, thread in enumerate(threads, start=1):
            thread.start()
            until(lambda: waiting(spy, "job") == count and hold._engine.cohorts, "it waits")  # noqa: B023 # called here
        child = os.fork()
        if child == 0:  # says by its exit status what it found
            os._exit(0 if not hold._engine.cohorts and first is not None and first.state == "lost" else 1)
        assert os.waitpid(child, 0)[1] == 0
        assert first is not None and first.release()
        for thread in threads:
            thread.join(PATIENCE)
        assert done == sorted(set(done)) and len(done) == 3 and not look(spy, "job").holders
