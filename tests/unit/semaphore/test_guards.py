"""Guards and permits: valid side by side, each under the name of its slot, and stale when that has another holder."""

from __future__ import annotations

import sqlite3
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol

import pytest

import leasehold
from leasehold import InvalidRequest, Permit, StaleOwner
from leasehold._core import headers
from leasehold.guards import memory, sql
from leasehold.guards.http import check_response
from leasehold.stores.clock import ManualClock
from leasehold.stores.memory import MemoryStore
from tests.support.guards.http_tools import ASGIService, WSGIService


class Asked(Protocol):
    """A guard as a worker asks it."""

    def __call__(self, permit: Permit, resource: str | None = None) -> None:
        """Raises what it has against it."""


def in_memory(folder: Path) -> Asked:
    """leasehold.guards.memory."""
    guard = memory.FenceGuard()
    return lambda permit, resource=None: guard.check(permit, resource=resource)


def in_a_database(folder: Path) -> Asked:
    """leasehold.guards.sql, in a transaction of sqlite3."""
    guard = sql.FenceGuard()
    database = sqlite3.connect(folder / "data.db", isolation_level=None, check_same_thread=False)
    guard.create(database)

    def check(permit: Permit, resource: str | None = None) -> None:
        database.execute("BEGIN IMMEDIATE")
        with database:
            guard.check(database, permit, resource=resource)

    weakref.finalize(check, database.close)
    return check


def in_a_service(folder: Path) -> Asked:
    """leasehold.guards.http, with paths that name slots. Without one, the client names the semaphore, as one would a
    lock."""
    site = ASGIService(memory.FenceGuard(), resource={"/slots/{slot:int}": "pool::{slot}"})

    def check(permit: Permit, resource: str | None = None) -> None:
        slot = permit.slot if resource is None else int(resource.rpartition("::")[2])
        sent = {**permit.headers(slot), headers.RESOURCE: resource or permit.resource}
        answer = site.send("POST", list(sent.items()), f"/slots/{slot}")
        check_response(answer.status, answer.body, permit)

    return check


GUARDS: dict[str, Callable[[Path], Asked]] = {
    "memory": in_memory,
    "sqlite3": in_a_database,
    "http": in_a_service,
}


@pytest.fixture(params=GUARDS)
def guard(request: pytest.FixtureRequest, tmp_path: Path) -> Asked:
    """Each of them, and it has seen nothing."""
    return GUARDS[request.param](tmp_path)


@pytest.fixture
def clock() -> ManualClock:
    """Time that the test turns."""
    return ManualClock()


@pytest.fixture
def hold(clock: ManualClock) -> Iterator[leasehold.Leasehold]:
    """A coordinator whose time can be turned."""
    with leasehold.connect(MemoryStore(clock)) as made:
        yield made


def acquire(hold: leasehold.Leasehold, permits: int = 1, **options: Any) -> Permit:
    """A permit of the pool."""
    permit = hold.semaphore("pool", limit=3, **options).acquire(wait=0, permits=permits)
    assert permit is not None
    return permit


def test_two_permits_side_by_side(hold: leasehold.Leasehold, guard: Asked) -> None:
    """Both are accepted again and again, the lower fence too (trap 47)."""
    first, second = acquire(hold), acquire(hold)
    for _ in range(2):
        guard(second, second.slot_resource)
        guard(first, first.slot_resource)


def test_a_permit_without_its_slot(hold: leasehold.Leasehold, guard: Asked) -> None:
    """Nobody can say beside whom it is valid: InvalidRequest."""
    permit = acquire(hold)
    with pytest.raises(InvalidRequest):
        guard(permit)
    guard(permit, permit.slot_resource)


