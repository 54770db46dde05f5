"""The rule of Redlock, written once as flows for threads and event loops. Pure: a flow yields what is to be sent, and
gets what came back.

    Round   send these to the nodes, all at once, and wait until ``enough`` or until the time is over
    Leave   send these withdrawals after what was sent before, wait for nothing, and see to it that they arrive

A claim takes two rounds. In the first all nodes are asked; the fence is the highest of those that a majority has given.
In the second it is written back to a majority, so that every later majority has a node that gives a higher one. Only
then is the time that is left computed: by the caller, from before the first round. A claim without a majority came to
nothing, whatever single nodes did: it is withdrawn, and is never in doubt.
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
from leasehold.stores.redis.protocol import Command
from leasehold.stores.redis.redlock import commands
from leasehold.stores.redis.redlock.quorum import Quorum, Vote

NODE_SHARE = 10  # a node may take this part of the ttl
READ_SECONDS = 1.0  # to read from all nodes, when those that have replied do not agree
RELEASE_SECONDS = 60.0  # for which a release is repeated for a node that has not confirmed it
ReplyError = hiredis.ReplyError


class Answer(NamedTuple):
    """What came of the commands for one node: their replies, or the error of all of them. StoreUnavailable: nothing
    was sent. Times are local."""

    outcome: list[Any] | LeaseholdError
    sent: float
    received: float


Answers: TypeAlias = "Sequence[Answer | None]"  # None: it is still to come


class Round(NamedTuple):
    """For each node the commands that it gets, or None. It is over when all have answered, too."""

    commands: Sequence[Sequence[Command] | None]
    seconds: float
    enough: Callable[[Answers], bool]


class Leave(NamedTuple):
    """For each node what is to be withdrawn there, or None; for so many seconds it is tried again."""

    withdrawals: Sequence[ops.Withdraw | None]
    seconds: float


Flow: TypeAlias = "Generator[Round | Leave, Any, Any]"


class Rounds:
    """The flows of one store. ``pause`` says after how many ms a claim that waits is worth another try: it must differ
    from client to client, or they would split the nodes among themselves again and again."""

    def __init__(self, quorum: Quorum, longest_ttl_ms: int, pause: Callable[[], int]) -> None:
        self._quorum = quorum
        self._longest_ttl_ms = longest_ttl_ms
        self._pause = pause

    def execute(self, op: ops.StoreOp) -> Flow:
        """The reply to one op; an error is raised."""
        if isinstance(op, ops.Claim):
            return (yield from self._claim(op))
        if isinstance(op, (ops.Inspect, ops.Watch)):
            return (yield from self._inspect(op))
        if isinstance(op, ops.LISTINGS):
            return (yield from self._list(op))
        (outcome,) = yield from self.execute_many([op])
        if isinstance(outcome, LeaseholdError):
            raise outcome
        return outcome

    # ------------------------------------------------------------ claims

    def _claim(self, op: ops.Claim) -> Flow:
        if op.ttl_ms > self._longest_ttl_ms:
            return ops.Rejected(f"the ttl is longer than max_ttl, which is {self._longest_ttl_ms / 1000:g} s here")
        seconds = _node_seconds(op.ttl_ms, op.budget_ms)
        ballot = Ballot(self._quorum, op)
        command = commands.vote(op, self._longest_ttl_ms)
        answers = yield Round([[command]] * len(self._quorum.nodes), seconds, ballot.decided)
        ballot.read(answers)
        self._quorum.met = True
        chosen = ballot.chosen()
        if len(chosen) >= self._quorum.majority:
            fence = max(chosen.values())
            written = yield from self._write_back(op, ballot, chosen, fence, seconds)
            if written:
                return ops.Granted(fence, ballot.remaining_ms(chosen))
        yield Leave(ballot.withdrawals(), op.ttl_ms / 1000)
        if len(chosen) >= self._quorum.majority:
            raise StoreUnavailable("the nodes granted a lease, but a majority did not confirm its fence in time")
        return ballot.refusal(self._pause())

    def _write_back(self, op: ops.Claim, ballot: Ballot, chosen: dict[int, int], fence: int, seconds: float) -> Flow:
        """The fence on a majority, before anybody relies on it. A node that is slow gets it too, after its claim."""
        command = commands.raise_fence(op, fence)
        there = {place for place, given in chosen.items() if given == fence}
        sent = [
            [command] if place not in there and ballot.may_hold(place) else None
            for place in range(len(self._quorum.nodes))
        ]

        def confirmed(answers: Answers) -> set[int]:
            replies = {place: _first(answer) for place, answer in enumerate(answers) if answer is not None}
            return there | {place for place, reply in replies.items() if place in chosen and _code(reply) == RENEWED}

        def enough(answers: Answers) -> bool:
            open_places = [place for place in chosen if answers[place] is None and place not in there]
            count = len(confirmed(answers))
            return count >= self._quorum.majority or count + len(open_places) < self._quorum.majority

        answers = yield Round(sent, seconds, enough)
        return len(confirmed(answers)) >= self._quorum.majority

    # ------------------------------------------------------------ renewals, releases, withdrawals

    def execute_many(self, many: Sequence[ops.StoreOp]) -> Flow:
        """Renewals, releases and withdrawals, all in one round. A reply or an error for each."""
        tallies = [_tally(op, self._quorum) for op in many]
        batch = [protocol.command(tally.op) for tally in tallies if tally.sends]
        reads_clock = any(isinstance(op, ops.Renew) for op in many)
        if reads_clock:
            batch.append(("TIME",))
        seen: set[int] = set()

        def read(answers: Answers) -> None:
            for place, answer in enumerate(answers):
                if answer is not None and place not in seen:
                    seen.add(place)
                    self._read_batch(tallies, place, answer, reads_clock)

        def enough(answers: Answers) -> bool:
            read(answers)
            return all(tally.verdict() is not None for tally in tallies)

        if batch:
            seconds = min(tally.seconds() for tally in tallies)
            read((yield Round([batch] * len(self._quorum.nodes), seconds, enough)))
        for tally in tallies:
            withdrawals = tally.withdrawals()
            if any(withdrawals):
                yield Leave(withdrawals, RELEASE_SECONDS)
        return [tally.verdict() or tally.undecided() for tally in tallies]

    def _read_batch(self, tallies: Sequence[Tally], place: int, answer: Answer, reads_clock: bool) -> None:
        outcome = answer.outcome
        if isinstance(outcome, LeaseholdError):
            for tally in tallies:
                tally.results[place] = outcome
            return
        replies = list(outcome)
        if reads_clock and isinstance(time := replies.pop(), list):
            self._quorum.learn_clock(place, int(time[0]) * 1_000_000 + int(time[1]), answer.sent, answer.received)
        for tally, reply in zip([tally for tally in tallies if tally.sends], replies, strict=True):
            tally.results[place] = self._decoded(place, reply, tally.op)

    def _decoded(self, place: int, reply: Any, op: Any) -> Any:
        if isinstance(reply, ReplyError):
            return failures.refusal(f"Redis at {self._quorum.nodes[place].address}", reply)
        return protocol.decode(reply, op)

    # ------------------------------------------------------------ reading

    def _inspect(self, op: ops.Inspect | ops.Watch) -> Flow:
        """What a majority says. A watcher polls: it is not registered with any node."""
        look = op if isinstance(op, ops.Inspect) else ops.Inspect(op.resource, op.budget_ms)
        views: dict[int, Any] = {}

        def read(answers: Answers) -> None:
            for place, answer in enumerate(answers):
                if answer is not None and place not in views:
                    reply = _first(answer)
                    views[place] = reply if isinstance(reply, LeaseholdError) else self._decoded(place, reply, look)

        def enough(answers: Answers) -> bool:
            read(answers)
            known = [view for view in views.values() if isinstance(view, ops.View)]
            agreed = Counter(tuple(sorted(grant.owner for grant in view.holders)) for view in known)
            return len(views) == len(answers) or any(count >= self._quorum.majority for count in agreed.values())

        count = len(self._quorum.nodes)
        seconds = min(op.budget_ms / 1000, READ_SECONDS)
        read((yield Round([[protocol.command(look)]] * count, seconds, enough)))
        known = [view for view in views.values() if isinstance(view, ops.View)]
        if len(known) < self._quorum.majority:
            raise self._too_few(views.values())
        return _common_view(known, self._quorum.majority)

    def _list(self, op: ops.Scan | ops.Leaks) -> Flow:
        """Page by page from every node at once. A name is listed if any node has it."""
        count = len(self._quorum.nodes)
        cursors = op.cursor.split(",") if op.cursor else ["0"] * count  # empty: that node has been read
        sent = [[protocol.command(op._replace(cursor=cursor))] if cursor else None for cursor in cursors]

        def enough(answers: Answers) -> bool:
            return all(answer is not None or sent[place] is None for place, answer in enumerate(answers))

        answers = yield Round(sent, min(op.budget_ms / 1000, READ_SECONDS), enough)
        items: list[str] = []
        unreadable: list[str] = []
        errors = []
        for place, answer in enumerate(answers):
            if sent[place] is None:
                continue
            cursors[place] = ""
            reply = _first(answer)
            page = reply if isinstance(reply, LeaseholdError) else self._decoded(place, reply, op)
            if isinstance(page, LeaseholdError):
                errors.append(page)
                continue
            items += page.items
            unreadable += page.unreadable
            cursors[place] = page.cursor
        if count - len(errors) < self._quorum.majority:
            raise self._too_few(errors)
        cursor = ",".join(cursors) if any(cursors) else ""
        return ops.Page(tuple(dict.fromkeys(items)), cursor, tuple(dict.fromkeys(unreadable)))

    def _too_few(self, outcomes: Any) -> LeaseholdError:
        return too_few(self._quorum, [str(one) for one in outcomes if isinstance(one, LeaseholdError)])


RENEWED = 5  # as the scripts reply


def too_few(quorum: Quorum, reasons: Sequence[str]) -> StoreUnavailable:
    """Which nodes do not count, and why."""
    count = len(quorum.nodes)
    return StoreUnavailable(
        f"{len(reasons)} of {count} Redlock nodes do not count, and {quorum.majority} must: {'; '.join(reasons)}"
    )


def _node_seconds(ttl_ms: int, budget_ms: int) -> float:
    """How long one round may take: a slow node must not use up the time that the lease is for."""
    return min(ttl_ms / NODE_SHARE, budget_ms) / 1000


def _first(answer: Answer | None) -> Any:
    """The reply to its only command, or the error."""
    if answer is None:
        return StoreUnavailable("nothing was sent")
    return answer.outcome if isinstance(answer.outcome, LeaseholdError) else answer.outcome[0]


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

    def read(self, answers: Answers) -> None:
        """Take in what is new."""
        for place, answer in enumerate(answers):
            if answer is not None and self._results[place] is None:
                self._results[place] = self._vote(place, answer)

    def _vote(self, place: int, answer: Answer) -> Vote | LeaseholdError:
        reply = _first(answer)
        if isinstance(reply, ReplyError):
            return failures.refusal(f"Redis at {self._quorum.nodes[place].address}", reply)
        if isinstance(reply, LeaseholdError):
            return reply
        raw, since_us, now_us, longest_ttl_ms = reply
        self._quorum.learn_clock(place, now_us, answer.sent, answer.received)
        self._quorum.learn_longest_ttl(place, longest_ttl_ms)
        vote = Vote(protocol.decode(raw, self._op), since_us, now_us)
        self._faults[place] = self._quorum.memory_fault(place, vote, answer.sent)
        return vote

    def decided(self, answers: Answers) -> bool:
        """True when nothing that is still to come can change the outcome. Where too few nodes count, all get their
        time, so that the error can name what is wrong with each. The first call waits for every node, so that a wrong
        one is refused at once."""
        self.read(answers)
        if not self._quorum.met:
            self._raise_unsupported()
        if not self._quorum.met or None not in self._results:
            return None not in self._results
        places = range(len(self._results))
        refused = [place for place in places if self._refused(place)]
        return len(self.chosen()) >= self._quorum.majority or len(refused) > len(places) - self._quorum.majority

    def _raise_unsupported(self) -> None:
        """In the first call. A node that turns out to be a wrong one later, such as a master that was made a replica,
        only does not count."""
        for result in self._results:
            if isinstance(result, Unsupported):
                raise result

    def _remembers(self, place: int) -> bool:
        """It has granted, and has forgotten nothing. Whether its clock is right may show later."""
        return self._granted(place) and not self._faults[place]

    def _refused(self, place: int) -> bool:
        return isinstance(self._results[place], Vote) and not self._granted(place) and not self._fault(place)

    def _granted(self, place: int) -> bool:
        result = self._results[place]
        return isinstance(result, Vote) and isinstance(result.reply, ops.Granted)

    def chosen(self) -> dict[int, int]:
        """The nodes whose grants count, each with the fence that it gave."""
        return {
            place: result.reply.fence
            for place, result in enumerate(self._results)
            if isinstance(result, Vote) and self._remembers(place) and not self._quorum.clock_fault(place)
        }

    def remaining_ms(self, chosen: dict[int, int]) -> int:
        left: list[int] = [
            result.reply.remaining_ms for place in chosen if isinstance(result := self._results[place], Vote)
        ]
        return min(left)

    def may_hold(self, place: int) -> bool:
        """It has granted, or was sent the claim and has not replied."""
        return self._granted(place) or isinstance(self._results[place], OutcomeUnknown)

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
        fault = self._faults[place] or self._quorum.clock_fault(place)
        return f"Redis at {self._quorum.nodes[place].address}: {fault}" if fault else ""


# ---------------------------------------------------------------- one op of the others


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

    def withdrawals(self) -> list[ops.Withdraw | None]:
        """What is to follow."""
        return [None] * len(self.results)

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
        counting = [reply for place, reply in confirmed.items() if not self._quorum.clock_fault(place)]
        if len(counting) >= self._quorum.majority:
            return ops.Renewed(min(reply.remaining_ms for reply in counting))
        return self._refused()

    def undecided(self) -> LeaseholdError:
        faults = [self._quorum.clock_fault(place) for place in range(len(self.results))]
        for place, fault in enumerate(faults):
            if isinstance(self.results[place], ops.Renewed) and fault:
                self.results[place] = OutcomeUnknown(f"Redis at {self._quorum.nodes[place].address}: {fault}")
        return super().undecided()


class ReleaseTally(Tally):
    """A node that did not get the fence has the owner with another one: what is left there is withdrawn."""

    def verdict(self) -> ops.Reply | LeaseholdError | None:
        released = self._of(ops.Released)
        if len(released) >= self._quorum.majority:
            return ops.Released(any(reply.found for reply in released.values()))
        return self._refused()

    def withdrawals(self) -> list[ops.Withdraw | None]:
        withdrawal = ops.Withdraw(self.op.resource, self.op.owner, self.op.forget_ms)
        return [None if isinstance(reply, ops.Released) else withdrawal for reply in self.results]


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
