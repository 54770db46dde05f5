"""Who may hold together. A rule looks at what is occupied and says which slots the next claim fills, or none.

The ledger asks the rule of the first live waiter, and stops at the first that does not fit: nobody overtakes.
A new rule is a new row of the table; queue, expiry, handoff and fences stay as they are.

    rule       stands beside
    mutex      nobody
    write      nobody
    read       readers
    semaphore  permits, as many as its limit says
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import count, islice

from leasehold._core.light_typing import TypeAlias
from leasehold._core.types import Door, Grant, Waiter

Seat: TypeAlias = Grant | Door
Rule = Callable[[Sequence[Seat], Waiter, int], tuple[int, ...] | None]

MUTEX, READ, WRITE, SEMAPHORE = "mutex", "read", "write", "semaphore"
EXCLUSIVE = (MUTEX, WRITE)
ONLY_SLOT = (0,)


def alone(seats: Sequence[Seat], claim: Waiter, limit: int) -> tuple[int, ...] | None:
    """One holder, one slot."""
    return None if seats else ONLY_SLOT


def read(seats: Sequence[Seat], claim: Waiter, limit: int) -> tuple[int, ...] | None:
    """Beside any number of readers."""
    return None if any(one.rule != READ for one in seats) else ONLY_SLOT


def semaphore(seats: Sequence[Seat], claim: Waiter, limit: int) -> tuple[int, ...] | None:
    """All of its permits at once, in the lowest free slots."""
    if any(one.rule != SEMAPHORE for one in seats):
        return None
    taken = {slot for one in seats for slot in one.slots}
    if len(taken) + claim.permits > limit:
        return None
    return tuple(islice((slot for slot in count() if slot not in taken), claim.permits))


RULES: dict[str, Rule] = {MUTEX: alone, WRITE: alone, READ: read, SEMAPHORE: semaphore}
