"""How one thread wakes another: by a descriptor where there is one, else by a lock."""

from __future__ import annotations

import gc
import os
import select
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import leasehold
from leasehold._runtime import thread_wakeup
from leasehold._runtime.thread_wakeup import DescriptorWakeup, LockWakeup
from tests.support.waiting import until

KINDS = (DescriptorWakeup, LockWakeup)
LONG = 60.0


@pytest.fixture(autouse=True)
def nothing_kept() -> Iterator[None]:
    """What other tests left with this thread, or as garbage, is not used or counted here."""
    thread_wakeup._kept.wakeup = None
    gc.collect()
    yield
    thread_wakeup._kept.wakeup = None


def open_files() -> int:
    """How many descriptors this process has."""
    return len(list(Path("/proc/self/fd").iterdir()))


def asleep_until_woken(wakeup: DescriptorWakeup | LockWakeup) -> threading.Thread:
    """A thread that sleeps."""
    thread = threading.Thread(target=wakeup.sleep, args=(LONG,), daemon=True)
    thread.start()
    return thread


@pytest.mark.parametrize("kind", KINDS)
def test_a_sleeping_thread_is_woken(kind: type[DescriptorWakeup] | type[LockWakeup]) -> None:
    """A wake ends the sleep of another thread."""
    wakeup = kind()
    thread = asleep_until_woken(wakeup)
    wakeup.wake()
    thread.join(LONG / 2)
    assert not thread.is_alive()


@pytest.mark.parametrize("kind", KINDS)
def test_a_wake_before_the_sleep_counts_once(kind: type[DescriptorWakeup] | type[LockWakeup]) -> None:
    """Whoever is woken twice before it sleeps does not sleep, and sleeps the next time until it is woken."""
    wakeup = kind()
    wakeup.wake()
    wakeup.wake()
    wakeup.sleep(LONG)
    thread = asleep_until_woken(wakeup)
    time.sleep(0.02)  # a thread that does not sleep is over by then
    assert thread.is_alive()
    wakeup.wake()
    thread.join(LONG / 2)
    assert not thread.is_alive()


@pytest.mark.parametrize("kind", KINDS)
def test_a_sleep_ends_by_itself(kind: type[DescriptorWakeup] | type[LockWakeup]) -> None:
    """Nobody sleeps for ever."""
    kind().sleep(0.001)


def test_a_thread_keeps_its_descriptor() -> None:
    """The next wait of a thread opens nothing."""
    first = thread_wakeup.take()
    thread_wakeup.give_back(first)
    assert isinstance(first, DescriptorWakeup)
    assert thread_wakeup.take() is first


def test_a_wait_inside_a_wait_has_its_own() -> None:
    """A signal handler that waits does not take the wake of what it interrupted."""
    outer, inner = thread_wakeup.take(), thread_wakeup.take()
    assert outer is not inner


def test_a_descriptor_is_closed_with_its_last_reference() -> None:
    """A thread that has ended leaves nothing open, but who may still wake it keeps the descriptor."""
    known: list[DescriptorWakeup | LockWakeup] = []

    def wait() -> None:
        known.append(thread_wakeup.take())
        thread_wakeup.give_back(known[0])

    before, open_before = len(thread_wakeup._opened), open_files()
    thread = threading.Thread(target=wait)
    thread.start()
    thread.join()
    assert len(thread_wakeup._opened) == before + 1
    known[0].wake()
    known.clear()
    gc.collect()
    assert len(thread_wakeup._opened) == before
    assert open_files() <= open_before, "its epoll is closed, too"


def test_a_process_with_many_waiters_uses_locks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only so many descriptors are used for this."""
    monkeypatch.setattr(thread_wakeup, "MOST", len(thread_wakeup._opened) + 1)
    first, second = thread_wakeup.take(), thread_wakeup.take()
    assert (type(first), type(second)) == (DescriptorWakeup, LockWakeup)


@pytest.mark.parametrize("missing", [(os, "eventfd"), (select, "epoll")], ids=["none is left", "one is left"])
def test_a_process_without_descriptors_uses_locks(missing: tuple[Any, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """No descriptor is left, or one where two are needed: waiting works all the same, and nothing stays open."""

    def none_left(*_: object) -> int:
        raise OSError(24, "Too many open files")

    before = len(thread_wakeup._opened)
    monkeypatch.setattr(*missing, none_left)
    assert type(thread_wakeup.take()) is LockWakeup
    gc.collect()
    assert len(thread_wakeup._opened) == before


def test_a_system_without_eventfd_uses_locks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only Linux has it."""
    monkeypatch.delattr(os, "eventfd")
    assert type(thread_wakeup.take()) is LockWakeup


def test_a_forked_child_has_its_own() -> None:
    """A child that used its parent's descriptor would take a wake away from it."""
    kept = thread_wakeup.take()
    thread_wakeup.give_back(kept)
    child = os.fork()
    if child == 0:
        os._exit(1 if thread_wakeup.take() is kept else 0)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    assert thread_wakeup.take() is kept


def test_a_forked_child_closes_those_of_other_threads() -> None:
    """What waits in a thread that the child does not have would keep them open for ever. The parent's go on."""
    before, opened = open_files(), len(thread_wakeup._opened)
    wakeups: list[DescriptorWakeup] = []
    began = threading.Semaphore(0)

    def wait() -> None:
        wakeup = thread_wakeup.take()
        assert isinstance(wakeup, DescriptorWakeup)
        wakeups.append(wakeup)
        began.release()
        wakeup.sleep(LONG)

    threads = [threading.Thread(target=wait, daemon=True) for _ in range(3)]
    for thread in threads:
        thread.start()
        assert began.acquire(timeout=LONG)
    assert len(thread_wakeup._opened) == opened + len(threads)
    child = os.fork()
    if child == 0:
        left = open_files() - before, len(thread_wakeup._opened) - opened
        wakeups.clear()
        os.close(os.eventfd(0))  # a descriptor that was closed twice would be another file by now
        os._exit(0 if max(left) <= 0 else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    for wakeup, thread in zip(wakeups, threads, strict=True):
        wakeup.wake()
        thread.join(LONG / 2)
        assert not thread.is_alive()


def test_an_interrupted_sleep_raises() -> None:
    """Ctrl-C ends a wait at once."""
    wakeup = DescriptorWakeup()
    before = signal.signal(signal.SIGUSR1, signal.default_int_handler)
    try:
        threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGUSR1)).start()
        with pytest.raises(KeyboardInterrupt):
            wakeup.sleep(LONG)
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_many_threads_of_one_lock_use_few_descriptors() -> None:
    """Each thread that waits behind others has one descriptor, however often it waits, and none when it has ended."""
    with leasehold.connect("memory://") as hold:
        _many_threads(hold)


def _many_threads(hold: leasehold.Leasehold) -> None:
    before, turns, most = len(thread_wakeup._opened), [0], [0]
    holds_all = hold.lock("rebuild", "nl", ttl=30).acquire()
    assert holds_all is not None

    def work() -> None:
        for _ in range(5):
            with hold.lock("rebuild", "nl", ttl=30):
                turns[0] += 1
                most[0] = max(most[0], len(thread_wakeup._opened) - before)

    threads = [threading.Thread(target=work) for _ in range(8)]
    threads[0].start()
    until(lambda: hold._engine.cohorts, "a cohort")
    for thread in threads[1:]:
        thread.start()
    until(lambda: len(thread_wakeup._opened) > before)
    holds_all.release()
    for thread in threads:
        thread.join(LONG)
    gc.collect()
    assert turns == [40]
    assert 1 <= most[0] <= 8
    assert len(thread_wakeup._opened) == before
