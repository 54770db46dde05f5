"""A rebuilder whose lease is lost: the result store decides whether its value counts, and its caller gets what does."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import pytest

from leasehold import AsyncLeasehold, Leasehold, LeaseLost
from leasehold.patterns.results import MemoryResultStore
from leasehold.patterns.single_flight.single_flight import shared_flights
from leasehold.testing import TurnableClock, expire, freeze, outage
from tests.support.waiting import until


def value_on(hold: Any) -> Any:
    """What stands on the results."""
    entry = hold._results.read("page:a")
    return None if entry is None else entry.text


def test_a_late_value_is_refused(hold: Leasehold, connect_leasehold: Any, leasehold_clock: TurnableClock) -> None:
    """A paused rebuilder does not overwrite what a newer one has written; its caller gets the newer value."""
    other = connect_leasehold()
    newer = other.single_flight("page", "{key}")(lambda key: "newer")

    def slow(key: str) -> str:
        with freeze(hold):
            leasehold_clock.advance("31s")
            assert newer("a") == "newer"
        return "late"

    assert hold.single_flight("page", "{key}")(slow)("a") == "newer"
    assert newer("a") == "newer"


def test_a_newer_one_is_still_at_work(hold: Leasehold, connect_leasehold: Any, leasehold_clock: TurnableClock) -> None:
    """There is no newer value yet, and ours counts no longer: LeaseLost, and nothing is written."""
    other = connect_leasehold()

    def slow(key: str) -> str:
        with freeze(hold):
            leasehold_clock.advance("31s")
            lease = other.lock("page", "a").acquire()
            other._results.open(lease)
        return "late"

    with pytest.raises(LeaseLost) as caught:
        hold.single_flight("page", "{key}")(slow)("a")
    assert caught.value.reason == "taken" and value_on(hold) is None


def test_a_late_value_that_nobody_has_overtaken(hold: Leasehold, leasehold_clock: TurnableClock) -> None:
    """The lease was over, but nobody newer has come to the result store: the value counts, and is nobody's error."""

    def slow(key: str) -> str:
        with freeze(hold):
            leasehold_clock.advance("31s")
        return "late"

    page = hold.single_flight("page", "{key}")(slow)
    assert page("a") == "late"
    assert value_on(hold) is not None and page("a") == "late"


def test_a_late_error_is_refused(hold: Leasehold, connect_leasehold: Any, leasehold_clock: TurnableClock) -> None:
    """Neither does an error overwrite a newer value; its caller gets that."""
    newer = connect_leasehold().single_flight("page", "{key}")(lambda key: "newer")

    def slow(key: str) -> str:
        with freeze(hold):
            leasehold_clock.advance("31s")
            newer("a")
        raise ValueError("late")

    assert hold.single_flight("page", "{key}", errors=60)(slow)("a") == "newer"
    assert newer("a") == "newer"


def test_a_function_that_notices(hold: Leasehold, connect_leasehold: Any, leasehold_clock: TurnableClock) -> None:
    """One that stops with lease.check() has failed with nothing that others should be told."""

    def slow(key: str, *, lease: Any) -> str:
        with freeze(hold):
            leasehold_clock.advance("31s")
        lease.check()
        return "never"

    with pytest.raises(LeaseLost):
        hold.single_flight("page", "{key}", lease_as="lease", errors=60)(slow)("a")
    assert value_on(hold) is None
    assert connect_leasehold().single_flight("page", "{key}", errors=60)(lambda key: "made")("a") == "made"


def test_a_late_forget_is_refused(hold: Leasehold, connect_leasehold: Any, leasehold_clock: TurnableClock) -> None:
    """Whoever was paused in forget() does not take away what is newer."""
    other = connect_leasehold()
    newer = other.single_flight("page", "{key}")(lambda key: "newer")
    page = hold.single_flight("page", "{key}")(lambda key: "older")
    page("a")
    results = hold._results

    class Paused(type(results)):  # type: ignore[misc] # a result store before which its process is paused
        def __init__(self) -> None:
            pass

        def open(self, lease: Any) -> Any:
            found = results.open(lease)
            with freeze(hold):
                leasehold_clock.advance("31s")
                newer.refresh("a")
            return found

        def write(self, *args: Any) -> Any:
            return results.write(*args)

    with pytest.raises(LeaseLost):
        hold.single_flight("page", "{key}", cache=Paused())(lambda key: "never").forget("a")
    assert newer("a") == "newer"


def test_followers_are_not_lost_with_their_leader(
    hold: Leasehold, connect_leasehold: Any, leasehold_clock: TurnableClock
) -> None:
    """LeaseLost is for who led; one of the others takes over."""
    from concurrent.futures import ThreadPoolExecutor
    from threading import Event

    inside, go, other = Event(), Event(), connect_leasehold()
    calls: list[str] = []

    def slow(key: str) -> str:
        calls.append(key)
        if len(calls) > 1:
            return "made"
        inside.set()
        assert go.wait(60)
        with freeze(hold):
            leasehold_clock.advance("31s")
            with other.lock("page", "a") as lease:
                other._results.open(lease)
        return "late"

    page = hold.single_flight("page", "{key}")(slow)
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(page, "a")
        assert inside.wait(60)
        second = pool.submit(page, "a")
        flights: Any = shared_flights(hold).flights
        until(lambda: any(one.done._cond._waiters for one in flights._flights.values()), "it follows")
        go.set()
        assert isinstance(first.exception(60), LeaseLost) or first.result() == "made"  # the other may be as quick
        assert second.result(60) == "made"


