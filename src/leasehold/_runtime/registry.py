"""The registry: the leases of this process by the thread or task that acquired them and by resource; and the acquires
that are under way.

A thread or task is known by its id, so that it is not kept alive. What is found is checked against it, because ids are
used again. Most hold one lease at a time; only those with more have a table. Changed under one lock, the engine's.
"""

from __future__ import annotations

from leasehold._core.holding import ALIVE, RELEASING
from leasehold._core.light_typing import TYPE_CHECKING, Any
from leasehold._core.ops import Withdraw
from leasehold._core.policy import tombstone_ms
from leasehold._runtime.held_lease import HeldLease
from leasehold._runtime.identity import new_owner

if TYPE_CHECKING:
    from leasehold._core.flows import AcquireRequest
    from leasehold._runtime.cohorts import LocalCohort
    from leasehold._runtime.events import AcquireEvents


class LeaseRegistry:
    """The leases of one coordinator."""

    def __init__(self) -> None:
        self._by_id: dict[int, HeldLease | dict[str, HeldLease]] = {}
        self._prune_at = 64

    def __len__(self) -> int:
        return sum(1 if isinstance(entry, HeldLease) else len(entry) for entry in list(self._by_id.values()))

    def find(self, resource: str, anchor: object) -> HeldLease | None:
        """What this thread or task holds of this resource: never what its parent task holds (trap 12)."""
        entry = self._by_id.get(id(anchor))
        held = entry.get(resource) if isinstance(entry, dict) else entry
        if held is None or held.name.text != resource or held.anchor() is not anchor:
            return None
        return held

    def releasing(self) -> list[HeldLease]:
        """The leases whose release is under way, or was not confirmed. The watchdog may have dropped them."""
        entries = list(self._by_id.values())
        leases = [held for one in entries for held in ([one] if isinstance(one, HeldLease) else list(one.values()))]
        return [held for held in leases if held.phase == RELEASING]

    def has(self, fence: int) -> bool:
        """Is there a lease with this fence, held, or lost and still in use?"""
        entries = list(self._by_id.values())
        leases: list[HeldLease | None] = []
        for one in entries:
            leases += [one] if isinstance(one, HeldLease) else list(one.values())
        while leases:
            if any(held is not None and held.fence == fence for held in leases):
                return True
            leases = [held.outer for held in leases if held is not None]
        return False

    def add(self, held: HeldLease, anchor: object) -> None:
        if self._by_id.setdefault(id(anchor), held) is not held:
            self._add_another(held, anchor)
        if len(self._by_id) > self._prune_at:
            self._prune()

    def _add_another(self, held: HeldLease, anchor: object) -> None:
        entry = self._by_id[id(anchor)]
        table = entry if isinstance(entry, dict) else {entry.name.text: entry}
        others = next(iter(table.values()), None)
        if others is None or others.anchor() is not anchor:  # of an earlier thread or task with the same id
            self._by_id[id(anchor)] = held
            return
        outer = table.get(held.name.text)
        if outer is not None:
            held.outer = outer
        table[held.name.text] = held
        self._by_id[id(anchor)] = table

    def remove(self, held: HeldLease) -> None:
        """The lease that the same thread or task held before on the same resource is found again: one that was lost and
        acquired anew inside its own body must not hide the first."""
        key = id(held.anchor())
        entry = self._by_id.get(key)
        if entry is held:
            self._by_id.pop(key, None)  # a signal handler may have been quicker
        elif isinstance(entry, dict):
            _unlink(entry, held)

    def _prune(self) -> None:
        """Remove leases that are over and whose thread or task has ended, so that the registry does not grow."""
        for key, entry in list(self._by_id.items()):
            leases = [entry] if isinstance(entry, HeldLease) else list(entry.values())
            if not any(held.phase in ALIVE or not held.caller_ended() for held in leases):
                self._by_id.pop(key, None)
        self._prune_at = 2 * len(self._by_id) + 64

    def clear(self) -> None:
        self._by_id.clear()


def _unlink(table: dict[str, HeldLease], held: HeldLease) -> None:
    resource = held.name.text
    top = table.get(resource)
    if top is held:
        table.pop(resource, None)
        if held.outer is not None:
            table[resource] = held.outer
        return
    while top is not None:
        if top.outer is held:
            top.outer = held.outer
        top = top.outer


# ---------------------------------------------------------------- attempts


class Attempt:
    """One acquire that is under way, with its claims and their owners. The engine knows it from before its first claim
    until its end."""

    __slots__ = ("_pushes", "acquire_events", "claims", "cohort", "epoch", "flow", "leads_on", "request")

    def __init__(
        self,
        request: AcquireRequest,
        epoch: int,
        acquire_events: AcquireEvents | None = None,
        pushes: dict[str, Any] | None = None,
    ) -> None:
        self.request = request
        self.epoch = epoch  # of the engine: in a forked child it is another one
        self.acquire_events = acquire_events  # for observers, if there are any
        self.claims: list[tuple[AcquireRequest, str]] = []
        self.flow: Any = None  # once it has one
        self.cohort: LocalCohort | None = None  # that it leads
        self.leads_on: Any = None  # a weak reference to the thread or task that leads
        self._pushes = pushes  # where pushes for its owners are kept; a thread's connection keeps its own

    def new_owner(self, request: AcquireRequest | None = None) -> str:
        """A new owner, recorded before its claim is sent: for clean-up, and because a push may overtake the reply."""
        owner = new_owner()
        self.claims.append((request or self.request, owner))
        if self._pushes is not None:
            self._pushes[owner] = None
        return owner

    def forget_pushes(self) -> None:
        """The attempt is over: no more pushes are expected."""
        if self._pushes is not None:
            for _, owner in self.claims:
                self._pushes.pop(owner, None)

    def has_owner(self, owner: str) -> bool:
        """Has it claimed as this owner?"""
        return any(one == owner for _, one in self.claims)

    def withdrawals(self) -> list[Withdraw]:
        """The ops that withdraw all that it may have claimed, also claims that are still on their way."""
        return [
            Withdraw(resource=request.name.text, owner=owner, forget_ms=tombstone_ms(request.ttl_ms))
            for request, owner in list(self.claims)
        ]
