"""A crew for each test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.workers.crew import Crew


@pytest.fixture
def crew(tmp_path: Path) -> Iterator[Crew]:
    """Real processes, reaped at the end."""
    crew = Crew(tmp_path)
    yield crew
    crew.close()
