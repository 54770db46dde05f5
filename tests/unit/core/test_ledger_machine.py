"""The ledger under random ops, random time and random reachability: what holds after every single turn.

The clients here keep the two rules that every client of ours keeps: an owner is drawn for one acquisition,
and whoever ends it while a claim may still be under way leaves a tombstone. Everything else is chance:
duplicates, late deliveries, wrong fences, dead waiters, stalls, clocks that go back, loss of all memory.
"""

from __future__ import annotations

import json
from itertools import combinations
from typing import NamedTuple

import pytest
from hypothesis import assume, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from leasehold._core import ledger, ops
from leasehold._core.policy import MAX_FENCE, forgotten_after_ms, patience_ms, tombstone_ms
from leasehold._core.types import Grant, Instant, State, Waiter
from tests.support.examples import examples
from tests.unit.core.desk import ROOM, WALL, tupled

RULES = ["mutex", "read", "write", "semaphore"]
CLAIMS = st.tuples(st.sampled_from(RULES), st.integers(1, 3), st.integers(1, 4), st.sampled_from([0, 0, 700]))
TTLS = st.sampled_from([50, 900, 3_000, 10_000])
SHORT = st.sampled_from([0, 1, 16, 300, 1_000, 2_999])
LONG = st.sampled_from([3_001, 10_000, 29_000, 31_000, 61_000])
FAR = 10**12  # a fence that nobody ever had
FORGET = st.sampled_from([0, 60_000])
OWNERS = [f"host:{number}:secret.{number}" for number in range(400)]


class Place(NamedTuple):
    """What one grant had, and until when nobody may have it."""

    rule: str
    slots: tuple[int, ...]
    until_ms: int