def test_the_next_holder_of_the_slot(hold: leasehold.Leasehold, guard: Asked, clock: ManualClock) -> None:
    """A stale holder is refused when the next in its slot has been seen; who is in another slot is not."""
    old, other = acquire(hold, ttl=1, renew=False), acquire(hold, ttl=60)
    guard(old, old.slot_resource)
    clock.advance(1.1)
    new = acquire(hold)
    assert new.slot == old.slot and old.state == "lost"
    guard(new, new.slot_resource)
    with pytest.raises(StaleOwner) as caught:
        guard(old, old.slot_resource)
    assert (caught.value.fence, caught.value.seen) == (old.fence, new.fence)
    guard(other, other.slot_resource)


def test_several_slots(hold: leasehold.Leasehold, guard: Asked, clock: ManualClock) -> None:
    """Each of its slots is its own; one goes to another holder later on, and only there it is stale."""
    pair = acquire(hold, 2, ttl=1, renew=False)
    for resource in pair.slot_resources:
        guard(pair, resource)
    clock.advance(1.1)
    new = acquire(hold)
    guard(new, new.slot_resource)
    with pytest.raises(StaleOwner):
        guard(pair, "pool::0")
    guard(pair, "pool::1")


def test_a_slot_of_somebody_else(hold: leasehold.Leasehold) -> None:
    """A permit cannot be shown under another slot, nor under another resource; and it was then shown to no guard."""
    first, second = acquire(hold), acquire(hold)
    guard = memory.FenceGuard()
    for resource in (second.slot_resource, "pool", "other::0", ""):
        with pytest.raises(InvalidRequest, match="slot_resource"):
            guard.check(first, resource=resource)
    assert not first.guarded and guard.seen("pool::0") is None
    guard.check(first, resource=first.slot_resource)
    assert first.guarded


# ---------------------------------------------------------------- headers


def test_headers_name_the_slot(hold: leasehold.Leasehold) -> None:
    """What a service is told is the slot, so that it need not know of semaphores."""
    permit = acquire(hold)
    assert permit.headers()[headers.RESOURCE] == permit.slot_resource == "pool::0"
    assert permit.headers() == permit.headers(slot=0) and permit.exported


def test_headers_of_several_slots(hold: leasehold.Leasehold) -> None:
    """Which one is meant must be said, and must be one of its own."""
    pair = acquire(hold, 2)
    with pytest.raises(InvalidRequest, match="slots 0, 1"):
        pair.headers()
    assert [pair.headers(slot=slot)[headers.RESOURCE] for slot in pair.slots] == list(pair.slot_resources)
    bad: list[Any] = [2, -1, True, "0", 0.0]
    for slot in bad:
        with pytest.raises(InvalidRequest, match="one of those"):
            pair.headers(slot)


@pytest.mark.parametrize("service", [ASGIService, WSGIService])
def test_a_service_that_goes_by_the_headers(hold: leasehold.Leasehold, service: Any, clock: ManualClock) -> None:
    """Without a resource of its own it checks each slot by itself: both go in, and the stale one does not."""
    site = service(memory.FenceGuard())
    old, other = acquire(hold, ttl=1, renew=False), acquire(hold, ttl=60)
    clock.advance(1.1)
    for permit in (other, acquire(hold)):
        assert site.send("POST", list(permit.headers().items())).status == 200
    answer = site.send("POST", list(old.headers().items()))
    assert (answer.status, answer.kind) == (409, "stale-owner")


def test_a_service_that_guards_the_whole(hold: leasehold.Leasehold) -> None:
    """Where a lock is expected a permit is refused: it would be one of several."""
    site = ASGIService(memory.FenceGuard(), resource="pool")
    permit = acquire(hold)
    answer = site.send("POST", list(permit.headers().items()))
    with pytest.raises(InvalidRequest):
        check_response(answer.status, answer.body, permit)


def test_slots_by_the_path(hold: leasehold.Leasehold) -> None:
    """A service may name slots in its paths, and then nothing else is accepted there."""
    site = ASGIService(memory.FenceGuard(), resource={"/slots/{slot:int}": "pool::{slot}"})
    permit = acquire(hold)
    assert site.send("POST", list(permit.headers().items()), "/slots/0").status == 200
    assert site.send("POST", list(permit.headers().items()), "/slots/1").kind == "other-resource"
