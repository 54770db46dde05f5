"""Any mix of rules in one all, waiting under a clock that tests turn, and what type checkers say of it."""

from __future__ import annotations

import threading
from typing import assert_type

import pytest

import leasehold
from leasehold import Lease, Leases, Lock
from leasehold.core.rules import READ, SEMAPHORE, WRITE
from leasehold.primitives.parts import checked
from leasehold.testing import StandInStore
from tests.lock.helpers import eventually, look


class Reads(Lock):
    """A side of a read-write lock, as far as an all is concerned."""

    __slots__ = ()
    _rule = READ


class Writes(Lock):
    """The other side."""

    __slots__ = ()
    _rule = WRITE


class Permits(Lock):
    """Two permits of three."""

    __slots__ = ()
    _rule, _permits, _limit = SEMAPHORE, 2, 3


def made(hold: leasehold.Leasehold, kind: type[Lock], name: str) -> Lock:
    """A lock by that rule."""
    plain = hold.lock(name, wait=0)
    return kind(plain._engine, plain._name, plain._options)


def test_readers_permits_and_locks_together() -> None:
    """Each part stands under its own rule: readers share, permits are counted, a lock is alone."""
    hold, other, third = (leasehold.connect("memory://mix") for _ in range(3))
    with hold, other, third:
        first = hold.all(made(hold, Reads, "r"), made(hold, Permits, "s"), hold.lock("a")).acquire(wait=0)
        assert first is not None and [lease._held.rule for lease in first] == [READ, SEMAPHORE, "mutex"]
        assert first[1]._held.slots == (0, 1)
        second = other.all(made(other, Reads, "r"), other.lock("b")).acquire(wait=0)
        assert second is not None
        assert other.all(made(other, Permits, "s"), other.lock("c")).acquire(wait=0) is None
        assert third.all(made(third, Writes, "r"), third.lock("c")).acquire(wait=0) is None
        assert first.release() and second.release()
        assert other.all(made(other, Permits, "s"), made(other, Writes, "r")).acquire(wait=0) is not None


def test_more_permits_than_there_are() -> None:
    """A part that can never be granted is refused, and the others are given back."""

    class Greedy(Lock):
        __slots__ = ()
        _rule, _permits, _limit = SEMAPHORE, 4, 3

    with leasehold.connect("memory://greedy") as hold:
        greedy = hold.all(hold.lock("a"), made(hold, Greedy, "s"))
        with pytest.raises(leasehold.InvalidRequest) as info:
            greedy.acquire()
        assert info.value.resource == "s"
        assert not greedy.locked() and hold.lock("a").try_acquire() is not None


def test_a_reader_cannot_become_a_writer_in_an_all() -> None:
    """Refused before anything is taken, as alone: two of them would wait for each other."""
    with leasehold.connect("memory://upgrade") as hold, made(hold, Reads, "r"):
        both = hold.all(hold.lock("a"), made(hold, Writes, "r"))
        with pytest.raises(leasehold.InvalidRequest, match="deadlock"):
            both.acquire(wait=0)
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
    eventually(lambda: look(store, "b").queue, "it waits")
    store.clock.advance("50s")
    assert thread.is_alive() and look(store, "a").holders
    store.clock.advance("11s")
    thread.join(10)
    assert got == [None] and not look(store, "a").holders
    assert theirs is not None and theirs.state == "held"
    store.end()


def test_what_type_checkers_say() -> None:
    """A body gets leases, which can be taken apart."""
    with leasehold.connect("memory://types") as hold:
        with hold.all(hold.lock("a"), hold.lock("b")) as (first, second):
            assert_type(first, Lease)
            assert_type(second.fence, int | None)
        leases = hold.all(hold.lock("a")).acquire(wait=0)
        assert_type(leases, Leases | None)
        assert leases is not None
        assert_type(leases[0], Lease)
        assert_type(leases[:1], tuple[Lease, ...])
        assert_type(leases.fences, dict[str, int | None])
        assert_type(checked(hold._engine, (hold.lock("a"),), Lock), tuple[Lock, ...])
