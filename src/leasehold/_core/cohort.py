"""Cohorts: those of one coordinator who wait for one resource, and how a lease passes from one of them to the next.

Only one of them, the leader, has a claim in the store; the others wait behind it, in order of arrival. When the leader
has been granted and is done, the lease does not go back to the store: it passes to the next of the cohort, with a fence
of its own. The store sees one grant all the while, with one owner and one fence; only the fences for those who follow
are reserved there beforehand (``Renew.fences``), so that nothing else ever mints them.

Nothing is passed that the store might not agree with: the lease must be sure and have time left, and its fences were
reserved. Nobody elsewhere waits for longer than a cohort's turn: it may pass MOST_PASSES times and for PASS_SECONDS
after the store was last asked; then it asks again, and where others wait it gives the lease back.

A lease may also linger (``linger=``): nobody waits here, and the process keeps it for a moment, unused and not renewed,
for the next one who wants it. The store tells the process when a claim of somebody else has to wait.

A release asks a cohort what to do, and does it:

    PASS       the next one takes over at once
    KEEP       it lingers
    ASK        first reserve fences, which also renews the lease and tells whether others wait; then decide again
    GIVE_BACK  release it in the store; the next one of the cohort becomes the leader, and claims
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from leasehold._core import ops
from leasehold._core.holding import Holding
from leasehold._core.light_typing import Any
from leasehold._core.policy import MOST_PASSES, PASS_SECONDS, RENEWAL_MS, tombstone_ms
from leasehold.errors import OutcomeUnknown, StoreUnavailable

PASS, KEEP, ASK, GIVE_BACK = "pass", "keep", "ask", "give back"


class Member:
    """One who waits in a cohort. ``held`` is what was passed to it; ``leads``: it is to claim in the store itself."""

    __slots__ = ("held", "leads")

    def __init__(self) -> None:
        self.held: Any = None
        self.leads = False

    def wake(self) -> None:
        """Something was decided for it."""

    def gone(self) -> bool:
        """Has its thread or task ended, so that nobody would take what is passed to it?"""
        return False


class Cohort:
    """The waiters of one coordinator for one resource, with equal locks. Changed under one lock, the coordinator's."""

    __slots__ = (
        "_asked_at",
        "_last",
        "_next",
        "_others",
        "_passes",
        "_tells",
        "_told",
        "_unseen",
        "holder",
        "kept",
        "key",
        "leader",
        "lingers_until",
        "resource",
        "waiting",
    )

    def __init__(self, key: tuple[Any, ...], leader: object) -> None:
        self.key = key
        self.resource: str = key[0]
        self.leader: object = leader  # who claims in the store now; None while a lease of the cohort is held
        self.holder: Any = None  # what is held
        self.kept: Any = None  # the lease that lingers: its last holder has done with it, and nobody has it now
        self.lingers_until = 0.0
        self.waiting: deque[Member] = deque()
        self._forget()

    def _forget(self) -> None:
        """What is known from a grant is not known of the next one."""
        self._next = self._last = 0  # the fences that are left
        self._asked_at: float | None = None
        self._others = False
        self._passes = 0
        self._unseen = 0  # passes since the store last said that nobody waits elsewhere
        self._tells = False  # it will tell when somebody does
        self._told = False  # it has done so since it was last asked

    # ------------------------------------------------------------ who comes next

    def granted(self, holding: Holding, last_fence: int = 0, at: float = 0.0) -> None:
        """The leader's claim was granted. ``last_fence``: at the end of a wait behind others elsewhere, with fences for
        those who wait here now."""
        self._forget()
        self.holder, self.leader = holding, None
        if last_fence:
            self._next, self._last, self._asked_at, self._others = holding.fence + 1, last_fence, at, True
            self._passes = min(len(self.waiting), MOST_PASSES)

    def fences_wanted(self) -> int:
        """How many the next grant should bring: its own, and those for the ones who wait."""
        return MOST_PASSES + 1 if self.waiting else 1

    def next_leader(self) -> Member | None:
        """The next one is to claim; None when nobody waits, and the cohort is over."""
        self.holder = self.leader = None
        while self.waiting:
            member = self.waiting.popleft()
            if not member.gone():
                member.leads, self.leader = True, member
                return member
        return None

    def next_holder(self) -> tuple[Member, int] | None:
        """The next one, and its fence. After ``decide`` has said PASS."""
        while self.waiting:
            member = self.waiting.popleft()
            if not member.gone():
                fence = self._next
                self._next += 1
                self._passes -= 1
                self._unseen += 1
                return member, fence
        return None

    # ------------------------------------------------------------ what a release does

    def decide(self, holding: Holding, now: float, floor: int, lingers: bool = False) -> str:
        """What to do with a lease that its holder has done with. ``floor``: the latest fence that a guard has refused
        one of ours for. Where those that are left are not above it, a new claim is needed, which is granted above.
        ``lingers``: it may stay here unused."""
        if not (self.waiting or lingers) or not holding.may_pass(now):
            return GIVE_BACK
        if self._asked_at is not None:
            if self._last and self._next <= floor:
                return GIVE_BACK
            lately = now - self._asked_at < PASS_SECONDS
            if self._passes > 0 and 0 < self._next <= self._last:
                if self.waiting:
                    if lately:
                        return PASS
                elif (lately or self._tells) and not self._others and now < holding.renew_at:
                    return KEEP
            if self._others or not self._last:
                return GIVE_BACK
        # A question could take what is left of it. One takes half a second at most, so that a max_hold which is short
        # beside the ttl is no reason not to ask.
        near_its_end = holding.stop_at - now < min(holding.ttl_ms / 4, 4 * RENEWAL_MS) / 1000
        return GIVE_BACK if near_its_end else ASK

    def may_take(self, now: float, floor: int) -> bool:
        """Can what lingers be taken up again? ``floor`` as of ``decide``."""
        kept = self.kept
        return kept is not None and now < kept.stop_at and self._next > floor and not self._others

    def take(self) -> int:
        """What lingers has a holder again, with this fence. After ``may_take``."""
        self.kept = None
        fence = self._next
        self._next += 1
        self._passes -= 1
        self._unseen += 1
        return fence

    def release_kept(self) -> ops.Release | None:
        """The Release of what lingers, which does so no longer."""
        kept, self.kept = self.kept, None
        if kept is None:
            return None
        owner, fence = kept.in_store()
        return ops.Release(self.resource, owner, fence, tombstone_ms(kept.ttl_ms) if kept.unanswered else 0)

    def wanted_elsewhere(self) -> None:
        """The store says that a claim of somebody else waits: from now on each who waits here gets one turn. It may say
        so before its answer to a question arrives, which was given earlier."""
        self._others = self._told = True
        self._passes = min(self._passes, len(self.waiting), MOST_PASSES - self._unseen)

    def asks(self) -> int:
        """The store is asked now. How many fences to reserve."""
        self._told = False
        return MOST_PASSES

    def reserved(self, reply: ops.Renewed, at: float, tells: bool = False) -> None:
        """The store has answered. While others wait elsewhere, each who waits here now gets one turn. Those others may
        have come at any time since the store was last asked: all in all they are overtaken MOST_PASSES times.
        ``tells``: from here on it says when a claim has to wait."""
        others = reply.others or self._told
        self._next, self._last, self._others, self._asked_at = reply.first, reply.last, others, at
        self._tells = tells and not others
        if not others:
            self._unseen = 0
        self._passes = min(len(self.waiting), MOST_PASSES - self._unseen) if others else MOST_PASSES


