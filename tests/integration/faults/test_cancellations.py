"""A cancellation at every await of ``async with hold.lock(...)``: nothing stays locked, and none is swallowed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractContextManager, closing, nullcontext

import pytest

import leasehold
from tests.support.faults.aftermath import expect_sound
from tests.support.faults.suspensions import Suspensions
from tests.support.faults.user import LoopUser, familiar

MOST = 200  # suspensions
WAYS: dict[str, dict[str, bool]] = {  # how the cancellation comes
    "while it waits": {},
    "together with the reply": {"together": True},
    "again and again": {"again": True},
}


async def nap(lease: leasehold.AsyncLease) -> None:
    """A body that gives way once."""
    await asyncio.sleep(0)


def cancel_everywhere(
    users: Callable[[], AbstractContextManager[LoopUser]],
    other: leasehold.Leasehold,
    way: str,
    named: Callable[[LoopUser, int], int] = lambda user, number: number,
) -> int:
    """Use a lock again and again, and cancel each use one suspension later; how many there are."""
    for nth in range(1, MOST):
        suspensions = Suspensions(nth, **WAYS[way])
        with users() as user:
            use = user.use(named(user, nth), body=nap, wrap=suspensions)
            if not suspensions.cancelled:
                assert use.raised is None
                return nth - 1
            assert use.raised is asyncio.CancelledError, f"at suspension {nth}"
            expect_sound(user, other, use)
    raise AssertionError("it never ends")


@pytest.mark.parametrize("way", WAYS)
def test_a_cancellation_at_every_await(url: str, other: leasehold.Leasehold, way: str) -> None:
    """Of a coordinator that is connected: at the claim, in the body and at the release."""
    with closing(LoopUser(url)) as user:
        user.use(0)
        found = cancel_everywhere(lambda: nullcontext(user), other, way, familiar)
    assert found == (1 if url.startswith("sqlite") else 3), "the embedded store waits only for a file that is not free"


@pytest.mark.parametrize("way", WAYS)
def test_a_cancellation_at_every_await_of_the_first_use(url: str, other: leasehold.Leasehold, way: str) -> None:
    """Of a coordinator that has to connect."""
    assert cancel_everywhere(lambda: closing(LoopUser(url)), other, way) > 1
