"""Both sides take what ``lock`` takes, in both flavours, with the same defaults and annotations."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import leasehold
from tests.support.tables import each

SIDES = [
    leasehold.ReadWriteLock.read,
    leasehold.ReadWriteLock.write,
    leasehold.AsyncReadWriteLock.read,
    leasehold.AsyncReadWriteLock.write,
]


def keywords(function: Callable[..., Any]) -> dict[str, Any]:
    """What is said by name, with its default."""
    parameters = inspect.signature(function).parameters.values()
    return {one.name: one.default for one in parameters if one.kind is one.KEYWORD_ONLY}


def annotated(function: Callable[..., Any]) -> dict[str, Any]:
    """The annotations of what is said by name."""
    return {name: kind for name, kind in inspect.get_annotations(function).items() if name in keywords(function)}


@each("side", SIDES, ids=lambda side: side.__qualname__)
def test_a_side_takes_what_lock_takes(side: Callable[..., Any]) -> None:
    """Every option but ``linger``, in the same order, with the same default and type; and nothing else."""
    lock = {name: default for name, default in keywords(leasehold.Leasehold.lock).items() if name != "linger"}
    kinds = {name: kind for name, kind in annotated(leasehold.Leasehold.lock).items() if name != "linger"}
    assert list(keywords(side).items()) == list(lock.items()) and annotated(side) == kinds
    assert list(inspect.signature(side).parameters) == ["self", *keywords(side)]


def test_the_flavours_are_alike() -> None:
    """The same names; what blocks is awaited in one of them, and a lock that only describes is not."""
    assert set(dir(leasehold.ReadWriteLock)) == set(dir(leasehold.AsyncReadWriteLock)) - {"_driver"}
    assert inspect.signature(leasehold.Leasehold.rwlock).parameters.keys() == {"self", "kind", "ids"}
    assert inspect.signature(leasehold.AsyncLeasehold.rwlock).parameters.keys() == {"self", "kind", "ids"}
    assert not inspect.getmembers(leasehold.AsyncReadWriteLock, inspect.iscoroutinefunction)


def test_every_option_reaches_the_lock() -> None:
    """What is said on a side is what a lock with the same options would have."""
    said: dict[str, Any] = {
        "ttl": "7s", "wait": 3, "renew": False, "max_hold": 60, "max_idle": 5, "at_least": 1, "delay": 2,
        "reentrant": True, "protects": "correctness", "meta": {"run": 1},
        "durability": None,
    }  # fmt: skip
    assert said.keys() == keywords(leasehold.Leasehold.lock).keys() - {"linger"}
    with leasehold.connect("memory://rwlock-options", wait=4) as hold:
        both = hold.rwlock("doc", 1)
        variants: list[dict[str, Any]] = [said, {}, {"wait": None}, {"meta": {}}]
        for options in variants:
            plain = hold.lock("doc", 1, **options)._options
            for side in (both.read(**options), both.write(**options)):
                assert {one: getattr(side._options, one) for one in plain.__slots__} == {
                    one: getattr(plain, one) for one in plain.__slots__
                }


def test_leases_of_plain_locks_cannot_be_downgraded() -> None:
    """There is no such method: neither ``downgrade`` nor ``shared``."""
    for one in (leasehold.Lease, leasehold.AsyncLease):
        assert not hasattr(one, "downgrade") and not hasattr(one, "shared")
