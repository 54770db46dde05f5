"""What cannot be a batch is refused before anything is sent, with what to do."""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import Callable
from typing import Any

import pytest

import leasehold
from leasehold import InvalidRequest
from leasehold.stores.memory import MemoryStore
from tests.support.lock import sync_scene
from tests.support.tables import each


class Sides:
    """What looks like a read-write lock, which is no lock itself."""

    def read(self) -> None:
        """One side."""

    def write(self) -> None:
        """And the other."""


Wrong = Callable[[Any], Any]
LOCKS: dict[str, tuple[Wrong, str]] = {
    "the same twice": (lambda hold: [hold.lock("job", 1), hold.lock("job", "1")], "given twice"),
    "again as an rlock": (lambda hold: [hold.lock("job"), hold.rlock("job")], "given twice"),
    "a permit twice": (lambda hold: [hold.semaphore("job", limit=3), hold.semaphore("job", limit=3)], "permits="),
    "one lock": (lambda hold: hold.lock("job"), "a list of locks, not Lock"),
    "an all": (lambda hold: hold.all(hold.lock("job")), "a list of locks, not All"),
    "an all among them": (lambda hold: [hold.lock("x"), hold.all(hold.lock("job"))], "several or none"),
    "both sides": (lambda hold: [Sides()], "read() or its write()"),
    "a read-write lock": (lambda hold: [hold.rwlock("job")], "read() or its write()"),
    "a name": (lambda hold: "job", "a list of locks, not str"),
    "names": (lambda hold: ["job"], "not str"),
    "None": (lambda hold: None, "not NoneType"),
    "None among them": (lambda hold: [hold.lock("job"), None], "not NoneType"),
    "a number": (lambda hold: 7, "not int"),
    "an election": (lambda hold: [hold.election("job")], "not Election"),
    "a lease": (lambda hold: [hold.lock("x").acquire()], "not Lease"),
    "another coordinator's": (lambda hold: [leasehold.connect("memory://").lock("job")], "another coordinator"),
    "of asyncio": (lambda hold: [leasehold.aio.connect("memory://").lock("job")], "leasehold.aio.connect()"),
}
LEASES: dict[str, tuple[Wrong, str]] = {
    "one lease": (lambda hold: hold.lock("job").acquire(), "a list of leases, not Lease"),
    "a lock": (lambda hold: [hold.lock("job")], "not a Lock"),
    "a name": (lambda hold: ["job"], "not str"),
    "a text": (lambda hold: "job", "a list of leases, not str"),
    "None": (lambda hold: None, "not NoneType"),
    "twice": (lambda hold: [hold.lock("job").acquire()] * 2, "given twice"),
    "another's": (lambda hold: [leasehold.connect(MemoryStore()).lock("x").acquire()], "another coordinator"),
}


@each(("wrong", "says"), LOCKS.values(), ids=LOCKS)
def test_what_is_no_batch_of_locks(wrong: Wrong, says: str) -> None:
    """It is said at once what to give instead, and nothing of the job reaches the store."""
    spy, hold = sync_scene()
    with hold, pytest.raises(InvalidRequest) as info:
        hold.acquire_many(wrong(hold))
    assert says in str(info.value)
    assert not [op for op in spy.ops if op.resource.startswith("job")]


@each(("wrong", "says"), LEASES.values(), ids=LEASES)
def test_what_is_no_batch_of_leases(wrong: Wrong, says: str) -> None:
    """It is said at once, and nothing is released."""
    spy, hold = sync_scene()
    with hold:
        given = wrong(hold)
        before = len(spy.ops)
        with pytest.raises(InvalidRequest) as info:
            hold.release_many(given)
        assert says in str(info.value) and len(spy.ops) == before


def test_the_flavours_do_not_mix() -> None:
    """Neither locks nor leases of threads go into a batch of asyncio."""

    async def main() -> None:
        async with leasehold.aio.connect("memory://") as loop:
            with leasehold.connect("memory://") as hold:
                with pytest.raises(InvalidRequest, match=r"of leasehold\.connect\(\)"):
                    await loop.acquire_many([hold.lock("a")])  # type: ignore[list-item]  # that is what is wrong
                lease = hold.lock("a").acquire()
                with pytest.raises(InvalidRequest, match=r"of leasehold\.connect\(\)"):
                    await loop.release_many([lease])  # type: ignore[list-item]  # that is what is wrong

    asyncio.run(main())


def test_a_batch_is_neither_true_nor_false() -> None:
    """A condition that could mean all, some or none raises, and says what to ask."""
    with leasehold.connect("memory://") as hold:
        batch = hold.acquire_many([hold.lock("a")])
        with pytest.raises(TypeError, match=r"batch\.complete .* batch\.acquired"):
            bool(batch)
        assert batch.release()


def test_an_empty_batch() -> None:
    """Nothing was asked for, nothing is sent, and all of it is granted."""
    spy, hold = sync_scene()
    with hold:
        with hold.acquire_many([]) as batch:
            assert len(batch) == 0 and batch.complete and batch.acquired == () and batch.refused == {}
        assert hold.release_many([]) == [] and hold.release_many([None]) == [False]
    assert spy.ops == []


def test_any_iterable_will_do() -> None:
    """Also one that can be read only once."""
    with leasehold.connect("memory://") as hold:
        batch = hold.acquire_many(hold.lock("page", number) for number in range(3))
        assert batch.complete and hold.release_many(iter(batch)) == [True] * 3


def test_it_stays_in_its_process() -> None:
    """A batch cannot be pickled, and says what to send."""
    with leasehold.connect("memory://") as hold:
        batch = hold.acquire_many([hold.lock("a")])
        with pytest.raises(TypeError, match="transfer"):
            pickle.dumps(batch)
        assert batch.release()


def test_nothing_secret_is_shown() -> None:
    """Neither an id nor an owner's token is in what a batch looks like."""
    with leasehold.connect("memory://") as hold, hold.lock("b", "secret-8"):
        batch = hold.acquire_many([hold.lock("a", "secret-7"), hold.lock("b", "secret-8")])
        assert repr(batch) == "<LeaseBatch 1 acquired, 1 refused>"
        shown = f"{batch!r} {batch.refused['b:secret-8']}"
        assert "secret" not in shown and batch.acquired[0].owner not in shown
        assert batch.release()


def test_a_closed_coordinator() -> None:
    """It gives no leases, and what it gave is not ours any more."""
    hold = leasehold.connect("memory://")
    batch = hold.acquire_many([hold.lock("a"), hold.lock("b")])
    hold.close()
    with pytest.raises(leasehold.StoreUnavailable, match="closed"):
        hold.acquire_many([hold.lock("a")])
    assert hold.release_many(batch) == [False, False]
