"""Eight workers, and somebody who freezes and kills whoever holds: no stale write is accepted, no update is lost."""

from __future__ import annotations

import os
import random
import time

import pytest

from tests.processes import journal
from tests.processes.crew import Crew, Worker, report

TTL = 0.25
WORK = 0.004  # seconds between the grant and the write: there the pause hits


def holder_of(crew: Crew, resource: str) -> Worker | None:
    """The worker who holds now: pausing anybody else finds little."""
    for grant in crew.peek(resource).holders:
        pid = int(grant.owner.split(":")[1])
        for worker in crew.workers:
            if worker.pid == pid and worker.process.poll() is None:
                return worker
    return None


def begin(worker: Worker) -> None:
    """Set it to work."""
    worker.tell("storm", kind="counter", ttl=TTL, work=WORK)


def storm(crew: Crew, seconds: float, seed: int) -> None:
    """Harm the holder again and again, then judge."""
    report(f"seed {seed}")
    chance, freezes, kills = random.Random(seed), 0, 0
    for _ in range(8):
        begin(crew.spawn())
    end = time.monotonic() + seconds
    while time.monotonic() < end or (freezes + kills < 8 and time.monotonic() < end + 20):
        time.sleep(chance.uniform(0.05, 0.15))
        victim = holder_of(crew, "counter")
        if victim is None:
            continue
        if (freezes + kills) % 4 == 3:
            victim.kill()
            begin(crew.spawn())
            kills += 1
        else:
            victim.stop()
            time.sleep(TTL + chance.uniform(0, 0.2))
            victim.go_on()
            freezes += 1
    alive = [worker for worker in crew.workers if worker.process.poll() is None]
    assert len(alive) == 8, "\n".join(worker.errors() for worker in crew.workers)
    for worker in alive:
        worker.tell("enough")
    lost = sum(worker.hear()["lost"] for worker in alive)
    record = journal.read(crew.data)
    report(f"{record.value} writes, {record.refused} refused, {lost} losses, {freezes} freezes, {kills} kills")
    assert record.refused > 0, "nobody tried a stale write: this run proves nothing"
    assert lost > 0 and kills > 0
    assert journal.stale_writes(record) == 0
    assert journal.lost_updates(record) == 0
    assert record.value > 20
    crew.sound()


@pytest.mark.slow
def test_freezes_and_kills(crew: Crew) -> None:
    """Stale writes are tried, and none is accepted (I3, I4)."""
    storm(crew, 4, seed=1)


@pytest.mark.soak
def test_freezes_and_kills_for_long(crew: Crew) -> None:
    """Minutes of it. LEASEHOLD_SEED replays the choices."""
    storm(crew, 240, int(os.environ.get("LEASEHOLD_SEED") or random.randrange(2**32)))
