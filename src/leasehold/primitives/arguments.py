"""The arguments of ``hold.all``, ``hold.acquire_many`` and ``hold.release_many``: locks or leases of one coordinator,
each of another resource. Everything else is refused with words that say what to do."""

from __future__ import annotations

from collections.abc import Iterable

from leasehold._core.light_typing import Any, TypeVar
from leasehold._runtime.engine import Engine
from leasehold.errors import InvalidRequest
from leasehold.primitives.base_lease import BaseLease
from leasehold.primitives.base_lock import BaseLock
from leasehold.primitives.lease import AsyncLease, Lease
from leasehold.primitives.lock import AsyncLock, Lock
from leasehold.primitives.multi import BaseAll

MOST_PARTS = 100  # of an all: they are claimed in one step, and the store answers no other client meanwhile

L = TypeVar("L", Lock, AsyncLock)
A = TypeVar("A", Lease, AsyncLease)


# ---------------------------------------------------------------- the locks of an all


def checked_parts(engine: Engine, locks: tuple[Any, ...], flavour: type[L]) -> tuple[L, ...]:
    """The locks, or InvalidRequest when they cannot be taken together."""
    engine.require("groups", "all()")
    if not 0 < len(locks) <= MOST_PARTS:
        raise InvalidRequest(
            f"all() takes 1 to {MOST_PARTS} locks, not {len(locks)}: hold.all(hold.lock('stock'), hold.lock('order'))"
        )
    seen: set[str] = set()
    for lock in locks:
        _check_part(engine, lock, flavour)
        if lock.resource in seen:
            raise InvalidRequest(
                f"{lock._name.label} is given twice with the same ids, and would wait for itself: name each once",
                resource=lock.resource,
            )
        seen.add(lock.resource)
    check_together = getattr(engine.store, "check_together", None)
    if check_together is not None:  # a store on several servers
        check_together(seen)
    return locks


def _check_part(engine: Engine, lock: Any, flavour: type[L]) -> None:
    if not isinstance(lock, flavour):
        raise InvalidRequest(_wrong_part(lock, flavour))
    if lock._engine is not engine:
        raise InvalidRequest(
            f"{lock._name.label} is a lock of another coordinator: make all of them from the one whose all() you call. "
            "What lives in two stores cannot be taken in one step: enter one lock inside the other, everywhere in the "
            "same order",
            resource=lock.resource,
        )


def _wrong_part(thing: object, flavour: type[BaseLock]) -> str:
    what = type(thing).__name__
    if isinstance(thing, BaseAll):
        return f"all() takes locks, not another {what}: give it the locks of both, and they are taken in one order"
    if isinstance(thing, BaseLock):
        other = _other(flavour)
        return f"all() takes locks of its own flavour: this {what} is of {other}; make it from the same coordinator"
    if isinstance(thing, (list, tuple, set, frozenset)) or hasattr(thing, "__next__"):
        return f"all() takes the locks one by one, not a {what} of them: hold.all(*locks)"
    if hasattr(thing, "read") and hasattr(thing, "write"):
        return f"all() takes one side of a {what}: its read() or its write()"
    return f"all() takes locks, such as hold.lock('order', 42), not {what}"


# ---------------------------------------------------------------- the locks and leases of a batch


def checked_locks(engine: Engine, locks: Iterable[Any], flavour: type[L]) -> list[L]:
    """The locks, or InvalidRequest when they cannot be taken in one batch."""
    found: list[L] = []
    seen: set[str] = set()
    for lock in _listed(locks, "acquire_many", "locks", "hold.acquire_many([hold.lock('page', 1), ...])"):
        if not isinstance(lock, flavour):
            raise InvalidRequest(_wrong_lock(lock, flavour))
        if lock._engine is not engine:
            raise InvalidRequest(
                f"{lock._name.label} is a lock of another coordinator: give each coordinator its own batch",
                resource=lock.resource,
            )
        if lock.resource in seen:
            raise InvalidRequest(
                f"{lock._name.label} is given twice with the same ids: name each once; a semaphore gives several "
                "permits in one lease with permits=",
                resource=lock.resource,
            )
        seen.add(lock.resource)
        found.append(lock)
    return found


def _wrong_lock(thing: object, flavour: type[BaseLock]) -> str:
    what = type(thing).__name__
    if isinstance(thing, BaseAll):
        return f"acquire_many takes locks, each by itself, and {what} takes several or none: acquire that on its own"
    if isinstance(thing, BaseLock):
        return f"acquire_many takes locks of its own flavour: this {what} is of {_other(flavour)}"
    if hasattr(thing, "read") and hasattr(thing, "write"):
        return f"acquire_many takes one side of a {what}: its read() or its write()"
    return f"acquire_many takes locks, such as hold.lock('page', 1), not {what}"


def checked_leases(engine: Engine, leases: Iterable[Any], flavour: type[A]) -> list[A | None]:
    """The leases, or InvalidRequest when they cannot be released in one batch."""
    found: list[A | None] = []
    seen: set[int] = set()
    for lease in _listed(leases, "release_many", "leases", "hold.release_many(batch.acquired)"):
        if lease is not None:
            _check_lease(engine, lease, flavour, id(lease._held) in seen if isinstance(lease, BaseLease) else False)
            seen.add(id(lease._held))
        found.append(lease)
    return found


def _check_lease(engine: Engine, lease: Any, flavour: type[A], again: bool) -> None:
    if not isinstance(lease, flavour):
        raise InvalidRequest(_wrong_lease(lease, flavour))
    if lease._engine is not engine:
        raise InvalidRequest(
            f"the lease on {lease._held.name.label} is of another coordinator: release it with that one",
            resource=lease.resource,
        )
    if again:
        raise InvalidRequest(
            f"the lease on {lease._held.name.label} is given twice: name each once", resource=lease.resource
        )


def _wrong_lease(thing: object, flavour: type[BaseLease]) -> str:
    what = type(thing).__name__
    if isinstance(thing, BaseLease):
        return f"release_many takes leases of its own flavour: this {what} is of {_other(flavour)}"
    if isinstance(thing, BaseLock):
        return f"release_many takes leases, not a {what}: what acquire() returned, or lock.release()"
    return f"release_many takes leases, such as batch.acquired, not {what}"


def _listed(given: Any, call: str, what: str, example: str) -> list[Any]:
    if isinstance(given, (str, bytes, BaseLock, BaseLease, BaseAll)) or not isinstance(given, Iterable):
        raise InvalidRequest(f"{call} takes a list of {what}, not {type(given).__name__}: {example}")
    return list(given)


def _other(flavour: type[BaseLock | BaseLease]) -> str:
    """What makes locks and leases of the other flavour."""
    return "leasehold.connect()" if issubclass(flavour, (AsyncLock, AsyncLease)) else "leasehold.aio.connect()"
