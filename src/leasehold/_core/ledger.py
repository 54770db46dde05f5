"""The ledger: how one resource decides. ``apply(state, now, op) -> (state', reply, pushes)``.

Everything that affects who holds is in this file, in ``turn`` (its machinery) and in ``rules`` (who fits). ``memory``
and ``sqlite`` run it as it stands, behind ``plain``, which gives the same for the usual case; any other store does the
same in its own language, and a differential test compares every reply.

Each op is one turn, in three steps:

1. advance: grants whose time is over end, silent waiters leave, the next live waiter is granted;
2. the op itself;
3. hand on: what the op has freed goes to the next live waiter, in the same atomic step.

Time is an argument, reachability of a waiter is an argument, owners come from outside: the same input gives the
same output, always.
"""

from __future__ import annotations

from leasehold._core import ops
from leasehold._core.light_typing import Any, Callable, NamedTuple, Sequence
from leasehold._core.policy import tombstone_ms
from leasehold._core.rules import EXCLUSIVE, READ, RULES, WRITE
from leasehold._core.turn import Turn
from leasehold._core.types import Instant, State, Waiter, Watcher

EMPTY = State()


class Outcome(NamedTuple):
    """What one turn gives: the state to keep, the reply to send, the pushes to send once it is kept."""

    state: State
    reply: ops.Reply
    pushes: tuple[ops.Push, ...]


def always_reachable(address: str) -> bool:
    """The default of ``reachable``: a push reaches every address."""
    return True


def apply(
    state: State,
    now: Instant,
    op: ops.ResourceOp,
    reachable: Callable[[str], bool] = always_reachable,
    advanced: bool = False,
) -> Outcome:
    """One turn. ``reachable(address)`` is called before a waiter that did not send this op is granted: False means that
    its socket is closed or its process is gone, and passes it over. ``advanced``: the state comes from another turn of
    the same moment, so there is nothing to advance. Listings concern no single resource: the store answers them."""
    turn = Turn(state, now, op.resource, getattr(op, "owner", "") or getattr(op, "adopter", ""), reachable)
    if not advanced:
        turn.expire()
        turn.before = tuple(turn.holders)
        if turn.queue:
            turn.hand_on()
    reply = TURNS[type(op)](turn, op)
    if turn.queue:
        turn.hand_on()
    if turn.watchers:
        turn.push_to_watchers()
    return Outcome(turn.state(), reply, tuple(turn.pushes))


def ends_group(step: ops.ResourceOp, reply: ops.Reply) -> bool:
    """Is no further step of a Group to be tried? A client that waits for one resource must not take the next."""
    return isinstance(step, ops.Claim) and not isinstance(reply, ops.Granted)


def group_reply(replies: Sequence[Any]) -> ops.Replies:
    """The reply to a Group."""
    return ops.Replies(tuple(replies))


def tidy(state: State, now: Instant) -> State:
    """What is left of a state when its time is applied; equal to ``EMPTY`` when it need not be kept."""
    turn = Turn(state, now, "", "", always_reachable)
    turn.expire()
    return turn.state()


def listed(state: State, now: Instant) -> bool:
    """Is there anything that an operator would look for: a holder, a waiter, a closed door, a note?"""
    left = tidy(state, now)
    return bool(left.holders or left.queue or left.closed_until_ms or left.doors or left.notes)


def rebooted(state: State) -> State:
    """After a restart of the machine every process is gone, and its claims with it. Fences stay (trap 14), and what
    operators did."""
    return State(
        fence=state.fence,
        fence_until_us=state.fence_until_us,
        notes=state.notes,
        limit=state.limit,
        limit_until_us=state.limit_until_us,
    )


# ---------------------------------------------------------------- one function for each op


def claim(turn: Turn, op: ops.Claim) -> ops.ClaimReply:
    if op.rule not in RULES:
        return ops.Rejected(f"no rule {op.rule!r}")
    if why := turn.wrong_floor(op.floor):
        return ops.Rejected(why)
    grant = turn.grant_of(op.owner)
    if grant is not None:
        if op.beat > 1 and not grant.repeated:
            turn.holders[turn.holders.index(grant)] = grant._replace(repeated=True)
        return turn.standing(op.owner)
    if op.owner in turn.ended:  # it had its one grant, or its sender gave up before this arrived (traps 9, 10)
        return ops.NoClaim(turn.ended[op.owner].outcome)
    place = turn.place_of(op.owner)
    if turn.impossible(op.rule, op.permits, op.limit):
        turn.leave(op.owner)
        return turn.too_many(op.permits, op.limit)
    if place is not None:
        if op.beat > 1:
            turn.queue[place] = turn.queue[place]._replace(repeated=True)
        newer = turn.record_beat(place, op.beat, op.floor)
        turn.hand_on(requester=op.owner if newer else "")
        return turn.standing_of_claim(op.owner)
    waiter = Waiter(  # by position, as in ``Turn.state``
        op.owner,
        op.ttl_ms,
        op.beat,
        turn.now.ms,
        op.address,
        op.floor,
        op.rule,
        op.permits,
        op.limit,
        turn.now.wall_us,
        op.meta,
        op.holder_address,
        op.delay_ms,
        op.beat > 1,
    )
    turn.queue.append(waiter)
    turn.hand_on(requester=op.owner)
    standing = turn.standing_of_claim(op.owner)
    if op.enqueue or isinstance(standing, ops.Granted):
        return standing
    turn.queue.pop()  # wait=0 never stays in the queue
    return ops.Busy(standing.holder, standing.free_in_ms, standing.limit)


