"""One in five of those who hold a permit is killed: permits are conserved, on every store that processes share."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

import leasehold
from tests.processes.semaphore import evidence
from tests.processes.semaphore.crowd import LIMIT, TTL
from tests.processes.semaphore.evidence import Turn
from tests.support.waiting import PATIENCE, until
from tests.support.workers.crew import ROOT, report


@pytest.fixture(params=["sqlite", "redis"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty store."""
    if request.param == "redis":
        found: str = request.getfixturevalue("redis_url")
        return found
    return f"sqlite:///{tmp_path}/leases.db"


def crowd(url: str, folder: Path, turns: int, seed: int) -> None:
    """Let them crowd, look at the store all the while, and judge."""
    data = str(folder / "evidence.db")
    evidence.create(data)
    command = [sys.executable, "-m", "tests.processes.semaphore.crowd", url, data, str(turns), str(seed)]
    env = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"}
    with (
        leasehold.connect(url) as hold,
        subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True) as process,
    ):
        most = look_on(hold, process, 5 * PATIENCE + turns / 10)
        killed = int(process.communicate()[0])
        assert process.returncode == 0
        conserved(hold)
    judge(evidence.read(data), turns, killed, most)


def look_on(hold: leasehold.Leasehold, process: subprocess.Popen[str], patience: float) -> int:
    """The most permits that the store itself shows at one moment, until they are done."""
    seen = [0]

    def done() -> bool:
        slots = [slot for holder in hold.inspect("pool").holders for slot in holder.slots]
        assert len(slots) == len(set(slots)), "two holders have one slot"
        seen.append(len(slots))
        return process.poll() is not None

    try:
        until(done, "the crowd is done", patience)
    finally:
        process.kill()  # its children end by themselves: nobody replaces them
    return max(seen)


def conserved(hold: leasehold.Leasehold) -> None:
    """Whatever the dead had is back when their ttl is over: all permits can be had at once, and nobody waits."""
    pool = hold.semaphore("pool", limit=LIMIT, ttl=TTL)
    everything = pool.acquire(wait=PATIENCE, permits=LIMIT)
    assert everything is not None and everything.slots == tuple(range(LIMIT))
    assert everything.release() and pool.available() == LIMIT
    until(lambda: not hold.inspect("pool").waiters, "no waiter is left")


def judge(turns: list[Turn], wanted: int, killed: int, most: int) -> None:
    """Never more than the limit, by the store and by the evidence; and enough happened to say so."""
    at_once = evidence.most_at_once(turns)
    report(f"{len(turns)} turns, {killed} killed, at most {most} permits in the store and {at_once} at work")
    assert most <= LIMIT and at_once <= LIMIT
    assert evidence.shared_slots(turns) == evidence.falling_fences(turns) == 0
    assert len(turns) >= wanted * 0.9 and killed >= wanted / 10 and at_once == LIMIT, "nothing is proved by this"
    assert sum(not turn.ended for turn in turns) <= killed


@pytest.mark.slow
def test_one_in_five_is_killed(url: str, tmp_path: Path) -> None:
    """Never more than so many at once, no slot twice, fences that grow in each; and all of them come back."""
    crowd(url, tmp_path, 60, seed=1)


@pytest.mark.soak
def test_one_in_five_is_killed_for_long(url: str, tmp_path: Path) -> None:
    """Thousands of turns. LEASEHOLD_SEED replays the choices."""
    crowd(url, tmp_path, 5_000, int(os.environ.get("LEASEHOLD_SEED") or random.randrange(2**20)))


def test_the_judge_can_say_no() -> None:
    """Too many at once, a slot that two have, and a fence that falls are found; turns that only touch are not."""
    fine = [Turn(1, (0,), 0, 5, True), Turn(2, (1, 2), 1, 3, False), Turn(3, (1,), 3, 4, True)]
    assert (evidence.most_at_once(fine), evidence.shared_slots(fine), evidence.falling_fences(fine)) == (3, 0, 0)
    early = [*fine, Turn(4, (2, 3), 2, 6, True)]
    assert (evidence.most_at_once(early), evidence.shared_slots(early)) == (5, 1)
    assert evidence.falling_fences([*fine, Turn(2, (1,), 4, 6, True)]) == 1
