"""A record's revision: never the same for another content, and enough to change the record only if it is still that.

A node's ``version`` counts its changes, but begins again when the node is removed and made anew, and ZooKeeper compares
nothing else. So the version of the bucket's node counts the removals: each one changes it in the same transaction, and
each change of a record requires that it is still what it was before the record was read. An older number than the true
one only makes a change fail. ``mzxid``, the transaction that wrote the content, makes the revision unique.
"""

from __future__ import annotations

from leasehold._core.light_typing import NamedTuple

BITS = 32
MASK = (1 << BITS) - 1


class Revision(NamedTuple):
    mzxid: int
    removals: int  # the version of the bucket's node, read before the record was
    version: int  # of the record's node

    def packed(self) -> int:
        return (self.mzxid << 2 * BITS) | ((self.removals & MASK) << BITS) | (self.version & MASK)


def unpacked(revision: int) -> Revision:
    return Revision(revision >> 2 * BITS, _signed(revision >> BITS), _signed(revision))


def _signed(number: int) -> int:
    """Versions are signed integers of 32 bits."""
    number &= MASK
    return number - (1 << BITS) if number >> (BITS - 1) else number
