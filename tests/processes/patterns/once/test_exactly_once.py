"""Exactly once: clerks are killed at any moment, and every transfer is made, and none twice."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.processes.patterns.once import bank
from tests.support.waiting import until
from tests.support.workers.crew import Crew, report


class Bank(Crew):
    """One process that starts clerks."""

    module = "tests.processes.patterns.once.bank"

    def prepare(self) -> str:
        """The database."""
        path = str(self.folder / "bank.db")
        bank.create(path)
        return path

    def transfers(self) -> list[tuple[int, int]]:
        """Which was made, and by whom."""
        with closing(bank.connected(self.data)) as db:
            return db.execute("SELECT number, clerk FROM transfers ORDER BY number").fetchall()

    def results(self) -> list[str]:
        """What is stored about them."""
        with closing(bank.connected(self.data)) as db:
            return [row[0] for row in db.execute("SELECT value FROM leasehold_results WHERE value LIKE '%done%'")]


@pytest.fixture
def the_bank(tmp_path: Path) -> Iterator[Bank]:
    """Nobody at work."""
    crew = Bank(tmp_path)
    yield crew
    crew.close()


def work(crew: Bank, kills: int, seed: int, together: bool = True) -> None:
    """Two clerks at a time, killed soon after a transfer was made; then one that is left alone."""
    report(f"seed {seed}")
    chance, office = random.Random(seed), crew.spawn()
    for _ in range(kills):
        wanted = min(len(crew.transfers()) + 1, bank.KEYS)
        pids = [office.ask("hatch", together=together)["pid"] for _ in range(2)]
        until(lambda: len(crew.transfers()) >= wanted, "one was made")  # noqa: B023  # called at once
        time.sleep(chance.uniform(0, 0.03))
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
            office.ask("reap", pid=pid)
    report(f"{len(crew.transfers())} of {bank.KEYS} made before the last clerk came")
    last = office.ask("hatch", together=together)["pid"]
    assert office.ask("reap", pid=last)["code"] == 0, office.errors()


@pytest.mark.slow
def test_clerks_that_are_killed(the_bank: Bank) -> None:
    """The effect and its result are one transaction: a kill leaves both or neither, and no transfer is made twice."""
    work(the_bank, kills=5, seed=1)
    made = the_bank.transfers()
    assert [number for number, _ in made] == list(range(bank.KEYS))
    assert len(the_bank.results()) == bank.KEYS


@pytest.mark.soak
def test_clerks_that_are_killed_for_long(tmp_path: Path) -> None:
    """The same, many times. LEASEHOLD_SEED replays."""
    seed = int(os.environ.get("LEASEHOLD_SEED") or random.randrange(2**32))
    for number in range(20):
        folder = tmp_path / str(number)
        folder.mkdir()
        crew = Bank(folder)
        work(crew, kills=8, seed=seed + number)
        assert [number for number, _ in crew.transfers()] == list(range(bank.KEYS))
        crew.close()
