"""A fleet whose clocks differ by seconds: each tick of the day is run once, whoever is killed or frozen."""

from __future__ import annotations

import os
import signal
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.processes.patterns.cron.fleet import MIDNIGHT, Fleet

pytestmark = pytest.mark.slow
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

    def make(url: str, **options: Any) -> Fleet:
        made.append(Fleet(folder, url, **options))
        return made[-1]

    yield make
    for one in made:
        one.close()


@pytest.mark.timeout(180)  # on a machine that does much else
@pytest.mark.parametrize("hours", [6, pytest.param(24, marks=pytest.mark.soak)])
def test_a_day_on_sqlite(hours: int, fleet: MakeFleet, folder: Path) -> None:
    """Eight processes, twelve ticks an hour: each once, by whoever's clock was first; threads and asyncio together."""
    day = fleet(f"sqlite:///{folder}/leases.db")
    for number, skew in enumerate(SKEWS):
        day.spawn(skew, "async" if number % 4 == 1 else "sync")
    day.ready()
    every = list(day.ticks(hours))
    day.finish()
    assert day.ran() == every and len(every) == 12 * hours
    assert len({pid for _, pid in day.lines()}) > 1


def test_hours_on_redis(fleet: MakeFleet, redis_url: str) -> None:
    """The same over a server."""
    day = fleet(redis_url)
    for number, skew in enumerate(SKEWS[::2]):
        day.spawn(skew, "async" if number % 2 else "sync")
    day.ready()
    every = list(day.ticks(4))
    day.finish()
    assert day.ran() == every


def test_processes_that_are_killed_and_frozen(fleet: MakeFleet, folder: Path) -> None:
    """In the middle of a run: the others run the next tick when its lease is over, and nothing is run twice."""
    day = fleet(f"sqlite:///{folder}/leases.db", ttl=1.5, missed="all")  # what nobody claimed would be run later
    for skew in (-8, -2, 5, 9):
        day.spawn(skew, work=0.05)
    day.ready()
    for number, tick in enumerate(day.ticks(1.5)):
        runner = dict(day.lines())[tick]
        if number in (3, 9):
            os.kill(runner, signal.SIGSTOP)
            frozen = runner
        elif number in (6, 12):
            os.kill(frozen, signal.SIGCONT)
        elif number in (4, 11):
            os.kill(runner, signal.SIGKILL)
    day.finish()
    assert day.ran() == [MIDNIGHT + 300 * number for number in range(18)]
