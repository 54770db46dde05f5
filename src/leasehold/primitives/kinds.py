"""Which class of lease fits what somebody holds. A primitive with leases of its own has a row for its rule here."""

from __future__ import annotations

from importlib import import_module

from leasehold._core.light_typing import TYPE_CHECKING, Any
from leasehold._core.rules import READ, SEMAPHORE, WRITE
from leasehold.primitives.lease import AsyncLease, Lease
from leasehold.primitives.lock import AsyncLock, Lock

if TYPE_CHECKING:
    import asyncio

    from leasehold._runtime.aio import AsyncDriver
    from leasehold._runtime.engine import Engine
    from leasehold._runtime.held_lease import Held

# rule -> where its leases are, and what they are called for threads; those for asyncio are called Async and the same.
# Loaded when there is one.
LEASES = {
    READ: ("rwlock", "ReadWriteLease"),
    WRITE: ("rwlock", "ReadWriteLease"),
    SEMAPHORE: ("permit", "Permit"),
}


def lease_class(rule: str, asyncio: bool = False) -> Any:
    """That of what is held by this rule."""
    place, name = LEASES.get(rule, ("lease", "Lease"))
    return getattr(import_module(f"leasehold.primitives.{place}"), f"Async{name}" if asyncio else name)


class Adopter(Lock):
    """Takes over what a ticket names, whatever it is: the store says so with the grant."""

    __slots__ = ()

    @staticmethod
    def _lease_class(engine: Engine, held: Held) -> Lease:  # type: ignore[override]  # called as the class would be
        lease: Lease = lease_class(held.rule)(engine, held)
        return lease


class AsyncAdopter(AsyncLock):
    """The same for asyncio."""

    __slots__ = ()

    @staticmethod
    def _lease_class(  # type: ignore[override]  # called as the class would be
        engine: Engine, held: Held, driver: AsyncDriver, loop: asyncio.AbstractEventLoop
    ) -> AsyncLease:
        lease: AsyncLease = lease_class(held.rule, asyncio=True)(engine, held, driver, loop)
        return lease
