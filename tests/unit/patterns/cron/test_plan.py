"""What is decided about ticks that are due: missed, overlapping, late, early, and by clocks that are wrong."""

from __future__ import annotations

from typing import Any

import pytest

from leasehold.errors import InvalidRequest
from leasehold.patterns.cron.schedule import MOST_TICKS, DueTicks, Policy, Schedule, decide
from leasehold.patterns.cron.state import KEPT, CronState, RunRecord, decode, encode
from tests.support.tables import each

FIVE = Schedule("*/5 * * * *")
T = 1_800_000_000  # a tick: 2027-01-15 08:00:00 UTC


def state(last: int = T, *lines: RunRecord, schedule: Schedule = FIVE) -> CronState:
    """Books as somebody left them."""
    return CronState(schedule.text, last, float(last), lines)


def plan(
    known: CronState | None,
    now: float,
    missed: str = "skip",
    overlap: str = "skip",
    grace: float = 60,
    since: float = T - 9,
) -> DueTicks | None:
    """What is to be done now."""
    return decide(known, FIVE, Policy(missed, overlap, grace), now, since)


def test_nothing_is_due() -> None:
    """Until the next tick; also by a clock that is far behind the one that has claimed."""
    for now in (T, T + 299.9, T - 1, T - 200, T - 9000):
        assert plan(state(), now) is None


def test_a_tick_is_due_from_its_time_on() -> None:
    """It is claimed by the first who looks, and is then settled for all."""
    assert plan(state(), T + 300) == DueTicks(T + 300, T + 300)
    assert plan(state(T + 300), T + 300.1) is None


@each(("late", "runs"), [(0, True), (60, True), (60.1, False), (299, False)])
def test_grace(late: float, runs: bool) -> None:
    """A little late is not missed."""
    found = plan(state(), T + 300 + late)
    assert found == (DueTicks(T + 300, T + 300) if runs else DueTicks(T + 300, None, (RunRecord(T + 300, "missed"),)))


def test_first_start() -> None:
    """Nothing was missed before anybody knew the cron; it is known from then on."""
    assert plan(None, T + 100, since=T + 100) == DueTicks(T + 100)
    assert plan(None, T + 301, since=T + 299) == DueTicks(T + 300, T + 300)
    assert plan(None, T + 301, since=T + 300.5) == DueTicks(T + 301)


def test_another_expression() -> None:
    """What the new one would have run under the old one was not missed."""
    daily = state(T - 40_000, schedule=Schedule("@daily"))
    assert plan(daily, T + 100, missed="all", since=T + 99) == DueTicks(T + 100)
    assert plan(daily, T + 301, missed="all", since=T + 99) == DueTicks(T + 300, T + 300)
    ahead = state(T + 500, schedule=Schedule("@daily"))
    assert plan(ahead, T + 301, since=T) == DueTicks(T + 500)


def test_missed_and_skipped() -> None:
    """With ``skip`` they are noted, and the one that is due now is run."""
    found = plan(state(), T + 1210)
    assert found == DueTicks(T + 1200, T + 1200, (RunRecord(T + 300, "missed", until=T + 900, ticks=3),))
    late = plan(state(), T + 1290)
    assert late == DueTicks(T + 1200, None, (RunRecord(T + 300, "missed", until=T + 1200, ticks=4),))


def test_missed_once() -> None:
    """One run for all of them, with the latest, however late."""
    found = plan(state(), T + 1499, missed="once")
    assert found == DueTicks(T + 1200, T + 1200, (RunRecord(T + 300, "missed", until=T + 900, ticks=3),))


def test_missed_all() -> None:
    """Each, the oldest first."""
    known, ran = state(), []
    while (found := plan(known, T + 1499, missed="all")) is not None:
        assert found.lines == ()
        ran.append(found.tick)
        known = state(found.last)
    assert ran == [T + 300, T + 600, T + 900, T + 1200]


