"""Leaders that are frozen and killed: never two at a time by their own clocks, and terms that only grow."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.processes.election.polls import Polls, Rule, overlaps, shrinking
from tests.support.workers.crew import SLACK, beat, report

pytestmark = pytest.mark.slow
TTL = 0.5


@pytest.fixture
def polls(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Polls]:
    """An election with four candidates, on SQLite or Redis."""
    url = f"sqlite:///{tmp_path}/leases.db" if request.param == "sqlite" else request.getfixturevalue("redis_url")
    seed = int.from_bytes(os.urandom(4))
    report(f"seed {seed}")
    polls = Polls(url, tmp_path, TTL, seed)
    for _ in range(4):
        polls.spawn()
    yield polls
    polls.close()


def judge(polls: Polls, harms: int) -> None:
    """What the journals say."""
    polls.stop()
    rules = polls.rules()
    report(f"{len(rules)} terms, {harms} leaders harmed")
    assert len(rules) >= harms // 2, "most of them led"
    assert overlaps(rules) == []
    assert shrinking(rules) == []


EVERYWHERE = pytest.mark.parametrize("polls", ["sqlite", "redis"], indirect=True)


@EVERYWHERE
def test_never_two_leaders(polls: Polls) -> None:
    """The leader is frozen past its deadline, or killed, again and again."""
    for _ in range(2):
        polls.harm(kill=False)
        after = polls.harm(kill=True)
        assert after <= TTL + beat(TTL) + SLACK, "a crash hands over within the ttl and one beat"
    judge(polls, 4)


@pytest.mark.soak
@pytest.mark.timeout(600)
@EVERYWHERE
def test_never_two_leaders_for_long(polls: Polls) -> None:
    """The same, for a minute or more."""
    for number in range(80):
        polls.harm(kill=number % 3 == 2)
    judge(polls, 80)


def test_the_judge_can_say_no() -> None:
    """Two who overlap, and a term that does not grow, are found."""
    one, other = Rule(1.0, 2.0, 7), Rule(1.9, 3.0, 7)
    assert overlaps([one, other]) == [(one, other)] == shrinking([one, other])
    assert overlaps([one, other._replace(began=2.0)]) == []
