"""Who owns what: threads, tasks and their children, one that reads twice, and what cannot be entered again."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

import leasehold
from leasehold import AsyncReadWriteLease, InvalidRequest, LeaseLost, NotAcquired, NotHeld, ReadWriteLease
from leasehold._core.ops import Claim
from leasehold.primitives.lock import LEASE_CLASSES, lease_class
from leasehold.stores.clock import ManualClock
from tests.support.lock import STORES, Spy, elsewhere, in_thread, look, nothing_left, open_store, sync_scene
from tests.support.tables import each
from tests.support.waiting import until


@pytest.fixture(params=STORES)
def spy(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Spy]:
    """A store of each kind that counts what is sent."""
    spy = Spy(open_store(request.param, tmp_path))
    yield spy
    again = spy if request.param == "memory" else open_store(request.param, tmp_path)  # its coordinator has closed it
    assert nothing_left(again, "doc:1")
    again.close()


# ---------------------------------------------------------------- once more in the same thread


def test_entering_again_costs_nothing_and_keeps_the_fence(spy: Spy) -> None:
    """Read in read, write in write, read in write: one claim, one fence, and given back with the outermost."""
    with leasehold.connect(spy) as hold:
        doc = hold.rwlock("doc", 1)
        for outer, inner in ((doc.read, doc.read), (doc.write, doc.write), (doc.write, doc.read)):
            sent = len(spy.of(Claim))
            with outer(reentrant=True) as one, inner(reentrant=True) as two:
                assert two is one and one.fence == two.fence and one.shared == (outer == doc.read)
                assert one._held.depth == 2
                assert two.release() is True and one.state == "held"
            assert one.state == "released" and len(spy.of(Claim)) == sent + 1


def test_who_reads_inside_its_writing_goes_on_writing(spy: Spy) -> None:
    """After the inner body it may still write, and be downgraded."""
    with leasehold.connect(spy) as hold:
        doc = hold.rwlock("doc", 1)
        with doc.write() as lease:
            with doc.read(reentrant=True) as inner:
                assert not inner.shared and in_thread(doc.read().try_acquire) is None
                with pytest.raises(InvalidRequest, match="entered 2 times"):
                    inner.downgrade()
            with doc.write(reentrant=True) as again:
                assert again is lease
            lease.downgrade()
            with doc.read(reentrant=True) as again:
                assert again is lease and again.shared
            with pytest.raises(InvalidRequest, match="deadlock"), doc.write(reentrant=True):
                pass


def test_a_plain_lock_enters_a_writers_lease_again(spy: Spy) -> None:
    """rlock inside write is inside already; rlock inside read would be an upgrade, and read inside rlock another mix:
    a try is busy, and who would wait for itself for ever is told so."""
    with leasehold.connect(spy) as hold:
        doc = hold.rwlock("doc", 1)
        with doc.write() as lease, hold.rlock("doc", 1) as again:
            assert again is lease
        with doc.read():
            assert hold.rlock("doc", 1).try_acquire() is None
            with pytest.raises(InvalidRequest, match="deadlock"):
                hold.rlock("doc", 1).acquire()
        with hold.rlock("doc", 1) as outer:
            for side in (doc.read, doc.write):
                assert side().try_acquire() is None and side(reentrant=True).try_acquire() is None
                with pytest.raises(InvalidRequest, match="use write"):
                    side(reentrant=True).acquire()
            assert outer._held.depth == 1


def test_a_thread_may_read_twice_and_then_not_write(spy: Spy) -> None:
    """Two leases of one thread: given back in turn, owned until the last, and each of them keeps from writing."""
    with leasehold.connect(spy) as hold:
        doc = hold.rwlock("doc", 1)
        one, two = doc.read().acquire(), doc.read(ttl=0.2, renew=False).acquire()
        assert one is not None and two is not None and one is not two
        until(lambda: two.state == "lost", "the second is over")
        assert doc.read().owned()
        assert doc.write().try_acquire() is None
        assert doc.read().release() is False and doc.read().release() is True
        assert not doc.read().owned()
        with pytest.raises(NotHeld):
            doc.read().release()
        with doc.write(wait=0):
            pass


def test_what_was_lost_does_not_keep_from_writing() -> None:
    """A reader whose lease is over may write; one that asks to enter again is told of its loss."""
    clock = ManualClock()
    _, hold = sync_scene(clock)
    with hold:
        doc = hold.rwlock("doc", 1)
        lease = doc.read(ttl=1, renew=False).acquire()
        assert lease is not None
        clock.advance(2)
        for side in (doc.read, doc.write):
            with pytest.raises(LeaseLost):
                side(reentrant=True).acquire()
        with doc.write(wait=0) as writer:
            assert writer.fence is not None


# ---------------------------------------------------------------- other threads and tasks


def test_another_thread_owns_nothing_of_it(spy: Spy) -> None:
    """It neither enters nor releases what its creator holds, though it uses the same lock objects."""
    with leasehold.connect(spy) as hold:
        doc = hold.rwlock("doc", 1)
        read, write = doc.read(reentrant=True), doc.write(reentrant=True)
        with write as lease:
            assert not in_thread(write.owned) and in_thread(write.try_acquire) is None
            assert in_thread(read.try_acquire) is None
            with pytest.raises(NotHeld):
                in_thread(write.release)
            lease.downgrade()
            beside = in_thread(read.acquire)
            assert beside is not None and beside is not lease and beside.shared
            assert beside.release() is True


async def test_a_child_task_owns_nothing_of_its_parents(spy: Spy) -> None:
    """It reads beside its parent with a lease of its own, does not enter its writing, and may ask to write."""
    async with leasehold.aio.connect(spy) as hold:
        doc = hold.rwlock("doc", 1)
        read, write = doc.read(reentrant=True), doc.write(reentrant=True)

        async def child() -> AsyncReadWriteLease | None:
            assert not read.owned() and not write.owned()
            return await read.acquire(wait=0)

        async def writing_child() -> None:
            async with doc.write(wait=0):
                pytest.fail("its parent reads")

        async with read as lease:
            beside = await asyncio.create_task(child())
            assert beside is not None and beside is not lease and beside.fence != lease.fence
            assert await beside.release()
            with pytest.raises(NotAcquired):  # and not InvalidRequest: it reads nothing itself
                await asyncio.create_task(writing_child())
            with pytest.raises(InvalidRequest, match="deadlock"):
                await write.acquire()
        async with write:
            assert await asyncio.create_task(child()) is None


def test_upgrades_do_not_hang_two_readers(spy: Spy) -> None:
    """Two who read and want to write: both are told at once, because they would wait for ever, and both go on."""
    with leasehold.connect(spy) as hold:
        doc = hold.rwlock("doc", 1)

        def upgrade() -> str:
            with doc.read():
                with pytest.raises(InvalidRequest) as info:
                    doc.write(wait=None).acquire()
                return str(info.value)

        with elsewhere(upgrade) as one, elsewhere(upgrade) as two:
            assert "deadlock" in one() and "deadlock" in two()


# ---------------------------------------------------------------- adopting


@pytest.mark.parametrize("side", ["read", "write"])
def test_an_adopted_lease_is_of_its_own_kind(spy: Spy, side: str) -> None:
    """The store says what it is: whoever adopts need not know."""
    with leasehold.connect(spy) as hold, leasehold.connect(spy) as other:
        lease = getattr(hold.rwlock("doc", 1), side)().acquire()
        with other.adopt(lease.transfer()) as adopted:
            assert type(adopted) is ReadWriteLease and adopted.shared == (side == "read")
            assert [one.rule for one in look(spy, "doc:1").holders] == [side]
            assert other.rwlock("doc", 1).read().owned()
        with other.adopt(hold.lock("doc", 1).__enter__().transfer()) as plain:
            assert type(plain) is leasehold.Lease


@each("rule", LEASE_CLASSES)
def test_the_table_of_leases_names_what_is_there(rule: str) -> None:
    """Each row leads to a class for threads and its twin for asyncio."""
    assert issubclass(lease_class(rule), leasehold.Lease)
    assert issubclass(lease_class(rule, asyncio=True), leasehold.AsyncLease)
