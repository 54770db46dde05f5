"""The guard in memory: whose body runs, in threads, in one thread, and in the tasks of a loop."""

from __future__ import annotations

import asyncio
import threading

import pytest

from leasehold.errors import StaleOwner, StoreUnavailable
from leasehold.guards.memory import FenceGuard
from tests.support.guards.ways import RESOURCE, A, B


def test_another_thread_waits_with_an_end() -> None:
    """Who waits for longer than it wanted is told so, and nothing was accepted."""
    guard, errors = FenceGuard(), []

    def newer() -> None:
        with (
            pytest.raises(StoreUnavailable, match="another thread") as caught,
            guard.writing(11, resource=RESOURCE, wait=0),
        ):
            raise AssertionError("inside")
        errors.append(caught.value)

    with guard.writing(10, resource=RESOURCE):
        thread = threading.Thread(target=newer)
        thread.start()
        thread.join(60)
    assert len(errors) == 1 and guard.seen(RESOURCE) == 10


def test_another_owner_in_the_same_thread_is_kept_out() -> None:
    """A lock of threads would let it in, and the outer body would then write with an older fence."""
    guard = FenceGuard()
    with guard.writing(10, resource=RESOURCE, owner=A):
        for fence, owner in ((11, B), (11, A)):
            with pytest.raises(StoreUnavailable, match="await"):
                guard.check(fence, resource=RESOURCE, owner=owner)
        with pytest.raises(StoreUnavailable, match="await"):
            guard.check(11, resource=RESOURCE, owner=B, shared=True)
        with pytest.raises(StaleOwner):
            guard.check(9, resource=RESOURCE, owner=B)
        guard.check(11, resource="other", owner=B)
        with guard.writing(10, resource=RESOURCE, owner=A):
            guard.check(10, resource=RESOURCE, owner=A)
    assert guard.seen(RESOURCE) == 10
    guard.check(11, resource=RESOURCE, owner=B)


async def test_an_await_in_the_body_loses_no_update() -> None:
    """The newer task is told to come again, and does not walk in between the read and the write of the older one."""
    guard, counter, awaiting, go = FenceGuard(), [0], asyncio.Event(), asyncio.Event()

    async def older() -> None:
        with guard.writing(10, resource=RESOURCE, owner=A):
            before = counter[0]
            awaiting.set()
            await go.wait()
            counter[0] = before + 1

    task = asyncio.create_task(older())
    await awaiting.wait()
    with pytest.raises(StoreUnavailable, match="try again"), guard.writing(11, resource=RESOURCE, owner=B):
        counter[0] += 1
    go.set()
    await task
    with guard.writing(11, resource=RESOURCE, owner=B):
        counter[0] += 1
    assert counter == [2]


def test_a_body_that_raises_lets_the_next_in() -> None:
    """Its fence stays remembered, and the lock is free."""
    guard = FenceGuard()
    with pytest.raises(ZeroDivisionError), guard.writing(10, resource=RESOURCE):
        raise ZeroDivisionError
    assert guard.seen(RESOURCE) == 10
    guard.check(11, resource=RESOURCE)
