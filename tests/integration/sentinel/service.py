"""A service that Sentinels watch, the parties that use it, and what they leave behind."""

from __future__ import annotations

import threading
from concurrent.futures import Future
from functools import partial
from typing import Any

from leasehold.coordinator.stores import open_store
from leasehold.stores.redis.protocol import keys
from tests.support.parties import FLAVOURS, Party
from tests.support.servers.redis import RedisServer
from tests.support.servers.sentinel import RedisSentinel
from tests.support.sockets import open_sockets
from tests.support.waiting import until

# A failover takes 1.6 to 2 s (the Sentinels wait for one); afterwards the first grant comes within twice that. The rest
# is for a busy machine.
RECOVERY = 2 * 2.0 + 10.0
TTL = 6.0  # seconds: a lease outlives a failover


class Service:
    """Parties of one flavour, each with a store of its own."""

    def __init__(self, flavour: str, servers: RedisSentinel, url: str = "") -> None:
        self.flavour = flavour
        self.servers = servers
        self.url = url or servers.url
        self._threads = set(threading.enumerate())
        self._sockets = open_sockets()
        self._parties: list[Party] = []

    def party(self, target: Any = None, **options: Any) -> Party:
        """A new one."""
        party = FLAVOURS[self.flavour](open_store(target or self.url), **options)
        self._parties.append(party)
        return party

    def acquire(self, resource: str = "job", ttl: float = TTL, **options: Any) -> tuple[Party, Any]:
        """A new party that holds."""
        party = self.party()
        return party, party.do(lambda hold: hold.lock(resource, ttl=ttl, **options).acquire(wait=30))

    def queue(self, count: int, resource: str = "job", ttl: float = TTL) -> list[Future[Any]]:
        """So many new parties that wait, in this order."""
        waiting = []
        for number in range(1, count + 1):
            waiting.append(self.party().start(lambda hold: hold.lock(resource, ttl=ttl).acquire(wait=60)))
            until(partial(self._waits, resource, number), "it waits")
        return waiting

    def _waits(self, resource: str, number: int) -> bool:
        return len(self.queued(resource)) == number

    def queued(self, resource: str = "job", server: RedisServer | None = None) -> list[bytes]:
        """The owner tokens of the waiters, in order."""
        found: Any = (server or self.servers.primary).client().lrange(keys(resource)[2], 0, -1)
        return list(found)

    def holder(self, resource: str = "job", server: RedisServer | None = None) -> str:
        """The owner token of who holds, as a server knows it."""
        record: Any = (server or self.servers.primary).client().get(keys(resource)[0])
        return record.split()[1].decode() if record else ""

    def replicated(self, resource: str = "job") -> None:
        """Wait until every replica knows the holder."""
        holder = self.holder(resource)
        for replica in self.servers.replicas:
            until(partial(self._knows, resource, replica, holder), "the replica knows the holder")

    def _knows(self, resource: str, replica: RedisServer, holder: str) -> bool:
        return self.holder(resource, replica) == holder

    def close(self) -> None:
        """Everybody leaves; then there is no key without an end, no thread and no socket more than before."""
        while self._parties:
            self._parties.pop().close()
        for server in self.servers.servers:
            if server.awake:
                assert not keys_without_end(server)
            server.forget_clients()
        until(lambda: set(threading.enumerate()) <= self._threads, "no thread is left")
        until(lambda: open_sockets() <= self._sockets, "no socket is left")


def keys_without_end(server: RedisServer) -> list[Any]:
    """Keys that nobody would ever delete."""
    client: Any = server.client()
    return [key for key in client.scan_iter() if client.pttl(key) == -1]
