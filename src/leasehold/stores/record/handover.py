"""Handovers: whoever frees a mutex grants it to the first place in the same write.

The grant is not the claim's own write, so its deadline cannot count from one. It counts from when that claim was sent:
its place was made after that, the grant is written after the place, and is seen by others after it was written. So
nobody else thinks that it is over before its holder does.

A place offers its claim for that. It does so for a short time: a process that stands still must not be given what it
will not use, and a deadline that counts from long ago leaves no time to work in. A place whose offer is older keeps its
turn: the resource is left free, and its claim takes it by a write of its own. The age of an offer is judged by the
server's wall clock. If that was set, a grant comes to nothing at worst: its holder never uses what is over.

Whoever holds a resource knows every place that there was when it was granted, or looks before it releases, and wakes
the first one when it leaves the resource free. So a claim that is not the first watches its own place, for as long as
its offer is good: it vanishes when the claim is granted the resource. Whoever gives its place up wakes the next. What
nobody does, because a process has died, is found by the next beat.

The first condition of such a write is that the place is still there. Places are made at the end and only vanish, so
one that was the first when it was read is the first for as long as it exists. The grant names its owner as the place
does, by ``owner_id``: the token stays with its process, whose ops mean the same owner.
"""

from __future__ import annotations

from leasehold._core import ops
from leasehold._core.light_typing import Any
from leasehold._core.policy import patience_ms
from leasehold._core.rules import MUTEX
from leasehold._core.types import Instant, State, Waiter, owner_digest, owner_id
from leasehold.stores.record.requests import Offer, Place, Record
from leasehold.stores.record.text import place_text

LATE_MS = 5_000  # a claim whose offer is no longer good has looked by then
SOMEWHERE = "somewhere"  # whoever waits is woken by the server's watch


def offer(op: ops.Claim, now: Instant) -> Offer | None:
    """What a claim that joins the queue offers. None for one that was repeated: from which of its copies would the
    deadline count? And for one that cannot be pushed to, is not plain, or says something of its holder."""
    if op.rule != MUTEX or op.beat != 1 or not op.address or op.meta:
        return None
    return Offer(owner_id(op.owner), op.ttl_ms, op.floor, now.wall_us, op.holder_address, op.delay_ms)


def fresh_ms(ttl_ms: int) -> int:
    """How long an offer is good for: two thirds of the lease are left at least."""
    return patience_ms(ttl_ms // 3)


def is_fresh(one: Offer, now: Instant) -> bool:
    return abs(now.wall_us - one.since_us) <= fresh_ms(one.ttl_ms) * 1000


def is_watched(one: Offer, now: Instant) -> bool:
    """May its claim still watch its own place, and nothing else? It looks once in a beat."""
    return abs(now.wall_us - one.since_us) <= (fresh_ms(one.ttl_ms) + LATE_MS) * 1000


def roused(record: Record, now: Instant) -> Place | None:
    """The first place, if its claim must be told that it is the first: as it is to be touched."""
    first = record.places[0] if record.places else None
    if first is None or first.offer is None or not is_watched(first.offer, now):
        return None
    made = Waiter(first.offer.owner, first.offer.ttl_ms, 1, now.ms, rule=MUTEX, since_us=first.offer.since_us)
    return first._replace(text=place_text(made))


def heir(record: Record, state: State, now: Instant) -> Place | None:
    """The first place, if it can be granted the resource in the write that frees it. An owner has one grant in its
    life."""
    if not record.places:
        return None
    first = record.places[0]
    if first.offer is None or not is_fresh(first.offer, now):
        return None
    return None if first.owner in [owner_digest(owner) for owner in _owners(state)] else first


def waiter(one: Offer, now: Instant) -> Waiter:
    """As the ledger hands a resource on to."""
    return Waiter(
        one.owner,
        one.ttl_ms,
        1,
        now.ms,
        SOMEWHERE,
        one.floor,
        MUTEX,
        since_us=one.since_us,
        holder_address=one.holder_address,
        delay_ms=one.delay_ms,
    )


def claim(resource: str, one: Offer) -> ops.Claim:
    """The claim that stands for it."""
    return ops.Claim(
        resource, one.owner, one.ttl_ms, 1, one.floor, holder_address=one.holder_address, delay_ms=one.delay_ms
    )


# ---------------------------------------------------------------- owners


def is_owner(written: str, owner: str) -> bool:
    """Does a record that says ``written`` mean this owner?"""
    return written == owner or ("#" in written and owner_digest(written) == owner_digest(owner))


def as_written(op: Any, state: State) -> Any:
    """The op with its owner as the record names it."""
    owner = getattr(op, "owner", "")
    for written in _owners(state):
        if written != owner and is_owner(written, owner):
            return op._replace(owner=written)
    return op


def _owners(state: State) -> list[str]:
    return [one.owner for one in state.holders] + [one.owner for one in state.ended]
