"""Every wake-up is lost: a grant still comes within one beat (I13)."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.support.workers import journal
from tests.support.workers.crew import SLACK, Crew, beat, report

TTL = 2.4
BEAT = beat(TTL)


def hand_over(crew: Crew, flavour: str, deaf: bool) -> float:
    """Seconds from a release to the grant of the one who waits."""
    holder, waiter = crew.spawn(), crew.spawn(flavour)
    if deaf:
        holder.ask("deafen")
        waiter.ask("deafen")
    else:
        waiter.ask("beat_rarely")
    holder.ask("acquire", kind="job", ttl=60)
    waiter.tell("acquire", kind="job", ttl=TTL if deaf else 60)
    crew.waiting("job", 1)
    released = holder.ask("release")
    granted = waiter.hear()
    assert granted["fence"] and waiter.ask("write") == {"value": 1}
    return float(granted["at"] - released["at"])


@pytest.mark.parametrize("flavour", ["sync", pytest.param("asyncio", marks=pytest.mark.slow)])
def test_a_wakeup_comes_at_once(crew: Crew, flavour: str) -> None:
    """Without faults nobody waits for a beat."""
    seconds = hand_over(crew, flavour, deaf=False)
    report(f"woken after {seconds * 1000:.1f} ms")


@pytest.mark.slow
@pytest.mark.parametrize("flavour", ["sync", "asyncio"])
def test_every_wakeup_is_dropped(crew: Crew, flavour: str) -> None:
    """The grant is found by the next beat."""
    seconds = hand_over(crew, flavour, deaf=True)
    report(f"found after {seconds:.3f} s, beat {BEAT:.3f}")
    assert seconds <= BEAT + SLACK


@pytest.mark.slow
@pytest.mark.parametrize("flavour", ["sync", "asyncio"])
def test_the_wake_folder_cannot_be_made(crew: Crew, flavour: str) -> None:
    """A file stands in its place: nobody can be woken, so whoever is first in the queue asks often."""
    Path(crew.path + ".wake").write_text("in the way")
    holder, waiter = crew.spawn(flavour), crew.spawn(flavour)
    for worker in (holder, waiter):
        worker.ask("beat_rarely")  # all but the first in the queue
    assert holder.ask("acquire", kind="job", ttl=60)["fence"]
    for _ in range(3):
        waiter.tell("acquire", kind="job", ttl=60)
        crew.waiting("job", 1)
        released = holder.ask("release")
        seconds = waiter.hear()["at"] - released["at"]
        report(f"found after {seconds * 1000:.1f} ms")
        holder, waiter = waiter, holder


@pytest.mark.slow
def test_the_wake_folder_is_removed(crew: Crew) -> None:
    """Somebody tidies up while others wait: a grant is found by a beat, and later ones are pushed again."""
    holder, waiter = crew.spawn(), crew.spawn()
    holder.ask("acquire", kind="job", ttl=TTL)
    waiter.tell("acquire", kind="job", ttl=TTL)
    crew.waiting("job", 1)
    folder = Path(crew.path + ".wake")
    moved = folder.with_name("moved")  # in one step: holders may bind a socket there at any moment
    folder.rename(moved)
    shutil.rmtree(moved, ignore_errors=True)
    released = holder.ask("release")
    granted = waiter.hear()
    assert granted["fence"] and granted["at"] - released["at"] <= BEAT + SLACK
    holder.ask("beat_rarely")
    holder.tell("acquire", kind="job", ttl=60)
    crew.waiting("job", 1)
    assert waiter.ask("release")["released"]
    assert holder.hear()["fence"] > granted["fence"]


@pytest.mark.slow
def test_eight_deaf_processes_still_count_up(crew: Crew) -> None:
    """Nothing is lost but time: the beats alone drive the queue."""
    workers = [crew.spawn() for _ in range(8)]
    for worker in workers:
        worker.ask("deafen")
        worker.ask("beat_often")
    for worker in workers:
        worker.tell("rounds", kind="counter", count=5)
    for worker in workers:
        assert len(worker.hear()["turns"]) == 5
    record = journal.read(crew.data)
    assert record.value == 40
    assert journal.lost_updates(record) == journal.stale_writes(record) == 0
