"""LeakWatch: it looks by itself, reports to the observers, and ends with its coordinator."""

from __future__ import annotations

import asyncio
import gc
import os
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

import leasehold
from leasehold import InvalidRequest, StoreUnavailable
from leasehold._core import resource_flows
from leasehold.observe import leaks, log
from leasehold.observe.events import Leaking
from leasehold.observe.leaks import AsyncLeakWatch, LeakWatch
from tests.support.tables import each

SOON = 30.0


def until(condition: Callable[[], Any]) -> None:
    """Wait until it is so."""
    give_up = time.monotonic() + SOON
    while not condition():
        assert time.monotonic() < give_up
        time.sleep(0.005)


def watching() -> list[threading.Thread]:
    """The threads of watches."""
    return [thread for thread in threading.enumerate() if thread.name == "leasehold-leaks"]


class Store:
    """Answers of ``leaks()``, one after the other; the last one stays."""

    def __init__(self, hold: Any, *answers: Any) -> None:
        self.looks = 0
        self._answers = answers
        self._of_asyncio = hold._asynchronous
        hold.leaks = self._look_async if self._of_asyncio else self._look

    def _look(self, pattern: str) -> list[str]:
        answer = self._answers[min(self.looks, len(self._answers) - 1)]
        self.looks += 1
        if isinstance(answer, Exception):
            raise answer
        return list(answer)

    async def _look_async(self, pattern: str) -> list[str]:
        return self._look(pattern)


def test_it_looks_at_once_and_tells_the_observers() -> None:
    """The event is the one of ``leaks()``. It ends with the coordinator, and leaves no thread."""
    events: list[Any] = []
    with leasehold.connect("memory://", observers=[events.append]) as hold:
        watch = LeakWatch(hold)
        assert len(watching()) == 1
        until(lambda: watch.keys is not None)
        assert (watch.keys, events) == ([], [Leaking(0)])
    assert watching() == [] and hold._closers == []


