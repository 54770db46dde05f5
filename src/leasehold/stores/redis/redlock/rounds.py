"""The rule of Redlock, written once as flows for threads and event loops. Pure: a flow yields what is to be sent, and
gets what came back.

    Round   send these to the nodes, all at once, and wait until ``take`` has enough or until the time is over
    Leave   send these withdrawals after what was sent before, wait for nothing, and see to it that they arrive

A claim asks all nodes to give the same fence, a little ahead of their clocks. If a majority does, one round is enough.
If not, the highest of a majority is the fence, and a second round writes it back to a majority. Either way every later
majority has a node that gives a higher one. Only then is the time that is left computed: by the caller, from before the
first round. A claim without a majority came to nothing, whatever single nodes did: it is withdrawn, and is never in
doubt.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Sequence

import hiredis

from leasehold._core import ops
from leasehold._core.light_typing import Any, NamedTuple, TypeAlias
from leasehold._core.policy import tombstone_ms
from leasehold._core.types import Grant
from leasehold.errors import LeaseholdError, OutcomeUnknown, StoreUnavailable, Unsupported
from leasehold.stores.redis import failures, protocol
from leasehold.stores.redis.redlock import commands
from leasehold.stores.redis.redlock.commands import Batch
from leasehold.stores.redis.redlock.quorum import Quorum, Vote

NODE_SHARE = 10  # a node may take this part of the ttl
READ_SECONDS = 1.0  # to read from all nodes, when those that have replied do not agree
RELEASE_SECONDS = 60.0  # for which a release is repeated for a node that has not confirmed it
ReplyError = hiredis.ReplyError
Outcome: TypeAlias = "list[Any] | LeaseholdError"  # the replies to all commands of a batch, or the error of all of them


class Answer(NamedTuple):
    """What came of a batch on one node. StoreUnavailable: nothing was sent. Times are local."""

    outcome: Outcome
    sent: float
    received: float


class Round(NamedTuple):
    """For each node the commands that it gets, or None. ``take`` gets one answer of each of them, and says whether
    nothing that is still to come matters. ``follow`` says what is to be withdrawn on a node because of what came of its
    commands there, however late that is known."""

    batches: Sequence[Batch | None]
    seconds: float
    take: Callable[[int, Answer], bool]
    follow: Callable[[int, Outcome], Sequence[ops.Withdraw]] | None = None


class Leave(NamedTuple):
    """For each node what is to be withdrawn there, or None; for so many seconds it is tried again."""

    withdrawals: Sequence[ops.Withdraw | None]
    seconds: float


Flow: TypeAlias = "Generator[Round | Leave, None, Any]"


class Rounds:
    """The flows of one store. ``now`` is the local clock. ``pause`` says after how many ms a claim that waits is worth
    another try: it must differ from client to client, or they would split the nodes among themselves again and
    again."""

    def __init__(self, quorum: Quorum, longest_ttl_ms: int, pause: Callable[[], int], now: Callable[[], float]) -> None:
        self._quorum = quorum
        self._longest_ttl_ms = longest_ttl_ms
        self._pause = pause
        self._now = now

    def execute(self, op: ops.StoreOp) -> Flow:
        """The reply to one op; an error is raised."""
        if isinstance(op, ops.Claim):
            return self._claim(op)
        if isinstance(op, (ops.Inspect, ops.Watch)):
            return self._inspect(op)
        if isinstance(op, ops.LISTINGS):
            return self._list(op)
        return self._only(op)

    # ------------------------------------------------------------ claims

    def _claim(self, op: ops.Claim) -> Flow:
        quorum = self._quorum
        if op.ttl_ms > self._longest_ttl_ms:
            return ops.Rejected(f"the ttl is longer than max_ttl, which is {self._longest_ttl_ms / 1000:g} s here")
        seconds = _node_seconds(op.ttl_ms, op.budget_ms)
        ballot = Ballot(quorum, op)
        batch = Batch([commands.vote(op, quorum.next_fence(self._now()), self._longest_ttl_ms)])
        yield Round([batch] * len(quorum.nodes), seconds, ballot.take)
        ballot.raise_unsupported()
        quorum.met = True
        chosen = ballot.chosen()
        if len(chosen) >= quorum.majority:
            fence = max(chosen.values())
            written = yield from self._write_back(op, ballot, chosen, fence, seconds)
            if written:
                return ops.Granted(fence, ballot.remaining_ms(chosen))
        yield Leave(ballot.withdrawals(), op.ttl_ms / 1000)
        if len(chosen) >= quorum.majority:
            raise StoreUnavailable("the nodes granted a lease, but a majority did not confirm its fence in time")
        return ballot.refusal(self._pause())

    def _write_back(self, op: ops.Claim, ballot: Ballot, chosen: dict[int, int], fence: int, seconds: float) -> Flow:
        """The fence on a majority, before anybody relies on it. While it is not, a node that is slow gets it too, after
        its claim. Where a majority gave it by itself, nobody waits for the others: a renewal looks after them."""
        majority, places = self._quorum.majority, range(len(self._quorum.nodes))
        there = {place for place, given in chosen.items() if given == fence}
        enough = len(there) >= majority
        lower = [place for place in places if place not in there and ballot.may_hold(place, not enough)]
        if not lower:
            return enough
        open_places = {place for place in lower if place in chosen}

        def take(place: int, answer: Answer) -> bool:
            if place in open_places and _code(_first(answer)) == RENEWED:
                there.add(place)
            open_places.discard(place)
            return len(there) >= majority or len(there) + len(open_places) < majority

        batch = Batch([commands.raise_fence(op.resource, op.owner, fence)])
        yield Round([batch if place in lower else None for place in places], 0 if enough else seconds, take)
        return len(there) >= majority

    # ------------------------------------------------------------ renewals, releases, withdrawals

    def _only(self, op: ops.StoreOp) -> Flow:
        (outcome,) = yield from self.execute_many([op])
        if isinstance(outcome, LeaseholdError):
            raise outcome
        return outcome

    def execute_many(self, many: Sequence[ops.StoreOp]) -> Flow:
        """Renewals, releases and withdrawals, all in one round. A reply or an error for each."""
        tallies = [_tally(op, self._quorum) for op in many]
        sent = Sent(self._quorum, [tally for tally in tallies if tally.sends])
        if sent.tallies:
            count = len(self._quorum.nodes)
            seconds = min([tally.seconds() for tally in sent.tallies])
            yield Round([sent.batch] * count, seconds, sent.take, sent.follow if sent.releases else None)
            raised = sent.fences_to_raise()
            if any(raised):
                yield Round(raised, 0, lambda place, answer: True)
        return [tally.verdict() or tally.undecided() for tally in tallies]

    # ------------------------------------------------------------ reading

    def _inspect(self, op: ops.Inspect | ops.Watch) -> Flow:
        """What a majority says. A watcher polls: it is not registered with any node."""
        look = op if isinstance(op, ops.Inspect) else ops.Inspect(op.resource, op.budget_ms)
        majority, count = self._quorum.majority, len(self._quorum.nodes)
        views: list[ops.View] = []
        errors: list[LeaseholdError] = []

        def take(place: int, answer: Answer) -> bool:
            view = self._decoded(place, answer, look)
            if isinstance(view, LeaseholdError):
                errors.append(view)
            else:
                views.append(view)
            agreed = Counter([tuple(sorted([grant.owner for grant in view.holders])) for view in views])
            return any(count >= majority for count in agreed.values())

        seconds = min(op.budget_ms / 1000, READ_SECONDS)
        yield Round([Batch([protocol.command(look)])] * count, seconds, take)
        if len(views) < majority:
            raise self._too_few(errors)
        return _common_view(views, majority)

    def _list(self, op: ops.Scan | ops.Leaks) -> Flow:
        """Page by page from every node at once. A name is listed if any node has it."""
        count = len(self._quorum.nodes)
        cursors = op.cursor.split(",") if op.cursor else ["0"] * count  # empty: that node has been read
        pages: dict[int, Any] = {}

        def take(place: int, answer: Answer) -> bool:
            pages[place] = self._decoded(place, answer, op)
            return False

        batches = [Batch([protocol.command(op._replace(cursor=cursor))]) if cursor else None for cursor in cursors]
        yield Round(batches, min(op.budget_ms / 1000, READ_SECONDS), take)
        errors = [page for page in pages.values() if isinstance(page, LeaseholdError)]
        if count - len(errors) < self._quorum.majority:
            raise self._too_few(errors)
        items: list[str] = []
        unreadable: list[str] = []
        for place, page in sorted(pages.items()):
            cursors[place] = "" if isinstance(page, LeaseholdError) else page.cursor
            items += () if isinstance(page, LeaseholdError) else page.items
            unreadable += () if isinstance(page, LeaseholdError) else page.unreadable
        cursor = ",".join(cursors) if any(cursors) else ""
        return ops.Page(tuple(dict.fromkeys(items)), cursor, tuple(dict.fromkeys(unreadable)))

    def _decoded(self, place: int, answer: Answer, op: Any) -> Any:
        """The reply to the only command, or the error."""
        return _decoded(self._quorum, place, _first(answer), op)

    def _too_few(self, errors: Sequence[LeaseholdError]) -> LeaseholdError:
        return too_few(self._quorum, [str(error) for error in errors])


RENEWED, RELEASED = 5, 6  # as the scripts reply
OTHER_FENCE = ops.NotYours("taken")  # what a node says to the right owner with another fence, among others


def too_few(quorum: Quorum, reasons: Sequence[str]) -> StoreUnavailable:
    """Which nodes do not count, and why."""
    count = len(quorum.nodes)
    return StoreUnavailable(
        f"{len(reasons)} of {count} Redlock nodes do not count, and {quorum.majority} must: {'; '.join(reasons)}"
    )


def _node_seconds(ttl_ms: int, budget_ms: int) -> float:
    """How long one round may take: a slow node must not use up the time that the lease is for."""
    return min(ttl_ms / NODE_SHARE, budget_ms) / 1000


def _first(answer: Answer) -> Any:
    """The reply to its only command, or the error."""
    outcome = answer.outcome
    return outcome[0] if type(outcome) is list else outcome


def _decoded(quorum: Quorum, place: int, reply: Any, op: Any) -> Any:
    if isinstance(reply, LeaseholdError):
        return reply
    if isinstance(reply, ReplyError):
        return failures.refusal(f"Redis at {quorum.nodes[place].address}", reply)
    return protocol.decode(reply, op)


def _code(reply: Any) -> int:
    return reply[0] if isinstance(reply, list) and reply else 0


def _common_view(views: Sequence[ops.View], majority: int) -> ops.View:
    """A holder is who has a majority. Its fence is the highest that a node has for it, and the rest is from the node
    that got its last change: others may not have got either."""
    by_owner: dict[str, list[Grant]] = {}
    for view in views:
        for grant in view.holders:
            by_owner.setdefault(grant.owner, []).append(grant)
    holders = [
        max(grants, key=lambda one: one.renewals)._replace(fence=max(one.fence for one in grants))
        for grants in by_owner.values()
        if len(grants) >= majority
    ]
    latest = max(views, key=lambda one: one.fence)
    return latest._replace(
        holders=tuple(holders),
        queue=(),
        closed_ms=sorted([view.closed_ms for view in views], reverse=True)[majority - 1],
        notes=tuple(sorted({note for view in views for note in view.notes})),
        unreadable=tuple(dict.fromkeys(one for view in views for one in view.unreadable)),
    )


# ---------------------------------------------------------------- one claim


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
        reply, quorum = _first(answer), self._quorum
        if isinstance(reply, (ReplyError, LeaseholdError)):
            return _decoded(quorum, place, reply, self._op)  # type: ignore[no-any-return]  # an error
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


# ---------------------------------------------------------------- the other ops


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
            tally.results[place] = _decoded(self._quorum, place, reply, tally.op)
        self._decided = self._decided or None not in [tally.verdict() for tally in self.tallies]
        return self._decided

    def follow(self, place: int, outcome: Outcome) -> list[ops.Withdraw]:
        """A node that has not confirmed a release may still have the lease: under another fence, say."""
        return [
            ops.Withdraw(tally.op.resource, tally.op.owner, tally.op.forget_ms)
            for at, tally in enumerate(self.tallies)
            if isinstance(tally, ReleaseTally) and (type(outcome) is not list or _code(outcome[at]) != RELEASED)
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
        return _node_seconds(self.op.ttl_ms, self.op.budget_ms)

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


def _tally(op: Any, quorum: Quorum) -> Tally:
    return TALLIES.get(type(op), NotHere)(op, quorum)


def withdrawal_again(op: ops.Withdraw) -> ops.Withdraw:
    """The same over another connection, where it may overtake the claim: that must get nothing then."""
    return op._replace(forget_ms=tombstone_ms(op.forget_ms))
