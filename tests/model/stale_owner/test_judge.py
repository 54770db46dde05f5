"""The judge alone: it sees a stale write, a lost update, and a refusal that was none."""

from __future__ import annotations

import pytest

from tests.model.stale_owner.evidence import Line, judge
from tests.model.stale_owner.targets import Write

LINES = [
    Line("presented", "job", 5, "", "a"),
    Line("try", "job", 5, "a.1", "a"),
    Line("done", "job", 5, "a.1", "a"),
    Line("presented", "job", 9, "", "b"),
    Line("try", "job", 9, "b.1", "b"),
    Line("done", "job", 9, "b.1", "b"),
    Line("try", "job", 5, "a.2", "a"),
]
HISTORY = [Write(5, 1, "a.1"), Write(9, 2, "b.1")]


def test_what_is_right_is_right() -> None:
    """Two writes and a stale one that was refused."""
    assert judge([*LINES, Line("refused", "job", 5, "a.2", "a")], 2, HISTORY) == (2, 1, 0, 0, 0)


@pytest.mark.parametrize("history", [[*HISTORY, Write(5, 3, "a.2")], HISTORY])
def test_a_stale_write_is_seen(history: list[Write]) -> None:
    """By the target's own order, and also when the target does not own up to it."""
    assert judge([*LINES, Line("done", "job", 5, "a.2", "a")], 2, history).accepted == 1


def test_one_fence_of_two_owners_is_seen() -> None:
    """An equal fence is stale too, when somebody else brings it."""
    lines = [*LINES[:3], Line("try", "job", 5, "c.1", "c"), Line("done", "job", 5, "c.1", "c")]
    assert judge(lines, 2, [HISTORY[0], Write(5, 2, "c.1")]).accepted == 1


@pytest.mark.parametrize(
    ("value", "history"),
    [(1, [HISTORY[0], Write(9, 1, "b.1")]), (1, HISTORY), (1, HISTORY[:1])],
    ids=["overwritten", "not counted", "gone"],
)
def test_a_lost_update_is_seen(value: int, history: list[Write]) -> None:
    """Two writers who read the same value, a counter behind its history, a write of which nothing is left."""
    assert judge(LINES, value, history).lost == 1


@pytest.mark.parametrize("outcome", ["refused", "nothing"])
def test_a_write_that_was_refused_and_happened_is_seen(outcome: str) -> None:
    """Whoever was told no must be able to rely on it; who was killed in the middle may have written."""
    history = [*HISTORY, Write(9, 3, "b.2")]
    lines = [*LINES, Line("try", "job", 9, "b.2", "b")]
    assert judge(lines, 3, history) == (3, 0, 0, 0, 0)
    assert judge([*lines, Line(outcome, "job", 9, "b.2", "b")], 3, history).phantoms == 1
