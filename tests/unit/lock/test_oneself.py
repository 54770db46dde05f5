"""Whoever takes again what it holds itself: told when it would wait for ever, and busy or patient otherwise."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any

import pytest

import leasehold
from leasehold import InvalidRequest, LeaseLost, NotAcquired
from leasehold.stores.memory import MemoryStore
from tests.support.lock import elsewhere, look, nothing_left
from tests.support.parties import FLAVOURS, Party
from tests.support.scene import fails
from tests.support.tables import each
from tests.support.waiting import PATIENCE, until, until_async

Make = Callable[[Any], Any]
SOON = 0.05  # a wait that ends


@pytest.fixture
def store() -> MemoryStore:
    """One for all parties of a test."""
    return MemoryStore()


@pytest.fixture(params=FLAVOURS)
def party(request: pytest.FixtureRequest, store: MemoryStore) -> Iterator[Party]:
    """In each flavour."""
    party: Party = FLAVOURS[request.param](store)
    yield party
    party.close()


def inside(party: Party, outer: Make, asked: Make) -> Future[Any]:
    """``with outer: asked``, in one thread or task."""
    return party.within(outer, lambda _: asked(party.hold))


def with_lease(hold: Any) -> Any:
    """``with lock.acquire() as lease``: the body of a lease and not of its lock."""
    return Later(hold.lock("x"))


class Later:
    """``with lock.acquire()`` as one thing, in both flavours."""

    def __init__(self, lock: Any) -> None:
        self.lock = lock

    def __enter__(self) -> Any:
        self.lease = self.lock.acquire()
        return self.lease.__enter__()

    def __exit__(self, *error: Any) -> Any:
        return self.lease.__exit__(*error)

    async def __aenter__(self) -> Any:
        self.lease = await self.lock.acquire()
        return await self.lease.__aenter__()

    async def __aexit__(self, *error: Any) -> Any:
        return await self.lease.__aexit__(*error)


def lock(hold: Any, **options: Any) -> Any:
    """The one that is taken twice."""
    return hold.lock("x", **options)


def several(hold: Any) -> Any:
    """Together with another."""
    return hold.all(hold.lock("a"), hold.lock("x"))


def several_leases(hold: Any) -> Any:
    """The leases of an all, entered."""
    return Later(several(hold))


def recursive(hold: Any) -> Any:
    """A decorated function that is called inside itself, or inside the lock."""

    async def awaited() -> None:
        pytest.fail("it is inside already")

    def called() -> None:
        pytest.fail("it is inside already")

    function = awaited if isinstance(hold, leasehold.AsyncLeasehold) else called
    return hold.locked("x", on_busy="wait")(function)()


TWICE: dict[str, tuple[Make, Make]] = {
    "a lock": (lock, lambda hold: lock(hold).acquire()),
    "a lock in rlock": (lambda hold: hold.rlock("x"), lambda hold: lock(hold).acquire()),
    "the body of a lease": (with_lease, lambda hold: lock(hold).acquire()),
    "a decorated function": (lock, recursive),
    "a lock in all": (several, lambda hold: lock(hold).acquire()),
    "a lock in the body of leases": (several_leases, lambda hold: lock(hold).acquire()),
    "all in a lock": (lock, lambda hold: several(hold).acquire()),
    "a lock in write": (lambda hold: hold.rwlock("x").write(), lambda hold: lock(hold).acquire()),
}


@each("way", TWICE)
def test_item_11_for_ever_is_an_error(party: Party, store: MemoryStore, way: str) -> None:
    """In the body of its own lease nobody waits for that lease without an end: the error names rlock, and nothing is
    left behind."""
    outer, asked = TWICE[way]
    error = fails(InvalidRequest, inside(party, outer, asked))
    assert "rlock()" in str(error) and error.resource == "x"
    assert nothing_left(store, "x") and nothing_left(store, "a")


def test_item_11_the_same_lock_object(party: Party) -> None:
    """As with another one of the same name; and the outer lease is untouched."""
    one = party.hold.lock("x")
    kept: list[Any] = []

    def again(lease: Any) -> Any:
        kept.append(lease)
        return one.acquire()

    fails(InvalidRequest, party.within(lambda _: one, again))
    assert kept[0].state == "released" and kept[0]._held.phase == "released"


def test_item_11_a_wait_with_an_end(party: Party) -> None:
    """Both forms end as ever, and the error of the second names rlock."""
    assert inside(party, lock, lambda hold: lock(hold).acquire(wait=SOON)).result(PATIENCE) is None
    error = fails(NotAcquired, nested(party, lock, lambda hold: lock(hold, wait=SOON)))
    assert "rlock()" in str(error) and "held by" in str(error)
    error = fails(NotAcquired, nested(party, lock, lambda hold: hold.all(hold.lock("a"), hold.lock("x"), wait=SOON)))
    assert "rlock()" in str(error)


def test_item_11_one_try_is_plainly_busy(party: Party) -> None:
    """It would have been the same with anybody else's lease."""
    assert inside(party, lock, lambda hold: lock(hold).try_acquire()).result(PATIENCE) is None
    error = fails(NotAcquired, nested(party, lock, lambda hold: lock(hold, wait=0)))
    assert "rlock" not in str(error)


