"""I18 for readers, writers, permits, several at once and those who watch: each test breaks one rule, and is caught."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import partial

import pytest

from leasehold._core import group, ledger, ops, resource_flows, rules
from leasehold._core.flows import acquire
from leasehold._core.group import GroupAcquisition
from leasehold._core.holding import Holding
from leasehold._core.rules import READ, SEMAPHORE, WRITE, Occupied
from leasehold._core.turn import Turn
from leasehold._core.types import Door, Grant, Instant, State, Waiter
from leasehold.errors import NotAcquired
from tests.model.breaking import Break, patched, patched_item, require_caught, turns
from tests.support.simulator import job, worker

hand_on, turned, expire, grant = Turn.hand_on, Turn.__init__, Turn.expire, Turn.grant
downgrading, answered = Holding.begin_downgrade, Holding._apply_reply

# ---------------------------------------------------------------- readers and writers


def beside_readers(seats: Sequence[Occupied], claim: Waiter, limit: int) -> tuple[int, ...] | None:
    """A writer that waits for writers only."""
    return None if any(one.rule != READ for one in seats) else (0,)


def overtaking(rule: str) -> Break:
    """Whoever does not fit is passed over, for the sake of those who do."""

    def hand_on_all(turn: Turn, requester: str = "") -> None:
        waiting = list(turn.queue)
        for waiter in waiting:
            seats: list[Occupied] = [*turn.holders, *turn.doors]
            unfit = waiter.rule == rule and rules.RULES[rule](seats, waiter, turn.limit or waiter.limit) is None
            if unfit and waiter in turn.queue:
                turn.queue.remove(waiter)
        hand_on(turn, requester)
        gone = {one.owner for one in turn.holders}
        turn.queue[:] = [one for one in waiting if one.owner not in gone]

    return patched(Turn, "hand_on", hand_on_all)


def downgrading_late(holding: Holding, now: float) -> ops.Renew:
    """It goes on to write until the store has confirmed that it reads."""
    renew = downgrading(holding, now)
    holding.rule = WRITE
    return renew


def lower_when_answered(
    holding: Holding, renew: ops.Renew, sent: float, reply: ops.Renewed | ops.NotYours, now: float
) -> None:
    """And only then it reads."""
    if renew.shared and isinstance(reply, ops.Renewed):
        holding.rule = READ
    answered(holding, renew, sent, reply, now)


def believes_until_confirmed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both of these."""
    monkeypatch.setattr(Holding, "begin_downgrade", downgrading_late)
    monkeypatch.setattr(Holding, "_apply_reply", lower_when_answered)


def downgrade_grants_again(turn: Turn, op: ops.Renew) -> ops.Reply:
    """Out and in again, as a reader."""
    reply = ledger.renew(turn, op)
    old = turn.grant_of(op.owner, op.fence)
    if op.shared and old is not None:
        turn.holders[turn.holders.index(old)] = old._replace(fence=turn.mint(0))
    return reply


def downgrade_forgotten(turn: Turn, op: ops.Renew) -> ops.Reply:
    """Confirmed, and not done."""
    return ledger.renew(turn, op._replace(shared=False))


# ---------------------------------------------------------------- permits