def beat(turn: Turn, op: ops.Beat) -> ops.BeatReply:
    if turn.grant_of(op.owner) is not None:
        return turn.standing(op.owner)
    if op.owner in turn.ended:
        return ops.NoClaim(turn.ended[op.owner].outcome)
    place = turn.place_of(op.owner)
    if place is None:
        return ops.NoClaim("unknown")
    waiter = turn.queue[place]
    if turn.impossible(waiter.rule, waiter.permits, waiter.limit):
        turn.leave(op.owner)
        return turn.too_many(waiter.permits, waiter.limit)
    if turn.record_beat(place, op.beat, 0 if turn.wrong_floor(op.floor) else op.floor):
        turn.hand_on(requester=op.owner)
    return turn.standing_of_claim(op.owner)


def renew(turn: Turn, op: ops.Renew) -> ops.Renewed | ops.NotYours:
    grant = turn.grant_of(op.owner, op.fence)
    if grant is None:  # never brought back to life (trap 7)
        return turn.why_not(op.owner, op.fence)
    newest = op.number >= grant.renewals
    ttl_ms, expires_ms = op.ttl_ms, turn.now.ms + op.ttl_ms
    if expires_ms < grant.expires_ms and not (op.exact and newest):  # what is late shortens nothing (trap 44)
        ttl_ms, expires_ms = grant.ttl_ms, grant.expires_ms  # and an end keeps the length that it was set with
    closed_until_ms = turn.now.ms + op.closed_ms if op.closed_ms else 0
    if grant.limit and turn.limit:
        turn.keep_limit(turn.limit)  # a holder of a permit uses it, also when no new claim has come for long
    rule = READ if op.shared and grant.rule == WRITE else grant.rule
    others = bool(op.fences) and turn.others_wait()
    tell = grant.tell or (op.tell and op.fences > 0 and not others and grant.holder_address != "")
    turn.holders[turn.holders.index(grant)] = grant._replace(
        rule=rule,
        meta=op.meta if op.meta and newest else grant.meta,
        ttl_ms=ttl_ms,
        expires_ms=expires_ms,
        ticket=op.ticket or grant.ticket,
        closed_until_ms=max(grant.closed_until_ms, closed_until_ms),
        renewals=max(grant.renewals, op.number),
        tell=tell and rule in EXCLUSIVE,
    )
    remaining_ms = expires_ms - turn.now.ms
    if not op.fences:
        return ops.Renewed(remaining_ms)
    first, last = turn.reserve(op.fences) if grant.rule in EXCLUSIVE else (0, 0)
    return ops.Renewed(remaining_ms, first, last, others)


def release(turn: Turn, op: ops.Release) -> ops.Released | ops.NotYours:
    grant = turn.grant_of(op.owner, op.fence)
    if grant is not None:
        turn.holders.remove(grant)
        turn.close(grant, grant.closed_until_ms)
    known = turn.ended.get(op.owner)
    found = grant is not None or (known is not None and known.outcome == "released")
    ours = found or (op.again and (known is None or known.outcome == "gone"))  # released before, or expired: who knows
    outcome = "released" if found else "gone" if ours else turn.why_not(op.owner, op.fence).reason
    if op.forget_ms and turn.grant_of(op.owner) is None:
        turn.leave(op.owner)
        turn.add_tombstone(op.owner, op.fence, outcome, op.forget_ms)
    return ops.Released(found) if ours else ops.NotYours(outcome)


def withdraw(turn: Turn, op: ops.Withdraw) -> ops.Withdrawn:
    found = "nothing"
    grant = turn.grant_of(op.owner)
    if grant is not None:
        turn.holders.remove(grant)
        found = "held"
    elif turn.leave(op.owner):
        found = "queued"
    if turn.watchers:
        turn.watchers = tuple([one for one in turn.watchers if one.owner != op.owner])
    if op.forget_ms:
        turn.add_tombstone(op.owner, grant.fence if grant else 0, "withdrawn", op.forget_ms)
    return ops.Withdrawn(found)


