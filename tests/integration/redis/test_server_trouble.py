"""The server restarts, stands still or is paused: holders learn what they must, waiters get their grants."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from leasehold._core.policy import beat_every_ms
from tests.support.redis.stage import OWN_THREADS_ONLY, SLACK, Stage, give_back, losses, now
from tests.support.waiting import PATIENCE, until

pytestmark = pytest.mark.slow

Make = Callable[..., Stage]
TTL = KEPT = 1.5  # seconds: short, and still some tenths of one that the machine may stand still


def keep(number: int, hold: Any) -> Any:
    """One of several short leases of one party."""
    return hold.lock("kept", number, ttl=KEPT).acquire()


# ---------------------------------------------------------------- restarts


@pytest.mark.parametrize("way", ["kill", "restart"])
def test_a_restart_with_a_file(own_stage: Make, way: str) -> None:
    """The lease survives, and so do the places in the queue, in their order."""
    stage = own_stage(appendonly=True)
    party, lease = stage.acquire(ttl=3)  # long enough for a server to start on a busy machine
    waiting = stage.queue(2, ttl=3)
    before = stage.look.queue()
    if way == "kill":
        stage.server.kill()
        stage.server.start()
    else:
        stage.server.restart()
    assert stage.look.holder() == lease.owner and stage.look.queue() == before
    until(lambda: stage.listening(3), "everybody is back")
    assert lease.state in ("held", "unsure")
    give_back(party, lease)
    first, second = (turn.result(PATIENCE) for turn in waiting)
    assert [first.owner, second.owner] == before
    assert lease.fence < first.fence < second.fence


@OWN_THREADS_ONLY
def test_a_restart_without_a_file(own_stage: Make) -> None:
    """Everything is forgotten, and the holder is told before its time is over."""
    stage = own_stage()
    _, lease = stage.acquire(ttl=3)
    told = losses(lease)
    stage.server.kill()
    stage.server.start()
    until(lambda: bool(told), "it is told")
    at, error = told[0]
    assert error.reason == "deleted" and at < lease.deadline
    assert stage.look.holder() is None


def test_waiters_after_a_restart_without_a_file(own_stage: Make) -> None:
    """Each claims anew, is granted in turn, and has a fence above every one of before."""
    stage = own_stage()
    _, lease = stage.acquire(ttl=3)
    told = losses(lease)
    waiting = stage.queue(2, ttl=3)
    stage.server.kill()
    stage.server.start()
    fences = {turn.result(PATIENCE).fence for turn in waiting}
    assert len(fences) == 2 and min(fences) > lease.fence
    until(lambda: bool(told), "the holder is told")
    assert told[0][1].reason in ("deleted", "taken")


@OWN_THREADS_ONLY
def test_a_holder_bears_a_server_that_is_away(own_stage: Make) -> None:
    """Down for less than what remains: unsure meanwhile, and held when it is back with its data."""
    stage = own_stage(appendonly=True)
    _, lease = stage.acquire(ttl=4.5)
    stage.server.kill()
    until(lambda: lease.state == "unsure", "a renewal fails")
    stage.server.start()
    until(lambda: lease.state != "unsure", "another is tried")
    assert lease.state == "held" and stage.look.holder() == lease.owner
    stage.look.honest(lease)


# ---------------------------------------------------------------- standing still


@OWN_THREADS_ONLY
def test_a_server_that_stands_still_past_the_ttl(own_stage: Make) -> None:
    """Loss is told before the deadline, by a watchdog that waits for no reply; what arrives later revives nothing."""
    stage = own_stage()
    _, lease = stage.acquire(ttl=3.6)
    told = losses(lease)
    until(lambda: stage.listening(2), "the watchdog is connected")
    stage.server.freeze()
    until(lambda: bool(told), "it is told")
    at, error = told[0]
    assert at < lease.deadline and error.reason == "renewal_failed"
    time.sleep(max(lease.deadline - now(), 0) + 0.1)
    stage.server.thaw()
    _, successor = stage.acquire(ttl=30)
    assert successor.fence > lease.fence and stage.look.holder() == successor.owner
    assert lease.state == "lost"


def test_waiters_of_a_server_that_stands_still(own_stage: Make) -> None:
    """It goes on: the lease of its holder is over, and whoever waits has it within a beat."""
    stage = own_stage()
    _, lease = stage.acquire(ttl=TTL)
    waiting = stage.queue(3, ttl=TTL)
    stage.server.freeze()
    until(lambda: now() > lease.deadline, "the lease is over")
    assert lease.state == "lost"
    stage.server.thaw()
    thawed = now()
    turns = [turn.result(PATIENCE) for turn in waiting]
    assert min(turn.at for turn in turns) - thawed < beat_every_ms(round(TTL * 1000)) / 1000 + SLACK
    fences = [turn.fence for turn in sorted(turns, key=lambda turn: turn.at)]
    assert [lease.fence, *fences] == sorted({lease.fence, *fences})


def test_client_pause(own_stage: Make) -> None:
    """Everybody waits for the server for a while: nobody fails, nobody loses what he holds."""
    stage = own_stage()
    party, lease = stage.acquire(ttl=2.4)
    told = losses(lease)
    until(lambda: now() > lease.deadline - 1.8, "the next renewal is near, which is due after a third")
    begun = now()
    stage.look.client.client_pause(400)
    _, another = stage.party(), stage.party().do(lambda hold: hold.lock("other", ttl=3).acquire(wait=PATIENCE))
    assert 0.3 < now() - begun < 0.4 + SLACK and another.state == "held"
    until(lambda: lease.state == "held", "a renewal is answered")
    assert told == [] and party.do(lambda _: lease.release()) is True
    stage.look.honest(another)


# ---------------------------------------------------------------- scripts


def test_script_flush_at_any_time(own_stage: Make) -> None:
    """The server forgets its scripts again and again: nobody notices, the watchdog's batches neither."""
    stage = own_stage()
    keeper = stage.party()
    kept = [keeper.do(partial(keep, number)) for number in range(5)]
    parties = [stage.party() for _ in range(3)]
    fences, end = [0], max(lease.deadline for lease in kept) + 2 * KEPT
    while min(lease.deadline for lease in kept) < end or len(fences) <= 15:
        if any(lease.state == "lost" for lease in kept):
            break
        stage.look.client.script_flush()
        futures = [party.within(lambda hold: hold.lock("job", ttl=5), lambda lease: lease.fence) for party in parties]
        stage.look.client.script_flush()
        fences += sorted(future.result(PATIENCE) for future in futures)
    assert fences == sorted(set(fences)) and len(fences) > 15
    assert [lease.state for lease in kept] == ["held"] * 5, "more than twice their ttl"
    for lease in kept:
        stage.look.honest(lease)