def nested(party: Party, outer: Make, inner: Make) -> Future[Any]:
    """``with outer, inner: ...``, whose inner body must not begin."""

    def enter(hold: Any) -> Any:
        if isinstance(hold, leasehold.AsyncLeasehold):
            return enter_async(inner(hold))
        with inner(hold):
            pytest.fail("both are held")

    return inside(party, outer, enter)


async def enter_async(lock: Any) -> None:
    """The same for asyncio."""
    async with lock:
        pytest.fail("both are held")


# ---------------------------------------------------------------- what is no mistake


@pytest.mark.slow
@pytest.mark.parametrize("options", [{"renew": False}, {"max_hold": 0.2}, {"max_idle": 0.2}])
def test_a_lease_that_ends_is_waited_for(store: MemoryStore, options: dict[str, Any]) -> None:
    """One that is not renewed, and one that has a longest time: the wait is over when it is."""
    with leasehold.connect(store) as hold:
        got: list[bool] = []

        def twice() -> None:
            with hold.lock("x", ttl=0.2, **options):
                inner = hold.lock("x").acquire()
                got.append(inner is not None and inner.release())

        with pytest.raises(LeaseLost):
            twice()
        assert got == [True]


async def test_a_task_is_cancelled_when_what_it_waits_for_was_its_own(store: MemoryStore) -> None:
    """Its own lease ends, and so does its body: as with every loss."""
    async with leasehold.aio.connect(store) as hold:
        with pytest.raises(LeaseLost):
            async with hold.lock("x", ttl=0.2, renew=False):
                await hold.lock("x").acquire()
    assert nothing_left(store, "x")


def test_a_lease_that_somebody_else_gives_back_is_waited_for(party: Party, store: MemoryStore) -> None:
    """Who has no body around it may have handed it to another thread or task."""
    lease = party.do(lambda hold: lock(hold).acquire())
    waits = party.start(lambda hold: lock(hold).acquire())
    until(lambda: look(store, "x").queue, "it waits")
    releasing = lease.release()
    if not isinstance(releasing, bool):
        assert asyncio.run_coroutine_threadsafe(releasing, party.loop).result(PATIENCE)  # type: ignore[attr-defined]  # of a TaskParty
    assert waits.result(PATIENCE).state == "held"


def test_a_lease_that_was_evicted_is_past(party: Party, store: MemoryStore) -> None:
    """Inside the body of what it has lost it waits as anybody, here for whoever holds by now."""
    other: Party = FLAVOURS["sync"](store)

    def evicted() -> Any:
        """Somebody else holds it when this is over."""
        holder = other.hold.inspect("x").holders[0]
        other.hold.evict("x", fence=holder.fence, reason="it hangs", delay=0, force=True)
        return other.do(lambda hold: lock(hold).try_acquire())

    over = threading.Event()
    threads: list[threading.Thread] = []

    def give_back(theirs: Any) -> None:
        until(lambda: look(store, "x").queue or over.is_set(), "it waits, or its task was cancelled before it could")
        theirs.release()

    def asked(lease: Any) -> Any:
        theirs = evicted()
        until(lambda: lease.state == "lost", "it hears of it")
        threads.append(threading.Thread(target=give_back, args=[theirs]))
        threads[0].start()
        return lock(party.hold).acquire()

    fails(LeaseLost, party.within(lambda hold: lock(hold, ttl=1.5), asked))  # a renewal tells it
    over.set()
    threads[0].join(PATIENCE)
    other.close()


async def test_trap_12_a_child_task_waits_for_its_parent(store: MemoryStore) -> None:
    """The body is its parent's, who goes on and leaves it."""
    async with leasehold.aio.connect(store) as hold:
        async with hold.lock("x"):
            child = asyncio.create_task(hold.lock("x").acquire())
            await until_async(lambda: look(store, "x").queue, "the child waits")
        lease = await child
        assert lease is not None and lease.state == "held"


def test_another_thread_waits_for_this_one(store: MemoryStore) -> None:
    """Through the same lock object, too."""
    with leasehold.connect(store) as hold:
        one = hold.lock("x")
        one.__enter__()
        with elsewhere(one.acquire) as other:
            until(lambda: look(store, "x").queue, "it waits")
            one.__exit__(None, None, None)
            theirs = other()
        assert theirs is not None and theirs.release() is True


# ---------------------------------------------------------------- permits, terms


