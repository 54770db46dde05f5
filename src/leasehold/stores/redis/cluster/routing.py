"""To which node an op is sent, and what is done when that is the wrong one.

Written once, as flows for threads and event loops (``_core.driver``): they yield what is to be done, and are sent the
reply. Whatever is sent again was certainly not executed; what may have been is OutcomeUnknown, and never repeated.
"""

from __future__ import annotations

from collections.abc import Callable, Generator

import hiredis

from leasehold._core.light_typing import Any, NamedTuple, TypeAlias
from leasehold._core.ops import Claim, Group, Page, Ping, Rejected, Replies, Scan
from leasehold.errors import InvalidRequest, LeaseholdError, OutcomeUnknown, StoreUnavailable, Unsupported
from leasehold.stores.redis.cluster import naming
from leasehold.stores.redis.cluster.nodes import Address, Cluster, Node, Redirected, slot_of
from leasehold.stores.redis.failures import TooManyConnections, refusal

FEW_HOPS = 5
PAUSE = 0.02  # seconds, while the keys of a slot are on two nodes
LAST_TRY = 0.2  # seconds that must be left for a try after such a pause: a reply that comes too late is no definite no
MAP = ("CLUSTER", "SLOTS")


class Send(NamedTuple):
    """Send this to a node; ``asking``: it does not own the slot yet."""

    node: Node
    asking: bool
    payload: Any  # an op, or a command


class ReadMap(NamedTuple):
    """Find out which node has which slot. ``failed``: this one cannot be reached."""

    failed: Node | None


class AskForMap(NamedTuple):
    """Ask this node for the map, for at most so many seconds."""

    node: Node
    seconds: float


class Pause(NamedTuple):
    """Wait for so many seconds."""

    seconds: float


Step: TypeAlias = Send | ReadMap | Pause


