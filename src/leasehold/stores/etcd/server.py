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
from leasehold.stores.record.requests import Join, Outcome, Place, Record, Request, Sight, Watching

TXN = "/v3/kv/txn"
MOST_SEEN = 4096  # resources of which it is known at which revision they were read last


class EtcdRecords:
    """A ``Server`` of records. From any thread, and on any event loop."""

    most_parts = MOST_PARTS

    def __init__(self, target: Target) -> None:
        self.target = target
        self.server = target.server
        self._gateway = Gateway(target)
        self._keys = Keys(target.prefix)
        self._transactions = Transactions(self._keys)
        self._watches = Watches(self._gateway, self._keys.records)
        self._lease = Lease(self._gateway, self._watches.fire_all)
        self._seen: dict[str, tuple[Record, int]] = {}  # what was read with its places, and etcd's revision then

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
            return (yield from self._perform_together(requests, give_up))
        replies: list[Any] = [None] * len(requests)
        for group in together(requests):
            found = yield from self._perform_together([requests[number] for number in group], give_up)
            for number, reply in zip(group, found, strict=True):
                replies[number] = reply
        return replies

    def _perform_together(self, requests: Sequence[Request], give_up: float) -> Generator[Call, Reply, list[Any]]:
        """One transaction."""
        made = [place for request in requests for place in joins(request)]
        try:
            found = yield from self._transact(requests, made, give_up)
        except Refused as error:
            failure: LeaseholdError = failures.refused(self.server, error)
        except (StoreUnavailable, OutcomeUnknown) as error:
            failure = error.with_traceback(None)  # which leads back to this frame
        else:
            try:
                replies = self._transactions.read(requests, found, self._lease.number)
            except (LookupError, TypeError, ValueError, AttributeError, StopIteration):
                failure = failures.unanswered(self.server, Broken("its reply is not one of etcd"))
            else:
                self._remember(requests, replies, int(found["header"]["revision"]))
                return replies
        if made and isinstance(failure, StoreUnavailable):
            self._forget_new(made)
        return [self._failure(request, failure) for request in requests]

    def _transact(
        self, requests: Sequence[Request], made: Sequence[tuple[str, Join]], give_up: float
    ) -> Generator[Call, Reply, dict[str, Any]]:
        """etcd's reply. When the lease of a new place is gone, nothing was done: it is tried once more, with a new
        one."""
        if not made:
            return (yield from self._without_places(requests, give_up))
        lease = yield from self._lease.ready(give_up)
        try:
            return (yield from self._make_places(requests, made, lease, give_up))
        except Refused as error:
            if error.code != failures.NOT_FOUND:
                raise
        self._lease.ended(lease)
        lease = yield from self._lease.ready(give_up)
        return (yield from self._make_places(requests, made, lease, give_up))

    def _without_places(self, requests: Sequence[Request], give_up: float) -> Generator[Call, Reply, dict[str, Any]]:
        """An owner is buried with our lease. When that is gone, so are all places of ours, also those under way."""
        lease = self._lease.number if any(map(buries, requests)) else NO_LEASE
        try:
            body = self._transactions.write(requests, lease)
            return (yield from self._gateway.post(TXN, body, give_up, harmless(requests)))
        except Refused as error:
            if lease == NO_LEASE or error.code != failures.NOT_FOUND:
                raise
        self._lease.ended(lease)
        return (yield from self._gateway.post(TXN, self._transactions.write(requests, NO_LEASE), give_up))

    def _make_places(
        self, requests: Sequence[Request], made: Sequence[tuple[str, Join]], lease: int, give_up: float
    ) -> Generator[Call, Reply, dict[str, Any]]:
        """The lease stays while these may exist."""
        for resource, join in made:
            self._lease.add_place(resource, self._keys.place(resource, join.owner))
        return (yield from self._gateway.post(TXN, self._transactions.write(requests, lease), give_up))

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
            if kind is Outcome and reply.done:
                self._forget_places(request)
            if kind is Outcome or kind is Sight:
                for record in reply.records:
                    if record.places is not None:
                        self._see(record, revision)

    def _forget_places(self, change: Any) -> None:
        for part in change.parts:
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

    def close(self) -> None:
        self._watches.close()
        self._lease.close()
        self._gateway.close()


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
