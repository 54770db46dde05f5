"""Is a recorded history one that the ledger could have had? Ops that overlapped may have happened in either order.

The search of Wing and Gong: take an op that began before every other one ended, let the ledger answer it, and go on if
it answers what was heard; else try another one. What was tried is remembered: how far each client had come, and the
state that was left. Fences are compared as well: each claim carries the fence that it was given as its floor, so the
ledger mints the same one, unless that is not above the last.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import Any, NamedTuple

from leasehold._core import ledger, ops
from leasehold._core.types import Instant, State, Waiter, owner_digest

DAY_US = 86_400_000_000
MOST_STEPS = 1_000_000


class Call(NamedTuple):
    """One op: what was asked, what was heard, and when it began and ended."""

    op: Any
    reply: Any
    began: int
    ended: int


class TooLong(Exception):
    """The search was given up: nothing is known."""


def linearizable(clients: list[list[Call]], may_wait: bool = False) -> bool:
    """Is there an order in which the ledger gives these answers? Each client asks for one thing after the other.
    ``may_wait``: a beat of somebody who waits may be answered without asking the server, that it waits on; and a claim
    that found the resource held may get its place when it is free again, which it takes with its next beat. A claim
    with an address may be granted what another gives back in the same step, or not; it may be told for a while that it
    waits though it was."""
    histories = _with_fences(clients)
    fences = sorted({fence for calls in histories for call in calls if (fence := _fence(call.reply))})
    now = Instant(1_000_000, (fences or [DAY_US * 2])[0] - DAY_US)
    beginning = tuple([0] * len(histories))
    seen: set[tuple[tuple[int, ...], State]] = set()
    stack = [(beginning, ledger.EMPTY)]
    for _ in range(MOST_STEPS):
        if not stack:
            return False
        came, state = stack.pop()
        if (came, state) in seen:
            continue
        seen.add((came, state))
        following = [(one, histories[one][at]) for one, at in enumerate(came) if at < len(histories[one])]
        if not following:
            return True
        first_end = min(call.ended for _, call in following)
        following.sort(key=lambda pair: pair[1].ended, reverse=True)  # what ended first is tried first
        for one, call in following:
            if call.began > first_end:
                continue
            farther = (*came[:one], came[one] + 1, *came[one + 1 :])
            stack += [
                (farther, outcome.state)
                for outcome in _outcomes(state, now, call, may_wait)
                if _same(outcome.reply, call.reply) and _in_order(state.fence, outcome.state.fence, fences)
            ]
    raise TooLong(f"{len(seen)} states were looked at")


def _outcomes(state: State, now: Instant, call: Call, may_wait: bool) -> list[ledger.Outcome]:
    """What the ledger may come to."""
    if not may_wait:
        return [ledger.apply(state, now, call.op)]
    if _waits_on(state, call):
        return [ledger.Outcome(state, call.reply, ())]
    outcomes = [_apart(state, now, call.op)]
    if _queued_late(outcomes[0], call):
        queue = (*state.queue, _waiter(call.op, now))
        return [ledger.Outcome(state._replace(queue=queue), call.reply, ())]
    if isinstance(call.op, (ops.Release, ops.Withdraw)) and any(one.address for one in state.queue):
        outcomes.append(_handed_on(state, now, call.op))
    return outcomes


def _apart(state: State, now: Instant, op: Any) -> ledger.Outcome:
    """Nobody is granted anything but by an op of its own."""
    addresses = {one.owner: one.address for one in state.queue} | {getattr(op, "owner", ""): getattr(op, "address", "")}
    quiet = state._replace(queue=tuple([one._replace(address="") for one in state.queue]))
    outcome = ledger.apply(quiet, now, op._replace(address="") if isinstance(op, ops.Claim) else op)
    queue = [one._replace(address=addresses.get(one.owner, "")) for one in outcome.state.queue]
    return outcome._replace(state=outcome.state._replace(queue=tuple(queue)))


def _handed_on(state: State, now: Instant, op: Any) -> ledger.Outcome:
    """The first in the queue is granted what is free after the op, if it is plain and has an address."""
    first, *others = state.queue
    if not first.address or first.rule != "mutex":
        return _apart(state, now, op)
    outcome = ledger.apply(state._replace(queue=(first,)), now, op)
    return outcome._replace(state=outcome.state._replace(queue=(*outcome.state.queue, *others)))


def _waits_on(state: State, call: Call) -> bool:
    """Was somebody told so who waits, or was granted what another gave back?"""
    if not (isinstance(call.op, ops.Beat) and isinstance(call.reply, ops.Queued)):
        return False
    owners = [one.owner for one in state.queue] + [one.owner for one in state.holders]
    return call.op.owner in owners


def _queued_late(outcome: ledger.Outcome, call: Call) -> bool:
    """Was somebody put into the queue of what is free for it?"""
    queued = isinstance(call.op, ops.Claim) and isinstance(call.reply, ops.Queued)
    return queued and isinstance(outcome.reply, ops.Granted)


def _waiter(op: ops.Claim, now: Instant) -> Waiter:
    return Waiter(op.owner, op.ttl_ms, op.beat, now.ms, op.address, op.floor, op.rule, op.permits, op.limit)


def _in_order(before: int, after: int, fences: list[int]) -> bool:
    """Nothing was granted, or what comes next by its fence: an order that passes it over leads nowhere. A grant whose
    owner gave up before it was told has a fence that nobody knows, before the next."""
    following = fences[bisect_right(fences, before) :]
    return before == after or not following or after <= following[0]


def _with_fences(clients: list[list[Call]]) -> list[list[Call]]:
    """Each claim with the fence that its owner was given in the end as its floor."""
    given = {call.op.owner: _fence(call.reply) for calls in clients for call in calls if _fence(call.reply)}
    return [[_floored(call, given) for call in calls] for calls in clients]


def _floored(call: Call, given: dict[str, int]) -> Call:
    if isinstance(call.op, ops.Claim) and call.op.owner in given:
        return call._replace(op=call.op._replace(floor=given[call.op.owner] - 1))
    return call


def _fence(reply: object) -> int:
    return reply.fence if isinstance(reply, ops.Granted) else 0


def _same(model: object, heard: object) -> bool:
    """What does not depend on the clock."""
    if type(model) is not type(heard):
        return False
    if isinstance(model, ops.Granted) and isinstance(heard, ops.Granted):
        return (model.fence, model.slots, model.rule) == (heard.fence, heard.slots, heard.rule)
    if isinstance(model, ops.View) and isinstance(heard, ops.View):
        return [(owner_digest(one.owner), one.fence, one.rule, one.slots) for one in model.holders] == [
            (owner_digest(one.owner), one.fence, one.rule, one.slots) for one in heard.holders
        ]
    return not isinstance(model, (ops.NotYours, ops.NoClaim, ops.Withdrawn)) or model == heard
