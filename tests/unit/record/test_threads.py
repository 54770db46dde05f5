"""Several threads in the turns of one process: what one of them read early and notes late misleads no other."""

from __future__ import annotations

from leasehold._core import ops
from leasehold._core.types import owner_digest
from leasehold.stores.record.requests import Change, Look, Outcome, Place, Record, Sight
from tests.unit.record.scripted import Scripted, begin, end, turns

HOLDER, WAITER, OTHER = "host:1:holder.1", "host:2:waiter.1", "host:1:other.1"
PLACE = Place(owner_digest(WAITER), 1, "its key", ours=False)


def test_a_release_keeps_the_places_that_it_knew() -> None:
    """A thread notes an old record, without the waiter, while the release of another thread is under way. The release
    leaves the waiter where it is, so that the next claim is not granted before it."""
    process = turns(Scripted())
    claim = begin(process, ops.Claim("job", HOLDER, 60_000))
    assert isinstance(next(claim), Look)
    change = claim.send(Sight((Record("job"),)))
    old = Record("job", change.parts[0].text, 1)
    granted = end(claim, Outcome(True, (old._replace(places=None),)))

    look = begin(process, ops.Inspect("job"))
    next(look)
    joined = old._replace(revision=2, places=(PLACE,))
    end(look, Sight((joined,)))

    release = begin(process, ops.Release("job", HOLDER, granted.fence))
    change = next(release)
    assert isinstance(change, Change) and change.parts[0].revision == 2
    late = begin(process, ops.Inspect("job"))
    next(late)
    end(late, Sight((old,)))  # it was read before the waiter came
    assert end(release, Outcome(True, (Record("job", change.parts[0].text, 3, None),))) == ops.Released()

    other = begin(process, ops.Claim("job", OTHER, 60_000, enqueue=False))
    request = next(other)
    assert isinstance(request, Look), "granted before the one who waits"
    assert isinstance(end(other, Sight((Record("job", change.parts[0].text, 3, (PLACE,)),))), ops.Busy)
