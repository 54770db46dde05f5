"""Parties at one Cluster, and what a test wants to know of its nodes."""

from __future__ import annotations

from itertools import islice
from typing import Any
from weakref import WeakKeyDictionary

from leasehold.stores.redis.cluster.store import ClusterStore
from tests.support.parties import FLAVOURS, Party, Step
from tests.support.servers.cluster import RedisCluster
from tests.support.servers.redis import RedisServer
from tests.support.waiting import until


class Company:
    """Parties of one flavour, each with a store of its own."""

    def __init__(self, flavour: str, cluster: RedisCluster) -> None:
        self.flavour, self.cluster = flavour, cluster
        self._parties: list[Party] = []
        for node in cluster.nodes:
            node.client().config_resetstat()

    def party(self, slot: str = "resource", **options: Any) -> Party:
        """A new one. It connects with its first step."""
        store = ClusterStore(self.cluster.url)
        store.choose_slots(slot)
        self._parties.append(FLAVOURS[self.flavour](store, **options))
        return self._parties[-1]

    # ------------------------------------------------------------ resources and nodes

    def slot(self, resource: str) -> int:
        """Where a resource belongs."""
        return self.cluster.slot_of(f"lock:v1:{{{resource}}}:owner")

    def node(self, resource: str) -> RedisServer:
        """The master that decides about it."""
        return self.cluster.owner(self.slot(resource))

    def other(self, resource: str) -> RedisServer:
        """A master that does not."""
        node = self.node(resource)
        return next(one for one in self.cluster.masters if one is not node)

    def resource_at(self, node: RedisServer, number: int = 0) -> str:
        """One that this master decides about: the first, or a later one."""
        names = (name for name in map("job:{}".format, range(10_000)) if self.node(name) is node)
        return next(islice(names, number, None))

    def move(self, resource: str) -> None:
        """Its slot, with all keys, to another master."""
        self.cluster.move(self.slot(resource), self.node(resource), self.other(resource))

    def waiting(self, resource: str, count: int) -> None:
        """Until so many wait for it."""

        def there() -> bool:
            return int(self.node(resource).client().llen(f"lock:v1:{{{resource}}}:queue")) == count

        until(there, f"{count} wait for {resource}")

    def replicated(self, node: RedisServer) -> None:
        """Until the replica of this master has all that it has. WAIT would speak of its own connection alone."""
        client: Any = node.client()

        def there() -> bool:
            found = client.info("replication")
            return bool(found["slave0"]["offset"] >= found["master_repl_offset"])

        until(there, "the replica has everything")

    def stored_keys(self) -> list[tuple[str, int]]:
        """All keys on all masters, and how many milliseconds each has left."""
        found = []
        for node in self.cluster.masters:
            client: Any = node.client()
            found += [(key.decode(), client.pttl(key)) for key in client.keys("*")]
        return found

    def close(self) -> None:
        """Release everything."""
        for party in self._parties:
            party.close()


_observers: WeakKeyDictionary[RedisServer, Any] = WeakKeyDictionary()


def observer(node: RedisServer) -> Any:
    """The one client that looks at a node again and again: a new one for each look would be a load of its own."""
    found = _observers.get(node)
    if found is None or found not in node._clients:  # closed since then
        found = _observers[node] = node.client()
    return found


def calls(node: RedisServer, *commands: str) -> int:
    """How often these commands came from clients or scripts since the company met."""
    stats: Any = observer(node).info("commandstats")
    return sum(stats.get(f"cmdstat_{command}", {}).get("calls", 0) for command in commands)


# ---------------------------------------------------------------- steps


def taking(resource: str, **options: Any) -> Step:
    """The lock of a resource, to be entered."""
    kind, *ids = resource.split(":")
    return lambda hold: hold.lock(kind, *ids, **options)


def acquiring(resource: str, **options: Any) -> Step:
    """Acquire it."""
    return lambda hold: taking(resource, **options)(hold).acquire()


def releasing(lease: Any) -> Step:
    """Give it back."""
    return lambda hold: lease.release()
