"""``Idempotency-Key`` for a service: a request that is repeated is answered from memory, and its work is done once."""

from __future__ import annotations

from leasehold.patterns.idempotency.caller import GLOBAL
from leasehold.patterns.idempotency.middleware import IdempotencyMiddleware

__all__ = ["GLOBAL", "IdempotencyMiddleware"]
