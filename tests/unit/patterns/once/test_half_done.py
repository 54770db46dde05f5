"""What has happened stays happened: stores that fail after the effect, results that no result store takes, lost
leases."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import leasehold
from leasehold import Backoff
from leasehold.errors import InvalidRequest, LeaseLost, OutcomeUnknown, StaleOwner, StoreUnavailable
from leasehold.patterns import KeyReused, ResultNotKept
from leasehold.testing import TurnableClock, expire, freeze
from tests.support.patterns.once.broken import BrokenResultStore, SlowResultStore, done, failing
from tests.support.patterns.once.stage import Stage
from tests.support.waiting import PATIENCE

NAME = ("payment", "{request_id}")


@pytest.fixture
def broken(near: Stage) -> BrokenResultStore:
    """Where both flavours of this test keep their results."""
    results = BrokenResultStore()
    near.results = near.rival_results = results
    return results


def paying(paid: list[str], result: Any = "paid") -> Callable[[str], Any]:
    """Work that is counted."""

    def pay(request_id: str) -> Any:
        paid.append(request_id)
        return result

    return pay


@pytest.mark.slow
@pytest.mark.parametrize("error", [StoreUnavailable("away"), OutcomeUnknown("no reply")], ids=["away", "unknown"])
def test_a_result_store_that_fails_for_a_moment(near: Stage, broken: BrokenResultStore, error: Exception) -> None:
    """The result is written again until it is there: it runs once, and nobody hears of it."""
    paid: list[str] = []
    broken.before = failing(error, times=3)
    pay = near.decorated(paying(paid), *NAME)
    assert pay("r-1") == pay("r-1") == "paid"
    assert paid == ["r-1"]


def test_a_reply_that_is_lost(near: Stage, broken: BrokenResultStore) -> None:
    """What was written and is not known to be is written again, by the same holder."""
    paid: list[str] = []
    broken.after = failing(OutcomeUnknown("no reply"), times=2)
    pay = near.decorated(paying(paid), *NAME)
    assert pay("r-1") == pay("r-1") == "paid"
    assert paid == ["r-1"] and len([one for one in broken.written if done(one)]) == 3


@pytest.mark.slow
def test_a_result_store_that_stays_away(near: Stage, broken: BrokenResultStore) -> None:
    """It is tried for a ttl at most; then the caller is told that it ran and that nobody knows. The next may run it."""
    paid: list[str] = []
    broken.before = failing(StoreUnavailable("away"))
    pay = near.decorated(paying(paid), *NAME, ttl=0.3)
    with pytest.raises(OutcomeUnknown, match=r"payment ran.*may run it again") as caught:
        pay("r-1")
    assert isinstance(caught.value.__cause__, StoreUnavailable) and caught.value.resource == "payment:r-1"
    broken.before = failing(StoreUnavailable("away"), times=0)
    assert near.decorated(paying(paid), *NAME)("r-1") == "paid" and paid == ["r-1", "r-1"]


def test_a_result_store_that_is_away_before_it_begins(near: Stage, broken: BrokenResultStore) -> None:
    """Nothing runs, the error is the store's, and the lease is given back."""
    paid: list[str] = []
    broken.before = failing(StoreUnavailable("away"), times=1, when=lambda text: True)
    pay = near.decorated(paying(paid), *NAME)
    with pytest.raises(StoreUnavailable):
        pay("r-1")
    assert paid == [] and not near.rival.lock("payment", "r-1").locked()
    assert pay("r-1") == "paid"


