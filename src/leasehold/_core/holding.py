"""A holding: one lease as its holder may believe in it. Everything that affects that belief is in this file,
also how the lease is given away and changed.

    HELD ── transport error ──> UNSURE ── a renewal succeeds ──> HELD
      └──────────┬────────────────┘
                 ├─ "not yours", or the time to stop has come ──> LOST       (sticky: no late OK brings it back)
                 └─ release is about to be sent ──> RELEASING ── answered ──> RELEASED

Times are seconds on the local suspend-safe clock, always counted from before the request that they answer
(trap 23). Transitions happen under ``lock``, which the runtime supplies; nobody does I/O under it. A method whose name
begins with an underscore is called by somebody who has the lock.
"""

from __future__ import annotations

from functools import lru_cache

from leasehold._core import ops
from leasehold._core.light_typing import TYPE_CHECKING, Any, NamedTuple
from leasehold._core.names import Name
from leasehold._core.ops import Renew
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
from leasehold._core.tickets import Transfer
from leasehold._core.types import public_owner
from leasehold.errors import InvalidRequest, LeaseholdError, LeaseLost, NotHeld

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

# ---------------------------------------------------------------- limits
#
# Limits of a holding: what ends a lease however well it is renewed.


NEVER = float("inf")


class HoldLimits:
    """``max_hold`` and ``max_idle``, on the local clock."""

    __slots__ = ("_hold_until", "_idle_from", "_max_idle")

    def __init__(self, at: float, max_hold: float | None, max_idle: float | None) -> None:
        self._hold_until = NEVER if max_hold is None else at + max_hold
        self._max_idle = NEVER if max_idle is None else max_idle
        self._idle_from = at

    def beat(self, now: float) -> None:
        self._idle_from = now

    def ends(self) -> tuple[float, str]:
        idle_until = self._idle_from + self._max_idle
        return (self._hold_until, "max_hold") if self._hold_until <= idle_until else (idle_until, "max_idle")


# ---------------------------------------------------------------- unconfirmed
#
# Changes of a lease that the store has not confirmed: every Renew says them, until one that did is answered.


class UnconfirmedChanges(NamedTuple):
    """Mostly there are none, and this is None."""

    lowering: bool = False  # from writer to reader
    untold: bool = False  # whoever wanted that does not know that it succeeded
    meta: str = ""  # what the holder says of itself
    since: int = 0  # the number of the first Renew that says so

    def on(self, renew: Renew) -> Renew:
        """The Renew that says so."""
        return renew._replace(shared=self.lowering, meta=self.meta)

    def after(self, renew: Renew) -> UnconfirmedChanges | None:
        """What is left when this one was confirmed."""
        meta = "" if renew.number >= self.since else self.meta
        return self._replace(lowering=self.lowering and not renew.shared, meta=meta).left()

    def left(self) -> UnconfirmedChanges | None:
        """None when there is nothing more to say."""
        return self if self.lowering or self.untold or self.meta else None


# ---------------------------------------------------------------- taken
#
# What an acquire has taken: a grant with its times as its holder may believe in them, on the local clock.
#
# They count from when the request was sent, whatever the reply took (trap 23), and never last longer than what was
# asked for: a server whose clock was set back answers that far more remains (trap 49).


@lru_cache(maxsize=1024)
def grant_spans(ttl_ms: int, remaining_ms: int) -> tuple[float, float, float]:
    """How many seconds after a request was sent what it got must be let go of, ends, and is to be renewed: a third of
    the ttl after the store's own count began. Mostly a whole ttl remains, so they are the same again and again."""
    ttl, remaining = ttl_ms / 1000, min(remaining_ms, ttl_ms) / 1000
    deadline = remaining - drift(remaining)
    return deadline - margin(ttl), deadline, remaining - ttl + renew_after(ttl)


def deadline_after(sent: float, remaining_ms: int) -> float:
    """The local deadline of a grant or renewal that was asked for at ``sent``."""
    return sent + grant_spans(remaining_ms, remaining_ms)[1]


