"""Real processes: a thousand callers and one rebuild, a rebuilder that is killed, and one that is paused."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

import leasehold
from tests.support.waiting import until
from tests.support.workers.crew import Crew, Worker

pytestmark = pytest.mark.slow

CALLERS = 250  # in each process
TTL = 1.5
LONG = 30.0  # seconds: of one that need not end
FLAVOURS = ["sync", "asyncio", "sync", "asyncio"]


class Fleet(Crew):
    """Processes that call one function."""

    module = "tests.processes.patterns.flight.worker"
    flavour = "sync"  # of whoever is harmed

    def prepare(self) -> str:
        """The file in which every rebuild is a line."""
        self.log = self.folder / "rebuilds"
        self.log.touch()
        return str(self.log)

    def rebuilds(self) -> int:
        """So far."""
        return len(self.log.read_text().splitlines())

    def muster(self, *flavours: str) -> list[Worker]:
        """Workers that are ready."""
        workers = [self.spawn(flavour) for flavour in flavours]
        for worker in workers:
            worker.hear()
        return workers

    def queue(self, count: int) -> None:
        """Until so many processes wait for the lease: each with one claim, however many callers it has."""
        with leasehold.connect(self.url) as hold:
            until(lambda: len(hold.inspect("page:hot").waiters) == count, f"{count} wait")


@pytest.fixture(params=["sqlite", "redis"])
def fleet(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Fleet]:
    """Of one store, reaped at the end."""
    fleet = Fleet(tmp_path, request.getfixturevalue("redis_url") if request.param == "redis" else "")
    fleet.flavour = "asyncio" if request.param == "redis" else "sync"
    yield fleet
    fleet.close()


def got(workers: list[Worker]) -> dict[str, int]:
    """What all their callers got."""
    return dict(sum((Counter(worker.hear()) for worker in workers), Counter()))


def test_one_rebuild_for_a_thousand(fleet: Fleet) -> None:
    """4 processes with 250 callers each, on a hot key: one rebuild, and all get its value."""
    workers = fleet.muster(*FLAVOURS)
    for worker in workers:
        worker.tell("storm", callers=CALLERS, ttl=LONG, takes=[0.3])
    assert got(workers) == {"rebuild 1": 4 * CALLERS}
    assert fleet.rebuilds() == 1


def test_the_rebuilder_is_killed(fleet: Fleet) -> None:
    """Its place is taken within its ttl: two rebuilds, and all who are left get the second one's value."""
    victim, *workers = fleet.muster(fleet.flavour, "asyncio", "sync", "asyncio")
    victim.tell("storm", callers=CALLERS, ttl=TTL, takes=[60.0])
    until(lambda: fleet.rebuilds() == 1, "it rebuilds")
    for worker in workers:
        worker.tell("storm", callers=CALLERS, ttl=TTL, takes=[60.0, 0.1])
    fleet.queue(3)
    victim.kill()
    assert got(workers) == {"rebuild 2": 3 * CALLERS}
    assert fleet.rebuilds() == 2


def test_the_rebuilder_is_paused(fleet: Fleet) -> None:
    """Past its ttl another one rebuilds. When it goes on its value is refused: the newer one stays, and is what its own
    callers get too."""
    victim, worker = fleet.muster(fleet.flavour, "sync")
    victim.tell("storm", callers=20, ttl=1.5, takes=[1.0])
    until(lambda: fleet.rebuilds() == 1, "it rebuilds")
    victim.stop()
    worker.tell("storm", callers=20, ttl=1.5, takes=[60.0, 0.0])
    assert worker.hear() == {"rebuild 2": 20}
    victim.go_on()
    assert victim.hear() == {"rebuild 2": 20}
    assert worker.ask("storm", callers=1, ttl=1.5, takes=[0.0]) == {"rebuild 2": 1}
    assert fleet.rebuilds() == 2


@pytest.mark.parametrize("fleet", ["redis"], indirect=True)
def test_an_error_reaches_all(fleet: Fleet) -> None:
    """One try in the whole fleet: the error itself where it happened, and what can be told of it elsewhere."""
    first, *workers = fleet.muster("asyncio", "sync", "asyncio")
    first.tell("storm", callers=50, ttl=LONG, takes=[0.0], errors=60, fails=True, gated=True)
    until(lambda: fleet.rebuilds() == 1, "it rebuilds")
    for worker in workers:
        worker.tell("storm", callers=50, ttl=LONG, takes=[0.0], errors=60, fails=True, gated=True)
    fleet.queue(2)
    (fleet.folder / "rebuilds.go").touch()
    home = got([first])
    assert home["ValueError"] > 0 and sum(home.values()) == 50  # who comes late there is told of it, too
    assert got(workers) == {"RemoteError of builtins.ValueError": 100}
    assert fleet.rebuilds() == 1
