"""What a cron survives: errors that cannot be written down, a store that forgets, a system that has nothing left."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import pytest

import leasehold
from leasehold.errors import InvalidRequest
from leasehold.patterns.results import MemoryResultStore
from tests.support.patterns.cron.bench import Bench, T, outcomes, settled
from tests.support.waiting import until


@pytest.fixture
def bench() -> Iterator[Bench]:
    """A minute and a half after a tick."""
    bench = Bench()
    yield bench
    bench.close()


class Mute(Exception):
    """One whose text cannot be had."""

    def __str__(self) -> str:
        raise LookupError("no text")


@pytest.mark.parametrize(
    ("error", "noted"),
    [
        (ValueError("no file \udcff\0"), "ValueError: no file \\udcff\0"),
        (Mute(), "Mute"),
        (MemoryError(), "MemoryError"),
    ],
    ids=["surrogate", "mute", "memory"],
)
def test_an_error_that_cannot_be_written_down(
    bench: Bench, error: Exception, noted: str, caplog: pytest.LogCaptureFixture
) -> None:
    """It is written as well as it can be, and the cron goes on."""
    caplog.set_level(logging.CRITICAL, "leasehold.cron")  # the test's own report could not be written down either

    def fail(tick: int) -> None:
        if tick == 300:
            raise error

    cron = bench.known(bench.cron(work=fail))
    bench.clock.set(T + 300)
    (run,) = settled(cron, (300, "error"))
    assert run.error == noted
    bench.clock.set(T + 600)
    settled(cron, (300, "error"), (600, "ok"))


@pytest.mark.parametrize("missed", ["skip", "once", "all"])
def test_a_store_that_forgets_all(bench: Bench, missed: str) -> None:
    """What was run before is neither run again nor called missed, by those who were there."""
    cron = bench.known(bench.cron(missed=missed))
    for tick in (300, 600):
        bench.clock.set(T + tick)
        until(lambda tick=tick: outcomes(cron)[-1:] == [(tick, "ok")])  # type: ignore[misc]  # bound now
    bench.clock.set(T + 700)
    until(lambda: not bench.hold.lock("rollup").locked())
    with bench.hold.lock("rollup") as lease:
        bench.hold._results.write(lease, None, keep="1d")
    bench.clock.set(T + 900)
    settled(cron, (900, "ok"))
    assert bench.ran == [300, 600, 900]


class Forgetful(MemoryResultStore):
    """Loses all that it knows with the next write."""

    __slots__ = ("forgets",)

    def __init__(self) -> None:
        super().__init__()
        self.forgets = False

    def write(self, lease: Any, text: str | None, keep: Any) -> None:
        """What is written is lost as well."""
        super().write(lease, None if self.forgets else text, keep)
        self.forgets = False


@pytest.mark.parametrize("missed", ["skip", "once", "all"])
def test_a_store_that_forgets_all_at_the_end_of_a_run(bench: Bench, missed: str) -> None:
    """The process that ran the ticks knows them, even if it has not looked at the history since."""
    results = Forgetful()

    def forget(tick: int) -> None:
        results.forgets = tick == 600

    cron = bench.cron(store=results, missed=missed, work=forget).start()
    until(lambda: results.read("rollup") is not None)
    for tick in (300, 600):
        bench.clock.set(T + tick)
        until(lambda tick=tick: bench.ran[-1:] == [tick])  # type: ignore[misc]  # bound now
        until(lambda: not bench.hold.lock("rollup").locked())
    bench.clock.set(T + 900)
    settled(cron, (900, "ok"))
    assert bench.ran == [300, 600, 900]


class Exhausted(MemoryResultStore):
    """Of a process that can start no thread now and then."""

    __slots__ = ("times",)

    def __init__(self) -> None:
        super().__init__()
        self.times = 0

    def open(self, lease: Any) -> Any:
        """What is there, if there is a thread."""
        if self.times:
            self.times -= 1
            raise RuntimeError("can't start new thread")
        return super().open(lease)


def test_a_process_that_has_nothing_left(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    """It is told once, with its traceback, and tried again: the tick is run."""
    results = Exhausted()
    cron = bench.cron(store=results).start()
    until(lambda: results.read("rollup") is not None)
    results.times = 3
    bench.clock.set(T + 300)
    settled(cron, (300, "ok"))
    assert cron.running and bench.ran == [300]
    assert caplog.text.count("rollup: RuntimeError: can't start new thread") == 1 and "Traceback" in caplog.text


class Later(NamedTuple):
    """A lease of another store, whose fences are higher."""

    resource: str = "rollup"
    fence: int = 2**62
    owner: str = "host:1:secret.1"


def test_fences_that_are_too_low(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    """A result store that has seen higher ones, of another store, refuses us for ever: that is an error in the log."""
    results = MemoryResultStore()
    results.open(Later())
    cron = bench.cron(store=results).start()
    until(lambda: "rollup: stale owner of rollup" in caplog.text)
    assert cron.running and cron.stop()
    assert [record.name for record in caplog.records].count("leasehold.cron") == 1


def test_ids_are_not_in_the_log(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    """As everywhere, they are hashed; the tick is a time that people can read."""

    @bench.hold.cron("*/5 * * * *", "rollup", "ann@example.com", clock=bench.clock)
    def rollup() -> NoReturn:
        raise ValueError("no")

    rollup.start()
    until(lambda: bench.hold._results.read("rollup:ann@example.com") is not None)
    bench.clock.set(T + 300)
    until(lambda: "2027-01-15T08:05:00+00:00" in caplog.text)
    assert "ann@example.com" not in caplog.text and "rollup#" in caplog.text


def test_close_tells_all_of_them_first(bench: Bench) -> None:
    """While one is waited for, no other begins a tick."""
    hold = bench.another()
    busy = bench.known(bench.cron(hold=hold, work=bench.waits))
    bench.clock.set(T + 300)
    until(lambda: bench.ran == [300])
    late: list[str] = []

    def later(name: str) -> Any:
        @hold.cron("*/5 * * * *", name, clock=bench.clock)
        def note() -> None:
            late.append(name)

        return note.start()

    first, second = later("first"), later("second")
    hold._closers.append(hold._closers.pop(hold._closers.index(busy._close)))  # it is the one that is waited for
    closing = threading.Thread(target=hold.close)
    closing.start()
    until(lambda: not first.running and not second.running)
    assert busy.running and closing.is_alive()
    bench.go_on.set()
    closing.join(60)
    assert late == [] and not busy.running


def test_a_thread_that_cannot_be_started(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error comes out, and it is not taken for running."""
    cron = bench.cron()

    def none_left(_thread: threading.Thread) -> NoReturn:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", none_left)
        with pytest.raises(RuntimeError):
            cron.start()
    assert not cron.running and cron.stop()
    bench.known(cron)


