"""FenceGuard for S3 and compatible stores: objects that a stale owner can neither overwrite nor delete.

    guard = FenceGuard(boto3.client("s3"), "reports")

    guard.put("42.csv", body, lease)                # StaleOwner, if a newer owner has written it

    found = guard.get("42.json", lease)             # read, change, write: no update is lost
    guard.put("42.json", changed(found), lease, after=found)

The fence of the last writer is in the metadata of the object itself. A put reads it, decides, and writes on the
condition that the object has not changed since (``If-Match``, ``If-None-Match``), which S3 checks in the same step as
it writes. ``guard`` holds the steps, ``record`` what is in the metadata, ``bucket`` the requests.
"""

from leasehold.guards.conflict import Conflict
from leasehold.guards.s3.guard import FenceGuard
from leasehold.guards.s3.record import Found

__all__ = ["Conflict", "FenceGuard", "Found"]
