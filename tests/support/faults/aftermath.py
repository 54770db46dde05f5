"""The aftermath of a fault: what must be true of a lock and of its coordinator, whatever went wrong."""

from __future__ import annotations

import gc
import os
from typing import Any

import leasehold
from leasehold import LeaseholdError
from tests.support.faults.user import INJECTED, KIND, TTL, Use, User
from tests.support.waiting import until

SOON = float(os.environ.get("LEASEHOLD_SOON", "20"))  # seconds in which what was claimed must be free: far below TTL


def left_behind(hold: Any) -> dict[str, int]:
    """What a coordinator that holds nothing and does nothing still has, by the place where it has it."""
    engine, driver = hold._engine, getattr(hold, "_driver", None)
    found = {
        "acquires under way": len(engine.pending),
        "registered leases": sum(held.anchor() is not None for held in _registered(engine.registry)),
        "renewed leases": len(engine.watchdog.leases()),
        "borrowed connections": len(engine.connections._open) - len(engine.connections._idle) if _counts(hold) else 0,
        "awaited pushes": sum(len(one.pushes) for one in driver._connections.values()) if driver else 0,
    }
    return {place: count for place, count in found.items() if count}


def expect_sound(user: User, other: leasehold.Leasehold, use: Use) -> None:
    """Nothing stays locked, nobody holds twice, fences grow, nothing is left behind, and the same coordinator goes on
    with replies of its own. ``other`` is the coordinator of another user."""
    fence = expect_free(user.hold, other, use)
    seen: list[Any] = []
    again = user.use(use.number, body=lambda lease: seen.append(other.inspect(use.resource)))
    assert again.raised is None and again.fences == [seen[0].holder.fence], f"its replies are its own: {again} {seen}"
    assert again.fences[0] > fence, "fences grow"
    assert other.inspect(use.resource).holder is None, "it was released"


def expect_free(hold: Any, other: leasehold.Leasehold, use: Use) -> int:
    """The part of it that is also true of a coordinator that was closed. The fence of the other user."""
    assert use.raised is None or issubclass(use.raised, (LeaseholdError, *INJECTED)), use.raised
    assert len(use.fences) <= 1
    theirs = other.lock(KIND, use.number, ttl=TTL).acquire(wait=0) or _wait(other, use)
    assert theirs is not None, f"it stays locked: {other.inspect(use.resource)}"
    assert theirs.fence > max(use.fences, default=0), "fences grow"
    _expect_nothing_left_behind(hold)
    assert theirs.release() is True, "nobody has taken it away meanwhile"
    return theirs.fence


def _expect_nothing_left_behind(hold: Any) -> None:
    try:
        until(lambda: not left_behind(hold) or (gc.collect() and False), "nothing is left behind", SOON)
    except AssertionError as error:
        error.add_note(str(left_behind(hold)))
        raise


def _counts(hold: Any) -> bool:
    """The embedded store keeps a connection that an interrupt caught before its first use, until it is closed itself:
    an object without a socket."""
    return bool(hold._engine.store.name != "sqlite")


def _registered(registry: Any) -> list[Any]:
    """The leases in a registry: those of one thread or task are one, or a table of them."""
    return [held for entry in registry._by_id.values() for held in (entry.values() if type(entry) is dict else [entry])]


def _wait(other: leasehold.Leasehold, use: Use) -> leasehold.Lease | None:
    """What was interrupted is withdrawn in the background. Frames may stand in a cycle with their exception."""
    gc.collect()
    return other.lock(KIND, use.number, ttl=TTL).acquire(wait=SOON)