class Counting:
    """A semaphore that is a number: it is counted up and down, and knows nobody by name (trap 31)."""

    def __init__(self, frees_twice: bool) -> None:
        self.frees_twice = frees_twice
        self.resource = ""
        self.taken: Counter[str] = Counter()

    def __call__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Put it in place of the slots."""
        counting = self

        def begin(turn: Turn, state: State, now: Instant, resource: str, *others: object) -> None:
            turned(turn, state, now, resource, *others)  # type: ignore[arg-type]  # passed on as they came
            counting.resource = resource
            if state == ledger.EMPTY:
                counting.taken[resource] = 0

        def granted(turn: Turn, waiter: Waiter, slots: tuple[int, ...], fences: int = 1) -> Grant:
            counting.taken[turn.resource] += waiter.permits if waiter.rule == SEMAPHORE else 0
            return grant(turn, waiter, slots, fences)

        def expired(turn: Turn) -> None:
            before = permits(turn)
            expire(turn)
            counting.taken[turn.resource] -= before - permits(turn)

        monkeypatch.setattr(Turn, "__init__", begin)
        monkeypatch.setattr(Turn, "grant", granted)
        monkeypatch.setitem(rules.RULES, SEMAPHORE, self.fits)
        monkeypatch.setitem(ledger.TURNS, ops.Release, self.release)
        monkeypatch.setitem(ledger.TURNS, ops.Withdraw, self.withdraw)
        if self.frees_twice:  # it does get back what a crash has left
            monkeypatch.setattr(Turn, "expire", expired)

    def fits(self, seats: Sequence[Occupied], claim: Waiter, limit: int) -> tuple[int, ...] | None:
        """There is room as long as the number is small enough."""
        closed = sum(len(one.slots) for one in seats if isinstance(one, Door))
        if self.taken[self.resource] + closed + claim.permits > limit:
            return None
        return rules.semaphore(seats, claim, 10**6)

    def free(self, turn: Turn, owner: str) -> None:
        """Count down what this owner has."""
        held = turn.grant_of(owner)
        if held is not None and held.rule == SEMAPHORE:
            self.taken[turn.resource] -= len(held.slots)

    def release(self, turn: Turn, op: ops.Release) -> ops.Reply:
        """Count down, whoever says so."""
        self.free(turn, op.owner)
        if self.frees_twice and turn.grant_of(op.owner) is None:
            self.taken[turn.resource] -= 1
        return ledger.release(turn, op)

    def withdraw(self, turn: Turn, op: ops.Withdraw) -> ops.Reply:
        """The same for what was never used."""
        self.free(turn, op.owner)
        return ledger.withdraw(turn, op)


def permits(turn: Turn) -> int:
    """As many as are held."""
    return sum(len(one.slots) for one in turn.holders if one.rule == SEMAPHORE)


def without_doors(seats: Sequence[Occupied], claim: Waiter, limit: int) -> tuple[int, ...] | None:
    """Counts those who hold, and not what is kept free."""
    return rules.semaphore([one for one in seats if not isinstance(one, Door)], claim, limit)


def always_slot_zero(seats: Sequence[Occupied], claim: Waiter, limit: int) -> tuple[int, ...] | None:
    """Counts right, and gives the same number to everybody."""
    slots = rules.semaphore(seats, claim, limit)
    return None if slots is None else tuple(range(len(slots)))


def shrinking_takes(turn: Turn, op: ops.Resize) -> ops.Reply:
    """A smaller limit throws out those who are too many."""
    reply = ledger.resize(turn, op)
    turn.holders[:] = turn.holders[: op.limit]
    return reply


# ---------------------------------------------------------------- several at once


async def grab_what_is_free(taking: GroupAcquisition) -> None:
    """Takes whatever it can get, and waits for the rest with that in its hands."""
    held: dict[int, Holding] = {}
    for wait in (0.0, None):
        for place, ask in enumerate(taking.requests):
            if place in held:
                continue
            new_owner = partial(taking.caller.new_owner, place)
            try:
                taken = await acquire(ask._replace(wait=wait), new_owner, taking.floor, taking.now)
            except NotAcquired:
                continue
            taking.now = taken.at
            held[place] = taking.caller.keep(place, taken)
            taking.held.append(held[place])


async def nothing(*_: object) -> None:
    """In place of a clean-up."""


def none_closed(taking: GroupAcquisition, closed: bool) -> list[Holding]:
    """Given back as if somebody had worked with it."""
    return [] if closed else taking.held


# ---------------------------------------------------------------- watching


def never_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Trusts that it is told."""
    monkeypatch.setattr(resource_flows, "_pause_ms", lambda *_: 60_000)
    monkeypatch.setattr(resource_flows, "WATCH_EVERY_MS", 60_000)


