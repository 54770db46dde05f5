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
from leasehold._core.types import Instant, State, Waiter

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
    that found the resource held may get its place when it is free again, which it takes with its next beat."""
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
            outcome = ledger.apply(state, now, call.op)
            if may_wait and _waits_on(state, call):
                outcome = ledger.Outcome(state, call.reply, ())
            elif may_wait and _queued_late(outcome, call):
                queue = (*state.queue, _waiter(call.op, now))
                outcome = ledger.Outcome(state._replace(queue=queue), call.reply, ())
            if _same(outcome.reply, call.reply) and _in_order(state.fence, outcome.state.fence, fences):
                stack.append(((*came[:one], came[one] + 1, *came[one + 1 :]), outcome.state))
    raise TooLong(f"{len(seen)} states were looked at")


def _waits_on(state: State, call: Call) -> bool:
    """Was somebody told so who waits?"""
    if not (isinstance(call.op, ops.Beat) and isinstance(call.reply, ops.Queued)):
        return False
    return any(one.owner == call.op.owner for one in state.queue)


def _queued_late(outcome: ledger.Outcome, call: Call) -> bool:
    """Was somebody put into the queue of what is free for it?"""
    queued = isinstance(call.op, ops.Claim) and isinstance(call.reply, ops.Queued)
    return queued and isinstance(outcome.reply, ops.Granted)


def _waiter(op: ops.Claim, now: Instant) -> Waiter:
    return Waiter(op.owner, op.ttl_ms, op.beat, now.ms, op.address, op.floor, op.rule, op.permits, op.limit)


def _in_order(before: int, after: int, fences: list[int]) -> bool:
    """Nothing was granted, or what comes next by its fence: an order that passes it over leads nowhere."""
    return before == after or fences[bisect_right(fences, before)] == after


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
        return [(one.owner, one.fence, one.rule, one.slots) for one in model.holders] == [
            (one.owner, one.fence, one.rule, one.slots) for one in heard.holders
        ]
    return not isinstance(model, (ops.NotYours, ops.NoClaim, ops.Withdrawn)) or model == heard
