"""What is said about a key that cannot be used as it was asked."""

from __future__ import annotations

from leasehold.errors import InvalidRequest


class KeyReused(InvalidRequest):
    """The same key came with another body than before (their fingerprints differ). Nothing was run: whoever wants a
    second one takes a new key."""