async def prepare(
    cohort: Cohort, holding: Holding, now: float, floor: Callable[[], int], lingers: bool = False, tells: bool = False
) -> bool:
    """Is the lease to be passed on, or to linger? False: it has to be given back. Asks the store where that is
    necessary. Whoever is cancelled or interrupted meanwhile has done with the lease: it is given back in the
    background. ``tells``: the store can tell of claims that have to wait."""
    decision = cohort.decide(holding, now, floor(), lingers)
    if decision == ASK:
        renew = holding.begin_reservation(cohort.asks(), now, tells)
        if renew is None:
            return False
        try:
            answer = await renew
        except (StoreUnavailable, OutcomeUnknown) as error:
            holding.renewal_failed(now, error)
            return False
        except GeneratorExit:
            raise
        except BaseException:
            release = holding.begin_release(now)
            if release is not None:
                await ops.Defer(release, holding.ttl_ms / 1000)
            raise
        holding.apply_reply(renew, now, answer.reply, answer.at)
        with holding.lock:
            # It may be over by now, and the next of the cohort have a higher fence: then these are too low.
            if isinstance(answer.reply, ops.Renewed) and cohort.holder is holding:
                cohort.reserved(answer.reply, answer.at, tells)
        decision = cohort.decide(holding, answer.at, floor(), lingers)
    return decision in (PASS, KEEP)
