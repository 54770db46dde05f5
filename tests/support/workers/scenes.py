"""What happens to workers of any store: they queue, they fork, and somebody freezes and kills whoever holds."""

from __future__ import annotations

import random
import time
from typing import Any, NamedTuple

from tests.support.waiting import PATIENCE, until
from tests.support.workers import journal
from tests.support.workers.crew import Crew, Worker, report

STORM_TTL = 0.25
STORM_WORK = 0.004  # seconds between the grant and the write: there the pause hits
FORK_TTL = 3.0  # a disk or a machine that is busy for a second must not end it


def hold_and_queue(crew: Crew, count: int, ttl: float) -> tuple[Worker, list[Worker]]:
    """One holds, and so many wait in a known order."""
    holder, *waiters = crew.ready(*["sync"] * (count + 1))
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


def await_moment(crew: Crew, victim: Worker) -> None:
    """Until the worst one to wake up has come; not for long, since it may stand inside a transaction of the store."""
    end = time.monotonic() + 0.3
    while not crew.bad_moment(victim) and time.monotonic() < end:
        time.sleep(0.0005)


class Harm(NamedTuple):
    """What was done to the holders, and what those who are left say at the end."""

    freezes: int
    kills: int
    answers: list[dict[str, Any]]


def harm(crew: Crew, seconds: float, seed: int, **work: Any) -> Harm:
    """Eight workers in a storm; whoever holds is frozen past its ttl or killed, again and again."""
    report(f"seed {seed}")
    chance, ttl, freezes, kills = random.Random(seed), work["ttl"], 0, 0
    for _ in range(8):
        crew.spawn().tell("storm", **work)
    end = time.monotonic() + seconds
    while time.monotonic() < end or (freezes + kills < 8 and time.monotonic() < end + 20):
        time.sleep(chance.uniform(0.05, 0.15))
        victim = holder_of(crew, work["kind"])
        if victim is None:
            continue
        if (freezes + kills) % 4 == 3:
            victim.kill()
            crew.spawn().tell("storm", **work)
            kills += 1
        else:
            victim.stop()
            time.sleep(ttl + chance.uniform(0, 0.2))
            if freezes % 2 == 0:
                await_moment(crew, victim)
            victim.go_on()
            freezes += 1
    alive = [worker for worker in crew.workers if worker.process.poll() is None]
    assert len(alive) == 8, "\n".join(worker.errors() for worker in crew.workers)
    for worker in alive:
        worker.tell("enough")
    return Harm(freezes, kills, [worker.hear() for worker in alive])


def storm(crew: Crew, seconds: float, seed: int) -> None:
    """Harm the holder again and again, then judge. On a busy machine a storm may pass without harm: then another."""
    lost = kills = 0
    for turn in range(3):
        harmed = harm(crew, seconds, seed + 1_000 * turn, kind="counter", ttl=STORM_TTL, work=STORM_WORK)
        lost, kills = lost + sum(answer["lost"] for answer in harmed.answers), kills + harmed.kills
        record = journal.read(crew.data)
        troubles = f"{harmed.freezes} freezes, {kills} kills"
        report(f"{record.value} writes, {record.refused} refused, {lost} losses, {troubles}")
        if record.refused > 0 and lost > 0 and kills > 0:
            break
        crew.close()
        crew.workers.clear()
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
    """The parent's lease outlives its ttl, with the same owner and fence."""
    renewed(crew, lease, FORK_TTL)
    assert worker.ask("state") == {"state": "held", "owned": True}
    assert worker.ask("write") == {"value": 1}
    assert worker.ask("release")["released"] is True


def renewed(crew: Crew, lease: dict[str, Any], seconds: float = 0) -> None:
    """From here on its end is moved on in the store by more than this, and it is nobody else's."""
    before = ends(crew, lease)
    until(lambda: ends(crew, lease) > before + 1000 * seconds, "it is renewed")


def ends(crew: Crew, lease: dict[str, Any]) -> int:
    """When this lease ends, in milliseconds of its store."""
    grants = crew.peek("job").holders
    assert [(grant.owner, grant.fence) for grant in grants] == [(lease["owner"], lease["fence"])]
    return grants[0].expires_ms


def fork_many(worker: Worker) -> None:
    """Forty children of a process whose other threads use the store: every one can work."""
    worker.ask("hammer", kind="busy")
    worker.tell("fork_many", other="other", count=40)
    assert worker.hear(2 * PATIENCE) == {"failed": 0, "stuck": 0}  # each of them opens the store anew


def judge_child(facts: dict[str, Any]) -> None:
    """What a child of a holder may believe: nothing."""
    assert facts["state"] == "lost" and facts["owned"] is False
    assert facts["check"]["error"] == "LeaseLost" and facts["check"]["reason"] == "forked"
    assert facts["released"] is False, "it has nothing to give back"
    assert facts["same"] is False, "its parent holds it"
    assert facts["other"] is True, "it can take other locks"
    assert facts["token"] is True, "under a name of its own"
    assert facts["code"] == 0
