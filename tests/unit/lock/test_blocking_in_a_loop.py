"""A lock for threads inside a running event loop: told once, when it has to wait, and never otherwise."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import leasehold
from leasehold import Leasehold
from leasehold.stores.memory import MemoryStore
from tests.support.lock import look
from tests.support.waiting import PATIENCE, until

Wait = Callable[[Leasehold], object]
SOON = 0.02  # a wait that ends


@pytest.fixture
def store() -> MemoryStore:
    """In it somebody else holds x and all permits of y."""
    return MemoryStore()


@pytest.fixture
def hold(store: MemoryStore) -> Iterator[Leasehold]:
    """Ours, where x is taken."""
    with leasehold.connect(store) as theirs, leasehold.connect(store) as ours:
        leases = [theirs.lock("x").acquire(), theirs.semaphore("y", limit=1).acquire()]
        yield ours
        for lease in leases:
            assert lease is not None and lease.release()


@pytest.fixture
def warnings(caplog: pytest.LogCaptureFixture) -> Callable[[], list[str]]:
    """What was told."""
    caplog.set_level(logging.WARNING, "leasehold")
    return lambda: [one.getMessage() for one in caplog.records if "event loop" in one.getMessage()]


def entered(hold: Leasehold) -> None:
    """The form with a body."""
    with pytest.raises(leasehold.NotAcquired), hold.lock("x", wait=SOON):
        pytest.fail("it is taken")


def stacked(hold: Leasehold) -> None:
    """Through what enters context managers for people."""
    with contextlib.ExitStack() as stack, pytest.raises(leasehold.NotAcquired):
        stack.enter_context(hold.lock("x", wait=SOON))


def campaigned(hold: Leasehold) -> None:
    """A term that somebody else leads."""
    with pytest.raises(leasehold.NotAcquired), hold.election("x").campaign(wait=SOON):
        pytest.fail("it is led")


def refused(call: Callable[[], object]) -> None:
    """A pattern that waits for its lock."""
    with pytest.raises(leasehold.NotAcquired):
        call()


WAITS: dict[str, Wait] = {
    "acquire": lambda hold: hold.lock("x").acquire(wait=SOON),
    "with": entered,
    "read": lambda hold: hold.rwlock("x").read().acquire(wait=SOON),
    "permit": lambda hold: hold.semaphore("y", limit=1).acquire(wait=SOON),
    "all": lambda hold: hold.all(hold.lock("a"), hold.lock("x")).acquire(wait=SOON),
    "stack": stacked,
    "term": campaigned,
    "once": lambda hold: refused(lambda: hold.once("x", wait=SOON).call(lambda: 1)),
    "flight": lambda hold: refused(lambda: hold.single_flight("x", wait=SOON).call(lambda: 1)),
}


@pytest.mark.parametrize("way", WAITS)
async def test_item_11_a_wait_inside_a_loop_is_told_once(
    hold: Leasehold, warnings: Callable[[], list[str]], way: str
) -> None:
    """One WARNING for each place in the program, which names that place and what to use."""
    for _ in range(3):
        WAITS[way](hold)
    (told,) = warnings()
    assert __file__ in told and "leasehold.aio.connect()" in told and "asyncio.to_thread()" in told


async def test_a_flight_of_another_thread(hold: Leasehold, warnings: Callable[[], list[str]]) -> None:
    """Nothing is asked of the store, and it waits all the same: told before that."""
    begun = threading.Event()

    @hold.single_flight("page", "{key}")
    def page(key: str) -> str:
        begun.set()
        until(warnings, "told while it waits")
        return key

    thread = threading.Thread(target=page, args=("a",))
    thread.start()
    assert begun.wait(60)
    assert page("a") == "a"
    thread.join(60)
    (told,) = warnings()
    assert __file__ in told


async def test_another_place_is_told_of_too(hold: Leasehold, warnings: Callable[[], list[str]]) -> None:
    """Each can be mended by itself."""
    hold.lock("x").acquire(wait=SOON)
    hold.lock("x").acquire(wait=SOON)
    assert len(warnings()) == 2


async def test_who_need_not_wait_is_not_told(hold: Leasehold, warnings: Callable[[], list[str]]) -> None:
    """A free lock, one try, one that is entered again, and a wait in a thread of its own."""
    with hold.lock("free"), hold.rlock("free"):
        assert hold.lock("x").try_acquire() is None
    assert await asyncio.to_thread(hold.lock("x").acquire, SOON) is None
    assert not warnings()


def test_outside_of_a_loop_nobody_is_told(hold: Leasehold, warnings: Callable[[], list[str]]) -> None:
    """A thread may wait."""
    assert hold.lock("x").acquire(wait=SOON) is None and not warnings()


async def test_the_flavour_for_asyncio_may_wait(
    hold: Leasehold, store: MemoryStore, warnings: Callable[[], list[str]]
) -> None:
    """That is what it is for."""
    async with leasehold.aio.connect(store) as ours:
        assert await ours.lock("x").acquire(wait=SOON) is None
    assert not warnings()


async def test_it_is_told_before_it_waits(
    hold: Leasehold, store: MemoryStore, warnings: Callable[[], list[str]]
) -> None:
    """What it waits for may never come: here another thread looks at the log, and then lets it in."""
    theirs = leasehold.connect(store)
    lease = theirs.lock("z").acquire()
    assert lease is not None
    seen: list[Any] = []

    def let_in() -> None:
        until(lambda: look(store, "z").queue and warnings(), "told while it waits")
        seen.append(lease.release())

    thread = threading.Thread(target=let_in)
    thread.start()
    with hold.lock("z"):
        assert seen == [True]
    thread.join(PATIENCE)
    theirs.close()
