"""What operators do from ``leasehold top``: ask a holder to release, or take its lease away. Each is told in a line."""

from __future__ import annotations

from leasehold.cli.clear import nobody_gets, operator
from leasehold.cli.output import printable
from leasehold.cli.terminal import elapsed
from leasehold.coordinator import Leasehold
from leasehold.errors import LeaseholdError, NotHeld
from leasehold.primitives.inspection import Holder


def revoke(hold: Leasehold, resource: str, fences: list[int]) -> str:
    """Ask the holders that were shown. That one of several has released it meanwhile keeps nobody from being asked."""
    reached, name = 0, printable(resource)
    for fence in fences:
        try:
            reached += hold.revoke(resource, fence=fence, by=operator())
        except LeaseholdError as error:
            if len(fences) == 1 or not isinstance(error, NotHeld):
                return f"Not asked: {error}"
    if len(fences) > 1:
        return f"{reached} of the {len(fences)} holders of {name} are asked to release it."
    return f"The holder of {name} is asked to release it." if reached else f"The holder of {name} cannot be reached."


def clear(hold: Leasehold, resource: str, holder: Holder, reason: str) -> str:
    """Evict the holder that was shown, and no other. What it had stays closed for what remained of its lease."""
    try:
        done = hold.evict(resource, fence=holder.fence, reason=reason, by=operator())
    except LeaseholdError as error:
        return f"Not cleared: {error}"
    name, owner = printable(done.resource), printable(done.owner)
    return f"{owner} no longer holds {name}. {nobody_gets(holder, elapsed(done.closed_for))}."
