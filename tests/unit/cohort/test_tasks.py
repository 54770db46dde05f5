"""A lease passes between the tasks of one process and between its event loops, but not between threads and tasks; and
what a fork makes of it."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import leasehold
from leasehold._core.ops import Claim, Release
from leasehold.stores.clock import ManualClock
from leasehold.stores.memory import MemoryStore
from tests.support.crew import Crew, Loop
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


def test_threads_and_tasks_have_coordinators_of_their_own() -> None:
    """A coordinator is for threads or for asyncio. Two of one process over one store are strangers: each has one claim
    in it, and what passes between them goes by the store."""
    clock = ManualClock()
    spy = Spy(MemoryStore(clock))
    loop = Loop()
    threads, tasks = leasehold.connect(spy), leasehold.aio.connect(spy)
    crews = [Crew(threads, ttl=TTL), Crew(tasks, loop=loop, ttl=TTL)]
    first = threads.lock("job", ttl=TTL).acquire()
    for crew in crews:
        crew.come()
        until(lambda: crew._hold._engine.cohorts, "it leads")  # noqa: B023 # called here
    for crew in crews:
        crew.come(2)
    assert len(look(spy, "job").queue) == 2
    clock.advance(0.001)  # fences are reserved up to the clock
    assert first is not None and first.release()
    hands = [*crews[0].hands, *crews[1].hands]
    fences = []
    for hand in hands:
        clock.advance(0.001)
        fences.append(hand.has_it().fence)
        assert sum(one.lease is not None and one.lease.state == "held" for one in hands) == 1
        assert hand.let_go() is True
    assert fences == sorted(set(fences)) and len(spy.of(Claim)) == 3 and nothing_left(spy, "job")
    for crew in crews:
        crew.end()
    threads.close()
    loop.do(tasks.close)
    loop.close()


def test_threads_and_tasks_exclude_each_other() -> None:
    """Both take turns at one lock on one store, again and again: one at a time, with growing fences."""
    store = MemoryStore()
    loop = Loop()
    threads, tasks = leasehold.connect(store), leasehold.aio.connect(store)
    inside: list[str] = []
    turns: list[tuple[int, str]] = []

    def work(lease: Any, kind: str) -> None:
        inside.append(kind)
        turns.append((lease.fence, kind))
        assert inside == [kind]

    def thread() -> None:
        for _ in range(20):
            with threads.lock("job", ttl=TTL) as lease:
                work(lease, "thread")
                time.sleep(0)
                inside.pop()

    async def task() -> None:
        for _ in range(20):
            async with tasks.lock("job", ttl=TTL) as lease:
                work(lease, "task")
                await asyncio.sleep(0)
                inside.pop()

    async def all_tasks() -> None:
        await asyncio.gather(*[task() for _ in range(4)])

    with ThreadPoolExecutor(4) as pool:
        ends = [*[pool.submit(thread) for _ in range(4)], loop.start(all_tasks())]
        for end in ends:
            end.result(PATIENCE)
    assert turns == sorted(set(turns)) and len(turns) == 160
    assert [kind for _, kind in turns].count("task") == 80 and nothing_left(store, "job")
    threads.close()
    loop.do(tasks.close)
    loop.close()


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
