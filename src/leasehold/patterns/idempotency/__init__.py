"""``Idempotency-Key`` for a service: a request that is repeated is answered from memory, and its work is done once."""

from __future__ import annotations

from leasehold.patterns.idempotency.middleware import IdempotencyMiddleware
from leasehold.patterns.idempotency.request import GLOBAL

__all__ = ["GLOBAL", "IdempotencyMiddleware"]
