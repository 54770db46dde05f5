"""Interrupts at the worst of places: whatever an exception from nowhere hits, nothing stays held and nothing waits."""

from __future__ import annotations

import asyncio
import gc
import inspect
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import pytest

import leasehold
from leasehold._core import driver
from leasehold._core.holding import Holding
from leasehold._runtime.background import BackgroundOps
from leasehold._runtime.connections import ConnectionPool
from leasehold._runtime.engine import Engine
from leasehold._runtime.held_lease import HeldLease
from leasehold._runtime.registry import Attempt, LeaseRegistry
from leasehold._runtime.watchdog import Watchdog
from leasehold.primitives.base_lock import BaseLock
from leasehold.primitives.lease import Lease
from leasehold.primitives.multi import GroupAttempt
from leasehold.stores.postgresql.session import Session
from leasehold.stores.postgresql.sessions import Sessions
from leasehold.stores.sqlite import SQLiteStore
from leasehold.stores.sqlite.database import Database
from tests.support.lock import STORES, in_thread, look
from tests.support.sqlite import SOURCES
from tests.support.waiting import PATIENCE, until

pytestmark = pytest.mark.slow  # every function of the hot path, on each store: seconds

Trace = Callable[[FrameType, str, Any], Any]

ANYWHERE: list[tuple[Callable[..., Any], int]] = [
    (Lease.__init__, 1),
    (ConnectionPool.give_back, 1),
    (BaseLock._enter, 1),
    (BaseLock._innermost, 1),
    (BaseLock._leave, 1),
    (Lease.release, 1),
    (HeldLease.step_out, 1),
]
IN_SQLITE: list[tuple[Callable[..., Any], int]] = [
    (SQLiteStore._run_one, 1),
    (SQLiteStore._run_one, 2),
    (Database.commit, 1),
    (Database.plain_turn, 2),
    (Database.moved, 2),  # the release is committed
]
IN_POSTGRESQL: list[tuple[Callable[..., Any], int]] = [
    (Sessions.take, 1),
    (Sessions.give_back, 1),
    (Sessions.give_back, 2),  # the release is committed
    (Session._check, 1),
    (Session._check, 2),
]
INSIDE = {"sqlite": IN_SQLITE, "postgresql": IN_POSTGRESQL}
KINDS = [*STORES, pytest.param("postgresql", marks=pytest.mark.soak)]  # with a fixture ``url`` for each
PLACES = [
    pytest.param(store, function, nth, id=f"{store}-{function.__qualname__}-{nth}")
    for store in (*STORES, "postgresql")
    for function, nth in [*ANYWHERE, *INSIDE.get(store, [])]
]
INNER = [BaseLock._enter, BaseLock._innermost, BaseLock._leave, Lease.release, HeldLease.step_out]
CLOSING = [
    Engine.shut,
    ConnectionPool.close,
    Watchdog.give_back,
    Holding.lose,
    Watchdog.remove,
    Watchdog._report_loss_to_observers,
    HeldLease.notify_loss,
    Holding.begin_release,
    BackgroundOps.add,
    BackgroundOps.make_due,
    BackgroundOps.run,
    Watchdog.stop,
    Watchdog.give_up,
]


@contextmanager
def tracing(trace: Trace) -> Iterator[None]:
    """Trace this thread, and no longer than this."""
    before = sys.gettrace()
    sys.settrace(trace)
    try:
        yield
    finally:
        sys.settrace(before)


