"""What happens to a server that keeps leases, in one call each."""

from __future__ import annotations

import os
import re
import shutil
import time
from collections.abc import Callable
from email.utils import formatdate
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import leasehold
from leasehold import StoreUnavailable
from leasehold._core.types import Instant
from leasehold.stores.clock import SystemClock
from leasehold.stores.redis.protocol import keys
from leasehold.stores.redis.redlock.commands import MARKER
from tests.support.servers.link import Link, Stream
from tests.support.servers.proxy import Proxy
from tests.support.servers.redis import RedisServer
from tests.support.servers.redlock import RedlockNode, RedlockServers
from tests.support.waiting import until

HOUR = 3600.0  # seconds
HOUR_US = 3_600_000_000
ROOM = 1 << 20  # bytes that are free before a server has to make room


class SetClock(SystemClock):
    """The clock of this host, whose wall somebody sets. The time since boot cannot be set."""

    off_us = 0

    def instant(self) -> Instant:
        """Both times; only the wall is off."""
        ms, wall_us = super().instant()
        return Instant(ms, wall_us + self.off_us)


def crash(server: RedisServer) -> None:
    """kill -9, and it is back at once, with what is on its disk."""
    server.kill()
    server.start()


def power_failure(server: RedisServer) -> Callable[[], None]:
    """What is in its log now stays there; what is written later is not on the disk when the power fails."""
    [file] = (server.folder / "appendonlydir").glob("*.incr.aof")
    on_disk = file.stat().st_size

    def fail() -> None:
        server.kill()
        os.truncate(file, on_disk)
        server.start()

    return fail


def backup(server: RedisServer, folder: Path) -> Callable[[], None]:
    """Make a backup now, to be put back later, although the server has lost nothing by then."""
    client, file = server.client(), server.folder / "dump.rdb"
    client.save()
    shutil.copy(file, folder / "backup")

    def put_back() -> None:
        client.save()
        server.kill()
        shutil.copy(folder / "backup", file)
        server.start()

    return put_back


def evict(server: RedisServer, resource: str = "report", policy: str = "volatile-ttl", *more: str) -> None:
    """Other data fills the memory until the server has made room with the lease, and with these other keys."""
    client: Any = server.client()
    client.config_set("maxmemory-policy", policy)
    client.config_set("maxmemory", client.info("memory")["used_memory"] + ROOM)
    names = iter(range(1_000_000))

    def evicted() -> bool:
        client.set(f"{{{resource}}}:page:{next(names)}", b"x" * 20_000, ex=3600)  # in a Cluster, in the same slot
        return not client.exists(keys(resource)[0], *more)

    until(evicted, "an eviction")
    client.config_set("maxmemory", 0)
    client.config_set("maxmemory-policy", "noeviction")


# ---------------------------------------------------------------- a server whose clock no library can turn


class DatedNetwork(Proxy):
    """A network that changes the date which an HTTP server tells with each reply: for clients its clock is set."""

    _off = 0.0

    def set_off(self, seconds: float) -> None:
        """So much it is ahead of the real time from now on, or behind it."""
        self._off = seconds

    def _send_on(self, link: Link, stream: Stream, chunk: bytes) -> None:
        super()._send_on(link, stream, DATE.sub(self._another, chunk) if stream is link.replies else chunk)

    def _another(self, _: re.Match[bytes]) -> bytes:
        return f"Date: {formatdate(time.time() + self._off, usegmt=True)}".encode()


DATE = re.compile(rb"Date: [^\r]{29}")


# ---------------------------------------------------------------- masters of a Redlock


def grow_old(servers: RedlockServers) -> RedlockServers:
    """A node counts only when it has been up for the longest ttl since a client has first seen it: an hour passes on
    all of them."""
    with leasehold.connect(servers.url) as hold:
        until(lambda: _seen(hold, servers), "every node has its marker")
    set_clocks(servers, HOUR)
    return servers


def _seen(hold: leasehold.Leasehold, servers: RedlockServers) -> bool:
    with pytest.raises(StoreUnavailable):
        hold.lock("first").try_acquire()
    return all(node.server.client().exists(MARKER) for node in servers.nodes)


def reach(servers: RedlockServers, *places: int) -> None:
    """These nodes are reached, and no others."""
    for place, node in enumerate(servers.nodes):
        if place in places:
            node.heal()
        else:
            node.link.cut()
            node.link.refuse()


def set_clocks(servers: RedlockServers, seconds: float) -> None:
    """All of them agree with each other."""
    for node in servers.nodes:
        node.clock.set_off(seconds)
    for node in servers.nodes:
        until(partial(_shows, node, seconds), "the node has noticed the time")


def _shows(node: RedlockNode, seconds: float) -> bool:
    up: int = node.server.client().info("server")["uptime_in_seconds"]
    return up >= seconds or seconds <= 0
