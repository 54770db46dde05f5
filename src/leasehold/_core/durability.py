"""``durability=``: how many copies of a lease must exist before it is believed.

Without it a grant is believed when the primary has decided it. A server that crashes, or a replica that takes over,
may not have it yet, and grants the same resource again. With ``durability`` the holder renews once after the grant and
waits until the replicas, or the disk, have confirmed that renewal; only confirmed renewals move its deadline. This
makes a second grant after a failover less likely. It is no consensus: a replica without the lease may take over.
"""

from __future__ import annotations

from leasehold._core.light_typing import NamedTuple
from leasehold.errors import InvalidRequest

FSYNC = "fsync"
MOST_REPLICAS = 100


class Copies(NamedTuple):
    """What has to confirm a renewal: so many replicas, or the disk of the primary."""

    replicas: int = 0
    fsync: bool = False


def copies(durability: str) -> Copies:
    """What a checked ``durability`` asks for."""
    return Copies(fsync=True) if durability == FSYNC else Copies(replicas=int(durability.partition(":")[2]))


def checked_durability(value: object) -> str:
    """The value of ``durability=``; empty for None."""
    if value is None:
        return ""
    if isinstance(value, str):
        if value == FSYNC:
            return value
        count = value.removeprefix("replicas:")
        digits = count != value and count.isascii() and count.isdigit() and count[0] != "0" and len(count) <= 3
        if digits and int(count) <= MOST_REPLICAS:
            return value
    raise InvalidRequest(
        'durability is None, "replicas:N" (N replicas have the lease, at most 100) or "fsync" (the disk of the primary '
        "has it)"
    )
