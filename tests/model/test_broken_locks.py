"""I18: every checker fails on a deliberately broken lock. Each test breaks one rule and waits to be caught."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from leasehold._core import holding, ledger, ops, rules
from leasehold._core import holding as taken_module
from leasehold._core import turn as turn_module
from leasehold._core.claims import PendingClaim
from leasehold._core.holding import Holding, LocalGrant
from leasehold._core.turn import Turn
from leasehold._core.types import Grant, Waiter
from tests.model.breaking import Break, patched, patched_item, require_caught, turns
from tests.support.simulator import job


def line_takes(choose: Callable[[PendingClaim, int, int], tuple[float, int]]) -> Break:
    """A waiter that counts its deadline from another moment, or with another length."""

    def taken(
        line: PendingClaim, fence: int, beat: int, remaining_ms: int, slots: tuple[int, ...], last_fence: int = 0
    ) -> LocalGrant | None:
        sent, length_ms = choose(line, beat, remaining_ms)
        ask, in_doubt = line.request, line.unanswered > 0
        found = LocalGrant(line.owner, fence, ask.ttl_ms, sent, length_ms, line.now, in_doubt, ask.rule, slots)
        return found if found.usable(line.request.renews) else None

    return lambda monkeypatch: monkeypatch.setattr(PendingClaim, "usable_grant", taken)


# ---------------------------------------------------------------- the broken rules


def without_margin(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither at the grant nor at a renewal."""
    for module in (taken_module, holding):
        monkeypatch.setattr(module, "margin", lambda _: 0.0)


def renew_resurrects(turn: Turn, op: ops.Renew) -> ops.Reply:
    """A blind SET in place of a comparison."""
    if turn.grant_of(op.owner, op.fence) is None:
        turn.holders[:] = [Grant(op.owner, op.fence, op.ttl_ms, turn.now.ms + op.ttl_ms)]
    return ledger.renew(turn, op)


def renew_shortens(turn: Turn, op: ops.Renew) -> ops.Reply:
    """Every renewal sets, in whatever order they arrive."""
    return ledger.renew(turn, op._replace(exact=True, number=2**31))


def renew_without_numbers(turn: Turn, op: ops.Renew) -> ops.Reply:
    """An extend sets, also when a later renewal has overtaken it."""
    return ledger.renew(turn, op._replace(number=2**31))


def release_anybody(turn: Turn, op: ops.Release) -> ops.Reply:
    """An unconditional DEL."""
    turn.holders.clear()
    return ops.Released()


def release_once(turn: Turn, op: ops.Release) -> ops.Reply:
    """A store that does not hear "again"."""
    return ledger.release(turn, op._replace(again=False))


def withdraw_nothing(turn: Turn, op: ops.Withdraw) -> ops.Reply:
    """A store that does not clean up."""
    return ops.Withdrawn("nothing")


def beat_creates(turn: Turn, op: ops.Beat) -> ops.Reply:
    """A sign of life from somebody who has left puts it back into the queue."""
    reply = ledger.beat(turn, op)
    if reply == ops.NoClaim("unknown"):
        turn.queue.append(Waiter(op.owner, 1000, op.beat, turn.now.ms))
    return reply


def evict_opens(turn: Turn, op: ops.Evict) -> ops.Reply:
    """The next one comes in while the victim still believes."""
    return ledger.evict(turn, op._replace(delay_ms=0, force=True))


def last_come_first(turn: Turn, requester: str = "") -> None:
    """A stack in place of a queue."""
    turn.queue.reverse()
    hand_on(turn, requester)
    turn.queue.reverse()


def plain_counter(turn: Turn, floor: int, count: int = 1) -> int:
    """INCR, which begins again at 1."""
    turn.fence += 1
    turn.fence_until_us = turn.now.wall_us * 2
    return turn.fence


def withdrawal_without_tombstone(line: PendingClaim) -> ops.Withdraw:
    """The claim that it overtook will win after all."""
    return ops.Withdraw(line.request.name.text, line.owner)


def release_without_tombstone(held: Holding, now: float) -> ops.Release | None:
    """An earlier claim of the same owner is still under way."""
    release = begin_release(held, now)
    return release and release._replace(forget_ms=0)


async def park_without_end(line: PendingClaim, until: float) -> None:
    """Trusts that every push arrives."""
    answer = await ops.Park(line.owner, line.now + 1e6)
    line.now, line.push = answer.at, answer.reply


def renewal_without_end(held: Holding, now: float) -> ops.Renew | None:
    """More patience than the lease has left."""
    renew = renewal(held, now)
    return renew and renew._replace(budget_ms=5_000)


def look_all_the_time(held: Holding) -> float:
    """Renewal is due, but there must be none beside an extend."""
    return min(held.stop_at, held.renew_at)


