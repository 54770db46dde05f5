"""A holding: one lease as its holder may believe in it. Everything that affects that belief is in this file.

The file begins with the values that a holding is made of (times of a grant, limits, unconfirmed changes); the state
machine itself is the class ``Holding``.

Times are seconds on the local suspend-safe clock, always counted from before the request that they answer (trap 23).
"""

from __future__ import annotations

from leasehold._core import ops
from leasehold._core.light_typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar, lru_cache, make_tuple
from leasehold._core.names import Name
from leasehold._core.policy import (
    BUDGET_MS,
    drift,
    margin,
    renew_after,
    renewal_budget_ms,
    retry_renewal_after,
    tombstone_ms,
)
from leasehold._core.rules import MUTEX, ONLY_SLOT, READ, WRITE
from leasehold._core.types import public_owner
from leasehold.errors import InvalidRequest, LeaseholdError, LeaseLost, NotHeld, OutcomeUnknown

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from leasehold._core.tickets import Transfer

T = TypeVar("T")
NEVER = float("inf")
HELD, UNSURE, LOST, RELEASING, RELEASED = "held", "unsure", "lost", "releasing", "released"
ALIVE = (HELD, UNSURE)
LOSSES = ("expired", "taken", "deleted", "evicted")  # the reasons a store gives for a grant that is not there
MOST_CAUSES = 8  # causes of an error that are kept with it


# ---------------------------------------------------------------- the times of a grant
#
# They count from when the request was sent, however long the reply took (trap 23), and never last longer than what was
# requested: a server whose clock was set back answers that far more remains (trap 49).


@lru_cache(maxsize=1024)
def grant_spans(ttl_ms: int, remaining_ms: int) -> tuple[float, float, float]:
    """How many seconds after a request was sent its grant must no longer be used, ends, and is to be renewed. It is
    renewed a third of the ttl after the store's own count began. Usually a whole ttl remains, so the cache hits."""
    ttl, remaining = ttl_ms / 1000, min(remaining_ms, ttl_ms) / 1000
    deadline = remaining - drift(remaining)
    return deadline - margin(ttl), deadline, remaining - ttl + renew_after(ttl)


def deadline_after(sent: float, remaining_ms: int) -> float:
    """The local deadline of a grant or renewal that was requested at ``sent``."""
    return sent + grant_spans(remaining_ms, remaining_ms)[1]


def renewal_after(sent: float, ttl_ms: int, remaining_ms: int) -> float:
    """When to renew a grant that was requested at ``sent``."""
    return sent + grant_spans(ttl_ms, remaining_ms)[2]


class LocalGrant:
    """A grant with its times on the local clock, as the acquire flow returns it."""

    __slots__ = (
        "at",
        "deadline",
        "fence",
        "granted_as",
        "last_fence",
        "limit",
        "owner",
        "renew_at",
        "rule",
        "slots",
        "stop_at",
        "ttl_ms",
        "unanswered",
    )

    def __init__(
        self,
        owner: str,
        fence: int,
        ttl_ms: int,
        sent: float,
        remaining_ms: int,
        at: float,
        unanswered: bool,
        rule: str = MUTEX,
        slots: tuple[int, ...] = ONLY_SLOT,
        limit: int = 0,
    ) -> None:
        stop, deadline, renewal = grant_spans(ttl_ms, remaining_ms)
        self.owner = owner
        self.fence = fence
        self.last_fence = 0  # of those that it brings for others of its process; 0: there are none
        self.granted_as: tuple[str, int] | None = None  # of one that was passed on: owner and fence in the store
        self.ttl_ms = ttl_ms
        self.stop_at = sent + stop
        self.deadline = sent + deadline
        self.renew_at = sent + renewal
        self.at = at
        self.unanswered = unanswered  # a claim of this owner may still arrive: release with a tombstone
        self.rule = rule
        self.slots = slots
        self.limit = limit  # of a semaphore: the limit that others go by, when it differs from the requested one

    def in_store(self) -> tuple[str, int]:
        """The owner and the fence by which the store knows it."""
        return self.granted_as or (self.owner, self.fence)

    def usable(self, renews: bool) -> bool:
        """Is there time left to work in? A push that was read late may name a grant that is almost over."""
        return (self.stop_at if renews else self.deadline) > self.at


