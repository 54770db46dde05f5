"""What happens to workers of any store: they queue, they fork, and somebody freezes and kills whoever holds."""

from __future__ import annotations

import random
import time
from typing import Any

from tests.processes import journal
from tests.processes.crew import Crew, Worker, report

STORM_TTL = 0.25
STORM_WORK = 0.004  # seconds between the grant and the write: there the pause hits
FORK_TTL = 0.8


def hold_and_queue(crew: Crew, count: int, ttl: float) -> tuple[Worker, list[Worker]]:
    """One holds, and so many wait in a known order."""
    holder, *waiters = [crew.spawn() for _ in range(count + 1)]
    assert holder.ask("acquire", kind="job", ttl=ttl)["fence"]
    for place, waiter in enumerate(waiters, start=1):
        waiter.tell("acquire", kind="job", ttl=ttl)
        crew.waiting("job", place)
    return holder, waiters


# ---------------------------------------------------------------- storms


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
    worker.tell("storm", kind="counter", ttl=STORM_TTL, work=STORM_WORK)


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
            time.sleep(STORM_TTL + chance.uniform(0, 0.2))
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


# ---------------------------------------------------------------- forks


def holding(crew: Crew) -> tuple[Worker, dict[str, Any]]:
    """A process that holds and renews."""
    worker = crew.spawn()
    return worker, worker.ask("acquire", kind="job", ttl=FORK_TTL)


def still_renews(crew: Crew, worker: Worker, lease: dict[str, Any]) -> None:
    """The parent's lease outlives its ttl twice, with the same owner and fence."""
    time.sleep(2 * FORK_TTL)
    (grant,) = crew.peek("job").holders
    assert (grant.owner, grant.fence) == (lease["owner"], lease["fence"])
    assert worker.ask("state") == {"state": "held", "owned": True}
    assert worker.ask("write") == {"value": 1}
    assert worker.ask("release")["released"] is True


def judge_child(facts: dict[str, Any]) -> None:
    """What a child of a holder may believe: nothing."""
    assert facts["state"] == "lost" and facts["owned"] is False
    assert facts["check"]["error"] == "LeaseLost" and facts["check"]["reason"] == "forked"
    assert facts["released"] is False, "it has nothing to give back"
    assert facts["same"] is False, "its parent holds it"
    assert facts["other"] is True, "it can take other locks"
    assert facts["token"] is True, "under a name of its own"
    assert facts["code"] == 0
