"""The protocol: each op of the ledger as a flow of requests to a server that keeps records.

A turn reads the record, lets the ledger decide, and writes the result on condition that nothing has changed since;
else it begins again. What is known of a record is kept, so that most turns are one request: a stale record only makes
the condition fail. Only what was read in this turn can refuse anybody.

- A grant, a renewal, a release are confirmed by a write alone. What a lease or a session of the server does, and what
  a read shows, ends no grant and prolongs none.
- A grant that is found in the record, because the reply to its claim was lost, counts from when that claim was first
  sent. If that is not known, no time is left of it.
- Whoever waits has a place at the server. Whoever frees a resource grants it to the first place in the same write,
  where that can be done (``handover``); else it is left free, and the claim of that place takes it. A grant to a place
  counts from when that place was first sent.
- The first one watches the record, each other one its own place or the one before it (``waits``). A watch wakes a
  waiter, and proves nothing.
- Nobody can be kept waiting by a place whose claim has been given up, or whose process stands still: a place that is
  first while the resource is free, for several seconds, is removed by those behind it.
- A place is made whatever the record says: else nobody could begin to wait while others take turns quickly. A
  withdrawal after a claim that went unanswered changes the record, and buries its owner: a claim finds the record
  changed when it arrives late, and no place can be made.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence

from leasehold._core import ledger, ops
from leasehold._core.light_typing import Any, NamedTuple, TypeAlias, cast
from leasehold._core.names import matches
from leasehold._core.policy import PAGE
from leasehold._core.ports import Clock
from leasehold.errors import LeaseholdError, StoreUnavailable
from leasehold.stores.record import text
from leasehold.stores.record.drafts import DAMAGED, Draft, Drafts, taker
from leasehold.stores.record.handover import roused
from leasehold.stores.record.knowledge import Knowledge, Known, base, idle, listed, own_place, with_places
from leasehold.stores.record.requests import (
    ANY,
    Change,
    List,
    Listed,
    Look,
    Outcome,
    Part,
    Record,
    Request,
    Server,
    Sight,
    Tell,
    Watching,
)
from leasehold.stores.record.waits import PLACE, Wait, Waits

PATIENT_TRIES = 3  # changes that others were faster than, before a turn pauses between two
PAUSE = 0.002  # seconds, at most, after the first of those; longer after each
LONGEST_PAUSE = 0.05
LOOK_EVERY_MS = 3_000  # a waiter that is not the first looks this often, in case that its watch is silent
PINGED = "leasehold-ping"  # of which there is no record


class Pause(NamedTuple):
    """Wait for so many seconds: others keep changing the record."""

    seconds: float


Flow: TypeAlias = Generator[Request | Pause, Any, Any]


class Turns:
    """All that one process does with one server."""

    def __init__(
        self, server: Server, clock: Clock, deliver: Callable[[ops.Push], None], random: Callable[[], float]
    ) -> None:
        self._server = server
        self._clock = clock
        self._deliver = deliver
        self._random = random
        self.forked()

    def forked(self) -> None:
        """In a child: nothing of this is its own."""
        self._knowledge = Knowledge(self._server, self._clock)
        self._waits = Waits(self._server, self._knowledge, self._deliver)
        self._drafts = Drafts(self._server, self._clock, self._knowledge.instant, self._waits)
        self._watchers: dict[str, Watching] = {}
        self._swept = ""
        self.unfinished: dict[str, ops.Withdraw] = {}  # withdrawals to be repeated until they are answered

    def execute(self, op: ops.StoreOp) -> Flow:
        """The flow that returns the reply."""
        return FLOWS[type(op)](self, op)

    @property
    def waiting(self) -> bool:
        """Has any claim of this process a place?"""
        return bool(self._waits)

    # ------------------------------------------------------------ ops

    def _plainly(self, op: Any) -> Flow:
        """An op that is mostly plain is one request then, and little else."""
        known = self._knowledge.get(op.resource) or self._unknown(op)
        quick = None if known is None or known.stale else self._drafts.plain(op, known, self._knowledge.instant())
        if known is None or quick is None:
            return (yield from self._one(op))
        reply, part, kept = quick
        outcome: Outcome = yield from self._change((part,), (op.owner,) if type(op) is ops.Claim else ())
        (record,) = outcome.records
        if not outcome.done:
            return (yield from self._one(op, self._knowledge.note(record)))
        self._knowledge.note(with_places(record, part, known.record), kept)
        if type(op) is ops.Release:
            self._waits.offered.pop(op.owner, None)
        return reply

    def _one(self, op: ops.ResourceOp, *read: Known) -> Flow:
        """``read``: what was read in this turn already."""
        (draft,) = yield from self._turn((op,), *read)
        reply = draft.reply
        for push in draft.pushes:
            try:
                told = yield Tell(push.address, text.push_text(push))
            except LeaseholdError:  # it is done; that its holder is told is a courtesy
                told = False
            if isinstance(reply, ops.HolderAsked):
                reply = ops.HolderAsked(told)
        return reply

    def _group(self, op: ops.Group) -> Flow:
        drafts = yield from self._turn(op.steps)
        return ledger.group_reply([draft.reply for draft in drafts])

    def _beat(self, op: ops.Beat) -> Flow:
        """A waiter that is first tries to take the resource. One that is not only looks now and then."""
        wait = self._waits.get(op.owner)
        if wait is None:
            return (yield from self._one(op))
        wait.claim = wait.claim._replace(floor=max(op.floor, wait.claim.floor))
        quiet = self._quiet(wait)
        if quiet is not None:
            return quiet
        return (yield from self._one(wait.claim))

    def _quiet(self, wait: Wait) -> ops.Reply | None:
        """The reply to a beat of a waiter whose place before it is still there, as far as is known."""
        known = self._knowledge.get(wait.claim.resource)
        if known is None or known.stale or wait.fired or wait.target is None or wait.target[0] != PLACE:
            return None
        now = self._knowledge.instant()
        if now.ms - known.looked_ms > LOOK_EVERY_MS or known.kept is None:
            return None
        if wait.target[1] == wait.place.key:  # it may be granted, or be the first, without being told
            return None
        draft = self._drafts.claim(wait.claim, known, now)
        return draft.reply if isinstance(draft.reply, ops.Queued) and draft.part is None else None

    def _withdraw(self, op: ops.Withdraw) -> Flow:
        """Remembered until it is done: a place that nobody uses would keep others out for as long as this process
        lives."""
        watcher = self._watchers.pop(op.owner, None)
        if watcher is not None:
            watcher.close()
            return ops.Withdrawn("nothing")
        self.unfinished[op.owner] = op
        if op.forget_ms:
            self._knowledge.distrust(op.resource)  # what may have been done since is looked for
        wait = self._waits.get(op.owner)
        if wait is not None and not op.forget_ms and op.owner not in self._waits.sent:
            reply = yield from self._give_up(op, wait)
        else:
            reply = yield from self._one(op)
        self._waits.forget(op.owner)
        self.unfinished.pop(op.owner, None)
        if self._server.offers and reply == ops.Withdrawn("queued"):
            yield from self._rouse(op.resource)
        return reply

    def _rouse(self, resource: str) -> Flow:
        """A place was given up: the next may be the first now, and watch only itself. If this fails, its next beat
        finds out."""
        try:
            sight: Sight = yield Look((resource,))
            first = roused(self._knowledge.note(sight.records[0]).record, self._knowledge.instant())
            if first is not None:
                yield Change((Part(resource, ANY, touch=first),))
        except LeaseholdError:
            pass

    def _give_up(self, op: ops.Withdraw, wait: Wait) -> Flow:
        """Remove its place, whatever the record says. If others may grant to that place, it must still be there: where
        it is gone, its owner may hold the resource."""
        if wait.place.offer is None:
            yield Change((Part(op.resource, ANY, leave=(wait.place,)),))
        else:
            outcome: Outcome = yield Change((Part(op.resource, ANY, place=wait.place),))
            if not outcome.done:
                return (yield from self._one(op, self._knowledge.note(outcome.records[0])))
        self._knowledge.distrust(op.resource)
        return ops.Withdrawn("queued")

    def _inspect(self, op: ops.Inspect) -> Flow:
        sight: Sight = yield Look((op.resource,), texts=op.queue)
        known, now = self._knowledge.note(sight.records[0]), self._knowledge.instant()
        if known.kept is None:
            return ops.View((), (), 0, 0, now.ms, unreadable=(DAMAGED,))
        view = cast("ops.View", ledger.apply(base(known, now), now, op, advanced=True).reply)
        if not op.queue:
            return view
        queue = [text.waiter(place.text, now) for place in sight.records[0].places or ()]
        return view._replace(queue=tuple([one for one in queue if one is not None]))

    def _watch(self, op: ops.Watch) -> Flow:
        view = yield from self._inspect(ops.Inspect(op.resource, op.budget_ms, queue=False))
        known = self._knowledge.get(op.resource)
        before = self._watchers.pop(op.owner, None)
        if before is not None:
            before.close()
        if op.address and known is not None:
            push = ops.Push(op.address, "changed", op.resource, op.owner, 0, 0, 0)
            self._watchers[op.owner] = self._server.watch_record(known.record, lambda _: self._deliver(push))
        return view

    def _scan(self, op: ops.Scan) -> Flow:
        """A record that cannot be read is listed too: inspecting it shows why."""
        page: Listed = yield List(op.cursor, PAGE)
        now = self._knowledge.instant()
        items = [one.resource for one in page.records if matches(op.pattern, one.resource) and listed(one, now)]
        return ops.Page(tuple(items), page.cursor, page.unreadable)

    def _leaks(self, op: ops.Leaks) -> Flow:
        """None: what has no use any more is removed by whoever comes by, and places end with their sessions."""
        yield from ()
        return ops.Page((), "")

    def _ping(self, op: ops.Ping) -> Flow:
        """A look that a claim would begin with: without a majority of the servers it fails."""
        yield Look((PINGED,))
        return ops.Page((), "")

    def sweep(self) -> Flow:
        """Remove records that have no use any more, the next few in their order (trap 37)."""
        page: Listed = yield List(self._swept, PAGE, brief=True)
        self._swept = page.cursor
        now = self._knowledge.instant()
        for one in page.records:
            if idle(one, now):
                yield Change((Part(one.resource, one.revision, "", nobody_waits=True),))

    # ------------------------------------------------------------ a turn

    def _turn(self, steps: Sequence[Any], *read: Known) -> Flow:
        """All of the steps in one change; returns a draft for each that was tried."""
        names = tuple([step.resource for step in steps])
        get = self._knowledge.get
        known: list[Known | None] = [*read] or [get(one.resource) or self._unknown(one) for one in steps]
        looked = bool(read)
        if None in known or any(one is not None and one.stale for one in known):
            looked = True
            known = yield from self._look(names)
        tries = 0
        while True:
            drafts = self._drafts.all(steps, cast("list[Known]", known))
            if not looked and not all(draft.good for draft in drafts):
                looked, known = True, (yield from self._look(names))
                continue
            parts = [draft.part for draft in drafts if draft.part is not None]
            if not parts:
                self._settle(steps, drafts)
                return drafts
            takers = [
                taker(step)
                for step, draft in zip(steps, drafts, strict=False)
                if draft.part is not None and type(draft.reply) is ops.Granted
            ]
            for step, draft in zip(steps, drafts, strict=False):
                if draft.part is not None and draft.part.join is not None and draft.part.join.offer is not None:
                    self._waits.offers(step.owner, self._clock.now())
            outcome: Outcome = yield from self._change(tuple(parts), takers)
            records = {one.resource: one for one in outcome.records}
            if outcome.done:
                self._done(steps, drafts, records, cast("list[Known]", known))
                return drafts
            looked, note = True, self._knowledge.note
            known = [note(records[name]) if name in records else one for name, one in zip(names, known, strict=True)]
            tries += 1
            yield from self._again(tries)

    def _unknown(self, step: Any) -> Known | None:
        """A resource of which nothing is known is claimed as one that nobody has: if that is wrong, the refusal tells
        what there is. Only when a reply has shown what time it is at the server, since that is in the fence."""
        if type(step) is not ops.Claim or not self._knowledge.replied:
            return None
        return Known(Record(step.resource), text.EMPTY, {}, 0)

    def _look(self, names: tuple[str, ...]) -> Generator[Any, Any, list[Known | None]]:
        sight: Sight = yield Look(names)
        return [self._knowledge.note(record) for record in sight.records]

    def _change(self, parts: tuple[Part, ...], takers: Sequence[str]) -> Flow:
        """Send it. ``takers`` are the owners that it grants something. Afterwards it is known when each claim was first
        sent whose outcome is not known."""
        new = takers and [owner for owner in takers if owner not in self._waits.sent]
        for owner in new:
            self._waits.sent[owner] = self._clock.now()
        unknown = True
        try:
            outcome: Outcome = yield Change(parts)
            unknown = False
            if outcome.done:
                new = takers
        except StoreUnavailable:
            unknown = False
            raise
        finally:
            if unknown:  # an interrupt, too
                for part in parts:
                    self._knowledge.distrust(part.resource)
            else:
                for owner in new:
                    self._waits.sent.pop(owner, None)
        return outcome

    def _again(self, tries: int) -> Flow:
        """Others were faster. When that happens again and again they are many, and it helps to wait for a moment."""
        if tries >= PATIENT_TRIES:
            yield Pause(self._random() * min(PAUSE * (tries - PATIENT_TRIES + 1), LONGEST_PAUSE))

    def _done(
        self, steps: Sequence[Any], drafts: list[Draft], records: dict[str, Record], before: Sequence[Known]
    ) -> None:
        for place, (step, draft, one) in enumerate(zip(steps, drafts, before, strict=False)):
            if draft.part is None:
                continue
            written = draft.kept if draft.part.text else None
            known = self._knowledge.note(with_places(records[step.resource], draft.part, one.record), written)
            if draft.part.join is not None:
                drafts[place] = Draft(self._joined(step, known))
            if type(draft.reply) is ops.Granted:
                self._waits.forget(taker(step))
            elif type(step) is ops.Release:
                self._waits.offered.pop(step.owner, None)
        self._settle(steps, drafts)

    def _joined(self, op: ops.Claim, known: Known) -> ops.Reply:
        """It has a place now, unless its session has ended in the same moment, or it was granted the resource already.
        If its place is the first, and the resource is free, it is woken at once. It does not take the resource in the
        same call: others may have seen it in the queue."""
        mine = own_place(op.owner, known)
        if mine is not None:
            self._waits.add(op, mine)
        reply = self._drafts.claim(op, known, self._knowledge.instant()).reply
        if mine is None and not isinstance(reply, ops.Granted):
            return ops.NoClaim("unknown")
        if isinstance(reply, ops.Queued):
            return reply
        self._deliver(ops.Push(op.address, "wake", op.resource, op.owner, 0, 0, 0))
        return ops.Queued(0, 0, "", op.address != "")

    def _settle(self, steps: Sequence[Any], drafts: Sequence[Draft]) -> None:
        """Watch for those who wait, and forget those who do not."""
        for step, draft in zip(steps, drafts, strict=False):
            if type(step) is not ops.Claim:
                continue
            if isinstance(draft.reply, ops.Queued):
                self._waits.watch(step)
            else:
                self._waits.forget(step.owner)


FLOWS: dict[type, Callable[[Turns, Any], Flow]] = {
    ops.Claim: Turns._plainly,
    ops.Beat: Turns._beat,
    ops.Renew: Turns._plainly,
    ops.Release: Turns._plainly,
    ops.Withdraw: Turns._withdraw,
    ops.Inspect: Turns._inspect,
    ops.Watch: Turns._watch,
    ops.Resize: Turns._one,
    ops.Evict: Turns._one,
    ops.Revoke: Turns._one,
    ops.Adopt: Turns._one,
    ops.Group: Turns._group,
    ops.Scan: Turns._scan,
    ops.Leaks: Turns._leaks,
    ops.Ping: Turns._ping,
}