@pytest.mark.parametrize("errors", [(), (KeyError,)], ids=["freed", "stored"])
def test_the_error_of_the_work_stays(
    near: Stage, broken: BrokenResultStore, errors: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The result store fails while the key is freed, or the error stored: what is raised is the work's own error."""
    monkeypatch.setattr("leasehold.patterns.once.key.RETRIES", Backoff(base=0.001, cap=0.001, attempts=3))

    def fails(request_id: str) -> None:
        raise KeyError("of the work")

    broken.before = failing(StoreUnavailable("away"), when=lambda text: text is None or done(text))
    with pytest.raises(KeyError, match="of the work") as caught:
        near.decorated(fails, *NAME, errors=errors)("r-1")
    assert any("besides" in note for note in caught.value.__notes__)
    assert not near.rival.lock("payment", "r-1").locked()


def test_a_result_store_that_takes_no_such_text(
    near: Stage, broken: BrokenResultStore, caplog: pytest.LogCaptureFixture
) -> None:
    """Its caller gets the result. It is known that it ran, and no more: it does not run again."""
    paid: list[str] = []
    broken.before = failing(InvalidRequest("too long"), when=lambda text: done(text) and "xxx" in str(text))
    pay = near.decorated(paying(paid, "x" * 100), *NAME)
    assert pay("r-1") == "x" * 100 and "too long" in caplog.text
    with pytest.raises(ResultNotKept):
        pay("r-1")
    assert paid == ["r-1"]


@pytest.mark.slow
def test_a_result_store_that_hangs_up_on_a_large_text(
    near: Stage, broken: BrokenResultStore, caplog: pytest.LogCaptureFixture
) -> None:
    """As a database does with what is larger than its packets: after a ttl it is kept that it ran, and it does not run
    again, time after time."""
    paid: list[str] = []
    broken.before = failing(StoreUnavailable("gone away"), when=lambda text: text is not None and len(text) > 1 << 20)
    pay = near.decorated(paying(paid, "x" * (1 << 20)), *NAME, ttl=1.5)
    assert len(pay("r-1")) == 1 << 20 and "could not be kept: gone away" in caplog.text
    with pytest.raises(ResultNotKept):
        pay("r-1")
    assert paid == ["r-1"]


def test_a_result_that_is_too_large(near: Stage) -> None:
    """The same where no result store would take it, before it is sent."""
    paid: list[str] = []
    pay = near.decorated(paying(paid, "x" * (17 << 20)), *NAME)
    assert len(pay("r-1")) == 17 << 20
    with pytest.raises(ResultNotKept):
        pay("r-1")
    assert paid == ["r-1"]


@pytest.mark.parametrize("result", [lambda: None, object(), {"a": {1, memoryview(b"")}}, {(1, object()): 3}, "\ud800"])
def test_results_that_json_cannot_write(near: Stage, result: Any) -> None:
    """The first caller gets it. Then each is told by its type; the key is done and not in use."""
    pay = near.decorated(paying([], result), *NAME)
    assert pay("r-1") is result
    with pytest.raises(ResultNotKept, match=type(result).__name__):
        pay("r-1")
    assert not near.rival.lock("payment", "r-1").locked()


# ---------------------------------------------------------------- the lease is lost while it runs


@pytest.fixture
def clock(leasehold_clock: TurnableClock) -> TurnableClock:
    """Of the coordinators below."""
    return leasehold_clock


def test_nobody_came_after_a_lost_lease(hold: leasehold.Leasehold) -> None:
    """On threads the work runs on; its result is stored when no newer fence was presented, and returned."""

    @hold.once(*NAME, lease_as="lease")
    def pay(request_id: str, *, lease: leasehold.Lease) -> str:
        expire(lease)
        assert lease.state == "lost"
        return "paid"

    assert pay("r-1") == pay("r-1") == "paid"


def test_a_lost_lease_and_a_stored_result(hold: leasehold.Leasehold) -> None:
    """The same by hand; and whoever only looked under a lease that ended just then has seen what there is."""
    results = BrokenResultStore()
    once = hold.once("payment", "r-1", store=results)
    with once.begin() as key:
        assert key.lease is not None
        expire(key.lease)
        key.complete("paid")
    real = results.open

    def look(lease: Any) -> Any:
        found = real(lease)
        expire(lease)
        return found

    results.open, results.read = look, lambda resource: None  # type: ignore[method-assign]  # it comes just after the look
    with once.begin() as key:
        assert key.done and key.result == "paid"


def test_a_frozen_one_is_refused(
    hold: leasehold.Leasehold, connect_leasehold: Callable[..., leasehold.Leasehold], clock: TurnableClock
) -> None:
    """It slept past its ttl and believes that it holds: what it did is not stored, and the other's stays."""
    other = connect_leasehold()

    @hold.once(*NAME, lease_as="lease")
    def pay(request_id: str, *, lease: leasehold.Lease) -> str:
        with freeze(lease):
            clock.advance("31s")
            assert other.once(*NAME).call(lambda request_id: "second", "r-1") == "second"
            assert lease.state == "held"
        return "first"

    with pytest.raises(StaleOwner) as caught:
        pay("r-1")
    assert caught.value.resource == "payment:r-1"
    assert pay("r-1") == "second"


def test_the_error_of_a_late_one_stays(
    hold: leasehold.Leasehold, connect_leasehold: Callable[..., leasehold.Leasehold], clock: TurnableClock
) -> None:
    """It fails after somebody followed it: its own error is raised, and the other's result is not taken away."""
    other = connect_leasehold()

    @hold.once(*NAME, lease_as="lease")
    def pay(request_id: str, *, lease: leasehold.Lease) -> str:
        with freeze(lease):
            clock.advance("31s")
            other.once(*NAME).call(lambda request_id: "second", "r-1")
        raise KeyError("of the work")

    with pytest.raises(KeyError, match="of the work"):
        pay("r-1")
    assert pay("r-1") == "second"


async def test_the_task_of_a_lost_lease(async_hold: leasehold.AsyncLeasehold) -> None:
    """In asyncio it is cancelled, its caller is told LeaseLost, and the next takes over and knows that one began."""
    paid: list[str] = []

    @async_hold.once(*NAME, lease_as="lease")
    async def pay(request_id: str, *, lease: leasehold.AsyncLease) -> str:
        paid.append(request_id)
        await asyncio.to_thread(expire, lease)
        await asyncio.sleep(30)
        return "never"

    with pytest.raises(LeaseLost):
        await pay("r-1")
    async with async_hold.once("payment", "r-1").begin() as key:
        assert key.interrupted and not key.done
        await key.complete("second")
    assert await pay("r-1") == "second" and paid == ["r-1"]


def test_overtaken_before_it_began(
    hold: leasehold.Leasehold, connect_leasehold: Callable[..., leasehold.Leasehold], clock: TurnableClock
) -> None:
    """It had the lease and slept before it could look: nothing had begun, so it looks again and gets the result."""
    results, other, looks = BrokenResultStore(), connect_leasehold(), []
    real = results.open

    def slow(lease: Any) -> Any:
        looks.append(lease)
        if len(looks) == 1:
            with freeze(lease):
                clock.advance("31s")
                assert other.once(*NAME, store=results).call(lambda request_id: "second", "r-1") == "second"
        return real(lease)

    results.open = slow  # type: ignore[method-assign]  # as if the process were paused there
    assert hold.once(*NAME, store=results).call(paying([]), "r-1") == "second"
    assert len(looks) == 3


def test_the_fence_is_presented_before_the_look(
    hold: leasehold.Leasehold, connect_leasehold: Callable[..., leasehold.Leasehold], clock: TurnableClock
) -> None:
    """Who has looked and found nothing done is about to run: from that look on the one before can store nothing, so
    that there are never two results (trap 46)."""
    results, other = BrokenResultStore(), connect_leasehold()
    key = hold.once("payment", "r-1", store=results).begin()
    real, looks = results.open, []

    def look(lease: Any) -> Any:
        found = real(lease)
        looks.append(lease.fence)
        if len(looks) == 2:
            with pytest.raises(StaleOwner):
                key.complete("late")
        return found

    def work() -> None:
        with key:
            assert key.lease is not None
            with freeze(key.lease):
                clock.advance("31s")
                assert other.once(*NAME, store=results).call(paying([], "second"), "r-1") == "second"

    results.open = look  # type: ignore[method-assign]  # the moment after it
    with pytest.raises(LeaseLost):
        work()
    assert len(looks) == 2 and looks[1] > looks[0]
    assert hold.once("payment", "r-1", store=results).call(lambda: "third") == "second"


def test_always_overtaken(hold: leasehold.Leasehold) -> None:
    """It is not tried for ever: whoever is refused again and again is told so, and nothing ran."""
    results = BrokenResultStore()
    paid: list[str] = []

    class Ahead:
        """A lease from a year ahead."""

        resource, owner = "payment:r-1", "somebody"

        def __init__(self) -> None:
            self.fence = 2**62

    results.write(Ahead(), None, "1h")
    with pytest.raises((StaleOwner, InvalidRequest)):
        hold.once(*NAME, store=results).call(paying(paid), "r-1")
    assert paid == []


# ---------------------------------------------------------------- cancelled, interrupted


async def test_cancelled_at_work(async_hold: leasehold.AsyncLeasehold) -> None:
    """The key is given up at once, and stays known as one that somebody began."""
    begun = asyncio.Event()

    @async_hold.once(*NAME)
    async def pay(request_id: str) -> None:
        begun.set()
        await asyncio.sleep(30)

    task = asyncio.create_task(pay("r-1"))
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    async with async_hold.once("payment", "r-1", wait=0).begin() as key:
        assert key.interrupted


async def test_cancelled_while_it_is_stored(async_hold: leasehold.AsyncLeasehold) -> None:
    """It has happened: the outcome is stored first, and then the cancellation goes on."""
    results, paid = SlowResultStore(), []

    @async_hold.once(*NAME, store=results)
    async def pay(request_id: str) -> str:
        paid.append(request_id)
        return "paid"

    task = asyncio.create_task(pay("r-1"))
    await results.reached.wait()
    task.cancel()
    await asyncio.sleep(0)
    results.go.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await pay("r-1") == "paid" and paid == ["r-1"]


async def test_lost_while_it_is_stored(async_hold: leasehold.AsyncLeasehold) -> None:
    """The result store has taken it under its fence: then it is the result, for its own caller too."""
    results, leases = SlowResultStore(), []

    @async_hold.once(*NAME, store=results, lease_as="lease")
    async def pay(request_id: str, *, lease: leasehold.AsyncLease) -> str:
        leases.append(lease)
        return "paid"

    task = asyncio.create_task(pay("r-1"))
    await results.reached.wait()
    await asyncio.to_thread(expire, leases[0])
    await leases[0].lost.wait()
    results.go.set()
    assert await task == "paid" and await pay("r-1") == "paid"
    assert len(leases) == 1


async def test_lost_while_the_result_store_is_away(async_hold: leasehold.AsyncLeasehold) -> None:
    """Nobody knows whether it is stored, and the caller is told that, not only that the lease is lost."""
    results, leases = SlowResultStore(), []
    results.before = failing(StoreUnavailable("away"))

    @async_hold.once(*NAME, store=results, lease_as="lease")
    async def pay(request_id: str, *, lease: leasehold.AsyncLease) -> str:
        leases.append(lease)
        return "paid"

    task = asyncio.create_task(pay("r-1"))
    await results.reached.wait()
    await asyncio.to_thread(expire, leases[0])
    await leases[0].lost.wait()
    results.go.set()
    with pytest.raises(OutcomeUnknown, match="payment ran"):
        await task


def test_interrupted_at_work(near: Stage) -> None:
    """Ctrl-C: it ends at once, and the next takes over at once."""
    calls: list[str] = []

    def work(request_id: str) -> str:
        calls.append(request_id)
        if len(calls) == 1:
            raise KeyboardInterrupt
        return "paid"

    once = near.rival.once(*NAME, wait=0)
    with pytest.raises(KeyboardInterrupt):
        once.call(work, "r-1")
    with once.begin(request_id="r-1") as key:
        assert key.interrupted
    assert once.call(work, "r-1") == "paid"


@pytest.mark.parametrize("away", [False, True], ids=["stored", "away"])
def test_interrupted_while_it_is_stored(hold: leasehold.Leasehold, away: bool) -> None:
    """Ctrl-C when it has happened: the outcome is stored first, and then the interrupt goes on; in one try, so that
    nobody waits for a store that is away."""
    results, paid, tries = BrokenResultStore(), list[str](), list[str | None]()

    def interrupt(text: str | None) -> None:
        if done(text):
            tries.append(text)
            if len(tries) == 1:
                raise KeyboardInterrupt
            if away:
                raise StoreUnavailable("away")

    results.before = interrupt
    once = hold.once(*NAME, store=results, wait=0)
    with pytest.raises(KeyboardInterrupt):
        once.call(paying(paid), "r-1")
    assert len(tries) == 2
    with once.begin(request_id="r-1") as key:
        assert key.done is not away and key.interrupted is away


def test_the_result_is_kept_for_as_long_as_it_was_said(hold: leasehold.Leasehold, clock: TurnableClock) -> None:
    """``keep`` counts from when it is there; after that the key is as good as new, for another body too."""
    paid: list[str] = []

    @hold.once(*NAME, keep="1h", fingerprint="{body}")
    def pay(request_id: str, body: str) -> int:
        clock.advance("2h")
        paid.append(body)
        return len(paid)

    assert pay("r-1", "a") == 1
    clock.advance("59m")
    assert pay("r-1", "a") == 1
    clock.advance("2m")
    assert pay("r-1", "b") == 2


def test_that_it_runs_is_known_for_a_day(hold: leasehold.Leasehold, clock: TurnableClock) -> None:
    """However short ``keep`` is: another body is refused at once while it runs for hours."""
    once = hold.once("payment", "{request_id}", keep="1m", fingerprint="{body}")
    with once.begin(request_id="r-1", body="a"):
        for _ in range(60):
            clock.advance("8s")  # it is renewed meanwhile
        with pytest.raises(KeyReused):
            hold.once(*NAME, fingerprint="{body}", wait=0).begin(request_id="r-1", body="b").__enter__()


def test_work_that_hangs(
    hold: leasehold.Leasehold, connect_leasehold: Callable[..., leasehold.Leasehold], clock: TurnableClock
) -> None:
    """It is renewed for ``max_hold``, and not for ever: then the next takes over, and it can store nothing (trap 5)."""
    once = connect_leasehold().once(*NAME, wait=0)

    @hold.once(*NAME, max_hold="1m")
    def pay(request_id: str) -> str:
        for _ in range(10):  # and its last ttl
            clock.advance("10s")
        assert once.call(paying([], "second"), request_id) == "second"
        return "first"

    with pytest.raises((StaleOwner, LeaseLost)):
        pay("r-1")
    assert pay("r-1") == "second"


def test_one_that_waited_for_an_error(
    hold: leasehold.Leasehold, connect_leasehold: Callable[..., leasehold.Leasehold]
) -> None:
    """Who saw it run, and waited, and finds the key free, is not told that somebody was interrupted."""
    results, other = BrokenResultStore(), connect_leasehold()
    real, looks = results.read, []

    def look(resource: str) -> Any:
        found = real(resource)
        looks.append(found)
        if len(looks) == 2:
            running.set()
        return found

    def work() -> None:
        with hold.once("payment", "r-1", store=results).begin():
            begun.set()
            assert running.wait(PATIENCE)
            raise KeyError("of the work")

    running, begun = threading.Event(), threading.Event()
    results.read = look  # type: ignore[method-assign]  # to know when it was read
    with ThreadPoolExecutor(1) as pool:
        failed = pool.submit(work)
        assert begun.wait(PATIENCE)
        with other.once("payment", "r-1", store=results).begin() as key:
            assert looks[1] is not None and not key.interrupted
        assert isinstance(failed.exception(PATIENCE), KeyError)