def renewal_after(sent: float, ttl_ms: int, remaining_ms: int) -> float:
    """When to renew it."""
    return sent + grant_spans(ttl_ms, remaining_ms)[2]


class LocalGrant:
    """A grant as the acquire flow hands it over."""

    __slots__ = (
        "at",
        "deadline",
        "fence",
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
        self.ttl_ms = ttl_ms
        self.stop_at = sent + stop
        self.deadline = sent + deadline
        self.renew_at = sent + renewal
        self.at = at
        self.unanswered = unanswered  # a claim of this owner may still be under way: release with a tombstone
        self.rule = rule
        self.slots = slots
        self.limit = limit  # of a semaphore: what others go by, when it is another than was asked with

    def usable(self, renews: bool) -> bool:
        """Is there time left to work in? A push that was read late may name a grant that is all but over."""
        return (self.stop_at if renews else self.deadline) > self.at


# ---------------------------------------------------------------- holding


HELD, UNSURE, LOST, RELEASING, RELEASED = "held", "unsure", "lost", "releasing", "released"
ALIVE = (HELD, UNSURE)
MOST_CAUSES = 8
LOSSES = ("expired", "taken", "deleted", "evicted")  # what a store says of a grant that is not there


def without_frames(error: LeaseholdError) -> LeaseholdError:
    """A copy to keep, with copies of what caused it. A traceback would keep its frames, and they keep a connection, or
    the very lease that somebody has dropped (trap 3)."""
    from copy import copy  # seldom needed, and a short command starts without it

    kept = copy(error)
    last: BaseException = kept
    cause = _cause(error)
    for _ in range(MOST_CAUSES):
        if cause is None:
            break
        try:
            last.__cause__ = following = copy(cause)
        except Exception:  # somebody's class that cannot be made anew
            break
        last, cause = following, _cause(cause)
    return kept


def _cause(error: BaseException) -> BaseException | None:
    return error.__cause__ or (None if error.__suppress_context__ else error.__context__)


class Holding:
    """What this process knows of one grant, and until when it may act on it."""

    __slots__ = (
        "_changes",
        "_extended",
        "_extending",
        "_extending_until",
        "_forget",
        "_limits",
        "_number",
        "_releases",
        "_stop_at",
        "_trouble",
        "_wanted_ms",
        "deadline",
        "fence",
        "lock",
        "name",
        "owner",
        "phase",
        "reason",
        "renew_at",
        "renews",
        "rule",
        "slots",
        "ttl_ms",
    )

    def __init__(
        self,
        name: Name,
        taken: LocalGrant,
        lock: AbstractContextManager[Any],
        renews: bool = True,
        max_hold: float | None = None,
        max_idle: float | None = None,
    ) -> None:
        self.name = name
        self.lock = lock
        self.owner = taken.owner
        self.fence = taken.fence
        self.rule = taken.rule
        self.slots = taken.slots
        self.ttl_ms = self._wanted_ms = taken.ttl_ms
        self.deadline = taken.deadline
        self.renews = renews
        self.renew_at = taken.renew_at if renews else NEVER
        self.phase = HELD
        self.reason = ""
        self._trouble: LeaseholdError | None = None  # why the last renewal went unanswered
        self._stop_at = taken.stop_at if renews else taken.deadline
        self._limits: HoldLimits | None = None
        self._changes: UnconfirmedChanges | None = None
        self._forget = taken.unanswered
        self._releases = 0  # that were begun
        self._number = 0
        self._extended = 0  # the number of the last extend
        self._extending = 0
        self._extending_until = 0.0  # however an extend ends, also by an interrupt that hits its very end
        if max_hold is not None or max_idle is not None:
            self._limits = HoldLimits(taken.at, max_hold, max_idle)
            self._set_stop()

    # ------------------------------------------------------------ believing

    def stop_at(self) -> float:
        """When work must stop unless something better is heard."""
        return self._stop_at

    def _set_stop(self) -> None:
        """To be called when one of its times has changed. The margin exists because a renewing lease that could not
        renew needs time to wind down; one that does not renew knows its end."""
        end = self.deadline - margin(self.ttl_ms / 1000) if self.renews else self.deadline
        self._stop_at = end if self._limits is None else min(end, self._limits.ends()[0])

    def settle(self, now: float) -> str:
        """Apply the clock and say the phase. A frozen process learns here that its time is over. Looking needs no
        lock, deciding does."""
        if now >= self._stop_at and self.phase in ALIVE:
            with self.lock:
                return self._settle(now)
        return self.phase

    def _settle(self, now: float) -> str:
        if now >= self._stop_at and self.phase in ALIVE:
            self._lose(self._why())
        return self.phase

    def _why(self) -> str:
        """What ends it at ``stop_at``."""
        if self._limits is not None and self._limits.ends()[0] <= self._stop_at:
            return self._limits.ends()[1]
        return "renewal_failed" if self.phase == UNSURE else "expired"

    def check_at(self) -> float:
        """When the watchdog must look at this lease again. No renewal is due beside an extend."""
        if self.phase not in ALIVE:
            return NEVER
        renew_at = max(self.renew_at, self._extending_until) if self._extending else self.renew_at
        return min(self._stop_at, renew_at)

    def loss(self) -> LeaseLost:
        """The error that tells of it. Where renewals failed, the last failure is its cause."""
        error = LeaseLost(
            f"the lease on {self.name.kind} is lost ({self.reason}): stop the work that it protected",
            reason=self.reason,
            resource=self.name.text,
            owner=public_owner(self.owner),
            fence=self.fence,
        )
        error.__cause__ = self._trouble if self.reason == "renewal_failed" else None
        return error

    def lose(self, reason: str) -> None:
        """Loss decided elsewhere: closed, forked."""
        with self.lock:
            if self.phase in ALIVE:
                self._lose(reason)

    def beat(self, now: float, ahead: float = 0.0) -> None:
        """The work shows that it is alive (max_idle), and may be silent for so many seconds ``ahead`` besides. Too
        late is too late."""
        with self.lock:
            if self._settle(now) in ALIVE and self._limits is not None:
                self._limits.beat(now + ahead)
                self._set_stop()

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
                f"the lease on {self.name.kind} was released",
                resource=self.name.text,
                owner=public_owner(self.owner),
                fence=self.fence,
            )

    def _lose(self, reason: str) -> None:
        self.phase = LOST
        self.reason = reason

    # ------------------------------------------------------------ renewing

    def begin_renewal(self, now: float) -> ops.Renew | None:
        """The Renew to send now; None when there must be none: never after the time to stop, never beside an extend.
        Its budget leaves time for another try, and never exceeds what the lease has left (trap 2)."""
        with self.lock:
            return self._begin_renewal(now)

    def _begin_renewal(self, now: float) -> ops.Renew | None:
        if now >= self._stop_at:
            self._settle(now)
        if self.phase not in ALIVE or (self._extending and now < self._extending_until):
            return None
        return self._renew(self._wanted_ms, renewal_budget_ms(self.ttl_ms), now)

    def raise_ttl(self, ttl_ms: int) -> None:
        """Re-entry with a longer ttl: later renewals ask for it. A shorter one changes nothing (trap 6)."""
        with self.lock:
            self._wanted_ms = max(self._wanted_ms, ttl_ms)

    def begin_extension(self, ttl_ms: int, now: float) -> ops.Renew:
        """The Renew of ``extend``: sets, never adds. A shorter end is believed before it is sent."""
        with self.lock:
            self._require(now)
            self._extending += 1
            self._extended = self._number + 1
            self._wanted_ms = ttl_ms
            sooner = deadline_after(now, ttl_ms)
            if sooner < self.deadline:
                self.deadline = sooner
                self.ttl_ms = min(self.ttl_ms, ttl_ms)
                self._set_stop()
                if self.renews:
                    self.renew_at = min(self.renew_at, renewal_after(now, ttl_ms, ttl_ms))
            return self._awaited_renew(ttl_ms, now, exact=True)

    def _awaited_renew(self, ttl_ms: int, now: float, exact: bool = False) -> ops.Renew:
        """A Renew that somebody waits for, beside those of the watchdog. It may take half of what is left: when it goes
        unanswered, there must be time for a renewal (trap 2)."""
        half_ms = max(int((self._stop_at - now) * 500), 1)
        renew = self._renew(ttl_ms, min(BUDGET_MS, half_ms), now, exact)
        self._extending_until = max(self._extending_until, now + renew.budget_ms / 1000)
        return renew

    def _renew(self, ttl_ms: int, budget_ms: int, now: float, exact: bool = False) -> ops.Renew:
        left_ms = int((self._stop_at - now) * 1000)
        if left_ms < budget_ms:
            budget_ms = max(left_ms, 1)
        self._number += 1
        renew = ops.Renew(self.name.text, self.owner, self.fence, ttl_ms, exact, self._number, 0, "", budget_ms)
        return renew if self._changes is None else self._changes.on(renew)

    def end_change(self) -> None:
        """Whatever came of it, renewals may go on."""
        with self.lock:
            self._extending -= 1

    def apply_reply(self, renew: ops.Renew, sent: float, reply: ops.Renewed | ops.NotYours, now: float) -> None:
        """What the store says to a Renew that was sent at that time."""
        with self.lock:
            self._apply_reply(renew, sent, reply, now)

    def _apply_reply(self, renew: ops.Renew, sent: float, reply: ops.Renewed | ops.NotYours, now: float) -> None:
        """A confirmation is ignored when the lease has ended meanwhile (sticky loss; trap 43), or when it was sent
        before the last extend and speaks of an end that is no longer so (trap 44)."""
        if isinstance(reply, ops.NotYours):
            self._refused(reply.reason)
        elif self.phase in ALIVE and renew.number >= self._extended:
            self.phase = HELD
            self._trouble = None
            if self._changes is not None:
                self._changes = self._changes.after(renew)
            self.ttl_ms = ttl_ms = renew.ttl_ms
            _, deadline, renewal = grant_spans(ttl_ms, reply.remaining_ms)
            self.deadline = max(self.deadline, sent + deadline)
            self._set_stop()
            if self.renews:
                self.renew_at = sent + renewal
        if now >= self._stop_at:
            self._settle(now)

    def refused(self, reason: str) -> None:
        """The store says "not yours", asked or not."""
        with self.lock:
            self._refused(reason)

    def _refused(self, reason: str) -> None:
        """Loss now (trap 1), except for a lease that is being given back (trap 43)."""
        if self.phase in ALIVE:
            self._lose(reason if reason in LOSSES else "taken")

    def renewal_failed(self, now: float, error: LeaseholdError | None = None) -> None:
        """A transport error says nothing: unsure, and try again before the margin."""
        kept = None if error is None else without_frames(error)
        with self.lock:
            self._renewal_failed(now, kept)

    def _renewal_failed(self, now: float, error: LeaseholdError | None) -> None:
        if self.phase in ALIVE:
            self.phase = UNSURE
            self._trouble = error
            if self.renews:
                self.renew_at = now + retry_renewal_after(self.ttl_ms / 1000)

    # ------------------------------------------------------------ giving back

    def begin_release(self, now: float) -> ops.Release | None:
        """The Release to send, or None when there is nothing to give back. From here on renewals are ignored.
        What was lost for a local reason may still be ours in the store, so it is given back as well."""
        with self.lock:
            if now >= self._stop_at:
                self._settle(now)
            if self.phase in ALIVE:
                self.phase = RELEASING
            elif self.phase == RELEASED or self._gone():
                return None
            again = self._releases > 0  # until one is answered, nobody must be told "not yours" (trap 11)
            self._releases += 1
            forget_ms = tombstone_ms(self.ttl_ms) if self._forget else 0
            return ops.Release(self.name.text, self.owner, self.fence, forget_ms, again)

    def _gone(self) -> bool:
        """Is there nothing of it in the store, or nothing that is ours to give back?"""
        return self.reason == "forked" or (self.reason in ("taken", "deleted", "evicted") and not self._forget)

    def end_release(self, op: ops.Release, reply: ops.Released | ops.NotYours) -> bool:
        """True when it was ours until now. "Not yours" means that it was lost while the work believed in it; unless a
        second release of ours, such as that of close(), overtook the first, and nothing is known of it any more."""
        with self.lock:
            if self.phase != RELEASING:
                return False
            overtaken = not op.again and self._releases > 1
            if isinstance(reply, ops.NotYours) and not (overtaken and reply.reason in ("deleted", "taken")):
                self._lose(reply.reason if reply.reason in LOSSES else "taken")
                return False
            self.phase = RELEASED
            return True


