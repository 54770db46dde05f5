"""Hundreds of callers of one process queue at once, over a few connections: each is served, one after the other."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import leasehold
import leasehold.aio
from leasehold._core.ops import Claim, StoreOp, Withdraw
from leasehold.stores.postgresql.store import PostgresStore
from tests.support.servers.database import Database
from tests.support.waiting import PATIENCE, until

pytestmark = pytest.mark.slow

TTL = 60.0  # seconds: no lease ends by itself
TASKS, THREADS = 500, 100


class Room:
    """What a lock protects. Whoever enters finds nobody, and has a higher fence than all before."""

    def __init__(self) -> None:
        self.fences = [0]
        self._inside = threading.Lock()

    def enter(self, fence: int) -> None:
        """Nobody is inside."""
        assert self._inside.acquire(blocking=False), "two are inside at once"
        assert fence > self.fences[-1]
        self.fences.append(fence)

    def leave(self) -> None:
        """As the last act inside."""
        self._inside.release()


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[Sequence[StoreOp]]:
    """What travelled together."""
    found: list[Sequence[StoreOp]] = []
    send, send_async = PostgresStore._send, PostgresStore._send_async

    def record(store: PostgresStore, ops: Sequence[StoreOp], *more: Any, **named: Any) -> Any:
        found.append(ops)
        return send(store, ops, *more, **named)

    async def record_async(store: PostgresStore, ops: Sequence[StoreOp], *more: Any, **named: Any) -> Any:
        found.append(ops)
        return await send_async(store, ops, *more, **named)

    monkeypatch.setattr(PostgresStore, "_send", record)
    monkeypatch.setattr(PostgresStore, "_send_async", record_async)
    return found


def in_company(sent: list[Sequence[StoreOp]], kind: type) -> float:
    """How many of that kind an average transaction had, of those with any."""
    counts = [count for ops in sent if (count := sum(isinstance(op, kind) for op in ops))]
    return sum(counts) / len(counts)


async def waiters(hold: leasehold.AsyncLeasehold, resources: int) -> int:
    """How many are in all queues, or wait behind others of this process."""
    return here(hold) + sum([len((await hold.inspect(f"job:{number}")).waiters) for number in range(resources)])


def here(hold: Any) -> int:
    """How many wait behind others of this process."""
    return sum(len(cohort.waiting) for cohort in list(hold._engine.cohorts.values()))


async def queued(hold: leasehold.AsyncLeasehold, resources: int, count: int) -> None:
    """Wait until so many are."""
    async with asyncio.timeout(PATIENCE):
        while await waiters(hold, resources) != count:  # noqa: ASYNC110 - the store does not say
            await asyncio.sleep(0.05)


@pytest.mark.parametrize("resources", [1, 50])
async def test_tasks_queue_at_once(postgres_database: Database, sent: list[Sequence[StoreOp]], resources: int) -> None:
    """Each of them waits in the queue, and gets its turn."""
    rooms = [Room() for _ in range(resources)]
    async with leasehold.aio.connect(postgres_database.url) as hold:
        kept = [await hold.lock("job", number, ttl=TTL).acquire(wait=0) for number in range(resources)]

        async def enter(number: int) -> None:
            async with hold.lock("job", number, ttl=TTL, wait=PATIENCE) as lease:
                rooms[number].enter(lease.fence)
                await asyncio.sleep(0)
                rooms[number].leave()

        tasks = [asyncio.create_task(enter(number % resources)) for number in range(TASKS)]
        await queued(hold, resources, TASKS)
        for lease in kept:
            assert lease is not None and await lease.release()
        await asyncio.gather(*tasks)
    assert sum(len(room.fences) - 1 for room in rooms) == TASKS
    assert resources > 1 or in_company(sent, Claim) > 5


async def test_tasks_give_up_at_once(postgres_database: Database, sent: list[Sequence[StoreOp]]) -> None:
    """What they leave behind is cleared together, and nobody is left in the queue."""
    async with leasehold.aio.connect(postgres_database.url) as hold:
        lease = await hold.lock("job", 0, ttl=TTL).acquire(wait=0)
        assert lease is not None
        tasks = [asyncio.create_task(hold.lock("job", 0, ttl=TTL).acquire(wait=PATIENCE)) for _ in range(TASKS)]
        await queued(hold, 1, TASKS)
        for task in tasks:
            task.cancel()
        assert {type(one) for one in await asyncio.gather(*tasks, return_exceptions=True)} == {asyncio.CancelledError}
        await queued(hold, 1, 0)
        assert await lease.release()
    assert in_company(sent, Withdraw) > 3


@pytest.mark.parametrize("resources", [1, 20])
def test_threads_queue_at_once(postgres_database: Database, resources: int) -> None:
    """The same with threads."""
    rooms = [Room() for _ in range(resources)]
    with leasehold.connect(postgres_database.url) as hold, ThreadPoolExecutor(THREADS) as threads:
        kept = [hold.lock("job", number, ttl=TTL).acquire(wait=0) for number in range(resources)]

        def enter(number: int) -> None:
            with hold.lock("job", number, ttl=TTL, wait=PATIENCE) as lease:
                rooms[number].enter(lease.fence)
                rooms[number].leave()

        def all_wait() -> bool:
            views = [hold.inspect(f"job:{number}") for number in range(resources)]
            return here(hold) + sum(len(view.waiters) for view in views) == THREADS

        calls = [threads.submit(enter, number % resources) for number in range(THREADS)]
        until(all_wait, "all of them wait")
        for lease in kept:
            assert lease is not None and lease.release()
        for call in calls:
            call.result(PATIENCE)
    assert sum(len(room.fences) - 1 for room in rooms) == THREADS
