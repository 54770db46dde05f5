"""The judge of the report exports: what it calls stale, and what lost."""

from __future__ import annotations

import pytest

from examples.report_exports.judge import Line, Verdict, judge

A, B = 101, 102  # workers


def said(editions: int, *lines: tuple[str, int, int]) -> Verdict:
    """Of one report."""
    return judge([Line(1, what, fence, worker) for what, fence, worker in lines], {1: editions})


def test_an_orderly_history_is_clean() -> None:
    """Each owner writes as often as it likes, and the next comes later."""
    turns = [(what, fence, worker) for fence, worker in ((10, A), (20, B)) for what in ("state", "began", "saved")]
    assert said(2, *turns) == Verdict(2, 0, 0, 0, 0, 0)
    assert said(2, *turns).clean


@pytest.mark.parametrize("last", ["saved", "state"])
def test_a_write_after_a_newer_one_is_stale(last: str) -> None:
    """At the place that both have written."""
    found = said(1, (last, 20, B), (last, 10, A))
    assert (found.stale_tried, found.stale_accepted) == (1, 1) and not found.clean


def test_a_write_after_a_newer_owner_has_read_is_stale() -> None:
    """What the newer one has read would be gone."""
    assert said(1, ("began", 10, A), ("began", 20, B), ("saved", 10, A)).stale_accepted == 1


def test_places_are_judged_each_by_itself() -> None:
    """A newer owner at another table, or another report, makes nobody stale."""
    assert said(1, ("state", 20, B), ("saved", 10, A)).stale_accepted == 0
    assert judge([Line(1, "saved", 20, B), Line(2, "saved", 10, A)], {1: 1, 2: 1}).stale_accepted == 0


def test_to_read_late_is_no_stale_write() -> None:
    """It harms nobody."""
    assert said(1, ("saved", 20, B), ("began", 10, A)).stale_accepted == 0


def test_the_fence_of_another_is_stale() -> None:
    """Two owners never have one fence."""
    assert said(2, ("saved", 10, A), ("saved", 10, A)).stale_accepted == 0
    assert said(2, ("saved", 10, A), ("saved", 10, B)).stale_accepted == 1


def test_an_edition_that_is_not_there_is_lost() -> None:
    """Two were saved, and the report has one."""
    found = said(1, ("saved", 10, A), ("saved", 20, B))
    assert found.updates_lost == 1 and not found.clean


def test_a_refusal_counts_as_tried() -> None:
    """And not as accepted."""
    assert said(1, ("saved", 20, B), ("refused", 10, A)) == Verdict(1, 0, 1, 0, 0, 0)


@pytest.mark.parametrize("before", [[], [("began", 10, A)], [("saved", 5, B)]])
def test_a_refusal_without_a_reason_is_found(before: list[tuple[str, int, int]]) -> None:
    """Nobody newer was there, so a guard that refuses everybody does not pass."""
    found = said(len([line for line in before if line[0] == "saved"]), *before, ("refused", 10, A))
    assert found.wrongly_refused == 1 and not found.clean


def test_who_noticed_by_himself_is_counted() -> None:
    """A lease that was lost, and nothing tried."""
    assert said(0, ("lost", 10, A)) == Verdict(0, 1, 0, 0, 0, 0)
