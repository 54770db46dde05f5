"""What ``hold.all`` is given, checked: locks of one coordinator, each of another resource."""

from __future__ import annotations

from leasehold._core.light_typing import TYPE_CHECKING, Any, TypeVar
from leasehold.errors import InvalidRequest
from leasehold.primitives.base_lock import BaseLock
from leasehold.primitives.lock import AsyncLock, Lock
from leasehold.primitives.multi import BaseAll

if TYPE_CHECKING:
    from leasehold._runtime.engine import Engine

MOST_PARTS = 100  # they are claimed in one step, and meanwhile nobody else gets an answer
L = TypeVar("L", Lock, AsyncLock)


def checked(engine: Engine, locks: tuple[Any, ...], flavour: type[L]) -> tuple[L, ...]:
    """They can be taken together, or it is said what to do."""
    if not 0 < len(locks) <= MOST_PARTS:
        raise InvalidRequest(
            f"all() takes 1 to {MOST_PARTS} locks, not {len(locks)}: hold.all(hold.lock('stock'), hold.lock('order'))"
        )
    known: set[str] = set()
    for lock in locks:
        _check(engine, lock, flavour)
        if lock.resource in known:
            raise InvalidRequest(
                f"{lock._name.kind} is given twice with the same ids, and would wait for itself: name each once",
                resource=lock.resource,
            )
        known.add(lock.resource)
    return locks


def _check(engine: Engine, lock: Any, flavour: type[L]) -> None:
    if not isinstance(lock, flavour):
        raise InvalidRequest(_no_part(lock, flavour))
    if lock._engine is not engine:
        raise InvalidRequest(
            f"{lock._name.kind} is a lock of another coordinator: make all of them from the one whose all() you call. "
            "What lives in two stores cannot be taken in one step: enter one lock inside the other, everywhere in the "
            "same order",
            resource=lock.resource,
        )


def _no_part(thing: object, flavour: type[BaseLock]) -> str:
    what = type(thing).__name__
    if isinstance(thing, BaseAll):
        return f"all() takes locks, not another {what}: give it the locks of both, and they are taken in one order"
    if isinstance(thing, BaseLock):
        other = "leasehold.connect()" if flavour is AsyncLock else "leasehold.aio.connect()"
        return f"all() takes locks of its own flavour: this {what} is of {other}; make it from the same coordinator"
    if isinstance(thing, (list, tuple, set, frozenset)) or hasattr(thing, "__next__"):
        return f"all() takes the locks one by one, not a {what} of them: hold.all(*locks)"
    if hasattr(thing, "read") and hasattr(thing, "write"):
        return f"all() takes one side of a {what}: its read() or its write()"
    return f"all() takes locks, such as hold.lock('order', 42), not {what}"
