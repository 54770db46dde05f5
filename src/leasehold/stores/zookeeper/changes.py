"""Changing records: one transaction of ZooKeeper for all parts, which is done whole or not at all.

Every part requires that the record is still at its revision (``revisions``), unless that does not matter. Who waits is
known from the places that were seen, which only vanish, and from the version of the node ``q``, which every join
changes. A join that is under way when its owner is buried was sent before, in the same session: it is done by then, or
never.

    revision ANY           no condition: only places are made or removed
    nobody waits           no place was made since
    revision 0, a text     create the record; it fails if there is one
    a text                 set it, if its version is the same
    an empty text          delete it, if its version is the same and it has no place; count the removal
    first, place           delete that place; it fails if it is gone
    touch                  set that place; it fails if it is gone
    leave                  delete those places; without those that are gone already, if it fails for them
    join                   create a place at the end, named when it is sent: it belongs to the session of that moment;
                           and set ``q``. The queue is read behind it, in the same round; not if it is made behind
                           another place, which must be there
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence

from kazoo.exceptions import NoNodeError, ZookeeperError
from kazoo.protocol.serialization import CheckVersion, Create, Delete, SetData

from leasehold._core.light_typing import Any, cast
from leasehold.errors import LeaseholdError
from leasehold.stores.record.requests import ANY, Change, Look, Outcome, Part, Record
from leasehold.stores.zookeeper import calls, failures
from leasehold.stores.zookeeper.calls import Call, NotSent, PlaceNode
from leasehold.stores.zookeeper.looks import Removals, look, with_places
from leasehold.stores.zookeeper.names import bucket, place_owner, queue
from leasehold.stores.zookeeper.revisions import Revision, unpacked
from leasehold.stores.zookeeper.rounds import Lost
from leasehold.stores.zookeeper.tree import Tree

MOST_PARTS = 60  # a record of 15 KB each, with its path, stays below the limit
MOST_BYTES = 1_000_000  # of one request: ZooKeeper's jute.maxbuffer is 1,048,575, and it hangs up on a larger one


class Transaction:
    """The operations of a change, and what becomes of them."""

    def __init__(self, tree: Tree, parts: Sequence[Part], gone: set[str]) -> None:
        self._tree = tree
        self.parts = parts
        self.operations: list[Any] = []
        self.leaves: dict[int, str] = {}  # the operations that may fail, with their paths
        self.creations: set[int] = set()  # those that fail with NoNode only when the tree is gone
        self._of_record: dict[str, int] = {}  # the operation that tells the new revision
        self._of_bucket: dict[str, int] = {}
        self._of_queue: dict[str, int] = {}  # the operation that counts a join
        self._of_place: dict[str, int] = {}  # the one that makes a place behind another
        self.size = 0
        self._add_buckets()
        for part in parts:
            self._add(part, gone)

    def _add_buckets(self) -> None:
        """First: a removal changes the version that the others require."""
        removed = {bucket(part.resource) for part in self.parts if part.revision and part.text == ""}
        known = [part for part in self.parts if part.revision not in (0, ANY)]
        required = {(bucket(part.resource), unpacked(part.revision).removals) for part in known}
        for one, removals in sorted(required):
            path = f"{self._tree.names.records}/{one}"
            if one in removed and one not in self._of_bucket:
                self._of_bucket[one] = self._append(SetData(path, b"", removals))
            else:
                self._append(CheckVersion(path, removals))

    def _add(self, part: Part, gone: set[str]) -> None:
        names = self._tree.names
        path = names.record(part.resource)
        for place in (part.first, part.place):
            if place is not None:
                self._append(Delete(f"{path}/{place.key}", -1))
        if part.touch is not None:
            text = part.touch.text.encode()
            self._append(SetData(f"{path}/{part.touch.key}", text, -1), len(text))
        for place in part.leave:
            child = f"{path}/{place.key}"
            if child not in gone:
                self.leaves[self._append(Delete(child, -1))] = child
        self._add_record(part, path)
        if part.join is not None:
            text = part.join.text.encode()
            owner = place_owner(part.join.owner, part.join.offer)
            if part.join.behind is not None:
                self._append(CheckVersion(f"{path}/{part.join.behind.key}", -1))
            make = PlaceNode(path, owner, text, self._tree.acl, self._tree.session.current)
            index = self._append(make, len(text) + len(owner))
            if part.join.behind is not None:
                self._of_place[part.resource] = index
            self._of_queue[part.resource] = self._append(SetData(names.queue(part.resource), b"", -1))

    def _add_record(self, part: Part, path: str) -> None:
        names = self._tree.names
        data = (part.text or "").encode()
        if part.revision == ANY:
            return
        if part.revision == 0:
            index = self._append(Create(path, data, self._tree.acl, 0), len(data))
            self.creations.add(index)
            self._of_record[part.resource] = index
            if not part.text:  # there is none, and it stays so
                self._append(Delete(path, 0))
                del self._of_record[part.resource]
            else:
                self._append(Create(names.queue(part.resource), b"", self._tree.acl, 0))
            return
        if part.nobody_waits and part.text:
            self._append(CheckVersion(names.queue(part.resource), part.queue))
        version = unpacked(part.revision).version
        if part.text is None:
            self._append(CheckVersion(path, version))
        elif part.text == "":
            self._append(Delete(names.queue(part.resource), -1))
            self._append(Delete(path, version))
        else:
            self._of_record[part.resource] = self._append(SetData(path, data, version), len(data))

    def _append(self, operation: Any, size: int = 0) -> int:
        self.operations.append(operation)
        self.size += size + len(operation.path) + 100
        return len(self.operations) - 1

    # ------------------------------------------------------------ done

    def records(self, call: Call, removals: Removals) -> list[Record]:
        results = call.result()
        for one, index in self._of_bucket.items():
            removals.known[one] = self._tree.removals[one] = results[index].version
        return [self._record(part, results, call.zxid, removals) for part in self.parts]

    def counts(self, call: Call) -> dict[str, int]:
        """The joins of each resource for which a place was made, with that."""
        results = call.result()
        return {resource: results[index].version for resource, index in self._of_queue.items()}

    def behind(self, call: Call, counts: Mapping[str, int]) -> dict[str, Record]:
        """Those for which a place was made behind another, with no more than that place."""
        results, session = call.result(), self._tree.session.current()
        made = {resource: results[index].rpartition("/")[2] for resource, index in self._of_place.items()}
        return {one: Record(one, None, ANY, queue([key], session).places, counts[one]) for one, key in made.items()}

    def _record(self, part: Part, results: Sequence[Any], zxid: int, removals: Removals) -> Record:
        index = self._of_record.get(part.resource)
        if index is None:
            kept = part.revision if part.text is None else 0
            return Record(part.resource, None, kept, None)
        version = 0  # of a node that was made
        if part.revision:
            stat = results[index]
            self._tree.session.set_clock(stat.mtime)
            version = stat.version
        known = removals.known.get(bucket(part.resource))
        before = unpacked(part.revision).removals if known is None else known
        return Record(part.resource, part.text, Revision(zxid, before, version).packed(), None)


def change(tree: Tree, request: Change) -> Generator[list[Call], None, Outcome]:
    parts = request.parts
    gone: set[str] = set()
    removals = Removals(tree, [bucket(part.resource) for part in parts if part.revision == 0])
    asked = removals.calls
    while True:  # it ends: each further turn leaves out a place more
        transaction = Transaction(tree, parts, gone)
        if transaction.size > MOST_BYTES:
            raise failures.too_large(tree.server, transaction.size)
        if not transaction.operations:  # all the places that were to be removed are gone
            return Outcome(True, tuple([Record(part.resource, None, 0, None) for part in parts]))
        call = calls.transaction(transaction.operations)
        behind = Behind(tree, parts)
        yield [*asked, call, *behind.calls]
        asked = []
        refused = _refusal(tree, call)
        if refused is None:
            return (yield from _done(tree, transaction, call, removals, behind))
        index, error = refused
        if index in transaction.creations and isinstance(error, NoNodeError):  # somebody has removed the tree
            tree.session.prepared = 0
            raise Lost
        if index not in transaction.leaves or not isinstance(error, NoNodeError):
            break
        gone.add(transaction.leaves[index])
    for part in parts:
        tree.removals.pop(bucket(part.resource), None)
    sight = yield from look(tree, Look(tuple(part.resource for part in parts)))
    return Outcome(False, sight.records)


class Behind:
    """Reads the places of resources for which one is made, or that are taken by the first, behind that in the same
    session: they show it, unless it is gone again. Nothing older than the change can be shown, so the member need not
    catch up with its leader."""

    def __init__(self, tree: Tree, parts: Sequence[Part]) -> None:
        self._tree = tree
        joins = [(part.resource, part.join) for part in parts if part.join is not None]
        self._owners = {resource: join.owner for resource, join in joins if join.behind is None}
        self._taken = {part.resource: part.queue for part in parts if part.first is not None and part.first.ours}
        resources = [*self._owners, *self._taken]
        self._reads = {resource: calls.children(tree.names.record(resource)) for resource in resources}

    @property
    def calls(self) -> list[Call]:
        return list(self._reads.values())

    def taken(self, record: Record) -> Record:
        """With its places, if it was taken."""
        queue = self._taken.get(record.resource)
        return record if queue is None else with_places(self._tree, record, queue, self._reads[record.resource])

    def joined(self, counts: Mapping[str, int]) -> dict[str, Record]:
        """Those in which the new place is not the first: then their records do not matter, and are not read."""
        records = {}
        for resource, owner in self._owners.items():
            record = with_places(self._tree, Record(resource, None, ANY), counts[resource], self._reads[resource])
            mine = [one for one in record.places or () if one.ours and one.owner == owner]
            if mine and mine[0] is not cast("Any", record.places)[0]:
                records[resource] = record
        return records


def _done(
    tree: Tree, transaction: Transaction, call: Call, removals: Removals, behind: Behind
) -> Generator[list[Call], None, Outcome]:
    """Whoever has got a place sees the queue, and if it is the first there also the record."""
    try:
        removals.learn()
        counts = transaction.counts(call)
        seen = behind.joined(counts) | transaction.behind(call, counts)
        first = tuple([resource for resource in counts if resource not in seen])
        if first:
            sight = yield from look(tree, Look(first))
            seen |= {record.resource: record for record in sight.records}
        done = [behind.taken(record) for record in transaction.records(call, removals)]
        records = [seen.get(record.resource, record) for record in done]
        return Outcome(True, tuple(records))
    except (Lost, LeaseholdError) as error:  # it was done, but what follows from it could not be read
        raise failures.unknown(tree.server, error) from error


def _refusal(tree: Tree, call: Call) -> tuple[int, Exception] | None:
    """Which condition did not hold. Raises OutcomeUnknown, Lost when it was not sent, or StoreUnavailable."""
    try:
        refused = calls.refusal(call.result())
    except NotSent as error:
        raise Lost from error
    except failures.BROKEN as error:
        raise failures.unknown(tree.server, error) from error
    except ZookeeperError as error:
        refused = (-1, error)
    if refused is not None and not isinstance(refused[1], failures.CONDITIONS):
        raise failures.refusal(tree.server, refused[1])
    return refused
