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
from leasehold._core.names import MAX_NAME_BYTES, Name
from leasehold._core.ops import View
from leasehold._core.policy import MOST_PERMITS, patience_ms
from leasehold._core.types import Door, Grant, Waiter
from leasehold.errors import InvalidRequest

Occupied: TypeAlias = Grant | Door
Rule = Callable[[Sequence[Occupied], Waiter, int], tuple[int, ...] | None]

MUTEX, READ, WRITE, SEMAPHORE = "mutex", "read", "write", "semaphore"
EXCLUSIVE = (MUTEX, WRITE)
ONLY_SLOT = (0,)


def alone(seats: Sequence[Occupied], claim: Waiter, limit: int) -> tuple[int, ...] | None:
    """One holder, one slot."""
    return None if seats else ONLY_SLOT


def read(seats: Sequence[Occupied], claim: Waiter, limit: int) -> tuple[int, ...] | None:
    """Beside any number of readers."""
    return None if any(one.rule != READ for one in seats) else ONLY_SLOT


def semaphore(seats: Sequence[Occupied], claim: Waiter, limit: int) -> tuple[int, ...] | None:
    """All of its permits at once, in the lowest free slots."""
    if any(one.rule != SEMAPHORE for one in seats):
        return None
    taken = {slot for one in seats for slot in one.slots}
    if len(taken) + claim.permits > limit:
        return None
    return tuple(islice((slot for slot in count() if slot not in taken), claim.permits))


RULES: dict[str, Rule] = {MUTEX: alone, WRITE: alone, READ: read, SEMAPHORE: semaphore}


# ---------------------------------------------------------------- permits
#
# Permits of a semaphore: what may be asked for, how many are left, and the names of their slots.


def check_count(value: object, what: str) -> int:
    """A limit, or a number of permits."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidRequest(f"{what} must be an int, not {type(value).__name__}")
    if not 1 <= value <= MOST_PERMITS:
        raise InvalidRequest(f"{what} must be between 1 and {MOST_PERMITS}")
    return int(value)


def check_permits(permits: object, limit: int) -> int:
    """So many of that many."""
    count = check_count(permits, "permits")
    if count > limit:
        raise InvalidRequest(
            f"{count} permits of a semaphore whose limit is {limit} would never be granted: ask for fewer, or make it "
            "with a higher limit="
        )
    return count


def slot_name(resource: str, slot: int) -> str:
    """What guards know a slot by. No resource has such a name: an id is never empty."""
    return f"{resource}::{slot}"


def check_room(name: Name) -> Name:
    """The name of a semaphore must leave room for that of a slot, which guards take only when it is no longer than
    that of any resource."""
    size = len(slot_name(name.text, MOST_PERMITS - 1).encode())
    if size > MAX_NAME_BYTES:
        raise InvalidRequest(
            f"the name of a semaphore takes at most {MAX_NAME_BYTES - len(slot_name('', MOST_PERMITS - 1))} bytes, "
            "because those of its slots are made of it: hash long ids first"
        )
    return name


def left(view: View, limit: int) -> int:
    """How many permits are neither held nor behind a closed door, by the limit that was stored, else by this one. None
    while anybody holds the resource by another rule."""
    seats: list[Occupied] = [*view.holders, *view.doors]
    if view.closed_ms or any(one.rule != SEMAPHORE for one in seats):
        return 0
    taken = {slot for one in seats for slot in one.slots}
    return max((view.limit or limit) - len(taken), 0)


def must_wait(view: View, permits: int, limit: int) -> bool:
    """Would a claim for so many have to wait? Nobody overtakes: also when somebody else does."""
    return left(view, limit) < permits or any(_keeps_waiting(one, view) for one in view.queue)


def _keeps_waiting(waiter: Waiter, view: View) -> bool:
    """The silent are passed over, and so is who wants more than there will ever be."""
    live = view.now_ms - waiter.beat_ms <= patience_ms(waiter.ttl_ms)
    return live and not (waiter.rule == SEMAPHORE and waiter.permits > (view.limit or waiter.limit))
