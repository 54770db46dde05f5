"""The asyncio flavour is the same surface, awaited: names, parameters, defaults and kinds."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, get_overloads

import leasehold
from leasehold import aio
from leasehold.patterns import AsyncCron, Cron
from leasehold.primitives.campaign import AsyncCampaign, Campaign
from leasehold.primitives.leader import AsyncObservation, Observation
from tests.support.tables import each

PAIRS = [
    (leasehold.Leasehold, leasehold.AsyncLeasehold),
    (leasehold.Lock, leasehold.AsyncLock),
    (leasehold.Lease, leasehold.AsyncLease),
    (leasehold.Semaphore, leasehold.AsyncSemaphore),
    (leasehold.Permit, leasehold.AsyncPermit),
    (leasehold.ReadLock, leasehold.AsyncReadLock),
    (leasehold.WriteLock, leasehold.AsyncWriteLock),
    (leasehold.ReadWriteLease, leasehold.AsyncReadWriteLease),
    (leasehold.All, leasehold.AsyncAll),
    (leasehold.Leases, leasehold.AsyncLeases),
    (leasehold.LeaseBatch, leasehold.AsyncLeaseBatch),
    (leasehold.Term, leasehold.AsyncTerm),
    (Campaign, AsyncCampaign),
]
ITERATED = [
    (leasehold.Election, leasehold.AsyncElection),
    (Observation, AsyncObservation),
    (Cron, AsyncCron),
]  # they are not entered

AWAITED = {
    "AsyncLeasehold": {
        "acquire_many", "adopt", "close", "evict", "inspect", "leaks", "ping", "release_many", "revoke", "__aenter__",
        "__aexit__",
    },
    "AsyncLock": {"acquire", "try_acquire", "release", "locked", "__aenter__", "__aexit__"},
    "AsyncLease": {"extend", "release", "transfer", "__aenter__", "__aexit__"},
    "AsyncPermit": {"extend", "release", "transfer", "__aenter__", "__aexit__"},
    "AsyncSemaphore": {
        "acquire", "available", "locked", "release", "resize", "try_acquire", "__aenter__", "__aexit__",
    },
    "AsyncReadLock": {"acquire", "try_acquire", "release", "locked", "__aenter__", "__aexit__"},
    "AsyncWriteLock": {"acquire", "try_acquire", "release", "locked", "__aenter__", "__aexit__"},
    "AsyncReadWriteLease": {"downgrade", "extend", "release", "transfer", "__aenter__", "__aexit__"},
    "AsyncAll": {"acquire", "try_acquire", "release", "locked", "__aenter__", "__aexit__"},
    "AsyncLeaseBatch": {"release", "__aenter__", "__aexit__"},
    "AsyncLeases": {"extend", "release", "__aenter__", "__aexit__"},
    "AsyncTerm": {"extend", "publish", "release", "transfer", "__aenter__", "__aexit__"},
    "AsyncCampaign": {"close", "__aenter__", "__aexit__", "__anext__"},
    "AsyncElection": {"leader"},
    "AsyncObservation": {"__anext__"},
    "AsyncCron": {"history", "run", "stop"},
}  # fmt: skip
CALLBACKS = (
    "acquire_many",
    "all",
    "election",
    "on_demoted",
    "on_elected",
    "on_lost",
    "on_revoked",
    "release_many",
)  # of their own flavour, or coroutine functions in asyncio
MEMBERS = [
    (sync, other, name) for sync, other in [*PAIRS, *ITERATED] for name in sorted(dir(sync)) if not name.startswith("_")
]


def shape(function: Callable[..., Any]) -> list[tuple[str, Any, Any]]:
    """Names, kinds and defaults of the parameters."""
    return [(one.name, one.kind, one.default) for one in inspect.signature(function).parameters.values()]


@each(("sync", "other"), [*PAIRS, *ITERATED], ids=lambda cls: cls.__name__)
def test_the_same_names(sync: type, other: type) -> None:
    """Neither flavour has a public name that the other lacks."""
    assert {name for name in dir(sync) if name[0] != "_"} == {name for name in dir(other) if name[0] != "_"}


@each(("sync", "other", "name"), MEMBERS, ids=lambda part: getattr(part, "__name__", part))
def test_the_same_parameters(sync: type, other: type, name: str) -> None:
    """A member takes the same parameters in both, or is a property in both."""
    one, two = inspect.getattr_static(sync, name), inspect.getattr_static(other, name)
    assert isinstance(one, property) == isinstance(two, property)
    if not isinstance(one, property):
        assert shape(getattr(sync, name)) == shape(getattr(other, name))


@each(("sync", "other"), [*PAIRS, *ITERATED], ids=lambda cls: cls.__name__)
def test_awaited_exactly_where_it_may_block(sync: type, other: type) -> None:
    """Coroutine functions are what asks the store, and nothing else."""
    members = inspect.getmembers(other, inspect.iscoroutinefunction)
    found = {name for name, _ in members if not name.startswith("_") or name.startswith("__")}
    assert found == AWAITED[other.__name__]
    assert not inspect.getmembers(sync, inspect.iscoroutinefunction)


@each(("sync", "other"), PAIRS, ids=lambda cls: cls.__name__)
def test_context_managers_of_their_own_kind(sync: Any, other: Any) -> None:
    """``with`` for threads, ``async with`` for tasks; the wrong one is refused by Python itself."""
    assert shape(sync.__enter__) == shape(other.__aenter__)
    assert shape(sync.__exit__) == shape(other.__aexit__)
    assert not hasattr(sync, "__aenter__") and not hasattr(other, "__enter__")


def test_connect_takes_the_same() -> None:
    """``connect`` and ``aio.connect`` differ in what they return, and in nothing else."""
    assert shape(leasehold.connect) == shape(aio.connect)
    assert shape(leasehold.Leasehold.__init__) == shape(leasehold.AsyncLeasehold.__init__)


def test_rlock_is_lock_with_reentrant() -> None:
    """``rlock`` takes all that ``lock`` takes, but ``reentrant``."""
    lock = [one for one in shape(leasehold.Leasehold.lock) if one[0] != "reentrant"]
    assert shape(leasehold.Leasehold.rlock) == lock


def test_semaphore_is_lock_with_a_limit() -> None:
    """``semaphore`` takes all that ``lock`` takes, but ``reentrant`` and ``linger``, and how many."""
    lock = [one for one in shape(leasehold.Leasehold.lock) if one[0] not in ("reentrant", "linger")]
    semaphore = shape(leasehold.Leasehold.semaphore)
    assert [one for one in semaphore if one[0] not in ("limit", "permits")] == lock
    assert [one[0] for one in semaphore if one not in lock] == ["limit", "permits"]


def test_locked_has_the_same_overloads() -> None:
    """What type checkers are told of the decorator differs in what it decorates, and in nothing else."""
    one, two = get_overloads(leasehold.Leasehold.locked), get_overloads(leasehold.AsyncLeasehold.locked)
    assert [(shape(each), without_return(each)) for each in one] == [
        (shape(each), without_return(each)) for each in two
    ]
    assert len(one) == 4


@each(("sync", "other", "name"), MEMBERS, ids=lambda part: getattr(part, "__name__", part))
def test_the_same_annotations(sync: type, other: type, name: str) -> None:
    """Parameters are annotated alike; what is returned differs only in flavour. A callback may be a coroutine function
    in asyncio, and the locks of ``all`` and of batches are of its own flavour."""
    one, two = getattr(sync, name), getattr(other, name)
    if callable(one) and name not in CALLBACKS:
        assert without_return(one) == without_return(two)


def without_return(function: Callable[..., Any]) -> dict[str, Any]:
    """The annotations of the parameters."""
    return {name: kind for name, kind in inspect.get_annotations(function).items() if name != "return"}
