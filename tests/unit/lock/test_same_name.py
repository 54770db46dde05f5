"""A lock, a semaphore and a read-write lock of one name: each gives back, and owns, what is of its own kind."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

from leasehold import NotHeld
from leasehold.stores.memory import MemoryStore
from tests.support.parties import FLAVOURS, Party
from tests.support.tables import each

KINDS: dict[str, Callable[[Any], Any]] = {
    "lock": lambda hold: hold.lock("job"),
    "semaphore": lambda hold: hold.semaphore("job", limit=2),
    "read": lambda hold: hold.rwlock("job").read(),
    "write": lambda hold: hold.rwlock("job").write(),
}
TOGETHER = ({"lock"}, {"semaphore"}, {"read", "write"}, {"lock", "write"})  # rlock enters a writer's lease again


@pytest.fixture(params=FLAVOURS)
def party(request: pytest.FixtureRequest) -> Iterator[Party]:
    """In each flavour."""
    party: Party = FLAVOURS[request.param](MemoryStore())
    yield party
    party.close()


def release(thing: Any, hold: Any) -> Any:
    """Through that lock, or that all."""
    return thing.release()


def strangers() -> list[tuple[str, str]]:
    """What is held, and what has nothing to do with it. A lock can leave a writer's lease too, not the reverse."""
    pairs = [(one, other) for one in KINDS for other in KINDS if not any({one, other} <= kin for kin in TOGETHER)]
    return [*pairs, ("lock", "write")]


@each(("held", "other"), strangers())
def test_one_kind_is_not_given_back_through_another(party: Party, held: str, other: str) -> None:
    """Whoever holds the one does not own the other, and cannot release it by mistake: alone or with others."""
    lease = party.do(lambda hold: KINDS[held](hold).acquire())
    stranger = party.do(KINDS[other])
    several = party.do(lambda hold: hold.all(KINDS[other](hold), hold.lock("another")))
    assert not party.do(lambda _: stranger.owned()) and not party.do(lambda _: several.owned())
    for thing in (stranger, several):
        with pytest.raises(NotHeld):
            party.do(partial(release, thing))
    assert lease.state == "held" and party.do(lambda _: lease.release()) is True


def test_a_lowered_lease_is_given_back_by_whoever_wrote(party: Party) -> None:
    """It reads by now, and both sides know it."""
    write, read = party.do(KINDS["write"]), party.do(KINDS["read"])
    lease = party.do(lambda _: write.acquire())
    party.do(lambda _: lease.downgrade())
    assert party.do(lambda _: write.owned()) and party.do(lambda _: read.owned())
    assert party.do(lambda _: write.release()) is True and not party.do(lambda _: read.owned())
