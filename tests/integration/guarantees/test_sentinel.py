"""What Redis behind Sentinels promises: each cell of its column, with real failovers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

import leasehold
from leasehold import StoreUnavailable
from leasehold._core.guarantee_table import TABLE
from tests.integration.guarantees.faults import backup, crash, evict, power_failure
from tests.support.guarantees import LONG, RESOURCE, Writer, claim, show, show_a_frozen_holder, show_a_killed_holder
from tests.support.servers.clock import WallClock
from tests.support.servers.proxy import Proxy
from tests.support.servers.redis import RedisServer
from tests.support.servers.sentinel import RedisSentinel


def set_clock(server: RedisServer, seconds: float) -> None:
    """Its wall clock is so much ahead, or behind."""
    assert isinstance(server.clock, WallClock)
    server.clock.set_off(seconds)


@pytest.fixture
def behind(redis_sentinel: RedisSentinel) -> RedisSentinel:
    """Nothing that is granted from now on reaches the replica."""
    redis_sentinel.cut_replication()
    return redis_sentinel


# ---------------------------------------------------------------- holders


def test_a_killed_holder(redis_sentinel: RedisSentinel) -> None:
    """The next is granted when the ttl is over."""
    show_a_killed_holder("sentinel", redis_sentinel.url)


def test_a_frozen_holder(redis_sentinel: RedisSentinel) -> None:
    """It has lost its lease when it goes on, and its late write is refused."""
    show_a_frozen_holder("sentinel", redis_sentinel.url)


# ---------------------------------------------------------------- another primary


def test_failover_with_the_link_cut(behind: RedisSentinel) -> None:
    """The new primary does not know the lease, and grants it again."""
    show("sentinel", "failover", behind.url, behind.kill_primary)


def test_a_primary_is_stopped_and_comes_back(behind: RedisSentinel) -> None:
    """Another is promoted meanwhile, and grants the lease again. The old one goes on, and is not believed."""
    old = behind.primary

    def stop() -> None:
        old.freeze()
        behind.await_another(old)

    show("sentinel", "server_pause", behind.url, stop, old.thaw)


def test_a_promoted_replica_whose_clock_is_behind(behind: RedisSentinel) -> None:
    """Its fences are lower: the guard refuses them until the coordinator has learnt the higher one."""

    def fail() -> None:
        set_clock(behind.replicas[0], -3600)
        behind.kill_primary()

    show("sentinel", "clock_back_and_loss", behind.url, fail)


@pytest.fixture
def old_side(behind: RedisSentinel) -> Iterator[tuple[str, list[Proxy]]]:
    """The Sentinels as a client sees them that is near the primary, through networks that can be cut."""
    with ExitStack() as stack:
        networks = [stack.enter_context(Proxy(port)) for _, port in behind.addresses]
        hosts = ",".join(f"127.0.0.1:{network.port}" for network in networks)
        yield f"redis+sentinel://{hosts}/{behind.service}/0", networks


def test_a_primary_is_cut_off_from_its_sentinels(behind: RedisSentinel, old_side: tuple[str, list[Proxy]]) -> None:
    """A client is cut off together with it, and both primaries grant. A later fence of the old one, whose clock is a
    little behind, is lower: it is refused. Without its replica the old one stops, where it is told to. When the network
    is whole again, there is one primary for all."""
    url, networks = old_side
    old, data = behind.primary, Writer()
    set_clock(old, -10)
    with leasehold.connect(url) as near, leasehold.connect(behind.url) as far:
        first = claim(near, ttl=LONG, renew=False).lease
        assert data.write(first)
        for network in networks:
            network.refuse()
            network.cut()
        behind.isolate(old)
        behind.replace(old)
        second = claim(far, ttl=LONG, renew=False).lease
        first.extend(LONG)
        assert second.remaining() > 0 < first.remaining() and data.write(second)
        first.release()
        third = claim(near, ttl=LONG, renew=False).lease
        assert third.remaining() > 0 < second.remaining() and third.fence < second.fence
        assert not data.write(third) and not data.write(first)
        assert old.ask("CONFIG SET min-replicas-to-write 1") == b"+OK\r\n"
        try:
            with pytest.raises(StoreUnavailable, match="too few replicas"):
                near.lock("another", ttl=LONG).acquire(wait=2)
        finally:
            assert old.ask("CONFIG SET min-replicas-to-write 0") == b"+OK\r\n"
        for network in networks:
            network.accept()
        behind.reunite(old)
        assert near.lock(RESOURCE).try_acquire() is None and far.lock(RESOURCE).locked()
        second.release()
        fourth = claim(near, ttl=LONG, renew=False).lease
        assert fourth.fence > second.fence and data.write(fourth) and not data.write(second)
    data.no_stale_write()
    assert data.unguarded != sorted(data.unguarded), "without a guard a stale write landed"
    assert TABLE["sentinel"]["partition"][:3] == ("lost", "lost", "holds")


# ---------------------------------------------------------------- crashes


def test_kill_9_of_a_primary_without_persistence(redis_sentinel: RedisSentinel) -> None:
    """It is back, and empty, before anybody has noticed."""
    primary = redis_sentinel.primary
    show("sentinel", "crash_none", redis_sentinel.url, lambda: crash(primary))


def test_kill_9_of_a_primary_between_two_snapshots(redis_sentinel: RedisSentinel) -> None:
    """It is back with its last snapshot, which lacks the lease."""
    primary = redis_sentinel.primary
    primary.client().save()
    show("sentinel", "crash_snapshot", redis_sentinel.url, lambda: crash(primary))


def test_kill_9_of_a_primary_under_appendfsync_everysec() -> None:
    """It is back without what was not on its disk yet."""
    with RedisSentinel(1, "--appendfsync", "everysec", appendonly=True) as service:
        show("sentinel", "crash_everysec", service.url, power_failure(service.primary))


def test_kill_9_of_a_primary_under_appendfsync_always() -> None:
    """Its disk has the lease, and the replica that takes over has not."""
    with RedisSentinel(1, "--appendfsync", "always", appendonly=True) as service:
        service.cut_replication()
        show("sentinel", "crash_always", service.url, service.kill_primary)


# ---------------------------------------------------------------- clocks and data of the primary


def test_the_clock_of_the_primary_is_set_forward(redis_sentinel: RedisSentinel) -> None:
    """The lease ends early on the server, and its holder does not know."""
    primary = redis_sentinel.primary
    show("sentinel", "clock_forward", redis_sentinel.url, lambda: set_clock(primary, LONG + 1))


def test_the_clock_of_the_primary_is_set_back(redis_sentinel: RedisSentinel) -> None:
    """The lease goes on, and the next one has a higher fence although the clock is behind."""
    primary = redis_sentinel.primary
    show("sentinel", "clock_back", redis_sentinel.url, lambda: set_clock(primary, -3600))


def test_a_lease_is_evicted_while_it_is_held(redis_sentinel: RedisSentinel) -> None:
    """The primary makes room with it, and its replica follows."""
    primary = redis_sentinel.primary
    show("sentinel", "eviction", redis_sentinel.url, lambda: evict(primary))


def test_flushall_on_the_primary(redis_sentinel: RedisSentinel) -> None:
    """There are two holders; the fence of the second is above that of the first, from the clock."""
    show("sentinel", "flush", redis_sentinel.url, redis_sentinel.primary.client().flushall)


def test_a_backup_is_put_back(redis_sentinel: RedisSentinel, tmp_path: Path) -> None:
    """On the primary, before anybody has noticed; the replica follows it."""
    show("sentinel", "restore", redis_sentinel.url, backup(redis_sentinel.primary, tmp_path))
