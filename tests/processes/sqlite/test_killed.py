"""kill -9: of the holder, of waiters, in the middle of acquire, inside a transaction."""

from __future__ import annotations

import os
import random
import signal
import time

import pytest

import leasehold
from tests.support.workers import journal
from tests.support.workers.crew import SLACK, Crew, beat, report
from tests.support.workers.scenes import hold_and_queue


@pytest.mark.slow
def test_the_next_is_granted_after_a_killed_holder(crew: Crew) -> None:
    """By its ttl and one beat, not before its ttl is over, with a higher fence that the guard accepts (I12)."""
    ttl = 1.5
    holder, (next_one, last) = hold_and_queue(crew, 2, ttl)
    assert holder.ask("write") == {"value": 1}
    holder.kill()
    killed, left = journal.now(), crew.peek("job").holders[0]
    granted = next_one.hear()
    report(f"granted {granted['at'] - killed:.3f} s after the kill, ttl {ttl}")
    assert left.expires_ms / 1000 <= granted["at"] <= killed + ttl + beat(ttl) + SLACK
    assert granted["fence"] > left.fence
    assert next_one.ask("write") == {"value": 2}
    assert next_one.ask("release")["released"] and last.hear()["fence"] > granted["fence"]
    assert last.ask("write") == {"value": 3}


@pytest.mark.slow
def test_a_killed_waiter_delays_nobody(crew: Crew) -> None:
    """Dead waiters in the middle of the queue are passed over at the release, long before their beats are old."""
    holder, (first, dead, dead_too, last) = hold_and_queue(crew, 4, ttl=30)
    dead.kill()
    dead_too.kill()
    assert holder.ask("release")["released"] and first.hear()["fence"]
    released = first.ask("release")
    granted = last.hear()
    report(f"handed on {granted['at'] - released['at']:.4f} s after the release")
    assert released["released"] and granted["at"] < released["at"] + SLACK  # L is 3 s here, and a ttl 30
    assert [grant.owner for grant in crew.peek("job").holders] == [granted["owner"]]


@pytest.mark.slow
def test_everybody_is_killed(crew: Crew) -> None:
    """Holder and waiters die together: who comes later gets it by the ttl."""
    ttl = 1.5
    holder, waiters = hold_and_queue(crew, 2, ttl)
    for worker in (holder, *waiters):
        worker.kill()
    killed = journal.now()
    with leasehold.connect(crew.url) as hold, hold.lock("job", ttl=ttl, wait=30) as lease:
        assert journal.now() <= killed + ttl + beat(ttl) + SLACK
        assert lease.state == "held"
    assert crew.peek("job").holders == ()


def kill_in_acquire(crew: Crew, rounds: int, seed: int) -> None:
    """Children that acquire for ever are killed at random moments; the lock is free by their ttl each time."""
    report(f"seed {seed}")
    chance, ttl, slowest = random.Random(seed), 0.08, 0.0
    nest = crew.spawn()
    with leasehold.connect(crew.url) as hold:
        for _ in range(rounds):
            pids = [nest.ask("hatch", kind="job", ttl=ttl)["pid"] for _ in range(2)]
            for pid in pids:
                time.sleep(chance.uniform(0, 0.03))
                os.kill(pid, signal.SIGKILL)
                assert nest.ask("reap", pid=pid)["code"] == -signal.SIGKILL
            killed = journal.now()
            lease = hold.lock("job", ttl=0.3).acquire(wait=30)
            slowest = max(slowest, journal.now() - killed)
            assert lease is not None
            lease.release()  # False where the machine stood still for as long as it lasts
            assert slowest <= ttl + beat(0.3) + SLACK
    report(f"free again after {slowest:.3f} s at most, ttl {ttl}")
    crew.sound()


@pytest.mark.slow
def test_kill_in_the_middle_of_acquire(crew: Crew) -> None:
    """Killed 0–30 ms after they began: the lock is never stuck, the file never damaged."""
    kill_in_acquire(crew, 25, seed=1)


@pytest.mark.soak
def test_kill_in_the_middle_of_acquire_for_long(crew: Crew) -> None:
    """The same, two thousand times. LEASEHOLD_SEED replays."""
    kill_in_acquire(crew, 1_000, int(os.environ.get("LEASEHOLD_SEED") or random.randrange(2**32)))


def test_killed_inside_a_transaction(crew: Crew) -> None:
    """Who dies between its write and its commit has taken nothing, and the file is free for others at once."""
    stuck, other = crew.spawn(), crew.spawn()
    assert other.ask("acquire", kind="first", wait=0)["fence"]
    stuck.ask("stick_in_commit")
    assert stuck.ask("acquire", kind="job", ttl=30, wait=0) == {"stuck": True}
    other.tell("acquire", kind="job", ttl=30, wait=30)
    assert other.silent()
    stuck.kill()
    killed = journal.now()
    granted = other.hear()
    assert granted["fence"] and granted["at"] < killed + SLACK
    crew.sound()


@pytest.mark.slow
def test_frozen_inside_a_transaction(crew: Crew) -> None:
    """Others are told that the file is locked, in time; when it is free they go on."""
    stuck, other = crew.spawn(), crew.spawn()
    assert other.ask("acquire", kind="first", wait=0)["fence"]
    stuck.ask("stick_in_commit")
    stuck.ask("acquire", kind="job", ttl=30, wait=0)
    stuck.stop()
    begun = journal.now()
    answer = other.ask("acquire", kind="job", ttl=30, wait=0)
    assert answer["error"] == "StoreUnavailable" and "locked" in answer["text"]
    assert journal.now() - begun < 1 + 2 * SLACK  # one try takes a second of patience with the file, no more
    stuck.kill()
    assert other.ask("acquire", kind="job", ttl=30, wait=0)["fence"]
