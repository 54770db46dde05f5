"""Every wait has an end and costs next to nothing; no lease outlives its deadline unannounced."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from threading import Event, Thread
from typing import Any

import pytest

import leasehold
from leasehold import OutcomeUnknown, StoreUnavailable
from leasehold._core import claims
from leasehold._runtime.engine import Engine, _engines
from tests.support.redis.stage import HASTE, OWN_THREADS_ONLY, SLACK, THREADS_ONLY, Stage, losses, now
from tests.support.waiting import PATIENCE, until

pytestmark = pytest.mark.slow

Make = Callable[..., Stage]
Trouble = Callable[[Stage], AbstractContextManager[None]]
BUDGET = 0.3  # what a call may take at the end of a wait; a second in the product


def busy(seconds: float) -> float:
    """The share of one core that this process uses for a while."""
    begun = time.process_time()
    time.sleep(seconds)
    return (time.process_time() - begun) / seconds


# ---------------------------------------------------------------- waits


@contextmanager
def frozen(stage: Stage) -> Iterator[None]:
    """The server stands still."""
    stage.server.freeze()
    yield
    stage.server.thaw()
    time.sleep(0.1)  # what it was asked meanwhile is answered


@contextmanager
def gone(stage: Stage) -> Iterator[None]:
    """The server is not there."""
    stage.server.kill()
    yield
    stage.server.start()


@contextmanager
def well(stage: Stage) -> Iterator[None]:
    """Nothing is wrong with it."""
    yield


@pytest.mark.parametrize("server", [frozen, gone])
def test_a_waiter_whose_server_goes_away(own_stage: Make, server: Trouble, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its wait ends in time, by one call at most; it had a place in the queue, so nobody knows what became of it."""
    monkeypatch.setattr(claims, "LEAST_BUDGET_MS", BUDGET * 1000)
    stage = own_stage()
    stage.acquire(ttl=30, renew=False)
    waiter, wait = stage.connected(), 2.0
    begun = now()
    waiting = waiter.start(lambda hold: hold.lock("job", ttl=30).acquire(wait=wait))
    until(lambda: len(stage.look.queue()) == 1, "it waits")
    with server(stage):
        assert isinstance(waiting.exception(PATIENCE), OutcomeUnknown)
        assert wait <= now() - begun < wait + BUDGET + SLACK


@pytest.mark.usefixtures("hasty")
def test_giving_back_to_a_server_that_stands_still(own_stage: Make) -> None:
    """One call's time, then OutcomeUnknown; and the end of a body raises nothing."""
    stage = own_stage()
    party, lease = stage.acquire(ttl=30)
    inside = stage.party().within(lambda hold: hold.lock("other", ttl=30), lambda _: stage.server.freeze())
    inside.result(PATIENCE)
    begun = now()
    with pytest.raises(OutcomeUnknown):
        party.do(lambda _: lease.release())
    assert now() - begun < HASTE + SLACK
    stage.server.thaw()
    until(lambda: stage.look.leftovers() == [], "both are given back in the background")


def test_close_when_the_server_stands_still(own_stage: Make) -> None:
    """While somebody holds and somebody waits: closing takes a second or so, and whoever waits hears of it."""
    stage = own_stage()
    holder, lease = stage.acquire(ttl=30)
    waiter = stage.party()
    waiting = waiter.start(lambda hold: hold.lock("job", ttl=30).acquire())
    until(lambda: len(stage.look.queue()) == 1, "it waits")
    stage.server.freeze()
    begun = now()
    for party in (holder, waiter):
        closing: Any = party.hold.close()
        if closing is not None:
            asyncio.run_coroutine_threadsafe(closing, party.loop).result(PATIENCE)  # type: ignore[attr-defined]
    assert now() - begun < 3 + SLACK, "for both"
    stage.server.thaw()
    assert lease.state == "lost" and waiting.exception(PATIENCE) is not None


# ---------------------------------------------------------------- deadlines


def test_trap_23_a_slow_reply_counts_from_the_request(stage: Stage) -> None:
    """The reply takes a third of a second: that much of the lease is over when it comes. Renewals alike."""
    party = stage.party()
    assert party.do(lambda hold: hold.lock("job").locked()) is False
    stage.proxy.hold_replies()
    slow = party.start(lambda hold: hold.lock("job", ttl=10, renew=False).acquire())
    until(lambda: stage.look.holder() is not None, "it is granted")
    time.sleep(0.33)
    stage.proxy.release()
    lease = slow.result(PATIENCE)
    stage.look.honest(lease)
    stage.proxy.hold_replies()
    extended = party.start(lambda _: lease.extend(30))
    until(lambda: stage.look.left_ms() > 10_000, "it is extended")
    time.sleep(0.33)
    stage.proxy.release()
    extended.result(PATIENCE)
    assert lease.remaining() > 15
    stage.look.honest(lease)


