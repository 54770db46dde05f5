"""FenceGuard for Redis and Valkey: the check and the write are one script, and one round trip.

    guard = FenceGuard(client)                              # your own client, sync or asyncio, Cluster too

    status = guard.get("report:42:status", lease)           # before you change it: check and read in one step
    guard.set("report:42:status", "done", lease)            # StaleOwner: nothing was written

For each resource there is one record, whatever the number of keys that it protects: with a record for each key, a
stale owner would be refused at those that a newer one has touched, and could write to all the others.

guard    the methods
client   sends what a method builds, over a blocking or an asyncio client
step     the scripts, and what a reply means
keys     names of records and keys, slots of a Cluster
"""

from leasehold.guards.redis.client import Awaited, Blocking
from leasehold.guards.redis.guard import FenceGuard

__all__ = ["Awaited", "Blocking", "FenceGuard"]