def at_entry(code: CodeType, nth: int, act: Callable[[], None]) -> Trace:
    """Act where that function is called for the nth time, before its first line: there a signal can arrive."""
    calls: list[str] = []

    def trace(frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and frame.f_code is code:
            calls.append(event)
            if len(calls) == nth:
                sys.settrace(None)
                act()

    return trace


def at_line(function: Callable[..., Any], text: str, which: int, nth: int, act: Callable[[], object]) -> Trace:
    """Act where a line with that text is reached for the nth time; ``which`` of the lines that have it."""
    lines, start = inspect.getsourcelines(function)
    wanted = start + [index for index, line in enumerate(lines) if text in line][which]
    seen: list[int] = []

    def local(frame: FrameType, event: str, _: Any) -> Any:
        if event == "line" and frame.f_lineno == wanted:
            seen.append(wanted)
            if len(seen) == nth:
                sys.settrace(None)
                act()
        return local

    return lambda frame, event, _: local if frame.f_code is function.__code__ else None


def interrupt() -> None:
    """What Ctrl-C does."""
    raise KeyboardInterrupt


def interrupted(step: Callable[[], object], trace: Trace) -> bool:
    """Was the step interrupted? The traceback does not outlive this: it would keep the lease alive."""
    try:
        with tracing(trace):
            step()
    except KeyboardInterrupt:
        return True
    return False


# ---------------------------------------------------------------- taking and giving back


@pytest.mark.parametrize(("kind", "function", "nth"), PLACES)
def test_an_interrupt_leaves_nothing_held(function: Callable[..., Any], nth: int, url: str) -> None:
    """Wherever a with statement is interrupted, its lock is free within the ttl and the store goes on."""
    with leasehold.connect(url) as hold, leasehold.connect(url) as other:
        assert hold.lock("warm").acquire(wait=0) is not None and hold.lock("warm").release()
        lock = hold.lock("job", ttl=0.3)

        def body() -> None:
            with lock:
                pass

        # The watchdog's thread may use the file at this moment, and the body then takes another way.
        until(lambda: interrupted(body, at_entry(function.__code__, nth, interrupt)), "the place is reached")
        gc.collect()
        theirs = in_thread(lambda: other.lock("job", ttl=1.5).acquire(wait=PATIENCE))
        assert theirs is not None and theirs.release()
        again = lock.acquire(wait=PATIENCE)
        assert again is not None
        again.release()  # False where the machine stood still for as long as the lease lasts
        assert hold.lock("another").try_acquire() is not None
        assert other.lock("third").try_acquire() is not None


@pytest.mark.parametrize("nth", [1, 2])
@pytest.mark.parametrize("function", [SQLiteStore._run_one, Database.plain_turn, Database.moved])
def test_an_interrupt_of_a_plain_turn_leaves_nothing_held(
    function: Callable[..., Any], nth: int, tmp_path: Path
) -> None:
    """The same where the row is known: before the one statement that a claim or a release then is, and after it."""
    url = f"sqlite:///{tmp_path}/leases.db"
    with leasehold.connect(url) as hold, leasehold.connect(url) as other:
        lock = hold.lock("job", ttl=0.3)

        def body() -> None:
            with lock:
                pass

        body()
        # The watchdog's thread may use the file at this moment, and the body then takes another way.
        until(lambda: interrupted(body, at_entry(function.__code__, nth, interrupt)), "the place is reached")
        gc.collect()
        theirs = in_thread(lambda: other.lock("job", ttl=1.5).acquire(wait=PATIENCE))
        assert theirs is not None and theirs.release()
        body()


@pytest.mark.parametrize("function", INNER)
@pytest.mark.parametrize("explicit", [True, False])
def test_an_interrupt_of_an_inner_body_is_no_loss(function: Callable[..., Any], explicit: bool) -> None:
    """Whoever entered the same lease before, and bears the interrupt, works on under it, and gives it back."""
    with leasehold.connect("memory://") as hold:
        lock = hold.rlock("job", ttl=30)
        lease = lock.acquire() if explicit else lock.__enter__()
        assert lease is not None

        def step() -> None:
            with hold.rlock("job", ttl=30):
                pass

        assert interrupted(step, at_entry(function.__code__, 1, interrupt))
        assert lease.state == "held" and hold.lock("job").try_acquire() is None
        if explicit:
            lock.release()
        else:
            lock.__exit__(None, None, None)
        assert hold.lock("job").try_acquire() is not None


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("text", "which"),
    [("try:", 1), ("result = perform(request)", 0), ("request = flow.send(result)", 0)],
    ids=["head", "op", "answer"],
)
def test_an_interrupted_waiter_does_not_stay_in_the_queue(text: str, which: int, url: str) -> None:
    """Between two ops of an acquire as well: who was interrupted is withdrawn, and the lock passes him over."""
    with leasehold.connect(url) as hold, leasehold.connect(url) as other:
        theirs = other.lock("job", ttl=30).acquire(wait=0)
        assert theirs is not None
        waiting = hold.lock("job", ttl=30)
        assert interrupted(lambda: waiting.acquire(wait=0.1), at_line(driver.drive, text, which, 2, interrupt))
        until(lambda: not look(hold._engine.store, "job").queue, "nobody waits")
        assert not hold._engine.pending
        assert theirs.release() and other.lock("job").try_acquire() is not None


