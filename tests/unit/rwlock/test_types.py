"""How a type checker sees read-write locks. mypy reads this file in `make check`; here it only has to run."""

from __future__ import annotations

from collections.abc import Callable
from typing import assert_type

import leasehold
from leasehold import (
    AsyncReadLock,
    AsyncReadWriteLease,
    AsyncReadWriteLock,
    AsyncWriteLock,
    Lease,
    ReadLock,
    ReadWriteLease,
    ReadWriteLock,
    WriteLock,
)


def test_threads() -> None:
    """Each form gives a lease that can be lowered; that of a plain lock cannot."""
    with leasehold.connect("memory://types-rwlock") as hold:
        doc = assert_type(hold.rwlock("doc", 1), ReadWriteLock)
        assert_type(doc.read(ttl="10s"), ReadLock)
        with assert_type(doc.write(reentrant=True), WriteLock) as lease:
            assert_type(lease, ReadWriteLease)
            assert "writes" in repr(lease)
            lease.downgrade()
            assert_type(lease.shared, bool)
            assert "reads" in repr(lease)
        found = assert_type(doc.read().acquire(wait=1), ReadWriteLease | None)
        assert found is not None
        with found as same:
            assert_type(same, ReadWriteLease)
        assert_type(doc.write().try_acquire(), ReadWriteLease | None)
        wrong: list[Callable[[], object]] = [
            lambda: doc.read(limit=3),  # type: ignore[call-arg] # a lock has no limit
            lambda: hold.lock("doc").__enter__().downgrade(),  # type: ignore[attr-defined] # it is no writer's
        ]
        assert len(wrong) == 2
        with hold.lock("doc", 2) as plain, plain as again:
            assert_type(plain, Lease)
            assert_type(again, Lease)


async def test_asyncio() -> None:
    """The same, awaited."""
    async with leasehold.aio.connect("memory://types-rwlock-asyncio") as hold:
        doc = assert_type(hold.rwlock("doc", 1), AsyncReadWriteLock)
        assert_type(doc.read(), AsyncReadLock)
        async with assert_type(doc.write(), AsyncWriteLock) as lease:
            assert_type(lease, AsyncReadWriteLease)
            await lease.downgrade()
            assert_type(lease.shared, bool)
        found = assert_type(await doc.read().acquire(), AsyncReadWriteLease | None)
        assert found is not None
        async with found as same:
            assert_type(same, AsyncReadWriteLease)
        assert_type(await doc.write().try_acquire(), AsyncReadWriteLease | None)
