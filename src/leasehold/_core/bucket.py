"""A stable number for an id: spreads one hot resource, or a crowd of small ones, over n locks.

The number is the first 8 bytes of the BLAKE2b of the id's text, read as a big-endian integer, modulo n. That is
frozen: a table in the tests never changes, and a program in another language can compute the same.
"""

from __future__ import annotations

from leasehold._core.light_typing import TYPE_CHECKING
from leasehold._core.names import plain
from leasehold.errors import InvalidRequest

if TYPE_CHECKING:
    from datetime import date
    from uuid import UUID

MOST_BUCKETS = 2**20
DIGEST_BYTES = 8


def bucket(id: str | int | UUID | date, n: int) -> int:  # noqa: A002 - the pinned name, and the word everywhere else
    """A number in ``range(n)`` for this id: the same in every process, on every Python, for ever.

    Ids follow the rules of names: ``42`` and ``"42"`` are the same one. ``n`` is between 1 and 2**20. Whoever shares
    the locks must use the same ``n``: with another one most ids get another number.

    >>> import leasehold
    >>> leasehold.bucket(42, 16) == leasehold.bucket("42", 16)
    True
    >>> with leasehold.connect("memory://") as hold, hold.lock("counter", leasehold.bucket("user-42", 16)) as lease:
    ...     lease.resource
    'counter:12'
    """
    _check_number(n)
    import hashlib  # loads OpenSSL, and most programs need no hash of ours

    digest = hashlib.blake2b(plain(id, "id").encode()).digest()
    return int.from_bytes(digest[:DIGEST_BYTES], "big") % n


def _check_number(n: object) -> None:
    if not isinstance(n, int) or isinstance(n, bool):
        raise InvalidRequest(f"the number of buckets must be an int, not {type(n).__name__}")
    if not 1 <= n <= MOST_BUCKETS:
        raise InvalidRequest("the number of buckets must be between 1 and 2**20")