def inspect(turn: Turn, op: ops.Inspect) -> ops.View:
    return view(turn, op.queue)


def view(turn: Turn, queue: bool) -> ops.View:
    """The state as others may see it."""
    closed_ms = max(turn.closed_until_ms - turn.now.ms, 0)
    waiting = tuple(turn.queue) if queue else ()
    doors = tuple(sorted(turn.doors))
    return ops.View(
        holders=tuple(turn.holders),
        queue=waiting,
        fence=turn.fence,
        closed_ms=closed_ms,
        now_ms=turn.now.ms,
        notes=turn.notes,
        doors=doors,
        limit=turn.limit,
    )


def watch(turn: Turn, op: ops.Watch) -> ops.View:
    others = [one for one in turn.watchers if one.owner != op.owner]
    new = [Watcher(op.owner, op.address, turn.now.ms)] if op.address else []  # else no push can reach it
    turn.watchers = (*others, *new)
    return view(turn, queue=False)


def resize(turn: Turn, op: ops.Resize) -> ops.Resized:
    before = turn.limit
    turn.keep_limit(op.limit)
    return ops.Resized(before)


def evict(turn: Turn, op: ops.Evict) -> ops.Evicted | ops.NotYours | ops.Rejected:
    grant = turn.grant_of(op.owner, op.fence)
    if grant is None:
        known = turn.ended.get(op.owner)
        if known is None or known.outcome != "evicted" or known.detail != op.request:
            return turn.why_not(op.owner, op.fence)
        return ops.Evicted(known.fence, turn.closed_ms())
    remaining_ms = grant.expires_ms - turn.now.ms
    delay_ms = remaining_ms + grant.delay_ms if op.delay_ms is None else op.delay_ms
    if delay_ms < remaining_ms and not op.force:
        return ops.Rejected(f"the holder may work for {remaining_ms} ms more: a shorter delay needs force=True")
    turn.holders.remove(grant)
    fence = turn.mint(0)  # above the victim's: a guard that learns of it refuses the victim at once
    turn.add_tombstone(grant.owner, fence, "evicted", tombstone_ms(grant.ttl_ms), op.request)
    turn.close(grant, max(turn.now.ms + delay_ms, grant.closed_until_ms))
    turn.note("evicted", grant, op.note)
    if grant.holder_address:
        turn.push(grant.holder_address, "evicted", grant)
    return ops.Evicted(fence, turn.closed_ms())


def revoke(turn: Turn, op: ops.Revoke) -> ops.HolderAsked | ops.NotYours:
    grant = turn.grant_of(op.owner, op.fence)
    if grant is None:
        return turn.why_not(op.owner, op.fence)
    turn.note("asked", grant, op.note)
    reached = grant.holder_address != "" and turn.reachable(grant.holder_address)
    if reached:
        turn.push(grant.holder_address, "revoke", grant)
    return ops.HolderAsked(reached)


def adopt(turn: Turn, op: ops.Adopt) -> ops.Granted | ops.NotYours | ops.Rejected:
    if why := turn.wrong_floor(op.floor):
        return ops.Rejected(why)
    mine = turn.grant_of(op.adopter)
    if mine is not None and mine.fence > op.fence:  # a repeated op: an owner has one grant in its life
        return turn.granted(mine)
    grant = turn.grant_at(op.fence)
    if grant is None:
        return turn.why_not_at(op.fence)
    busy = mine is not None or op.adopter in turn.ended or turn.place_of(op.adopter) is not None
    if busy or not op.ticket or grant.ticket != op.ticket:
        return ops.NotYours("taken")
    adopted = grant._replace(
        owner=op.adopter,
        fence=turn.mint(op.floor),
        ttl_ms=op.ttl_ms,
        expires_ms=turn.now.ms + op.ttl_ms,
        since_us=turn.now.wall_us,
        holder_address=op.holder_address,
        ticket="",
        renewals=0,
        repeated=False,
        tell=False,
    )
    turn.holders.remove(grant)
    turn.holders.append(adopted)  # they stand in the order of their fences
    turn.add_tombstone(grant.owner, grant.fence, "adopted", tombstone_ms(grant.ttl_ms), op.adopter)
    return turn.granted(adopted)


TURNS: dict[type, Callable[[Turn, Any], ops.Reply]] = {
    ops.Claim: claim,
    ops.Beat: beat,
    ops.Renew: renew,
    ops.Release: release,
    ops.Withdraw: withdraw,
    ops.Inspect: inspect,
    ops.Watch: watch,
    ops.Resize: resize,
    ops.Evict: evict,
    ops.Revoke: revoke,
    ops.Adopt: adopt,
}