# ---------------------------------------------------------------- the end of an acquire


@pytest.mark.parametrize("function", [BaseLock._clean_up, BaseLock._finish, Attempt.forget_pushes])
def test_an_interrupt_at_the_end_of_a_refusal(function: Callable[..., Any]) -> None:
    """Nothing of the acquire is kept, neither it nor its connection, though the refusal came first."""
    with leasehold.connect("memory://") as hold:
        theirs = hold.lock("job", ttl=30).acquire(wait=0)
        assert theirs is not None
        refused = hold.lock("job", ttl=30)
        assert interrupted(lambda: refused.acquire(wait=0), at_entry(function.__code__, 1, interrupt))
        assert not hold._engine.pending and len(hold._engine.connections._idle) == 1
        assert theirs.release()


@pytest.mark.parametrize("several", [False, True], ids=["lock", "all"])
def test_an_interrupt_between_the_last_steps_of_a_refusal(several: bool) -> None:
    """It came when the attempt had been discarded: its connection is given back all the same."""

    class Pending(set[Any]):
        def discard(self, attempt: Any) -> None:
            super().discard(attempt)
            if interrupts:
                raise interrupts.pop()

    interrupts = [KeyboardInterrupt()]
    with leasehold.connect("memory://") as hold:
        theirs = hold.lock("job", ttl=30).acquire(wait=0)
        assert theirs is not None
        hold._engine.pending = Pending()
        refused = hold.all(hold.lock("job"), hold.lock("part")) if several else hold.lock("job")
        with pytest.raises(KeyboardInterrupt):
            refused.acquire(wait=0)
        assert not hold._engine.pending and len(hold._engine.connections._idle) == 1
        assert theirs.release()


