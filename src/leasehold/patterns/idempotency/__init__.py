"""``Idempotency-Key`` for a service: the work of a request is done once, and repetitions get the stored response."""

from __future__ import annotations

from leasehold.patterns.idempotency.middleware import IdempotencyMiddleware
from leasehold.patterns.idempotency.request import GLOBAL

__all__ = ["GLOBAL", "IdempotencyMiddleware"]
