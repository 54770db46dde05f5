"""What every guard is, and what those of ours share: a name, those who observe it, and what a refusal leads to.

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
    """Whatever can refuse a stale owner: it raises StaleOwner, or says nothing. One for asyncio is awaited."""

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

    ``downstream`` names in logs and metrics what it protects. The observers of a lease's coordinator hear of its
    refusal; ``observers`` are for a service that has no lock client and is given bare fences."""

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
        """What somebody wants, checked before anything is sent. Raises InvalidRequest."""
        return presented(lease_or_fence, resource, owner, shared)

    def refused(self, lease_or_fence: Fenced | int, attempt: Presented, seen: int | None, why: str = "") -> StaleOwner:
        """The error to raise. Whoever observes has been told, and the lease's coordinator has learnt the higher
        fence: its next claim asks for more. So has one of this process when a bare fence is that of a lease which it
        holds. ``why`` is said in place of the usual reason."""
        tell = getattr(lease_or_fence, "_fenced_off", None)  # a lease of ours: its coordinator's observers
        if tell is not None:
            tell(seen, self.downstream, self._observers.observers)
        else:
            raise_floors(attempt.fence, seen)
            self._announce(attempt, seen)
        return refusal(attempt, seen, why)

    def _announce(self, attempt: Presented, seen: int | None) -> None:
        from leasehold.observe.events import FencedOff, Subject

        name = parse_name(attempt.resource)
        lease = Subject(name.kind, name.id_hash, attempt.shown or "", attempt.fence, 0)
        self._observers.tell(FencedOff(lease, self.downstream, seen))


def raise_floors(fence: int | None, seen: int | None) -> None:
    """Whoever holds a lease with that fence, here in this process, asks for more than what was seen from now on. Loaded
    only now: most services that are given bare fences have no lock client."""
    if fence is not None and seen is not None:
        from leasehold._runtime import engine

        engine.raise_floors(fence, seen)


def _label(downstream: object) -> str:
    if not isinstance(downstream, str) or not 0 < len(downstream) <= 100 or not downstream.isprintable():
        raise InvalidRequest("downstream is a short name for what the guard protects, such as 'reports'")
    return downstream
