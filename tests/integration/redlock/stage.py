"""Nodes of a Redlock that have been up for an hour, and the parties that use them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from leasehold.stores.redis.redlock.commands import MARKER
from leasehold.stores.redis.redlock.store import RedlockStore
from leasehold.stores.redis.redlock.target import from_url
from tests.support.parties import FLAVOURS, Party
from tests.support.servers.redlock import RedlockNode, RedlockServers
from tests.support.waiting import until

AGE = 3600  # seconds
OWNER = "lock:v1:{job}:owner"


class Stage:
    """Some nodes, and parties of one flavour."""

    def __init__(self, servers: RedlockServers, flavour: str, url: str = "") -> None:
        self.servers = servers
        self._url = url or servers.url
        self.nodes = servers.nodes
        self.flavour = flavour
        self._parties: list[Party] = []
        self._cut: set[int] = set()

    def store(self, options: str = "") -> RedlockStore:
        """``options`` are those of the URL."""
        targets, longest_ttl_ms = from_url(self._url + options)
        return RedlockStore(targets, None, longest_ttl_ms)

    def party(self, options: str = "") -> Party:
        """One with a store of its own."""
        self._parties.append(FLAVOURS[self.flavour](self.store(options)))
        return self._parties[-1]

    def only(self, *places: int) -> None:
        """These nodes are reached, and no others."""
        for place, node in enumerate(self.nodes):
            if place in places:
                node.heal()
                self._cut.discard(place)
            elif place not in self._cut:
                node.cut_off()
                self._cut.add(place)

    def owners(self) -> list[bool]:
        """Which nodes have a holder of ``job``."""
        return [bool(node.server.client().exists(OWNER)) for node in self.nodes]

    def nothing_left(self) -> None:
        """No node has a holder of ``job``, soon, and not because a ttl of 30 seconds is over."""
        until(lambda: not any(self.owners()), "nothing is left on any node", within=20)

    def close(self) -> None:
        """Heal the network, and close all parties."""
        for node in self.nodes:
            node.heal()
        for party in self._parties:
            party.close()


def age(node: RedlockNode) -> None:
    """Its marker is an hour old from now on."""
    node.server.client().set(MARKER, f"{(time.time_ns() // 1000) - AGE * 1_000_000} 1")


def restart_aged(node: RedlockNode, keep: bool) -> None:
    """It crashes and starts again, and then says that it has been up for an hour."""
    node.server.kill()
    if not keep:
        node.lose_data()
    node.clock.set_off(-AGE)
    node.server.start()
    node.clock.set_off(0)
    looks_old(node)


def looks_old(node: RedlockNode) -> None:
    """The server notices a new time a few times in a second."""
    until(lambda: node.server.client().info("server")["uptime_in_seconds"] >= AGE, "the node looks old")


@contextmanager
def aged(servers: RedlockServers) -> Iterator[RedlockServers]:
    """Start them an hour ago."""
    for clock in servers._clocks:
        clock.set_off(-AGE)
    with servers:
        for node in servers.nodes:
            node.clock.set_off(0)
        for node in servers.nodes:
            looks_old(node)
            age(node)
        yield servers


def acquire(party: Party, ttl: float = 30, **options: Any) -> Any:
    """One try at ``job``: the lease, or None."""
    return party.do(lambda hold: hold.lock("job", ttl=ttl, **options).acquire(wait=0))
