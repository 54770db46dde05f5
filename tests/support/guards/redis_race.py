"""What each lane of a race on Redis does: without pytest, so that its processes start fast."""

from __future__ import annotations

from typing import Any

from leasehold.errors import StaleOwner
from leasehold.guards.redis import FenceGuard

RESOURCE = "report-export:42"


def add_one(guard: FenceGuard, fence: int, owner: str) -> bool:
    """Read, and write one more in another round trip: a lost update would show."""
    who: dict[str, Any] = {"resource": RESOURCE, "owner": owner}
    try:
        count = int(guard.hget("counter", "count", fence, **who) or 0)
        guard.eval(
            "redis.call('RPUSH', KEYS[2], ARGV[2]) return redis.call('HSET', KEYS[1], 'count', ARGV[1])",
            fence,
            keys=["counter", "written"],
            args=[count + 1, fence],
            **who,
        )
    except StaleOwner:
        return False
    return True
