"""Rebuilds in the background: few, one for each name, told of when they fail, and stopped by close()."""

from __future__ import annotations

import asyncio
import logging
import threading
from pathlib import Path
from typing import Any

import pytest

import leasehold
from leasehold import aio
from leasehold.patterns.results import MemoryResultStore
from leasehold.patterns.single_flight import background
from leasehold.patterns.single_flight.single_flight import shared_flights
from leasehold.stores.clock import ManualClock
from leasehold.stores.memory import MemoryStore
from tests.support.patterns.flight.sides import Counted, Side
from tests.support.waiting import until


class Slow:
    """A function whose first call is quick, and whose later ones stand still until they are let go."""

    def __init__(self) -> None:
        self.calls = 0
        self.inside = threading.Semaphore(0)
        self.open = threading.Event()

    def page(self, key: str) -> int:
        """What is rebuilt."""
        self.calls += 1
        number = self.calls
        if number > 1:
            self.inside.release()
            assert self.open.wait(60)
        return number


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What was logged, and matters."""
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


def test_one_at_a_time_for_each_name() -> None:
    """However many callers find the value stale, one rebuilds; nobody waits."""
    slow = Slow()
    with leasehold.connect("memory://background-one") as hold:
        page = hold.single_flight("page", "{key}", fresh=0.001, stale=60)(slow.page)
        assert page("a") == 1
        assert slow.inside.acquire(timeout=0) is False
        until(lambda: page("a") == 1 and slow.calls == 2, "one rebuilds")
        assert [page("a") for _ in range(50)] == [1] * 50
        assert slow.calls == 2 and len(threads()) == 1
        slow.open.set()
        until(lambda: page("a") >= 2, "it is served")


def test_not_tried_at_once_again_while_another_rebuilds(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that finds the lease taken asks again after a pause, not with every call."""
    store = MemoryStore(ManualClock())
    slow = Slow()
    slow.open.set()
    started: list[Any] = []
    begin = background.ThreadRebuilds._begin

    def noted(self: Any, key: Any, flow: Any) -> None:
        started.append(key)
        begin(self, key, flow)

    monkeypatch.setattr(background.ThreadRebuilds, "_begin", noted)
    with leasehold.connect(store) as hold:
        page = hold.single_flight("page", "{key}", ttl=30, fresh=1, stale=60)(slow.page)
        assert page("a") == 1
        store.clock.advance(2)  # type: ignore[attr-defined] # a ManualClock
        lease = hold.lock("page", "a").acquire()
        assert lease is not None
        for _ in range(20):
            assert page("a") == 1
            until(lambda: not threads(), "the try is over")
        assert len(started) == 1
        store.clock.advance(1.1)  # type: ignore[attr-defined] # a ManualClock
        assert page("a") == 1
        until(lambda: not threads(), "the try is over")
        assert len(started) == 2 and slow.calls == 1
        lease.release()


def test_few_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where there is no room the value is served all the same, and the next caller tries again."""
    monkeypatch.setattr(background, "MOST_AT_ONCE", 2)
    slow = Slow()
    with leasehold.connect("memory://background-few") as hold:
        page = hold.single_flight("page", "{key}", fresh="1h", stale="1h")(slow.page)
        stale = hold.single_flight("page", "{key}", fresh=0.001, stale="1h")(slow.page)
        slow.open.set()
        for key in "abc":
            page(key)
        slow.open.clear()
        until(lambda: stale("a") and stale("b") and len(threads()) == 2, "two are at it")
        assert stale("c") == 3 and len(threads()) == 2
        slow.open.set()
        until(lambda: stale("c") > 3, "now there is room")


def test_an_error_is_told(memory: Side, counted: Counted, caplog: pytest.LogCaptureFixture) -> None:
    """Nobody waits for it, so it is logged: the kind, but no id."""
    page = memory.flown(counted.function(), fresh="1m", stale="10m")
    assert page("secret-id") == 1
    memory.advance(61)
    counted.error = ValueError("down")
    assert page("secret-id") == 1
    memory.settle(lambda: warnings(caplog), "it is told")
    assert "could not rebuild page#" in warnings(caplog)[0] and "down" in warnings(caplog)[0]
    assert "secret-id" not in caplog.text
    assert page("secret-id") == 1 and counted.calls == 2  # not tried again at once
    memory.advance(2)
    counted.error = None
    assert page("secret-id") == 1
    memory.settle(lambda: page("secret-id") == 3, "and then it is")


def test_close_waits_for_it(caplog: pytest.LogCaptureFixture) -> None:
    """What is nearly done is done."""
    slow = Slow()
    hold = leasehold.connect("memory://background-close")
    page = hold.single_flight("page", "{key}", fresh=0.001, stale=60)(slow.page)
    assert page("a") == 1
    until(lambda: page("a") and threads(), "one rebuilds")
    assert slow.inside.acquire(timeout=60)
    threading.Timer(0.05, slow.open.set).start()
    hold.close()
    assert not threads() and not warnings(caplog)
    with leasehold.connect("memory://background-close") as other:
        assert other.single_flight("page", "{key}")(slow.page)("a") == 2


def test_the_result_store_is_closed_last(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Also when it was opened after the first flight, which had a result store of its own: what is nearly done is
    written."""
    slow = Slow()
    hold = leasehold.connect(f"sqlite:///{tmp_path}/leases.db")
    hold.single_flight("other", cache=MemoryResultStore())
    page = hold.single_flight("page", "{key}", fresh=0.001, stale=60)(slow.page)
    assert page("a") == 1
    until(lambda: page("a") and threads(), "one rebuilds")
    assert slow.inside.acquire(timeout=60)
    results, at_close = hold._results, []
    hold._closers.insert(0, lambda: at_close.append(len(threads())))  # closed last of all
    closers = [getattr(one, "__self__", None) for one in hold._closers]
    assert closers.index(results) < closers.index(shared_flights(hold).background)
    threading.Timer(0.05, slow.open.set).start()
    hold.close()
    assert at_close == [0] and not warnings(caplog)
    with leasehold.connect(f"sqlite:///{tmp_path}/leases.db") as other:
        assert other.single_flight("page", "{key}")(slow.page)("a") == 2


