"""Keys that change behind the holder's back: it is told, before its time is over, and why."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from leasehold._core.ops import Evict, Evicted
from leasehold.stores.redis.protocol import keys
from tests.support.redis.stage import SLACK, THREADS_ONLY, Look, Stage, ask, losses, now
from tests.support.servers.clock import OneClock
from tests.support.waiting import PATIENCE, until

pytestmark = pytest.mark.slow

TTL = 1.8
OWNER, FENCE, *_ = KEYS = keys("job")


def delete(look: Look) -> None:
    """Somebody unlocks by hand."""
    assert look.client.delete(OWNER) == 1


def delete_all(look: Look) -> None:
    """Somebody tidies up."""
    assert look.client.delete(*KEYS) >= 2


def wipe(look: Look) -> None:
    """Somebody empties the server."""
    look.client.flushall()


def shorten(look: Look) -> None:
    """Somebody lets the key expire at once. Nobody can tell that from a deletion: its time was not over."""
    assert look.client.pexpire(OWNER, 1)
    until(lambda: not look.client.exists(OWNER), "it is gone")


def replace(look: Look) -> None:
    """Somebody unlocks by hand and locks as one does without a library."""
    delete(look)
    assert look.client.set(OWNER, "somebody", nx=True, px=30_000)


def overwrite(look: Look) -> None:
    """Somebody writes over it, with no end at all."""
    look.client.set(OWNER, "somebody")


@pytest.mark.parametrize(
    ("event", "reason"),
    [
        (delete, "deleted"),
        (delete_all, "deleted"),
        (wipe, "deleted"),
        (shorten, "deleted"),
        (replace, "taken"),
        (overwrite, "taken"),
    ],
)
@THREADS_ONLY
def test_the_next_renewal_finds_out(stage: Stage, event: Callable[[Look], None], reason: str) -> None:
    """Told with the right reason, a third of the ttl after the last confirmation, long before the deadline."""
    party, lease = stage.acquire(ttl=TTL)
    told = losses(lease)
    event(stage.look)
    until(lambda: bool(told), "it is told")
    at, error = told[0]
    assert error.reason == reason and error.fence == lease.fence and at < lease.deadline
    assert party.do(lambda _: lease.release()) is False
    assert stage.look.holder() == (None if reason == "deleted" else "somebody"), "nobody else's is touched"


@pytest.mark.parametrize(("event", "reason"), [(delete, "deleted"), (wipe, "deleted"), (replace, "taken")])
def test_a_release_finds_out(stage: Stage, event: Callable[[Look], None], reason: str) -> None:
    """Before any renewal: leaving the body raises LeaseLost with that reason."""
    left = stage.party().within(lambda hold: hold.lock("job", ttl=30), lambda _: event(stage.look))
    error: Any = left.exception(PATIENCE)
    assert error.reason == reason


def test_fences_grow_across_a_flush(stage: Stage) -> None:
    """FLUSHALL while somebody holds and others wait: all are granted anew, above every fence of before."""
    _, lease = stage.acquire(ttl=TTL)
    waiting = stage.queue(2, ttl=TTL)
    stage.look.client.flushall()
    fences = {turn.result(PATIENCE).fence for turn in waiting}
    assert len(fences) == 2 and min(fences) > lease.fence
    late = stage.party().do(lambda hold: hold.lock("job", ttl=TTL).acquire(wait=PATIENCE))
    assert late.fence > max(fences)


def test_fences_grow_when_the_clock_went_back(own_stage: Callable[..., Stage]) -> None:
    """A flush, and a clock that was set back an hour: whoever saw a higher fence asks for one above it."""
    clock = OneClock()
    stage = own_stage(clock=clock)
    party, lease = stage.acquire(ttl=30)
    assert party.do(lambda _: lease.release()) is True
    stage.look.client.flushall()
    clock.step_wall(-3600)
    again = party.do(lambda hold: hold.lock("job", ttl=30).acquire(wait=PATIENCE))
    assert again.fence > lease.fence


def test_an_expiry_behind_its_back(own_stage: Callable[..., Stage]) -> None:
    """The server's clock runs ahead of ours: by its count the time is over. By the holder's clock it is not, and the
    holder learns that its record is gone."""
    clock = OneClock()
    stage = own_stage(clock=clock)
    _, lease = stage.acquire(ttl=TTL)
    told = losses(lease)
    clock.step_wall(TTL)
    until(lambda: bool(told), "it is told")
    assert told[0][1].reason == "deleted" and told[0][0] < lease.deadline


# ---------------------------------------------------------------- evicted


def test_an_evicted_holder_is_told_by_a_push(stage: Stage) -> None:
    """Long before its next renewal, which would come after minutes; the door is closed to others meanwhile."""
    party, lease = stage.acquire(ttl=600)
    told = losses(lease)
    until(lambda: stage.listening(2), "the watchdog listens")
    reply = stage.other().do(lambda hold: ask(hold, Evict("job", lease.owner, lease.fence, "request")))
    assert isinstance(reply, Evicted) and reply.fence > lease.fence and reply.closed_ms > 500_000
    until(lambda: bool(told), "it is told")
    assert told[0][1].reason == "evicted"
    assert party.do(lambda _: lease.release()) is False
    assert stage.other().do(lambda hold: hold.lock("job").try_acquire()) is None


@THREADS_ONLY
def test_an_evicted_holder_whose_push_is_lost(stage: Stage) -> None:
    """Its watchdog is not connected when it happens: the next renewal says so, with the same reason."""
    _, lease = stage.acquire(ttl=TTL)
    told = losses(lease)
    until(lambda: stage.listening(2), "the watchdog listens")
    stage.proxy.refuse()
    stage.proxy.cut()
    evict = Evict("job", lease.owner, lease.fence, "request", delay_ms=0, force=True)
    stage.other().do(lambda hold: ask(hold, evict))
    stage.proxy.accept()
    until(lambda: bool(told), "it is told")
    assert told[0][1].reason == "evicted" and told[0][0] < lease.deadline


def test_a_waiter_behind_an_evicted_holder(stage: Stage) -> None:
    """With ``force`` and no delay the next in the queue has it at once, above the victim's fence."""
    _, lease = stage.acquire(ttl=30)
    (turn,) = stage.queue(1, ttl=30)
    evict = Evict("job", lease.owner, lease.fence, "request", delay_ms=0, force=True)
    sent = now()
    stage.other().do(lambda hold: ask(hold, evict))
    next_one = turn.result(PATIENCE)
    assert next_one.at - sent < SLACK and next_one.fence > lease.fence


@THREADS_ONLY
def test_records_that_nobody_can_read(stage: Stage) -> None:
    """Somebody writes over the records of a lease and of a waiter: everybody else goes on, and the holder is told."""
    party, lease = stage.acquire(ttl=TTL)
    told = losses(lease)
    record, _, queue, more, *_ = KEYS
    stage.look.client.set(record, "what is this", px=500)
    stage.look.client.rpush(queue, "nobody:1:x.1")
    stage.look.client.hset(more, "nobody:1:x.1", "nor this")
    for key in (queue, more):
        stage.look.client.pexpire(key, 30_000)
    other = stage.party()
    seen = other.do(lambda hold: hold.inspect("job"))
    assert seen.held and not seen.waiters
    until(lambda: bool(told), "the holder is told")
    assert other.do(lambda hold: hold.lock("job", ttl=TTL).acquire(wait=PATIENCE)).fence > lease.fence
    assert party.do(lambda _: lease.release()) is False
