"""Elections for asyncio: bodies that are cancelled, loops that are left, health in a task, callbacks on the loop."""

from __future__ import annotations

import asyncio
import threading

import pytest

import leasehold
from leasehold.errors import InvalidRequest, LeaseLost, NotAcquired
from tests.support.lock import Spy, look, nothing_left
from tests.support.waiting import PATIENCE, until_async
from tests.unit.election.tools import watchers


async def lost(term: leasehold.AsyncTerm) -> None:
    """Until it is."""
    await asyncio.wait_for(term.lost.wait(), PATIENCE)


async def test_the_body_is_cancelled_when_somebody_resigns(ahold: leasehold.AsyncLeasehold, spy: Spy) -> None:
    """From another thread: the work is cancelled, and the cancellation becomes LeaseLost."""
    election = ahold.election("job")

    async def lead() -> None:
        async with election.campaign():
            assert await asyncio.to_thread(election.resign) is True
            await asyncio.sleep(60)

    with pytest.raises(LeaseLost, match="resigned"):
        await lead()
    assert nothing_left(spy, "job")


async def test_break_gives_the_term_back(ahold: leasehold.AsyncLeasehold, spy: Spy) -> None:
    """Nothing has to be awaited for that, and no aclosing is needed."""
    async for term in ahold.election("job").campaign():
        assert term.state == "held"
        break
    await until_async(lambda: nothing_left(spy, "job"), "it is given back")
    assert term.state == "released"


@pytest.mark.slow
async def test_a_loop_of_blocks(ahold: leasehold.AsyncLeasehold) -> None:
    """``async with term`` is cancelled by the loss of its own term, swallows that, and the loop goes on."""
    terms, cancelled = [], 0
    async for term in ahold.election("job", ttl=2).campaign():
        terms.append(term.term)
        async with term:
            if len(terms) == 3:
                break
            await ahold.evict("job", fence=term.term, reason="a test", delay=0, force=True)
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                cancelled += 1
                raise
    task = asyncio.current_task()
    assert task is not None and task.cancelling() == 0
    assert (len(terms), cancelled) == (3, 2) and terms == sorted(set(terms))


async def test_another_cancellation_leaves_the_block(ahold: leasehold.AsyncLeasehold, spy: Spy) -> None:
    """Whoever cancels the task from outside is obeyed, also when the term is lost at the same time."""
    election = ahold.election("job")

    async def work() -> None:
        async for term in election.campaign():
            async with term:
                task = asyncio.current_task()
                assert task is not None
                task.cancel()
                election.resign()
                await asyncio.sleep(60)

    with pytest.raises(asyncio.CancelledError):
        await asyncio.create_task(work())
    await until_async(lambda: nothing_left(spy, "job"), "it is given back")


async def test_a_cancelled_campaign_leaves_the_queue(ahold: leasehold.AsyncLeasehold, spy: Spy) -> None:
    """And so does one whose wait is over."""
    async with ahold.election("job").campaign():
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.ensure_future(anext(ahold.election("job").campaign())), 0.02)
        with pytest.raises(NotAcquired):
            await anext(ahold.election("job").campaign(wait=0))
        await until_async(lambda: not look(spy, "job").queue, "the queue is empty")


async def test_a_task_that_ends_leads_no_longer(ahold: leasehold.AsyncLeasehold, spy: Spy) -> None:
    """The loop of a task that is over is given back, as any lease."""
    campaign = ahold.election("job", ttl=60).campaign()

    async def lead() -> int:
        return (await anext(campaign)).term

    assert await asyncio.create_task(lead())
    await until_async(lambda: nothing_left(spy, "job"), "it is given back")
    await campaign.close()


@pytest.mark.usefixtures("often")
async def test_health_in_a_task(ahold: leasehold.AsyncLeasehold) -> None:
    """A coroutine function is awaited on the loop; its task ends with the term."""
    threads: list[threading.Thread] = []

    async def health() -> bool:
        await asyncio.sleep(0)
        threads.append(threading.current_thread())
        return len(threads) < 3

    before = asyncio.all_tasks()
    with pytest.raises(LeaseLost, match="unhealthy"):
        async with ahold.election("job", health=health).campaign() as term:
            await lost(term)
    assert threads == [threading.current_thread()] * 3
    await until_async(lambda: asyncio.all_tasks() == before, "its task has ended")


async def test_a_task_that_asks_ends_with_its_term(ahold: leasehold.AsyncLeasehold) -> None:
    """Also one that never gets an answer."""
    before = asyncio.all_tasks()
    async with ahold.election("job", health=asyncio.Event().wait).campaign():
        await asyncio.sleep(0)
        assert len(asyncio.all_tasks()) == len(before) + 1
    await until_async(lambda: asyncio.all_tasks() == before, "its task has ended")


async def test_callbacks_on_the_loop(ahold: leasehold.AsyncLeasehold) -> None:
    """Functions and coroutine functions, with the term."""
    told: list[tuple[str, int]] = []

    async def elected(term: leasehold.AsyncTerm) -> None:
        await asyncio.sleep(0)
        told.append(("elected", term.term))

    election = ahold.election("job")
    election.on_elected(elected)
    election.on_demoted(lambda term: told.append(("demoted", term.term)))
    async with election.campaign() as term:
        await until_async(lambda: told, "it hears of it")
    await until_async(lambda: len(told) == 2, "and of the end")
    assert told == [("elected", term.term), ("demoted", term.term)]


async def test_publish(ahold: leasehold.AsyncLeasehold) -> None:
    """Awaited; those that are published at once leave the last one."""
    election = ahold.election("job")
    async with election.campaign() as term:
        await asyncio.gather(*[term.publish(number) for number in range(5)])
        leader = await election.leader()
        assert leader is not None and leader.value == term.value == 4
        with pytest.raises(InvalidRequest):
            await term.publish(object())


async def test_an_observer_is_closed_by_another_task(ahold: leasehold.AsyncLeasehold, spy: Spy) -> None:
    """It stops at once, and nobody tells it anything any more."""
    stream = ahold.election("job").observe()
    assert await anext(stream) is None
    waiting = asyncio.create_task(anext(stream, "over"))
    await asyncio.sleep(0.01)
    with pytest.raises(InvalidRequest, match="one at a time"):
        await anext(stream)
    stream.close()
    assert await asyncio.wait_for(waiting, PATIENCE) == "over"
    await until_async(lambda: not watchers(spy), "the store forgets it")


async def test_an_observer_that_is_cancelled_goes_on(ahold: leasehold.AsyncLeasehold, spy: Spy) -> None:
    """Giving up on one change loses none; leaving the stream withdraws it."""
    election = ahold.election("job")
    stream = election.observe()
    assert await anext(stream) is None
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(anext(stream), 0.02)
    async with election.campaign() as term:
        leader = await asyncio.wait_for(anext(stream), PATIENCE)
        assert leader is not None and leader.term == term.term
    del stream
    await until_async(lambda: not watchers(spy), "the store forgets it")


@pytest.mark.slow
async def test_a_closed_coordinator_ends_the_stream(spy: Spy) -> None:
    """Without an error: there will be no more changes."""
    ahold = leasehold.aio.connect(spy)
    stream = ahold.election("job").observe()
    assert await anext(stream) is None
    waiting = asyncio.create_task(anext(stream, "over"))
    await asyncio.sleep(0.01)
    await ahold.close()
    assert await asyncio.wait_for(waiting, PATIENCE) == "over"
