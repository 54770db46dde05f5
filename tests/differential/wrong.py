"""Stores that are wrong on purpose, each in one way that somebody could write by mistake."""

from __future__ import annotations

from collections.abc import Sequence

from leasehold._core import ledger, ops
from leasehold._core.types import Instant
from tests.differential.subjects import LedgerSubject


class RenewShortens(LedgerSubject):
    def turn(self, op: ops.StoreOp) -> ops.Reply:
        """Every renewal sets the end (trap 44)."""
        return super().turn(op._replace(exact=True, number=99) if isinstance(op, ops.Renew) else op)


class CountsFences(LedgerSubject):
    def turn(self, op: ops.StoreOp) -> ops.Reply:
        """The next fence is the last one plus one, without the clock as a floor (trap 14)."""
        if isinstance(op, (*ops.LISTINGS, ops.Group)):
            return super().turn(op)
        state = self.states.get(op.resource, ledger.EMPTY)
        now = Instant(self.clock.instant().ms, 0)
        outcome = ledger.apply(state, now, op, self.reachable)
        self.states[op.resource] = outcome.state
        return outcome.reply


class IgnoresTheFence(LedgerSubject):
    def turn(self, op: ops.StoreOp) -> ops.Reply:
        """Release compares the owner alone, as most locks in Redis do."""
        if isinstance(op, ops.Release):
            for grant in self.states.get(op.resource, ledger.EMPTY).holders:
                if grant.owner == op.owner:
                    return super().turn(op._replace(fence=grant.fence))
        return super().turn(op)


class NoTombstones(LedgerSubject):
    def turn(self, op: ops.StoreOp) -> ops.Reply:
        """A late claim of somebody who gave up takes the lock (traps 9 and 10)."""
        return super().turn(op._replace(forget_ms=0) if isinstance(op, (ops.Withdraw, ops.Release)) else op)


class GrantsTheDead(LedgerSubject):
    def reachable(self, address: str) -> bool:
        """Nobody looks whether a waiter's process is there (trap 25)."""
        return True


class LastComeFirstServed(LedgerSubject):
    def turn(self, op: ops.StoreOp) -> ops.Reply:
        """The queue is a stack."""
        state = self.states.get(op.resource, ledger.EMPTY)
        if isinstance(op, (ops.Release, ops.Withdraw)):
            self.states[op.resource] = state._replace(queue=state.queue[::-1])
        return super().turn(op)


class SaysNothing(LedgerSubject):
    def heard(self, expected: Sequence[ops.Push]) -> list[ops.Push]:
        """It grants, and wakes nobody (trap 24)."""
        super().heard(expected)
        return []


class NamesTheWrongBeat(LedgerSubject):
    def heard(self, expected: Sequence[ops.Push]) -> list[ops.Push]:
        """The push names the beat after the one that was heard (trap 41)."""
        return [push._replace(beat=push.beat + 1) for push in super().heard(expected)]


class ProlongsWhenAskedAgain(LedgerSubject):
    def turn(self, op: ops.StoreOp) -> ops.Reply:
        """A repeated claim is told of a whole ttl (trap 42)."""
        reply = super().turn(op)
        if isinstance(op, ops.Beat) and isinstance(reply, ops.Granted):
            return reply._replace(remaining_ms=self.states[op.resource].holders[0].ttl_ms)
        return reply


class ForgetsTheDoor(LedgerSubject):
    def turn(self, op: ops.StoreOp) -> ops.Reply:
        """The minimum hold ends with the release."""
        return super().turn(op._replace(closed_ms=0) if isinstance(op, ops.Renew) else op)


class AdoptsForAnybody(LedgerSubject):
    def turn(self, op: ops.StoreOp) -> ops.Reply:
        """Whoever knows the fence may adopt."""
        return super().turn(op._replace(ticket="right") if isinstance(op, ops.Adopt) else op)


class NotesTwice(LedgerSubject):
    def turn(self, op: ops.StoreOp) -> ops.Reply:
        """An eviction that is asked for again is noted again."""
        held = [grant.owner for grant in self.states.get(op.resource, ledger.EMPTY).holders]
        reply = super().turn(op)
        if isinstance(op, ops.Evict) and isinstance(reply, ops.Evicted) and op.owner not in held:
            state = self.states[op.resource]
            self.states[op.resource] = state._replace(notes=(*state.notes, state.notes[-1]))
        return reply


class RevokeTakes(LedgerSubject):
    def turn(self, op: ops.StoreOp) -> ops.Reply:
        """Whoever is asked to give back has lost it."""
        reply = super().turn(op)
        if isinstance(reply, ops.HolderAsked):
            self.states[op.resource] = self.states[op.resource]._replace(holders=())
        return reply


class ReadersOvertake(LedgerSubject):
    def turn(self, op: ops.StoreOp) -> ops.Reply:
        """Whoever fits comes in, whoever waits."""
        state = self.states.get(op.resource, ledger.EMPTY)
        if not isinstance(op, ops.Claim) or not state.holders or op.owner in [one.owner for one in state.queue]:
            return super().turn(op)
        self.states[op.resource] = state._replace(queue=())
        reply = super().turn(op)
        after = self.states[op.resource]
        self.states[op.resource] = after._replace(queue=state.queue + after.queue)
        return reply


class OpensDoorsOfPermits(LedgerSubject):
    def turn(self, op: ops.StoreOp) -> ops.Reply:
        """What somebody shared is free at once, whatever was agreed."""
        reply = super().turn(op)
        if op.resource in self.states:
            self.states[op.resource] = self.states[op.resource]._replace(doors=())
        return reply


class NeverResizes(LedgerSubject):
    def turn(self, op: ops.StoreOp) -> ops.Reply:
        """Each goes by its own limit, for ever."""
        reply = super().turn(op)
        if isinstance(op, ops.Resize):
            self.states[op.resource] = self.states[op.resource]._replace(limit=0, limit_until_us=0)
        return reply


class NeverDowngrades(LedgerSubject):
    def turn(self, op: ops.StoreOp) -> ops.Reply:
        """Whoever writes goes on writing."""
        return super().turn(op._replace(shared=False) if isinstance(op, ops.Renew) else op)


class TellsNoWatcher(LedgerSubject):
    def heard(self, expected: Sequence[ops.Push]) -> list[ops.Push]:
        """Whoever watches has to look."""
        return [push for push in super().heard(expected) if push.event != "changed"]


class TakesTheRest(LedgerSubject):
    def steps(self, op: ops.Group) -> ops.Replies:
        """Whoever waits for one of several takes the others meanwhile: two of them wait for each other for ever."""
        return ledger.group_reply([self.turn(step) for step in op.steps])


WRONG: tuple[type[LedgerSubject], ...] = (
    AdoptsForAnybody,
    CountsFences,
    ForgetsTheDoor,
    GrantsTheDead,
    IgnoresTheFence,
    LastComeFirstServed,
    NamesTheWrongBeat,
    NeverDowngrades,
    NeverResizes,
    NoTombstones,
    NotesTwice,
    OpensDoorsOfPermits,
    ProlongsWhenAskedAgain,
    ReadersOvertake,
    RenewShortens,
    RevokeTakes,
    SaysNothing,
    TakesTheRest,
    TellsNoWatcher,
)
