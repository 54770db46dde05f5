"""The queue of a resource whose server is the test."""

from __future__ import annotations

from leasehold._core import ops
from leasehold._core.types import owner_digest
from leasehold.stores.record.requests import Change, Look, Outcome, Place, Record, Sight
from leasehold.stores.record.text import EMPTY, encode
from tests.unit.record.scripted import Scripted, begin, end, turns

OWNER = "host:1:waiter.1"
FIRST = Place(owner_digest("host:2:waiter.1"), 0, "its key", ours=False)  # ZooKeeper begins with 0
MINE = Place(owner_digest(OWNER), 1, "my key", ours=True)


def test_the_first_place_of_all_is_not_overdue() -> None:
    """Whoever waits behind it leaves it alone when the resource becomes free: its owner has not been slow yet."""
    server = Scripted()
    process = turns(server)
    held = begin(process, ops.Claim("job", "host:3:holder.1", 60_000))
    next(held)
    written = held.send(Sight((Record("job"),))).parts[0].text
    end(held, Outcome(True, (Record("job", written, 1, None),)))

    waits = begin(process, ops.Claim("job", OWNER, 60_000))
    join = next(waits)  # it was read just now
    assert isinstance(join, Change) and join.parts[0].join is not None
    queued = end(waits, Outcome(True, (Record("job", written, 2, (FIRST, MINE)),)))
    assert isinstance(queued, ops.Queued) and queued.ahead == 1

    [watch] = server.watches
    watch.changed(None)
    beat = begin(process, ops.Beat("job", OWNER, 2))
    assert isinstance(next(beat), Look)
    free = Record("job", encode(EMPTY), 3, (FIRST, MINE))
    assert isinstance(end(beat, Sight((free,))), ops.Queued), "the first one lost its place"
