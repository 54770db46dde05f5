"""Tasks of one event loop that want the same: the flight is a task of its own, and goes on while anybody waits."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar
from typing import Any

import pytest

from leasehold import AsyncLeasehold, InvalidRequest, NotAcquired, aio
from leasehold.patterns.single_flight.single_flight import shared_flights
from tests.support.tables import each
from tests.unit.patterns.flight.test_threads import CountingStore

CROWD = 200
who: ContextVar[str] = ContextVar("who", default="nobody")

Scene = Callable[[AsyncLeasehold, CountingStore], Coroutine[Any, Any, None]]


def flights_of(hold: Any) -> Any:
    """The flights of a coordinator."""
    return shared_flights(hold).flights


def play(scene: Scene) -> None:
    """On a store and a loop of its own."""

    async def main() -> None:
        store = CountingStore()
        async with aio.connect(store) as hold:
            await asyncio.wait_for(scene(hold, store), 60)
            left = [task for task in asyncio.all_tasks() if task.get_name().startswith("leasehold-")]
            assert not left and not any(flights_of(hold)._loops.values())

    asyncio.run(main())


class Gate:
    """A coroutine function that stands still inside until it is let go, and counts who came in and out."""

    def __init__(self, outcome: Callable[[], Any] = lambda: "made") -> None:
        self.inside = asyncio.Event()
        self.open = asyncio.Event()
        self.calls = self.stopped = 0
        self.lingers = 0.0  # seconds that it takes to stop
        self.outcome = outcome

    async def page(self, key: str) -> Any:
        """What is rebuilt."""
        self.calls += 1
        self.inside.set()
        try:
            await self.open.wait()
        finally:
            await asyncio.sleep(self.lingers)
            self.stopped += 1
        return self.outcome()


async def turns(count: int = 5) -> None:
    """Let the other tasks have their turns."""
    for _ in range(count):
        await asyncio.sleep(0)


async def waiters(hold: AsyncLeasehold, count: int) -> None:
    """Until so many stand in the queue; the test has an end of its own."""
    while len((await hold.inspect("page:a")).waiters) != count:
        await turns()


def test_one_flies_for_all() -> None:
    """One call of the function and one claim, however many tasks."""

    async def scene(hold: AsyncLeasehold, store: CountingStore) -> None:
        gate = Gate(lambda: ["made"])
        page = hold.single_flight("page", "{key}")(gate.page)
        calls = [asyncio.create_task(page("a")) for _ in range(CROWD)]
        await gate.inside.wait()
        await turns()
        gate.open.set()
        values = await asyncio.gather(*calls)
        assert values == [["made"]] * CROWD and len({id(one) for one in values}) == CROWD
        assert (gate.calls, store.claims) == (1, 1)

    play(scene)


def test_an_error_is_for_all() -> None:
    """All who waited get the error itself."""

    async def scene(hold: AsyncLeasehold, store: CountingStore) -> None:
        error = ValueError("no")

        def fail() -> None:
            raise error

        gate = Gate(fail)
        gate.open.set()
        page = hold.single_flight("page", "{key}")(gate.page)
        assert set(await asyncio.gather(*(page("a") for _ in range(20)), return_exceptions=True)) == {error}
        assert (gate.calls, store.claims) == (1, 1)

    play(scene)


@each("which", [0, 1, 2], ids=["the first", "the second", "the last"])
def test_who_is_cancelled_takes_nobody_along(which: int) -> None:
    """The others get the value, whoever it was that asked first."""

    async def scene(hold: AsyncLeasehold, store: CountingStore) -> None:
        gate = Gate()
        page = hold.single_flight("page", "{key}")(gate.page)
        calls = [asyncio.create_task(page("a")) for _ in range(3)]
        await gate.inside.wait()
        await turns()
        calls[which].cancel()
        with pytest.raises(asyncio.CancelledError):
            await calls[which]
        gate.open.set()
        del calls[which]
        assert await asyncio.gather(*calls) == ["made", "made"]
        assert (gate.calls, gate.stopped, store.claims) == (1, 1, 1)

    play(scene)


def test_the_last_one_ends_it() -> None:
    """When nobody waits any more the work is cancelled, has stopped, and its lease is given back."""

    async def scene(hold: AsyncLeasehold, store: CountingStore) -> None:
        gate = Gate()
        gate.lingers = 0.01
        page = hold.single_flight("page", "{key}")(gate.page)
        calls = [asyncio.create_task(page("a")) for _ in range(3)]
        await gate.inside.wait()
        await turns()
        for call in calls:
            call.cancel()
        await asyncio.wait(calls)
        assert all(call.cancelled() for call in calls) and gate.stopped == 1
        assert not await hold.lock("page", "a").locked()
        gate.open.set()
        assert await page("a") == "made" and gate.calls == 2

    play(scene)


def test_cancelled_while_it_waits_for_the_lease() -> None:
    """A flight that nobody waits for leaves the queue, too."""

    async def scene(hold: AsyncLeasehold, store: CountingStore) -> None:
        gate = Gate()
        page = hold.single_flight("page", "{key}")(gate.page)
        async with hold.lock("page", "a"):
            call = asyncio.create_task(page("a"))
            await waiters(hold, 1)
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(call, 0.001)
            await waiters(hold, 0)
        assert gate.calls == 0

    play(scene)


def test_a_newcomer_does_not_join_what_is_being_ended() -> None:
    """It flies on its own, when the lease is free again."""

    async def scene(hold: AsyncLeasehold, store: CountingStore) -> None:
        slow, inside = asyncio.Event(), asyncio.Event()
        calls = []

        async def page(key: str) -> int:
            calls.append(key)
            if len(calls) == 1:
                inside.set()
                try:
                    await asyncio.sleep(3600)
                finally:
                    await slow.wait()
            return len(calls)

        flown = hold.single_flight("page", "{key}")(page)
        first = asyncio.create_task(flown("a"))
        await inside.wait()
        first.cancel()
        await turns()
        second = asyncio.create_task(flown("a"))
        await turns()
        assert len(calls) == 1
        slow.set()
        assert await second == 2
        with pytest.raises(asyncio.CancelledError):
            await first

    play(scene)


def test_a_function_that_cancels_itself() -> None:
    """Cancellation is no outcome: it is for who came first, and another one flies for the rest."""

    async def scene(hold: AsyncLeasehold, store: CountingStore) -> None:
        def outcome() -> str:
            if gate.calls == 1:
                raise asyncio.CancelledError
            return "made"

        gate = Gate(outcome)
        gate.open.set()
        page = hold.single_flight("page", "{key}")(gate.page)
        found = await asyncio.gather(*(page("a") for _ in range(3)), return_exceptions=True)
        assert [type(one) for one in found] == [asyncio.CancelledError, str, str]
        assert gate.calls == 2

    play(scene)


def test_the_wait_of_those_who_follow() -> None:
    """Each has its own; when it is over the flight goes on for the others."""

    async def scene(hold: AsyncLeasehold, store: CountingStore) -> None:
        gate = Gate()
        page = hold.single_flight("page", "{key}")(gate.page)
        hasty = hold.single_flight("page", "{key}", wait=0.01)(gate.page)
        call = asyncio.create_task(page("a"))
        await gate.inside.wait()
        with pytest.raises(NotAcquired):
            await hasty("a")
        gate.open.set()
        assert await call == "made" and await hasty("a") == "made"

    play(scene)


def test_the_context_of_who_came_first() -> None:
    """The function sees its context variables; what it sets there stays in the flight."""

    async def scene(hold: AsyncLeasehold, store: CountingStore) -> None:
        async def page(key: str) -> str:
            found = who.get()
            who.set("the function")
            await asyncio.sleep(0)
            return found

        flown = hold.single_flight("page", "{key}")(page)
        who.set("the caller")
        assert await flown("a") == "the caller"
        assert who.get() == "the caller"

    play(scene)


def test_asking_for_oneself() -> None:
    """Also through tasks that the function waits for; what goes on after the flight may ask."""

    async def scene(hold: AsyncLeasehold, store: CountingStore) -> None:
        later: list[asyncio.Task[Any]] = []
        landed = asyncio.Event()

        async def after() -> Any:
            await landed.wait()
            return await page("a")

        async def deep(key: str) -> Any:
            if key == "a":
                later.append(asyncio.create_task(after()))
                return "made"
            return await asyncio.gather(page(key))

        page: Any = hold.single_flight("page", "{key}", fresh=0.001)(deep)
        with pytest.raises(InvalidRequest, match="would wait for itself"):
            await page("b")
        assert await page("a") == "made"
        await asyncio.sleep(0.01)
        landed.set()
        assert await later[0] == "made"
        later[1].cancel()
        await asyncio.wait(later)

    play(scene)


def test_two_loops_on_one_coordinator() -> None:
    """Each loop has flights of its own; there is still one rebuild."""
    store = CountingStore()
    hold = aio.connect(store)
    made: list[str] = []
    inside = threading.Barrier(2)

    async def page(key: str) -> int:
        made.append(key)
        await asyncio.sleep(0.05)
        return len(made)

    flown = hold.single_flight("page", "{key}")(page)

    async def ask() -> list[int]:
        inside.wait(60)
        return await asyncio.gather(*(flown("a") for _ in range(5)))

    found: list[list[int]] = []
    threads = [threading.Thread(target=lambda: found.append(asyncio.run(ask()))) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert found == [[1] * 5] * 2 and store.claims <= 2
    asyncio.run(hold.close())


@pytest.mark.slow
def test_many_loops_come_and_go() -> None:
    """While one loop looks after what others have left behind, those go on: a stale value is served on all of them."""
    hold = aio.connect("memory://")

    async def page(key: str) -> str:
        return key

    flown = hold.single_flight("page", "{key}", fresh=0.001, stale=60)(page)

    async def ask(name: int) -> None:
        for turn in range(10):
            assert await flown(f"{name}-{turn % 3}") == f"{name}-{turn % 3}"
            await asyncio.sleep(0.001)

    def many(name: int) -> None:
        for _ in range(15):
            asyncio.run(ask(name))

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(12) as pool:
            list(pool.map(many, range(12)))
    finally:
        sys.setswitchinterval(interval)
    asyncio.run(hold.close())