# ---------------------------------------------------------------- handover
#
# Handing over: how a holding leaves its holder for whoever has its ticket, and comes back when nobody ever will.
#
# HELD or UNSURE ── transfer's Renew is confirmed ──> RELEASED ── the giver was interrupted ──> its Release


class Transferable(Holding):
    """A holding that its holder can give away."""

    __slots__ = ()

    def begin_transfer(self, ticket: str, now: float) -> ops.Renew:
        """The Renew of ``transfer``: from its arrival on, whoever knows the ticket may adopt. Until it is answered the
        lease stays ours; nobody else knows the ticket."""
        with self.lock:
            self._require(now)
            self._extending += 1
            return self._awaited_renew(self._wanted_ms, now)._replace(ticket=ticket)

    def end_transfer(
        self, giving: Transfer, renew: ops.Renew, sent: float, reply: ops.Renewed | ops.NotYours, now: float
    ) -> None:
        """It waits for its adopter now, for a whole ttl, and is ours no longer. LeaseLost when it was not ours."""
        with self.lock:
            self._apply_reply(renew, sent, reply, now)
            self._require(now)
            giving.done = True
            self.phase = RELEASED

    def recall(self, giving: Transfer) -> ops.Release | None:
        """The Release of what was handed over with a ticket that nobody will ever have: its giver was interrupted."""
        with self.lock:
            if not giving.done or self.phase != RELEASED:
                return None
            giving.done = False
            return ops.Release(self.name.text, self.owner, self.fence, tombstone_ms(self.ttl_ms), again=True)


