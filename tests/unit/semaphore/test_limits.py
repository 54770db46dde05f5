"""Limits: what is told when they differ, what resizing sends, and what is available."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

from leasehold import NotHeld, OutcomeUnknown, StoreUnavailable
from leasehold._core.ops import Claim, Resize
from leasehold._core.types import public_owner
from leasehold.observe.events import Acquired, LimitDiffers, Refused
from leasehold.stores.memory import MemoryStore
from tests.support.lock import Spy, look, once, reply_lost, unreachable
from tests.support.observe.stage import Listener
from tests.support.parties import FLAVOURS, Party
from tests.support.scene import fails
from tests.support.waiting import until

Open = Callable[..., Party]


@pytest.fixture
def spy() -> Spy:
    """One store for all parties."""
    return Spy(MemoryStore())


@pytest.fixture(params=FLAVOURS)
def opened(request: pytest.FixtureRequest, spy: Spy) -> Iterator[Open]:
    """Parties of one flavour."""
    parties: list[Party] = []

    def new(*observers: Any) -> Party:
        parties.append(FLAVOURS[request.param](spy, observers=observers))
        return parties[-1]

    yield new
    for party in parties:
        party.close()


def acquire(party: Party, limit: int, **options: Any) -> Any:
    """A permit."""
    return party.do(lambda hold: hold.semaphore("pool", 7, limit=limit, **options).acquire(wait=0))


def resize(kind: str, hold: Any) -> Any:
    """Store five."""
    return hold.semaphore(kind, limit=3).resize(5)


def take(kind: str, hold: Any) -> Any:
    """Ask with three."""
    return hold.semaphore(kind, limit=3).acquire()


# ---------------------------------------------------------------- limits that differ


def test_a_grant_that_found_another_limit(opened: Open) -> None:
    """Told once, with the lease that noticed: what it asked for, and what others go by."""
    heard = Listener()
    a, b = opened(), opened(heard)
    kept = acquire(a, 5)
    permit = acquire(b, 3)
    assert acquire(b, 3) is not None and kept.state == "held"
    (event,) = heard.of(LimitDiffers)
    assert (event.asked, event.found) == (3, 5)
    assert (event.lease.kind, event.lease.fence) == ("pool", permit.fence)
    assert event.lease.number == heard.of(Acquired)[0].lease.number
    assert event.lease.owner_prefix == public_owner(permit.owner)
    assert heard.names() == ["Acquired", "LimitDiffers", "Acquired"]


def test_a_refusal_that_found_another_limit(opened: Open) -> None:
    """Whoever comes to nothing is told as well, and again only when another limit is found."""
    heard = Listener()
    a, b = opened(), opened(heard)
    kept = [acquire(a, 2), acquire(a, 2)]
    assert acquire(b, 1) is None and acquire(b, 1) is None
    (event,) = heard.of(LimitDiffers)
    assert (event.asked, event.found, event.lease.fence) == (1, 2, None)
    assert event.lease.number == heard.of(Refused)[0].lease.number
    a.do(lambda hold: hold.semaphore("pool", 7, limit=2).resize(3))
    kept.append(acquire(b, 1))
    assert [(event.asked, event.found) for event in heard.of(LimitDiffers)] == [(1, 2), (1, 3)]


def test_who_had_to_wait_is_told_too(opened: Open, spy: Spy) -> None:
    """The limit that it found when it came is told with its grant."""
    heard = Listener()
    a, b = opened(), opened(heard)
    kept = [acquire(a, 2), acquire(a, 2)]
    waiting = b.start(lambda hold: hold.semaphore("pool", 7, limit=1).acquire())
    until(lambda: len(look(spy, "pool:7").queue) == 1, "it waits")
    assert not heard.of(LimitDiffers)
    assert a.do(lambda _: kept[0].release()) and a.do(lambda _: kept[1].release())
    assert waiting.result(60).fence == heard.of(LimitDiffers)[0].lease.fence


def test_each_resource_is_told_of(opened: Open) -> None:
    """Another semaphore is another mistake; so is another coordinator."""
    first, second = Listener(), Listener()
    a, b = opened(first), opened(second)
    for kind in ("pool", "other"):
        a.do(partial(resize, kind))
        for party in (a, b):
            party.do(partial(take, kind))
    assert len(first.of(LimitDiffers)) == len(second.of(LimitDiffers)) == 2


def test_who_resizes_goes_by_it(opened: Open) -> None:
    """The object that stored a limit asks with it: nothing differs."""
    heard = Listener()
    a = opened(heard)
    pool = a.do(lambda hold: hold.semaphore("pool", limit=3))
    a.do(lambda _: pool.resize(2))
    assert a.do(lambda _: pool.acquire(wait=0)) is not None and not heard.of(LimitDiffers)
    assert a.do(lambda _: pool.available()) == 1


def test_the_same_limit_is_no_news(opened: Open) -> None:
    """Nor is a claim for several permits."""
    heard = Listener()
    a = opened(heard)
    kept = [acquire(a, 3), a.do(lambda hold: hold.semaphore("pool", 7, limit=3).acquire(permits=2)), acquire(a, 3)]
    assert kept[2] is None and not heard.of(LimitDiffers)


def test_the_log_says_what_to_do(opened: Open, caplog: pytest.LogCaptureFixture) -> None:
    """At WARNING, also when nobody observes: the fields of a lease, both limits, and advice; no id."""
    a, b = opened(), opened()
    kept = acquire(a, 5)
    permit = acquire(b, 3)
    (record,) = [one for one in caplog.records if one.name == "leasehold.lease"]
    said: Any = record
    assert (record.levelno, said.event, said.asked, said.found) == (logging.WARNING, "limit_differs", 3, 5)
    assert (said.kind, said.fence, said.ttl_ms) == ("pool", permit.fence, 30_000)
    assert "resize()" in record.getMessage() and "pool:7" not in record.getMessage() and kept


# ---------------------------------------------------------------- resizing


def test_an_unanswered_resize_is_repeated(opened: Open, spy: Spy) -> None:
    """To set a limit twice is to set it."""
    a = opened()
    spy.after = once(Resize, reply_lost)
    a.do(lambda hold: hold.semaphore("pool", limit=3).resize(2))
    assert len(spy.of(Resize)) == 2
    assert a.do(lambda hold: hold.semaphore("pool", limit=3).available()) == 2


def test_a_resize_that_stays_unanswered(opened: Open, spy: Spy) -> None:
    """Nobody knows, and it says so; a store that is not there has done nothing."""
    a = opened()
    spy.after = lambda op: reply_lost(op) if isinstance(op, Resize) else None
    fails(OutcomeUnknown, a.start(lambda hold: hold.semaphore("pool", limit=3).resize(2)))
    spy.heal()
    spy.before = unreachable
    fails(StoreUnavailable, a.start(lambda hold: hold.semaphore("pool", limit=3).resize(2)))
    spy.heal()


# ---------------------------------------------------------------- what is available


def test_locked_is_whether_one_would_wait(opened: Open) -> None:
    """For as many permits as the object takes; and for whatever is exclusive."""
    a, b = opened(), opened()
    kept = [acquire(a, 3)]
    assert not b.do(lambda hold: hold.semaphore("pool", 7, limit=3).locked())
    assert not b.do(lambda hold: hold.semaphore("pool", 7, limit=3, permits=2).locked())
    assert b.do(lambda hold: hold.semaphore("pool", 7, limit=3, permits=3).locked())
    kept += [acquire(a, 3), acquire(a, 3)]
    assert b.do(lambda hold: hold.semaphore("pool", 7, limit=3).locked()) and len(kept) == 3
    a.do(lambda hold: hold.lock("other").acquire())
    assert b.do(lambda hold: hold.semaphore("other", limit=3).locked())


def test_who_wants_too_much_keeps_nobody_waiting(opened: Open, spy: Spy) -> None:
    """One in the queue that can never be served does not count as waiting."""
    a = opened()
    spy.inner.execute(Claim("pool:7", "x:1:y", 60_000, rule="semaphore", permits=1, limit=3))
    spy.inner.execute(Claim("pool:7", "x:1:z", 60_000, rule="semaphore", permits=3, limit=3))
    assert a.do(lambda hold: hold.semaphore("pool", 7, limit=3).locked())
    a.do(lambda hold: hold.semaphore("pool", 7, limit=3).resize(2))
    assert not a.do(lambda hold: hold.semaphore("pool", 7, limit=3).locked())


def test_with_takes_the_permits_of_the_object(opened: Open) -> None:
    """All at once, in one lease; acquire() may ask for another number."""
    a = opened()
    pool = a.do(lambda hold: hold.semaphore("pool", limit=3, permits=2))
    slots: list[Any] = []
    a.within(lambda _: pool, lambda permit: slots.append(permit.slots)).result(60)
    assert slots == [(0, 1)] and repr(pool) == "<" + type(pool).__name__ + " pool ttl=30s limit=3 permits=2>"
    kept = a.do(lambda _: pool.acquire(permits=1))
    assert kept.slots == (0,) and a.do(lambda _: pool.try_acquire()).slots == (1, 2)


def test_owned_while_any_is(opened: Open, spy: Spy) -> None:
    """A permit that was lost does not hide the one before it; release() gives back one after the other."""
    a = opened()
    pool = a.do(lambda hold: hold.semaphore("pool", 7, limit=3))
    kept = [a.do(lambda _: pool.acquire()) for _ in range(2)]
    kept[1]._held.refused("evicted")
    assert (kept[0].state, kept[1].state) == ("held", "lost") and a.do(lambda _: pool.owned())
    assert a.do(lambda _: pool.release()) is False and kept[0].state == "held"
    assert a.do(lambda _: pool.release()) is True and not a.do(lambda _: pool.owned())


def test_release_is_for_permits(opened: Open) -> None:
    """A lock that the same thread or task has on that resource is not a permit."""
    a = opened()
    lease = a.do(lambda hold: hold.lock("pool").acquire())
    fails(NotHeld, a.start(lambda hold: hold.semaphore("pool", limit=3).release()))
    assert lease.state == "held" and not a.do(lambda hold: hold.semaphore("pool", limit=3).owned())