class LedgerMachine(RuleBasedStateMachine):
    """One resource, its clients, and a memory of all that it ever said."""

    def __init__(self) -> None:
        super().__init__()
        self.state = ledger.EMPTY
        self.before = ledger.EMPTY
        self.pushes: tuple[ops.Push, ...] = ()
        self.op: ops.ResourceOp = ops.Inspect(ROOM)
        self.ms = 1_000_000
        self.wall_us = WALL
        self.back_us = 0  # how far the wall was set back
        self.known: list[str] = []  # every owner that ever claimed
        self.given: list[tuple[str, int]] = []  # every grant: owner and fence
        self.highest = 0  # the highest fence that anybody was told
        self.over: dict[str, int] = {}  # owner -> until when it must take nothing
        self.spent: set[str] = set()  # ended without a tombstone: its client has nothing under way
        self.dead: set[str] = set()
        self.beats: dict[str, int] = {}
        self.limit = 0  # what the semaphore was resized to
        self.doors: list[Place] = []
        self.mix = RULES  # which rules this life knows

    @initialize(mix=st.sampled_from([["mutex"], ["read", "write"], ["semaphore"], RULES]))
    def begin(self, mix: list[str]) -> None:
        """Somebody holds, as is usual."""
        self.mix = mix
        self.claim_new(10_000, wait=True, pushable=True, floor=False, claim=(mix[0], 1, 2, 0))

    # ------------------------------------------------------------ one turn, and what must be true of it

    def turn(self, op: ops.ResourceOp) -> ops.Reply:
        """Apply twice, compare, keep, and judge the step."""
        now = Instant(self.ms, self.wall_us)
        outcome = ledger.apply(self.state, now, op, lambda address: address not in self.dead)
        assert outcome == ledger.apply(self.state, now, op, lambda address: address not in self.dead)
        self.op, self.before, self.state, self.pushes = op, self.state, outcome.state, outcome.pushes
        for grant in self.before.holders:
            if grant.expires_ms <= self.ms and grant.outlives_its_end():
                self.bury(grant.owner, grant.expires_ms + tombstone_ms(grant.ttl_ms) - self.ms)
        self.note_doors()
        self.doors_are_respected()
        self.limits_are_kept()
        self.fences_grow(outcome.reply)
        self.order_is_kept()
        self.pushes_are_true()
        self.watchers_are_told()
        return outcome.reply

    def bury(self, owner: str, keep_ms: int) -> None:
        """From here on this owner takes nothing for so long."""
        self.over[owner] = max(self.over.get(owner, 0), self.ms + keep_ms)

    def note_doors(self) -> None:
        """What each grant that ended in this turn leaves closed, and for how long."""
        there = {(grant.owner, grant.fence) for grant in self.state.holders}
        adopted = self.op.fence if isinstance(self.op, ops.Adopt) else 0
        for grant in self.before.holders:
            over = grant.expires_ms <= self.ms
            if (grant.owner, grant.fence) not in there and (over or grant.fence != adopted):
                self.doors.append(Place(grant.rule, grant.slots, self.closed_until(grant)))
        self.doors = [door for door in self.doors if door.until_ms > self.ms]

    def closed_until(self, grant: Grant) -> int:
        """As it ended: by its time, by an operator, by its owner."""
        if grant.expires_ms <= self.ms:
            return max(grant.closed_until_ms, grant.expires_ms + grant.delay_ms)
        if isinstance(self.op, ops.Evict):
            delay_ms = grant.expires_ms - self.ms + grant.delay_ms if self.op.delay_ms is None else self.op.delay_ms
            return max(self.ms + delay_ms, grant.closed_until_ms)
        return grant.closed_until_ms if isinstance(self.op, ops.Release) else 0

    def doors_are_respected(self) -> None:
        """No grant of this turn fills a place that is closed."""
        for grant in self.fresh():
            if isinstance(self.op, ops.Adopt) and self.op.adopter == grant.owner:
                continue
            for door in self.doors:
                assert beside(door.rule, door.slots, grant), (door, grant)

    def limits_are_kept(self) -> None:
        """With each new permit there are no more than the limit, closed places included (I9)."""
        if isinstance(self.op, ops.Resize):
            self.limit = self.op.limit
        permits = [grant for grant in self.state.holders if grant.rule == "semaphore"]
        closed = sum(len(door.slots) for door in self.doors if door.rule == "semaphore")
        for number, grant in enumerate(permits):
            adopted = isinstance(self.op, ops.Adopt) and self.op.adopter == grant.owner
            if grant in self.fresh() and not adopted:
                there = sum(len(one.slots) for one in permits[: number + 1]) + closed
                assert there <= (self.limit or grant.limit)

    def fences_grow(self, reply: ops.Reply) -> None:
        """Every new grant is above every fence ever told, and no owner that is over is among them."""
        if isinstance(reply, ops.Evicted) and reply.fence > self.highest:
            self.highest = reply.fence
        for grant in self.fresh():  # in the order in which they stand
            assert grant.fence > self.highest
            assert self.over.get(grant.owner, 0) <= self.ms, "an owner has one grant in its life"
            self.highest = max(self.highest, grant.fence)
            self.given.append((grant.owner, grant.fence))

    def fresh(self) -> list[Grant]:
        """The grants of this turn."""
        old = {(grant.owner, grant.fence) for grant in self.before.holders}
        return [grant for grant in self.state.holders if (grant.owner, grant.fence) not in old]

    def order_is_kept(self) -> None:
        """Who stays in the queue stays in order; newcomers stand at the end; no live waiter is overtaken."""
        before = [waiter.owner for waiter in self.before.queue]
        after = [waiter.owner for waiter in self.state.queue]
        stayed = [owner for owner in before if owner in after]
        assert after[: len(stayed)] == stayed
        assert len(after) - len(stayed) <= 1
        for grant in self.fresh():
            if isinstance(self.op, ops.Adopt) and self.op.adopter == grant.owner:
                continue
            ahead = before[: before.index(grant.owner)] if grant.owner in before else before
            assert not [one.owner for one in self.state.queue if one.owner in ahead and self.counts(one)]

    def counts(self, waiter: Waiter) -> bool:
        """Must nobody overtake it? It is alive, and wants no more than there will ever be."""
        possible = waiter.rule != "semaphore" or waiter.permits <= (self.limit or waiter.limit)
        return possible and self.live(waiter)

    def pushes_are_true(self) -> None:
        """A push of a grant names the beat that was heard last, goes to somebody alive, and is a grant."""
        for push in self.pushes:
            speaks = getattr(self.op, "owner", "") == push.owner  # who speaks is alive, whatever its socket says
            assert push.address not in self.dead or push.event == "evicted" or speaks
            if push.event != "granted":
                continue
            (grant,) = [one for one in self.fresh() if one.owner == push.owner]
            (waiter,) = [one for one in self.before.queue if one.owner == push.owner]
            assert (push.fence, push.beat, push.address) == (grant.fence, waiter.beat, waiter.address)
            assert push.remaining_ms == grant.ttl_ms

    def watchers_are_told(self) -> None:
        """Each who is there, once, when others hold it than before or say something else; and nobody else."""
        told = sorted(push.owner for push in self.pushes if push.event == "changed")
        before, after = [
            [(one.owner, one.fence, one.rule, one.meta) for one in holders]
            for holders in ([one for one in self.before.holders if one.expires_ms > self.ms], self.state.holders)
        ]
        there = [one.owner for one in self.before.watchers if self.ms - one.beat_ms <= 30_000]
        speaker = getattr(self.op, "owner", "")
        assert told == (sorted(one for one in there if one != speaker) if before != after else [])

    def live(self, waiter: Waiter) -> bool:
        """Heard of within its patience."""
        return self.ms - waiter.beat_ms <= patience_ms(waiter.ttl_ms)

    # ------------------------------------------------------------ clients

    @rule(ttl_ms=TTLS, wait=st.booleans(), pushable=st.booleans(), floor=st.booleans(), claim=CLAIMS)
    def claim_new(self, ttl_ms: int, wait: bool, pushable: bool, floor: bool, claim: tuple[str, int, int, int]) -> None:
        """A new acquisition, with a new owner. Whoever saw a loss of memory sends what it has seen."""
        owner = OWNERS[len(self.known)]
        self.known.append(owner)
        self.send_claim(owner, ttl_ms, wait, pushable, floor, claim)

    @rule(crowd=st.lists(CLAIMS, min_size=2, max_size=6))
    def rush(self, crowd: list[tuple[str, int, int, int]]) -> None:
        """Many come at once, all alive: chance alone would seldom have so many side by side."""
        for claim in crowd:
            self.claim_new(10_000, True, True, False, claim)

    @precondition(lambda self: self.state.holders)
    @rule(data=st.data())
    def gives_back(self, data: st.DataObject) -> None:
        """Somebody who holds it, as mostly happens."""
        grant = data.draw(st.sampled_from(self.state.holders))
        self.turn(ops.Release(ROOM, grant.owner, grant.fence))
        self.ended(grant.owner, 0)

    @rule(data=st.data(), ttl_ms=TTLS, wait=st.booleans(), pushable=st.booleans(), claim=CLAIMS)
    def claim_again(
        self, data: st.DataObject, ttl_ms: int, wait: bool, pushable: bool, claim: tuple[str, int, int, int]
    ) -> None:
        """A claim is repeated, or delivered late, after its sender gave up."""
        owner = data.draw(st.sampled_from(self.known))
        assume(owner not in self.spent)
        held = {grant.owner: grant.fence for grant in self.state.holders if grant.expires_ms > self.ms}
        reply = self.send_claim(owner, ttl_ms, wait, pushable, True, claim)
        if owner in held:
            assert isinstance(reply, ops.Granted)
            assert reply.fence == held[owner]

    def send_claim(
        self, owner: str, ttl_ms: int, wait: bool, pushable: bool, floor: bool, claim: tuple[str, int, int, int]
    ) -> ops.Reply:
        """With a number above every earlier one of that owner."""
        by, permits, limit, delay_ms = claim
        number = self.beats[owner] = self.beats.get(owner, 0) + 1
        seen = self.highest if floor or self.state == ledger.EMPTY or self.back_us else 0
        reply = self.turn(
            ops.Claim(
                ROOM,
                owner,
                ttl_ms,
                beat=number,
                floor=seen,
                enqueue=wait,
                rule=by if by in self.mix else self.mix[-1],
                permits=permits,
                limit=limit,
                address=f"@{owner}" if pushable else "",
                holder_address=f"news@{owner}",
                delay_ms=delay_ms,
            )
        )
        refused = isinstance(reply, ops.Rejected) and permits > (self.limit or limit)
        assert refused or isinstance(reply, (ops.Granted, ops.Queued, ops.Busy, ops.NoClaim))
        if not wait:
            assert owner not in [one.owner for one in self.fresh_waiters()]
        return reply

    def fresh_waiters(self) -> list[Waiter]:
        """Those who came into the queue in this turn."""
        old = {waiter.owner for waiter in self.before.queue}
        return [waiter for waiter in self.state.queue if waiter.owner not in old]

    @rule(data=st.data(), late=st.booleans())
    def beat(self, data: st.DataObject, late: bool) -> None:
        """A sign of life, new or delivered late. It creates nothing."""
        owner = data.draw(st.sampled_from(self.known))
        number = 1 if late else self.beats.get(owner, 0) + 1
        self.beats[owner] = max(number, self.beats.get(owner, 0))
        self.turn(ops.Beat(ROOM, owner, number, self.highest))
        assert not self.fresh_waiters()

    @precondition(lambda self: self.given)
    @rule(
        data=st.data(),
        ttl_ms=TTLS,
        exact=st.booleans(),
        number=st.integers(1, 9),
        closed_ms=SHORT,
        wrong=st.booleans(),
        shared=st.booleans(),
    )
    def renew(
        self,
        data: st.DataObject,
        ttl_ms: int,
        exact: bool,
        number: int,
        closed_ms: int,
        wrong: bool,
        shared: bool,
    ) -> None:
        """A renewal of a grant that once was; it brings none back, and shortens none unless exact."""
        owner, fence = data.draw(st.sampled_from(self.given))
        old = {grant.owner: grant for grant in self.state.holders}
        reply = self.turn(ops.Renew(ROOM, owner, fence - wrong * FAR, ttl_ms, exact, number, closed_ms, shared=shared))
        if not isinstance(reply, ops.Renewed):
            return
        assert old[owner].fence == fence
        assert not wrong
        late = number < old[owner].renewals
        assert (exact and not late) or self.ms + reply.remaining_ms >= old[owner].expires_ms
        (now,) = [grant for grant in self.state.holders if grant.owner == owner]
        assert now.expires_ms == self.ms + reply.remaining_ms
        assert now.rule == ("read" if shared and old[owner].rule == "write" else old[owner].rule)

    @precondition(lambda self: self.given)
    @rule(data=st.data(), forget_ms=FORGET, again=st.booleans(), wrong=st.booleans())
    def release(self, data: st.DataObject, forget_ms: int, again: bool, wrong: bool) -> None:
        """Given back, perhaps twice. A wrong fence frees nobody. Nobody forgets an owner that has begun anew
        (its tombstone was over, or the memory lost): its client would know only the new fence."""
        owner, fence = data.draw(st.sampled_from(self.given))
        anew = dict(self.given)[owner] != fence or owner in [one.owner for one in self.state.queue]
        forget_ms = 0 if wrong or anew else forget_ms
        self.turn(ops.Release(ROOM, owner, fence - wrong * FAR, forget_ms, again))
        if not wrong and not anew:
            self.ended(owner, forget_ms)
        assert (owner, fence) not in self.holding() or wrong

    @rule(data=st.data(), forget_ms=FORGET)
    def withdraw(self, data: st.DataObject, forget_ms: int) -> None:
        """Given up: nothing of that owner is left."""
        owner = data.draw(st.sampled_from(self.known))
        self.turn(ops.Withdraw(ROOM, owner, forget_ms))
        self.ended(owner, forget_ms)
        assert owner not in self.places(self.state._replace(ended=()))

    def ended(self, owner: str, forget_ms: int) -> None:
        """Its client has finished with this owner."""
        if forget_ms:
            self.bury(owner, forget_ms)
        else:
            self.spent.add(owner)

    def places(self, state: State) -> list[str]:
        """Every owner that the state knows, once for each place where it is."""
        holders, waiters = [one.owner for one in state.holders], [one.owner for one in state.queue]
        return holders + waiters + [one.owner for one in state.ended]

    def holding(self) -> list[tuple[str, int]]:
        """Owner and fence of those who hold."""
        return [(grant.owner, grant.fence) for grant in self.state.holders]

    # ------------------------------------------------------------ operators and heirs

    @precondition(lambda self: self.given)
    @rule(data=st.data(), delay_ms=st.sampled_from([None, 0, 500, 60_000]), force=st.booleans())
    def evict(self, data: st.DataObject, delay_ms: int | None, force: bool) -> None:
        """An operator takes a grant away, perhaps one that is long over."""
        owner, fence = data.draw(st.sampled_from(self.given[-3:]))
        reply = self.turn(ops.Evict(ROOM, owner, fence, f"request-{len(self.given)}", delay_ms, force))
        if isinstance(reply, ops.Evicted):
            assert reply.fence > fence
            assert owner not in [one for one, _ in self.holding()]
            self.over.setdefault(owner, self.ms + 60_000)

    @precondition(lambda self: self.given)
    @rule(data=st.data(), ttl_ms=TTLS, right=st.booleans())
    def transfer(self, data: st.DataObject, ttl_ms: int, right: bool) -> None:
        """A ticket is given, and a new owner adopts with it or with a wrong one."""
        owner, fence = data.draw(st.sampled_from(self.given[-3:]))
        heir = OWNERS[len(self.known)]
        self.known.append(heir)
        offered = self.turn(ops.Renew(ROOM, owner, fence, ttl_ms, ticket="ticket"))
        ticket = "ticket" if right else "stolen"
        reply = self.turn(ops.Adopt(ROOM, fence, ticket, heir, ttl_ms, self.highest))
        assert isinstance(reply, ops.Granted) == (isinstance(offered, ops.Renewed) and right)
        if isinstance(reply, ops.Granted):
            self.bury(owner, 60_000)
            again = self.turn(ops.Adopt(ROOM, fence, ticket, heir, ttl_ms, self.highest))
            assert again == reply

    @rule(limit=st.integers(1, 5))
    def resize(self, limit: int) -> None:
        """Another limit for everybody. Nobody loses a permit by it."""
        before = {grant.owner for grant in self.state.holders if grant.expires_ms > self.ms}
        self.turn(ops.Resize(ROOM, limit))
        assert before <= {grant.owner for grant in self.state.holders}

    @rule(data=st.data(), pushable=st.booleans())
    def watch(self, data: st.DataObject, pushable: bool) -> None:
        """Somebody looks, and wants to be told."""
        owner = data.draw(st.sampled_from(["eye:1:x", "eye:2:x"]))
        view = self.turn(ops.Watch(ROOM, owner, f"@{owner}" if pushable else ""))
        assert isinstance(view, ops.View)
        assert view.holders == self.state.holders

    # ------------------------------------------------------------ the world

    @rule(ms=SHORT)
    def time_passes(self, ms: int) -> None:
        """A moment."""
        self.ms += ms
        self.wall_us += ms * 1000
        self.turn(ops.Inspect(ROOM))

    @rule(ms=LONG)
    def stall(self, ms: int) -> None:
        """Nothing is heard for long."""
        self.ms += ms
        self.wall_us += ms * 1000

    @rule()
    def night(self) -> None:
        """A day later: even the record of the fences may be forgotten."""
        self.stall(25 * 3600 * 1000)

    @precondition(lambda self: not self.back_us)
    @rule(back_us=st.sampled_from([1_000, 3_600_000_000]))
    def wall_goes_back(self, back_us: int) -> None:
        """The server's clock is corrected."""
        self.back_us = back_us
        self.wall_us -= back_us

    @rule(data=st.data())
    def dies(self, data: st.DataObject) -> None:
        """A client's socket is closed."""
        self.dead.add("@" + data.draw(st.sampled_from(self.known)))

    @rule()
    def tidies(self) -> None:
        """The store throws away what is over: no reply may differ for it."""
        kept = ledger.tidy(self.state, Instant(self.ms, self.wall_us))
        op = ops.Inspect(ROOM)
        now = Instant(self.ms, self.wall_us)
        assert ledger.apply(kept, now, op).reply == ledger.apply(self.state, now, op).reply

    @rule()
    def loses_memory(self) -> None:
        """FLUSHALL: claims, queue, tombstones and fences are gone; clients send their floors."""
        self.state = self.before = ledger.EMPTY
        self.over.clear()
        self.doors.clear()
        self.limit = 0
        self.back_us = self.back_us or 1  # from here on every claim carries its floor

    # ------------------------------------------------------------ always

    @invariant()
    def only_those_hold_together_who_may(self) -> None:
        """Readers beside readers, permits in slots of their own; nobody else beside anybody (I1, I9, I10)."""
        for one, other in combinations(self.state.holders, 2):
            assert beside(one.rule, one.slots, other)

    @invariant()
    def nobody_waits_for_nothing(self) -> None:
        """Free, open, and the first live waiter can be pushed: then it would have been granted (trap 24)."""
        first = next((waiter for waiter in self.state.queue if self.counts(waiter)), None)
        if first is None or self.state is self.stalled():
            return
        there = [grant.rule for grant in self.state.holders] + [door.rule for door in self.doors]
        if not there or (first.rule == "read" and set(there) == {"read"}):
            assert not first.address

    def stalled(self) -> State | None:
        """The state, when time has passed since its last turn."""
        now = Instant(self.ms, self.wall_us)
        return self.state if ledger.tidy(self.state, now) != self.state else None

    @invariant()
    def it_can_be_written_down(self) -> None:
        """JSON and back."""
        assert tupled(json.loads(json.dumps(self.state))) == self.state

    @invariant()
    def it_keeps_only_what_lives(self) -> None:
        """Everything in the state has a reason to be there, each owner has one place, fences fit a float."""
        state = ledger.tidy(self.state, Instant(self.ms, self.wall_us))
        places = self.places(state)
        assert len(places) == len(set(places))
        assert all(grant.expires_ms > self.ms for grant in state.holders)
        assert all(self.ms - one.beat_ms <= forgotten_after_ms(one.ttl_ms) for one in state.queue)
        assert all(ended.until_ms > self.ms for ended in state.ended)
        assert state.fence <= MAX_FENCE


def beside(rule: str, slots: tuple[int, ...], grant: Grant) -> bool:
    """May they stand together?"""
    if rule != grant.rule or rule not in ("read", "semaphore"):
        return False
    return rule == "read" or not set(slots) & set(grant.slots)


TestLedgerMachine = LedgerMachine.TestCase
TestLedgerMachine.__doc__ = "Every invariant holds after every step of a random life."
TestLedgerMachine.settings = settings(max_examples=examples(40), stateful_step_count=40)


@pytest.mark.soak
def test_invariants_for_long() -> None:
    """The same, over many lives."""
    long = settings(TestLedgerMachine.settings, max_examples=3_000, stateful_step_count=80)
    run_state_machine_as_test(LedgerMachine, settings=long)
