"""A desk for each test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.cli.desk import Desk


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    """A store of its own, and commands on it."""
    desk = Desk(tmp_path)
    yield desk
    desk.close()
