"""Real processes: killed in the middle, frozen past the ttl, and many at once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.workers.crew import Crew, Worker

WAYS = [
    pytest.param("sqlite-sync", marks=pytest.mark.slow),
    pytest.param("redis-asyncio", marks=pytest.mark.slow),
    pytest.param("sqlite-asyncio", marks=pytest.mark.soak),
    pytest.param("redis-sync", marks=pytest.mark.soak),
]


class Payers(Crew):
    """Workers that pay, and their journal."""

    module = "tests.processes.patterns.once.worker"
    flavour = ""

    def prepare(self) -> str:
        """A file to which they append."""
        return str(self.folder / "journal")

    def journal(self) -> list[list[str]]:
        """Who paid, with which fence."""
        return [line.split() for line in Path(self.data).read_text().splitlines()]

    def still(self, worker: Worker) -> None:
        """SIGSTOP; not while it holds up everybody else."""
        if self.url.startswith("sqlite"):
            self.freeze(worker)
        else:
            worker.stop()


@pytest.fixture(params=WAYS)
def payers(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Payers]:
    """Nobody yet."""
    place, _, flavour = request.param.partition("-")
    crew = Payers(tmp_path, "" if place == "sqlite" else request.getfixturevalue("redis_url"))
    crew.flavour = flavour
    yield crew
    crew.close()


def pays(worker: Worker) -> int:
    """Told to, and at work: its fence."""
    return int(worker.ask("pay", id="r-1")["running"])


def let_go(worker: Worker) -> dict[str, Any]:
    """What comes of it."""
    return worker.ask("go")


def test_killed_in_the_middle(payers: Payers) -> None:
    """SIGKILL after the effect and before the result: the next takes over with a higher fence, and its result stays."""
    first, second = payers.spawn(payers.flavour), payers.spawn(payers.flavour)
    fence = pays(first)
    first.kill()
    newer = pays(second)
    assert newer > fence
    assert let_go(second) == {"result": second.name} == second.ask("pay", id="r-1")
    assert payers.journal() == [[first.name, str(fence)], [second.name, str(newer)]]


def test_frozen_past_its_ttl(payers: Payers) -> None:
    """SIGSTOP, and another takes over: the first wakes up and is refused, and the other's result is what everybody
    gets."""
    first, second = payers.spawn(payers.flavour), payers.spawn(payers.flavour)
    fence = pays(first)
    payers.still(first)
    assert pays(second) > fence
    assert let_go(second) == {"result": second.name}
    first.tell("go")
    first.go_on()
    assert first.hear()["error"] in ("StaleOwner", "LeaseLost")
    assert first.ask("pay", id="r-1") == {"result": second.name}


def test_fifty_at_once(payers: Payers) -> None:
    """50 callers in four processes, of both flavours: one runs, and all get its result."""
    workers = [payers.spawn(flavour) for flavour in ("sync", "asyncio", "sync", "asyncio")]
    for worker, count in zip(workers, (13, 13, 12, 12), strict=True):
        worker.tell("crowd", count=count)
    answers = [worker.hear() for worker in workers]
    results = [one for answer in answers for one in answer.get("results", [answer])]
    ((name, _),) = payers.journal()
    assert results == [name] * 50
