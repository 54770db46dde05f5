"""Renewals, releases and withdrawals: what the nodes reply to each, and what that means together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from leasehold._core import ops
from leasehold._core.light_typing import Any
from leasehold.errors import LeaseholdError, OutcomeUnknown, StoreUnavailable, Unsupported
from leasehold.stores.redis import protocol
from leasehold.stores.redis.redlock import commands
from leasehold.stores.redis.redlock.answers import RELEASED, Answer, Outcome, code, decoded, node_seconds, too_few
from leasehold.stores.redis.redlock.commands import Batch
from leasehold.stores.redis.redlock.quorum import Quorum

OTHER_FENCE = ops.NotYours("taken")  # what a node says to the right owner with another fence, among others


class Sent:
    """Ops that travel together, and what is made of the replies of each node to them."""

    def __init__(self, quorum: Quorum, tallies: Sequence[Tally]) -> None:
        self._quorum = quorum
        self.tallies = tallies
        self.releases = any(isinstance(tally, ReleaseTally) for tally in tallies)
        self._renews = any(isinstance(tally, RenewalTally) for tally in tallies)
        self._decided = False
        batch = [protocol.command(tally.op) for tally in tallies]
        self.batch = Batch([*batch, ("TIME",)] if self._renews else batch)  # a renewal needs to know the clocks

    def take(self, place: int, answer: Answer) -> bool:
        """True when all are decided."""
        outcome = answer.outcome
        if self._renews and type(outcome) is list and type(time := outcome[-1]) is list:
            self._quorum.learn_clock(place, int(time[0]) * 1_000_000 + int(time[1]), answer.sent, answer.received)
        for at, tally in enumerate(self.tallies):
            reply = outcome[at] if type(outcome) is list else outcome
            tally.results[place] = decoded(self._quorum, place, reply, tally.op)
        self._decided = self._decided or None not in [tally.verdict() for tally in self.tallies]
        return self._decided

    def follow(self, place: int, outcome: Outcome) -> list[ops.Withdraw]:
        """A node that has not confirmed a release may still have the lease: under another fence, say."""
        return [
            ops.Withdraw(tally.op.resource, tally.op.owner, tally.op.forget_ms)
            for at, tally in enumerate(self.tallies)
            if isinstance(tally, ReleaseTally) and (type(outcome) is not list or code(outcome[at]) != RELEASED)
        ]

    def fences_to_raise(self) -> list[Batch | None]:
        """A node that gave a lease another fence than the majority does not renew it until it has the right one."""
        found: list[Batch | None] = []
        renewals = [tally for tally in self.tallies if isinstance(tally, RenewalTally)]
        for place in range(len(self._quorum.nodes) if renewals else 0):
            other = [tally.op for tally in renewals if tally.results[place] == OTHER_FENCE and not tally.is_lost()]
            raised = [commands.raise_fence(op.resource, op.owner, op.fence) for op in other]
            found.append(Batch(raised) if raised else None)
        return found


class Tally:
    """The replies of the nodes to one op, and what they mean together."""

    sends = True

    def __init__(self, op: Any, quorum: Quorum) -> None:
        self.op = op
        self._quorum = quorum
        self.results: list[Any] = [None] * len(quorum.nodes)

    def seconds(self) -> float:
        seconds: float = self.op.budget_ms / 1000
        return seconds

    def verdict(self) -> ops.Reply | LeaseholdError | None:
        """None: it is not decided yet."""
        raise NotImplementedError

    def undecided(self) -> LeaseholdError:
        """The time is over, and nobody knows."""
        errors = [one for one in self.results if isinstance(one, LeaseholdError)]
        error = too_few(self._quorum, [str(one) for one in errors])
        if any(not isinstance(one, StoreUnavailable) for one in self.results):
            return OutcomeUnknown(str(error), resource=self.op.resource)
        error.resource = self.op.resource
        return error

    def _of(self, kind: type) -> dict[int, Any]:
        return {place: reply for place, reply in enumerate(self.results) if isinstance(reply, kind)}

    def _refused(self) -> ops.NotYours | None:
        """So many nodes do not have it that no majority can."""
        refused = list(self._of(ops.NotYours).values())
        if len(refused) <= len(self.results) - self._quorum.majority:
            return None
        return ops.NotYours(Counter(reply.reason for reply in refused).most_common(1)[0][0])


class RenewalTally(Tally):
    """A node that confirms has the lease; only its clock could end it too soon."""

    def seconds(self) -> float:
        return node_seconds(self.op.ttl_ms, self.op.budget_ms)

    def verdict(self) -> ops.Reply | LeaseholdError | None:
        confirmed = self._of(ops.Renewed)
        off = self._quorum.clock_faults(confirmed)
        counting = [reply for place, reply in confirmed.items() if place not in off]
        if len(counting) >= self._quorum.majority:
            return ops.Renewed(min(reply.remaining_ms for reply in counting))
        return self._refused()

    def is_lost(self) -> bool:
        return isinstance(self.verdict(), ops.NotYours)

    def undecided(self) -> LeaseholdError:
        for place, fault in self._quorum.clock_faults(self._of(ops.Renewed)).items():
            self.results[place] = OutcomeUnknown(f"Redis at {self._quorum.nodes[place].address}: {fault}")
        return super().undecided()


class ReleaseTally(Tally):
    """A majority has ended it. What is left on the others is withdrawn."""

    def verdict(self) -> ops.Reply | LeaseholdError | None:
        released = [reply for reply in self.results if isinstance(reply, ops.Released)]
        if len(released) >= self._quorum.majority:
            return ops.Released(any(reply.found for reply in released))
        return self._refused() if self._of(ops.NotYours) else None


class WithdrawalTally(Tally):
    """Nothing may be left anywhere: every node must confirm it."""

    def verdict(self) -> ops.Reply | LeaseholdError | None:
        withdrawn = self._of(ops.Withdrawn)
        if len(withdrawn) < len(self.results):
            return None
        found = [reply.found for reply in withdrawn.values()]
        return ops.Withdrawn("held" if "held" in found else "nothing")


class NoQueue(Tally):
    """Nobody waits in a queue here."""

    sends = False

    def verdict(self) -> ops.Reply | LeaseholdError | None:
        return ops.NoClaim("withdrawn")


class NotHere(Tally):
    """What no majority can decide."""

    sends = False

    def verdict(self) -> ops.Reply | LeaseholdError | None:
        return Unsupported(f"{type(self.op).__name__.lower()} is not possible on a Redlock", resource=self.op.resource)


TALLIES: dict[type, type[Tally]] = {
    ops.Renew: RenewalTally,
    ops.Release: ReleaseTally,
    ops.Withdraw: WithdrawalTally,
    ops.Beat: NoQueue,
}


def tally_of(op: Any, quorum: Quorum) -> Tally:
    return TALLIES.get(type(op), NotHere)(op, quorum)
