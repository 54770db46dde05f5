"""Any mix of rules in one all, waiting under a clock that tests turn, and what type checkers say of it."""

from __future__ import annotations

import threading
from typing import assert_type

import pytest

import leasehold
from leasehold import (
    AsyncLease,
    AsyncLeases,
    AsyncPermit,
    AsyncReadWriteLease,
    Lease,
    Leases,
    Lock,
    Permit,
    ReadWriteLease,
)
from leasehold._core.rules import READ, SEMAPHORE
from leasehold.primitives.arguments import checked_parts
from leasehold.testing import StandInStore
from tests.support.lock import look
from tests.support.waiting import PATIENCE, until


def permits(hold: leasehold.Leasehold, permits: int = 2) -> leasehold.Semaphore:
    """Several of three."""
    return hold.semaphore("s", limit=3, permits=permits)


def test_readers_permits_and_locks_together() -> None:
    """Each part stands under its own rule: readers share, permits are counted, a lock is alone."""
    holds = [leasehold.connect("memory://mix") for _ in range(3)]
    one, other, third = holds
    first = one.all(one.rwlock("r").read(), permits(one), one.lock("a")).acquire(wait=0)
    assert first is not None
    assert [lease._held.rule for lease in first] == [READ, SEMAPHORE, "mutex"]
    assert first[1]._held.slots == (0, 1)
    second = other.all(other.rwlock("r").read(), other.lock("b")).acquire(wait=0)
    assert second is not None
    assert other.all(permits(other), other.lock("c")).acquire(wait=0) is None
    assert third.all(third.rwlock("r").write(), third.lock("c")).acquire(wait=0) is None
    assert first.release()
    assert second.release()
    assert third.all(permits(third), third.rwlock("r").write()).acquire(wait=0) is not None
    for hold in holds:
        hold.close()


def test_more_permits_than_there_are() -> None:
    """A part that can never be granted is refused, and the others are given back."""
    with leasehold.connect("memory://greedy") as hold, leasehold.connect("memory://greedy") as other:
        greedy = hold.all(hold.lock("a"), permits(hold, 3))
        permits(other).resize(2)
        with pytest.raises(leasehold.InvalidRequest) as refused:
            greedy.acquire()
        assert refused.value.resource == "s"
        assert hold.lock("a").try_acquire() is not None


def test_a_reader_cannot_become_a_writer_in_an_all() -> None:
    """As alone: a try is busy, and who would wait for itself for ever is told so; nothing is taken in either."""
    with leasehold.connect("memory://upgrade") as hold, hold.rwlock("r").read():
        both = hold.all(hold.lock("a"), hold.rwlock("r").write())
        assert both.try_acquire() is None
        with pytest.raises(leasehold.InvalidRequest, match="deadlock"):
            both.acquire()
        assert not hold.lock("a").locked()


def test_a_clock_that_is_turned_while_an_all_waits() -> None:
    """The clock knows that it is parked, though it has owners that have not claimed yet; the wait ends in time."""
    store = StandInStore()
    hold = leasehold.connect(store)
    theirs = hold.lock("b", ttl=600).acquire()
    got: list[Leases | None] = []
    three = hold.all(hold.lock("a"), hold.lock("b"), hold.lock("c"))
    thread = threading.Thread(target=lambda: got.append(three.acquire(wait=60)), daemon=True)
    thread.start()
    until(lambda: look(store, "b").queue, "it waits")
    store.clock.advance("50s")
    assert thread.is_alive() and look(store, "a").holders
    store.clock.advance("11s")
    thread.join(PATIENCE)
    assert got == [None] and not look(store, "a").holders
    assert theirs is not None and theirs.state == "held"
    store.end()


def test_what_type_checkers_say() -> None:
    """A body gets leases, each with its own class, which can be taken apart; of more than five it is that of all."""
    with leasehold.connect("memory://types") as hold:
        two = hold.all(hold.lock("a"), hold.semaphore("s", limit=2))
        with two as (first, permit):
            assert_type(first, Lease)
            assert_type(permit, Permit)
            assert permit.slot == 0
        leases = assert_type(two.acquire(wait=0), Leases[Lease, Permit] | None)
        assert leases is not None and isinstance(leases, tuple)
        assert_type(leases[1].slot, int)
        assert_type(leases[:1], tuple[Lease])
        assert_type(leases.fences, dict[str, int | None])
        with leases as (_, again):
            assert_type(again, Permit)
        sides = hold.all(
            hold.rwlock("r").read(), hold.rwlock("w").write(), hold.lock("c"), hold.rlock("d"), hold.lock("e"), wait=5
        )
        with sides as (reading, writing, *_rest):
            assert_type(reading, ReadWriteLease)
            writing.downgrade()
        locks: list[Lock] = [hold.lock("many", number) for number in range(6)]
        with hold.all(*locks) as many:
            assert_type(many[5], Lease)
            plain: Leases = many
            assert [assert_type(lease, Lease).state for lease in plain] == ["held"] * 6
        assert_type(checked_parts(hold._engine, (hold.lock("a"),), Lock), tuple[Lock, ...])


async def test_what_type_checkers_say_of_asyncio() -> None:
    """The same, awaited."""
    async with leasehold.aio.connect("memory://types") as hold:
        two = hold.all(hold.rwlock("r").write(), hold.semaphore("s", limit=2))
        async with two as (writing, permit):
            assert_type(writing, AsyncReadWriteLease)
            assert_type(permit, AsyncPermit)
        leases = assert_type(await two.try_acquire(), AsyncLeases[AsyncReadWriteLease, AsyncPermit] | None)
        assert leases is not None and leases[1].slot == 0
        many: AsyncLeases | None = await hold.all(*[hold.lock("many", number) for number in range(6)]).acquire()
        assert many is not None and assert_type(many[5], AsyncLease).state == "held"
