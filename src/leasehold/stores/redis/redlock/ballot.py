"""One claim: what the nodes reply to it, whether a majority grants it, and which fence it has."""

from __future__ import annotations

from collections import Counter

from leasehold._core import ops
from leasehold._core.policy import tombstone_ms
from leasehold.errors import LeaseholdError, OutcomeUnknown, Unsupported
from leasehold.stores.redis import protocol
from leasehold.stores.redis.redlock.answers import Answer, ReplyError, decoded, first, too_few
from leasehold.stores.redis.redlock.quorum import Quorum, Vote


class Ballot:
    """The replies of the nodes to one claim."""

    def __init__(self, quorum: Quorum, op: ops.Claim) -> None:
        self._quorum = quorum
        self._op = op
        self._results: list[Vote | LeaseholdError | None] = [None] * len(quorum.nodes)
        self._faults: list[str] = [""] * len(quorum.nodes)  # of their memory
        self._fences: dict[int, int] = {}  # of the nodes that have granted and have forgotten nothing
        self._refusals = 0
        self._decided = False

    def take(self, place: int, answer: Answer) -> bool:
        """True when nothing that is still to come can change the outcome. Where too few nodes count, all get their
        time, so that the error can name what is wrong with each. The first call waits for every node, so that a wrong
        one is refused at once."""
        result = self._results[place] = self._vote(place, answer)
        if not self._quorum.met:
            return isinstance(result, Unsupported)
        self._decided = self._decided or self._is_decided()
        return self._decided

    def _is_decided(self) -> bool:
        majority, spare = self._quorum.majority, len(self._results) - self._quorum.majority
        if len(self._fences) >= majority and len(self.chosen()) >= majority:
            return True
        return self._refusals > spare and self._sound_refusals() > spare

    def _vote(self, place: int, answer: Answer) -> Vote | LeaseholdError:
        reply, quorum = first(answer), self._quorum
        if isinstance(reply, (ReplyError, LeaseholdError)):
            return decoded(quorum, place, reply, self._op)  # type: ignore[no-any-return]  # an error
        raw, since_us, now_us, longest_ttl_ms = reply
        quorum.learn_clock(place, now_us, answer.sent, answer.received)
        quorum.learn_longest_ttl(place, longest_ttl_ms)
        vote = Vote(protocol.decode(raw, self._op), since_us, now_us)
        fault = self._faults[place] = quorum.memory_fault(place, vote, answer.sent)
        if not isinstance(vote.reply, ops.Granted):
            self._refusals += 1
        elif not fault:
            self._fences[place] = vote.reply.fence
        return vote

    def raise_unsupported(self) -> None:
        """In the first call. A node that turns out to be a wrong one later, such as a master that was made a replica,
        only does not count."""
        for result in self._results:
            if isinstance(result, Unsupported) and not self._quorum.met:
                raise result

    def _sound_refusals(self) -> int:
        votes = [place for place, result in enumerate(self._results) if isinstance(result, Vote)]
        return len([place for place in votes if not self._granted(place) and not self._fault(place)])

    def _granted(self, place: int) -> bool:
        result = self._results[place]
        return isinstance(result, Vote) and isinstance(result.reply, ops.Granted)

    def chosen(self) -> dict[int, int]:
        """The nodes whose grants count, each with the fence that it gave. Whether a clock is right may show later than
        the grant."""
        off = self._quorum.clock_faults(self._fences)
        return {place: fence for place, fence in self._fences.items() if place not in off} if off else self._fences

    def remaining_ms(self, chosen: dict[int, int]) -> int:
        left: list[int] = [
            result.reply.remaining_ms for place in chosen if isinstance(result := self._results[place], Vote)
        ]
        return min(left)

    def may_hold(self, place: int, unanswered: bool = True) -> bool:
        """It has granted, or was sent the claim and has not replied."""
        return self._granted(place) or (unanswered and isinstance(self._results[place], OutcomeUnknown))

    def withdrawals(self) -> list[ops.Withdraw | None]:
        """Where the claim went unanswered it may still arrive, and must get nothing then."""
        late = ops.Withdraw(self._op.resource, self._op.owner, tombstone_ms(self._op.ttl_ms))
        granted = late._replace(forget_ms=0)
        return [
            granted if self._granted(place) else late if self.may_hold(place) else None
            for place in range(len(self._results))
        ]

    def refusal(self, again_ms: int) -> ops.Reply:
        """Why there is no majority: others hold it, or too few nodes count, which is raised."""
        faults = {place: self._fault(place) for place in range(len(self._results))}
        sound = [self._results[place].reply for place, fault in faults.items() if not fault]  # type: ignore[union-attr]  # a Vote has no fault
        for reply in sound:
            if isinstance(reply, ops.Rejected):
                return reply
        if len(sound) < self._quorum.majority:
            error = too_few(self._quorum, [fault for fault in faults.values() if fault])
            error.resource = self._op.resource
            raise error
        busy = [reply for reply in sound if isinstance(reply, ops.Busy)]
        if not busy:
            return next((reply for reply in sound if isinstance(reply, ops.NoClaim)), ops.Busy("", 0, 0, again_ms))
        holder = Counter(reply.holder for reply in busy).most_common(1)[0][0]
        free_in = sorted([reply.retry_in_ms if isinstance(reply, ops.Busy) else 0 for reply in sound])
        return ops.Busy(holder, free_in[self._quorum.majority - 1], 0, again_ms)

    def _fault(self, place: int) -> str:
        """Why this node does not count; empty if it does."""
        result = self._results[place]
        if not isinstance(result, Vote):
            return str(result)
        fault = self._faults[place] or self._quorum.clock_faults([place]).get(place)
        return f"Redis at {self._quorum.nodes[place].address}: {fault}" if fault else ""
