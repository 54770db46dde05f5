"""Idempotency keys: work that is done once for each key, and whose outcome is kept for later callers.

While the work runs, the key belongs to a lease; the outcome is on a result store, written under the fence of that
lease.
"""

from __future__ import annotations

from leasehold.patterns.errors import KeyReused, ResultNotKept
from leasehold.patterns.once.key import AsyncOnceKey, OnceKey
from leasehold.patterns.once.once import AsyncOnce, Once

__all__ = ["AsyncOnce", "AsyncOnceKey", "KeyReused", "Once", "OnceKey", "ResultNotKept"]
