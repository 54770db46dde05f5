"""Counters in Redis, behind a guard that checks and writes in one script."""

from __future__ import annotations

from collections.abc import Callable

import redis

from leasehold.guards.fence import Fenced
from leasehold.guards.redis import FenceGuard
from tests.model.stale_owner.documents import DocumentTarget
from tests.model.stale_owner.targets import nothing

# KEYS[1] the document; ARGV[1] fence, ARGV[2] note. Returns the value of the line that it adds.
ADD_ONE = """
local document = redis.call('GET', KEYS[1]) or ''
local value = (document:match('(%d+) %S+\\n$') or 0) + 1
redis.call('SET', KEYS[1], document .. ARGV[1] .. ' ' .. string.format('%d', value) .. ' ' .. ARGV[2] .. '\\n')
return value
"""


class RedisTarget(DocumentTarget):
    """GET and SET, or everything in a script of the user's. Nobody can stand still inside one."""

    one_step = True

    def __init__(self, url: str) -> None:
        super().__init__()
        self.client = redis.Redis.from_url(url, decode_responses=True)
        self.guard = FenceGuard(self.client)

    def load(self, lease: Fenced) -> str:
        """Check and read."""
        return str(self.guard.get(self.guard.key("document", lease), lease) or "")

    def store(self, lease: Fenced, text: str, midway: Callable[[], None]) -> None:
        """Check and write."""
        self.guard.set(self.guard.key("document", lease), text, lease)

    def add_one(self, lease: Fenced, note: str, midway: Callable[[], None] = nothing) -> int:
        """Check, read and write."""
        key = self.guard.key("document", lease)
        return int(self.guard.eval(ADD_ONE, lease, keys=[key], args=[str(lease.fence), note]))

    def document(self, resource: str) -> str:
        """GET."""
        return str(self.client.get(self.guard.key("document", resource=resource)) or "")

    def close(self) -> None:
        """Leave."""
        self.client.close()
