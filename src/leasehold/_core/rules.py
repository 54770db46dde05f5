"""Rules: which claims may hold together. A rule gets what is occupied and returns the slots of the next claim, or None.

The ledger applies the rule of the first live waiter, and stops at the first that does not fit: no claim overtakes.
A new rule is a new row of the table; queue, expiry, handoff and fences stay as they are.

    rule       may be held beside
    mutex      nothing
    write      nothing
    read       readers
    semaphore  other permits, up to its limit
"""

from __future__ import annotations

from itertools import count, islice

from leasehold._core.light_typing import Callable, Sequence, TypeAlias
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
    used = {slot for one in seats for slot in one.slots}
    if len(used) + claim.permits > limit:
        return None
    return tuple(islice((slot for slot in count() if slot not in used), claim.permits))


RULES: dict[str, Rule] = {MUTEX: alone, WRITE: alone, READ: read, SEMAPHORE: semaphore}


# ---------------------------------------------------------------- permits
#
# Permits of a semaphore: how many a claim may want, how many are left, and the names of their slots.


def check_count(value: object, what: str) -> int:
    """A limit, or a number of permits."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidRequest(f"{what} must be an int, not {type(value).__name__}")
    if not 1 <= value <= MOST_PERMITS:
        raise InvalidRequest(f"{what} must be between 1 and {MOST_PERMITS}")
    return int(value)


def check_permits(permits: object, limit: int) -> int:
    """A number of permits, of a semaphore with that limit."""
    count = check_count(permits, "permits")
    if count > limit:
        raise InvalidRequest(
            f"{count} permits of a semaphore whose limit is {limit} would never be granted: ask for fewer, or make it "
            "with a higher limit="
        )
    return count


def slot_name(resource: str, slot: int) -> str:
    """The name of a slot for guards. No resource has such a name: an id is never empty."""
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
    """How many permits are neither held nor behind a closed door, by the limit that was stored, else by this one. 0
    while the resource is held by another rule."""
    seats: list[Occupied] = [*view.holders, *view.doors]
    if view.closed_ms or any(one.rule != SEMAPHORE for one in seats):
        return 0
    used = {slot for one in seats for slot in one.slots}
    return max((view.limit or limit) - len(used), 0)


def must_wait(view: View, permits: int, limit: int) -> bool:
    """Would a claim for so many have to wait? It would also behind another waiter: no claim overtakes."""
    return left(view, limit) < permits or any(_keeps_waiting(one, view) for one in view.queue)


def _keeps_waiting(waiter: Waiter, view: View) -> bool:
    """Does this waiter keep later ones waiting? A silent one does not, nor one that wants more than the limit."""
    live = view.now_ms - waiter.beat_ms <= patience_ms(waiter.ttl_ms)
    return live and not (waiter.rule == SEMAPHORE and waiter.permits > (view.limit or waiter.limit))
