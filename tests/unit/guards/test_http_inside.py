"""Who waits for whom at the door: the register alone, without HTTP."""

from __future__ import annotations

import random
import threading
from functools import partial

from leasehold.guards.http.admission import ActiveRequest, ActiveRequests

R = "report-export:42"


def never() -> None:
    """Is not to be called."""
    raise AssertionError("woken, and there was nothing to wait for")


def test_a_newer_fence_waits_for_older_ones() -> None:
    """It is woken once, by the last of those that were inside with a lower fence."""
    inside, woken = ActiveRequests(), list[str]()
    first, second = inside.enter(R, 5), inside.enter(R, 7)
    newer = inside.enter(R, 9)
    assert not inside.wait_for_earlier(newer, lambda: woken.append("newer"))
    inside.leave(first)
    assert not woken
    inside.leave(second)
    inside.leave(second)
    assert woken == ["newer"]
    inside.leave(newer)
    assert len(inside) == 0 and not inside._requests


def test_nobody_waits_for_a_newer_or_an_equal_fence() -> None:
    """One holder's requests run side by side, and other resources are apart."""
    inside = ActiveRequests()
    visits = [inside.enter(R, 9), inside.enter(R, 8), inside.enter(R, 8), inside.enter("report-export:43", 1)]
    assert all(inside.wait_for_earlier(visit, never) for visit in visits[1:])
    for visit in visits:
        inside.leave(visit)
    assert len(inside) == 0


def test_who_comes_after_the_line_is_no_reason_to_wait() -> None:
    """An older fence that arrives later is refused by the guard: a stale client that tries again and again keeps
    nobody out."""
    inside, woken = ActiveRequests(), list[str]()
    older, newer = inside.enter(R, 5), inside.enter(R, 9)
    assert not inside.wait_for_earlier(newer, lambda: woken.append("newer"))
    inside.enter(R, 5)
    inside.leave(older)
    assert woken == ["newer"]


def test_readers_keep_nobody_waiting_and_wait_for_writers() -> None:
    """Several read side by side; one that was granted later than a writer sees all of its work."""
    inside, woken = ActiveRequests(), list[str]()
    inside.enter(R, 3, shared=True)
    writer = inside.enter(R, 5)
    assert inside.wait_for_earlier(writer, never)
    reader = inside.enter(R, 6, shared=True)
    assert not inside.wait_for_earlier(reader, lambda: woken.append("reader"))
    inside.leave(writer)
    assert woken == ["reader"]


def test_threads_work_in_the_order_of_their_fences() -> None:
    """Many threads enter, line up and leave in a race: never are two fences at work at once, and nothing is left."""
    inside, chance = ActiveRequests(), random.Random(11)
    at_work: list[int] = []
    together: list[tuple[int, int]] = []
    gate, lock, last = threading.Barrier(8), threading.Lock(), [0]

    def work(fences: list[int]) -> None:
        gate.wait(60)
        for fence in fences:
            visit, free = inside.enter(R, fence), threading.Event()
            try:
                with lock:  # the guard
                    stale, last[0] = fence < last[0], max(last[0], fence)
                if stale or not (inside.wait_for_earlier(visit, free.set) or free.wait(60)):
                    continue
                together.extend((fence, other) for other in at_work if other != fence)
                at_work.append(fence)
                at_work.remove(fence)
            finally:
                inside.leave(visit)

    fences = [sorted(chance.sample(range(1, 2000), 200)) for _ in range(8)]
    threads = [threading.Thread(target=work, args=(lane,)) for lane in fences]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert not together and not at_work
    assert last[0] == max(map(max, fences)) and not inside._requests


def test_who_is_waited_for_is_told() -> None:
    """Each lower fence that is no reader's is told that it is overtaken, by each that waits. It may leave at once."""
    inside, told, woken = ActiveRequests(), list[int](), list[str]()
    visits: dict[int, ActiveRequest] = {}

    def overtaken(fence: int) -> None:
        told.append(fence)
        inside.leave(visits[fence])  # the register is not locked

    for fence in (5, 6, 7, 9, 10):
        visits[fence] = inside.enter(R, fence, shared=fence == 6, overtaken=partial(overtaken, fence))
    assert not inside.wait_for_earlier(visits[9], lambda: woken.append("newer"))
    assert sorted(told) == [5, 7] and woken == ["newer"]
    assert inside.wait_for_earlier(visits[9], never) and len(told) == 2
