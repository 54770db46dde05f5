"""The protocol: each op of the ledger as a flow of requests to a server that keeps records.

A turn reads the record, lets the ledger decide, and writes the result on condition that nothing has changed since;
else it begins again. What is known of a record is kept, so that most turns are one request: a stale record only makes
the condition fail. Only what was read in this turn can refuse anybody.

- A grant, a renewal, a release are confirmed by the write alone. What a lease or a session of the server does, and what
  a read shows, ends no grant and prolongs none.
- A grant that is found in the record, because the reply to its claim was lost, counts from when that claim was first
  sent. If that is not known, no time is left of it.
- Whoever waits has a place at the server, and takes the resource itself when its place is the first. The first one
  watches the record, each other one the place before it. A watch wakes a waiter, and proves nothing.
- Nobody can be kept waiting by a place whose claim has been given up, or whose process stands still: a place that is
  first while the resource is free, for several seconds, is removed by those behind it.
- A place is made whatever the record says: else nobody could begin to wait while others take turns quickly. A
  withdrawal after a claim that went unanswered changes the record, and buries its owner: a claim finds the record
  changed when it arrives late, and no place can be made.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence

from leasehold._core import ledger, ops, plain
from leasehold._core.light_typing import Any, NamedTuple, TypeAlias, cast
from leasehold._core.names import matches
from leasehold._core.policy import DAY_US, PAGE, drift
from leasehold._core.ports import Clock
from leasehold._core.types import Instant, State, Unreadable, Waiter, owner_digest
from leasehold.errors import LeaseholdError, StoreUnavailable
from leasehold.stores.record import text
from leasehold.stores.record.requests import (
    ANY,
    Change,
    Join,
    List,
    Listed,
    Look,
    Outcome,
    Part,
    Place,
    Record,
    Request,
    Server,
    Sight,
    Tell,
    Watching,
)
from leasehold.stores.record.text import Kept

PATIENT_TRIES = 3  # changes that others were faster than, before a turn pauses between two
PAUSE = 0.002  # seconds, at most, after the first of those; longer after each
LONGEST_PAUSE = 0.05
LOOK_EVERY_MS = 3_000  # a waiter that is not the first looks this often, in case that its watch is silent
OVERDUE_MS = 5_000  # the first waiter that does not take what is free for this long loses its place
MOST_KNOWN = 10_000  # records that are remembered
DAMAGED = Unreadable("its record", "is none of ours, or is damaged", blocks=True)
SOMEBODY = "somebody:0:ahead"
NO_PLACE = -1  # ZooKeeper numbers them from 0


class Pause(NamedTuple):
    """Wait for so many seconds: others keep changing the record."""

    seconds: float


Flow: TypeAlias = Generator[Request | Pause, Any, Any]


class Known(NamedTuple):
    """What this process knows of a resource."""

    record: Record
    kept: Kept | None  # None: it cannot be read
    seen: text.Sightings
    looked_ms: int  # when its places were read
    stale: bool = False  # something may have changed: look before anything else


class Wait:
    """A claim of this process that has a place."""

    __slots__ = ("claim", "fired", "place", "target", "watching")

    def __init__(self, claim: ops.Claim, place: Place) -> None:
        self.claim = claim
        self.place = place
        self.target: tuple[str, object] | None = None  # what is watched for it
        self.watching: Watching | None = None
        self.fired = False

    def unwatch(self) -> None:
        watching, self.watching, self.target = self.watching, None, None
        if watching is not None:
            watching.close()


class Draft(NamedTuple):
    """What a step comes to: a reply, and the part of a change that it needs, if any."""

    reply: ops.Reply
    part: Part | None = None
    kept: Kept | None = None  # what the part writes
    pushes: tuple[ops.Push, ...] = ()
    good: bool = False  # nobody is refused by it: if the change is done, it is so, whatever was read


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
        """In a child: nothing of this is its own. What was seen stays seen."""
        self._known: dict[str, Known] = {}
        self._waits: dict[str, Wait] = {}
        self._sent: dict[str, float] = {}  # owner -> when a claim that went unanswered was first sent
        self._watchers: dict[str, Watching] = {}
        self._idle: dict[str, tuple[int, int]] = {}  # resource -> the first place, and since when it takes nothing
        self._swept = ""
        self._replied = False
        self.unfinished: dict[str, ops.Withdraw] = {}  # withdrawals to be repeated until they are answered

    def execute(self, op: ops.StoreOp) -> Flow:
        """The flow that returns the reply."""
        return FLOWS[type(op)](self, op)

    @property
    def waiting(self) -> bool:
        """Has any claim of this process a place?"""
        return bool(self._waits)

    # ------------------------------------------------------------ ops

    def _one(self, op: ops.ResourceOp) -> Flow:
        (draft,) = yield from self._turn((op,))
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
        known = self._known.get(wait.claim.resource)
        if known is None or known.stale or wait.fired or wait.target is None or wait.target[0] != PLACE:
            return None
        now = self._instant()
        if now.ms - known.looked_ms > LOOK_EVERY_MS or known.kept is None:
            return None
        draft = self._claim(wait.claim, known, now)
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
            self._distrust(op.resource)  # what may have been done since is looked for
        wait = self._waits.get(op.owner)
        if wait is not None and not op.forget_ms and op.owner not in self._sent:
            yield Change((Part(op.resource, ANY, leave=(wait.place,)),))
            self._distrust(op.resource)
            reply = ops.Withdrawn("queued")
        else:
            reply = yield from self._one(op)
        self._forget(op.owner)
        self.unfinished.pop(op.owner, None)
        return reply

    def _inspect(self, op: ops.Inspect) -> Flow:
        sight: Sight = yield Look((op.resource,), texts=op.queue)
        known, now = self._note(sight.records[0]), self._instant()
        if known.kept is None:
            return ops.View((), (), 0, 0, now.ms, unreadable=(DAMAGED,))
        view = cast("ops.View", ledger.apply(self._base(known, now), now, op, advanced=True).reply)
        if not op.queue:
            return view
        queue = [text.waiter(place.text, now) for place in sight.records[0].places or ()]
        return view._replace(queue=tuple([one for one in queue if one is not None]))

    def _watch(self, op: ops.Watch) -> Flow:
        view = yield from self._inspect(ops.Inspect(op.resource, op.budget_ms, queue=False))
        known = self._known.get(op.resource)
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
        now = self._instant()
        items = [one.resource for one in page.records if matches(op.pattern, one.resource) and _listed(one, now)]
        return ops.Page(tuple(items), page.cursor, page.unreadable)

    def _leaks(self, op: ops.Leaks) -> Flow:
        """None: what has no use any more is removed by whoever comes by, and places end with their sessions."""
        yield from ()
        return ops.Page((), "")

    def sweep(self) -> Flow:
        """Remove records that have no use any more, the next few in their order (trap 37)."""
        page: Listed = yield List(self._swept, PAGE)
        self._swept = page.cursor
        now = self._instant()
        for one in page.records:
            if _idle(one, now):
                yield Change((Part(one.resource, one.revision, "", nobody_waits=True),))

    # ------------------------------------------------------------ a turn

    def _turn(self, steps: Sequence[Any]) -> Flow:
        """All of the steps in one change; returns a draft for each that was tried."""
        names = tuple([step.resource for step in steps])
        known = [self._known.get(step.resource) or self._unknown(step) for step in steps]
        looked = False
        if None in known or any(one is not None and one.stale for one in known):
            looked = True
            known = yield from self._look(names)
        tries = 0
        while True:
            drafts = self._drafts(steps, cast("list[Known]", known))
            if not looked and not all(draft.good for draft in drafts):
                looked, known = True, (yield from self._look(names))
                continue
            parts = [draft.part for draft in drafts if draft.part is not None]
            if not parts:
                self._settle(steps, drafts)
                return drafts
            outcome: Outcome = yield from self._change(steps, drafts, parts)
            records = {one.resource: one for one in outcome.records}
            if outcome.done:
                self._done(steps, drafts, records, cast("list[Known]", known))
                return drafts
            looked = True
            known = [
                self._note(records[name]) if name in records else one for name, one in zip(names, known, strict=True)
            ]
            tries += 1
            yield from self._again(tries)

    def _unknown(self, step: Any) -> Known | None:
        """A resource of which nothing is known is claimed as one that nobody has: if that is wrong, the refusal tells
        what there is. Only when a reply has shown what time it is at the server, since that is in the fence."""
        if type(step) is not ops.Claim or not self._replied:
            return None
        return Known(Record(step.resource), text.EMPTY, {}, 0)

    def _look(self, names: tuple[str, ...]) -> Generator[Any, Any, list[Known | None]]:
        sight: Sight = yield Look(names)
        return [self._note(record) for record in sight.records]

    def _change(self, steps: Sequence[Any], drafts: Sequence[Draft], parts: Sequence[Part]) -> Flow:
        """Send it. Afterwards it is known when each claim was first sent whose outcome is not known."""
        owners = [
            _taker(step)
            for step, draft in zip(steps, drafts, strict=False)
            if draft.part is not None and type(draft.reply) is ops.Granted
        ]
        new = [owner for owner in owners if owner not in self._sent]
        now = self._clock.now()
        for owner in new:
            self._sent[owner] = now
        unknown = True
        try:
            outcome: Outcome = yield Change(tuple(parts))
            unknown = False
            if outcome.done:
                new = owners
        except StoreUnavailable:
            unknown = False
            raise
        finally:
            if unknown:  # an interrupt, too
                for part in parts:
                    self._distrust(part.resource)
            else:
                for owner in new:
                    self._sent.pop(owner, None)
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
            known = self._note(_with_places(records[step.resource], draft.part, one.record), written)
            if draft.part.join is not None:
                drafts[place] = Draft(self._joined(step, known))
            if type(draft.reply) is ops.Granted:
                self._forget(_taker(step))
        self._settle(steps, drafts)

    def _joined(self, op: ops.Claim, known: Known) -> ops.Reply:
        """It has a place now. If that is the first, and the resource is free, it is woken at once. It does not take the
        resource in the same call: others may have seen it in the queue."""
        mine = self._place(op.owner, known)
        if mine is None:  # its session has ended in the same moment
            return ops.NoClaim("unknown")
        self._waits[op.owner] = Wait(op, mine)
        reply = self._claim(op, known, self._instant()).reply
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
                self._await(step)
            else:
                self._forget(step.owner)

    def _forget(self, owner: str) -> None:
        wait = self._waits.pop(owner, None)
        if wait is not None:
            wait.unwatch()
        self._sent.pop(owner, None)

    # ------------------------------------------------------------ what the ledger says

    def _drafts(self, steps: Sequence[Any], known: Sequence[Known]) -> list[Draft]:
        drafts: list[Draft] = []
        now = self._instant()
        for step, one in zip(steps, known, strict=True):
            if one.kept is None:
                raise StoreUnavailable(f"{self._server.server} has a record that {DAMAGED.why}", resource=step.resource)
            drafts.append(self._claim(step, one, now) if type(step) is ops.Claim else self._other(step, one, now))
            if ledger.ends_group(step, drafts[-1].reply):
                break
        return drafts

    def _claim(self, op: ops.Claim, known: Known, now: Instant) -> Draft:
        kept, places = cast("Kept", known.kept), known.record.places
        base = self._base(known, now)
        for grant in base.holders:
            if grant.owner == op.owner:
                return Draft(self._own(grant, now))
        if places is None:
            return Draft(ops.NoClaim("unknown"))  # who waits must be read first
        mine = self._place(op.owner, known)
        if mine is None and op.owner in self._waits:
            return Draft(ops.NoClaim("unknown"))
        ahead = [one for one in places if mine is None or one.number < mine.number]
        reply, after = self._decide(base, now, op, bool(ahead))
        resource, revision = op.resource, known.record.revision
        if ahead and mine is not None and self._overdue(op, base, now, ahead[0]):
            return Draft(reply, Part(resource, revision, leave=(ahead[0],)))
        if isinstance(reply, ops.Granted):
            new = text.kept(kept, base, after, now)
            part = Part(resource, revision, text.encode(new), mine is None, known.record.queue, mine)
            return Draft(reply, part, new, good=True)
        if isinstance(reply, ops.Queued) and mine is None:
            waiter = Waiter(op.owner, op.ttl_ms, op.beat, now.ms, "", 0, op.rule, op.permits, op.limit, now.wall_us)
            join = Join(owner_digest(op.owner), text.place_text(waiter._replace(meta=op.meta)))
            return Draft(reply, Part(resource, ANY, join=join))
        if isinstance(reply, ops.Rejected) and mine is not None:
            return Draft(reply, Part(resource, revision, leave=(mine,)))
        return Draft(reply)

    def _decide(self, base: State, now: Instant, op: ops.Claim, ahead: bool) -> tuple[ops.Reply, State]:
        """A claim behind others goes to the end of a queue in which somebody waits who cannot be pushed to."""
        quick = None if ahead else plain.turn(base, now, op)
        if quick is not None:
            return quick[1], quick[0]
        queue = (Waiter(SOMEBODY, op.ttl_ms, 1, now.ms),) if ahead else ()
        outcome = ledger.apply(base._replace(queue=queue), now, op, advanced=True)
        return outcome.reply, outcome.state._replace(queue=())

    def _overdue(self, op: ops.Claim, base: State, now: Instant, first: Place) -> bool:
        """Has the first place been free to take the resource for long? Then it is no use to wait for it."""
        free = isinstance(self._decide(base, now, op, ahead=False)[0], ops.Granted)
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

    def _own(self, grant: Any, now: Instant) -> ops.Reply:
        """The grant of a claim whose reply was lost. What remains of it counts from when that claim was sent: others
        may have seen the grant ever since."""
        sent = self._sent.get(grant.owner)
        passed = 0.0 if sent is None else self._clock.now() - sent
        left_ms = 0 if sent is None else grant.ttl_ms - int((passed + drift(passed)) * 1000) - 1
        return ops.Granted(grant.fence, max(min(left_ms, grant.expires_ms - now.ms), 0), grant.slots, 0, grant.rule)

    def _other(self, op: Any, known: Known, now: Instant) -> Draft:
        """Any op but a claim."""
        kept, base = cast("Kept", known.kept), self._base(known, now)
        if type(op) in (ops.Adopt, ops.Beat):
            least = op.fence if type(op) is ops.Adopt else 0
            mine = next((one for one in base.holders if one.owner == _taker(op) and one.fence > least), None)
            if mine is not None:
                return Draft(self._own(mine, now))
        quick = plain.turn(base, now, op)
        outcome = ledger.apply(base, now, op, advanced=True) if quick is None else ledger.Outcome(*quick, ())
        reply, after, good = outcome.reply, outcome.state, isinstance(outcome.reply, GOOD)
        leave: tuple[Place, ...] = ()
        bury = owner_digest(op.owner) if getattr(op, "forget_ms", 0) else ""
        if type(op) is ops.Withdraw:
            digest = owner_digest(op.owner)
            leave = tuple([one for one in known.record.places or () if one.owner == digest])
            if leave and reply == ops.Withdrawn("nothing"):
                reply = ops.Withdrawn("queued")
        touched = op.owner if type(op) is ops.Renew and good else ""
        # That a lease is over by our clock is written, before its holder is told: another release of it may be faster.
        over = type(op) is ops.Release and not good and _has(kept.state, op) and not _has(base, op)
        if after == base and not (touched or over or leave):
            return Draft(reply, pushes=outcome.pushes)
        new, written = kept, None
        if after != base or touched or over:
            new = text.kept(kept, base, after, now, touched)
            written = text.encode(new)
        part = Part(op.resource, known.record.revision, written, leave=leave, bury=bury)
        return Draft(reply, part, new, outcome.pushes, good)

    def _base(self, known: Known, now: Instant) -> State:
        """The state, without what is over by now. Every grant that is over is remembered for a while: its holder may
        ask again what became of it, because a reply was lost."""
        state = text.here(cast("Kept", known.kept), known.seen)
        if any(one.expires_ms <= now.ms for one in state.holders):
            state = state._replace(holders=tuple([one._replace(repeated=True) for one in state.holders]))
        return ledger.tidy(state, now)

    def _place(self, owner: str, known: Known) -> Place | None:
        digest = owner_digest(owner)
        return next((one for one in known.record.places or () if one.ours and one.owner == digest), None)

    # ------------------------------------------------------------ what is known

    def _note(self, record: Record, kept: Kept | None = None) -> Known:
        """Remember a record that was read or written just now; ``kept`` is what it says, where that is known."""
        self._replied = True
        now = self._instant()
        before = self._known.get(record.resource)
        kept = _kept(record) if kept is None else kept
        seen = {} if kept is None else text.first_seen(kept, {} if before is None else before.seen, now)
        known = Known(record, kept, seen, now.ms)
        self._known.pop(record.resource, None)  # the oldest come first
        self._known[record.resource] = known
        if len(self._known) > MOST_KNOWN:
            self._known.pop(next(iter(self._known)), None)
        return known

    def _distrust(self, resource: str) -> None:
        known = self._known.get(resource)
        if known is not None:
            self._known[resource] = known._replace(stale=True)

    def _instant(self) -> Instant:
        """Local time since boot, and the server's wall clock as well as it is known."""
        return Instant(self._clock.instant().ms, self._server.wall_us())

    # ------------------------------------------------------------ watches

    def _await(self, op: ops.Claim) -> None:
        """Watch the place before it, or the record if it is the first."""
        known = self._known.get(op.resource)
        if known is None:
            return
        mine = self._place(op.owner, known)
        if mine is None:
            return
        wait = self._waits.get(op.owner)
        if wait is None:
            wait = self._waits[op.owner] = Wait(op, mine)
        before = [one for one in known.record.places or () if one.number < mine.number]
        target = (PLACE, before[-1].key) if before else (RECORD, known.record.revision)
        if wait.target == target and not wait.fired:
            return
        wait.unwatch()
        wait.fired, wait.target = False, target
        if before:
            wait.watching = self._server.watch_place(op.resource, before[-1], self._waker(wait, target))
        else:
            wait.watching = self._server.watch_record(known.record, self._waker(wait, target))

    def _waker(self, wait: Wait, target: tuple[str, object]) -> Callable[[Record | None], None]:
        def changed(record: Record | None) -> None:
            """On any thread."""
            if wait.target != target:
                return
            wait.fired = True
            resource = wait.claim.resource
            known = self._known.get(resource)
            if record is None or known is None:
                self._distrust(resource)
            elif not known.stale and record.revision > known.record.revision:
                self._note(record._replace(places=known.record.places, queue=known.record.queue))
            push = ops.Push(wait.claim.address, "wake", resource, wait.claim.owner, 0, 0, 0)
            self._deliver(push)

        return changed


