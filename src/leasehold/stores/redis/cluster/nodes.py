"""The nodes of a Cluster: which of them has which slot, as all connections of a store share it.

The map is read from any node (``CLUSTER SLOTS``) when it is first needed, after a redirection, and when a node cannot
be reached. A redirection to another owner is believed for its slot at once.
"""

from __future__ import annotations

import math
import threading
import time
from binascii import crc_hqx
from collections.abc import Callable, Iterable

import hiredis

from leasehold._core.light_typing import Any
from leasehold._core.ops import StoreOp
from leasehold.errors import LeaseholdError, StoreUnavailable, Unsupported
from leasehold.stores.redis import failures
from leasehold.stores.redis.cluster import naming
from leasehold.stores.redis.handshake import Flow, Handshake
from leasehold.stores.redis.protocol import Command
from leasehold.stores.redis.server import Server
from leasehold.stores.redis.target import Target

SLOTS = 16384
CUT_OFF_SECONDS = 10.0  # after which a node that did not answer, or was cut off, is asked for the map as before
READ_AGAIN_AFTER = 1.0  # seconds between two reads of the map because of redirections
SHARDED = 7  # the first version with channels of slots
MOST_TAGS = 200_000  # tried until one is in a slot of a node; one of a single slot is found among these
PUSH = "lock:v1:push:"
ADDRESS = f"{PUSH}node:"
MOST_KNOWN = 4096
CHECK_AGAIN = 86_400.0  # seconds after which the setting of a namespace is recorded again
APART = (
    "hold.all takes its locks in one step, and these are in several slots of the Cluster: one node cannot decide about "
    "them. Connect with slot='namespace', which keeps all locks of a namespace in one slot, or enter one lock inside "
    "the other, everywhere in the same order"
)
Address = tuple[str, int]
Remap = Callable[[Address], Address]


def slot_of(key: str | bytes) -> int:
    """The slot of a key: of its hash tag, if it has one."""
    raw = key if isinstance(key, bytes) else key.encode("utf-8", "surrogatepass")
    start = raw.find(b"{")
    if start >= 0:
        end = raw.find(b"}", start + 1)
        if end > start + 1:
            raw = raw[start + 1 : end]
    return crc_hqx(raw, 0) % SLOTS


class Redirected(StoreUnavailable):
    """A node did not execute this: another has the slot (MOVED), or takes it over (ASK), or nobody serves it now."""

    def __init__(self, text: str, word: str, address: Address | None) -> None:
        super().__init__(text)
        self.word = word
        self.address = address  # of the node to send it to


class NodeHandshake(Handshake):
    """The handshake with a node of a Cluster."""

    def __init__(self, node: Node, target: Target, channel: str) -> None:
        super().__init__(target, channel, first=not node.checked)
        self._node = node

    def _check(self, server: dict[bytes, Any]) -> None:
        super()._check(server)
        version = server.get(b"version", b"").decode().partition(".")[0]
        self._node.sharded = version.isdigit() and int(version) >= SHARDED

    def _check_kind(self, mode: str, role: str) -> None:
        if mode and mode != "cluster":
            raise Unsupported(f"Redis at {self._target} is no node of a Cluster: connect with redis://")

    def _set_up(self, resp3: bool) -> Flow:
        pushes: bool = yield from super()._set_up(resp3)
        if resp3 and not pushes and self._node.tag:  # perhaps the slot of the channel has moved
            self._node.lose_channel()
            (reply,) = yield from self._exchange(self._subscription())
            pushes = not isinstance(reply, hiredis.ReplyError)
        return pushes

    def _subscription(self) -> Command:
        channel = self._node.channel(self._channel)
        return ("SUBSCRIBE" if channel == self._channel else "SSUBSCRIBE", channel)


