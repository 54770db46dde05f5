"""How the demo is shown: colours where they are welcome, and only there."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import pytest

from leasehold.cli.demo import Timeline

EVENTS: list[dict[str, Any]] = [
    {"act": 1, "at": 0.0, "who": "director", "event": "act", "guard": False},
    {"act": 1, "at": 0.001, "who": "A", "event": "acquired", "fence": 1794776382473018},
    {"act": 1, "at": 0.002, "who": "A", "event": "frozen"},
    {"act": 1, "at": 1.004, "who": "B", "event": "acquired", "fence": 1794776383476765, "before": 1794776382473018},
    {"act": 1, "at": 1.009, "who": "A", "event": "stale_write_accepted", "fence": 1794776382473018},
    {"event": "summary", "ok": True},
]


Show = Callable[..., str]


@pytest.fixture
def show(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Show:
    """All of it, as it is printed: on a terminal with colours, if nothing else is said."""
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)

    def show(plain: bool = False, terminal: bool = True, **environment: str) -> str:
        monkeypatch.setattr(sys.stdout, "isatty", lambda: terminal)
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        screen = Timeline(plain)
        for event in EVENTS:
            screen.show(event)
        return capsys.readouterr().out

    return show


def test_a_terminal_gets_colours(show: Show) -> None:
    """On a terminal the stale write is red."""
    assert "\x1b[31m\x1b[1mstale write ACCEPTED" in show()


@pytest.mark.parametrize("reason", [{"plain": True}, {"NO_COLOR": "1"}, {"TERM": "dumb"}, {"terminal": False}], ids=str)
def test_no_colours(show: Show, reason: dict[str, Any]) -> None:
    """--no-color, NO_COLOR, a dumb terminal or a pipe: the same words without a single escape."""
    assert "\x1b" not in show(**reason)


def test_an_empty_no_color_is_none(show: Show) -> None:
    """As no-color.org has it: only a value that is not empty counts."""
    assert "\x1b" in show(NO_COLOR="")


def test_the_difference_of_the_fences_is_shown(show: Show) -> None:
    """The newer fence says by how much it is higher."""
    assert "fence 1_794_776_383_476_765  +1_003_747\n" in show(plain=True)


def test_a_failure_goes_to_standard_error(capsys: pytest.CaptureFixture[str]) -> None:
    """What went wrong is no part of the story."""
    Timeline(plain=True).show({"event": "failed", "why": "the guard failed"})
    assert capsys.readouterr().err.strip().endswith("the guard failed")
