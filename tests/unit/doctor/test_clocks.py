"""Clocks: what is beyond the uncertainty of a reading is reported, and nothing else."""

from __future__ import annotations

import time

import pytest

from leasehold.doctor.clocks import Reading, compare, off_median, read_clock


def severities(**readings: Reading) -> list[str]:
    """Of the findings about these clocks."""
    return [one.severity for one in compare(readings, "why")]


def test_a_reading() -> None:
    """Of a clock that is ten seconds ahead; the fastest of three answers counts."""
    pauses = iter([0.02, 0.0, 0.02])

    def ask() -> float:
        time.sleep(next(pauses))
        return time.time() + 10

    reading = read_clock(ask)
    assert abs(reading.ahead - 10) <= reading.unsure + 0.001 and reading.unsure < 0.01


def test_comparisons() -> None:
    """With this host, and with each other."""
    near, off, unsure = Reading(0.01, 0.001), Reading(2.0, 0.001), Reading(2.0, 1.8)
    assert severities(a=near) == ["ok"] and severities(a=near, b=near) == ["ok", "ok"]
    assert severities(a=off) == ["warning"] and severities(a=off, b=off) == ["warning", "ok"]
    assert severities(a=near, b=off) == ["warning", "warning"] and severities(a=near, b=unsure) == ["ok", "ok"]
    assert severities() == []


def test_the_median() -> None:
    """The one that is off is told from those that agree, also where this host is."""
    readings = {"a": Reading(5.0, 0.0), "b": Reading(5.1, 0.0), "c": Reading(0.0, 0.1)}
    assert off_median(readings) == {"a": 0.0, "b": pytest.approx(0.1), "c": pytest.approx(4.9)}
