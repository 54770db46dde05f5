"""Drafts: what the ledger says to an op, given what is known of a record, as a reply and a change of the record."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from leasehold._core import ledger, ops, plain
from leasehold._core.light_typing import Any, NamedTuple, cast
from leasehold._core.policy import drift
from leasehold._core.ports import Clock
from leasehold._core.types import Grant, Instant, State, Unreadable, Waiter, owner_digest
from leasehold.errors import StoreUnavailable
from leasehold.stores.record import handover, text
from leasehold.stores.record.knowledge import MOST_KNOWN, Known, base, own_place
from leasehold.stores.record.plain import handed_on, waiting
from leasehold.stores.record.plain import turn as plain_turn
from leasehold.stores.record.requests import ANY, Join, Part, Place, Server
from leasehold.stores.record.text import Kept
from leasehold.stores.record.waits import Wait, Waits

OVERDUE_MS = 5_000  # the first waiter that does not take what is free for this long loses its place
RECENT_MS = 1_000  # what is known for no longer than this is reason enough to join the queue
LATELY_MS = 20  # within this the last of so many places cannot be gone, mostly
MANY = 3
DAMAGED = Unreadable("its record", "is none of ours, or is damaged", blocks=True)
SOMEBODY = "somebody:0:ahead"
NO_PLACE = -1  # ZooKeeper numbers them from 0
GOOD = (ops.Renewed, ops.Released, ops.Resized, ops.Evicted, ops.Granted, ops.Withdrawn)


class Draft(NamedTuple):
    """What a step comes to: a reply, and the part of a change that it needs, if any."""

    reply: ops.Reply
    part: Part | None = None
    kept: Kept | None = None  # what the part writes
    pushes: tuple[ops.Push, ...] = ()
    good: bool = False  # nobody is refused by it: if the change is done, it is so, whatever was read


class Drafts:
    """Of one process."""

    def __init__(self, server: Server, clock: Clock, now: Callable[[], Instant], waits: Waits) -> None:
        self._server = server
        self._clock = clock
        self._now = now
        self._waits = waits
        self._idle: dict[str, tuple[int, int]] = {}  # resource -> the first place, and since when it takes nothing
        waits.must_wait = self.must_wait

    def all(self, steps: Sequence[Any], known: Sequence[Known]) -> list[Draft]:
        drafts: list[Draft] = []
        now = self._now()
        for step, one in zip(steps, known, strict=True):
            if one.kept is None:
                raise StoreUnavailable(f"{self._server.server} has a record that {DAMAGED.why}", resource=step.resource)
            drafts.append(self._draft(step, one, now, len(steps) == 1))
            if ledger.ends_group(step, drafts[-1].reply):
                break
        return drafts

    def _draft(self, op: Any, known: Known, now: Instant, alone: bool) -> Draft:
        quick = self.plain(op, known, now)
        if quick is not None:
            return Draft(*quick, good=True)
        if type(op) is ops.Claim:
            return self.claim(op, known, now, alone)
        return self._other(op, known, now)

    def plain(self, op: Any, known: Known, now: Instant) -> tuple[ops.Reply, Part, Kept] | None:
        """The reply, what to change, and what the record says then. A claim is plain only if nobody has a place, as far
        as is known."""
        record, kept, kind = known.record, known.kept, type(op)
        claims = kind is ops.Claim
        if kept is None or (claims and (record.places != () or op.owner in self._waits)):
            return None
        op = handover.as_written(op, kept.state)
        turn = plain_turn(kept, known.seen, now, op)
        if turn is None:
            return None
        reply, new = turn
        heir = handover.heir(record, kept.state, now) if kind is ops.Release else None
        if heir is not None:
            new = handed_on(new, now, handover.claim(op.resource, cast("Any", heir.offer))) or new
        first = heir if new.state.holders and heir is not None else None
        touch = handover.roused(record, now) if kind is ops.Release and first is None else None
        part = Part(op.resource, record.revision, text.encode(new), claims, record.queue, first, touch=touch)
        return reply, part, new

    # ------------------------------------------------------------ claims

    def claim(self, op: ops.Claim, known: Known, now: Instant, alone: bool = True) -> Draft:
        """``alone``: it is not one of a group, whose claims are tried together."""
        kept, places = cast("Kept", known.kept), known.record.places
        waits, mine = op.owner in self._waits, own_place(op.owner, known)
        if places is not None and not (waits and mine is None):
            quick = waiting(kept, known.seen, now, op, bool(places) and places[0] is not mine)
            if quick is not None:
                self._idle.pop(op.resource, None)
                return Draft(quick) if mine is not None else self._joining(op, quick, known, now, alone)
        state = base(known, now)
        for grant in state.holders:
            if handover.is_owner(grant.owner, op.owner):
                return Draft(self.own(grant, op.owner, now))
        if places is None or (mine is None and waits):
            return Draft(ops.NoClaim("unknown"))  # who waits must be read first
        op = handover.as_written(op, kept.state)
        ahead = [one for one in places if mine is None or one.number < mine.number]
        reply, after = self._decide(state, now, op, bool(ahead))
        resource, revision = op.resource, known.record.revision
        if ahead and mine is not None and self._overdue(op, state, now, ahead[0]):
            return Draft(reply, Part(resource, revision, leave=(ahead[0],)))
        if isinstance(reply, ops.Granted):
            new = text.kept(kept, state, after, now)
            part = Part(resource, revision, text.encode(new), mine is None, known.record.queue, mine)
            return Draft(reply, part, new, good=True)
        if isinstance(reply, ops.Queued) and mine is None:
            return self._joining(op, reply, known, now, alone)
        if isinstance(reply, ops.Rejected) and mine is not None:
            return Draft(reply, Part(resource, revision, leave=(mine,)))
        return Draft(reply)

    def _joining(self, op: ops.Claim, reply: ops.Reply, known: Known, now: Instant, alone: bool) -> Draft:
        waiter = Waiter(
            op.owner, op.ttl_ms, op.beat, now.ms, "", 0, op.rule, op.permits, op.limit, now.wall_us, op.meta
        )
        offer = handover.offer(op, now) if alone and self._server.offers else None
        places = known.record.places or ()
        lately = offer is not None and len(places) >= MANY and now.ms - known.looked_ms < LATELY_MS
        join = Join(owner_digest(op.owner), text.place_text(waiter), offer, places[-1] if lately else None)
        return Draft(reply, Part(op.resource, ANY, join=join), good=now.ms - known.looked_ms < RECENT_MS)

    def _decide(self, state: State, now: Instant, op: ops.Claim, ahead: bool) -> tuple[ops.Reply, State]:
        """A claim behind others goes to the end of a queue in which somebody waits who cannot be pushed to."""
        quick = None if ahead else plain.turn(state, now, op)
        if quick is not None:
            return quick[1], quick[0]
        queue = (Waiter(SOMEBODY, op.ttl_ms, 1, now.ms),) if ahead else ()
        outcome = ledger.apply(state._replace(queue=queue), now, op, advanced=True)
        return outcome.reply, outcome.state._replace(queue=())

    def _overdue(self, op: ops.Claim, state: State, now: Instant, first: Place) -> bool:
        """Has the first place been free to take the resource for long? Then it is no use to wait for it."""
        free = isinstance(self._decide(state, now, op, ahead=False)[0], ops.Granted)
        number, since_ms = self._idle.get(op.resource, (NO_PLACE, 0))
        if free and number == first.number:
            return now.ms - since_ms > OVERDUE_MS
        if free:
            if len(self._idle) > MOST_KNOWN:
                self._idle.clear()
            self._idle[op.resource] = first.number, now.ms
        else:
            self._idle.pop(op.resource, None)
        return False

    def must_wait(self, wait: Wait, known: Known) -> bool:
        if known.kept is None:
            return False
        draft = self.claim(wait.claim, known, self._now())
        return isinstance(draft.reply, ops.Queued) and draft.part is None

    def own(self, grant: Grant, owner: str, now: Instant) -> ops.Reply:
        """A grant whose write was not answered, or was another's. What remains of it counts from when that write, or
        the place that it was granted to, was first sent: others may have seen the grant ever since."""
        sent = (self._waits.sent if grant.owner == owner else self._waits.offered).get(owner)
        passed = 0.0 if sent is None else self._clock.now() - sent
        left_ms = 0 if sent is None else grant.ttl_ms - int((passed + drift(passed)) * 1000) - 1
        return ops.Granted(grant.fence, max(min(left_ms, grant.expires_ms - now.ms), 0), grant.slots, 0, grant.rule)

    # ------------------------------------------------------------ any other op

    def _other(self, op: Any, known: Known, now: Instant) -> Draft:
        kept, state = cast("Kept", known.kept), base(known, now)
        if type(op) in (ops.Adopt, ops.Beat):
            owner, least = taker(op), op.fence if type(op) is ops.Adopt else 0
            for one in state.holders:
                if handover.is_owner(one.owner, owner) and one.fence > least:
                    return Draft(self.own(one, owner, now))
        op = handover.as_written(op, kept.state)
        if type(op) is ops.Renew and op.tell:
            op = op._replace(tell=False)  # a claim that waits writes nothing into the record
        leave: tuple[Place, ...] = ()
        if type(op) is ops.Withdraw:
            digest = owner_digest(op.owner)
            leave = tuple([one for one in known.record.places or () if one.owner == digest])
        ends = type(op) in (ops.Release, ops.Withdraw) and not leave
        heir = handover.heir(known.record, state, now) if ends else None
        reply, after, pushes = self._apply(op, state, now, heir)
        good = isinstance(reply, GOOD)
        handed = heir is not None and any(owner_digest(one.owner) == heir.owner for one in after.holders)
        if leave and reply == ops.Withdrawn("nothing"):
            reply = ops.Withdrawn("queued")
        touched = op.owner if type(op) is ops.Renew and good else ""
        if isinstance(reply, ops.Renewed) and op.fences:
            reply = reply._replace(others=True)  # who waits is not in the record, and to look would be another request
        # That a lease is over by our clock is written, before its holder is told: another release of it may be faster.
        over = type(op) is ops.Release and not good and _has(kept.state, op) and not _has(state, op)
        # A place that is still under way must not be made, also when the record says already that its owner has ended.
        bury = owner_digest(op.owner) if getattr(op, "forget_ms", 0) else ""
        if after == state and not (touched or over or leave or bury):
            return Draft(reply, pushes=pushes)
        new, written = kept, None
        if after != state or touched or over:
            new = text.kept(kept, state, after, now, touched)
            written = text.encode(new)
        touch = handover.roused(known.record, now) if ends and written and not handed else None
        first = heir if handed else None
        part = Part(op.resource, known.record.revision, written, first=first, touch=touch, leave=leave, bury=bury)
        return Draft(reply, part, new, pushes, good)

    def _apply(self, op: Any, state: State, now: Instant, heir: Place | None) -> tuple[Any, State, tuple[Any, ...]]:
        """The reply, the state without its queue, and what its holders are to be told."""
        quick = plain.turn(state, now, op) if heir is None else None
        if quick is not None:
            return quick[1], quick[0], ()
        queue = () if heir is None else (handover.waiter(cast("Any", heir.offer), now),)
        outcome = ledger.apply(state._replace(queue=queue), now, op, advanced=True)
        pushes = tuple([one for one in outcome.pushes if one.event != "granted"])
        return outcome.reply, outcome.state._replace(queue=()), pushes


def taker(step: Any) -> str:
    """Who is granted what this step requests."""
    return cast("str", step.adopter if type(step) is ops.Adopt else step.owner)


def _has(state: State, op: ops.Release) -> bool:
    return any((one.owner, one.fence) == (op.owner, op.fence) for one in state.holders)
