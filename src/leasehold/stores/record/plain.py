"""Plain turns of a record: what most ops are, decided in a few lines.

They are those of ``_core.plain``: the claim of a free mutex, and the renewal or release of the only lease, where a
record has nothing else in it. ``turn`` then gives what ``text.here``, the ledger and ``text.kept`` give together, at a
fraction of their cost; in every other case it gives None, and the store asks them.
"""

from __future__ import annotations

from leasehold._core import ops, plain
from leasehold._core.policy import MAX_FENCE, MAX_FLOOR_AHEAD_US
from leasehold._core.rules import EXCLUSIVE
from leasehold._core.types import Grant, Instant, State, owner_digest, public_owner
from leasehold.stores.record.text import Kept, Sightings

EXPIRES = Grant._fields.index("expires_ms")


def turn(kept: Kept, seen: Sightings, now: Instant, op: ops.StoreOp) -> tuple[ops.Reply, Kept] | None:
    """The reply and what to write; None when the ledger must decide. A record has lengths where the ledger has times,
    so the ledger's clock stands at 0."""
    state = kept.state
    if state.holders:
        grant = state.holders[0]
        if len(kept.marks) > 1:
            return None
        left_ms = seen[kept.marks[0]] + grant.expires_ms - now.ms
        bounded_ms = min(left_ms, grant.ttl_ms)  # it was seen a millisecond later
        grant = Grant._make((*grant[:EXPIRES], bounded_ms, *grant[EXPIRES + 1 :]))  # ``_replace`` costs twice as much
        state = State((grant,), *state[1:])
    elif state.fence and state.fence_until_us <= now.wall_us:
        return None
    found = plain.turn(state, Instant(0, now.wall_us), op)
    if found is None:
        return None
    after, reply = found
    mark = max(kept.last + 1, now.wall_us)
    return reply, Kept(after, (mark,) if after.holders else (), mark)


def waiting(kept: Kept, seen: Sightings, now: Instant, op: ops.Claim, ahead: bool) -> ops.Queued | None:
    """The reply to a claim that can only wait, since another one is the only holder; ``ahead``: behind others who do.
    None when the ledger must decide."""
    state = kept.state
    usual = len(state.holders) == len(kept.marks) == 1 and state[plain.USUAL :] == plain.NOTHING
    if not usual or op.rule not in EXCLUSIVE or not op.enqueue:
        return None
    (grant,) = state.holders
    left_ms = seen[kept.marks[0]] + grant.expires_ms - now.ms
    right_floor = 0 <= op.floor <= min(MAX_FENCE, now.wall_us + MAX_FLOOR_AHEAD_US)
    if left_ms <= 0 or not right_floor or owner_digest(grant.owner) == owner_digest(op.owner):
        return None
    return ops.Queued(int(ahead), min(left_ms, grant.ttl_ms), public_owner(grant.owner), op.address != "")


def handed_on(free: Kept, now: Instant, claim: ops.Claim) -> Kept | None:
    """What to write in place of a record that a plain turn has freed, if this claim is granted in the same step."""
    found = plain.turn(free.state, Instant(0, now.wall_us), claim)
    return None if found is None else Kept(found[0], (free.last,), free.last)
