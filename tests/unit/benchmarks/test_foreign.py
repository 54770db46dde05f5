"""Contenders that are programs of another language: what is asked of them, and what happens when they are missing."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from benchmarks import foreign
from benchmarks.foreign import Language, programs
from benchmarks.race import Broken, compete
from benchmarks.rounds import TINY, Setup
from benchmarks.server import Usage

ANSWERS = """
import json, sys
for line in sys.stdin:
    parties, seconds = line.split()
    turns = [20 + number for number in range(int(parties))]
    if parties == "3":
        sys.exit(1)
    print(json.dumps({"turns": sum(turns), "handoffs": 30, "seconds": 2.0, "most": max(turns), "fewest": min(turns),
                      "took_us": [float(number) for number in range(101)], "total": 40}), flush=True)
"""
SETUP = Setup(TINY._replace(quick=False), lambda *_: None)


class FakeServer:
    """Counts ten commands each time that it is asked."""

    port = 6379

    def __init__(self) -> None:
        self._commands = 0

    def empty(self) -> None:
        """There is nothing in it."""

    def usage(self) -> Usage:
        """Ten more than before."""
        self._commands += 10
        return Usage(self._commands, 0, 0.0, 0)


@pytest.fixture
def server() -> Any:
    """No program here talks to a server."""
    return FakeServer()


def languages(*errors: str) -> list[Language]:
    """A language for each error; those whose error is empty can be built."""
    command = [sys.executable, "-c", ANSWERS]
    return [Language({f"lock {number}": "x"}, partial(str, error), command, 0.1) for number, error in enumerate(errors)]


def test_a_program_answers(server: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Pairs are its turns in a second; a race has handoffs, fairness and the commands that they cost the server."""
    monkeypatch.setattr(foreign, "LANGUAGES", languages(""))
    with programs(SETUP, server) as (found, notes):
        assert notes == []
        assert found["lock 0"].pairs(1) == 10
        result = found["lock 0"].race(tmp_path, 2)
    assert (result.handoffs_per_s, result.fairness, result.commands) == (15, 21 / 20, 10 / 40)
    assert result.p50_us == 50


def test_a_program_that_ends_is_noticed(server: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """It does so when it saw two holders at once: then no figure of it counts."""
    monkeypatch.setattr(foreign, "LANGUAGES", languages(""))
    with programs(SETUP, server) as (found, _), pytest.raises(Broken, match="lock 0: left out, because it failed"):
        found["lock 0"].race(tmp_path, 3)


def test_a_race_goes_on_without_a_program_that_ended(server: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The others have all their rounds, and the program says why it takes part no longer."""
    monkeypatch.setattr(foreign, "LANGUAGES", languages("", ""))
    with programs(SETUP, server) as (found, _):
        first, second = found.values()
        results = compete(SETUP, {"ends": first.race, "goes on": lambda folder, _: second.race(folder, 2)}, 3)
        assert first.failed == "lock 0: left out, because it failed or hung with 3 parties."
        assert second.failed == ""
    assert list(results) == ["goes on"]
    assert len(results["goes on"]) == SETUP.effort.races


def test_what_cannot_be_built_is_left_out(server: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The report says why, and the others take part."""
    monkeypatch.setattr(foreign, "LANGUAGES", languages("`go` is not installed", ""))
    with programs(SETUP, server) as (found, notes):
        assert list(found) == ["lock 1"]
    assert notes == ["lock 0: left out, because `go` is not installed."]


def test_a_quick_run_builds_nothing(server: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """It says so."""
    monkeypatch.setattr(foreign, "LANGUAGES", languages(""))
    with programs(Setup(TINY, SETUP.step), server) as (found, notes):
        assert found == {}
    assert "quick run" in notes[0]


def test_why_a_build_failed(tmp_path: Path) -> None:
    """The tool is missing, or the last line of what it said."""
    assert foreign.run_tool(["no-such-tool"], tmp_path) == "`no-such-tool` is not installed"
    assert foreign.run_tool([sys.executable, "-c", "exit('no network')"], tmp_path).endswith("failed: no network")
    assert foreign.run_tool([sys.executable, "-c", "pass"], tmp_path) == ""