@OWN_THREADS_ONLY
def test_a_renewal_takes_no_longer_than_its_budget(own_stage: Make) -> None:
    """A server that stands still: each try ends in time for another, and the loss is told at the margin."""
    stage = own_stage()
    _, lease = stage.acquire(ttl=3.6)
    told = losses(lease)
    until(lambda: stage.listening(2), "the watchdog is connected")
    stage.server.freeze()
    until(lambda: lease.state == "unsure", "the first try is over")
    assert lease.remaining() > 0.6, "there is time for another"
    until(lambda: bool(told), "it is told")
    margin = lease.deadline - told[0][0]
    assert 0 < margin <= 0.6 + 0.01
    stage.server.thaw()


@THREADS_ONLY
def test_a_loss_is_told_while_the_watchdog_connects(stage: Stage) -> None:
    """New connections get no answer: the watchdog has none yet, and tells in time."""
    party = stage.party()
    party.do(lambda hold: hold.lock("job").locked())
    stage.proxy.on_request = lambda chunk: "hold" if b"HELLO" in chunk else "pass"
    lease = party.do(lambda hold: hold.lock("job", ttl=3.6).acquire())
    told = losses(lease)
    until(lambda: bool(told), "it is told")
    assert told[0][0] < lease.deadline


@pytest.mark.parametrize(("renew", "ttl"), [(True, 1.5), (False, 1.0)])
@THREADS_ONLY
def test_a_short_lease_beside_a_stuck_renewal(stage: Stage, renew: bool, ttl: float) -> None:
    """The watchdog's connection is stuck in the renewal of a long lease, for half a second at most: a short one is
    renewed, or ends, on time."""
    party, _ = stage.acquire(ttl=3)
    stage.aim.hold("renew")
    until(lambda: stage.aim.seen["renew"] >= 1, "it is stuck")
    lease = party.do(lambda hold: hold.lock("short", ttl=ttl, renew=renew).acquire(wait=PATIENCE))
    told, first = losses(lease), lease.deadline
    until(lambda: bool(told) or lease.deadline > first, "it is renewed or lost")
    assert (told == []) if renew else (told[0][0] < lease.deadline + 1)


# ---------------------------------------------------------------- what waiting costs

MANY = 50


@pytest.mark.parametrize(
    ("protocol", "server"), [(2, well), (3, well), (3, frozen), (3, gone)], ids=["asking", "pushed", "frozen", "gone"]
)
def test_waiting_costs_next_to_nothing(own_stage: Make, protocol: int, server: Trouble) -> None:
    """Fifty wait in one process, by asking or for pushes, for a server that is well, stands still or is gone."""
    stage = own_stage()
    _, lease = stage.acquire(ttl=30)
    crowd = threads if stage.flavour == "sync" else tasks
    before = set(_engines)
    with crowd(f"{stage.url}?protocol={protocol}") as granted:
        until(lambda: len(stage.look.queue()) + here(before) == MANY, "all wait")
        with server(stage):
            share = busy(0.4)
    assert share < 0.3, f"{share:.0%} of a core"
    assert lease is not None
    assert not granted or server is gone, "a server that was gone has forgotten who holds"


def here(before: set[Engine]) -> int:
    """How many wait behind others of this process, of coordinators that were made since."""
    cohorts = [one for engine in set(_engines) - before for one in list(engine.cohorts.values())]
    return sum(len(cohort.waiting) for cohort in cohorts)


@contextmanager
def threads(url: str) -> Iterator[list[Any]]:
    """Fifty threads that wait until the coordinator is closed, and what they were granted."""
    hold, ended, granted = leasehold.connect(url), [], []

    def wait() -> None:
        with suppress(StoreUnavailable):
            granted.append(hold.lock("job", ttl=1.5).acquire())
        ended.append(True)

    crowd = [Thread(target=wait, daemon=True) for _ in range(MANY)]
    for one in crowd:
        one.start()
    yield granted
    hold.close()
    for one in crowd:
        one.join(PATIENCE)
    assert len(ended) == MANY


@contextmanager
def tasks(url: str) -> Iterator[list[Any]]:
    """Fifty tasks on one loop, in a thread, and what they were granted."""
    ended: list[bool] = []
    granted: list[Any] = []
    enough = Event()

    async def wait(hold: leasehold.AsyncLeasehold) -> None:
        with suppress(StoreUnavailable):
            granted.append(await hold.lock("job", ttl=1.5).acquire())
        ended.append(True)

    async def main() -> None:
        hold = leasehold.aio.connect(url)
        crowd = [asyncio.create_task(wait(hold)) for _ in range(MANY)]
        await asyncio.to_thread(enough.wait, PATIENCE)
        await hold.close()
        await asyncio.wait_for(asyncio.gather(*crowd), PATIENCE)

    thread = Thread(target=lambda: asyncio.run(main()), daemon=True)
    thread.start()
    yield granted
    enough.set()
    thread.join(PATIENCE)
    assert len(ended) == MANY
