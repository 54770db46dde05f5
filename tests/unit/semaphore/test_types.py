"""What type checkers are told: mypy reads this file, and running it shows that it is so."""

from __future__ import annotations

from typing import assert_type

import leasehold
from leasehold import AsyncPermit, AsyncSemaphore, Permit, Semaphore


def test_threads() -> None:
    """A permit is known as one, however it was got."""
    with leasehold.connect("memory://") as hold:
        pool = assert_type(hold.semaphore("typed", limit=3), Semaphore)
        with pool as permit:
            assert_type(permit, Permit)
            assert assert_type(permit.slot, int) == 0
            assert_type(permit.slot_resources, tuple[str, ...])
        assert_type(pool.acquire(wait=0, permits=2), Permit | None)
        found = pool.try_acquire()
        assert isinstance(found, Permit) and isinstance(found, leasehold.Lease)
        with found as inner:
            assert_type(inner, Permit)


async def test_asyncio() -> None:
    """The same, awaited."""
    async with leasehold.aio.connect("memory://") as hold:
        pool = assert_type(hold.semaphore("typed-too", limit=3), AsyncSemaphore)
        async with pool as permit:
            assert_type(permit, AsyncPermit)
            assert assert_type(permit.slot, int) == 0
        found = assert_type(await pool.try_acquire(permits=3), AsyncPermit | None)
        assert isinstance(found, AsyncPermit) and isinstance(found, leasehold.AsyncLease)
        async with found as inner:
            assert_type(inner, AsyncPermit)
