"""freeze, expire and outage: what a holder believes, and what it is told, in both flavours."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest

import leasehold
from leasehold import AsyncLeasehold, InvalidRequest, Leasehold, LeaseLost, StaleOwner, StoreUnavailable
from leasehold.guards.sql import FenceGuard
from leasehold.testing import StandInStore, TurnableClock, expire, freeze, outage
from tests.support.lock import elsewhere, look, nothing_left
from tests.support.tables import each
from tests.support.waiting import until

Connect = Callable[..., Leasehold]
AsyncConnect = Callable[..., AsyncLeasehold]


@pytest.fixture
def db() -> Iterator[sqlite3.Connection]:
    """A database of one's own."""
    with closing(sqlite3.connect(":memory:")) as database:
        yield database


@pytest.fixture
def guard(db: sqlite3.Connection) -> FenceGuard:
    """A guard in it."""
    guard = FenceGuard()
    guard.create(db)
    return guard


def acquired(lease: Any) -> Any:
    """A lease that must be there."""
    assert lease is not None
    return lease


# ---------------------------------------------------------------- freeze


def test_a_late_write_is_refused(
    hold: Leasehold,
    connect_leasehold: Connect,
    leasehold_clock: TurnableClock,
    db: sqlite3.Connection,
    guard: FenceGuard,
) -> None:
    """The stale owner that all of this is about, in six lines."""
    lease = acquired(hold.lock("report", 42, ttl="30s").acquire())
    with freeze(lease):
        leasehold_clock.advance("31s")
        with connect_leasehold().lock("report", 42) as newer:
            guard.check(db, newer)
    with pytest.raises(StaleOwner):
        guard.check(db, lease)
    assert lease.state == "lost"


async def test_a_late_write_is_refused_in_asyncio(
    async_hold: AsyncLeasehold,
    connect_async_leasehold: AsyncConnect,
    leasehold_clock: TurnableClock,
    db: sqlite3.Connection,
    guard: FenceGuard,
) -> None:
    """The same, awaited; the body is interrupted when its process wakes, and not before."""
    passed = []

    async def work() -> None:
        async with async_hold.lock("report", 42, ttl="30s") as lease:
            with freeze(lease):
                leasehold_clock.advance("31s")
                async with connect_async_leasehold().lock("report", 42) as newer:
                    guard.check(db, newer)
                await asyncio.sleep(0.01)
                passed.append("the pause")
            with pytest.raises(StaleOwner):
                guard.check(db, lease)
            passed.append("the guard")
            await asyncio.sleep(60)

    with pytest.raises(LeaseLost):
        await work()
    assert passed == ["the pause", "the guard"]


def test_a_frozen_process_believes_what_it_believed(hold: Leasehold, leasehold_clock: TurnableClock) -> None:
    """Its own look at the time says nothing: ``check`` passes, as it did just before the pause."""
    lease = acquired(hold.lock("job", ttl="30s").acquire())
    lost, left = lease.lost, lease.remaining()
    with freeze(lease):
        leasehold_clock.advance("1h")
        lease.check()
        assert (lease.state, lease.remaining(), lost.is_set()) == ("held", left, False)
    assert lost.is_set()  # told as it wakes, without another look
    with pytest.raises(LeaseLost):
        lease.check()


def test_it_is_not_renewed_and_others_are(
    hold: Leasehold, connect_leasehold: Connect, leasehold_store: StandInStore, leasehold_clock: TurnableClock
) -> None:
    """A process is paused with all its leases; other processes go on."""
    first, second = (acquired(hold.lock("job", number).acquire()) for number in (1, 2))
    other = acquired(connect_leasehold().lock("job", 3).acquire())
    with freeze(first):
        leasehold_clock.advance("31s")
        assert nothing_left(leasehold_store, "job:1") and nothing_left(leasehold_store, "job:2")
    assert (first.state, second.state, other.state) == ("lost", "lost", "held")


def test_a_short_pause_costs_nothing(hold: Leasehold, leasehold_clock: TurnableClock) -> None:
    """Who wakes before the margin renews, and goes on."""
    lease = acquired(hold.lock("job", ttl="30s").acquire())
    with freeze(lease):
        leasehold_clock.advance("20s")
    assert lease.state == "held" and lease.remaining() > 24
    leasehold_clock.advance("1h")
    assert lease.state == "held"


def test_a_plain_call_and_thaw(hold: Leasehold, leasehold_clock: TurnableClock) -> None:
    """Without ``with``: until ``thaw``, which may be called again."""
    lease = acquired(hold.lock("job").acquire())
    frozen = freeze(hold)
    leasehold_clock.advance("31s")
    assert lease.state == "held"
    frozen.thaw()
    frozen.thaw()
    assert lease.state == "lost"
    assert hold.lock("job").try_acquire()


