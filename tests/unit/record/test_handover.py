"""Handovers: a release that grants to the first place, by turns whose server is the test."""

from __future__ import annotations

from typing import Any

from leasehold._core import ops
from leasehold._core.types import Instant, owner_digest, owner_id
from leasehold.stores.clock import ManualClock
from leasehold.stores.record import text
from leasehold.stores.record.handover import fresh_ms, offer
from leasehold.stores.record.requests import ANY, Change, Look, Outcome, Place, Record, Sight
from leasehold.stores.record.turns import Turns
from tests.unit.record.scripted import Scripted, begin, end

WALL = Scripted().wall_us()
HOLDER, WAITER = "host:1:secret.1", "host:2:secret.2"
CLAIM = ops.Claim("job", WAITER, 60_000, address="here")


class Offering(Scripted):
    """A server whose places keep what their claims offer."""

    offers = True


class Stage:
    """A process, its clock, its server, and what was pushed in it."""

    def __init__(self) -> None:
        self.clock, self.server, self.pushes = ManualClock(), Offering(), list[ops.Push]()
        self.turns = Turns(self.server, self.clock, self.pushes.append, lambda: 0.0)  # type: ignore[arg-type]

    def held(self, *places: Place) -> tuple[int, str]:
        """It holds the resource, and these wait: its fence, and the record."""
        claim = begin(self.turns, ops.Claim("job", HOLDER, 60_000))
        next(claim)
        written = claim.send(Sight((Record("job"),))).parts[0].text
        granted = end(claim, Outcome(True, (Record("job", written, 1, None),)))
        look = begin(self.turns, ops.Inspect("job"))
        next(look)
        end(look, Sight((Record("job", written, 1, places),)))
        return granted.fence, written

    def waiting(self) -> Place:
        """A claim of its own waits behind another: its place."""
        _, written = self.held(place(CLAIM._replace(owner="host:3:secret.3"), 0))
        join = begin(self.turns, CLAIM)
        part = next(join).parts[0]
        mine = Place(part.join.owner, 1, "my key", True, offer=part.join.offer)
        other = place(CLAIM._replace(owner="host:3:secret.3"), 0)
        assert isinstance(end(join, Outcome(True, (Record("job", written, 1, (other, mine), 2),))), ops.Queued)
        return mine


def place(claim: ops.Claim, number: int = 0, age_ms: int = 0) -> Place:
    """Of a claim of another process, as that made it."""
    made = offer(claim, Instant(0, WALL - age_ms * 1000))
    return Place(owner_digest(claim.owner), number, f"key {number}", ours=False, offer=made)


def granted_to(part: Any) -> list[str]:
    """Who holds the resource when this is done."""
    return [one.owner for one in text.decode(part.text).state.holders]


def test_a_release_grants_to_the_first_place() -> None:
    """In the same change, on condition that the place is there. The record names its owner without the token."""
    stage, first, second = Stage(), place(CLAIM), place(CLAIM._replace(owner="host:3:secret.3"), 1)
    fence, _ = stage.held(first, second)
    release = begin(stage.turns, ops.Release("job", HOLDER, fence))
    (part,) = next(release).parts
    assert (part.first, part.touch, granted_to(part)) == (first, None, [owner_id(WAITER)])
    assert "secret" not in part.text
    assert text.decode(part.text).state.holders[0].fence > fence
    assert end(release, Outcome(True, (Record("job", part.text, 2, None),))) == ops.Released()


def test_a_place_that_is_gone_is_granted_nothing() -> None:
    """The change is refused, and the next one is asked."""
    stage, second = Stage(), place(CLAIM._replace(owner="host:3:secret.3"), 1)
    fence, written = stage.held(place(CLAIM), second)
    release = begin(stage.turns, ops.Release("job", HOLDER, fence))
    next(release)
    (part,) = release.send(Outcome(False, (Record("job", written, 1, (second,)),))).parts
    assert (part.first, granted_to(part)) == (second, ["host:3#" + second.owner])


def test_what_is_left_free() -> None:
    """For claims that were silent for long, were repeated, say something, share, or cannot be pushed to. The first one
    is woken if it may watch its own place."""
    others = [
        place(CLAIM, age_ms=fresh_ms(60_000) + 1),
        *[
            place(CLAIM._replace(**change))
            for change in ({"beat": 2}, {"meta": "{}"}, {"rule": "read"}, {"rule": "write"}, {"address": ""})
        ],
    ]
    for one in others:
        stage = Stage()
        fence, _ = stage.held(one)
        (part,) = next(begin(stage.turns, ops.Release("job", HOLDER, fence))).parts
        assert (part.first, granted_to(part)) == (None, [])
        assert (part.touch is not None) == (one.offer is not None)


