"""Reports what happens to acquires and leases to observers. Called by drivers and primitives after the fact, never from
inside a flow; loaded only when there are observers."""

from __future__ import annotations

import json
from collections.abc import Iterable
from itertools import count

from leasehold._core.light_typing import TYPE_CHECKING, Any
from leasehold._core.ops import Busy, Group, Inspect, NotYours, Queued, Replies, Reply, StoreOp, View
from leasehold._core.policy import LEAST_BUDGET_MS
from leasehold._runtime import identity
from leasehold.errors import LeaseholdError, LeaseLost, NotAcquired, OutcomeUnknown
from leasehold.observe import events

if TYPE_CHECKING:
    from leasehold._core.names import Name
    from leasehold._core.ports import Clock, Connection
    from leasehold._runtime.aio import PushRouter
    from leasehold._runtime.engine import Engine
    from leasehold._runtime.held_lease import HeldLease
    from leasehold.observe.observers import Observers

_numbers = count(1)


class AcquireEvents:
    """One acquire, from its beginning to its end: ``granted`` or ``failed``, once."""

    __slots__ = (
        "_began",
        "_clock",
        "_granted",
        "_name",
        "_observers",
        "_store",
        "_ttl_ms",
        "_wait",
        "contended",
        "number",
    )

    def __init__(self, engine: Engine, name: Name, ttl_ms: int, wait: float | None) -> None:
        self._observers = engine.observers
        self._clock = engine.clock
        self._store = engine.store.name
        self._began = engine.clock.now()
        self._name = name
        self._ttl_ms = ttl_ms
        self._wait = wait
        self.number = next(_numbers)
        self.contended = False
        self._granted: events.Subject | None = None

    def carried_meta(self, meta: dict[str, Any] | None) -> str:
        """The holder's metadata, with what observers want to travel in it, if anything. The user's own values win."""
        carried = self._observers.carried(self.number)
        if not carried:
            return ""
        return json.dumps({**carried, **(meta or {})}, ensure_ascii=False, separators=(",", ":"))

    def observed_connection(self, connection: Connection) -> Connection:
        """The same connection; what its replies mean is reported."""
        return ObservedConnection(connection, self)

    def observed_async_connection(self, connection: PushRouter) -> PushRouter:
        return ObservedAsyncConnection(connection, self)  # type: ignore[return-value]  # it has all that a driver needs

    def is_contention(self, reply: object) -> bool:
        """Is this the first reply which shows that the resource is held?"""
        return not self.contended and isinstance(reply, (Queued, Busy))

    def inspection_of_holder(self, reply: object) -> Inspect | None:
        """The op to send when an observer wants to know more of the holder than its name. A single try stays one op."""
        wanted = self._observers.wants_holder and isinstance(reply, Queued)
        return Inspect(self._name.text, LEAST_BUDGET_MS, queue=False) if wanted else None

    def contention(self, reply: Any, op: Any, view: object = None) -> None:
        """Report that another holds it; with ``view`` when an observer wants details. By then it may be ours."""
        self.contended = True
        queued = isinstance(reply, Queued)
        self._observers.notify(
            events.Contended(self._subject(), reply.holder, queued, self._waited(), _meta_of(view, op.owner))
        )

    def contended_here(self, holder: str) -> None:
        """Report that others of this process come first; ``holder``: if one of them holds it."""
        self.contended = True
        self._observers.notify(events.Contended(self._subject(), holder, True, self._waited(), events.HolderMeta({})))

    def granted(self, held: HeldLease) -> None:
        held.number = self.number
        self._granted = lease = events.subject(held, self._store, self.number)
        self._observers.notify(events.Acquired(lease, self._waited(), self.contended))

    def failed(self, error: BaseException, called_off: bool = False) -> None:
        """However it ended without a lease. ``called_off``: because another, of several, could not be had."""
        if self._granted is not None:  # granted, but it could not be kept: it is withdrawn
            self._observers.notify(events.ReleaseUnknown(self._granted, 0.0))
            return
        outcome = "cancelled" if called_off else _outcome(error, self._wait)
        holder = "" if called_off else getattr(error, "holder", None) or ""
        self._observers.notify(events.Refused(self._subject(), outcome, self._waited(), holder, self.contended))

    def _subject(self) -> events.Subject:
        return events.subject_of(self._name, identity.process_prefix(), None, self._ttl_ms, self._store, self.number)

    def _waited(self) -> float:
        return max(self._clock.now() - self._began, 0.0)