def test_frozen_twice_wakes_once(hold: Leasehold, leasehold_clock: TurnableClock) -> None:
    """Two leases of one process: it wakes when the last is let go of."""
    first, second = (acquired(hold.lock("job", number).acquire()) for number in (1, 2))
    with freeze(first):
        with freeze(second):
            leasehold_clock.advance("31s")
        assert first.state == second.state == "held"
    assert first.state == second.state == "lost"


def test_a_frozen_process_cannot_wait(hold: Leasehold, connect_leasehold: Connect) -> None:
    """The mistake of taking over with the coordinator that was frozen is named, and does not hang."""
    acquired(connect_leasehold().lock("job").acquire())
    with freeze(hold), pytest.raises(AssertionError, match="frozen coordinator"):
        hold.lock("job").acquire()


def test_a_lease_given_back_late(hold: Leasehold, connect_leasehold: Connect, leasehold_clock: TurnableClock) -> None:
    """What a frozen holder releases after a takeover was not its own, and harms nobody."""
    lease = acquired(hold.lock("job").acquire())
    with freeze(lease):
        leasehold_clock.advance("31s")
        newer = acquired(connect_leasehold().lock("job").acquire())
        assert lease.release() is False
    assert newer.state == "held" and newer.release() is True


@pytest.mark.slow
def test_freeze_on_a_real_store(tmp_path: Path) -> None:
    """Renewals stop on any store: its time passes, another takes over, and whoever wakes finds out."""
    url = f"sqlite:///{tmp_path}/leases.db"
    with leasehold.connect(url) as hold, leasehold.connect(url) as other:
        lease = acquired(hold.lock("job", ttl=0.3).acquire())
        lost = lease.lost
        with freeze(lease):
            newer = acquired(other.lock("job").acquire(wait=10))
            assert lease.state == "held" and not lost.is_set()
        assert lost.wait(60) and lease.state == "lost" and newer.state == "held"


def test_a_frozen_coordinator_can_be_closed(hold: Leasehold, leasehold_store: StandInStore) -> None:
    """The end of a test does not wait for a thaw."""
    lease = acquired(hold.lock("job").acquire())
    freeze(lease)
    hold.close()
    assert nothing_left(leasehold_store, "job") and lease.state == "lost"


# ---------------------------------------------------------------- expire


def test_expire_tells_the_holder(hold: Leasehold, leasehold_store: StandInStore) -> None:
    """State, event, callback and reason, at once; and the lock is free."""
    lease = acquired(hold.lock("job").acquire())
    heard: list[LeaseLost] = []
    lease.on_lost(heard.append)
    event: threading.Event = lease.lost
    expire(lease)
    assert event.is_set() and [error.reason for error in heard] == ["expired"]
    assert lease.state == "lost" and nothing_left(leasehold_store, "job")


def test_expire_inside_a_body(hold: Leasehold) -> None:
    """Leaving the body raises LeaseLost, as it would in earnest."""
    with pytest.raises(LeaseLost), hold.lock("job") as lease:
        expire(lease)


async def test_expire_interrupts_a_body(async_hold: AsyncLeasehold) -> None:
    """In asyncio the body is cancelled at its next await."""
    reached = []

    async def work() -> None:
        async with async_hold.lock("job") as lease:
            expire(lease)
            reached.append(lease.lost.is_set())
            await asyncio.sleep(60)
            reached.append(False)

    with pytest.raises(LeaseLost) as info:
        await work()
    assert info.value.reason == "expired" and reached == [True]


def test_expire_spares_the_others(hold: Leasehold, connect_leasehold: Connect) -> None:
    """Time passes for all, but all the others are renewed meanwhile, also those of the same process."""
    lease, sister = (acquired(hold.lock("job", number).acquire()) for number in (1, 2))
    other = acquired(connect_leasehold().lock("job", 3, ttl="5s").acquire())
    expire(lease)
    assert (lease.state, sister.state, other.state) == ("lost", "held", "held")


def test_expire_lets_the_next_one_in(
    hold: Leasehold, connect_leasehold: Connect, leasehold_store: StandInStore
) -> None:
    """Whoever waits has the lock."""
    lease = acquired(hold.lock("job").acquire())
    with elsewhere(lambda: connect_leasehold().lock("job").acquire()) as result:
        until(lambda: look(leasehold_store, "job").queue, "it waits")
        expire(lease)
        assert look(leasehold_store, "job").holders[0].owner != lease.owner
        assert result()


