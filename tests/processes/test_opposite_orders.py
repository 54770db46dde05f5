"""Many who ask for the same locks in opposite orders: never a deadlock, nothing left, and every part's guard sees
growing fences."""

from __future__ import annotations

import asyncio
import random
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import leasehold
from leasehold.guards.memory import FenceGuard
from tests.support.lock import nothing_left
from tests.support.sqlite import SOURCES

NAMES = ("a", "b", "c")
PATIENCE = 60.0  # seconds that one round may wait: a deadlock would last for ever
WORKER = """
import random, sqlite3, sys
import leasehold
from leasehold.guards.sql import FenceGuard

url, path, seed, rounds = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
chance, guard = random.Random(seed), FenceGuard()
database = sqlite3.connect(path, isolation_level=None, timeout=30)
with leasehold.connect(url) as hold:
    for _ in range(rounds):
        names = chance.sample("abc", chance.choice((2, 2, 3)))
        with hold.all(*[hold.lock(name, ttl=30) for name in names], wait=30) as leases:
            database.execute("BEGIN IMMEDIATE")
            for lease in leases:
                guard.check(database, lease)
            value = database.execute("SELECT value FROM total").fetchone()[0]
            database.execute("UPDATE total SET value = ?", (value + 1,))
            database.execute("COMMIT")
print("done")
"""


def shuffled(chance: random.Random) -> list[str]:
    """Two or three of them, in any order."""
    return chance.sample(NAMES, chance.choice((2, 2, 3)))


def threads_take_turns(hold: leasehold.Leasehold, rounds: int) -> None:
    """Four threads; what one of them raises fails the test."""
    guard, inside, errors = FenceGuard(), dict.fromkeys(NAMES, 0), list[BaseException]()

    def run(seed: int) -> None:
        chance = random.Random(seed)
        try:
            for _ in range(rounds):
                with hold.all(*[hold.lock(name) for name in shuffled(chance)], wait=PATIENCE) as leases:
                    for lease in leases:
                        guard.check(lease)
                        inside[lease.resource] += 1
                    assert all(inside[lease.resource] == 1 for lease in leases)
                    for lease in leases:
                        inside[lease.resource] -= 1
        except BaseException as error:  # the test's own thread says so
            errors.append(error)

    threads = [threading.Thread(target=run, args=(seed,), daemon=True) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(1500)
    assert not errors and not any(thread.is_alive() for thread in threads)
    assert all(nothing_left(hold._engine.store, name) for name in NAMES) and not len(hold._engine.registry)


async def tasks_take_turns(hold: leasehold.AsyncLeasehold, rounds: int) -> None:
    """Eight tasks of one loop; one in ten rounds gives up after a moment."""
    guard, inside = FenceGuard(), dict.fromkeys(NAMES, 0)

    async def turn(names: list[str]) -> None:
        async with hold.all(*[hold.lock(name) for name in names], wait=PATIENCE) as leases:
            for lease in leases:
                guard.check(lease)
                inside[lease.resource] += 1
            try:
                assert all(inside[lease.resource] == 1 for lease in leases)
                await asyncio.sleep(0)
            finally:
                for lease in leases:
                    inside[lease.resource] -= 1

    async def run(seed: int) -> None:
        chance = random.Random(seed)
        for _ in range(rounds):
            hasty = chance.random() < 0.1
            try:
                await asyncio.wait_for(turn(shuffled(chance)), 0.001 if hasty else PATIENCE)
            except TimeoutError:
                assert hasty

    await asyncio.gather(*[run(seed) for seed in range(8)])
    for name in NAMES:
        lease = await hold.lock(name).acquire(wait=10)
        assert lease is not None and await lease.release()


def processes_take_turns(folder: Path, count: int, rounds: int) -> None:
    """Processes on one file: every round is counted, and none waits for ever."""
    import sqlite3

    from leasehold.guards.sql import FenceGuard as SqlGuard

    path = folder / "total.db"
    with sqlite3.connect(path) as database:
        database.execute("CREATE TABLE total (value INTEGER)")
        database.execute("INSERT INTO total VALUES (0)")
        SqlGuard().create(database)
    url = f"sqlite:///{folder}/leases.db"
    command = [sys.executable, "-c", WORKER, url, str(path)]
    workers = [
        subprocess.Popen(
            [*command, str(seed), str(rounds)],
            env={"PYTHONPATH": SOURCES},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for seed in range(count)
    ]
    said = [worker.communicate(timeout=1500) for worker in workers]
    assert [out.strip() for out, _ in said] == ["done"] * count, said
    with sqlite3.connect(path) as database:
        assert database.execute("SELECT value FROM total").fetchone() == (count * rounds,)
    database.close()
    with leasehold.connect(url) as hold:
        assert all(nothing_left(hold._engine.store, name) for name in NAMES)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["memory", "sqlite"])
def test_threads(kind: str, tmp_path: Path) -> None:
    """4 threads × 100 rounds."""
    url = f"memory://{tmp_path}" if kind == "memory" else f"sqlite:///{tmp_path}/leases.db"
    with leasehold.connect(url) as hold:
        threads_take_turns(hold, 100)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["memory", "sqlite"])
def test_tasks(kind: str, tmp_path: Path) -> None:
    """8 tasks × 40 rounds, some of which are cancelled."""

    async def main() -> None:
        url = f"memory://{tmp_path}" if kind == "memory" else f"sqlite:///{tmp_path}/leases.db"
        async with leasehold.aio.connect(url) as hold:
            await tasks_take_turns(hold, 40)

    asyncio.run(main())


@pytest.mark.slow
def test_processes(tmp_path: Path) -> None:
    """3 processes × 100 rounds."""
    processes_take_turns(tmp_path, 3, 100)


@pytest.mark.soak
def test_threads_for_long(tmp_path: Path) -> None:
    """4 threads × 5,000 rounds."""
    with leasehold.connect(f"sqlite:///{tmp_path}/leases.db") as hold:
        threads_take_turns(hold, 5_000)


@pytest.mark.soak
def test_processes_for_long(tmp_path: Path) -> None:
    """4 processes × 3,000 rounds."""
    processes_take_turns(tmp_path, 4, 3_000)
