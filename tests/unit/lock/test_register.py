"""The register: what a thread holds is found by it alone, however much it holds and whoever had its id before."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from leasehold._core.holding import LocalGrant
from leasehold._core.names import Name
from leasehold._runtime.held_lease import HeldLease
from leasehold._runtime.options import Options
from leasehold._runtime.registry import LeaseRegistry
from tests.support.tables import each


def hold(resource: str, anchor: object, fence: int = 9) -> HeldLease:
    """A lease of 30 s."""
    taken = LocalGrant("host:7:secret.1", fence, 30_000, 100.0, 30_000, 100.0, False)
    return HeldLease(Name(resource, resource), taken, threading.RLock(), Options(ttl_ms=30_000, wait=None), anchor)


class Worker:
    """Somebody who holds leases, as a thread or a task does."""

    def __init__(self) -> None:
        self.over = False

    def done(self) -> bool:
        """Has it ended?"""
        return self.over


def added(register: LeaseRegistry, resource: str, anchor: object) -> HeldLease:
    """A lease that the register knows."""
    held = hold(resource, anchor)
    register.add(held, anchor)
    return held


def test_each_finds_its_own() -> None:
    """Two workers with the same resources: neither finds what the other holds."""
    register, one, two = LeaseRegistry(), Worker(), Worker()
    leases = {(who, name): added(register, name, who) for who in (one, two) for name in ("a", "b", "c")}
    for (who, name), held in leases.items():
        assert register.find(name, who) is held
    assert register.find("a", Worker()) is None and register.find("d", one) is None and len(register) == 6


@each("order", [(0, 1, 2), (2, 1, 0), (1, 0, 2)])
def test_leases_leave_in_any_order(order: tuple[int, ...]) -> None:
    """What is still held is found until the last is gone; then nothing is left, and a new one is found again."""
    register, one = LeaseRegistry(), Worker()
    leases = [added(register, name, one) for name in ("a", "b", "c")]
    for index in order:
        register.remove(leases[index])
        register.remove(leases[index])  # twice does no harm
        assert register.find(leases[index].name.text, one) is None
    assert len(register) == 0
    assert register.find("d", one) is None and added(register, "d", one) is register.find("d", one)


@pytest.mark.parametrize("more", [[], ["b"]])
def test_what_was_lost_is_found_again(more: list[str]) -> None:
    """A resource that was lost and acquired anew: the last is found, and when it is gone, the one before it."""
    register, one = LeaseRegistry(), Worker()
    for name in more:
        added(register, name, one)
    first, second, third = [added(register, "a", one) for _ in range(3)]
    assert register.find("a", one) is third
    register.remove(second)
    assert register.find("a", one) is third
    register.remove(third)
    assert register.find("a", one) is first
    register.remove(first)
    assert register.find("a", one) is None and len(register) == len(more)


@pytest.mark.parametrize("more", [[], ["b"]])
def test_a_lease_is_known_by_its_fence(more: list[str]) -> None:
    """Also one that was lost, while its own body has acquired the resource anew: a guard may refuse either."""
    register, one = LeaseRegistry(), Worker()
    for name in more:
        added(register, name, one)
    for fence in (11, 12, 13):
        register.add(hold("a", one, fence), one)
    assert [fence for fence in range(10, 15) if register.has(fence)] == [11, 12, 13]


@pytest.mark.parametrize("names", [["a"], ["a", "b"]])
def test_trap_12_somebody_elses_entry_under_the_same_id(names: list[str]) -> None:
    """Who is gone had the id that somebody has now: nothing of his is found, and what is acquired now is."""
    register, gone, now = LeaseRegistry(), Worker(), Worker()
    for name in names:
        added(register, name, gone)
    register._by_id[id(now)] = register._by_id.pop(id(gone))
    assert register.find("a", now) is None
    held = added(register, "a", now)
    assert register.find("a", now) is held and held.outer is None and register.find("b", now) is None


def test_trap_37_nothing_piles_up() -> None:
    """Entries of workers that have ended, and whose leases are over, go away; the others stay."""
    register = LeaseRegistry()
    kept: list[Any] = []
    for number in range(1000):
        worker = Worker()
        held = added(register, f"r{number}", worker)
        kept.append((worker, held))
        if number % 10:
            held.lose("closed")
            worker.over = True
    assert len(register) < 400
    assert all(register.find(held.name.text, worker) is held for worker, held in kept[::10])