def test_expire_of_a_frozen_lease(hold: Leasehold, leasehold_store: StandInStore) -> None:
    """Its time is over, and it learns so when it wakes."""
    lease = acquired(hold.lock("job").acquire())
    with freeze(lease):
        expire(lease)
        assert nothing_left(leasehold_store, "job") and lease.state == "held"
    assert lease.state == "lost"


def test_expire_again_changes_nothing(hold: Leasehold, leasehold_clock: TurnableClock) -> None:
    """What is lost is lost."""
    lease = acquired(hold.lock("job").acquire())
    expire(lease)
    at = leasehold_clock.now()
    expire(lease)
    assert lease.state == "lost" and leasehold_clock.now() == at


# ---------------------------------------------------------------- outage


def test_an_outage(hold: Leasehold, connect_leasehold: Connect, leasehold_clock: TurnableClock) -> None:
    """Nothing can be acquired; a lease is unsure, and held again when the store is back in time."""
    lease = acquired(hold.lock("job", ttl="30s").acquire())
    with outage(hold):
        with pytest.raises(StoreUnavailable):
            connect_leasehold().lock("other").acquire(wait=0)
        leasehold_clock.advance("15s")
        assert lease.state == "unsure"
    leasehold_clock.advance("2s")
    assert lease.state == "held"


def test_an_outage_that_lasts(hold: Leasehold, leasehold_clock: TurnableClock) -> None:
    """The holder must stop before its time is over, and is told why."""
    lease = acquired(hold.lock("job", ttl="30s").acquire())
    heard: list[str] = []
    lease.on_lost(lambda error: heard.append(error.reason))
    with outage(hold):
        leasehold_clock.advance("30s")
    assert lease.state == "lost" and heard == ["renewal_failed"]


def test_one_outage_inside_another(hold: Leasehold) -> None:
    """The store is back when the last is over."""
    with outage(hold):
        with outage(hold):
            pass
        with pytest.raises(StoreUnavailable):
            hold.lock("job").locked()
    assert hold.lock("job").locked() is False


def test_leaving_a_body_during_an_outage(
    hold: Leasehold, leasehold_store: StandInStore, leasehold_clock: TurnableClock
) -> None:
    """Nothing is raised: the release goes on in the background, and arrives when the store is back."""
    with ExitStack() as trouble:
        with hold.lock("job") as lease:
            trouble.enter_context(outage(hold))
        assert leasehold_store.expires_in("job", lease.owner) == 30
    leasehold_clock.advance("2s")
    assert nothing_left(leasehold_store, "job")


async def test_an_outage_in_asyncio(async_hold: AsyncLeasehold, leasehold_clock: TurnableClock) -> None:
    """The same, awaited."""
    lease = acquired(await async_hold.lock("job", ttl="30s").acquire())
    with outage(async_hold):
        with pytest.raises(StoreUnavailable):
            await async_hold.lock("other").acquire(wait=0)
        await leasehold_clock.advance_async("15s")
        assert lease.state == "unsure"
    await leasehold_clock.advance_async("2s")
    assert lease.state == "held"


# ---------------------------------------------------------------- wrong use


@each("call", [freeze, expire, outage])
@each("thing", [None, "job", 42])
def test_what_is_no_lease_is_refused(call: Callable[[Any], object], thing: object) -> None:
    """A lock that was busy gives None: the error says what came."""
    with pytest.raises(InvalidRequest, match=type(thing).__name__):
        call(thing)


def test_a_coordinator_cannot_expire(hold: Leasehold) -> None:
    """Only a lease has an end."""
    with pytest.raises(InvalidRequest, match="takes a lease, not Leasehold"):
        expire(hold)  # type: ignore[arg-type]  # that is the point


def test_a_released_lease_cannot_expire(hold: Leasehold, leasehold_clock: TurnableClock) -> None:
    """A test that expires what was given back tests nothing, and is told so."""
    lease = acquired(hold.lock("job").acquire())
    lease.release()
    at = leasehold_clock.now()
    with pytest.raises(InvalidRequest, match="released"):
        expire(lease)
    assert leasehold_clock.now() == at


@pytest.mark.parametrize("url", ["memory://", "sqlite:///leases.db"])
def test_time_on_a_real_store_cannot_be_turned(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """``expire`` and ``outage`` say what they need, and what helps there."""
    monkeypatch.chdir(tmp_path)
    with leasehold.connect(url) as hold:
        lease = acquired(hold.lock("trouble").acquire())
        for call in (expire, outage):
            with pytest.raises(InvalidRequest, match=r"needs a store for tests, not (memory|sqlite).*freeze"):
                call(lease)
        assert lease.state == "held"
