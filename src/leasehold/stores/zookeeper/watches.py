"""Watches on records and places: each fires once, when what it was set for is no longer so, or cannot be known.

ZooKeeper's watches fire once, too, and are lost with the connection. Several of ours on one node share one of them. The
reply to setting it says what the node is now: a change since it was last read fires at once.

ZooKeeper does not say what a node has become. So that is read at once, on the thread that receives: the record, and
when a place has gone also the places, before the record. Whoever has no place any more because it was granted the
resource is then in the record.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from kazoo.exceptions import NoNodeError
from kazoo.protocol.serialization import Exists
from kazoo.protocol.states import EventType

from leasehold._core.light_typing import Any
from leasehold.observe import log
from leasehold.stores.record.requests import Place, Record
from leasehold.stores.zookeeper import calls
from leasehold.stores.zookeeper.calls import Call
from leasehold.stores.zookeeper.looks import Removals, with_places
from leasehold.stores.zookeeper.names import bucket
from leasehold.stores.zookeeper.revisions import unpacked
from leasehold.stores.zookeeper.tree import Tree

ABSENT = 0


class Watch:
    """One caller's. ``expected``: what it was set for, as the node's last transaction; None: that it is there."""

    __slots__ = ("_changed", "_node", "expected")

    def __init__(self, node: Node, expected: int | None, changed: Callable[[Record | None], None]) -> None:
        self._node = node
        self.expected = expected
        self._changed = changed

    def close(self) -> None:
        self._node.remove(self)

    def fire(self, record: Record | None) -> None:
        try:
            self._changed(record)
        except Exception as error:  # it is a caller's: the thread that receives must go on
            log.debug("a watch failed: %r", error)


class News:
    """Reads what became of a resource, and tells those who watched for it. ``next_to``: they watched a place that has
    gone, and may be the next to watch the record. That watch is set by the same request. Whose own place has gone was
    granted the resource, mostly, and watches nothing any more."""

    def __init__(self, watches: Watches, resource: str, places: bool, next_to: bool, fired: Sequence[Watch]) -> None:
        self._tree = tree = watches.tree
        self._resource = resource
        self._fired = fired
        self._removals = Removals(tree, [bucket(resource)])
        self._node = watches.record_node(resource) if next_to else None
        self._seen = tree.session.seen
        path = tree.names.record(resource)
        self._children = calls.children(path) if places else None
        watcher = None if self._node is None else self._node.event
        self._get = calls.get(path, watcher, self._answered)  # the last: all are answered then
        tree.session.send([*self._removals.calls, *filter(None, [self._children]), self._get])

    def _answered(self) -> None:
        try:
            record = self._read()
        except Exception:  # it could not be read: the callers look again
            record = None
        for one in self._fired:
            one.fire(record)
        if self._node is not None:
            self._node.tidy()

    def _read(self) -> Record | None:
        if self._get.zxid < self._seen:  # an older state than this process has seen
            return None
        self._tree.session.saw(self._get.zxid)
        self._removals.learn()
        record = self._removals.record(self._resource, self._get)
        if self._node is not None and record.revision:
            self._node.learn(unpacked(record.revision).mzxid)
        return record if self._children is None else with_places(self._tree, record, 0, self._children)


class Node:
    """A node, and who watches it."""

    def __init__(self, watches: Watches, path: str, resource: str, place: Place | None = None) -> None:
        self._watches = watches
        self._path = path
        self._resource = resource
        self._place = place  # None: it is a record
        self._here: list[Watch] = []
        self._known: int | None = None  # what the node is, while ZooKeeper's watch is set

    def add(self, watch: Watch) -> bool:
        """True when ZooKeeper's watch is to be set, to learn what the node is now."""
        self._here.append(watch)
        return self._known is None or watch.expected not in (None, self._known)

    def set(self, read: Callable[..., Call]) -> None:
        call = read(self._path, self.event)
        call.finished = lambda: self._answered(call)
        self._watches.tree.session.send([call])

    def _answered(self, call: Call) -> None:
        try:
            result = call.result()
        except NoNodeError:  # the place is gone
            self._fire(self._taken())
            return
        except Exception:  # nothing can be known: the caller looks again
            self.fire_all()
            return
        stat = result if isinstance(call.operation, Exists) else result[1]
        now = ABSENT if stat is None else stat.mzxid
        with self._watches.lock:
            self._known = now
            moved = [one for one in self._here if one.expected is not None and one.expected != now]
            self._here = [one for one in self._here if one not in moved]
            self._tidy()
        self._fire(moved)

    def learn(self, now: int) -> None:
        """ZooKeeper's watch was set by another request. Not if another node has taken its place meanwhile."""
        with self._watches.lock:
            if self._watches.nodes.setdefault(self._path, self) is self:
                self._known = now

    def tidy(self) -> None:
        with self._watches.lock:
            self._tidy()

    def event(self, event: Any) -> None:
        if event.type == EventType.NONE:  # the connection is lost
            self.fire_all()
        else:
            self._fire(self._taken())

    def fire_all(self) -> None:
        """What it is now cannot be known."""
        for one in self._taken():
            one.fire(None)

    def _taken(self) -> list[Watch]:
        with self._watches.lock:
            here, self._here, self._known = self._here, [], None
            self._tidy()
        return here

    def _fire(self, watches: Sequence[Watch]) -> None:
        if watches:
            place = self._place
            News(self._watches, self._resource, place is not None, place is not None and not place.ours, watches)

    def remove(self, watch: Watch) -> None:
        with self._watches.lock:
            self._here = [one for one in self._here if one is not watch]
            self._tidy()

    def _tidy(self) -> None:
        if not self._here and self._watches.nodes.get(self._path) is self:
            del self._watches.nodes[self._path]
            self._watches.tree.session.forget_watch(self._path, self.event)


class Watches:
    """All of a store."""

    def __init__(self, tree: Tree) -> None:
        self.tree = tree
        self.start()

    def start(self) -> None:
        self.lock = threading.RLock()
        self.nodes: dict[str, Node] = {}

    def record(self, record: Record, changed: Callable[[Record | None], None]) -> Watch:
        expected = unpacked(record.revision).mzxid if record.revision else ABSENT
        path = self.tree.names.record(record.resource)
        return self._watch(path, record.resource, None, expected, changed)

    def place(self, resource: str, place: Place, changed: Callable[[Record | None], None]) -> Watch:
        """By ``get``, which sets no watch on a node that is gone: nobody would ever remove it."""
        return self._watch(self.tree.names.place(resource, place.key), resource, place, None, changed)

    def record_node(self, resource: str) -> Node:
        """The node of a record, whether it is watched or not."""
        path = self.tree.names.record(resource)
        with self.lock:
            return self.nodes.get(path) or Node(self, path, resource)

    def _watch(
        self,
        path: str,
        resource: str,
        place: Place | None,
        expected: int | None,
        changed: Callable[[Record | None], None],
    ) -> Watch:
        with self.lock:
            node = self.nodes.setdefault(path, Node(self, path, resource, place))
            watch = Watch(node, expected, changed)
            is_needed = node.add(watch)
        if is_needed:
            node.set(calls.exists if place is None else calls.get)
        return watch

    def fire_all(self) -> None:
        """The connection is lost, and what happens meanwhile is not told."""
        for node in list(self.nodes.values()):
            node.fire_all()
