"""An interrupt at every line of passing a lease on, of him who passes and of him who waits: the others get their turns,
and nothing stays held."""

from __future__ import annotations

import linecache
import sys
import threading
from collections.abc import Callable
from types import CodeType, FrameType
from typing import Any

import pytest

import leasehold
from leasehold._core.cohort import Cohort
from leasehold._core.holding import Holding
from leasehold._runtime import cohorts, sync
from leasehold._runtime.engine import Engine
from leasehold._runtime.watchdog import Watchdog
from leasehold.primitives.base_lock import BaseLock
from leasehold.primitives.lock import Lock
from leasehold.stores.memory import MemoryStore
from tests.support.lock import nothing_left, waiting
from tests.support.waiting import PATIENCE, until

pytestmark = pytest.mark.slow
TTL = 1.5
PASSING: list[Callable[..., Any]] = [
    sync.release,
    cohorts.decide,
    cohorts.pass_on,
    cohorts.LocalCohort.pass_on,
    cohorts.LocalCohort._pass_to,
    cohorts.released,
    cohorts.ended,
    cohorts._follow,
    Cohort.next_holder,
    Cohort.reserved,
    Holding.pass_on,
]
LINGERING: list[Callable[..., Any]] = [
    BaseLock._at_hand,
    BaseLock._take_kept,
    sync.release,
    cohorts.lingers,
    cohorts.may_linger,
    cohorts.decide,
    cohorts.pass_on,
    cohorts.released,
    cohorts.LocalCohort.take_kept,
    cohorts.LocalCohort.pass_on,
    cohorts.LocalCohort._keep_for_a_moment,
    Cohort.take,
    Cohort.may_take,
    Watchdog.linger,
    Engine.register,
    Holding.pass_on,
]
WAITING: list[Callable[..., Any]] = [
    BaseLock._join,
    cohorts.LocalCohort.join,
    Lock._wait_in_cohort,
    cohorts.wait_on_thread,
    cohorts._look,
    cohorts._take,
    BaseLock._take_up,
]


def at_nth_line(codes: set[CodeType], nth: int, hit: list[str]) -> Callable[[FrameType, str, Any], Any]:
    """Interrupt at the nth line that is reached in any of these functions. Not where a ``with`` is left or a ``try``
    begins: no signal arrives there, and an exception that came out of nothing would leave a lock locked."""
    seen = 0

    def local(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal seen
        if event == "line" and not linecache.getline(frame.f_code.co_filename, frame.f_lineno).strip().startswith(
            ("with ", "try:")
        ):
            seen += 1
            if seen == nth:
                sys.settrace(None)
                hit.append(f"{frame.f_code.co_qualname}:{frame.f_lineno}")
                raise KeyboardInterrupt
        return local

    return lambda frame, event, _: local if frame.f_code in codes else None


class Scene:
    """One that passes its lease on, three that wait for it, and one of them or the first is interrupted."""

    def __init__(self) -> None:
        self.store = MemoryStore()
        self.hold = leasehold.connect(self.store)
        self.turns: list[str] = []
        self.hit: list[str] = []
        self.threads: list[threading.Thread] = []
        self.go = threading.Event()

    def come(self, name: str, trace_acquire: Any = None, trace_release: Any = None) -> None:
        """A thread that takes its turn, traced where the test wants it."""

        def turn() -> None:
            try:
                sys.settrace(trace_acquire)
                lease = self.hold.lock("job", ttl=TTL).acquire()
                sys.settrace(None)
                assert lease is not None
                self.turns.append(name)
                if name == "first":
                    self.go.wait(PATIENCE)
                sys.settrace(trace_release)
                lease.release()
            except KeyboardInterrupt:
                pass
            finally:
                sys.settrace(None)

        self.threads.append(threading.Thread(target=turn, daemon=True))
        self.threads[-1].start()

    def play(self, trace_wait: Any, trace_pass: Any) -> None:
        """The others get their turns, and nothing stays held."""
        with leasehold.connect(self.store) as other:
            blocker = other.lock("job", ttl=60).acquire()
            assert blocker is not None
            self.come("first", trace_release=trace_pass)
            until(lambda: bool(self.hold._engine.cohorts), "it leads")
            blocker.release()
        until(lambda: "first" in self.turns, "it has it")
        for name in ("second", "third", "fourth"):
            before = waiting(self.store, "job")
            self.come(name, trace_acquire=trace_wait if name == "third" else None)
            until(lambda: waiting(self.store, "job") > before or self.hit, "it waits")  # noqa: B023 # called here
        self.go.set()
        for thread in self.threads:
            thread.join(PATIENCE)
            assert not thread.is_alive(), f"it waits for ever, after an interrupt at {self.hit}"
        missing = {"second", "fourth"} - set(self.turns)
        assert not missing, f"{missing} had no turn, after an interrupt at {self.hit}"
        until(lambda: nothing_left(self.store, "job"), f"nothing is held, after an interrupt at {self.hit}")
        assert not self.hold._engine.cohorts and not self.hold._engine.watchdog.passing, self.hit
        self.hold.close()


@pytest.mark.timeout(300)
@pytest.mark.parametrize("which", ["passing", "waiting"])
def test_an_interrupt_at_every_line(which: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever it hits."""
    monkeypatch.setattr(cohorts, "LOOK_EVERY", 0.05)
    codes = {function.__code__ for function in (PASSING if which == "passing" else WAITING)}
    line, hits = 1, []
    while True:
        scene = Scene()
        trace = at_nth_line(codes, line, scene.hit)
        scene.play(trace if which == "waiting" else None, trace if which == "passing" else None)
        if not scene.hit:
            break
        hits += scene.hit
        line += 1
    assert line > 20, "the lines of what is tested were not found"


def linger(codes: set[CodeType], line: int) -> list[str]:
    """One that takes and releases what lingers is interrupted at this line: where that was, if there is such a line.
    It is given back or lingers on: whoever wants it next gets it, and nothing stays held."""
    hit: list[str] = []
    store = MemoryStore()
    with leasehold.connect(store) as hold, leasehold.connect(store) as other:
        lock = hold.lock("job", ttl=TTL, linger=TTL, wait=PATIENCE)
        with lock:
            until(hold._engine.watchdog.hears, "it can be told")
        try:
            sys.settrace(at_nth_line(codes, line, hit))
            with lock:
                pass
        except KeyboardInterrupt:
            pass
        finally:
            sys.settrace(None)
        for one in (hold, other):
            lease = one.lock("job", ttl=TTL, wait=PATIENCE).acquire()
            assert lease is not None, f"it is not free, after an interrupt at {hit}"
            assert lease.release() is True, hit
        until(lambda: nothing_left(store, "job"), f"nothing is held, after an interrupt at {hit}")
        assert not hold._engine.watchdog.lingering and not hold._engine.watchdog.passing, hit
    return hit


@pytest.mark.timeout(300)
def test_an_interrupt_at_every_line_of_lingering() -> None:
    """Whatever it hits."""
    codes = {function.__code__ for function in LINGERING}
    line = 1
    while linger(codes, line):
        line += 1
    assert line > 40, "the lines of what is tested were not found"