class CampaignEvents(AcquireEvents):
    """The same for a candidate of an election, which also reports whether it knows of a leader."""

    __slots__ = ()

    def __init__(self, engine: Engine, name: Name, ttl_ms: int, wait: float | None) -> None:
        super().__init__(engine, name, ttl_ms, wait)
        report_candidacy(self._observers, name, "stands")

    def contention(self, reply: Any, op: Any, view: object = None) -> None:
        super().contention(reply, op, view)
        report_candidacy(self._observers, self._name, "follows")

    def granted(self, held: HeldLease) -> None:
        super().granted(held)
        report_candidacy(self._observers, self._name, "leads")

    def failed(self, error: BaseException, called_off: bool = False) -> None:
        """A candidate whose wait is over gives up; one that did not reach the store may stand again."""
        super().failed(error, called_off)
        gave_up = _outcome(error, self._wait) in ("busy", "timeout", "cancelled")
        report_candidacy(self._observers, self._name, "left" if gave_up else "stands")


def report_candidacy(observers: Observers, name: Name, state: str) -> None:
    observers.notify(events.Candidacy(name.kind, name.id_hash, state))


class ObservedConnection:
    """A thread's connection while its acquire is observed."""

    def __init__(self, connection: Connection, acquire_events: AcquireEvents) -> None:
        self._connection = connection
        self._acquire_events = acquire_events
        self.address = connection.address
        self.next_push, self.close = connection.next_push, connection.close

    def execute(self, op: StoreOp) -> Reply:
        reply = self._connection.execute(op)
        self.observe_reply(reply, op)
        return reply

    def observe_reply(self, reply: Reply, op: StoreOp) -> None:
        if self._acquire_events.is_contention(reply):
            inspect = self._acquire_events.inspection_of_holder(reply)
            self._acquire_events.contention(reply, op, None if inspect is None else self._try(inspect))

    def _try(self, inspect: Inspect) -> Reply | None:
        """The view of the holder, if it can be had."""
        try:
            return self._connection.execute(inspect)
        except LeaseholdError:
            return None


class ObservedAsyncConnection:
    """The same for an event loop's connection."""

    def __init__(self, connection: PushRouter, acquire_events: AcquireEvents) -> None:
        self._connection = connection
        self._acquire_events = acquire_events
        self.next_push = connection.next_push

    async def execute(self, op: StoreOp) -> Reply:
        reply = await self._connection.execute(op)
        await self.observe_reply(reply, op)
        return reply

    async def observe_reply(self, reply: Reply, op: StoreOp) -> None:
        if self._acquire_events.is_contention(reply):
            inspect = self._acquire_events.inspection_of_holder(reply)
            self._acquire_events.contention(reply, op, None if inspect is None else await self._try(inspect))

    async def _try(self, inspect: Inspect) -> Reply | None:
        try:
            return await self._connection.execute(inspect)
        except LeaseholdError:
            return None


def _outcome(error: BaseException, wait: float | None) -> str:
    if isinstance(error, LeaseLost):  # another process has adopted it
        return "busy"
    if isinstance(error, NotAcquired):
        return "busy" if wait == 0 else "timeout"
    if isinstance(error, OutcomeUnknown):
        return "unknown"
    if isinstance(error, LeaseholdError):  # the store was not there, or refused: nothing was taken
        return "unavailable"
    return "unknown" if isinstance(error, Exception) else "cancelled"


def _meta_of(view: object, owner: str) -> events.HolderMeta:
    """The metadata of a holder other than this owner. Any program may have written it."""
    others = [one for one in view.holders if one.owner != owner] if isinstance(view, View) else []
    try:
        found = json.loads(others[0].meta) if others else {}
    except (ValueError, RecursionError):
        found = {}
    return events.HolderMeta(found if isinstance(found, dict) else {})


# ---------------------------------------------------------------- leases


