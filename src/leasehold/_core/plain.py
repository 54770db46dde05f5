"""Plain turns: what most ops are, decided in a few lines.

A plain turn is the claim of a free mutex, or the renewal or release of the only lease, while no claim waits, nobody
watches, no door is closed and nothing is remembered of earlier owners. ``turn`` then gives what ``ledger.apply`` gives,
at a fraction of its cost; in every other case it gives None, and the store asks the ledger, which defines what is
right. A plain turn pushes nothing.
"""

from __future__ import annotations

from leasehold._core.light_typing import Any, Callable, TypeAlias, make_tuple
from leasehold._core.ops import Claim, Granted, Release, Released, Renew, Renewed, StoreOp
from leasehold._core.policy import DAY_US, MAX_FENCE, MAX_FLOOR_AHEAD_US
from leasehold._core.rules import EXCLUSIVE, ONLY_SLOT
from leasehold._core.types import Grant, Instant, State

Result: TypeAlias = tuple[State, Granted | Renewed | Released]

USUAL = State._fields.index("fence_until_us") + 1  # the fields behind it are empty in a plain state
NOTHING = State()[USUAL:]
RELEASED = Released()
TTL, RULE, RENEWALS, TICKET = map(Grant._fields.index, ("ttl_ms", "rule", "renewals", "ticket"))
UNCHANGED = Grant("", 0, 0, 0)[TICKET:]  # what a claim does not set


def turn(state: State, now: Instant, op: StoreOp) -> Result | None:
    """The state and the reply of a plain turn; None when the ledger must decide."""
    decide = TURNS.get(type(op))
    if decide is None or state.queue or state[USUAL:] != NOTHING:
        return None
    return decide(state, now, op)


def claim(state: State, now: Instant, op: Claim) -> Result | None:
    ms, wall_us = now
    floor, rule, ttl_ms = op.floor, op.rule, op.ttl_ms
    usual = not state.holders and rule in EXCLUSIVE and op.beat <= 1  # a repeated claim is remembered
    if not usual or not 0 <= floor <= MAX_FENCE or floor > wall_us + MAX_FLOOR_AHEAD_US:
        return None
    fence = max(wall_us, floor + 1, state.fence + 1)
    grant = make_tuple(
        Grant,
        (
            op.owner, fence, ttl_ms, ms + ttl_ms, rule, ONLY_SLOT, wall_us, op.meta, op.holder_address, op.delay_ms,
            *UNCHANGED,
        ),
    )  # fmt: skip
    after = make_tuple(State, ((grant,), (), fence, max(state.fence_until_us, fence + DAY_US), *NOTHING))
    return after, make_tuple(Granted, (fence, ttl_ms, ONLY_SLOT, 0, rule))


def renew(state: State, now: Instant, op: Renew) -> Result | None:
    grant = only_grant(state, now, op)
    ttl_ms, expires_ms = op.ttl_ms, now.ms + op.ttl_ms
    changes = op.exact or op.closed_ms or op.ticket or op.shared or op.meta or op.fences
    if grant is None or changes or expires_ms < grant.expires_ms:
        return None
    number = max(grant.renewals, op.number)
    fields = (*grant[:TTL], ttl_ms, expires_ms, *grant[RULE:RENEWALS], number, *grant[RENEWALS + 1 :])
    renewed = make_tuple(Grant, fields)  # ``_replace`` costs twice as much
    after = make_tuple(State, ((renewed,), (), state.fence, state.fence_until_us, *NOTHING))
    return after, Renewed(ttl_ms)


def release(state: State, now: Instant, op: Release) -> Result | None:
    grant = only_grant(state, now, op)
    if grant is None or grant.closed_until_ms or op.forget_ms:
        return None
    return make_tuple(State, ((), (), state.fence, state.fence_until_us, *NOTHING)), RELEASED


def only_grant(state: State, now: Instant, op: Renew | Release) -> Grant | None:
    """The grant that this op names, if there is no other. Not one that is over, nor one that the clock was set back
    for."""
    if len(state.holders) != 1:
        return None
    (grant,) = state.holders
    if grant.owner != op.owner or grant.fence != op.fence:
        return None
    return grant if grant.expires_ms - grant.ttl_ms <= now.ms < grant.expires_ms else None


TURNS: dict[type, Callable[[State, Instant, Any], Result | None]] = {Claim: claim, Renew: renew, Release: release}
