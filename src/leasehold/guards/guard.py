"""The base class of all guards: their name, their observers, and what happens on a refusal.

To write one of your own, derive from ``BaseGuard`` and keep the rule in one atomic step of the resource:

    class FileGuard(BaseGuard):
        def check(self, lease_or_fence, *, resource=None, owner=None, shared=False):
            attempt = self.present(lease_or_fence, resource, owner, shared)
            with self._locked_file() as file:                       # your atomic step
                last_fence, last_owner = file.read(attempt.resource)
                accepted = attempt.follows(last_fence, last_owner)
                if accepted and not attempt.shared:
                    file.write(attempt.resource, attempt.fence, attempt.owner)
            if not accepted:                                        # outside the lock: observers may take their time
                raise self.refused(lease_or_fence, attempt, last_fence)

``leasehold.testing.guards`` holds the suite that such a guard must pass.
"""

from __future__ import annotations

from collections.abc import Awaitable, Iterable
from typing import TYPE_CHECKING, Protocol

from leasehold._core.names import parse_name
from leasehold.errors import InvalidRequest, StaleOwner
from leasehold.guards.fence import Fenced, Presented, presented, refusal
from leasehold.observe.observers import Observers

if TYPE_CHECKING:
    from leasehold.observe.events import Observer


class Guard(Protocol):
    """Anything that can refuse a stale owner: ``check`` raises StaleOwner or returns None; for asyncio, awaited."""

    def check(
        self,
        lease_or_fence: Fenced | int,
        *,
        resource: str | None = None,
        owner: str | None = None,
        shared: bool = False,
    ) -> Awaitable[None] | None:
        """Accept and remember this fence, or raise StaleOwner and change nothing."""


class BaseGuard:
    """The part of a guard that is the same everywhere.

    ``downstream`` names what it protects, in logs and metrics. The observers of a lease's coordinator are notified of
    a refusal; ``observers`` are for a service that has no lock client and is given bare fences."""

    __slots__ = ("_observers", "downstream")

    def __init__(self, *, downstream: str, observers: Iterable[Observer] = ()) -> None:
        self.downstream = _label(downstream)
        self._observers = Observers(observers)

    def present(
        self,
        lease_or_fence: Fenced | int,
        resource: str | None = None,
        owner: str | None = None,
        shared: bool = False,
    ) -> Presented:
        """What a caller presents, checked before anything is sent. Raises InvalidRequest."""
        return presented(lease_or_fence, resource, owner, shared)

    def refused(self, lease_or_fence: Fenced | int, attempt: Presented, seen: int | None, why: str = "") -> StaleOwner:
        """The error to raise. Before it returns, observers are notified and the lease's coordinator remembers the
        higher fence, so that its next claim asks for a higher one. The same happens for a bare fence if a lease with
        that fence is held in this process. ``why`` replaces the usual reason in the message."""
        notify = getattr(lease_or_fence, "_fenced_off", None)  # only our own leases have it
        if notify is not None:
            notify(seen, self.downstream, self._observers.observers)
        else:
            raise_floors(attempt.fence, seen)
            self._announce(attempt, seen)
        return refusal(attempt, seen, why)

    def _announce(self, attempt: Presented, seen: int | None) -> None:
        from leasehold.observe.events import FencedOff, Subject

        name = parse_name(attempt.resource)
        lease = Subject(name.kind, name.id_hash, attempt.shown or "", attempt.fence, 0)
        self._observers.notify(FencedOff(lease, self.downstream, seen))


def raise_floors(fence: int | None, seen: int | None) -> None:
    """Make the holder of a lease with this fence, if it is in this process, claim fences above ``seen`` from now on.
    The engine is imported late: most services that are given bare fences have no lock client."""
    if fence is not None and seen is not None:
        from leasehold._runtime import engine

        engine.raise_floors(fence, seen)


def _label(downstream: object) -> str:
    if not isinstance(downstream, str) or not 0 < len(downstream) <= 100 or not downstream.isprintable():
        raise InvalidRequest("downstream is a short name for what the guard protects, such as 'reports'")
    return downstream
