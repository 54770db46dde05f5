"""Bad input: refused with a clear error before anything is sent."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import leasehold
from leasehold import InvalidRequest
from leasehold._core.names import MAX_NAME_BYTES
from leasehold._core.policy import MOST_PERMITS
from leasehold.stores.memory import MemoryStore
from tests.support.lock import Spy
from tests.support.parties import FLAVOURS, Party
from tests.support.scene import fails
from tests.support.waiting import until

BAD_COUNTS = {
    "zero": 0,
    "negative": -1,
    "float": 2.0,
    "nan": float("nan"),
    "True": True,
    "text": "3",
    "None": None,
    "list": [3],
    "too many": MOST_PERMITS + 1,
    "huge": 10**100,
}
COUNTS = pytest.mark.parametrize("count", BAD_COUNTS.values(), ids=BAD_COUNTS.keys())


@pytest.fixture
def spy() -> Spy:
    """A store that counts what is sent."""
    return Spy(MemoryStore())


@pytest.fixture(params=FLAVOURS)
def party(request: pytest.FixtureRequest, spy: Spy) -> Iterator[Party]:
    """Somebody who passes what a type checker refuses."""
    party: Party = FLAVOURS[request.param](spy)
    yield party
    party.close()


@COUNTS
def test_a_bad_limit(party: Party, spy: Spy, count: Any) -> None:
    """Zero, negative, no int, or more than a store can look at: said where the semaphore is made."""
    assert "limit" in str(fails(InvalidRequest, party.start(lambda hold: hold.semaphore("pool", limit=count))))
    assert spy.ops == []


@COUNTS
def test_bad_permits(party: Party, spy: Spy, count: Any) -> None:
    """The same of permits, where it is made, and where they are asked for (there, None means its own)."""
    made = party.start(lambda hold: hold.semaphore("pool", limit=3, permits=count))
    assert "permits" in str(fails(InvalidRequest, made))
    if count is not None:
        fails(InvalidRequest, party.start(lambda hold: hold.semaphore("pool", limit=3).acquire(permits=count)))
        fails(InvalidRequest, party.start(lambda hold: hold.semaphore("pool", limit=3).try_acquire(permits=count)))
    assert spy.ops == []


def test_more_permits_than_the_limit(party: Party, spy: Spy) -> None:
    """They would never be granted, and it says what to do."""
    error = fails(InvalidRequest, party.start(lambda hold: hold.semaphore("pool", limit=3, permits=4)))
    assert "limit is 3" in str(error) and "ask for fewer" in str(error)
    fails(InvalidRequest, party.start(lambda hold: hold.semaphore("pool", limit=3).acquire(permits=4)))
    assert spy.ops == []


@COUNTS
def test_a_bad_size(party: Party, spy: Spy, count: Any) -> None:
    """What is no limit cannot be stored as one."""
    fails(InvalidRequest, party.start(lambda hold: hold.semaphore("pool", limit=3).resize(count)))
    assert spy.ops == []


def test_the_limits_are_taken(party: Party) -> None:
    """One, and as many as a store can look at."""
    assert party.do(lambda hold: hold.semaphore("pool", limit=1).available()) == 1
    most = party.do(lambda hold: hold.semaphore("most", limit=MOST_PERMITS, permits=MOST_PERMITS).acquire())
    assert most.slots == tuple(range(MOST_PERMITS))


@pytest.mark.parametrize("room", [0, 1], ids=["too long", "just fits"])
def test_the_name_leaves_room_for_slots(party: Party, spy: Spy, room: int) -> None:
    """A guard must be able to take the name of every slot."""
    name = "k" * (MAX_NAME_BYTES - len("::999") + 1 - room)
    if room:
        assert party.do(lambda hold: hold.semaphore(name, limit=1).available()) == 1
        return
    error = fails(InvalidRequest, party.start(lambda hold: hold.semaphore(name, limit=1)))
    assert "507 bytes" in str(error) and spy.ops == []


def test_hidden_ids_take_little_room(spy: Spy) -> None:
    """What counts is the name in the store."""
    with leasehold.connect(spy, hide_ids="key") as hold, hold.semaphore("pool", "i" * 500, limit=1) as permit:
        assert len(permit.slot_resource) < 50


def test_options_of_lock_are_checked(party: Party, spy: Spy) -> None:
    """They are the same, and so are their errors; a semaphore is not re-entrant."""
    fails(InvalidRequest, party.start(lambda hold: hold.semaphore("pool", limit=1, ttl=0)))
    fails(InvalidRequest, party.start(lambda hold: hold.semaphore("", limit=1)))
    with pytest.raises(TypeError):
        party.do(lambda hold: hold.semaphore("pool", limit=1, reentrant=True))
    with pytest.raises(TypeError):
        party.do(lambda hold: hold.semaphore("pool"))
    assert spy.ops == []


def test_a_long_ttl_is_told_where_it_is_said(spy: Spy) -> None:
    """The warning points at the line that asked for it."""
    with leasehold.connect(spy) as hold, pytest.warns(UserWarning, match="1 h") as caught:
        hold.semaphore("pool", limit=1, ttl="2h")
    assert caught[0].filename == __file__


def test_shrunk_below_what_is_asked_for(party: Party, spy: Spy) -> None:
    """The store refuses the claim; the error says how many there are, and what to do. Nothing is left behind."""
    party.do(lambda hold: hold.semaphore("pool", limit=3).resize(2))
    error = fails(InvalidRequest, party.start(lambda hold: hold.semaphore("pool", limit=3).acquire(permits=3)))
    assert "there are only 2" in str(error) and "resize" in str(error) and error.resource == "pool"
    until(lambda: not party.hold._engine.pending, "the attempt is over")
    assert party.do(lambda hold: hold.semaphore("pool", limit=3).available()) == 2


def test_a_closed_coordinator(party: Party) -> None:
    """Every call says that it is closed."""
    pool = party.do(lambda hold: hold.semaphore("pool", limit=3))
    party.do(lambda hold: hold.close())
    fails(leasehold.StoreUnavailable, party.start(lambda _: pool.acquire()))
    fails(leasehold.StoreUnavailable, party.start(lambda _: pool.resize(2)))
    fails(leasehold.StoreUnavailable, party.start(lambda _: pool.available()))
    fails(leasehold.StoreUnavailable, party.start(lambda _: pool.locked()))
