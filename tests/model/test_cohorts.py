"""Leases that pass between the waiters of one process, under the seeded simulator: as it is, and with one rule broken.

A failing seed prints how to replay it. The soak takes its seeds from LEASEHOLD_SEEDS, as ``first:last``.
"""

from __future__ import annotations

import os
import re
import sys
from typing import Any

import pytest

from leasehold._core import cohort, ops
from leasehold._core.cohort import ASK, GIVE_BACK, PASS, Cohort
from leasehold._core.holding import HELD, Holding, LocalGrant, grant_spans
from leasehold._core.policy import DAY_US, MOST_PASSES
from leasehold._core.turn import Turn
from tests.model.breaking import Break, patched
from tests.support.simulator import cohortchecks, simulate_cohorts
from tests.support.simulator.plans import KINDS, kind_of
from tests.support.simulator.simulate import history

QUICK = range(104)
SLOW = range(1_000, 1_048)
SOAK = "2000:20000"
MOST_SEEDS = 400
ONE_OF_EACH = range(0, 8 * len(KINDS), len(KINDS) + 1)
pytestmark = pytest.mark.timeout(300)


def test_every_promise_is_kept() -> None:
    """One believer, growing fences, fair turns and nobody forgotten, whatever goes wrong. And everything does."""
    played = [simulate_cohorts.run(seed) for seed in QUICK]
    assert sum(one.checks.passes for one in played) > 10 * len(QUICK)
    assert sum(one.checks.taken for one in played) > 3 * len(QUICK)
    assert sum(one.checks.blocks for one in played) > len(QUICK)
    assert sum(one.checks.grants for one in played) > 10 * len(QUICK)
    told = "".join(map(history, played))
    for sign in (
        "passes on to",
        "takes up",
        "leads",
        "leaves what was passed to it",
        f"fences={MOST_PASSES}",
        "others=True",
        "keeps it",
        "takes what lingers",
        "gives back what nobody used",
        "event=wanted",
        "rule=write",
        "rule=read",
        "never runs again",
        "freezes for",
        "is killed",
        "was cancelled",
        "loses its memory",
        "has its clock set by -",
        "event=evicted",
        "event=revoke",
        "did not acquire NotAcquired",
        "forget_ms=60000",
    ):
        assert sign in told, sign
    assert re.search(r"delay_ms=[1-9]", told), "some keep the door closed"


def test_requests_keep_their_order_in_a_stall_that_goes_on() -> None:
    """The second copy of a doubled release came before the first, whose answer is the one that is heard."""
    simulate_cohorts.run(102_895)


@pytest.mark.slow
def test_every_promise_is_kept_in_more_seeds() -> None:
    """The same, for longer."""
    for seed in SLOW:
        simulate_cohorts.run(seed)


@pytest.mark.slow
def test_nobody_elsewhere_is_overtaken_too_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """With so small a bound that cohorts reach it."""
    for module in (cohort, cohortchecks):
        monkeypatch.setattr(module, "MOST_PASSES", 3)
    played = [simulate_cohorts.run(seed) for seed in range(0, 320, len(KINDS))]
    assert max(one.checks.most_overtaken for one in played) == 3


@pytest.mark.soak
@pytest.mark.timeout(0)
def test_every_promise_is_kept_in_thousands_of_seeds(capsys: pytest.CaptureFixture[str]) -> None:
    """The same, for as many seeds as one has time for."""
    first, last = os.environ.get("LEASEHOLD_SEEDS", SOAK).split(":")
    with capsys.disabled():
        sys.stdout.write(f"\nseeds {first} to {last}\n")
    for seed in range(int(first), int(last)):
        simulate_cohorts.run(seed)


@pytest.mark.parametrize("seed", ONE_OF_EACH)
def test_the_same_seed_tells_the_same_history(seed: int) -> None:
    """I17."""
    assert history(simulate_cohorts.run(seed)) == history(simulate_cohorts.run(seed))


