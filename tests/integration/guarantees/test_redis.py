"""What one Redis promises: each cell of its column on a real server, with the fault itself."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import leasehold
from tests.integration.guarantees.faults import backup, crash, evict, power_failure
from tests.support.guarantees import LONG, claim, show, show_a_frozen_holder, show_a_killed_holder
from tests.support.servers.clock import WallClock
from tests.support.servers.proxy import Proxy
from tests.support.servers.redis import RedisServer

Start = Callable[..., RedisServer]


def held(server: RedisServer, kind: str) -> bool:
    """Whether somebody holds it, as a new client finds it."""
    with leasehold.connect(server.url) as hold:
        return hold.lock(kind).locked()


# ---------------------------------------------------------------- holders


def test_a_killed_holder(own_redis: Start) -> None:
    """The next is granted when the ttl is over."""
    show_a_killed_holder("redis", own_redis().url)


def test_a_frozen_holder(own_redis: Start) -> None:
    """It has lost its lease when it goes on, and its late write is refused."""
    show_a_frozen_holder("redis", own_redis().url)


# ---------------------------------------------------------------- crashes


def test_kill_9_without_persistence(own_redis: Start) -> None:
    """Everything is gone: there are two holders."""
    server = own_redis()
    show("redis", "crash_none", server.url, lambda: crash(server))


def test_kill_9_between_two_snapshots(own_redis: Start) -> None:
    """What was granted before the last snapshot is kept; what was granted after it has two holders."""
    server = own_redis()
    with leasehold.connect(server.url) as hold:
        kept = hold.lock("kept", ttl=LONG, renew=False).acquire()
        server.client().save()
        show("redis", "crash_snapshot", server.url, lambda: crash(server))
        assert kept and held(server, "kept")


def test_kill_9_and_a_cut_tail_under_appendfsync_everysec(own_redis: Start) -> None:
    """kill -9 loses nothing. A power failure loses what was not on the disk yet, and there are two holders."""
    server = own_redis(None, "--appendfsync", "everysec", appendonly=True)
    with leasehold.connect(server.url) as hold:
        kept = hold.lock("kept", ttl=LONG, renew=False).acquire()
        fail = power_failure(server)

        def lose() -> None:
            crash(server)
            assert held(server, "report"), "kill -9 alone lost a grant"
            fail()

        show("redis", "crash_everysec", server.url, lose)
        assert kept and held(server, "kept")


def test_kill_9_under_appendfsync_always(own_redis: Start) -> None:
    """The lease is still held, and goes on being renewed."""
    server = own_redis(None, "--appendfsync", "always", appendonly=True)
    show("redis", "crash_always", server.url, lambda: crash(server))


# ---------------------------------------------------------------- it cannot be reached


def test_the_server_stands_still(own_redis: Start) -> None:
    """Nothing is granted until it goes on, and by then the holder has stopped."""
    server = own_redis()
    show("redis", "server_pause", server.url, server.freeze, server.thaw)


def test_the_network_is_cut(own_redis: Start) -> None:
    """Neither the holder nor anybody else reaches it; nobody is told that a connection is gone."""
    with Proxy(own_redis().port) as network:

        def heal() -> None:
            network.release()
            network.cut()

        show("redis", "partition", network.url, network.blackhole, heal)


# ---------------------------------------------------------------- clocks


def test_the_clock_is_set_forward_under_a_holder(own_redis: Start) -> None:
    """The lease ends early on the server, and its holder does not know."""
    clock = WallClock()
    server = own_redis(clock=clock)
    show("redis", "clock_forward", server.url, lambda: clock.set_off(LONG + 1))


def test_the_clock_is_set_back_under_a_holder(own_redis: Start) -> None:
    """The lease goes on, and the next one has a higher fence although the clock is behind."""
    clock = WallClock()
    server = own_redis(clock=clock)
    show("redis", "clock_back", server.url, lambda: clock.set_off(-3600))


def test_wiped_while_the_clock_is_behind(own_redis: Start) -> None:
    """Two holders, and the second has the lower fence: the guard refuses it, and accepts the one that it takes next."""
    clock = WallClock()
    server = own_redis(clock=clock)

    def lose() -> None:
        clock.set_off(-3600)
        server.client().flushall()

    show("redis", "clock_back_and_loss", server.url, lose)


# ---------------------------------------------------------------- data that is gone


def test_a_lease_is_evicted_while_it_is_held(own_redis: Start) -> None:
    """Other data fills the memory, and the server makes room."""
    server = own_redis()
    show("redis", "eviction", server.url, lambda: evict(server))


def test_flushall_under_a_holder(own_redis: Start) -> None:
    """There are two holders; the fence of the second is above that of the first, from the clock."""
    server = own_redis()
    show("redis", "flush", server.url, server.client().flushall)


def test_a_backup_is_put_back(own_redis: Start, tmp_path: Path) -> None:
    """What was granted after the backup is unknown, although the server lost nothing by itself."""
    server = own_redis()
    with leasehold.connect(server.url) as hold:
        claim(hold, ttl=LONG).lease.release()  # the backup has a fence of this resource
    show("redis", "restore", server.url, backup(server, tmp_path))
