"""Idempotency keys: work that is done once for each key, whoever asks how often, and whose outcome is kept.

While it runs the key belongs to a lease; what came of it stands on a result store, written under that lease's fence.
"""

from __future__ import annotations

from leasehold.patterns.errors import KeyReused, ResultNotKept
from leasehold.patterns.once.key import AsyncOnceKey, OnceKey
from leasehold.patterns.once.once import AsyncOnce, Once

__all__ = ["AsyncOnce", "AsyncOnceKey", "KeyReused", "Once", "OnceKey", "ResultNotKept"]