# ---------------------------------------------------------------- broken rules (I18)


def keeps_the_block(some: Cohort, holding: Holding, last_fence: int = 0, at: float = 0.0) -> None:
    """The fences of an earlier grant are used under the next one."""
    some.holder, some.leader = holding, None


def alone_in_the_world(some: Cohort, holding: Holding, last_fence: int = 0, at: float = 0.0) -> None:
    """A grant with fences is passed on as if the store had said that nobody waits elsewhere."""
    granted(some, holding, last_fence, at)
    some._others, some._passes = False, 2 * MOST_PASSES


def counts_from_another(some: Cohort, holding: Holding, last_fence: int = 0, at: float = 0.0) -> None:
    """Those who follow have the fences from that of the grant on, and not those above it."""
    granted(some, holding, last_fence, at)
    some._next -= bool(last_fence)


def mint_ahead(turn: Turn, floor: int, count: int = 1) -> int:
    """Beyond the clock."""
    first = mint(turn, floor)
    turn.fence += count - 1
    turn.fence_until_us = max(turn.fence_until_us, turn.fence + DAY_US)
    return first


def passes_doubt(held: Holding, now: float) -> bool:
    """Whatever it is worth."""
    return held.plain and held.depth <= 1


def reserve_ahead(turn: Turn, count: int) -> tuple[int, int]:
    """Beyond the clock."""
    first = turn.fence + 1
    turn.fence += count
    turn.fence_until_us = max(turn.fence_until_us, turn.fence + DAY_US)
    return first, turn.fence


def big_blocks_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    """As many fences as ten seconds have microseconds: a block soon outruns the clock."""
    monkeypatch.setattr(Turn, "reserve", reserve_ahead)
    big_blocks(monkeypatch)


def big_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """As far as the clock allows."""
    monkeypatch.setattr(Cohort, "asks", lambda _: 10_000_000)


def passes_for_ever(some: Cohort, holding: Holding, now: float, floor: int, lingers: bool = False) -> str:
    """Whoever waits elsewhere, and for however long."""
    if not some.waiting or not holding.may_pass(now):
        return GIVE_BACK
    return PASS if some._asked_at is not None and 0 < some._next <= some._last else ASK


def without_memory_of_others(some: Cohort, reply: ops.Renewed, at: float, tells: bool = False) -> None:
    """Nobody else counts."""
    reserved(some, reply._replace(others=False), at, tells)


def keeps_holding(held: Holding, following: Holding, owner: str, fence: int) -> None:
    """Both hold."""
    pass_on(held, following, owner, fence)
    held.phase = HELD


def begins_anew(held: Holding, following: Holding, owner: str, fence: int) -> None:
    """As if the store had granted it just now."""
    pass_on(held, following, owner, fence)
    fresh = LocalGrant(owner, fence, held.ttl_ms, following.at, held.ttl_ms, following.at, False)
    following.deadline, following.stop_at, following.renew_at = fresh.deadline, fresh.stop_at, fresh.renew_at


def same_owner(held: Holding, following: Holding, owner: str, fence: int) -> None:
    """The lease that follows cannot be told from the one before."""
    pass_on(held, following, held.owner, fence)


def renews_itself(held: Holding, *how: Any, **rest: Any) -> ops.Renew:
    """The store knows nothing of that owner."""
    return renew(held, *how, **rest)._replace(owner=held.owner, fence=held.fence)


def last_come_first(some: Cohort) -> tuple[object, int] | None:
    """A stack in place of a queue."""
    some.waiting.reverse()
    found = next_holder(some)
    some.waiting.reverse()
    return found


def takes_with_the_last_fence(some: Cohort) -> int:
    """A lease that lingered has a new owner, and the fence of the one before."""
    fence = take(some)
    some._next -= 1
    return fence