async def stay_in_line(line: PendingClaim) -> None:
    """Forgets its place without giving it up."""
    line.known, line.unanswered = False, 0


async def nothing(*_: object) -> None:
    """In place of a clean-up."""


hand_on, begin_release, renewal = Turn.hand_on, Holding.begin_release, Holding.begin_renewal

# What is broken: how, and the promises whose checkers may be the first to notice.
BROKEN: dict[str, tuple[Break, str]] = {
    "deadline counted from the reply (trap 23)": (line_takes(lambda line, _, ms: (line.now, ms)), "I1"),
    "deadline from the last beat sent, not the one in the push (41)": (
        line_takes(lambda line, _, ms: (line.sent[line.beat], ms)),
        "I1",
    ),
    "remaining time ignored in a repeated grant (42)": (
        line_takes(lambda line, beat, _: (line.sent[beat], line.request.ttl_ms)),
        "I1",
    ),
    "no allowance for clocks that differ (22)": (patched(taken_module, "drift", lambda _: 0.0), "I1"),
    "no margin before the deadline (1)": (without_margin, "I11"),
    "a renewal that waits past the deadline (2)": (patched(Holding, "begin_renewal", renewal_without_end), "I11"),
    "two fit into a mutex": (patched_item(rules.RULES, "mutex", lambda *_: (0,)), "I1"),
    "a renewal brings the dead back (7)": (turns(ops.Renew, renew_resurrects), "I1|I2|I7|I8"),
    "a late renewal shortens (44)": (turns(ops.Renew, renew_shortens), "I1|I8"),
    # What a holder says of itself travels with a Renew, too: an overtaken one takes it back (I13).
    "an overtaken extend shortens (44)": (turns(ops.Renew, renew_without_numbers), "I1|I8|I13"),
    "a release frees whoever holds (8)": (turns(ops.Release, release_anybody), "I1|I7"),
    "a repeated release is denied (11)": (turns(ops.Release, release_once), "I7"),
    "an eviction opens the door at once": (turns(ops.Evict, evict_opens), "I1"),
    "fences as a plain counter, and the store forgets (14)": (patched(Turn, "mint", plain_counter), "I2"),
    "a guard that accepts everything": (patched(job.Guard, "accepts", lambda *_: True), "I3"),
    "no tombstones (9, 10)": (patched(Turn, "add_tombstone", lambda *_: None), "I2|I6|I7"),
    "a withdrawal without a tombstone (9)": (
        patched(PendingClaim, "withdrawal", withdrawal_without_tombstone),
        "I2|I6",
    ),
    "a release without a tombstone (10)": (patched(Holding, "begin_release", release_without_tombstone), "I2|I6"),
    "the store ignores withdrawals (25)": (turns(ops.Withdraw, withdraw_nothing), "I6"),
    "a cancelled acquire cleans nothing up (9)": (patched(PendingClaim, "withdraw_later", nothing), "I6"),
    "an acquire that timed out stays in the queue (25)": (patched(PendingClaim, "withdraw", stay_in_line), "I6"),
    "a beat creates a claim (26)": (turns(ops.Beat, beat_creates), "I2|I6|I14"),
    "nothing ever expires (30)": (patched(Turn, "expire", lambda _: None), "I6|I8|I12"),
    "silent waiters are not passed over (25)": (patched(Turn, "live", lambda *_: True), "I14"),
    "silent waiters are never forgotten (25)": (
        patched(turn_module, "forgotten_after_ms", lambda _: 10**9),
        "I6 a permanent ghost",
    ),
    "what a clock that was set back prolongs is believed (49)": (patched(Turn, "bound", lambda _: None), "I6|I12|I14"),
    "a watchdog that checks what it must not renew": (
        patched(Holding, "check_at", look_all_the_time),
        "the watchdog",
    ),
    "a wait without an end (24)": (patched(PendingClaim, "park", park_without_end), "I12|I14"),
    "last come, first served": (patched(Turn, "hand_on", last_come_first), "I15"),
    "acquire returns what is over (26)": (patched(LocalGrant, "usable", lambda *_: True), "trap 26"),
}

# What few seeds notice: where to begin. When the seeds mean something else one day, the search goes on from there.
FIRST = {
    "deadline from the last beat sent, not the one in the push (41)": 130,
    "no margin before the deadline (1)": 55,
    "an overtaken extend shortens (44)": 863,
    "a withdrawal without a tombstone (9)": 487,
    "an acquire that timed out stays in the queue (25)": 49,
    "a beat creates a claim (26)": 220,
}


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("broken", BROKEN)
def test_a_broken_lock_is_caught(broken: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """I18: with one rule taken out, its checker finds a violation soon."""
    break_it, promises = BROKEN[broken]
    break_it(monkeypatch)
    require_caught(promises, first=FIRST.get(broken, 0))
