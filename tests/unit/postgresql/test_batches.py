"""Ops of one process that travel together: who leads, who follows, and what becomes of those whose leader is gone."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

from leasehold._core.ops import Renewed, Reply, StoreOp, Withdraw
from leasehold.errors import OutcomeUnknown, StoreUnavailable
from leasehold.stores.postgresql.batches import MOST, Batches
from tests.support.waiting import PATIENCE, until


def op(number: int) -> Withdraw:
    """Any op will do."""
    return Withdraw("job", f"host:1:{number}")


def reply(asked: StoreOp) -> Reply:
    """One that shows to which op it belongs."""
    assert isinstance(asked, Withdraw)
    return Renewed(int(asked.owner.rpartition(":")[2]))


def later() -> float:
    """The end of a call that has time."""
    return time.monotonic() + PATIENCE


class Server:
    """Answers when it may, and remembers what came together."""

    def __init__(self) -> None:
        self.sent: list[int] = []
        self.may = threading.Event()
        self.error: Callable[[], BaseException | None] = lambda: None

    def send(self, ops: Sequence[StoreOp], end: float) -> list[Reply]:
        """On the leader's thread."""
        self.sent.append(len(ops))
        assert self.may.wait(PATIENCE)
        error = self.error()
        if error is not None:
            raise error
        return [reply(one) for one in ops]

    async def send_async(self, ops: Sequence[StoreOp], end: float) -> list[Reply]:
        """In the leader's task."""
        return await asyncio.to_thread(self.send, ops, end)


@pytest.fixture
def server() -> Server:
    """Nobody is answered yet."""
    return Server()


@pytest.fixture
def batches() -> Iterator[Batches]:
    """Without a pause; nothing is left in it at the end."""
    made = Batches()
    yield made
    assert not made._last and not made._led


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    """For callers."""
    with ThreadPoolExecutor(150) as pool:
        yield pool


def waiting(batches: Batches) -> int:
    """How many ops are in the batch that gathers."""
    return sum(len(batch.places) for batch in batches._last.values() if batch.open)


def crowd(threads: ThreadPoolExecutor, batches: Batches, server: Server, count: int) -> list[Future[Reply]]:
    """One whose op is under way, and others who gather behind it."""
    first = threads.submit(batches.execute, "job", op(0), later(), server.send)
    until(lambda: server.sent, "the first is under way")
    rest = [threads.submit(batches.execute, "job", op(one), later(), server.send) for one in range(1, count)]
    until(lambda: waiting(batches) == min(count - 1, MOST), "the others gather")
    return [first, *rest]


def test_ops_gather_while_the_batch_before_is_under_way(
    batches: Batches, server: Server, threads: ThreadPoolExecutor
) -> None:
    """The first waits for nobody, and the others travel together; each gets its own reply."""
    calls = crowd(threads, batches, server, 8)
    server.may.set()
    assert [call.result(PATIENCE) for call in calls] == [Renewed(number) for number in range(8)]
    assert server.sent == [1, 7]


def test_a_batch_is_bounded(batches: Batches, server: Server, threads: ThreadPoolExecutor) -> None:
    """What is too much for one transaction goes in the next."""
    calls = crowd(threads, batches, server, MOST + 1)
    more = [threads.submit(batches.execute, "job", op(one), later(), server.send) for one in range(20)]
    until(lambda: waiting(batches) == 20, "the others gather in the next one")
    server.may.set()
    for call in (*calls, *more):
        call.result(PATIENCE)
    assert server.sent == [1, MOST, 20]


def test_other_keys_do_not_wait(batches: Batches, server: Server, threads: ThreadPoolExecutor) -> None:
    """A resource whose row is locked by somebody delays no other."""
    calls = crowd(threads, batches, server, 3)
    free = Server()
    free.may.set()
    assert batches.execute("another", op(9), later(), free.send) == Renewed(9)
    server.may.set()
    assert [call.result(PATIENCE) for call in calls] == [Renewed(number) for number in range(3)]


def test_with_a_pause_even_the_first_gathers(server: Server, threads: ThreadPoolExecutor) -> None:
    """For those who come at the same moment."""
    beats = Batches(pause=0.2)
    server.may.set()
    calls = [threads.submit(beats.execute, "", op(number), later(), server.send) for number in range(8)]
    assert [call.result(PATIENCE) for call in calls] == [Renewed(number) for number in range(8)]
    assert len(server.sent) < 8


