"""Leases that are acquired and released in batches, under the seeded simulator: as it is, and with one rule broken.

A failing seed prints how to replay it. The soak takes its seeds from LEASEHOLD_SEEDS, as ``first:last``.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Sequence
from typing import Any

import pytest

from leasehold._core import many, ops
from leasehold._core.claims import AcquireRequest, immediate_grant
from leasehold._core.cohort import Cohort
from leasehold._core.holding import Holding, LocalGrant, grant_spans
from leasehold._core.many import Claims, Releases
from leasehold.errors import LeaseholdError, OutcomeUnknown, StoreUnavailable
from tests.model.breaking import Break, patched
from tests.support.simulator import simulate_batches
from tests.support.simulator.plans import KINDS, kind_of
from tests.support.simulator.porters import BatchWorld, PorterJob
from tests.support.simulator.simulate import history

QUICK = range(64)
SLOW = range(1_000, 1_300)
SOAK = "2000:20000"
MOST_SEEDS = 400
FEW = 3
ONE_OF_EACH = range(0, 8 * len(KINDS), len(KINDS) + 1)
pytestmark = pytest.mark.timeout(300)


def test_every_promise_is_kept() -> None:
    """One believer, growing fences, an outcome for each lock and nothing left behind, whatever goes wrong. And
    everything does."""
    played = [simulate_batches.run(seed) for seed in QUICK]
    assert sum(one.checks.batches for one in played) > 20 * len(QUICK)
    assert sum(one.checks.partial for one in played) > 10 * len(QUICK)
    assert sum(one.checks.failed for one in played) > len(QUICK)
    assert sum(one.checks.grants for one in played) > 50 * len(QUICK)
    told = "".join(map(history, played))
    for sign in (
        "takes what lingers, in a batch",
        "passes on to",
        "keeps it",
        "answers",
        "does not know whether it released",
        "had lost it before the release",
        "closed_ms=",
        "rule=write",
        "rule=read",
        "rule=semaphore",
        "freezes for",
        "is killed",
        "was cancelled",
        "stalls for",
        "loses its memory",
        "has its clock set by -",
        "event=evicted",
        "did not acquire NotAcquired",
        "did not acquire OutcomeUnknown",
        "did not acquire StoreUnavailable",
    ):
        assert sign in told, sign


@pytest.mark.slow
def test_every_promise_is_kept_in_more_seeds() -> None:
    """The same, for longer."""
    for seed in SLOW:
        simulate_batches.run(seed)


@pytest.mark.slow
def test_batches_of_several_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same with so few in one request that most batches need several. Nothing more is sent when one of them went
    unanswered."""
    monkeypatch.setattr(many, "MOST_TOGETHER", FEW)
    played = [simulate_batches.run(seed) for seed in range(500, 700)]
    told = "".join(map(history, played))
    sizes = [line.count("resource=") for line in told.splitlines() if "sends Batch(" in line]
    assert max(sizes) == FEW and sum(one.checks.batches for one in played) > 20 * len(played)


@pytest.mark.soak
@pytest.mark.timeout(0)
def test_every_promise_is_kept_in_thousands_of_seeds(capsys: pytest.CaptureFixture[str]) -> None:
    """The same, for as many seeds as one has time for."""
    first, last = os.environ.get("LEASEHOLD_SEEDS", SOAK).split(":")
    with capsys.disabled():
        sys.stdout.write(f"\nseeds {first} to {last}\n")
    for seed in range(int(first), int(last)):
        simulate_batches.run(seed)


@pytest.mark.parametrize("seed", ONE_OF_EACH)
def test_the_same_seed_tells_the_same_history(seed: int) -> None:
    """I17."""
    assert history(simulate_batches.run(seed)) == history(simulate_batches.run(seed))


# ---------------------------------------------------------------- broken rules (I18)


def counted_from_the_reply(request: AcquireRequest, owner: str, sent: float, reply: Any, at: float) -> Any:
    """A deadline that forgets how long the batch took."""
    return immediate_grant(request, owner, at, reply, at)