def test_it_looks_again_and_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every time it reports what it found; a look that fails is logged once, and the next one comes as usual."""
    monkeypatch.setattr(leaks, "LEAST", 0.0)
    warnings: list[Any] = []
    monkeypatch.setattr(log, "warn", lambda *args: warnings.append(args))
    away = StoreUnavailable("it is away")
    with leasehold.connect("memory://") as hold:
        store = Store(hold, ["lock:a"], away, away, ["lock:a", "lock:b"])
        watch = LeakWatch(hold, every=0.01)
        until(lambda: watch.keys == ["lock:a", "lock:b"] and store.looks > 5)
        assert len(warnings) == 1 and warnings[0][1] is away
        assert repr(watch) == "<LeakWatch 'lock:*' every 0.01 s: 2 keys without a TTL>"


def test_it_can_be_closed_by_itself() -> None:
    """Twice is fine, and the coordinator goes on."""
    with leasehold.connect("memory://") as hold:
        watch = LeakWatch(hold, every="1h")
        watch.close()
        watch.close()
        assert watching() == [] and hold._closers == []
        assert hold.lock("job").try_acquire()


def test_an_observer_may_close_it() -> None:
    """From the thread of the watch itself."""
    closed = threading.Event()

    def observe(event: Any) -> None:
        until(lambda: hold._closers)
        hold._closers[0]()
        closed.set()

    with leasehold.connect("memory://", observers=[observe]) as hold:
        LeakWatch(hold)
        assert closed.wait(SOON)
        until(lambda: not watching())


def test_a_coordinator_that_is_dropped_takes_it_along() -> None:
    """A watch keeps nothing alive."""
    hold = leasehold.connect("memory://")
    watch = LeakWatch(hold, every="1h")
    until(lambda: watch.keys is not None)
    del hold
    gc.collect()
    until(lambda: not watching())


def test_a_look_that_takes_long_ends_with_the_coordinator(monkeypatch: pytest.MonkeyPatch) -> None:
    """Closing does not wait for it, and it reports nothing any more."""
    monkeypatch.setattr(leaks, "LONGEST_JOIN", 0.01)
    warnings: list[Any] = []
    monkeypatch.setattr(log, "warn", lambda *args: warnings.append(args))
    looking, closed = threading.Event(), threading.Event()

    def look(pattern: str) -> list[str]:
        looking.set()
        assert closed.wait(SOON)
        return hold._operate(resource_flows.leaks, pattern)  # type: ignore[no-any-return]

    with leasehold.connect("memory://") as hold:
        monkeypatch.setattr(hold, "leaks", look)
        LeakWatch(hold)
        assert looking.wait(SOON)
    closed.set()
    until(lambda: not watching())
    assert warnings == []


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_forked_child_does_not_look() -> None:
    """It can close what it has inherited."""
    with leasehold.connect("memory://") as hold:
        LeakWatch(hold, every="1h")
        child = os.fork()
        if child == 0:
            found = len(watching())
            hold.close()
            os._exit(found)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert len(watching()) == 1


@each(
    "arguments, told",
    [
        ({"every": "0.5s"}, "every is at least 1 s"),
        ({"every": "soon"}, "every"),
        ({"pattern": ""}, "a pattern of keys"),
        ({"pattern": 7}, "a pattern of keys"),
    ],
)
def test_bad_input(arguments: dict[str, Any], told: str) -> None:
    """Said before anything is started."""
    with leasehold.connect("memory://") as hold:
        with pytest.raises(InvalidRequest, match=told):
            LeakWatch(hold, **arguments)
        assert watching() == []


def test_what_it_watches() -> None:
    """An open coordinator of its own flavour, and for asyncio a running loop."""
    other = leasehold.aio.connect("memory://")
    for make, hold in ((LeakWatch, other), (LeakWatch, "memory://"), (AsyncLeakWatch, leasehold.connect("memory://"))):
        with pytest.raises(InvalidRequest, match=r"takes a coordinator of connect\(\)"):
            make(hold)
    with pytest.raises(InvalidRequest, match="where an event loop runs"):
        AsyncLeakWatch(other)
    closed = leasehold.connect("memory://")
    closed.close()
    with pytest.raises(StoreUnavailable, match="is closed"):
        LeakWatch(closed)


async def test_asyncio(monkeypatch: pytest.MonkeyPatch) -> None:
    """A task of the running loop, which ends with the coordinator."""
    monkeypatch.setattr(leaks, "LEAST", 0.0)
    monkeypatch.setattr(log, "warn", lambda *args: None)
    async with leasehold.aio.connect("memory://") as hold:
        store = Store(hold, ["lock:a"], StoreUnavailable("it is away"), [])
        watch = AsyncLeakWatch(hold, every=0.01)
        assert "no look yet" in repr(watch)
        await asyncio.to_thread(until, lambda: store.looks > 3)
        assert watch.keys == []
        second = AsyncLeakWatch(hold)
        await second.close()
        await second.close()
    assert [task for task in asyncio.all_tasks() if task.get_name() == "leasehold-leaks"] == []
    assert hold._closers == []


@pytest.mark.slow
def test_the_gauge_of_a_real_store(redis_url: str) -> None:
    """``leasehold_keys_without_ttl`` follows what is in Redis."""
    import redis
    from prometheus_client import CollectorRegistry

    from leasehold.observe.prometheus import PrometheusObserver

    registry = CollectorRegistry()
    with redis.Redis.from_url(redis_url) as client:
        client.set("lock:theirs", "x")
        with leasehold.connect(redis_url, observers=[PrometheusObserver(registry)]) as hold:
            LeakWatch(hold, every="1s")
            until(lambda: registry.get_sample_value("leasehold_keys_without_ttl") == 1)
            client.delete("lock:theirs")
            until(lambda: registry.get_sample_value("leasehold_keys_without_ttl") == 0)


@pytest.mark.slow
async def test_a_real_store_in_asyncio(redis_url: str) -> None:
    """The same from the loop."""
    import redis

    events: list[Any] = []
    with redis.Redis.from_url(redis_url) as client:
        client.set("celery:theirs", "x")
    async with leasehold.aio.connect(redis_url, observers=[events.append]) as hold:
        watch = AsyncLeakWatch(hold, pattern="celery:*")
        await asyncio.to_thread(until, lambda: watch.keys is not None)
    assert (watch.keys, events) == (["celery:theirs"], [Leaking(1)])