def deaf_to_metadata(holders: tuple[Grant, ...]) -> list[tuple[str, int, str, str]]:
    """Only who holds makes a change."""
    return [(one.owner, one.fence, one.rule, "") for one in holders]


def remembers_readers(guard: job.Guard, fence: int, owner: str, shared: bool) -> bool:
    """The next reader, of a lower fence, is refused."""
    accepted = accepts(guard, fence, owner, shared)
    if accepted:
        guard.fence, guard.owner = fence, owner
    return accepted


def one_record(holding: Holding) -> list[str]:
    """A permit is checked as if it were the only one."""
    return [holding.name.text]


accepts = job.Guard.accepts

# What is broken: how, where to look for it, and the promises whose checkers may be the first to notice.
BROKEN: dict[str, tuple[Break, str, str]] = {
    "readers overtake a writer that waits": (overtaking(WRITE), "readers", "I15"),
    "a writer beside readers": (patched_item(rules.RULES, WRITE, beside_readers), "readers", "I10"),
    "a reader beside anybody": (patched_item(rules.RULES, READ, lambda *_: (0,)), "readers", "I1|I10"),
    "readers one at a time": (patched_item(rules.RULES, READ, rules.alone), "readers", "I14"),
    "downgrade: writes until it is confirmed": (believes_until_confirmed, "readers", "I10"),
    "downgrade: grants again": (turns(ops.Renew, downgrade_grants_again), "readers", "I1|I2|I7"),
    "downgrade: confirmed, and not done": (turns(ops.Renew, downgrade_forgotten), "readers", "I10"),
    "a guard that remembers readers (47)": (patched(job.Guard, "accepts", remembers_readers), "readers", "I3"),
    "a counter that a crash leaks from (31)": (Counting(frees_twice=False), "permits", "I12|I14"),
    "a counter that a late release frees twice (31)": (Counting(frees_twice=True), "permits", "I9"),
    "permits that ignore closed doors": (patched_item(rules.RULES, SEMAPHORE, without_doors), "permits", "I1|I9"),
    "permits that all have the same slot": (patched_item(rules.RULES, SEMAPHORE, always_slot_zero), "permits", "I9"),
    "permits that are guarded as one (47)": (patched(job, "guarded", one_record), "permits", "I3"),
    "small claims overtake a big one (31)": (overtaking(SEMAPHORE), "permits", "I15"),
    "a smaller limit takes permits away": (turns(ops.Resize, shrinking_takes), "permits", "I7"),
    "all: in whatever order": (patched(worker, "in_order", list), "together", "I12"),
    "all: holds later ones as it waits": (
        patched(GroupAcquisition, "claim_all", grab_what_is_free),
        "together",
        "I12",
    ),
    "all: keeps what it has when it is cancelled": (
        patched(GroupAcquisition, "leave_nothing", nothing),
        "together",
        "I6",
    ),
    # Others may wait for ever (I12) before anybody fails and still holds.
    "all: keeps what it has when the rest is not free": (
        patched(GroupAcquisition, "give_back", nothing),
        "stormy together",
        "I6|I12",
    ),
    "all: leaves doors closed that it never went through": (
        patched(GroupAcquisition, "parts", none_closed),
        "together",
        "I6 closed",
    ),
    "all: forgets claims in doubt": (patched(group, "withdrawals", lambda _: []), "gentle together", "I6"),
    "a watcher that only waits to be told": (never_looks, "election", "I13"),
    "watchers are not told": (patched(Turn, "push_to_watchers", lambda _: None), "election", "I13"),
    "watchers are not told what a holder says": (
        patched(resource_flows, "visible_holders", deaf_to_metadata),
        "election",
        "I13",
    ),
    "watchers are never forgotten": (patched(Turn, "forget", lambda _: None), "election", "I6 a permanent ghost"),
}


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("broken", BROKEN)
def test_a_broken_primitive_is_caught(broken: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """I18: with one rule taken out, its checker finds a violation soon."""
    break_it, where, promises = BROKEN[broken]
    break_it(monkeypatch)
    require_caught(promises, where)