def without_regard_to_time(request: AcquireRequest, owner: str, sent: float, reply: Any, at: float) -> Any:
    """What is over by now is taken all the same."""
    if not isinstance(reply, ops.Granted):
        return None
    return LocalGrant(owner, reply.fence, request.ttl_ms, sent, reply.remaining_ms, at, False, reply.rule, reply.slots)


def backwards(world: BatchWorld, outcomes: dict[int, Any]) -> list[Any]:
    """The replies are dealt out in another order than that of the ops."""
    return [outcomes[at] for at in sorted(outcomes, reverse=True)]


def taken_for_unsent(claims: Claims, at: int, reply: Any, now: float) -> Any:
    """A claim that went unanswered is taken for one that was never sent."""
    return single(claims, at, StoreUnavailable("it was not sent") if isinstance(reply, OutcomeUnknown) else reply, now)


async def all_or_nothing(claims: Claims, outcomes: list[Any]) -> float:
    """One that fails takes the others along, which stay held."""
    before = len(outcomes)
    now = await acquire(claims, outcomes)
    if any(isinstance(one, LeaseholdError) for one in outcomes[before:]):
        outcomes[before:] = [
            StoreUnavailable("the others failed") if isinstance(one, Holding) else one for one in outcomes[before:]
        ]
    return now


async def said_to_be_released(releases: Releases, rest: dict[int, Any], found: list[Any], now: float) -> float:
    """A release that was not confirmed counts as one that was."""
    after = await go_on(releases, rest, found, now)
    for at, outcome in enumerate(found):
        found[at] = True if isinstance(outcome, LeaseholdError) else outcome
    return after


async def not_deferred(ops: Sequence[Any]) -> None:
    """Whoever is cancelled leaves everything as it is."""


def one_owner(job: PorterJob, place: int) -> str:
    """For all of a batch, and for every batch of a process."""
    owner = f"{job.process.name}:0:all"
    job._owners.append(owner)
    return owner


def takes_and_leaves(some: Cohort) -> int:
    """What a batch has taken lingers on, for the next one."""
    kept = some.kept
    fence = take(some)
    some.kept = kept
    return fence


single, acquire, go_on, take = Claims._single, Claims.acquire, Releases._go_on, Cohort.take

# What is broken: how, the promises whose checkers may be the first to notice, and in which kinds of seeds.
BROKEN: dict[str, tuple[Break, str, str]] = {
    "a deadline that counts from the reply": (patched(many, "immediate_grant", counted_from_the_reply), "I1", ""),
    "what is over is taken": (patched(many, "immediate_grant", without_regard_to_time), "trap 26|I1|I11", ""),
    "replies of other ops": (patched(BatchWorld, "in_order", backwards), "I1|I2|I20", ""),
    "silence is taken for a no": (patched(Claims, "_single", taken_for_unsent), "I6", "gentle"),
    "one that fails takes the others along": (patched(Claims, "acquire", all_or_nothing), "I20|I6", ""),
    "a cancelled batch leaves its claims": (patched(many, "defer", not_deferred), "I6", "gentle"),
    "an unconfirmed release is reported as done": (patched(Releases, "_go_on", said_to_be_released), "I7", ""),
    "what was taken lingers on": (patched(Cohort, "take", takes_and_leaves), "I1|I2", ""),
    "one owner for all": (patched(PorterJob, "new_owner", one_owner), "I1|I2", ""),
}


@pytest.mark.slow
@pytest.mark.parametrize("broken", BROKEN)
def test_a_broken_batch_is_caught(broken: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """I18: with one rule taken out, its checker finds a violation soon."""
    break_it, promises, kind = BROKEN[broken]
    break_it(monkeypatch)
    grant_spans.cache_clear()
    found = simulate_batches.find_violation(seed for seed in range(MOST_SEEDS) if kind in ("", kind_of(seed)))
    grant_spans.cache_clear()
    assert found is not None, "nobody noticed"
    seed, violation = found
    assert re.match(rf"seed {seed}: ({promises})\b", str(violation)), violation