def test_stop_as_long_as_it_takes(bench: Bench) -> None:
    """``wait=None`` has no end of its own."""
    cron = bench.known(bench.cron(work=bench.waits))
    bench.clock.set(T + 300)
    until(lambda: bench.ran == [300])
    threading.Timer(0.05, bench.go_on.set).start()
    assert cron.stop(wait=None) and outcomes(cron) == [(300, "ok")]


def test_a_result_store_that_the_fleet_does_not_share(tmp_path: Path) -> None:
    """Each process would run every tick: it is refused where it is written."""
    with (
        leasehold.connect(f"sqlite:///{tmp_path}/leases.db") as hold,
        pytest.raises(InvalidRequest, match="one process only"),
    ):
        hold.cron("* * * * *", "rollup", store=MemoryResultStore())


def test_an_error_of_a_run_that_was_lost(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    """Neither hides the other: both are in the history, and the error is in the log."""

    @bench.hold.cron("*/5 * * * *", "rollup", at_most=0.1, lease_as="lease", clock=bench.clock)
    def rollup(*, lease: leasehold.Lease) -> None:
        assert lease.lost.wait(60)
        raise ValueError("half done")

    bench.known(rollup)
    bench.clock.set(T + 300)
    (run,) = settled(rollup, (300, "lost"))
    assert "max_hold" in run.error and run.error.endswith("; ValueError: half done")
    assert "failed" in caplog.text and "ValueError: half done" in caplog.text


def test_a_run_that_sees_that_it_was_lost(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    """``lease.check()`` ends it as it should: that is no further error."""

    @bench.hold.cron("*/5 * * * *", "rollup", at_most=0.1, lease_as="lease", clock=bench.clock)
    def rollup(*, lease: leasehold.Lease) -> None:
        assert lease.lost.wait(60)
        lease.check()

    bench.known(rollup)
    bench.clock.set(T + 300)
    (run,) = settled(rollup, (300, "lost"))
    assert run.error.endswith("before the run had ended") and "failed" not in caplog.text
