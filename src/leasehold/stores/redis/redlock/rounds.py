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

from leasehold._core import ops
from leasehold._core.light_typing import Any, TypeAlias
from leasehold._core.policy import tombstone_ms
from leasehold._core.types import Grant
from leasehold.errors import LeaseholdError, StoreUnavailable
from leasehold.stores.redis import protocol
from leasehold.stores.redis.redlock import commands
from leasehold.stores.redis.redlock.answers import (
    RENEWED,
    Answer,
    Leave,
    Round,
    code,
    decoded,
    first,
    node_seconds,
    too_few,
)
from leasehold.stores.redis.redlock.ballot import Ballot
from leasehold.stores.redis.redlock.commands import Batch
from leasehold.stores.redis.redlock.quorum import Quorum
from leasehold.stores.redis.redlock.tallies import Sent, tally_of

READ_SECONDS = 1.0  # to read from all nodes, when those that have replied do not agree
RELEASE_SECONDS = 60.0  # for which a release is repeated for a node that has not confirmed it
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
        seconds = node_seconds(op.ttl_ms, op.budget_ms)
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
            if place in open_places and code(first(answer)) == RENEWED:
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
        tallies = [tally_of(op, self._quorum) for op in many]
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
            view = decoded(self._quorum, place, first(answer), look)
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

    def _list(self, op: ops.Scan | ops.Leaks | ops.Ping) -> Flow:
        """Page by page from every node at once. A name is listed if any node has it. To a plain ping a majority is
        enough."""
        count, majority = len(self._quorum.nodes), self._quorum.majority
        enough = majority if isinstance(op, ops.Ping) and not op.versions else count
        cursors = op.cursor.split(",") if op.cursor else ["0"] * count  # empty: that node has been read
        pages: dict[int, Any] = {}

        def take(place: int, answer: Answer) -> bool:
            pages[place] = decoded(self._quorum, place, first(answer), op)
            return sum(not isinstance(page, LeaseholdError) for page in pages.values()) >= enough

        batches = [Batch([protocol.command(op._replace(cursor=cursor))]) if cursor else None for cursor in cursors]
        yield Round(batches, min(op.budget_ms / 1000, READ_SECONDS), take)
        errors = [page for page in pages.values() if isinstance(page, LeaseholdError)]
        if count - len(errors) < majority:
            raise self._too_few(errors)
        items: list[str] = []
        unreadable: list[str] = []
        withheld = False
        if isinstance(op, ops.Ping):
            cursors = [""] * count  # nobody waits for the nodes that have not answered yet
        for place, page in sorted(pages.items()):
            cursors[place] = "" if isinstance(page, LeaseholdError) else page.cursor
            items += () if isinstance(page, LeaseholdError) else page.items
            unreadable += () if isinstance(page, LeaseholdError) else page.unreadable
            withheld = withheld or (not isinstance(page, LeaseholdError) and page.withheld)
        cursor = ",".join(cursors) if any(cursors) else ""
        return ops.Page(tuple(dict.fromkeys(items)), cursor, tuple(dict.fromkeys(unreadable)), withheld)

    def _too_few(self, errors: Sequence[LeaseholdError]) -> LeaseholdError:
        return too_few(self._quorum, [str(error) for error in errors])


def _common_view(views: Sequence[ops.View], majority: int) -> ops.View:
    """A holder is who has a majority. Its fence is the one that most nodes have for it, and the highest of several, and
    the rest is from the node that got its last change: others may not have got either."""
    by_owner: dict[str, list[Grant]] = {}
    for view in views:
        for grant in view.holders:
            by_owner.setdefault(grant.owner, []).append(grant)
    holders = [
        max(grants, key=lambda one: one.renewals)._replace(fence=_usual([one.fence for one in grants]))
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


def _usual(fences: Sequence[int]) -> int:
    return max(fences, key=lambda fence: (fences.count(fence), fence))


def withdrawal_again(op: ops.Withdraw) -> ops.Withdraw:
    """The same over another connection, where it may overtake the claim: that must get nothing then."""
    return op._replace(forget_ms=tombstone_ms(op.forget_ms))
