"""What observers hear of an all: each part's own life, begun and ended once."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from leasehold._core.ops import Evict, Group
from leasehold.errors import StoreUnavailable
from leasehold.observe.events import Acquired, Contended, Lost, Refused, Released, ReleaseUnknown, Unguarded
from tests.support.lock import look, only, unreachable
from tests.support.observe.stage import Listener, Stage, subject
from tests.support.parties import FLAVOURS
from tests.support.waiting import until


@pytest.fixture
def heard() -> Listener:
    """Somebody who listens."""
    return Listener()


@pytest.fixture(params=FLAVOURS)
def stage(request: pytest.FixtureRequest, heard: Listener) -> Iterator[Stage]:
    """One holder in each flavour."""
    made = Stage(request.param, [heard])
    yield made
    made.close()


def three(stage: Stage, **options: Any) -> Any:
    """Kinds a, b and c."""
    return stage.hold.all(*[stage.lock(name, ttl=6, **options) for name in "cab"])


def told(heard: Listener) -> list[tuple[str, str]]:
    """What, and of which kind, in order."""
    return [(type(event).__name__, subject(event).kind) for event in heard.events]


def test_each_part_has_a_life(stage: Stage, heard: Listener) -> None:
    """Acquired and Released for each, with a number of its own."""
    leases = stage.do(three(stage).acquire)
    assert stage.do(leases.release) is True
    assert told(heard)[:3] == [("Acquired", "a"), ("Acquired", "b"), ("Acquired", "c")]
    assert sorted(told(heard)[3:]) == [("Released", "a"), ("Released", "b"), ("Released", "c")]
    begun = {event.lease.number for event in heard.of(Acquired)}
    assert begun == {event.lease.number for event in heard.of(Released)} and len(begun) == 3


def test_a_refused_all(stage: Stage, heard: Listener) -> None:
    """What was granted is released, the one that it failed on is refused, and what was not reached is called off."""
    stage.rival("b")
    assert stage.do(three(stage, protects="correctness").try_acquire) is None
    assert [(event.lease.kind, event.outcome) for event in heard.of(Refused)] == [("b", "busy"), ("c", "cancelled")]
    assert [event.lease.kind for event in heard.of(Contended)] == ["b"]
    assert heard.of(Released)[0].lease == heard.of(Acquired)[0].lease
    assert not heard.of(ReleaseUnknown) and not heard.of(Unguarded)
    assert len(heard.events) == 5


def test_a_wait_that_is_over(stage: Stage, heard: Listener) -> None:
    """Contended once, refused in the end as a timeout."""
    stage.rival("b")
    waiting = stage.start(lambda: three(stage).acquire(wait=1))
    until(lambda: look(stage.spy, "b").queue, "it waits")
    stage.until(waiting.done, "the wait is over")
    assert waiting.result() is None
    assert [(event.lease.kind, event.queued) for event in heard.of(Contended)] == [("b", True)]
    assert [(event.lease.kind, event.outcome) for event in heard.of(Refused)] == [("b", "timeout"), ("c", "cancelled")]
    assert [event.lease.kind for event in heard.of(Released)] == ["a"]


def test_a_turn_that_comes(stage: Stage, heard: Listener) -> None:
    """The one that was waited for says so, the others do not."""
    fence = stage.rival("b")
    waiting = stage.start(three(stage).acquire)
    until(lambda: look(stage.spy, "b").queue, "it waits")
    stage.rival_leaves(fence, "b")
    stage.until(waiting.done, "its turn has come")
    assert [(event.lease.kind, event.contended) for event in heard.of(Acquired)] == [
        ("a", False),
        ("b", True),
        ("c", False),
    ]
    stage.do(waiting.result().release)


def test_a_store_that_is_away(stage: Stage, heard: Listener) -> None:
    """Every part is refused for that."""
    stage.spy.before = only(Group, unreachable)
    assert isinstance(stage.refused(three(stage).acquire), StoreUnavailable)
    assert {(event.lease.kind, event.outcome) for event in heard.of(Refused)} == {(one, "unavailable") for one in "abc"}


def test_what_is_claimed_anew_is_another_life(stage: Stage, heard: Listener) -> None:
    """The first of them is lost while it waits: Lost with the old number, Acquired with a new one."""
    fence = stage.rival("b")
    waiting = stage.start(three(stage).acquire)
    until(lambda: look(stage.spy, "b").queue, "it waits")
    early = look(stage.spy, "a").holders[0]
    stage.spy.inner.execute(Evict("a", early.owner, early.fence, "request", delay_ms=0, force=True))
    stage.until(lambda: heard.of(Lost), "the loss is told")
    stage.rival_leaves(fence, "b")
    stage.until(waiting.done, "its turn has come")
    first, *_, again = [event.lease for event in heard.of(Acquired) if event.lease.kind == "a"]
    assert heard.of(Lost)[0].lease.number == first.number != again.number
    assert stage.do(waiting.result().release) is True
    numbers = [event.lease.number for event in heard.of(Acquired)]
    ended = [subject(event).number for event in heard.events if isinstance(event, (Lost, Released, ReleaseUnknown))]
    assert len(set(numbers)) == len(numbers) and set(ended) == set(numbers)


def test_entering_again_is_no_event(stage: Stage, heard: Listener) -> None:
    """What is held already is neither acquired nor released."""
    outer = stage.acquire("a", reentrant=True)
    heard.clear()
    leases = stage.do(stage.hold.all(stage.lock("a", reentrant=True), stage.lock("b")).acquire)
    assert stage.do(leases.release) is True
    assert told(heard) == [("Acquired", "b"), ("Released", "b")]
    assert stage.do(outer.release) is True
