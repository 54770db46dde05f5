"""Guards make a stale holder harmless at the resource: they refuse a fence older than one they have seen.

A lease only makes collisions rare: its holder can be paused at any moment, even between its last check of the clock
and its write. A holder that presents its fence to a guard, in the same step as its write and before its first read,
cannot overwrite anything that a later holder did.

A guard needs no lock client: it takes a lease, or a bare fence that arrived in a message. Each kind of resource has a
module of its own: ``sql``, ``redis``, ``http``, ``s3`` and, for tests, ``memory``. ``fence`` holds the rule that all of
them apply, ``guard`` the base class for your own.
"""

from leasehold.guards.conflict import Conflict
from leasehold.guards.fence import Fenced, Presented
from leasehold.guards.guard import BaseGuard, Guard

__all__ = ["BaseGuard", "Conflict", "Fenced", "Guard", "Presented"]