def test_a_leader_that_hangs_without_its_lease(hold: Leasehold, leasehold_clock: TurnableClock) -> None:
    """Nobody waits for the end of one whose lease was taken away: one of the others takes over, in its process too."""
    from concurrent.futures import ThreadPoolExecutor
    from threading import Event

    go, leases = Event(), []

    def slow(key: str, *, lease: Any) -> str:
        leases.append(lease)
        assert len(leases) > 1 or go.wait(60)
        return str(len(leases))

    page = hold.single_flight("page", "{key}", lease_as="lease")(slow)
    with ThreadPoolExecutor(2) as pool:
        hangs = pool.submit(page, "a")
        until(lambda: leases, "it hangs")
        second = pool.submit(page, "a")
        flights: Any = shared_flights(hold).flights
        until(lambda: any(one.done._cond._waiters for one in flights._flights.values()), "it follows")
        try:
            hold.evict("page:a", fence=leases[0].fence, reason="it hangs", delay=0, force=True)
            until(lambda: second.done() or turn(leasehold_clock), "it takes over")
            assert second.result() == "2"
        finally:
            go.set()
        assert hangs.result(60) == "2" and not flights._flights


def turn(clock: TurnableClock) -> bool:
    """A little, so that those who sleep look again."""
    clock.advance("0.5s")
    return False


def test_a_task_that_hangs_without_its_lease(async_hold: AsyncLeasehold, leasehold_clock: TurnableClock) -> None:
    """Nor for a task that does not stop when it is cancelled."""

    async def main() -> None:
        go, inside, leases = asyncio.Event(), asyncio.Event(), []

        async def slow(key: str, *, lease: Any) -> str:
            leases.append(lease)
            inside.set()
            while len(leases) == 1 and not go.is_set():
                with contextlib.suppress(asyncio.CancelledError):
                    await go.wait()
            return str(len(leases))

        page = async_hold.single_flight("page", "{key}", lease_as="lease")(slow)
        hangs, second = asyncio.create_task(page("a")), asyncio.create_task(page("a"))
        await asyncio.wait_for(inside.wait(), 60)
        await async_hold.evict("page:a", fence=leases[0].fence, reason="it hangs", delay=0, force=True)
        async with asyncio.timeout(60):
            while not second.done():
                turn(leasehold_clock)
                await asyncio.sleep(0.005)
        assert await second == "2"
        go.set()
        assert await hangs == "2"

    asyncio.run(main())


def test_followers_stay_with_a_leader_while_the_store_is_away(
    hold: Leasehold, leasehold_clock: TurnableClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its lease ends, because nobody can renew it: what it makes is theirs all the same."""
    from concurrent.futures import ThreadPoolExecutor
    from threading import Event

    go, leases = Event(), []

    def slow(key: str, *, lease: Any) -> str:
        leases.append(lease)
        assert go.wait(60)
        return "made"

    page = hold.single_flight("page", "{key}", lease_as="lease", cache=MemoryResultStore(clock=leasehold_clock))(slow)
    with ThreadPoolExecutor(2) as pool:
        calls = [pool.submit(page, "a") for _ in range(2)]
        flights: Any = shared_flights(hold).flights
        looks: list[Any] = []
        stay = flights._check_still_waiting

        def look(*args: Any) -> None:
            looks.append(args)
            stay(*args)

        until(lambda: leases and any(one.done._cond._waiters for one in flights._flights.values()), "it follows")
        try:
            with outage(hold):
                for _ in range(70):
                    turn(leasehold_clock)
                assert leases[0].state == "lost"
                monkeypatch.setattr(flights, "_check_still_waiting", look)
                until(lambda: len(looks) > 2 or turn(leasehold_clock), "it has looked around")
                assert not any(call.done() for call in calls)
                go.set()
                assert [call.result(60) for call in calls] == ["made"] * 2
        finally:
            go.set()


def test_what_went_wrong_is_told_with_the_loss(
    hold: Leasehold, connect_leasehold: Any, leasehold_clock: TurnableClock
) -> None:
    """The error of a function whose lease was taken meanwhile is behind the LeaseLost, and not forgotten."""
    other = connect_leasehold()

    def slow(key: str) -> str:
        with freeze(hold):
            leasehold_clock.advance("31s")
            with other.lock("page", "a") as lease:
                other._results.open(lease)
        raise ValueError("the reason")

    with pytest.raises(LeaseLost) as caught:
        hold.single_flight("page", "{key}")(slow)("a")
    assert caught.value.__cause__ is not None and repr(caught.value.__cause__.__cause__) == "ValueError('the reason')"


def test_tasks_are_cancelled(async_hold: AsyncLeasehold, connect_async_leasehold: Any) -> None:
    """On a loop the function is cancelled when its lease is lost; its caller gets LeaseLost."""
    ends: list[str] = []

    async def main() -> None:
        async def slow(key: str, *, lease: Any) -> str:
            expire(lease)
            try:
                await asyncio.sleep(3600)
            except asyncio.CancelledError:
                ends.append("cancelled")
                raise
            return "never"

        async def quick(key: str) -> str:
            return "newer"

        page = async_hold.single_flight("page", "{key}", lease_as="lease")(slow)
        with pytest.raises(LeaseLost):
            await page("a")
        assert ends == ["cancelled"]
        assert await connect_async_leasehold().single_flight("page", "{key}")(quick)("a") == "newer"

    asyncio.run(main())
