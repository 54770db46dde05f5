"""What a store of records does, as the checker needs it: the ledger, but whoever waits takes the resource itself.

A release grants nothing. The claim whose place is the first is granted what is free when it asks for it; until then
nobody has it. So a queue of places stands beside the ledger, and each claim is decided behind those before it.
"""

from __future__ import annotations

from typing import Any

from leasehold._core import ledger, ops
from leasehold._core.types import Instant, State, Waiter


def apply(state: State, now: Instant, op: Any) -> ledger.Outcome:
    """Places stand where the ledger has its queue."""
    places, bare = state.queue, state._replace(queue=())
    place = next((one for one in places if one.owner == op.owner), None) if hasattr(op, "owner") else None
    if isinstance(op, ops.Beat) and place is not None:
        again = ops.Claim(op.resource, place.owner, place.ttl_ms, rule=place.rule, permits=place.permits)
        op = again._replace(limit=place.limit, floor=place.floor)
    if isinstance(op, ops.Claim):
        return _claim(places, bare, now, op, place)
    outcome = ledger.apply(bare, now, op)
    if isinstance(op, ops.Withdraw) and place is not None:
        left = tuple([one for one in places if one is not place])
        return outcome._replace(reply=ops.Withdrawn("queued"), state=outcome.state._replace(queue=left))
    return outcome._replace(state=outcome.state._replace(queue=places))


def _claim(
    places: tuple[Waiter, ...], bare: State, now: Instant, op: ops.Claim, place: Waiter | None
) -> ledger.Outcome:
    ahead = bool(places) if place is None else places[0] is not place
    somebody = Waiter("somebody:0:ahead", op.ttl_ms, 1, now.ms)
    outcome = ledger.apply(bare._replace(queue=(somebody,) if ahead else ()), now, op, advanced=True)
    if isinstance(outcome.reply, ops.Granted):
        left = tuple([one for one in places if one is not place])
        return outcome._replace(state=outcome.state._replace(queue=left))
    if isinstance(outcome.reply, ops.Queued) and place is None:
        waits = Waiter(op.owner, op.ttl_ms, op.beat, now.ms, "", op.floor, op.rule, op.permits, op.limit)
        places = (*places, waits)
    return ledger.Outcome(bare._replace(queue=places), outcome.reply, ())


def known_to_wait(state: State, op: Any) -> bool:
    """Has it a place? Then a beat may be answered from what is known, without asking: it waits on."""
    return isinstance(op, ops.Beat) and any(one.owner == op.owner for one in state.queue)