class Steps(list[str]):
    """What an engine does at the end of an acquire, in order."""

    def __init__(self, engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__()
        steps = self

        class Pending(set[Any]):
            def discard(self, attempt: Any) -> None:
                steps.append("discard")
                super().discard(attempt)

        engine.pending = Pending()
        self._watch(monkeypatch, engine.connections, "give_back")
        self._watch(monkeypatch, BaseLock, "_clean_up")
        self._watch(monkeypatch, GroupAttempt, "clean_up")

    def _watch(self, monkeypatch: pytest.MonkeyPatch, thing: Any, name: str) -> None:
        original = getattr(thing, name)

        def watched(*args: Any) -> Any:
            self.append(name.strip("_"))
            return original(*args)

        monkeypatch.setattr(thing, name, watched)


@pytest.mark.parametrize("several", [False, True], ids=["lock", "all"])
def test_an_acquire_ends_in_the_same_order_in_both_flavours(several: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Clean up the claim, forget its pushes, discard the attempt, give the connection back: granted or refused."""

    def taken(hold: Any) -> Any:
        return hold.all(hold.lock("job"), hold.lock("part")) if several else hold.lock("job")

    with leasehold.connect("memory://ends") as hold:
        steps = Steps(hold._engine, monkeypatch)
        lease = taken(hold).acquire(wait=0)
        assert lease is not None and steps == ["discard", "give_back"]
        assert in_thread(lambda: taken(hold).acquire(wait=0)) is None
        assert steps[2:] == ["clean_up", "discard", "give_back"]

        async def main() -> None:
            async with leasehold.aio.connect("memory://ends") as other:
                steps = Steps(other._engine, monkeypatch)
                pushes = other._driver.connection(asyncio.get_running_loop()).pushes
                assert await taken(other).acquire(wait=0) is None
                assert steps == ["clean_up", "discard"] and not pushes
                lease.release()
                assert await taken(other).acquire(wait=0) is not None
                assert steps[2:] == ["discard"] and not pushes

        asyncio.run(main())


# ---------------------------------------------------------------- closing


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("function", CLOSING, ids=lambda function: str(function.__qualname__))
def test_a_close_that_was_interrupted_can_be_repeated(function: Callable[..., Any], url: str) -> None:
    """The second close() ends what the first began: what was held is lost here and free for others at once."""
    hold = leasehold.connect(url)
    lease = hold.lock("job", ttl=30).acquire(wait=0)
    assert lease is not None
    assert interrupted(hold.close, at_entry(function.__code__, 1, interrupt))
    hold.close()
    assert lease.state == "lost"
    with leasehold.connect(url) as other:
        assert other.lock("job").try_acquire() is not None


# ---------------------------------------------------------------- handlers of signals

HANDLER = """
import faulthandler, random, signal, sys, time
import leasehold
faulthandler.dump_traceback_later(20, exit=True)
url, what = sys.argv[1:]
hold = leasehold.connect(url)
lease = hold.lock("job", ttl=5).acquire(wait=0)
calls = 0
def handler(*_):
    global calls
    calls += 1
    try:
        {"state": lambda: lease.state, "release": lambda: lease.release(), "close": lambda: hold.close()}[what]()
    except leasehold.LeaseholdError:
        pass
    signal.setitimer(signal.ITIMER_REAL, random.uniform(.0003, .001))
signal.signal(signal.SIGALRM, handler)
signal.setitimer(signal.ITIMER_REAL, .001)
end = time.monotonic() + .4
while time.monotonic() < end or calls < 20:
    try:
        if what == "close":
            hold = leasehold.connect(url)
        if what != "state":
            lease = hold.lock("job", ttl=5).acquire(wait=.05) or lease
        for _ in range(100):
            lease.check()
        if what != "state":
            lease.release()
    except leasehold.LeaseholdError:
        pass
signal.setitimer(signal.ITIMER_REAL, 0)
signal.signal(signal.SIGALRM, signal.SIG_IGN)
hold.close()
print("done")
"""


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("what", ["state", "release", "close"])
def test_a_signal_handler_does_not_deadlock(what: str, url: str) -> None:
    """A handler that uses the lease or the coordinator in the middle of a call of the same thread comes through."""
    command = [sys.executable, "-c", HANDLER, url, what]
    environment = {**os.environ, "PYTHONPATH": SOURCES}
    done = subprocess.run(command, env=environment, check=False, capture_output=True, text=True, timeout=40)
    assert done.stdout.strip() == "done", done.stderr


LONG = """
import faulthandler, signal, sys, time
import leasehold
faulthandler.dump_traceback_later(30, exit=True)
hold = leasehold.connect(sys.argv[1])
lease = hold.lock("job").acquire(wait=0)
signal.signal(signal.SIGALRM, lambda *_: time.sleep(.2))
signal.setitimer(signal.ITIMER_REAL, .05)
print(hold.lock("job").acquire(wait=.1))
hold.close()
"""


@pytest.mark.parametrize("kind", KINDS)
def test_a_handler_that_outlasts_a_wait(url: str) -> None:
    """A wait whose end passes inside a signal handler is over: SimpleQueue.get alone would then wait for ever."""
    command = [sys.executable, "-c", LONG, url]
    environment = {**os.environ, "PYTHONPATH": SOURCES}
    done = subprocess.run(command, env=environment, check=False, capture_output=True, text=True, timeout=40)
    assert done.stdout.strip() == "None", done.stderr


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "function", [Holding.begin_release, Holding.end_release, Watchdog.add, Engine.register, HeldLease.step_out]
)
def test_a_handler_in_the_middle_of_a_call(function: Callable[..., Any], url: str) -> None:
    """The same at chosen places, inside our locks: another lease is read and given back there."""
    with leasehold.connect(url) as hold:
        first = hold.lock("first", ttl=30).acquire(wait=0)
        assert first is not None
        seen: list[object] = []

        def handler() -> None:
            seen.extend([first.state, first.release()])

        def body() -> None:
            with hold.lock("second", ttl=30):
                pass

        assert not interrupted(body, at_entry(function.__code__, 1, handler))
        assert seen == ["held", True]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("text", ["entry = self._by_id.get(key)", "if entry is held", "self._by_id.pop(key, None)"])
def test_a_handler_that_gives_back_what_is_being_given_back(text: str, url: str) -> None:
    """Two releases of one lease in one thread, the second inside the first: both come through."""
    with leasehold.connect(url) as hold:
        lease = hold.lock("job", ttl=30).acquire(wait=0)
        assert lease is not None
        seen: list[bool] = []
        trace = at_line(LeaseRegistry.remove, text, 0, 1, lambda: seen.append(lease.release()))
        assert not interrupted(lease.release, trace)
        assert seen == [False] and lease.state == "released"
        assert hold.lock("job").try_acquire() is not None
