"""When ticks are: expressions, time zones, summer time, and what is refused."""

from __future__ import annotations

import builtins
import os
import subprocess
import sys
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from leasehold.errors import InvalidRequest, Unsupported
from leasehold.patterns.cron.schedule import ALIASES, Schedule
from tests.support.examples import examples
from tests.support.tables import each

AMSTERDAM, NEW_YORK = "Europe/Amsterdam", "America/New_York"


def ticks(schedule: Schedule, begin: str, count: int) -> list[str]:
    """The next ones, as a clock in UTC shows them."""
    moment, found = datetime.fromisoformat(begin).replace(tzinfo=UTC).timestamp(), []
    for _ in range(count):
        moment = schedule.after(moment)
        found.append(datetime.fromtimestamp(moment, UTC).strftime("%m-%d %H:%M"))
    return found


def test_every_five_minutes() -> None:
    """A tick is strictly later than the moment that one asks for."""
    schedule = Schedule("*/5 * * * *")
    assert ticks(schedule, "2026-11-16 11:59:59", 3) == ["11-16 12:00", "11-16 12:05", "11-16 12:10"]
    assert ticks(schedule, "2026-11-16 12:00", 1) == ["11-16 12:05"]
    assert schedule.after(0.5) == 300 and schedule.after(299.999) == 300 and schedule.after(300) == 600


def test_seconds() -> None:
    """Six fields: the first one is seconds."""
    assert Schedule("*/20 * * * * *").after(41.0) == 60


def test_a_time_of_day_in_a_zone() -> None:
    """Three at night is another moment in summer than in winter."""
    assert ticks(Schedule("0 3 * * *", AMSTERDAM), "2026-10-24", 3) == ["10-24 01:00", "10-25 02:00", "10-26 02:00"]


def test_the_hour_that_is_left_out() -> None:
    """What falls into it runs once, right after it; what runs every half hour knows of no gap."""
    assert ticks(Schedule("30 2 * * *", AMSTERDAM), "2026-03-28", 3) == ["03-28 01:30", "03-29 01:00", "03-30 00:30"]
    assert ticks(Schedule("30 2 * * *", NEW_YORK), "2026-03-07 12:00", 2) == ["03-08 07:00", "03-09 06:30"]
    half_hours = ticks(Schedule("*/30 * * * *", AMSTERDAM), "2026-03-29 00:15", 3)
    assert half_hours == ["03-29 00:30", "03-29 01:00", "03-29 01:30"]


def test_the_hour_that_comes_twice() -> None:
    """What falls into it runs once, the first time; what runs every half hour runs in both."""
    assert ticks(Schedule("30 2 * * *", AMSTERDAM), "2026-10-24 12:00", 2) == ["10-25 00:30", "10-26 01:30"]
    assert ticks(Schedule("30 1 * * *", NEW_YORK), "2026-10-31 12:00", 2) == ["11-01 05:30", "11-02 06:30"]
    half_hours = ticks(Schedule("*/30 * * * *", AMSTERDAM), "2026-10-25 00:00", 4)
    assert half_hours == ["10-25 00:30", "10-25 01:00", "10-25 01:30", "10-25 02:00"]


def test_a_question_in_the_hour_that_comes_twice() -> None:
    """Whoever asks in the second of them is not told of a tick in the first, which is past."""
    assert ticks(Schedule("30 2 * * *", AMSTERDAM), "2026-10-25 01:10", 1) == ["10-26 01:30"]


@each("zone", ["UTC", AMSTERDAM, NEW_YORK, "America/Havana", "Asia/Kathmandu"])
@each("expression", ["*/7 * * * *", "30 2 * * *", "0,30 1-3 * * *", "15 */2 * * *"])
@settings(max_examples=examples(10))
@given(data=st.data())
def test_everybody_sees_the_same_ticks(data: st.DataObject, zone: str, expression: str) -> None:
    """Whenever one begins to look, between the same two ticks, the next one is the same."""
    schedule = Schedule(expression, zone)
    change = data.draw(st.sampled_from([1774746000, 1792890000, 1772953200, 1793512800]))
    moment = change + data.draw(st.integers(-40_000, 40_000))
    first = schedule.after(moment)
    between = data.draw(st.integers(moment, first - 1))
    assert schedule.after(between) == first > moment
    assert schedule.recent(moment, first, 10) == [first]


