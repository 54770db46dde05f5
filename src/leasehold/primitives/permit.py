"""A permit: a lease of a semaphore, with the numbers of the slots that it fills."""

from __future__ import annotations

from leasehold._core.light_typing import TYPE_CHECKING
from leasehold._core.permits import slot_name
from leasehold.errors import InvalidRequest
from leasehold.primitives.base_lease import BaseLease
from leasehold.primitives.lease import AsyncLease, Lease


class BasePermit(BaseLease):
    """What a permit says about itself beyond what every lease does."""

    __slots__ = ()

    @property
    def slot(self) -> int:
        """The number of its place: the lowest that was free. No other permit has it at the same time."""
        return self._held.slots[0]

    @property
    def slots(self) -> tuple[int, ...]:
        """All of its places, when it was acquired with several ``permits``."""
        return self._held.slots

    @property
    def slot_resource(self) -> str:
        """The name under which guards check it: ``guard.check(tx, permit, resource=permit.slot_resource)``. Permits are
        valid side by side, and fences grow for each slot."""
        return slot_name(self.resource, self.slot)

    @property
    def slot_resources(self) -> tuple[str, ...]:
        """The same of all of its places: a guard takes each of them."""
        return tuple([slot_name(self.resource, slot) for slot in self.slots])

    def headers(self, slot: int | None = None) -> dict[str, str]:
        """Fence, the resource of its slot, and owner (not its secret) as HTTP headers. One with several slots names the
        one that the request works in."""
        return self._headers(slot_name(self.resource, self._chosen(slot)))

    def _chosen(self, slot: object) -> int:
        slots = self.slots
        if slot is None and len(slots) == 1:
            return slots[0]
        if slot is None:
            raise InvalidRequest(
                f"this permit has the slots {', '.join(map(str, slots))}, and each has an owner of its own later on: "
                "say which one the request works in, as headers(slot=permit.slot)"
            )
        if isinstance(slot, bool) or not isinstance(slot, int) or slot not in slots:
            raise InvalidRequest(f"slot= is one of those that this permit has: {', '.join(map(str, slots))}")
        return slot

    def __repr__(self) -> str:
        shown = ",".join(map(str, self.slots))
        return f"{BaseLease.__repr__(self)[:-1]} slot{'s' if len(self.slots) > 1 else ''}={shown}>"


class Permit(BasePermit, Lease):
    """A permit for threads: a lease, with the numbers of its slots.

    >>> import leasehold
    >>> with leasehold.connect("memory://") as hold, hold.semaphore("api", "eu", limit=3) as permit:
    ...     permit.slot, permit.slot_resource, permit.state
    (0, 'api:eu::0', 'held')
    """

    __slots__ = ()

    if TYPE_CHECKING:

        def __enter__(self) -> Permit: ...


class AsyncPermit(BasePermit, AsyncLease):
    """A permit for asyncio. The task inside ``async with`` is cancelled when it is lost."""

    __slots__ = ()

    if TYPE_CHECKING:

        async def __aenter__(self) -> AsyncPermit: ...