# ---------------------------------------------------------------- parts of a holding


class Rare(Generic[T]):
    """A field that few holdings ever set, always under their lock. Its default is kept here; what was set is kept in
    one dictionary for all such fields of a holding, which most never have. A process may hold a hundred thousand."""

    def __init__(self, default: T) -> None:
        self._default = default
        self._name = ""

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, holding: Holding, owner: type | None = None) -> T:
        rare = holding._rare
        found: T = self._default if rare is None else rare.get(self._name, self._default)
        return found

    def __set__(self, holding: Holding, value: T) -> None:
        if holding._rare is None:
            holding._rare = {}
        holding._rare[self._name] = value


class HoldLimits:
    """``max_hold`` and ``max_idle``: what ends a lease however well it is renewed."""

    __slots__ = ("_hold_until", "_idle_from", "_max_idle")

    def __init__(self, at: float, max_hold: float | None, max_idle: float | None) -> None:
        self._hold_until = NEVER if max_hold is None else at + max_hold
        self._max_idle = NEVER if max_idle is None else max_idle
        self._idle_from = at

    def beat(self, now: float) -> None:
        """The work shows that it is alive: idle time counts from here."""
        self._idle_from = now

    def ends(self) -> tuple[float, str]:
        """When the first of the two ends the lease, and which one it is."""
        idle_until = self._idle_from + self._max_idle
        return (self._hold_until, "max_hold") if self._hold_until <= idle_until else (idle_until, "max_idle")


class UnconfirmedChanges(NamedTuple):
    """Changes of a lease that the store has not confirmed. Every Renew repeats them until one that did is confirmed: a
    later Renew may overtake an earlier one, and the store then goes by the later."""

    lowering: bool = False  # from writer to reader
    unreported: bool = False  # the caller of ``downgrade`` does not know yet that it succeeded
    meta: str = ""  # the holder's new metadata
    since: int = 0  # the number of the first Renew that carries ``meta``

    def on(self, renew: ops.Renew) -> ops.Renew:
        """That Renew, with these changes."""
        return renew._replace(shared=self.lowering, meta=self.meta)

    def after(self, renew: ops.Renew) -> UnconfirmedChanges | None:
        """What is left when this Renew was confirmed."""
        meta = "" if renew.number >= self.since else self.meta
        return self._replace(lowering=self.lowering and not renew.shared, meta=meta).left()

    def left(self) -> UnconfirmedChanges | None:
        """None when nothing is left to confirm."""
        return self if self.lowering or self.unreported or self.meta else None


NO_CHANGES = UnconfirmedChanges()


def without_frames(error: LeaseholdError) -> LeaseholdError:
    """A copy to keep, with copies of its causes. A traceback would keep its frames alive, and those a connection or
    the very lease that the program has dropped (trap 3)."""
    from copy import copy  # seldom needed, and a short command starts faster without it

    kept = copy(error)
    last: BaseException = kept
    cause = _cause(error)
    for _ in range(MOST_CAUSES):
        if cause is None:
            break
        try:
            last.__cause__ = following = copy(cause)
        except Exception:  # an exception class that cannot be copied
            break
        last, cause = following, _cause(cause)
    return kept


def _cause(error: BaseException) -> BaseException | None:
    return error.__cause__ or (None if error.__suppress_context__ else error.__context__)


# ---------------------------------------------------------------- the state machine