class Routing(NamedTuple):
    """How one call finds its node. ``connected``: whether a connection to a node is open; what failed without one was
    not sent."""

    cluster: Cluster
    give_up: float
    now: Callable[[], float]
    connected: Callable[[Node], bool]

    def op(self, op: Any, first: tuple[Node, LeaseholdError] | None = None) -> Generator[Step, Any, Any]:
        """Send an op about one or several resources. ``first``: what came of a try that is over."""
        try:
            slot = yield from self._slot(op)
        except InvalidRequest as error:  # a claim gets this as a reply: nothing was taken
            if isinstance(op, Claim):
                return Rejected(str(error))
            if isinstance(op, Group) and isinstance(op.steps[0], Claim):
                return Replies((Rejected(str(error)),))
            raise
        return (yield from self.to_slot(slot, self.cluster.stored(op), first))

    def _slot(self, op: Any) -> Generator[Step, Any, int]:
        """The one slot of all that the op is about. The setting of their namespace is recorded in the store, or
        compared with what is recorded there."""
        cluster, reads = self.cluster, isinstance(op, naming.READERS)
        resources = [step.resource for step in op.steps] if isinstance(op, Group) else [op.resource]
        slot = cluster.common_slot(resources)
        for resource in resources:
            if cluster.unchecked(resource, reads):
                cluster.check(resource, (yield from self._setting(resource, reads)), reads)
            cluster.remember(resource, slot)
        return slot

    def _setting(self, resource: str, reads: bool) -> Generator[Step, Any, Any]:
        """The setting of the namespace, as it is in the store now. It is no op, so its error reply is still the
        driver's: this user may not use its key, or the server is out of memory."""
        command = naming.marker(resource, self.cluster.by, reads)
        try:
            return (yield from self.to_slot(slot_of(key_of(command)), command))
        except hiredis.ReplyError as error:
            raise refusal(f"the Cluster at {self.cluster}", error) from error

    def to_slot(
        self, slot: int, payload: Any, first: tuple[Node, LeaseholdError] | None = None
    ) -> Generator[Step, Any, Any]:
        """Send it to the node that has the slot, wherever that is. ``first``: what came of a try that is over."""
        yield from self._refresh()
        asked: Node | None = None
        hops = 0
        while True:
            node = first[0] if first is not None else asked or (yield from self._owner(slot))
            try:
                if first is not None:
                    error, first = first[1], None  # no reference stays behind: the error would lead back to itself
                    raise error
                return (yield Send(node, asked is not None, payload))
            except Redirected as error:
                hops += 1
                goes_on, asked = yield from self._redirected(slot, node, error.word, error.address, hops)
                if not goes_on:
                    raise
            except OutcomeUnknown:
                self.cluster.doubt(node)
                raise
            except StoreUnavailable as error:
                hops += 1
                if isinstance(error, TooManyConnections) or self.connected(node) or hops > FEW_HOPS:
                    raise
                self.cluster.doubt()
                yield ReadMap(node)
                asked = None
                if self.cluster.owner(slot) is node:
                    raise

    def _moved_when_down(self, slot: int, node: Node, hops: int) -> Generator[Step, Any, bool]:
        """The Cluster is down, or this node is cut off from the others. Returns whether these have given the slot to
        another."""
        self.cluster.doubt(node)
        if hops > FEW_HOPS or self.now() >= self.give_up - PAUSE:
            return False
        try:
            yield ReadMap(node)
        except StoreUnavailable:
            return False
        return self.cluster.owner(slot) is not node

    def _owner(self, slot: int) -> Generator[Step, Any, Node]:
        node = self.cluster.owner(slot)
        if node is None:
            yield ReadMap(None)
            node = self.cluster.owner(slot)
        if node is None:
            raise self.cluster.unserved(slot)
        return node

    def _redirected(
        self, slot: int, node: Node, word: str, address: Address | None, hops: int
    ) -> Generator[Step, Any, tuple[bool, Node | None]]:
        """Returns whether to try again, and the node that takes the slot over if it is to be sent there."""
        if word == "CLUSTERDOWN":
            return (yield from self._moved_when_down(slot, node, hops)), None
        pauses = address is None or hops > FEW_HOPS  # for a moment two nodes may name each other
        if self.now() >= self.give_up - (LAST_TRY if pauses else PAUSE):
            self.cluster.doubt()
            return False, None
        if pauses:
            yield Pause(PAUSE)
        if address is not None and word == "ASK":
            return True, self.cluster.announced(address)
        if address is not None:
            self.cluster.moved(slot, address)
        return True, None

    def _refresh(self) -> Generator[Step, Any, None]:
        """Read the map if it is in doubt. One that cannot be read is used as it is, if there is one."""
        if self.cluster.stale():
            try:
                yield ReadMap(None)
            except StoreUnavailable:
                if not self.cluster.masters():
                    raise

    def page(self, op: Any) -> Generator[Step, Any, Page]:
        """One page of a listing: the masters come one after the other, by their addresses."""
        yield from self._refresh()
        if not self.cluster.masters():
            yield ReadMap(None)
        place, _, cursor = op.cursor.rpartition("/")
        left = sorted([(str(node.target), node) for node in self.cluster.masters()], key=lambda one: one[0])
        left = [one for one in left if one[0] >= place]
        if not left:
            return Page((), "")
        name, node = left[0]
        sent = self.cluster.stored(op)._replace(cursor=cursor if name == place else "")  # type: ignore[call-arg]  # a listing
        if isinstance(sent, Ping):
            sent = sent._replace(keyless=True)
        page: Page = yield Send(node, False, sent)
        if isinstance(op, Scan):
            page = naming.listed(op, page, self.cluster.by)
        if page.cursor:
            return page._replace(cursor=f"{name}/{page.cursor}")
        return page._replace(cursor=f"{left[1][0]}/" if len(left) > 1 else "")


def read_map(
    cluster: Cluster, failed: Node | None, give_up: float, now: Callable[[], float]
) -> Generator[AskForMap, Any, None]:
    """Ask one node after the other until one answers."""
    last: BaseException | None = None
    for node in cluster.candidates(failed):
        left = give_up - now()
        if left <= 0:
            break
        try:
            reply = yield AskForMap(node, left if node is failed else left / 2)
            cluster.learn(reply, node)
            return
        except Unsupported:
            raise
        except (LeaseholdError, hiredis.ReplyError, ValueError, TypeError) as error:
            last = error
    cluster.read_at = now()  # not again at once
    raise cluster.unreachable(last) from last


def key_of(command: tuple[Any, ...]) -> str | bytes:
    """The first key of a command."""
    key: str | bytes = command[3] if str(command[0]).upper().startswith("EVAL") else command[1]
    return key
