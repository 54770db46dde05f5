"""The register: who holds what in this process. Leases by the thread or task that acquired them, and by resource.

A thread or task is known by its id, so that it is not kept alive, and what is found is checked against it: ids are used
again. Most hold one lease at a time; only who holds more has a table of his own. Changed under one lock, the engine's.
"""

from __future__ import annotations

from leasehold._core.holding import ALIVE
from leasehold._core.light_typing import TYPE_CHECKING, Any
from leasehold._core.ops import Withdraw
from leasehold._core.policy import tombstone_ms
from leasehold._runtime.held_lease import HeldLease
from leasehold._runtime.identity import new_owner

if TYPE_CHECKING:
    from leasehold._core.flows import AcquireRequest
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

    def has(self, fence: int) -> bool:
        """Does anybody here hold a lease with this fence, or did hold it and is still at it?"""
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
        if others is None or others.anchor() is not anchor:  # of somebody who is gone and had the same id
            self._by_id[id(anchor)] = held
            return
        held.outer = table.get(held.name.text)
        table[held.name.text] = held
        self._by_id[id(anchor)] = table

    def remove(self, held: HeldLease) -> None:
        """Whoever held the same resource before, in the same thread or task, is found again: a lease that was lost
        and acquired anew inside its own body must not hide the first."""
        key = id(held.anchor())
        entry = self._by_id.get(key)
        if entry is held:
            self._by_id.pop(key, None)  # a signal handler may have been quicker
        elif isinstance(entry, dict):
            _unlink(entry, held)

    def _prune(self) -> None:
        """Leases that are over and whose thread or task has ended, so that nothing piles up."""
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


# ---------------------------------------------------------------- attempt
#
# An attempt: one acquire that is under way, and what it has claimed, as which owners.


class Attempt:
    """Known to the engine from before its first claim until it has come to its end."""

    __slots__ = ("_pushes", "acquire_events", "ask", "claims")

    def __init__(
        self, request: AcquireRequest, acquire_events: AcquireEvents | None, pushes: dict[str, Any] | None = None
    ) -> None:
        self.ask = request
        self.acquire_events = acquire_events  # for those who observe, if anybody does
        self.claims: list[tuple[AcquireRequest, str]] = []
        self._pushes = pushes  # where what comes for its owners is kept; for threads their mailbox does that

    def new_owner(self, ask: AcquireRequest | None = None) -> str:
        """A new owner, known to whoever must clean up or wake it: a push may overtake the reply of its claim."""
        owner = new_owner()
        self.claims.append((ask or self.ask, owner))
        if self._pushes is not None:
            self._pushes[owner] = None
        return owner

    def forget_pushes(self) -> None:
        """It is over."""
        if self._pushes is not None:
            for _, owner in self.claims:
                self._pushes.pop(owner, None)

    def has_owner(self, owner: str) -> bool:
        """Has it claimed as this one?"""
        return any(one == owner for _, one in self.claims)

    def withdrawals(self) -> list[Withdraw]:
        """What takes back all that it may have claimed, also what is still on its way."""
        return [Withdraw(ask.name.text, owner, tombstone_ms(ask.ttl_ms)) for ask, owner in list(self.claims)]
