"""Eight processes count up together: nothing is lost, nobody overtakes, nobody is inside with another."""

from __future__ import annotations

import pytest

from tests.support.workers import journal
from tests.support.workers.crew import Crew, report
from tests.support.workers.journal import Record, Turn


def count_together(crew: Crew, count: int, flavours: list[str], fair: float | None = None) -> None:
    """Run and judge. How turns are shared out is judged in long runs only: in a short one it is up to the scheduler
    who comes back in time to queue. That nobody overtakes is judged always."""
    workers = [crew.spawn(flavour) for flavour in flavours]
    for worker in workers:
        worker.ask("watch_queue")
    for worker in workers:
        worker.tell("rounds", kind="counter", count=count)
    turns: list[Turn] = []
    for worker in workers:
        turns += journal.turns_of(worker.name, worker.hear(within=1500)["turns"])
    record = journal.read(crew.data)
    seconds = max(turn.left for turn in turns) - min(turn.entered for turn in turns)
    waited = sum(turn.behind is not None for turn in turns)
    unfair = journal.unfairness(turns)
    report(f"{len(turns) / seconds:.0f} turns/s, {waited} of {len(turns)} waited, most/fewest {unfair:.3f}")

    assert record.value == len(record.values) == len(flavours) * count
    assert journal.lost_updates(record) == 0
    assert journal.stale_writes(record) == 0
    assert record.refused == 0
    assert record.fences == [turn.fence for turn in sorted(turns, key=lambda turn: turn.entered)]
    assert journal.overlaps(turns) == 0
    assert waited > len(turns) / 4, "they must stand in each other's way, or this proves nothing"
    assert journal.overtakes(turns) == 0
    if fair is not None:
        assert unfair <= fair


@pytest.mark.slow
def test_eight_processes_count_up_together(crew: Crew) -> None:
    """8 processes × 100 rounds: no lost update, growing fences, FIFO, exclusive."""
    count_together(crew, 100, ["sync"] * 8)


@pytest.mark.slow
def test_threads_and_asyncio_count_up_together(crew: Crew) -> None:
    """Both flavours stand in one queue: neither overtakes the other."""
    count_together(crew, 100, ["sync", "asyncio"] * 2)


def test_a_sync_and_an_asyncio_process_alternate(crew: Crew) -> None:
    """Two processes that always come back take turns, one for one."""
    workers = [crew.spawn("sync"), crew.spawn("asyncio")]
    for worker in workers:
        worker.ask("watch_queue")
        worker.tell("rounds", kind="counter", count=60)
    turns = [turn for worker in workers for turn in journal.turns_of(worker.name, worker.hear()["turns"])]
    record = journal.read(crew.data)
    assert record.value == 120 and journal.lost_updates(record) == journal.stale_writes(record) == 0
    assert journal.overlaps(turns) == journal.overtakes(turns) == 0


@pytest.mark.soak
def test_eight_processes_count_up_together_for_long(crew: Crew) -> None:
    """8 processes × 5,000 rounds."""
    count_together(crew, 5_000, ["sync"] * 8, fair=1.2)


@pytest.mark.soak
def test_both_flavours_count_up_together_for_long(crew: Crew) -> None:
    """8 processes of both flavours × 2,000 rounds."""
    count_together(crew, 2_000, ["sync", "asyncio"] * 4, fair=1.2)


# ---------------------------------------------------------------- the judges can say no (I18)


def turn(fence: int, entered: float, behind: tuple[int, int] | None = None, worker: str = "a") -> Turn:
    """A turn of one second."""
    return Turn(fence, entered, entered + 1, worker, behind)


def test_a_lost_update_is_seen() -> None:
    """Two writers who read the same value."""
    assert journal.lost_updates(Record(2, [1, 2], [1, 2], ["a", "b"], 0)) == 0
    assert journal.lost_updates(Record(1, [1, 2], [1, 1], ["a", "b"], 0)) > 0


def test_a_stale_write_is_seen() -> None:
    """A fence below, or equal to, one that was there before."""
    assert journal.stale_writes(Record(3, [1, 5, 9], [1, 2, 3], ["a"] * 3, 0)) == 0
    assert journal.stale_writes(Record(3, [1, 5, 5], [1, 2, 3], ["a"] * 3, 0)) == 1
    assert journal.stale_writes(Record(3, [1, 7, 5], [1, 2, 3], ["a"] * 3, 0)) == 1


def test_two_inside_are_seen() -> None:
    """The next enters before the last has left."""
    assert journal.overlaps([turn(1, 10.0), turn(2, 11.0)]) == 0
    assert journal.overlaps([turn(1, 10.0), turn(2, 10.9)]) == 1


def test_an_overtaking_is_seen() -> None:
    """Whoever came when two waited behind fence 1 must be third after it."""
    served = [turn(1, 1), turn(2, 2), turn(3, 3), turn(4, 4, behind=(1, 2))]
    assert journal.overtakes(served) == 0
    assert journal.overtakes([*served[:2], turn(3, 3, behind=(1, 2)), turn(4, 4)]) == 1


def test_unfairness_is_seen() -> None:
    """One has three turns while another has one."""
    turns = [turn(1, 1), turn(2, 2, worker="b"), turn(3, 3), turn(4, 4), turn(5, 5), turn(6, 6, worker="b"), turn(7, 7)]
    assert journal.unfairness(turns) > 1.2
