"""Reading records and their queues.

``sync`` comes first: the member that we are connected to catches up with its leader. The leader asks no quorum for it,
so that one which was deposed a moment ago may still answer: what it shows is then older than the last change. It is
never older than anything that this process has seen, in this session or an earlier one: an older reply is refused. Nor
is that unsafe: what is decided from an older record is refused when it is written.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from random import choice

from kazoo.exceptions import NoNodeError

from leasehold.stores.record.requests import List, Listed, Look, Record, Sight
from leasehold.stores.zookeeper import calls
from leasehold.stores.zookeeper.calls import Call
from leasehold.stores.zookeeper.names import BUCKETS, bucket, queue, unescaped
from leasehold.stores.zookeeper.revisions import Revision
from leasehold.stores.zookeeper.rounds import Lost
from leasehold.stores.zookeeper.tree import Tree

BUCKETS_AT_ONCE, FEW_BUCKETS = 32, 8


class Removals:
    """The removals of buckets, as they were before the records were read."""

    def __init__(self, tree: Tree, buckets: Iterable[str]) -> None:
        self._tree = tree
        wanted = dict.fromkeys(buckets)
        self.known = {one: tree.removals[one] for one in wanted if one in tree.removals}
        self._asked = {one: calls.exists(f"{tree.names.records}/{one}") for one in wanted if one not in self.known}

    @property
    def calls(self) -> list[Call]:
        """To be sent before the records are read."""
        return list(self._asked.values())

    def learn(self) -> None:
        for one, call in self._asked.items():
            stat = self._tree.answer(call)
            if stat is None:  # somebody has removed the tree
                self._tree.session.prepared = 0
                raise Lost
            self.known[one] = self._tree.removals[one] = stat.version

    def record(self, resource: str, call: Call) -> Record:
        """The reply to ``get``, without the places."""
        found = self._tree.answer(call, NoNodeError)
        if found is None:
            return Record(resource)
        data, stat = found
        revision = Revision(stat.mzxid, self.known[bucket(resource)], stat.version)
        return Record(resource, data.decode("utf-8", "replace"), revision.packed(), None)


def look(tree: Tree, request: Look) -> Generator[list[Call], None, Sight]:
    names, seen = tree.names, tree.session.seen
    removals = Removals(tree, map(bucket, request.resources))
    first = calls.sync(names.chroot)
    paths = [names.record(resource) for resource in request.resources]
    gets = [calls.get(path) for path in paths]
    counts = [calls.exists(names.queue(resource)) for resource in request.resources]
    queues = [calls.children(path) for path in paths]
    # The count before the places: then a place that is missing here was made after the count. The places before the
    # record: then whoever was granted the resource, and has no place any more for that, is in the record.
    reads = [call for three in zip(counts, queues, gets, strict=True) for call in three]
    yield [first, *removals.calls, *reads]
    tree.answer(first)
    if first.zxid < seen:
        raise Lost
    removals.learn()
    records = [removals.record(resource, call) for resource, call in zip(request.resources, gets, strict=True)]
    stats = [tree.answer(count) for count in counts]
    joins = [0 if stat is None else stat.version for stat in stats]
    records = [with_places(tree, *one) for one in zip(records, joins, queues, strict=True)]
    if request.texts:
        records = yield from _with_texts(tree, records)
    return Sight(tuple(records))


def with_places(tree: Tree, record: Record, joins: int, call: Call) -> Record:
    """The reply to ``children``. Places that our session has made twice are removed."""
    found = queue(tree.answer(call, NoNodeError) or (), tree.session.current())
    if found.surplus:
        tree.session.send([calls.removal(tree.names.place(record.resource, key)) for key in found.surplus])
    return record._replace(places=found.places, queue=joins)


def _with_texts(tree: Tree, records: Sequence[Record]) -> Generator[list[Call], None, list[Record]]:
    """A place that has gone meanwhile is left out."""
    texts = {
        (record.resource, place.key): calls.get(tree.names.place(record.resource, place.key))
        for record in records
        for place in record.places or ()
    }
    if texts:
        yield list(texts.values())
    found = []
    for record in records:
        places = []
        for place in record.places or ():
            answer = tree.answer(texts[record.resource, place.key], NoNodeError)
            if answer is not None:
                places.append(place._replace(text=answer[0].decode("utf-8", "replace")))
        found.append(record._replace(places=tuple(places)))
    return found


# ---------------------------------------------------------------- a listing


def listing(tree: Tree, request: List) -> Generator[list[Call], None, Listed]:
    """The cursor is a bucket and the name of a node in it: ``3f/orders:17``."""
    start, _, after = request.cursor.partition("/")
    start = start or (choice(BUCKETS) if request.brief else BUCKETS[0])
    nodes, left = yield from _nodes(tree, start, after, request)
    chosen = nodes[: request.most]
    cursor = "/".join(chosen[-1]) if len(nodes) > request.most else f"{left[0]}/" if left else ""
    named = [(one, node, unescaped(node)) for one, node in chosen]
    readable = [(one, name) for one, _, name in named if name is not None and bucket(name) == one]
    unreadable = [node for one, node, name in named if name is None or bucket(name) != one]
    removals = Removals(tree, [one for one, _ in readable])
    gets = [calls.get(tree.names.record(resource)) for _, resource in readable]
    if readable:
        yield [*removals.calls, *gets]
        removals.learn()
    records = [removals.record(resource, call) for (_, resource), call in zip(readable, gets, strict=True)]
    return Listed(tuple(record for record in records if record.text is not None), cursor, tuple(unreadable))


def _nodes(
    tree: Tree, start: str, after: str, request: List
) -> Generator[list[Call], None, tuple[list[tuple[str, str]], list[str]]]:
    """More names than requested, or all of the buckets that were read; and the buckets that are left."""
    left = [one for one in BUCKETS if one >= start]
    found: list[tuple[str, str]] = []
    seen = tree.session.seen
    at_once = FEW_BUCKETS if request.brief else BUCKETS_AT_ONCE
    while left and len(found) <= request.most:
        now, left = left[:at_once], left[at_once:]
        first = calls.sync(tree.names.chroot)
        lists = [calls.children(f"{tree.names.records}/{one}") for one in now]
        yield [first, *lists]
        tree.answer(first)
        if first.zxid < seen:
            raise Lost
        for one, call in zip(now, lists, strict=True):
            nodes = tree.answer(call, NoNodeError) or ()
            found += [(one, node) for node in sorted(nodes) if (one, node) > (start, after)]
        if request.brief:
            break
    return found, left
