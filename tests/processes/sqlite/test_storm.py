"""Eight workers, and somebody who freezes and kills whoever holds: no stale write is accepted, no update is lost."""

from __future__ import annotations

import os
import random

import pytest

from tests.support.workers.crew import Crew
from tests.support.workers.scenes import storm


@pytest.mark.slow
def test_freezes_and_kills(crew: Crew) -> None:
    """Stale writes are tried, and none is accepted (I3, I4)."""
    storm(crew, 4, seed=1)


@pytest.mark.soak
def test_freezes_and_kills_for_long(crew: Crew) -> None:
    """Minutes of it. LEASEHOLD_SEED replays the choices."""
    storm(crew, 240, int(os.environ.get("LEASEHOLD_SEED") or random.randrange(2**32)))