def test_a_grant_to_a_place_counts_from_when_it_was_sent() -> None:
    """Not from when its owner reads of it: by a watch, or by a beat."""
    stage = Stage()
    mine = stage.waiting()
    assert mine.offer is not None
    written = text.encode(granted(mine))
    (watch,) = stage.server.watches
    stage.clock.advance(2)
    watch.changed(Record("job", written, 2, ()))
    (push,) = stage.pushes
    assert (push.event, push.owner, push.beat, push.remaining_ms) == ("granted", WAITER, 1, 60_000)
    stage.clock.advance(3)
    beat = begin(stage.turns, ops.Beat("job", WAITER, 2))
    assert isinstance(next(beat), Look)
    reply = end(beat, Sight((Record("job", written, 2, ()),)))
    assert isinstance(reply, ops.Granted) and 54_000 < reply.remaining_ms < 55_000


def test_the_first_one_does_not_know_who_came_behind_it() -> None:
    """It watched the record, which says nothing of places: it looks before it releases, and hands on."""
    stage = Stage()
    _, written = stage.held()
    join = begin(stage.turns, CLAIM)
    part = next(join).parts[0]
    mine = Place(part.join.owner, 0, "my key", True, offer=part.join.offer)
    assert isinstance(end(join, Outcome(True, (Record("job", written, 1, (mine,), 1),))), ops.Queued)
    (watch,) = stage.server.watches
    assert watch.target == "job"
    record, fence = text.encode(granted(mine)), granted(mine).state.holders[0].fence
    watch.changed(Record("job", record, 2, None))
    assert [push.event for push in stage.pushes] == ["granted"]
    release = begin(stage.turns, ops.Release("job", WAITER, fence))
    assert isinstance(next(release), Look)
    behind = place(CLAIM._replace(owner="host:3:secret.3"), 1)
    (part,) = release.send(Sight((Record("job", record, 2, (behind,)),))).parts
    assert (part.first, granted_to(part)) == (behind, ["host:3#" + behind.owner])


def granted(mine: Place) -> text.Kept:
    """The record after somebody has granted to this place."""
    stage = Stage()
    fence, _ = stage.held(mine._replace(ours=False))
    (part,) = next(begin(stage.turns, ops.Release("job", HOLDER, fence))).parts
    return text.decode(part.text)


def test_whoever_gives_up_gives_back_what_it_was_granted_meanwhile() -> None:
    """Its place must be there to be removed. The next one is woken."""
    stage = Stage()
    mine = stage.waiting()
    withdraw = begin(stage.turns, ops.Withdraw("job", WAITER))
    (part,) = next(withdraw).parts
    assert (part.revision, part.place, part.leave) == (ANY, mine, ())
    change = withdraw.send(Outcome(False, (Record("job", text.encode(granted(mine)), 2, ()),)))
    assert isinstance(change, Change) and granted_to(change.parts[0]) == []
    assert end(withdraw, Outcome(True, (Record("job", change.parts[0].text, 3, None),))) == ops.Withdrawn("held")


def test_whoever_gives_up_wakes_the_next() -> None:
    """It may watch nothing but its own place."""
    stage = Stage()
    stage.waiting()
    withdraw = begin(stage.turns, ops.Withdraw("job", WAITER))
    next(withdraw)
    assert isinstance(withdraw.send(Outcome(True, (Record("job", None, ANY, None),))), Look)
    following = place(CLAIM._replace(owner="host:3:secret.3"), 5)
    (part,) = withdraw.send(Sight((Record("job", text.encode(text.EMPTY), 1, (following,)),))).parts
    assert part.touch is not None and part.touch.number == 5
    assert text.waiter(part.touch.text, Instant(0, WALL)) is not None
    assert end(withdraw, Outcome(True, (Record("job", None, ANY, None),))) == ops.Withdrawn("queued")


def test_the_ops_of_an_owner_mean_a_grant_to_its_place() -> None:
    """Renew and release by the token that only its process knows."""
    stage = Stage()
    mine = stage.waiting()
    written = text.encode(granted(mine))
    fence = granted(mine).state.holders[0].fence
    (watch,) = stage.server.watches
    watch.changed(Record("job", written, 2, ()))
    renew = begin(stage.turns, ops.Renew("job", WAITER, fence, 60_000, number=1))
    (part,) = next(renew).parts
    assert granted_to(part) == [owner_id(WAITER)]
    assert end(renew, Outcome(True, (Record("job", part.text, 3, None),))) == ops.Renewed(60_000)
    release = begin(stage.turns, ops.Release("job", WAITER, fence))
    (part,) = next(release).parts
    assert granted_to(part) == []
    assert end(release, Outcome(True, (Record("job", part.text, 4, None),))) == ops.Released()