def same_fence(some: Cohort) -> tuple[object, int] | None:
    """One fence for all of them."""
    found = next_holder(some)
    some._next -= 1
    return found


pass_on, reserved, next_holder, renew = Holding.pass_on, Cohort.reserved, Cohort.next_holder, Holding._renew
take, granted, mint = Cohort.take, Cohort.granted, Turn.mint

# What is broken: how, the promises whose checkers may be the first to notice, and in which kinds of seeds.
BROKEN: dict[str, tuple[Break, str, str]] = {
    "fences of a block that was given back": (patched(Cohort, "granted", keeps_the_block), "I2", ""),
    "a grant brings its own fence for another": (patched(Cohort, "granted", counts_from_another), "I2", ""),
    "a grant brings fences beyond the clock": (patched(Turn, "mint", mint_ahead), "I2", ""),
    "who waited behind others does not count them": (patched(Cohort, "granted", alone_in_the_world), "I15", ""),
    "one fence for all of a cohort": (patched(Cohort, "next_holder", same_fence), "I2", ""),
    "an owner that stays": (patched(Holding, "pass_on", same_owner), "I2", ""),
    "what is in doubt is passed on": (patched(Holding, "may_pass", passes_doubt), "I11", ""),
    "a block beyond the clock, and the store forgets (14)": (big_blocks_ahead, "I2", "wiped"),
    "a passed lease is renewed by its own name": (
        patched(Holding, "_renew", renews_itself),
        "I8",
        "",
    ),
    "a passed lease is known by its own name": (
        patched(Holding, "in_store", lambda held: (held.owner, held.fence)),
        "I1",
        "",
    ),
    "no end of passing": (patched(Cohort, "decide", passes_for_ever), "I15", ""),
    "others who wait elsewhere do not count": (patched(Cohort, "reserved", without_memory_of_others), "I15", ""),
    "who passes on holds on": (patched(Holding, "pass_on", keeps_holding), "I1", ""),
    "a deadline that counts from the pass": (patched(Holding, "pass_on", begins_anew), "I1", ""),
    "last come, first served": (patched(Cohort, "next_holder", last_come_first), "I15", ""),
    "what lingers is taken when its time is over": (
        patched(Cohort, "may_take", lambda some, now, floor: some.kept is not None),
        "I11|I1|trap 26",
        "",
    ),
    "what lingered has the fence of before": (patched(Cohort, "take", takes_with_the_last_fence), "I2", ""),
    "who is told of others takes it again": (patched(Cohort, "wanted_elsewhere", lambda _: None), "I15", ""),
    "nobody leads after a leader that gave up": (patched(Cohort, "next_leader", lambda _: None), "I12|I6", ""),
}

# What few seeds notice: where to begin.
FIRST = {"what is in doubt is passed on": 116, "what lingers is taken when its time is over": 494}


def seeds_of(kind: str, first: int = 0) -> list[int]:
    """Of a kind, or all."""
    return [seed for seed in range(first, first + MOST_SEEDS) if kind in ("", kind_of(seed))]


@pytest.mark.slow
@pytest.mark.parametrize("broken", BROKEN)
def test_a_broken_cohort_is_caught(broken: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """I18: with one rule taken out, its checker finds a violation soon."""
    break_it, promises, kind = BROKEN[broken]
    break_it(monkeypatch)
    grant_spans.cache_clear()
    found = simulate_cohorts.find_violation(seeds_of(kind, FIRST.get(broken, 0)))
    grant_spans.cache_clear()
    assert found is not None, "nobody noticed"
    seed, violation = found
    assert re.match(rf"seed {seed}: ({promises})\b", str(violation)), violation


@pytest.mark.slow
def test_a_big_block_within_the_clock_is_no_harm(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was broken above is that it goes beyond the clock, not how big it is."""
    big_blocks(monkeypatch)
    for seed in seeds_of("wiped")[:20]:
        simulate_cohorts.run(seed)
