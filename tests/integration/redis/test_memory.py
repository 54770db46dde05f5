"""A server without memory refuses in words, and lets go of nothing that is held; one that evicts is warned of."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

import leasehold
from leasehold import StoreUnavailable
from leasehold.stores.redis import RedisStore
from tests.support.redis.stage import Stage, losses
from tests.support.servers.redis import EVERY, RedisServer
from tests.support.waiting import PATIENCE, until

pytestmark = pytest.mark.slow


@pytest.fixture(params=EVERY, ids=lambda find: find.__name__)
def stage(request: pytest.FixtureRequest, own_redis: Callable[..., RedisServer]) -> Iterator[Stage]:
    """Each server, because each has its own idea of what a script may do without memory."""
    stage = Stage("sync", own_redis(executable=request.param()))
    yield stage
    stage.look.client.config_set("maxmemory", 0)
    stage.close()


def give_back(lease: Any, _: Any) -> Any:
    """A party's last step."""
    return lease.release()


def fill(stage: Stage) -> None:
    """No memory is left from here on."""
    stage.look.client.config_set("maxmemory", 1)


@pytest.mark.parametrize("flavour", ["sync", "asyncio"])
def test_no_memory_for_a_new_lease(stage: Stage, flavour: str) -> None:
    """StoreUnavailable that says what is wrong; nothing is left, and it works again when there is memory."""
    party = stage.party(flavour=flavour)
    party.do(lambda hold: hold.lock("warm").locked())
    fill(stage)
    with pytest.raises(StoreUnavailable, match="maxmemory") as info:
        party.do(lambda hold: hold.lock("job", ttl=30).acquire(wait=0))
    assert info.value.resource == "job" and stage.look.leftovers() == []
    with pytest.raises(StoreUnavailable, match="maxmemory"):
        party.do(lambda hold: hold.lock("job", ttl=30).acquire(wait=5))
    stage.look.client.config_set("maxmemory", 0)
    assert party.do(lambda hold: hold.lock("job", ttl=30).acquire(wait=0)).state == "held"


def test_what_is_held_is_kept_and_given_back(stage: Stage) -> None:
    """Renewals, alone and in batches, extend and release all work without memory."""
    party, lease = stage.acquire(ttl=1.5)
    others = [
        party.do(lambda hold: hold.lock("b", ttl=1.5).acquire()),
        party.do(lambda h: h.lock("c", ttl=5).acquire()),
    ]
    told = losses(lease)
    fill(stage)
    first = lease.deadline
    until(lambda: lease.deadline > first + 0.9, "it is renewed several times")
    assert told == [] and [one.state for one in (lease, *others)] == ["held"] * 3
    party.do(lambda _: lease.extend(5))
    stage.look.honest(lease)
    assert [party.do(partial(give_back, one)) for one in (lease, *others)] == [True] * 3
    assert stage.look.leftovers() == []


def test_whoever_waits_is_granted(stage: Stage) -> None:
    """The queue moves on without memory: by a release, and by the end of a lease that nobody gives back."""
    party, lease = stage.acquire(ttl=1.5)
    turns = stage.queue(2, ttl=1.5)
    fill(stage)
    assert party.do(lambda _: lease.release()) is True
    first, second = (turn.result(PATIENCE) for turn in turns)
    assert lease.fence < first.fence < second.fence


def test_whoever_waits_is_granted_after_a_crash(stage: Stage) -> None:
    """A holder that is not renewed: its lease ends and the next has it, without memory."""
    _, lease = stage.acquire(ttl=1.5, renew=False)
    (turn,) = stage.queue(1, ttl=1.5)
    fill(stage)
    assert turn.result(PATIENCE).fence > lease.fence


def test_whoever_gives_up_leaves_the_queue(stage: Stage) -> None:
    """A wait that ends without memory leaves no place behind."""
    stage.acquire(ttl=30)
    waiter = stage.connected()
    waiting = waiter.start(lambda hold: hold.lock("job", ttl=3).acquire(wait=2))
    until(lambda: len(stage.look.queue()) == 1, "it waits")
    fill(stage)
    assert waiting.result(PATIENCE) is None
    until(lambda: stage.look.queue() == [], "its place is gone")


# ---------------------------------------------------------------- eviction


def test_an_evicting_policy_is_warned_of_once(
    own_redis: Callable[..., RedisServer], caplog: pytest.LogCaptureFixture
) -> None:
    """A server that may delete locks is named in the log, once for each store, however many connections it has."""
    server = own_redis(None, "--maxmemory", "50mb", "--maxmemory-policy", "allkeys-lru")
    caplog.set_level(logging.WARNING)
    with leasehold.connect(server.url) as hold:
        for number in range(3):
            thread = threading.Thread(target=lambda n=number: hold.lock("job", n, ttl=5).acquire())
            thread.start()
            thread.join(PATIENCE)
        store = hold._engine.store
        assert isinstance(store, RedisStore)
        until(lambda: store._watchdog._connection._socket is not None, "the watchdog is connected")
    warnings = [record.getMessage() for record in caplog.records if "maxmemory-policy" in record.getMessage()]
    assert len(warnings) == 1 and "allkeys-lru" in warnings[0]


@pytest.mark.parametrize("options", [(), ("--maxmemory", "50mb"), ("--maxmemory-policy", "allkeys-lru")])
def test_a_safe_policy_is_not_warned_of(
    own_redis: Callable[..., RedisServer], caplog: pytest.LogCaptureFixture, options: tuple[str, ...]
) -> None:
    """noeviction, or no limit at all: nothing to say."""
    with leasehold.connect(own_redis(None, *options).url) as hold, hold.lock("job", ttl=5):
        pass
    assert "maxmemory-policy" not in caplog.text