def test_all_is_bounded() -> None:
    """After a year only the latest thousand are made up for; the rest is one line."""
    found = plan(state(), T + 365 * 86400, missed="all")
    assert found is not None and found.tick == T + 365 * 86400 - (MOST_TICKS - 1) * 300
    (line,) = found.lines
    assert (line.tick, line.until, line.ticks, line.outcome) == (T + 300, found.tick - 300, None, "missed")


def test_skip_of_a_year() -> None:
    """It is one line, and takes a moment."""
    found = plan(state(), T + 365 * 86400 + 100)
    assert found is not None and found.tick is None and [line.ticks for line in found.lines] == [None]


def test_overlap_skip() -> None:
    """A tick that came while a run was under way is left out, whatever is done about missed ones."""
    long = RunRecord(T, "ok", T + 1.0, T + 700.0)
    for missed in ("skip", "once", "all"):
        found = plan(state(T, long), T + 701, missed=missed)
        assert found == DueTicks(T + 600, None, (RunRecord(T + 300, "skipped", until=T + 600, ticks=2),))


def test_overlap_skip_and_one_that_is_due() -> None:
    """The first tick after the run is run."""
    found = plan(state(T, RunRecord(T, "error", T + 1.0, T + 400.0)), T + 600)
    assert found == DueTicks(T + 600, T + 600, (RunRecord(T + 300, "skipped"),))


def test_overlap_wait() -> None:
    """The latest of those that came meanwhile is run, however late; all of them if all are wanted."""
    known = state(T, RunRecord(T, "ok", T + 1.0, T + 890.0))
    found = plan(known, T + 890, overlap="wait")
    assert found == DueTicks(T + 600, T + 600, (RunRecord(T + 300, "skipped"),))
    assert plan(known, T + 890, missed="all", overlap="wait") == DueTicks(T + 300, T + 300)


def test_missed_before_a_run() -> None:
    """What is being made up for did not come while a run was under way."""
    first = RunRecord(T + 300, "ok", T + 2000.0, T + 2050.0)
    found = plan(state(T + 300, first), T + 2050, missed="all")
    assert found == DueTicks(T + 600, T + 600)
    during = RunRecord(T + 600, "ok", T + 2090.0, T + 2110.0)
    assert plan(state(T + 1800, first, during), T + 2111, missed="all") == DueTicks(
        T + 2100, None, (RunRecord(T + 2100, "skipped"),)
    )


def test_one_that_died_was_not_under_way() -> None:
    """Nobody knows until when: the ticks after it were missed, or are due."""
    found = plan(state(T, RunRecord(T, "died", T + 1.0)), T + 610)
    assert found == DueTicks(T + 600, T + 600, (RunRecord(T + 300, "missed"),))


def test_books_are_kept_short() -> None:
    """The oldest lines are forgotten."""
    known = state()
    for number in range(300):
        known = known.with_lines([RunRecord(T + number, "ok")])
    assert len(known.lines) == KEPT and known.lines[-1].tick == T + 299


def test_books_can_be_read_again() -> None:
    """What was written is what is read."""
    known = state(
        T, RunRecord(T, "error", 1.5, 2.5, "vm:1", 7, 'Ü"\n', None, 1), RunRecord(T, "missed", until=T + 9, ticks=None)
    )
    assert decode(encode(known), "rollup") == known


@each("text", ["", "{}", "[]", "7", "null", '{"leasehold":"once/1"}', '{"leasehold":"cron/1"}', "{"])
def test_a_name_that_is_used_twice(text: str) -> None:
    """What another pattern, or anybody else, has written is not overwritten."""
    with pytest.raises(InvalidRequest, match="used twice"):
        decode(text, "rollup")


def test_what_a_wrong_clock_claimed() -> None:
    """Without it, the last that is known of the time before it counts."""
    future: dict[str, Any] = {"until": None}
    known = state(T + 10**9, RunRecord(T - 300, "ok"), RunRecord(T, "ok"), RunRecord(T + 10**9, "ok", **future))
    assert known.without_future(T + 100).last == T
    assert state(T + 10**9).without_future(T + 100.5).last == T + 100