class Holding:
    """What this process knows of one grant, and until when it may act on it.

        HELD ── a renewal fails ──> UNSURE ── a renewal is confirmed ──> HELD
          └──────────┬────────────────┘
                     ├─ "not yours", or the time to stop has come ──> LOST
                     ├─ a transfer is confirmed ──> RELEASED
                     └─ a release begins ──> RELEASING ──> RELEASED, or LOST when it is "not yours"

    | what happens                         | HELD, UNSURE | LOST          | RELEASING     | RELEASED |
    |--------------------------------------|--------------|---------------|---------------|----------|
    | a Renew is confirmed                 | HELD         | ignored       | ignored       | ignored  |
    | a Renew fails or goes unanswered     | UNSURE       | ignored       | ignored       | ignored  |
    | "not yours" to a Renew, or in a push | LOST         | ignored       | ignored       | ignored  |
    | ``stop_at`` has come, or ``lose``    | LOST         | ignored       | ignored       | ignored  |
    | ``begin_release``                    | RELEASING    | stays, sent * | stays, sent   | nothing  |
    | the Release is confirmed             |              | ignored       | RELEASED      | ignored  |
    | "not yours" to the Release           |              | ignored       | LOST          | ignored  |
    | ``end_transfer``                     | RELEASED     | raises        | raises        | raises   |

    * A Release is sent for a lost lease only where the store may still have it as ours.

    Loss is sticky: no confirmation that arrives late brings a lease back.

    A Renew that a caller waits for (extend, downgrade, new metadata, transfer) travels beside those of the watchdog.
    Between its ``begin_...`` and ``end_change`` no other renewal is due.

    Transitions happen under ``lock``, which the runtime supplies and which its thread can enter again; no I/O happens
    under it. A method whose name begins with an underscore is called by one that has the lock.
    """

    __slots__ = (
        "_rare",
        "_releases",
        "_renewal_ttl_ms",
        "_renews_sent",
        "at",
        "deadline",
        "depth",
        "fence",
        "granted_as",
        "lock",
        "name",
        "owner",
        "phase",
        "plain",
        "renew_at",
        "rule",
        "stop_at",
        "ttl_ms",
    )

    renews = Rare(True)
    durability = Rare("")  # what has to confirm its renewals; see ``_core.durability``
    slots = Rare[tuple[int, ...]](ONLY_SLOT)
    reason = Rare("")  # why it was lost
    _limits = Rare[HoldLimits | None](None)
    _unconfirmed = Rare[UnconfirmedChanges | None](None)
    _last_failure = Rare[LeaseholdError | None](None)  # why the last renewal failed
    unanswered = Rare(False)  # a claim may still arrive: its release leaves a tombstone
    _last_extension = Rare(0)  # the number of the last Renew that set another end
    _awaited = Rare(0)  # Renews that a caller waits for now
    _awaited_until = Rare(0.0)  # they are over by then, also when an interrupt hits the very end of one

    def __init__(
        self,
        name: Name,
        grant: LocalGrant | Holding,
        lock: AbstractContextManager[Any],
        renews: bool = True,
        max_hold: float | None = None,
        max_idle: float | None = None,
        at: float | None = None,
    ) -> None:
        """``grant``: what the store has granted; or the holding before, of which this one takes over the grant ``at`` a
        time: see ``pass_on``."""
        self.name = name
        self.lock = lock
        self._rare: dict[str, Any] | None = None
        self.owner: str = grant.owner
        self.fence: int = grant.fence
        self.granted_as: tuple[str, int] | None = grant.granted_as  # what the store knows it by, where that is another
        self.rule: str = grant.rule
        self.plain = grant.rule == MUTEX  # until it is changed: every renewal of it is like the last; see ``renewals``
        self.ttl_ms: int = grant.ttl_ms
        self._renewal_ttl_ms = self.ttl_ms  # that of the last confirmation, and of the next renewal
        self.deadline: float = grant.deadline
        self.renew_at: float = grant.renew_at
        self.at: float = grant.at if at is None else at  # when it was granted, or passed on
        self.phase = HELD
        self.depth = 1  # how often its owner has entered it
        self.stop_at: float = grant.stop_at  # when work must stop unless a renewal is confirmed before
        self._releases = 0  # how many were begun
        self._renews_sent = 0  # the number of the last Renew; 0 before the first change
        if not renews:
            self.renews, self.renew_at, self.stop_at = False, NEVER, grant.deadline
        if at is None:
            if grant.slots != ONLY_SLOT:
                self.slots = grant.slots
            if grant.unanswered:
                self.unanswered = True
        if max_hold is not None or max_idle is not None:
            self._limits = HoldLimits(self.at, max_hold, max_idle)
            self._set_stop()

    def keep_durable(self, durability: str) -> None:
        """Every renewal of it has to be confirmed by replicas, or by the disk."""
        self.durability = durability
        self.plain = False

    # ------------------------------------------------------------ time

    def _set_stop(self) -> None:
        """To be called when one of its times has changed. The margin exists because a renewing lease that could not
        renew needs time to wind down; one that does not renew knows its end."""
        end = self.deadline - margin(self.ttl_ms / 1000) if self.renews else self.deadline
        limits = self._limits
        self.stop_at = end if limits is None else min(end, limits.ends()[0])

    def check_at(self) -> float:
        """When the watchdog must check this lease again. No renewal is due beside a Renew that a caller waits for."""
        if self.phase not in ALIVE:
            return NEVER
        renew_at = self.renew_at
        if self._rare is not None and self._awaited:
            renew_at = max(renew_at, self._awaited_until)
        return min(self.stop_at, renew_at)

    def settle(self, now: float) -> str:
        """Apply the clock and return the phase. A process that was frozen learns here that its time is over. Only a
        change of phase needs the lock."""
        if now >= self.stop_at and self.phase in ALIVE:
            with self.lock:
                return self._settle(now)
        return self.phase

    def _settle(self, now: float) -> str:
        if now >= self.stop_at and self.phase in ALIVE:
            self._lose(self._end_reason())
        return self.phase

    def _end_reason(self) -> str:
        """What ends it at ``stop_at``."""
        limits = self._limits
        if limits is not None and limits.ends()[0] <= self.stop_at:
            return limits.ends()[1]
        return "renewal_failed" if self.phase == UNSURE else "expired"

    def beat(self, now: float, ahead: float = 0.0) -> None:
        """The work shows that it is alive (max_idle), and may be silent for so many seconds ``ahead`` besides. A beat
        that comes too late changes nothing."""
        with self.lock:
            limits = self._limits
            if self._settle(now) in ALIVE and limits is not None:
                limits.beat(now + ahead)
                self._set_stop()

    # ------------------------------------------------------------ loss

    def require(self, now: float) -> None:
        """Raise unless the lease can be acted upon now."""
        with self.lock:
            self._require(now)

    def _require(self, now: float) -> None:
        phase = self._settle(now)
        if phase == LOST:
            raise self.loss()
        if phase not in ALIVE:
            raise NotHeld(
                f"the lease on {self.name.label} was released",
                resource=self.name.text,
                owner=public_owner(self.owner),
                fence=self.fence,
            )

    def loss(self) -> LeaseLost:
        """The error of a lost lease. Where renewals failed, the last failure is its cause."""
        error = LeaseLost(
            f"the lease on {self.name.label} is lost ({self.reason}): stop the work that it protected",
            reason=self.reason,
            resource=self.name.text,
            owner=public_owner(self.owner),
            fence=self.fence,
        )
        error.__cause__ = self._last_failure if self.reason == "renewal_failed" else None
        return error

    def lose(self, reason: str) -> None:
        """End it for a reason of this process, such as ``closed`` or ``forked``."""
        with self.lock:
            if self.phase in ALIVE:
                self._lose(reason)

    def refused(self, reason: str) -> None:
        """The store says "not yours", in a reply or unasked."""
        with self.lock:
            self._refused(reason)

    def _reason(self, reply: ops.NotYours, now: float) -> str:
        """Why it is lost. The store forgets a plain lease when it ends, however it ends: what it reports as deleted has
        expired when that may have happened by the deadline that the holder knows."""
        return "expired" if reply.reason == "deleted" and now >= self.deadline else reply.reason

    def _refused(self, reason: str) -> None:
        """Loss now (trap 1), except for a lease that is being given back (trap 43)."""
        if self.phase in ALIVE:
            self._lose(reason if reason in LOSSES else "taken")

    def _lose(self, reason: str) -> None:
        self.phase = LOST
        self.reason = reason

    # ------------------------------------------------------------ re-entry

    def enter_again(self, ttl_ms: int, now: float) -> bool:
        """One level deeper: same fence, never shortened (traps 6, 13). False when it has been given back; LeaseLost
        when it is lost. All in one step, so that no other thread can give it back in between."""
        with self.lock:
            if self.depth == 0 or self.phase in (RELEASING, RELEASED):
                return False
            self._require(now)
            self.depth += 1
            self._raise_ttl(ttl_ms)
            return True

    def step_out(self) -> bool:
        """One level up. False when it was the last, and the lease is to be given back."""
        with self.lock:
            deeper = self.depth > 1
            self.depth = self.depth - 1 if deeper else 0
            return deeper

    def _require_single(self) -> None:
        """Refuse to hand over or lower what was entered again: the outer body still relies on it."""
        if self.depth > 1:
            raise InvalidRequest(
                f"the lease on {self.name.label} was entered {self.depth} times: leave the inner ones first"
            )

    def _raise_ttl(self, ttl_ms: int) -> None:
        """Re-entry with a longer ttl: later renewals ask for it. A shorter one changes nothing (trap 6)."""
        if ttl_ms > self._renewal_ttl_ms:
            self._renewal_ttl_ms = ttl_ms
            self.plain = False

    # ------------------------------------------------------------ renewal

    def begin_renewal(self, now: float) -> ops.Renew | None:
        """The Renew to send now. None when there must be none: after the time to stop, or beside a Renew that a caller
        waits for. Its budget leaves time for another try, and never exceeds what the lease has left (trap 2)."""
        with self.lock:
            return self._begin_renewal(now)

    def _begin_renewal(self, now: float) -> ops.Renew | None:
        if now >= self.stop_at:
            self._settle(now)
        awaited = self._rare is not None and self._awaited and now < self._awaited_until
        if self.phase not in ALIVE or awaited:
            return None
        return self._renew(self._renewal_ttl_ms, renewal_budget_ms(self.ttl_ms), now)

    def _renew(self, ttl_ms: int, budget_ms: int, now: float, exact: bool = False, change: bool = False) -> ops.Renew:
        """Renewals are numbered from the first change on. Before that all are alike, whichever arrives last: the store
        only has to set the end anew."""
        left_ms = int((self.stop_at - now) * 1000)
        if left_ms < budget_ms:
            budget_ms = max(left_ms, 1)
        if change or self._renews_sent:
            self._renews_sent += 1
        owner, fence = self.in_store()
        renew = ops.Renew(
            resource=self.name.text,
            owner=owner,
            fence=fence,
            ttl_ms=ttl_ms,
            exact=exact,
            number=self._renews_sent,
            budget_ms=budget_ms,
            durability="" if self._rare is None else self.durability,
        )
        changes = self._unconfirmed
        return renew if changes is None else changes.on(renew)

    def apply_reply(self, renew: ops.Renew, sent: float, reply: ops.Renewed | ops.NotYours, now: float) -> None:
        """Apply the store's reply to a Renew that was sent at ``sent``."""
        with self.lock:
            self._apply_reply(renew, sent, reply, now)

    def _apply_reply(self, renew: ops.Renew, sent: float, reply: ops.Renewed | ops.NotYours, now: float) -> None:
        """A confirmation is ignored when the lease has ended meanwhile (sticky loss; trap 43), or when its Renew was
        sent before the last extend and speaks of an end that no longer holds (trap 44)."""
        if isinstance(reply, ops.NotYours):
            self._refused(self._reason(reply, now))
        elif self.phase in ALIVE and renew.number >= self._last_extension:
            self.phase = HELD
            if self._rare is not None:
                self._last_failure = None
                changes = self._unconfirmed
                self._unconfirmed = None if changes is None else changes.after(renew)
            self.ttl_ms = ttl_ms = renew.ttl_ms
            _, deadline, renewal = grant_spans(ttl_ms, reply.remaining_ms)
            self.deadline = max(self.deadline, sent + deadline)
            self._set_stop()
            if self.renews:
                self.renew_at = sent + renewal
        if now >= self.stop_at:
            self._settle(now)

    def renewal_failed(self, now: float, error: LeaseholdError | None = None) -> None:
        """A transport error decides nothing: the lease is unsure, and is renewed again before the margin."""
        kept = None if error is None else without_frames(error)
        with self.lock:
            self._renewal_failed(now, kept)

    def _renewal_failed(self, now: float, error: LeaseholdError | None) -> None:
        if self.phase in ALIVE:
            self.phase = UNSURE
            self._last_failure = error
            if self.renews:
                self.renew_at = now + retry_renewal_after(self.ttl_ms / 1000)

    # ------------------------------------------------------------ passing on
    #
    # A lease may pass to another thread or task of this process without the store (``cohort``). The store's grant stays
    # as it is, with its owner, its fence and its end; the lease that follows has an owner and a fence of its own.

    def in_store(self) -> tuple[str, int]:
        """The owner and the fence by which the store knows it."""
        return self.granted_as or (self.owner, self.fence)

    def may_pass(self, now: float) -> bool:
        """Can it be passed on? It must be sure, have time left, and be as it was granted."""
        return self.phase == HELD and now < self.stop_at and self.depth <= 1 and (self.plain or self._plain_writer())

    def _plain_writer(self) -> bool:
        """Is it the lease of a writer that nothing has changed?"""
        changed = self._renews_sent or self._unconfirmed or self._renewal_ttl_ms != self.ttl_ms
        return self.rule == WRITE and not changed and not self.durability

    def begin_reservation(self, fences: int, now: float, tell: bool = False) -> ops.Renew | None:
        """The Renew that also reserves fences for those to whom it will be passed on. It may take half of what is left:
        when it goes unanswered, there must be time to give back what is still held. ``tell``: of claims that wait."""
        with self.lock:
            renew = self._begin_renewal(now)
            if renew is None:
                return None
            half_ms = max(int((self.stop_at - now) * 500), 1)
            return renew._replace(fences=fences, tell=tell, budget_ms=min(renew.budget_ms, half_ms))

    def pass_on(self, following: Holding, owner: str, fence: int) -> None:
        """To the one that was made with this one as its grant: it has the same times, for they are the store's. From
        here on this one is released. The caller has the lock."""
        following.owner, following.fence, following.granted_as = owner, fence, self.in_store()
        if self._rare is not None:
            following._set_stop()  # each has limits of its own
            if self.unanswered:
                following.unanswered = True
        self.phase = RELEASED

    def keep(self) -> None:
        """It lingers, for the one that will follow: nobody holds it. The caller has the lock."""
        self.phase = RELEASED

    def take_back(self) -> None:
        """The one that was to follow has not got it, or it does not linger. The caller has the lock."""
        if self.phase == RELEASED:
            self.phase = HELD

    # ------------------------------------------------------------ changes that a caller waits for

    def begin_extension(self, ttl_ms: int, now: float) -> ops.Renew:
        """The Renew of ``extend``: sets the end, never adds. A sooner end is believed before it is sent."""
        with self.lock:
            self._require(now)
            self._last_extension = self._renews_sent + 1
            self._renewal_ttl_ms = ttl_ms
            sooner = deadline_after(now, ttl_ms)
            if sooner < self.deadline:
                self.deadline = sooner
                self.ttl_ms = min(self.ttl_ms, ttl_ms)
                self._set_stop()
                if self.renews:
                    self.renew_at = min(self.renew_at, renewal_after(now, ttl_ms, ttl_ms))
            return self._begin_change(now, exact=True)

    def begin_downgrade(self, now: float) -> ops.Renew:
        """The Renew of ``downgrade``. From here on the holder only reads, before the store has received it: others may
        read beside it as soon as the store has. May be repeated until its caller knows that it succeeded."""
        with self.lock:
            self._require(now)
            self._require_single()
            changes = self._unconfirmed or NO_CHANGES
            if self.rule != WRITE and not changes.unreported:
                raise self._not_a_writer()
            self.rule = READ
            self._unconfirmed = changes._replace(lowering=True, unreported=True)
            return self._begin_change(now)

    def end_downgrade(self) -> None:
        """The downgrade succeeded, and its caller gets to know it."""
        with self.lock:
            self._unconfirmed = (self._unconfirmed or NO_CHANGES)._replace(unreported=False).left()

    def begin_meta_change(self, meta: str, now: float) -> ops.Renew:
        """The Renew that replaces the holder's metadata."""
        with self.lock:
            self._require(now)
            self._unconfirmed = (self._unconfirmed or NO_CHANGES)._replace(meta=meta, since=self._renews_sent + 1)
            return self._begin_change(now)

    def _begin_change(self, now: float, exact: bool = False) -> ops.Renew:
        """A Renew that a caller waits for. It may take half of what is left: when it goes unanswered, there must be
        time for a renewal (trap 2)."""
        self.plain = False
        self._awaited += 1
        half_ms = max(int((self.stop_at - now) * 500), 1)
        renew = self._renew(self._renewal_ttl_ms, min(BUDGET_MS, half_ms), now, exact, change=True)
        self._awaited_until = max(self._awaited_until, now + renew.budget_ms / 1000)
        return renew

    def end_change(self) -> None:
        """However the change ended, renewals may go on."""
        with self.lock:
            self._awaited -= 1

    @property
    def shared(self) -> bool:
        """May the holder only read?"""
        return self.rule == READ

    def _not_a_writer(self) -> InvalidRequest:
        if self.rule == READ:
            return InvalidRequest(
                f"the lease on {self.name.label} reads already: there is nothing to downgrade", resource=self.name.text
            )
        return InvalidRequest(
            f"the lease on {self.name.label} is no writer's: downgrade() is for what rwlock(...).write() gives",
            resource=self.name.text,
        )

    # ------------------------------------------------------------ transfer

    def begin_transfer(self, ticket: str, now: float) -> ops.Renew:
        """The Renew of ``transfer``: once it arrives, a process that knows the ticket may adopt the lease. Until it is
        answered the lease stays ours, because no other process knows the ticket."""
        with self.lock:
            self._require(now)
            return self._begin_change(now)._replace(ticket=ticket)

    def end_transfer(
        self, transfer: Transfer, renew: ops.Renew, sent: float, reply: ops.Renewed | ops.NotYours, now: float
    ) -> None:
        """From now on the lease waits for its adopter, for a whole ttl, and is ours no longer. LeaseLost when it was
        not ours any more; InvalidRequest when its own thread entered it again while another gave it away."""
        with self.lock:
            self._require_single()
            self._apply_reply(renew, sent, reply, now)
            self._require(now)
            transfer.done = True
            self.phase = RELEASED

    def recall(self, transfer: Transfer) -> ops.Release | None:
        """The Release of a lease that was handed over with a ticket that reaches no one: its giver was interrupted."""
        with self.lock:
            if not transfer.done or self.phase != RELEASED:
                return None
            transfer.done = False
            owner, fence = self.in_store()
            forget_ms = tombstone_ms(self.ttl_ms)
            return ops.Release(resource=self.name.text, owner=owner, fence=fence, forget_ms=forget_ms, again=True)

    # ------------------------------------------------------------ release

    def begin_release(self, now: float) -> ops.Release | None:
        """The Release to send, or None when there is nothing to give back. From here on renewals are ignored.
        What was lost for a reason of this process may still be ours in the store, so it is given back as well."""
        with self.lock:
            if now >= self.stop_at:
                self._settle(now)
            if self.phase in ALIVE:
                self.phase = RELEASING
            elif self.phase == RELEASED or self._gone():
                return None
            again = self._releases > 0  # an earlier one may have arrived, and "not yours" is no loss then (trap 11)
            self._releases += 1
            forget_ms = tombstone_ms(self.ttl_ms) if self._rare is not None and self.unanswered else 0
            fields = (self.name.text, *(self.granted_as or (self.owner, self.fence)), forget_ms, again, BUDGET_MS)
        return make_tuple(ops.Release, fields)

    def _gone(self) -> bool:
        """Is there nothing of it in the store, or nothing that is ours to give back?"""
        return self.reason == "forked" or (self.reason in ("taken", "deleted", "evicted") and not self.unanswered)

    def end_release(self, op: ops.Release, reply: ops.Released | ops.NotYours, now: float = 0.0) -> bool:
        """True when it was ours until now. "Not yours" means that it was lost while the work believed in it; unless a
        second release of ours, such as that of close(), overtook the first, and the store has forgotten the lease.
        OutcomeUnknown when a repeated release found nothing after the deadline."""
        with self.lock:
            if self.phase != RELEASING:
                return False
            if isinstance(reply, ops.Released) and not reply.found and now >= self.deadline:
                raise OutcomeUnknown(
                    f"the release of {self.name.label} was not confirmed while the lease lasted: it was released, or "
                    "it has expired",
                    resource=self.name.text,
                    fence=self.fence,
                )
            overtaken = not op.again and self._releases > 1
            if isinstance(reply, ops.NotYours) and not (overtaken and reply.reason in ("deleted", "taken")):
                reason = self._reason(reply, now)
                self._lose(reason if reason in LOSSES else "taken")
                return False
            self.phase = RELEASED
            return True