def test_an_error_is_everybodys(batches: Batches, server: Server, threads: ThreadPoolExecutor) -> None:
    """Each raises one of its own, and the next batch is sent all the same."""
    calls = crowd(threads, batches, server, 4)
    until(lambda: waiting(batches) == 3, "the others gather")
    server.error = lambda: StoreUnavailable("the server is gone")
    server.may.set()
    errors = [call.exception(PATIENCE) for call in calls]
    assert [str(error) for error in errors] == ["the server is gone"] * 4
    assert len(set(map(id, errors))) == 4


def test_an_op_has_an_error_of_its_own(batches: Batches) -> None:
    """The server refused this one alone."""
    with pytest.raises(StoreUnavailable, match="damaged"):
        batches.execute("job", op(1), later(), lambda ops, end: [StoreUnavailable("its row is damaged")])


@pytest.mark.parametrize("interrupt", [KeyboardInterrupt, SystemExit])
def test_a_leader_is_interrupted(
    batches: Batches, server: Server, threads: ThreadPoolExecutor, interrupt: type[BaseException]
) -> None:
    """Its followers begin anew, and learn nothing of it."""
    errors = iter([None, interrupt()])
    calls = crowd(threads, batches, server, 6)
    server.error = lambda: next(errors, None)
    server.may.set()
    failed = [call for call in calls if isinstance(call.exception(PATIENCE), interrupt)]
    assert len(failed) == 1
    assert all(call.result() == Renewed(number) for number, call in enumerate(calls) if call not in failed)
    assert server.sent[:2] == [1, 5] and sum(server.sent[2:]) == 4


def test_the_time_of_a_leader_is_over(batches: Batches, server: Server, threads: ThreadPoolExecutor) -> None:
    """Its followers have more time than it had, and use it."""
    first = threads.submit(batches.execute, "job", op(0), later(), server.send)
    until(lambda: server.sent, "the first is under way")
    hasty = threads.submit(batches.execute, "job", op(1), time.monotonic() + 0.3, server.send)
    until(lambda: waiting(batches) == 1 or hasty.done(), "it leads the next one")
    patient = threads.submit(batches.execute, "job", op(2), later(), server.send)
    until(lambda: waiting(batches) == 2 or hasty.done(), "another follows it")
    with pytest.raises(OutcomeUnknown, match="not answered in time"):
        hasty.result(PATIENCE)
    server.may.set()
    assert first.result(PATIENCE) == Renewed(0) and patient.result(PATIENCE) == Renewed(2)


def test_the_time_of_a_follower_is_over(batches: Batches, server: Server, threads: ThreadPoolExecutor) -> None:
    """It does not know what became of its op."""
    calls = crowd(threads, batches, server, 2)
    with pytest.raises(OutcomeUnknown, match="not answered in time"):
        batches.execute("job", op(5), time.monotonic() + 0.1, server.send)
    server.may.set()
    assert [call.result(PATIENCE) for call in calls] == [Renewed(0), Renewed(1)]


def test_a_signal_handler_does_not_wait_for_its_own_thread(batches: Batches) -> None:
    """The batch that its thread leads goes on when the handler has returned, and not before."""
    nested: list[Reply] = []

    def send(ops: Sequence[StoreOp], end: float) -> list[Reply]:
        if not nested:
            nested.append(Renewed(0))
            nested[0] = batches.execute("job", op(7), later(), send)
        return [reply(one) for one in ops]

    assert batches.execute("job", op(1), later(), send) == Renewed(1)
    assert nested == [Renewed(7)]


# ---------------------------------------------------------------- tasks


async def gathered(batches: Batches, server: Server, count: int) -> list[asyncio.Task[Any]]:
    """As ``crowd``."""
    tasks = []
    for number in range(count):
        tasks.append(asyncio.create_task(batches.execute_async("job", op(number), later(), server.send_async)))
        await asyncio.sleep(0)
        await asyncio.to_thread(until, lambda: server.sent, "the first is under way")
    assert waiting(batches) == count - 1
    return tasks


async def test_tasks_gather(batches: Batches, server: Server) -> None:
    """The same on an event loop."""
    tasks = await gathered(batches, server, 5)
    server.may.set()
    assert await asyncio.gather(*tasks) == [Renewed(number) for number in range(5)]
    assert server.sent == [1, 4]


@pytest.mark.parametrize("number", [0, 1, 2], ids=["under way", "leads", "follows"])
async def test_a_task_is_cancelled(batches: Batches, server: Server, number: int) -> None:
    """The others get their replies."""
    tasks = await gathered(batches, server, 5)
    tasks[number].cancel()
    with pytest.raises(asyncio.CancelledError):
        await tasks[number]
    server.may.set()
    others = [one for one in range(5) if one != number]
    assert await asyncio.gather(*[tasks[one] for one in others]) == [Renewed(one) for one in others]
