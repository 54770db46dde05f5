"""Slots that move while locks in them are taken, held and waited for."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest

from leasehold.errors import StoreUnavailable
from tests.support.parties import mostly
from tests.support.redis.cluster import Company, acquiring, calls, releasing, taking
from tests.support.servers.cluster import Move
from tests.support.waiting import until


@contextmanager
def moving(company: Company, resource: str) -> Iterator[Move]:
    """The slot of a resource is on its way; it arrives at the end."""
    move = company.cluster.begin_move(company.slot(resource), company.node(resource), company.other(resource))
    yield move
    move.end()


def test_a_slot_that_has_moved_is_learned_once(company: Company) -> None:
    """MOVED costs one more round trip, and the next claim goes to the new owner at once."""
    party = company.party()
    lease = party.do(acquiring("job:1"))
    party.do(releasing(lease))
    before = company.node("job:1")
    company.move("job:1")
    again = party.do(acquiring("job:1"))
    party.do(releasing(again))
    assert again.fence > lease.fence
    asked = calls(before, "evalsha")
    third = party.do(acquiring("job:1"))
    assert third.fence > again.fence and calls(before, "evalsha") == asked


def test_a_lock_that_is_free_while_its_slot_moves(company: Company) -> None:
    """Nobody serves a script of several keys then, of which some are missing (ASK, then TRYAGAIN): the claim waits
    until the slot has arrived, and is executed once."""
    party = company.party()
    kept = company.other("job:1")
    party.do(acquiring("job:2"))
    with moving(company, "job:1") as move:
        waiting = party.start(acquiring("job:1"))
        until(lambda: calls(kept, "asking") > 3, "it was sent on, and tried again")
        assert not waiting.done()
    lease = waiting.result(20)
    assert move.target is company.node("job:1")
    party.do(lambda hold: lease.check())


@mostly("asyncio", "company")
def test_a_lock_is_held_while_its_slot_moves(company: Company) -> None:
    """It is renewed at the old owner, then at the new one (ASK), then there as its own."""
    party = company.party()
    lease = party.do(acquiring("job:1", ttl=1.5))
    with moving(company, "job:1") as move:
        before = calls(move.source, "pexpire")
        until(lambda: calls(move.source, "pexpire") > before, "it is renewed at the old owner")
        move.keys()
        until(lambda: calls(move.target, "pexpire") > 0, "it is renewed at the new owner")
        lease.check()
    before = calls(move.target, "pexpire")
    until(lambda: calls(move.target, "pexpire") > before + 1, "and goes on there")
    lease.check()
    assert party.do(releasing(lease))


@mostly("sync", "company")
def test_several_leases_of_one_slot_while_it_moves(company: Company) -> None:
    """Some are on the old owner and some on the new one: no command may name both, and each is renewed where it is."""
    party = company.party("namespace", namespace="shop")
    leases = [party.do(acquiring(f"job:{number}", ttl=1.5)) for number in range(4)]
    with moving(company, "shop") as move:
        move.keys(*[f"lock:v1:{{shop}}/job:{number}}}:owner" for number in range(2)])
        before = calls(move.target, "pexpire"), calls(move.source, "pexpire")
        until(lambda: calls(move.target, "pexpire") >= before[0] + 6, "those at the new owner are renewed three times")
        assert calls(move.source, "pexpire") > before[1] + 2
        for lease in leases:
            lease.check()


@mostly("asyncio", "company")
def test_a_waiter_keeps_its_place_when_the_slot_moves(company: Company) -> None:
    """Those who wait get the lock in the order in which they came, on the new node."""
    holder, first, second = (company.party() for _ in range(3))
    lease = holder.do(acquiring("job:1", ttl=60))
    waiting = []
    for number, waiter in enumerate([first, second]):
        waiting.append(waiter.within(taking("job:1", ttl=60, wait=30), lambda lease: lease.fence))
        company.waiting("job:1", number + 1)
    company.move("job:1")
    assert holder.do(releasing(lease))
    fences = [future.result(30) for future in waiting]
    assert lease.fence < fences[0] < fences[1]


def test_a_move_that_never_ends_is_no_lock(company: Company) -> None:
    """The claim gives up in time, and nothing was taken: a definite no."""
    party = company.party()
    party.do(acquiring("job:2"))
    with moving(company, "job:1"), pytest.raises(StoreUnavailable):
        party.do(acquiring("job:1", wait=0))
    assert not any("{job:1}" in key for key, _ in company.stored_keys())


@mostly("sync", "company")
@pytest.mark.parametrize("handoffs", [100, pytest.param(1000, marks=pytest.mark.soak)])
def test_a_slot_migrated_during_many_handoffs(company: Company, handoffs: int) -> None:
    """One holder at a time, fences grow in the order of the grants, and nothing is left."""
    parties = [company.party() for _ in range(4)]
    fences: list[int] = []
    inside: list[int] = []
    over = threading.Event()

    def body(lease: Any) -> None:
        inside.append(lease.fence)
        assert len(inside) == 1
        fences.append(lease.fence)
        inside.clear()

    def go(party: Any) -> None:
        while not over.is_set():
            party.within(taking("job:1", wait=60), body).result(60)

    threads = [threading.Thread(target=go, args=[party]) for party in parties]
    for thread in threads:
        thread.start()
    for move in range(10):
        company.move("job:1")
        until(partial(reached, fences, handoffs * (move + 1) // 10), "it goes on")
    over.set()
    for thread in threads:
        thread.join(60)
    assert fences == sorted(set(fences))
    left = {key.rpartition(":")[2] for key, _ in company.stored_keys()}
    assert "owner" not in left and "queue" not in left


def reached(fences: list[int], count: int) -> bool:
    """Whether there were so many grants."""
    return len(fences) >= count
