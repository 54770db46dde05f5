"""What one process knows of records: as it read or wrote them last, and when it first saw their parts.

What is known may be stale: then a change that is conditional on it fails. When a part was first seen is never forgotten
while the part is there, since that is what its end counts from.
"""

from __future__ import annotations

from leasehold._core import ledger
from leasehold._core.light_typing import NamedTuple, cast
from leasehold._core.policy import DAY_US
from leasehold._core.ports import Clock
from leasehold._core.types import Instant, State, owner_digest
from leasehold.stores.record import text
from leasehold.stores.record.requests import ANY, Part, Place, Record, Server
from leasehold.stores.record.text import Kept

MOST_KNOWN = 10_000  # records that are remembered


class Known(NamedTuple):
    """What this process knows of a resource."""

    record: Record
    kept: Kept | None  # None: it cannot be read
    seen: text.Sightings
    looked_ms: int  # when it was read or written
    stale: bool = False  # something may have changed: look before anything else


class Knowledge:
    """All that one process knows of the records of one server."""

    def __init__(self, server: Server, clock: Clock) -> None:
        self._server = server
        self._clock = clock
        self.replied = False
        self._known: dict[str, Known] = {}

    def get(self, resource: str) -> Known | None:
        return self._known.get(resource)

    def note(self, record: Record, kept: Kept | None = None) -> Known:
        """Remember a record that was read or written just now; ``kept`` is what it says, where that is known."""
        self.replied = True
        now = self.instant()
        before = self._known.get(record.resource)
        kept = kept_of(record) if kept is None else kept
        seen = {} if kept is None else text.first_seen(kept, {} if before is None else before.seen, now)
        known = Known(record, kept, seen, now.ms)
        self._known.pop(record.resource, None)  # the oldest come first
        self._known[record.resource] = known
        if len(self._known) > MOST_KNOWN:
            self._known.pop(next(iter(self._known)), None)
        return known

    def distrust(self, resource: str) -> None:
        known = self._known.get(resource)
        if known is not None:
            self._known[resource] = known._replace(stale=True)

    def removed(self, known: Known, place: Place) -> None:
        """This place is gone since its claim was granted the resource."""
        places = tuple([one for one in known.record.places or () if one.number != place.number])
        self._known[known.record.resource] = known._replace(record=known.record._replace(places=places))

    def instant(self) -> Instant:
        """Local time since boot, and the server's wall clock as well as it is known."""
        return Instant(self._clock.instant().ms, self._server.wall_us())


def base(known: Known, now: Instant) -> State:
    """The state, without what is over by now. Every grant that is over is remembered for a while: its holder may ask
    again what became of it, because a reply was lost."""
    state = text.here(cast("Kept", known.kept), known.seen)
    if any(one.expires_ms <= now.ms for one in state.holders):
        state = state._replace(holders=tuple([one._replace(repeated=True) for one in state.holders]))
    return ledger.tidy(state, now)


def own_place(owner: str, known: Known) -> Place | None:
    digest = owner_digest(owner)
    return next((one for one in known.record.places or () if one.ours and one.owner == digest), None)


def with_places(record: Record, part: Part, before: Record) -> Record:
    """Places that were not read are those of the record that the change was conditional on, without those that were
    removed: who has got one since is found by the server's comparison. What is known by now is no help: another thread
    may have noted a record that it read long ago. The same for a record that stays, or was not read."""
    if record.places is not None:
        if part.join is not None and part.join.behind is not None:
            return before._replace(places=(*(before.places or ()), *record.places), queue=record.queue)
        return before._replace(places=record.places, queue=record.queue) if record.revision == ANY else record
    places = before.places
    if places is not None:
        gone = (part.first, part.place, *part.leave)
        places = tuple([one for one in places if one not in gone])
    return (before if part.text is None else record)._replace(places=places, queue=before.queue)


def listed(record: Record, now: Instant) -> bool:
    kept = kept_of(record)
    return kept is None or ledger.listed(text.here(kept, text.first_seen(kept, {}, now)), now)


def idle(record: Record, now: Instant) -> bool:
    """Has it no use any more? Not within a day of its last change, so that no claim is under way that has read it."""
    kept = kept_of(record)
    if kept is None or kept.last + DAY_US > now.wall_us:
        return False
    return ledger.tidy(text.here(kept, text.first_seen(kept, {}, now)), now) == ledger.EMPTY


def kept_of(record: Record) -> Kept | None:
    try:
        return text.EMPTY if record.text is None else text.decode(record.text)
    except text.UNREADABLE:
        return None