def test_recent_ticks() -> None:
    """All that are due; of a year of minutes only the latest."""
    schedule = Schedule("*/5 * * * *")
    assert schedule.recent(0, 1500, 1000) == [300, 600, 900, 1200, 1500]
    assert schedule.recent(1500, 1500, 1000) == schedule.recent(9000, 1500, 1000) == []
    year = Schedule("* * * * *").recent(0, 366 * 86400, 1000)
    assert year[-1] == 366 * 86400 and 1000 <= len(year) < 5000
    assert [after - before for before, after in pairwise(year)] == [60] * (len(year) - 1)
    leap = datetime(2096, 2, 29, tzinfo=UTC).timestamp()
    assert Schedule("0 0 29 2 *").recent(0, leap + 86400, 3)[-1] == leap


@each("alias", sorted(ALIASES))
def test_aliases(alias: str) -> None:
    """They are the expressions that crontab(5) says, and the same schedule."""
    assert Schedule(alias).text == Schedule(ALIASES[alias]).text == Schedule(f" {alias.upper()} ").text


@each(
    "expression",
    [
        "",
        " ",
        "nonsense",
        "* * * *",
        "60 * * * *",
        "* * * * * * *",
        "@reboot",
        "0 3 * *  *\0",
        "*/0 * * * *",
        "x" * 300,
    ],
)
def test_no_expression(expression: str) -> None:
    """It is said what one looks like."""
    with pytest.raises(InvalidRequest, match="@daily"):
        Schedule(expression)


@each("expression", ["0 0 30 2 *", "0 0 31 4,6,9,11 *", "0 0 31 2 *"])
def test_an_expression_that_never_fires(expression: str) -> None:
    """30 February is refused at once, and not waited for."""
    with pytest.raises(InvalidRequest, match="never fires"):
        Schedule(expression)


@given(st.text("0123456789*/,-#LW @MONJAN", max_size=20))
def test_whatever_is_written(expression: str) -> None:
    """An expression is taken or refused; nothing else comes out."""
    try:
        assert Schedule(expression).after(1_700_000_000) > 1_700_000_000
    except InvalidRequest:
        pass


@each("wrong", [None, 5, b"* * * * *", ["*"]])
def test_what_is_no_text(wrong: Any) -> None:
    """Neither as an expression nor as a zone."""
    with pytest.raises(InvalidRequest, match="text"):
        Schedule(wrong)
    with pytest.raises(InvalidRequest, match="timezone is a name"):
        Schedule("@daily", wrong)


@pytest.mark.parametrize("zone", ["localtime", "posixrules"])
def test_a_zone_of_the_machine(zone: str) -> None:
    """Hosts would disagree about the ticks under one name, and run them in each of their zones."""
    with pytest.raises(InvalidRequest, match="may be another time zone on every host"):
        Schedule("@daily", zone)


@each("zone", ["Europe/Nowhere", "", "../../etc/passwd", "Europe", "CEST+2", "a\0b"])
def test_no_such_zone(zone: str) -> None:
    """It is said what one looks like."""
    with pytest.raises(InvalidRequest, match="Europe/Amsterdam"):
        Schedule("@daily", zone)


NO_ZONES = """
import sys
sys.modules["tzdata"] = None
from leasehold.patterns.cron.schedule import Schedule
assert Schedule("@daily").after(0) == 86400
Schedule("@daily", "Europe/Amsterdam")
"""


def test_a_system_without_zones() -> None:
    """It is said what to install; UTC works."""
    done = subprocess.run(
        [sys.executable, "-c", NO_ZONES], env={**os.environ, "PYTHONTZPATH": ""}, capture_output=True, check=False
    )
    assert b"Unsupported: this system knows no time zones. Please type:  pip install tzdata" in done.stderr


def test_without_cronsim(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is said what to install."""
    loaded = builtins.__import__

    def missing(name: str, *more: Any) -> Any:
        if name == "cronsim":
            raise ModuleNotFoundError(name, name="cronsim")
        return loaded(name, *more)

    monkeypatch.setattr(builtins, "__import__", missing)
    with pytest.raises(Unsupported, match=r"pip install 'leasehold\[cron\]'"):
        Schedule("@daily")
