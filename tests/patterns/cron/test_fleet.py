"""Eight processes, a day of 288 ticks, clocks that differ by seconds: each tick is run once."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.patterns.cron.fleet import DAY, MIDNIGHT, Fleet

pytestmark = pytest.mark.slow
EVERY = list(range(MIDNIGHT, MIDNIGHT + DAY, 300))
SKEWS = [-10, -7, -3, 0, 0.5, 4, 8, 10]
MakeFleet = Callable[..., Fleet]


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """In memory where that can be: a day of syncs in seconds is more than most disks do."""
    shared = Path("/dev/shm")
    if not os.access(shared, os.W_OK):
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(prefix="leasehold-", dir=shared) as name:
        yield Path(name)


@pytest.fixture
def fleet(folder: Path) -> Iterator[MakeFleet]:
    """Makes one; its processes end with the test."""
    made: list[Fleet] = []

    def make(url: str, seconds: float, **options: Any) -> Fleet:
        made.append(Fleet(folder, url, "*/5 * * * *", seconds, missed="all", overlap="wait", **options))
        return made[-1]

    yield make
    for one in made:
        one.close()


def test_a_day_on_sqlite(fleet: MakeFleet, folder: Path) -> None:
    """Each tick once, by whoever's clock was first; threads and asyncio side by side."""
    day = fleet(f"sqlite:///{folder}/leases.db", 7.0)
    for number, skew in enumerate(SKEWS):
        day.spawn(skew, "async" if number % 4 == 1 else "sync")
    day.begin()
    assert sorted(day.finish(len(EVERY)).elements()) == EVERY
    assert len(day.workers_of()) > 1
