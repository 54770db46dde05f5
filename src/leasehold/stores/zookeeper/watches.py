"""Watches on records and places: each fires once, when what it was set for is no longer so, or cannot be known.

ZooKeeper's watches fire once, too, and are lost with the connection. Several of ours on one node share one of them. The
reply to setting it says what the node is now: a change since it was last read fires at once.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from kazoo.protocol.serialization import Exists

from leasehold._core.light_typing import Any
from leasehold.observe import log
from leasehold.stores.record.requests import Place, Record
from leasehold.stores.zookeeper import calls
from leasehold.stores.zookeeper.calls import Call
from leasehold.stores.zookeeper.names import Names
from leasehold.stores.zookeeper.revisions import unpacked
from leasehold.stores.zookeeper.session import Session

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

    def fire(self) -> None:
        try:
            self._changed(None)
        except Exception as error:  # it is a caller's: the thread that receives must go on
            log.debug("a watch failed: %r", error)


class Node:
    """A node, and who watches it."""

    def __init__(self, watches: Watches, path: str) -> None:
        self._watches = watches
        self._path = path
        self._here: list[Watch] = []
        self._known: int | None = None  # what the node is, while ZooKeeper's watch is set

    def add(self, watch: Watch) -> bool:
        """True when ZooKeeper's watch is to be set, to learn what the node is now."""
        self._here.append(watch)
        return self._known is None or watch.expected not in (None, self._known)

    def set(self, read: Callable[..., Call]) -> None:
        call = read(self._path, self._event)
        call.finished = lambda: self._answered(call)
        self._watches.session.send([call])

    def _answered(self, call: Call) -> None:
        try:
            result = call.result()
        except Exception:  # the place is gone, or nothing can be known: the caller looks again
            self.fire_all()
            return
        stat = result if isinstance(call.operation, Exists) else result[1]
        now = ABSENT if stat is None else stat.mzxid
        with self._watches.lock:
            self._known = now
            moved = [one for one in self._here if one.expected is not None and one.expected != now]
            self._here = [one for one in self._here if one not in moved]
            self._tidy()
        for one in moved:
            one.fire()

    def _event(self, _: Any) -> None:
        self.fire_all()

    def fire_all(self) -> None:
        with self._watches.lock:
            here, self._here, self._known = self._here, [], None
            self._tidy()
        for one in here:
            one.fire()

    def remove(self, watch: Watch) -> None:
        with self._watches.lock:
            self._here = [one for one in self._here if one is not watch]
            self._tidy()

    def _tidy(self) -> None:
        if not self._here and self._watches.nodes.get(self._path) is self:
            del self._watches.nodes[self._path]
            self._watches.session.forget_watch(self._path, self._event)


class Watches:
    """All of a store."""

    def __init__(self, session: Session, names: Names) -> None:
        self.session = session
        self._names = names
        self.start()

    def start(self) -> None:
        self.lock = threading.RLock()
        self.nodes: dict[str, Node] = {}

    def record(self, record: Record, changed: Callable[[Record | None], None]) -> Watch:
        expected = unpacked(record.revision).mzxid if record.revision else ABSENT
        return self._watch(self._names.record(record.resource), expected, changed, calls.exists)

    def place(self, resource: str, place: Place, changed: Callable[[Record | None], None]) -> Watch:
        """By ``get``, which sets no watch on a node that is gone: nobody would ever remove it."""
        return self._watch(self._names.place(resource, place.key), None, changed, calls.get)

    def _watch(
        self,
        path: str,
        expected: int | None,
        changed: Callable[[Record | None], None],
        read: Callable[..., Call],
    ) -> Watch:
        with self.lock:
            node = self.nodes.setdefault(path, Node(self, path))
            watch = Watch(node, expected, changed)
            is_needed = node.add(watch)
        if is_needed:
            node.set(read)
        return watch

    def fire_all(self) -> None:
        """The connection is lost, and what happens meanwhile is not told."""
        for node in list(self.nodes.values()):
            node.fire_all()
