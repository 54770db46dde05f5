"""etcd as a server of records: what a turn requests, carried out over its JSON gateway."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence

from leasehold._core.driver import drive, drive_async
from leasehold._core.light_typing import Any
from leasehold.errors import LeaseholdError, OutcomeUnknown, StoreUnavailable
from leasehold.stores.etcd import failures
from leasehold.stores.etcd.connection import Broken
from leasehold.stores.etcd.failures import Refused
from leasehold.stores.etcd.gateway import Call, Gateway
from leasehold.stores.etcd.http import Reply
from leasehold.stores.etcd.keys import Keys, decoded
from leasehold.stores.etcd.lease import Lease
from leasehold.stores.etcd.streams import NODELETE, NOPUT
from leasehold.stores.etcd.transactions import MOST_PARTS, NO_LEASE, Transactions, buries, harmless, joins, together
from leasehold.stores.etcd.urls import Target, from_url
from leasehold.stores.etcd.watches import Event, Watch, Watches
from leasehold.stores.record.requests import (
    Change,
    Join,
    Look,
    Outcome,
    Part,
    Place,
    Record,
    Request,
    Sight,
    Watching,
)

TXN = "/v3/kv/txn"
STATUS = "/v3/maintenance/status"
MOST_SEEN = 4096  # resources of which it is known at which revision they were read last
MANY = 4  # changes of ours in a row, after which we expect to be alone with a record
FIRST = Part._fields.index("first")
NO_PLACES = Part("", 0)[FIRST:]


class EtcdRecords:
    """A ``Server`` of records. From any thread, and on any event loop."""

    most_parts = MOST_PARTS
    offers = False  # two transactions for a handover

    def __init__(self, target: Target) -> None:
        self.target = target
        self.server = target.server
        self.url = target.url
        self._gateway = Gateway(target)
        self._keys = Keys(target.prefix)
        self._transactions = Transactions(self._keys)
        self._watches = Watches(self._gateway, self._keys.records)
        self._lease = Lease(self._gateway, self._watches.fire_all)
        self._seen: dict[str, tuple[Record, int]] = {}  # what was read with its places, and etcd's revision then
        self._quiet = Quiet()

    @classmethod
    def from_url(cls, url: str) -> EtcdRecords:
        """Raises InvalidRequest. Connects to nothing yet."""
        return cls(from_url(url))

    # ------------------------------------------------------------ requests

    def perform(self, requests: Sequence[Request], give_up: float) -> list[Any]:
        return drive(self._perform(requests, give_up), self._gateway.send)

    async def perform_async(self, requests: Sequence[Request], give_up: float) -> list[Any]:
        return await drive_async(self._perform(requests, give_up), self._gateway.send_async)

    def _perform(self, requests: Sequence[Request], give_up: float) -> Generator[Call, Reply, list[Any]]:
        if len(requests) == 1:
            return self._perform_together(requests, give_up)
        return self._perform_all(requests, give_up)

    def _perform_all(self, requests: Sequence[Request], give_up: float) -> Generator[Call, Reply, list[Any]]:
        replies: list[Any] = [None] * len(requests)
        for group in together(requests):
            found = yield from self._perform_together([requests[number] for number in group], give_up)
            for number, reply in zip(group, found, strict=True):
                replies[number] = reply
        return replies

    def _perform_together(self, requests: Sequence[Request], give_up: float) -> Generator[Call, Reply, list[Any]]:
        """One transaction."""
        put = self._quiet.usual(requests)
        try:
            return (yield from self._transact(requests, give_up) if put is None else self._put(put, give_up))
        except Refused as error:
            failure: LeaseholdError = failures.refused(self.server, error)
        except Broken as error:
            failure = failures.unanswered(self.server, error)
        except (StoreUnavailable, OutcomeUnknown) as error:
            failure = error.with_traceback(None)  # which leads back to this frame
        return [self._failure(request, failure) for request in requests]

    def _put(self, part: Part, give_up: float) -> Generator[Call, Reply, list[Outcome]]:
        """A change that reads nothing when it is refused. If it is, what there is is read by another transaction."""
        found = yield from self._gateway.post(TXN, self._transactions.put(part), give_up)
        revision = self._transactions.revision(found)
        if found.get("succeeded"):
            self._quiet.note(part, revision)
            return [Outcome(True, (Record(part.resource, part.text, revision, None),))]
        self._quiet.forget(part)
        (sight,) = yield from self._transact((Look((part.resource,)),), give_up)
        return [Outcome(False, sight.records)]

    def _transact(self, requests: Sequence[Request], give_up: float) -> Generator[Call, Reply, list[Any]]:
        made = joins(requests)
        steps = self._make_places(requests, made, give_up) if made else self._without_places(requests, give_up)
        found = yield from steps
        replies = self._transactions.read(requests, found, self._lease.number)
        self._remember(requests, replies, self._transactions.revision(found))
        return replies

    def _without_places(self, requests: Sequence[Request], give_up: float) -> Generator[Call, Reply, dict[str, Any]]:
        """etcd's reply. An owner is buried with our lease. When that is gone, so are all places of ours, also those
        under way."""
        lease = self._lease.number if any(map(buries, requests)) else NO_LEASE
        try:
            return (yield from self._post(requests, lease, give_up))
        except Refused as error:
            if lease == NO_LEASE or error.code != failures.NOT_FOUND:
                raise
        self._lease.ended(lease)
        return (yield from self._post(requests, NO_LEASE, give_up))

    def _make_places(
        self, requests: Sequence[Request], made: Sequence[tuple[str, Join]], give_up: float
    ) -> Generator[Call, Reply, dict[str, Any]]:
        """etcd's reply. When the lease of a new place is gone, nothing was done: it is tried once more, with a new
        one."""
        try:
            lease = yield from self._lease.ready(give_up)
            self._keep_lease(made)
            try:
                return (yield from self._post(requests, lease, give_up))
            except Refused as error:
                if error.code != failures.NOT_FOUND:
                    raise
            self._lease.ended(lease)
            lease = yield from self._lease.ready(give_up)
            self._keep_lease(made)
            return (yield from self._post(requests, lease, give_up))
        except (Refused, StoreUnavailable):
            self._forget_new(made)
            raise

    def _post(self, requests: Sequence[Request], lease: int, give_up: float) -> Generator[Call, Reply, dict[str, Any]]:
        return self._gateway.post(TXN, self._transactions.write(requests, lease), give_up, harmless(requests))

    def _keep_lease(self, made: Sequence[tuple[str, Join]]) -> None:
        """The lease stays while these may exist."""
        for resource, join in made:
            self._lease.add_place(resource, self._keys.place(resource, join.owner))

    @staticmethod
    def _failure(request: Request, failure: LeaseholdError) -> LeaseholdError:
        """Each request has an error of its own. What only reads has never an unknown outcome."""
        kind = StoreUnavailable if harmless((request,)) else type(failure)
        error = kind(str(failure))
        cause = failure.__cause__
        error.__cause__ = cause.with_traceback(None) if cause is not None else None
        return error

    # ------------------------------------------------------------ what is known from replies

    def _forget_new(self, made: Sequence[tuple[str, Join]]) -> None:
        for resource, join in made:
            self._lease.remove_places(resource, [self._keys.place(resource, join.owner)])

    def _remember(self, requests: Sequence[Request], replies: Sequence[Any], revision: int) -> None:
        for request, reply in zip(requests, replies, strict=True):
            kind = type(reply)
            if kind is Outcome:
                self._remember_change(request, reply)
            if kind is Outcome or kind is Sight:
                for record in reply.records:
                    if record.places is not None:
                        self._see(record, revision)

    def _remember_change(self, change: Any, outcome: Outcome) -> None:
        for part, record in zip(change.parts, outcome.records, strict=True):
            if not outcome.done:
                self._quiet.forget(part)
                continue
            self._quiet.note(part, record.revision)
            gone = [place.key for place in (part.first, *part.leave) if place is not None]
            gone += [self._keys.place(part.resource, part.bury)] if part.bury else []
            if gone:
                self._lease.remove_places(part.resource, gone)

    def _see(self, record: Record, revision: int) -> None:
        if self._lease.number:
            self._lease.seen(record.resource, record.places or ())
        seen = self._seen
        seen.pop(record.resource, None)
        seen[record.resource] = (record, revision)
        if len(seen) > MOST_SEEN:
            try:
                del seen[next(iter(seen))]
            except (KeyError, StopIteration, RuntimeError):  # another thread has just done so
                pass

    def versions(self, give_up: float) -> list[str]:
        try:
            found = drive(self._gateway.post(STATUS, b"{}", give_up, harmless=True), self._gateway.send)
        except (LeaseholdError, Refused):
            return []
        return [f"etcd {found['version']}"] if "version" in found else []

    def wall_us(self) -> int:
        return self._gateway.wall.now_us()

    # ------------------------------------------------------------ watches

    def watch_record(self, record: Record, changed: Callable[[Record | None], None]) -> Watching:
        """It begins behind the revision at which the record was read: what is older may be compacted."""
        seen, revision = self._seen.get(record.resource, (None, 0))
        if seen is None or seen.revision != record.revision:
            revision = record.revision
        resource = record.resource

        def happened(events: list[Event] | None) -> None:
            changed(_record(resource, events[-1]) if events else None)

        watch = Watch(self._keys.records + resource, revision + 1, "", happened, revision=record.revision)
        self._watches.add(watch, known=bool(revision))  # without one, nobody knows what happened since
        return watch

    def watch_place(self, resource: str, place: Place, changed: Callable[[Record | None], None]) -> Watching:
        seen, revision = self._seen.get(resource, (None, 0))
        if seen is None or not any(one.number == place.number for one in seen.places or ()):
            revision = place.number
        watch = Watch(place.key, revision + 1, NOPUT, lambda _: changed(None), revision=place.number)
        self._watches.add(watch)
        return watch

    def hear(self, address: str, receive: Callable[[str], None]) -> Watching:
        return Hearing(self._lease, self._watches, self._keys.news(address), receive)

    # ------------------------------------------------------------ the end

    def forked(self) -> None:
        self._gateway.forked()
        self._watches.forked()
        self._lease.forked()
        self._seen = {}
        self._quiet = Quiet()

    def close(self) -> None:
        self._watches.close()
        self._lease.close()
        self._gateway.close()


class Quiet:
    """The records that nobody else has changed lately. A change of one of them is hardly ever refused, so etcd is not
    told what to read then: that would cost it more than the conditions, also when nothing is read."""

    def __init__(self) -> None:
        self._changes: dict[
            str, tuple[int, int]
        ] = {}  # resource -> the revision of our last one, and how many in a row

    def usual(self, requests: Sequence[Request]) -> Part | None:
        """The part, if it is the only one, writes such a record, and has nothing to do with places of ours."""
        request = requests[0]
        if type(request) is not Change or len(request.parts) + len(requests) != 2:
            return None
        (part,) = request.parts
        revision, count = self._changes.get(part.resource, (0, 0))
        alone = count >= MANY and revision == part.revision
        return part if alone and part.text and part[FIRST:] == NO_PLACES else None

    def note(self, part: Part, revision: int) -> None:
        """It was done, and the record has this revision now."""
        changes = self._changes
        last, count = changes.get(part.resource, (0, 0))
        if part.text:
            changes[part.resource] = revision, count + 1 if last == part.revision else 1
        if len(changes) > MOST_SEEN:
            changes.clear()

    def forget(self, part: Part) -> None:
        """It was refused: somebody else is there."""
        self._changes.pop(part.resource, None)


class Hearing:
    """Texts that others send to an address. They are watched from the moment that they can be sent."""

    def __init__(self, lease: Lease, watches: Watches, key: str, receive: Callable[[str], None]) -> None:
        self._lease = lease
        self._watches = watches
        self._key = key
        self._receive = receive
        self._watch: Watch | None = None
        self._closed = False
        lease.listen(key, self._announced)

    def _announced(self, revision: int) -> None:
        """The key is there, for the first time or again after the lease was lost."""
        if self._watch is None and not self._closed:
            self._watch = Watch(self._key, revision + 1, NODELETE, self._happened, lasting=True)
            self._watches.add(self._watch)

    def _happened(self, events: list[Event] | None) -> None:
        for event in events or ():
            text = decoded(event["kv"].get("value", ""))
            if text and not self._closed:  # without a text the key was made again
                self._receive(text)

    def close(self) -> None:
        self._closed = True
        self._lease.unlisten(self._key)
        if self._watch is not None:
            self._watch.close()


def _record(resource: str, event: Event) -> Record:
    found = event["kv"]
    if event.get("type") == "DELETE":
        return Record(resource, None, 0, None)
    return Record(resource, decoded(found.get("value", "")), int(found["mod_revision"]), None)