def test_permits_that_can_never_come(party: Party) -> None:
    """Two of two, and one more; with another limit that somebody has stored it is no mistake."""

    def pool(hold: Any, **options: Any) -> Any:
        return hold.semaphore("x", limit=2, **options)

    error = fails(InvalidRequest, inside(party, lambda hold: pool(hold, permits=2), lambda hold: pool(hold).acquire()))
    assert "has 2 of 2 permits" in str(error)
    outer: Make = lambda hold: pool(hold, permits=2)  # noqa: E731  said twice below
    assert inside(party, outer, lambda hold: pool(hold).try_acquire()).result(PATIENCE) is None
    assert "permits" in str(fails(NotAcquired, nested(party, outer, lambda hold: pool(hold, wait=SOON))))
    assert "permits" in str(fails(InvalidRequest, inside(party, pool, lambda hold: pool(hold).acquire(permits=2))))


def test_a_permit_of_somebody_else_is_waited_for(party: Party, store: MemoryStore) -> None:
    """One of two is ours and one another's: that one comes back."""
    other: Party = FLAVOURS["sync"](store)
    theirs = other.do(lambda hold: hold.semaphore("x", limit=2).acquire())
    both = inside(party, lambda hold: hold.semaphore("x", limit=2), lambda hold: hold.semaphore("x", limit=2).acquire())
    until(lambda: look(store, "x").queue, "it waits")
    assert theirs.release() is True
    assert both.result(PATIENCE) is not None
    other.close()


def test_a_leader_does_not_wait_for_its_own_term(party: Party) -> None:
    """In the body of a term, and in a loop of terms."""

    def campaign(hold: Any) -> Any:
        return hold.election("x").campaign()

    assert "leads it" in str(fails(InvalidRequest, nested(party, campaign, campaign)))

    async def on_loop(hold: Any) -> None:
        async for _ in campaign(hold):
            async with campaign(hold):
                pytest.fail("it leads already")

    def loop(hold: Any) -> Any:
        if isinstance(hold, leasehold.AsyncLeasehold):
            return on_loop(hold)
        for _ in campaign(hold):
            with campaign(hold):
                pytest.fail("it leads already")
        return None

    assert "leads it" in str(fails(InvalidRequest, party.start(loop)))


# ---------------------------------------------------------------- read and write


def read(hold: Any, **options: Any) -> Any:
    """To read x."""
    return hold.rwlock("x").read(**options)


def write(hold: Any, **options: Any) -> Any:
    """To write x."""
    return hold.rwlock("x").write(**options)


MIXES: dict[str, tuple[Make, Callable[..., Any], str]] = {
    "write in read": (read, write, "deadlock"),
    "lock in read": (read, lock, "deadlock"),
    "read in write": (write, read, "reentrant=True"),
    "write in write": (write, write, "reentrant=True"),
    "read in lock": (lock, read, "use write"),
    "write in lock": (lock, write, "use write"),
}
AGAIN = {"write in read", "lock in read", "read in lock", "write in lock"}  # what reentrant=True cannot enter either


@pytest.mark.parametrize("reentrant", [False, True])
@pytest.mark.parametrize("mix", MIXES)
def test_item_17_a_try_that_cannot_succeed(party: Party, store: MemoryStore, mix: str, reentrant: bool) -> None:
    """One try is busy, a wait with an end is over then, and only a wait without one is a mistake."""
    outer, inner, advice = MIXES[mix]
    if reentrant and mix not in AGAIN:
        assert inside(party, outer, lambda hold: inner(hold, reentrant=True).acquire()).result(PATIENCE) is not None
        return

    def asked(**options: Any) -> Make:
        return lambda hold: inner(hold, reentrant=reentrant, **options)

    assert inside(party, outer, lambda hold: asked()(hold).try_acquire()).result(PATIENCE) is None
    assert inside(party, outer, lambda hold: asked()(hold).acquire(wait=SOON)).result(PATIENCE) is None
    assert advice not in str(fails(NotAcquired, nested(party, outer, asked(wait=0))))
    assert advice in str(fails(NotAcquired, nested(party, outer, asked(wait=SOON))))
    error = fails(InvalidRequest, inside(party, outer, lambda hold: asked()(hold).acquire()))
    assert advice in str(error) and error.resource == "x"
    assert nothing_left(store, "x")


def test_who_reads_twice_is_no_mistake(party: Party) -> None:
    """Readers stand beside each other, also those of one thread or task."""
    assert inside(party, read, lambda hold: read(hold).acquire()).result(PATIENCE) is not None


def test_who_waits_for_its_readers_elsewhere_is_patient(party: Party, store: MemoryStore) -> None:
    """A reader's lease that another thread or task gives back may be waited for, to write."""
    lease = party.do(lambda hold: read(hold).acquire())
    waits = party.start(lambda hold: write(hold).acquire())
    until(lambda: look(store, "x").queue, "it waits")
    releasing = lease.release()
    if not isinstance(releasing, bool):
        assert asyncio.run_coroutine_threadsafe(releasing, party.loop).result(PATIENCE)  # type: ignore[attr-defined]  # of a TaskParty
    assert waits.result(PATIENCE).state == "held"
