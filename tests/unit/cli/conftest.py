"""A store for commands."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.cli import console


@pytest.fixture
def stage(monkeypatch: pytest.MonkeyPatch) -> Iterator[console.Stage]:
    """Commands on a store in memory, with a clock that the test advances."""
    with console.stage(monkeypatch) as made:
        yield made
