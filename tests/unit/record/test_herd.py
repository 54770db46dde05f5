"""Five processes wait for one resource: what each of them watches, and whom a release wakes. There is no herd."""

from __future__ import annotations

from typing import Any

import pytest

from leasehold._core import ops
from leasehold._core.types import owner_digest
from leasehold.stores.clock import ManualClock
from leasehold.stores.record.requests import ANY, Change, Look, Outcome, Part, Place, Record, Sight
from leasehold.stores.record.turns import Turns
from tests.unit.record.scripted import Scripted, Watch

JOB = "job"
TTL_MS = 60_000
COUNT = 5


class Hall(Scripted):
    """A server with one record and its queue, which all processes share."""

    def __init__(self, offers: bool) -> None:
        super().__init__()
        self.offers = offers
        self.record = Record(JOB)
        self.made = 0  # places

    def perform(self, request: Any) -> Any:
        """Look, or change one record. Whoever watches is told afterwards."""
        if isinstance(request, Look):
            return Sight((self.record,))
        assert isinstance(request, Change)
        (part,) = request.parts
        before = self.record
        if part.revision not in (ANY, before.revision) or (part.nobody_waits and before.places):
            return Outcome(False, (before,))
        if part.first is not None and (before.places or ())[:1] != (part.first,):
            return Outcome(False, (before,))
        joined = self._change(part)
        self._tell(before)
        if part.join is not None and part.join.behind is not None:
            return Outcome(True, (self.record._replace(places=joined),))
        return Outcome(True, (self.record if part.join or self.offers else self.record._replace(places=None),))

    def _change(self, part: Part) -> tuple[Place, ...]:
        places = [one for one in self.record.places or () if one != part.first and one not in part.leave]
        joined = []
        if part.join is not None:
            joined = [Place(part.join.owner, self.made, f"place {self.made}", True, offer=part.join.offer)]
            self.made += 1
        self.record = self.record._replace(places=(*places, *joined), queue=self.made)
        if part.text is not None:
            self.record = self.record._replace(text=part.text, revision=self.record.revision + 1)
        return tuple(joined)

    def _tell(self, before: Record) -> None:
        there = {one.key for one in self.record.places or ()}
        gone = {one.key for one in before.places or ()} - there
        changed = {JOB} if self.record.revision != before.revision else set()
        for watch in self.active():
            if watch.target in gone | changed:
                watch.open = False
                watch.changed(self.record if self.offers else self.record._replace(places=None))

    def active(self) -> list[Watch]:
        """The watches that can still fire, in the order in which they were set."""
        return [one for one in self.watches if one.open]


class Process:
    """One of those who use it, and what wakes it."""

    def __init__(self, hall: Hall, number: int) -> None:
        self.owner = f"host:{number}:secret.{number}"
        self.pushes: list[ops.Push] = []
        self._hall = hall
        self._turns = Turns(hall, ManualClock(), self.pushes.append, lambda: 0.0)  # type: ignore[arg-type]

    def run(self, op: Any) -> Any:
        """Its reply."""
        flow, reply = self._turns.execute(op), None
        while True:
            try:
                reply = self._hall.perform(flow.send(reply))
            except StopIteration as end:
                return end.value

    def claim(self) -> Any:
        """It can be pushed to."""
        return self.run(ops.Claim(JOB, self.owner, TTL_MS, address="here"))

    def beat(self) -> Any:
        """What a waiter does that was woken."""
        return self.run(ops.Beat(JOB, self.owner, 2))


def filled(offers: bool) -> tuple[Hall, Process, int, list[Process]]:
    """A hall, its holder with its fence, and five who wait there."""
    hall = Hall(offers)
    holder, *waiters = [Process(hall, number) for number in range(COUNT + 1)]
    granted = holder.claim()
    for waiter in waiters:
        assert isinstance(waiter.claim(), ops.Queued)
    assert [one.owner for one in hall.record.places or ()] == [owner_digest(waiter.owner) for waiter in waiters]
    return hall, holder, granted.fence, waiters


def woken(waiters: list[Process]) -> list[list[str]]:
    """What each was told since it was last asked."""
    found = [[push.event for push in waiter.pushes] for waiter in waiters]
    for waiter in waiters:
        waiter.pushes.clear()
    return found


@pytest.mark.parametrize("offers", [False, True], ids=["etcd", "zookeeper"])
def test_one_watches_the_record(offers: bool) -> None:
    """The first one. On etcd each other one watches the place before it; on ZooKeeper, where a release grants to a
    place, its own."""
    hall, *_ = filled(offers)
    places = [f"place {number}" for number in range(COUNT)]
    assert [one.target for one in hall.active()] == [JOB, *(places[1:] if offers else places[:-1])]


def test_a_release_wakes_one_on_etcd() -> None:
    """The first, which takes the resource by a change of its own. That removes its place, and wakes the second, which
    watches the record from then on. Nobody else hears of either."""
    hall, holder, fence, waiters = filled(offers=False)
    for number, waiter in enumerate(waiters):
        assert isinstance(holder.run(ops.Release(JOB, holder.owner, fence)), ops.Released)
        assert woken(waiters) == [["wake"] if one is waiter else [] for one in waiters]
        granted = waiter.beat()
        assert isinstance(granted, ops.Granted) and granted.fence > fence
        after = waiters[number + 1 :]
        assert woken(waiters) == [["wake"] if one in after[:1] else [] for one in waiters]
        for next_one in after[:1]:
            assert isinstance(next_one.beat(), ops.Queued)
        assert [one.target for one in hall.active()].count(JOB) == len(after[:1])
        holder, fence = waiter, granted.fence


def test_a_release_wakes_one_on_zookeeper() -> None:
    """The one that it grants to, which is told so, and has nothing more to write."""
    _, holder, fence, waiters = filled(offers=True)
    for waiter in waiters:
        holder.run(ops.Inspect(JOB))  # it knows who waits
        assert isinstance(holder.run(ops.Release(JOB, holder.owner, fence)), ops.Released)
        (push,) = waiter.pushes
        assert push.fence > fence
        assert woken(waiters) == [["granted"] if one is waiter else [] for one in waiters]
        holder, fence = waiter, push.fence