PLACE, RECORD = "place", "record"
GOOD = (ops.Renewed, ops.Released, ops.Resized, ops.Evicted, ops.Granted, ops.Withdrawn)


def _taker(step: Any) -> str:
    """Who is granted what this step requests."""
    return cast("str", step.adopter if type(step) is ops.Adopt else step.owner)


def _with_places(record: Record, part: Part, before: Record) -> Record:
    """Places that were not read are those of the record that the change was conditional on, without those that were
    removed: who has got one since is found by the server's comparison. What is known by now is no help: another thread
    may have noted a record that it read long ago. The same for a record that stays."""
    if record.places is not None:
        return record
    places = before.places
    if places is not None:
        gone = (part.first, *part.leave)
        places = tuple([one for one in places if one not in gone])
    return (before if part.text is None else record)._replace(places=places, queue=before.queue)


def _has(state: State, op: ops.Release) -> bool:
    return any((one.owner, one.fence) == (op.owner, op.fence) for one in state.holders)


def _listed(record: Record, now: Instant) -> bool:
    kept = _kept(record)
    return kept is None or ledger.listed(text.here(kept, text.first_seen(kept, {}, now)), now)


def _idle(record: Record, now: Instant) -> bool:
    """Has it no use any more? Not within a day of its last change, so that no claim is under way that has read it."""
    kept = _kept(record)
    if kept is None or kept.last + DAY_US > now.wall_us:
        return False
    return ledger.tidy(text.here(kept, text.first_seen(kept, {}, now)), now) == ledger.EMPTY


def _kept(record: Record) -> Kept | None:
    try:
        return text.EMPTY if record.text is None else text.decode(record.text)
    except text.UNREADABLE:
        return None


FLOWS: dict[type, Callable[[Turns, Any], Flow]] = {
    ops.Claim: Turns._one,
    ops.Beat: Turns._beat,
    ops.Renew: Turns._one,
    ops.Release: Turns._one,
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
}