def test_close_does_not_wait_for_ever(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """A function that stands still is left behind, and its lease is given back."""
    monkeypatch.setattr(background, "GRACE", 0.01)
    slow = Slow()
    hold = leasehold.connect("memory://background-hang")
    page = hold.single_flight("page", "{key}", fresh=0.001, stale=60)(slow.page)
    assert page("a") == 1
    until(lambda: page("a") and threads(), "one rebuilds")
    assert slow.inside.acquire(timeout=60)
    hold.close()
    assert len(threads()) == 1
    with leasehold.connect("memory://background-hang") as other:
        assert not other.lock("page", "a").locked()
    slow.open.set()
    until(lambda: not threads(), "it ends by itself")
    assert not warnings(caplog)


@pytest.mark.parametrize("grace", [30.0, 0.01])
def test_close_of_tasks(grace: float, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """A task that is nearly done is awaited, and one that stands still is cancelled."""
    monkeypatch.setattr(background, "GRACE", grace)
    ends: list[str] = []

    async def main() -> None:
        begun = asyncio.Event()
        async with aio.connect("memory://background-tasks") as hold:

            async def page(key: str) -> int:
                if ends:
                    begun.set()
                    try:
                        await asyncio.sleep(0.1 if grace > 1 else 3600)
                        ends.append("done")
                    except asyncio.CancelledError:
                        ends.append("cancelled")
                        raise
                ends.append("")
                return len(ends)

            flown = hold.single_flight("page", "{key}", fresh=0.001, stale=60)(page)
            await flown.forget("a")
            assert await flown("a") == 1
            await asyncio.sleep(0.01)
            assert await flown("a") == 1
            await begun.wait()

    asyncio.run(main())
    assert ends == (["", "done", ""] if grace > 1 else ["", "cancelled"])
    assert not warnings(caplog)


def test_a_loop_that_ends_takes_its_task_along() -> None:
    """The next loop of the same coordinator can rebuild."""
    hold = aio.connect("memory://background-loops")
    calls: list[str] = []

    async def page(key: str) -> int:
        calls.append(key)
        if len(calls) == 2:
            await asyncio.sleep(3600)
        return len(calls)

    flown = hold.single_flight("page", "{key}", ttl=1.5, fresh=0.001, stale=60)(page)

    async def ask(begun: int = 0) -> int:
        value = await flown("a")
        await asyncio.sleep(0.01)
        while len(calls) < begun:  # noqa: ASYNC110  # in the background
            await asyncio.sleep(0.002)
        return value

    assert [asyncio.run(ask()), asyncio.run(ask(begun=2))] == [1, 1]
    assert len(calls) == 2
    until(lambda: asyncio.run(ask()) == 3, "it is rebuilt by another")
    asyncio.run(hold.close())


def test_a_rebuild_that_never_began_does_not_stand_in_the_way() -> None:
    """Its task was cancelled before its first step, as when a task group or a loop ends. The next caller rebuilds."""
    hold = aio.connect("memory://background-never-began")
    calls: list[str] = []

    async def page(key: str) -> int:
        calls.append(key)
        return len(calls)

    flown = hold.single_flight("page", "{key}", fresh=0.001, stale=60)(page)

    async def ask(cancel: bool = False) -> int:
        value: int = await flown("a")
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            assert not cancel or task.cancel()
        await asyncio.sleep(0.01)
        return value

    assert [asyncio.run(ask()), asyncio.run(ask(cancel=True))] == [1, 1]
    assert len(calls) == 1
    until(lambda: asyncio.run(ask()) == 2, "it is rebuilt by another")
    asyncio.run(hold.close())


def test_it_may_ask_for_what_is_being_made() -> None:
    """Nobody waits for what runs in the background: it may wait for the one that has started it."""
    inside = threading.Event()
    with leasehold.connect("memory://background-asks") as hold:

        @hold.single_flight("old", fresh=0.001, stale=60)
        def old() -> list[object]:
            if not inside.is_set():
                inside.set()
                return ["first"]
            return ["then", *page()]

        @hold.single_flight("page", fresh="1h")
        def page() -> list[object]:
            value = old()
            flights: Any = shared_flights(hold).flights
            until(lambda: any(one.done._cond._waiters for one in flights._flights.values()), "it waits for us")
            return value

        old()
        until(lambda: not threads(), "nothing runs")
        threading.Event().wait(0.01)
        assert page() == ["first"]
        until(lambda: old() == ["then", "first"], "and it got what it waited for")


def threads() -> list[threading.Thread]:
    """Those that rebuild."""
    return [thread for thread in threading.enumerate() if thread.name == "leasehold-rebuild"]