class Node(Server):
    """One node.

    Pushes come over a channel in one of its own slots, where it has such channels (sharded pub/sub): ``tag`` is a hash
    tag that is in one of them. Else they come over a channel that has the same name at every node."""

    def __init__(self, cluster: Cluster, address: Address) -> None:
        super().__init__(cluster.target._replace(host=address[0], port=address[1]))
        self.address = address
        self.wanted = False  # a connection to it was opened, so that pushes for holders may come from it
        self.sharded = False  # until a handshake shows that it has such channels
        self.tag = ""
        self.down_at = -math.inf  # when it last did not answer, or said that the Cluster is down: it may be cut off
        self._cluster = cluster

    def channel(self, address: str) -> str:
        """The channel here for the pushes to an address of ours; the same for any other."""
        if not self.sharded or not address.startswith(ADDRESS):
            return address
        self.tag = self.tag or self._cluster.tag_of(self)
        return f"{PUSH}{{{self.tag}}}:{address[len(ADDRESS) :]}" if self.tag else address

    def lose_channel(self) -> None:
        """The slot of its channels has moved: use another."""
        if self.tag:
            self._cluster.lose(slot_of(self.tag))

    def locate(self, give_up: float) -> Target:
        self._want()
        return self.target

    async def locate_async(self) -> Target:
        self._want()
        return self.target

    def _want(self) -> None:
        if not self.wanted:
            self.wanted = True
            self._cluster.on_wanted()

    def handshake(self, target: Target, channel: str) -> NodeHandshake:
        return NodeHandshake(self, target, channel)

    def refusal(self, reply: BaseException) -> LeaseholdError:
        word, *rest = str(reply).split()
        if word in ("MOVED", "ASK") and len(rest) == 2:
            host, _, port = rest[1].rpartition(":")
            to = (host or self.address[0], int(port))
            return Redirected(f"{self.name} sends us on to {to[0]}:{to[1]} ({word})", word, to)
        if word in ("TRYAGAIN", "CLUSTERDOWN"):
            return Redirected(f"{self.name} {failures.NO[word]}", word, None)
        return super().refusal(reply)