# ---------------------------------------------------------------- changes
#
# What a holder can change of its lease while it holds it: from writing to reading, and what it says of itself.
#
# A change travels in a Renew of its own, beside those of the watchdog. Until one is confirmed, every Renew says it
# again: a later one may overtake it, and the store then goes by the later.


NONE = UnconfirmedChanges()


class Changeable(Transferable):
    """A holding whose holder can lower it to a reader's, and say something else of itself."""

    __slots__ = ()

    @property
    def shared(self) -> bool:
        """May it only read?"""
        return self.rule == READ

    def begin_downgrade(self, now: float) -> ops.Renew:
        """The Renew of ``downgrade``. From here on it only reads, before the store has heard of it: others may read
        beside it as soon as that has. May be repeated until its caller was told that it succeeded."""
        with self.lock:
            self._require(now)
            changes = self._changes or NONE
            if self.rule != WRITE and not changes.untold:
                raise self._not_a_writer()
            self.rule = READ
            self._changes = changes._replace(lowering=True, untold=True)
            return self._begin_change(now)

    def end_downgrade(self) -> None:
        """Its caller is told."""
        with self.lock:
            self._changes = (self._changes or NONE)._replace(untold=False).left()

    def begin_meta_change(self, meta: str, now: float) -> ops.Renew:
        """The Renew that says something else of its holder."""
        with self.lock:
            self._require(now)
            self._changes = (self._changes or NONE)._replace(meta=meta, since=self._number + 1)
            return self._begin_change(now)

    def _begin_change(self, now: float) -> ops.Renew:
        self._extending += 1
        return self._awaited_renew(self._wanted_ms, now)

    def _not_a_writer(self) -> InvalidRequest:
        if self.rule == READ:
            return InvalidRequest(
                f"the lease on {self.name.kind} reads already: there is nothing to downgrade", resource=self.name.text
            )
        return InvalidRequest(
            f"the lease on {self.name.kind} is no writer's: downgrade() is for what rwlock(...).write() gives",
            resource=self.name.text,
        )