class LeaseEvents:
    """Reports what happens to the leases of one coordinator."""

    __slots__ = ("_clock", "_observers", "_store")

    def __init__(self, observers: Observers, clock: Clock, store: str) -> None:
        self._observers = observers
        self._clock = clock
        self._store = store

    def renewed(self, held: HeldLease, slack: float) -> None:
        self._observers.notify(events.Renewed(self._subject(held), max(slack, 0.0)))

    def not_renewed(self, held: HeldLease, error: LeaseholdError | NotYours) -> None:
        unclear = isinstance(error, LeaseholdError)
        outcome = "failed" if unclear else "not_owner"
        why = str(error) if isinstance(error, LeaseholdError) else error.reason
        again, held.doubted_deadline = held.doubted_deadline == held.deadline, held.deadline
        self._observers.notify(events.NotRenewed(self._subject(held), outcome, why, again))

    def downgraded(self, held: HeldLease) -> None:
        self._observers.notify(events.Downgraded(self._subject(held)))

    def lost(self, held: HeldLease) -> None:
        self._observers.notify(events.Lost(self._subject(held), held.reason, self._held_for(held)))
        held.end_reported = True
        self.unguarded(held)

    def released(self, held: HeldLease, ours: bool | None) -> None:
        """Whether it was ours when it was given back; None: unknown."""
        kind = events.Released if ours else events.ReleaseUnknown if ours is None else events.StaleRelease
        self._observers.notify(kind(self._subject(held), self._held_for(held)))
        held.end_reported = True
        self.unguarded(held)

    def unguarded(self, held: HeldLease) -> None:
        """Correctness was to be protected, and nothing that could refuse a stale fence ever saw it."""
        if held.unguarded():
            held.warned = True
            self._observers.notify(
                events.Unguarded(self._subject(held), not self._observers.first_unguarded(held.name.kind))
            )

    def _subject(self, held: HeldLease) -> events.Subject:
        return events.subject(held, self._store, held.number)

    def _held_for(self, held: HeldLease) -> float:
        return max(self._clock.now() - held.at, 0.0)


# ---------------------------------------------------------------- acquires of several


class GroupAcquireEvents:
    """One AcquireEvents for each part that is not granted yet. A part that was granted, and given back because the rest
    could not be had, has ended: when it is claimed anew, it gets another."""

    def __init__(self, engine: Engine, wait: float | None) -> None:
        self._engine = engine
        self._wait = wait
        self._open: dict[str, AcquireEvents] = {}

    def of(self, name: Name, ttl_ms: int) -> AcquireEvents:
        """The open one for this part, or a new one."""
        acquire_events = self._open.get(name.text)
        if acquire_events is None:
            acquire_events = self._open[name.text] = AcquireEvents(self._engine, name, ttl_ms, self._wait)
        return acquire_events

    def kept(self, name: Name) -> None:
        """This part is granted, and renewed from now on."""
        self._open.pop(name.text, None)

    def failed(self, error: BaseException) -> None:
        """The part that it failed on is refused for that reason; the others are called off with it."""
        at = getattr(error, "resource", None)
        for resource, acquire_events in self._open.items():
            acquire_events.failed(error, called_off=at in self._open and at != resource)

    def observed_connection(self, connection: Connection) -> Connection:
        """The same connection; what its replies mean is reported."""
        return ObservedGroupConnection(connection, self)

    def observed_async_connection(self, connection: PushRouter) -> PushRouter:
        return ObservedAsyncGroupConnection(connection, self)  # type: ignore[return-value]  # it has all that a driver needs

    def observed_replies(self, op: Any, reply: Reply) -> Iterable[tuple[AcquireEvents, Any, Reply]]:
        """The claims and beats that were answered, each with its reply and the events of its part."""
        several = isinstance(op, Group) and isinstance(reply, Replies)
        steps = zip(op.steps, reply.replies, strict=False) if several else [(op, reply)]  # type: ignore[union-attr]  # so
        return [(self._open[step.resource], step, one) for step, one in steps if step.resource in self._open]


class ObservedGroupConnection:
    """A thread's connection while its acquire of several is observed."""

    def __init__(self, connection: Connection, group_events: GroupAcquireEvents) -> None:
        self._connection = connection
        self._group_events = group_events
        self.address = connection.address
        self.next_push, self.close = connection.next_push, connection.close

    def execute(self, op: StoreOp) -> Reply:
        reply = self._connection.execute(op)
        for acquire_events, step, one in self._group_events.observed_replies(op, reply):
            ObservedConnection(self._connection, acquire_events).observe_reply(one, step)
        return reply


class ObservedAsyncGroupConnection:
    """The same for an event loop's connection."""

    def __init__(self, connection: PushRouter, group_events: GroupAcquireEvents) -> None:
        self._connection = connection
        self._group_events = group_events
        self.next_push = connection.next_push

    async def execute(self, op: StoreOp) -> Reply:
        reply = await self._connection.execute(op)
        for acquire_events, step, one in self._group_events.observed_replies(op, reply):
            await ObservedAsyncConnection(self._connection, acquire_events).observe_reply(one, step)
        return reply