class Cluster:
    """All nodes. Several threads use it."""

    store_name = "cluster"

    def __init__(self, target: Target, seeds: Iterable[Address], remap: Remap | None = None) -> None:
        self.by = naming.RESOURCE  # what decides about the slot of a resource
        self.stated_by = ""  # the same as a URL states it
        self.target = target  # the settings of every connection
        self._remap = remap  # where a node is for us, if it gives another address
        self.closed = False
        self.on_wanted: Callable[[], None] = lambda: None
        self._nodes: dict[Address, Node] = {}
        self._owners: list[Node | None] = [None] * SLOTS
        self._seeds = [self.node(seed) for seed in seeds]
        self._masters: list[Node] = []
        self.reading = threading.RLock()  # a signal handler may need the map while its thread is in here
        self.read_at = 0.0  # when the map was last read
        self._usual: dict[str, int] = {}  # the slots of resources that were used lately
        self._checked: set[str] = set()  # namespaces whose setting we have recorded
        self._compared: set[str] = set()  # namespaces whose setting we have found recorded
        self._check_again_at = 0.0
        self.unreadable = ""  # why the map could not be read
        self.doubted = True  # it may be out of date

    def __str__(self) -> str:
        return ",".join(str(seed.target) for seed in self._seeds)

    @property
    def name(self) -> str:
        """As errors name it."""
        return f"the Redis Cluster at {self}"

    @property
    def url(self) -> str:
        """Where it is, without login and options."""
        return f"{'redis' if self.target.tls is None else 'rediss'}+cluster://{self}"

    @property
    def by_namespace(self) -> bool:
        return self.by == naming.NAMESPACE

    def node(self, address: Address) -> Node:
        found = self._nodes.get(address)
        if found is None:
            found = self._nodes.setdefault(address, Node(self, address))
            found.closed = self.closed
        return found

    def announced(self, address: Address) -> Node:
        """The node that calls itself so."""
        return self.node(address if self._remap is None else self._remap(address))

    def nodes(self) -> list[Node]:
        """All that we have ever heard of."""
        return list(self._nodes.values())

    def owner(self, slot: int) -> Node | None:
        return self._owners[slot]

    def masters(self) -> list[Node]:
        """In the order of their slots."""
        return self._masters

    # ------------------------------------------------------------ slots

    def slot(self, resource: str) -> int:
        """The slot of a resource."""
        return slot_of(f"{{{self.stored_name(resource)}}}")

    def usual_slot(self, resource: str, now: float) -> int | None:
        """The slot of a resource that was used lately, in a namespace whose setting was checked; else None."""
        if now >= self._check_again_at:
            self._check_again_at = now + CHECK_AGAIN
            self._checked.clear()
            self._compared.clear()
            self._usual.clear()
        return self._usual.get(resource)

    def remember(self, resource: str, slot: int) -> None:
        """Later ops about this one need no check, unless the setting of its namespace was only read."""
        if self.unchecked(resource):
            return
        if len(self._usual) >= MOST_KNOWN:
            self._usual.clear()
        self._usual[resource] = slot

    def unchecked(self, resource: str, reads: bool = False) -> bool:
        """True for a namespace whose setting is not known yet; for an op that only ``reads``, one that was found in the
        store is enough."""
        namespace, slash, _ = resource.partition("/")
        return bool(slash) and namespace not in self._checked and not (reads and namespace in self._compared)

    def check(self, resource: str, found: Any, reads: bool) -> None:
        """``found``: the setting of its namespace that the store has; None when nobody has recorded one."""
        if found is None:
            return
        if found not in (self.by, self.by.encode()):
            raise naming.mismatch(resource, self.by, found)
        (self._compared if reads else self._checked).add(resource.partition("/")[0])

    def common_slot(self, resources: Iterable[str]) -> int:
        """The one slot of all these; Unsupported when there are several."""
        slots = {self.slot(resource) for resource in resources}
        if len(slots) > 1:
            raise Unsupported(APART)
        return slots.pop()

    def stored_name(self, resource: str) -> str:
        """The name that the keys have."""
        return naming.stored(resource) if self.by_namespace else resource

    def stored(self, op: StoreOp) -> StoreOp:
        """The op with the names that the keys have."""
        return naming.stored_op(op) if self.by_namespace else op

    # ------------------------------------------------------------ the map

    def tag_of(self, node: Node) -> str:
        """A hash tag in a slot of this node; empty when it has none."""
        if node not in self._masters:
            return ""
        return next((tag for tag in map(str, range(MOST_TAGS)) if self._owners[slot_of(tag)] is node), "")

    def _forget_tags(self) -> None:
        for node in self.nodes():
            if node.tag and self._owners[slot_of(node.tag)] is not node:
                node.tag = ""

    def moved(self, slot: int, address: Address) -> None:
        """A node has told us so. Others may have moved with it: the map is read again soon."""
        self._owners[slot] = self.announced(address)
        self.doubted = True
        self._forget_tags()

    def lose(self, slot: int) -> None:
        """Its owner has it no more, and we do not know who has."""
        self._owners[slot] = None
        self.doubted = True
        self._forget_tags()

    def doubt(self, down: Node | None = None) -> None:
        """Another node may have taken the place of one that did not answer, or says that the Cluster is ``down``."""
        self.doubted = True
        if down is not None:
            down.down_at = time.monotonic()

    def stale(self) -> bool:
        """True when it is time to read the map."""
        return self.doubted and time.monotonic() - self.read_at >= READ_AGAIN_AFTER

    def candidates(self, without: Node | None) -> list[Node]:
        """Whom to ask for the map: first those that answer, then those that may hang or be cut off, last one that has
        just failed."""
        known = dict.fromkeys([*self._masters, *self._seeds])
        recently = time.monotonic() - CUT_OFF_SECONDS
        return sorted(known, key=lambda node: (node is without, node.down_at > recently))

    def learn(self, ranges: Any, asked: Node) -> None:
        """The reply to CLUSTER SLOTS. A node that does not know its own address leaves it out."""
        owners: list[Node | None] = [None] * SLOTS
        for first, last, master, *_ in ranges:
            host, port = _host(master) or asked.address[0], int(master[1])
            node = self.announced((host, port))
            owners[first : last + 1] = [node] * (last + 1 - first)
        self._masters = list(dict.fromkeys(node for node in owners if node is not None))
        self._owners = owners
        self._forget_tags()
        self.read_at = time.monotonic()
        self.doubted = False
        self.unreadable = ""

    def unserved(self, slot: int) -> StoreUnavailable:
        return StoreUnavailable(self.unreadable or f"no node of the Cluster at {self} serves slot {slot}")

    def unreachable(self, error: BaseException | None) -> StoreUnavailable:
        why = str(error) if error is not None else "there was no time left to ask"
        return StoreUnavailable(f"no node of the Cluster at {self} tells which node has which slot: {why}")

    def close(self) -> None:
        self.closed = True
        for node in self.nodes():
            node.closed = True

    def forked(self) -> None:
        self.reading = threading.RLock()
        for node in self.nodes():
            node.forked()
            node.wanted = False


def _host(master: Any) -> str:
    """The host of a node in CLUSTER SLOTS: an address or a name; empty where the node does not know it."""
    host = (master[0] or b"").decode()
    return "" if host == "?" else host
