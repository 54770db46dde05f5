"""The whole protocol under a seeded simulator: the production flows and ledger, a virtual clock, every fault.

A failing seed prints how to replay it. The soak takes its seeds from LEASEHOLD_SEEDS, as ``first:last``.
"""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.support.simulator import simulate
from tests.support.simulator.plans import KINDS

QUICK = range(160)  # every kind with every theme, twice; half of them with plain locks
SLOW = [range(first, first + 60) for first in (1_000, 1_060)]  # workers share them
SOAK = "1120:50000"
pytestmark = pytest.mark.timeout(240)  # what the first test sets up takes seconds, and a minute on a busy machine
ONE_OF_EACH = range(0, 10 * len(KINDS), len(KINDS) + 1)  # of the kinds, and of the themes


@pytest.fixture(scope="module")
def played() -> list[simulate.Simulation]:
    """The quick seeds; each must keep every promise."""
    return [simulate.run(seed) for seed in QUICK]


@pytest.fixture(scope="module")
def told(played: list[simulate.Simulation]) -> str:
    """What happened in them."""
    return "".join(map(simulate.history, played))


def test_every_promise_is_kept_in_a_few_hundred_seeds(played: list[simulate.Simulation]) -> None:
    """Exclusion, growing fences, refused stale writes, no ghost and no stall, whatever goes wrong."""
    assert sum(one.checks.grants for one in played) > 10 * len(QUICK)
    assert sum(one.checks.writes for one in played) > 10 * len(QUICK)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("seeds", SLOW, ids=lambda seeds: f"{seeds.start}")
def test_every_promise_is_kept_in_a_hundred_more_seeds(seeds: range) -> None:
    """The same, for longer."""
    for seed in seeds:
        simulate.run(seed)


@pytest.mark.soak
@pytest.mark.timeout(0)
def test_every_promise_is_kept_in_tens_of_thousands_of_seeds(capsys: pytest.CaptureFixture[str]) -> None:
    """The same, for as many seeds as one has time for."""
    first, last = os.environ.get("LEASEHOLD_SEEDS", SOAK).split(":")
    with capsys.disabled():
        sys.stdout.write(f"\nseeds {first} to {last}\n")
    for seed in range(int(first), int(last)):
        simulate.run(seed)


@pytest.mark.parametrize("seed", ONE_OF_EACH)
def test_the_same_seed_tells_the_same_history(seed: int) -> None:
    """I17: byte for byte, so that a failure can be looked at again."""
    assert simulate.history(simulate.run(seed)) == simulate.history(simulate.run(seed))


@pytest.mark.parametrize("seed", [5, 77])
def test_a_history_does_not_depend_on_the_process(seed: int) -> None:
    """I17: also with another hash seed, and by the command that a failing test prints."""
    command = [sys.executable, "-m", "tests.support.simulator.simulate", "--seed", str(seed)]
    environment = {**os.environ, "PYTHONHASHSEED": "7", "PYTHONPATH": os.pathsep.join(sys.path)}
    told = subprocess.run(command, env=environment, capture_output=True, check=True, text=True)
    assert told.stdout == simulate.history(simulate.run(seed)) + "every promise was kept\n"


def test_every_fault_happens(told: str) -> None:
    """A simulator in which nothing goes wrong proves nothing."""
    for sign in (
        "freezes for",
        "is killed",
        "vanishes with its host",
        "was cancelled",
        "stalls for",
        "loses its memory",
        "has its clock set by -",
        "push lost",
        "is refused by the guard",
        "is told of the loss renewal_failed",
        "is told of the loss evicted",
        "is told of the loss max_hold",
        "did not acquire NotAcquired",
        "did not acquire OutcomeUnknown",
        "did not acquire StoreUnavailable",
        "extends to",
        "does not know whether it extended",
        "had lost it before the release",
        "NoClaim(outcome=withdrawn)",
        "Withdrawn(found=held)",
        "Withdrawn(found=queued)",
        "again=True",
        "forget_ms=60000",
        "closed_ms=",
    ):
        assert sign in told, sign


def test_every_primitive_is_used(played: list[simulate.Simulation], told: str) -> None:
    """Also in the ways that are rare: a downgrade in doubt, a limit that others changed, a look without an answer."""
    for sign in (
        "Group(",
        "downgrades",
        "does not know whether it downgraded",
        "does not know whether it said",
        "reads",
        "rule=write",
        "slots=(0, 1, 2)",
        "Resize(",
        "Rejected(",
        "did not acquire InvalidRequest",
        "event=changed",
        "sees",
        "cannot see",
        "doors=(Door(",
    ):
        assert sign in told, sign
    assert sum(one.sights.seen for one in played) > len(QUICK)


def test_a_violation_says_how_to_replay_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The seed, the promise, the command; and the command shows the history that led there."""
    monkeypatch.setattr("tests.support.simulator.job.Guard.accepts", lambda *_: True)
    found = simulate.find_violation(QUICK)
    assert found is not None
    seed, violation = found
    assert f"seed {seed}: I3 stale write accepted" in str(violation)
    assert f"python -m tests.support.simulator.simulate --seed {seed}" in str(violation)
    assert simulate.main(["--seed", str(seed)]) == 1
