"""What all or nothing costs: one round trip to take what is free, and one to give it back."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from leasehold._core.ops import Claim, Group, Release
from tests.support.lock import STORES, Spy, open_store
from tests.support.parties import FLAVOURS, Party


@pytest.fixture(params=STORES)
def spy(request: pytest.FixtureRequest, tmp_path: Path) -> Spy:
    """A store that remembers what is asked of it."""
    return Spy(open_store(request.param, tmp_path))


@pytest.fixture(params=FLAVOURS)
def party(request: pytest.FixtureRequest, spy: Spy) -> Iterator[Party]:
    """Somebody on it, in each flavour."""
    made: Party = FLAVOURS[request.param](spy)
    yield made
    made.close()


def three(hold: Any) -> Any:
    """Three locks, not in the order of their names."""
    return hold.all(hold.lock("c"), hold.lock("a"), hold.lock("b"))


def test_one_round_trip_each_way(spy: Spy, party: Party) -> None:
    """Three free locks: one step that takes them in the order of their names, one that gives them back."""
    leases = party.do(lambda hold: three(hold).acquire())
    assert [type(op) for op in spy.ops] == [Group]
    assert [step.resource for op in spy.of(Group) for step in op.steps] == ["a", "b", "c"]
    assert party.do(lambda _: leases.release()) is True
    assert [type(op) for op in spy.ops] == [Group, Group]
    assert all(isinstance(step, Release) for step in spy.of(Group)[1].steps)


def test_one_round_trip_each_way_with_a_body(spy: Spy, party: Party) -> None:
    """The same for a with statement."""
    party.within(three, lambda leases: leases.check()).result(60)
    assert [type(op) for op in spy.ops] == [Group, Group]


def test_a_refused_try_costs_two(spy: Spy, party: Party) -> None:
    """One step that finds one taken, one that gives back what came before it: nothing is left when it answers."""
    theirs = party.do(lambda hold: hold.lock("b").acquire())
    spy.ops.clear()
    assert party.do(lambda hold: three(hold).try_acquire()) is None
    assert [type(op) for op in spy.ops] == [Group, Group]
    assert theirs.state == "held"


def test_a_try_that_is_refused_at_the_first_costs_one(spy: Spy, party: Party) -> None:
    """Then there is nothing to give back."""
    theirs = party.do(lambda hold: hold.lock("a").acquire())
    spy.ops.clear()
    assert party.do(lambda hold: three(hold).try_acquire()) is None
    assert [type(op) for op in spy.ops] == [Group] and theirs.state == "held"


def test_one_lock_is_one_claim(spy: Spy, party: Party) -> None:
    """An all of one is a lock."""
    leases = party.do(lambda hold: hold.all(hold.lock("a")).acquire())
    assert [type(op) for op in spy.ops] == [Claim] and len(leases) == 1
    assert party.do(lambda _: leases.release()) is True


def test_entering_again_costs_nothing(spy: Spy, party: Party) -> None:
    """What this thread or task holds already asks for nothing, on the way in and on the way out."""

    def both(hold: Any) -> Any:
        return hold.all(hold.rlock("a"), hold.rlock("b"))

    outer = party.do(lambda hold: both(hold).acquire())
    spy.ops.clear()
    inner = party.do(lambda hold: both(hold).acquire())
    assert inner.fences == outer.fences and inner[0] is outer[0]
    assert party.do(lambda _: inner.release()) is True
    assert spy.ops == [] and outer.state == "held"
    assert party.do(lambda _: outer.release()) is True and len(spy.ops) == 1
