"""Trials are short here: how fast a server is, is not tested."""

from __future__ import annotations

import pytest

from leasehold.doctor import trial


@pytest.fixture(autouse=True)
def short_trials(monkeypatch: pytest.MonkeyPatch) -> None:
    """A few pairs are enough."""
    monkeypatch.setattr(trial, "PAIRS", 5)
