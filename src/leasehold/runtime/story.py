"""What happens to acquires and leases, as observers hear of it. Told by drivers and shells after the fact, never from
inside a flow; loaded only when somebody listens."""

from __future__ import annotations

import json
from itertools import count

from leasehold.core.ops import Busy, Inspect, NotYours, Queued, Released, Reply, StoreOp, View
from leasehold.core.typed import TYPE_CHECKING, Any
from leasehold.errors import InvalidRequest, LeaseholdError, LeaseLost, NotAcquired, OutcomeUnknown, StoreUnavailable
from leasehold.observe import events

if TYPE_CHECKING:
    from leasehold.core.flows import Ask
    from leasehold.core.ports import Clock, Mailbox
    from leasehold.observe.audience import Audience
    from leasehold.runtime.aio import LoopMailbox
    from leasehold.runtime.engine import Engine
    from leasehold.runtime.held import Held

_numbers = count(1)


class Story:
    """One acquire, from its beginning to its end."""

    __slots__ = ("_audience", "_began", "_clock", "_granted", "_store", "ask", "contended", "number")

    def __init__(self, engine: Engine, ask: Ask) -> None:
        self._audience = engine.audience
        self._clock = engine.clock
        self._store = engine.store.name
        self._began = engine.clock.now()
        self.ask = ask
        self.number = next(_numbers)
        self.contended = False
        self._granted: events.Subject | None = None

    def through(self, box: Mailbox) -> Mailbox:
        """The same mailbox, and what its replies say is told."""
        return Overheard(box, self)

    def through_loop(self, box: LoopMailbox) -> LoopMailbox:
        return OverheardOnLoop(box, self)  # type: ignore[return-value]  # a driver needs of it what this one has

    def finds_it_taken(self, reply: object) -> bool:
        """Is this the moment at which it is known?"""
        return not self.contended and isinstance(reply, (Queued, Busy))

    def look(self) -> Inspect | None:
        """What is to be asked for, if anybody wants to know more of the holder than its name."""
        return Inspect(self.ask.name.text) if self._audience.curious else None

    def taken_by(self, reply: Any, view: object = None) -> None:
        """Somebody else holds it; ``view`` when somebody was curious."""
        self.contended = True
        meta = _meta_of(view) if isinstance(view, View) else {}
        self._audience.tell(events.Contended(self._subject(), reply.holder, isinstance(reply, Queued), meta))

    def granted(self, held: Held) -> None:
        held.number = self.number
        self._granted = lease = events.subject(held, self._store, self.number)
        self._audience.tell(events.Acquired(lease, self._waited(), self.contended))

    def failed(self, error: BaseException) -> None:
        """However it ended without a grant. What was wrong with the request itself is no event."""
        if self._granted is not None:  # but it could not be kept: it is withdrawn
            self._audience.tell(events.ReleaseUnknown(self._granted, 0.0))
            return
        if isinstance(error, InvalidRequest):
            return
        outcome = _outcome(error, self.ask.wait)
        holder = getattr(error, "holder", None) or ""
        self._audience.tell(events.Refused(self._subject(), outcome, self._waited(), holder, self.contended))

    def _subject(self) -> events.Subject:
        return events.before_grant(self.ask.name, self.ask.ttl_ms, self._store, self.number)

    def _waited(self) -> float:
        return max(self._clock.now() - self._began, 0.0)


class Overheard:
    """A thread's mailbox while somebody observes its acquire."""

    def __init__(self, box: Mailbox, story: Story) -> None:
        self._box = box
        self._story = story
        self.address = box.address
        self.take, self.close = box.take, box.close

    def execute(self, op: StoreOp) -> Reply:
        reply = self._box.execute(op)
        if self._story.finds_it_taken(reply):
            look = self._story.look()
            self._story.taken_by(reply, None if look is None else self._try(look))
        return reply

    def _try(self, look: Inspect) -> Reply | None:
        """That the holder cannot be seen harms nobody."""
        try:
            return self._box.execute(look)
        except LeaseholdError:
            return None


class OverheardOnLoop:
    """The same for an event loop's."""

    def __init__(self, box: LoopMailbox, story: Story) -> None:
        self._box = box
        self._story = story
        self.take = box.take

    async def execute(self, op: StoreOp) -> Reply:
        reply = await self._box.execute(op)
        if self._story.finds_it_taken(reply):
            look = self._story.look()
            self._story.taken_by(reply, None if look is None else await self._try(look))
        return reply

    async def _try(self, look: Inspect) -> Reply | None:
        try:
            return await self._box.execute(look)
        except LeaseholdError:
            return None


def _outcome(error: BaseException, wait: float | None) -> str:
    if isinstance(error, LeaseLost):  # somebody else has adopted it
        return "busy"
    if isinstance(error, NotAcquired):
        return "busy" if wait == 0 else "timeout"
    if isinstance(error, StoreUnavailable):
        return "unavailable"
    if isinstance(error, OutcomeUnknown):
        return "unknown"
    return "cancelled"


def _meta_of(view: View) -> dict[str, Any]:
    try:
        found = json.loads(view.holders[0].meta)
    except (IndexError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


# ---------------------------------------------------------------- leases


class Chronicle:
    """The leases of one coordinator, as its audience hears of them."""

    __slots__ = ("_audience", "_clock", "_store")

    def __init__(self, audience: Audience, clock: Clock, store: str) -> None:
        self._audience = audience
        self._clock = clock
        self._store = store

    def renewed(self, held: Held, slack: float) -> None:
        self._audience.tell(events.Renewed(self._subject(held), max(slack, 0.0)))

    def not_renewed(self, held: Held, error: LeaseholdError | NotYours) -> None:
        unclear = isinstance(error, LeaseholdError)
        outcome = "failed" if unclear else "not_owner"
        why = str(error) if isinstance(error, LeaseholdError) else error.reason
        self._audience.tell(events.NotRenewed(self._subject(held), outcome, why))

    def lost(self, held: Held) -> None:
        self._audience.tell(events.Lost(self._subject(held), held.reason, self._held_for(held)))
        self.unguarded(held)

    def released(self, held: Held, reply: Reply | LeaseholdError | bool) -> None:
        """What came of giving it back: True, a reply, or an error."""
        if reply is True or isinstance(reply, Released):
            self._audience.tell(events.Released(self._subject(held), self._held_for(held)))
        elif isinstance(reply, LeaseholdError):
            self._audience.tell(events.ReleaseUnknown(self._subject(held), self._held_for(held)))
        else:
            self._audience.tell(events.StaleRelease(self._subject(held), self._held_for(held)))
        self.unguarded(held)

    def unguarded(self, held: Held) -> None:
        """Correctness was to be protected, and nothing that could refuse a stale fence ever saw it."""
        if held.unguarded():
            held.exported = True  # said once
            self._audience.tell(events.Unguarded(self._subject(held)))

    def _subject(self, held: Held) -> events.Subject:
        return events.subject(held, self._store, held.number)

    def _held_for(self, held: Held) -> float:
        return max(self._clock.now() - held.since, 0.0)
