"""SKIPPED: one falsy object, wherever it travels, that says when to come again."""

from __future__ import annotations

import asyncio
import copy
import pickle
from collections.abc import Iterator

import pytest

import leasehold
from leasehold import SKIPPED, Skipped
from tests.support.lock import in_thread
from tests.support.waiting import PATIENCE
from tests.unit.lock.test_public_names import fresh


@pytest.fixture
def hold() -> Iterator[leasehold.Leasehold]:
    """A coordinator on a place of its own."""
    with leasehold.connect("memory://skipped") as made:
        yield made


def test_it_is_one_and_falsy() -> None:
    """There is one, whatever is done to get another."""
    assert bool(SKIPPED) is False
    assert repr(SKIPPED) == str(SKIPPED) == f"{SKIPPED}" == "SKIPPED"
    assert list(Skipped) == [leasehold.SKIPPED]
    assert copy.copy(SKIPPED) is copy.deepcopy(SKIPPED) is copy.deepcopy([SKIPPED])[0] is SKIPPED
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        assert pickle.loads(pickle.dumps({"of": SKIPPED}, protocol))["of"] is SKIPPED  # noqa: S301 - our own bytes


def test_none_before_any() -> None:
    """In a new process nothing was skipped yet."""
    assert fresh("import leasehold; print(leasehold.SKIPPED.retry_in)").strip() == "None"


def test_retry_in_is_the_threads_own(hold: leasehold.Leasehold) -> None:
    """What another thread was told later does not change what this one was told; one that was told nothing sees
    the last of the process."""
    job = hold.locked("job", "{n}", on_busy="skip")(lambda n: n)
    with hold.lock("job", 1, ttl=60, renew=False), hold.lock("job", 2, ttl=20, renew=False):
        assert job(1) is SKIPPED
        mine = SKIPPED.retry_in
        assert mine is not None and 30 < mine <= 60

        def other() -> float | None:
            job(2)
            return SKIPPED.retry_in

        theirs = in_thread(other)
        assert theirs is not None and theirs <= 20
        assert SKIPPED.retry_in == mine
        assert in_thread(lambda: SKIPPED.retry_in) == theirs


async def test_retry_in_is_the_tasks_own() -> None:
    """The same for tasks: each awaits its own calls."""
    async with leasehold.aio.connect("memory://skipped-aio") as hold:

        @hold.locked("job", "{n}", on_busy="skip")
        async def job(n: int) -> None:
            pytest.fail("it is held")

        async def told(n: int, barrier: asyncio.Barrier) -> float:
            await job(n)
            await barrier.wait()  # both were told before either looks
            assert SKIPPED.retry_in is not None
            return SKIPPED.retry_in

        async with hold.lock("job", 1, ttl=60, renew=False), hold.lock("job", 2, ttl=20, renew=False):
            barrier = asyncio.Barrier(2)
            long, short = await asyncio.wait_for(asyncio.gather(told(1, barrier), told(2, barrier)), PATIENCE)
        assert 30 < long <= 60 and short <= 20
