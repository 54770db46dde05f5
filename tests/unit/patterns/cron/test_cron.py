"""A cron in threads: its ticks, what was missed, what overlaps, clocks that are set, history, and its end."""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

import leasehold
from leasehold.errors import InvalidRequest, OutcomeUnknown
from leasehold.patterns import Run
from leasehold.patterns.cron.state import decode
from leasehold.patterns.results import Entry, MemoryResultStore
from leasehold.testing import outage
from tests.support.patterns.cron.bench import Bench, T, outcomes, settled
from tests.support.patterns.cron.clocks import TurnedClock
from tests.support.tables import each
from tests.support.waiting import PATIENCE, until


@pytest.fixture
def bench() -> Iterator[Bench]:
    """A minute and a half after a tick."""
    bench = Bench()
    yield bench
    bench.close()


def test_each_tick_once(bench: Bench) -> None:
    """By one of two hosts; the history says when, by whom, and how it went."""
    one, other = bench.known(bench.cron()), bench.cron(hold=bench.another()).start()
    for number in range(1, 6):
        bench.clock.set(T + 300 * number + 0.1)
        until(lambda: bench.ran[-1:] == [int(bench.clock.now()) - T], "a run")
    runs = settled(one, *[(300 * number, "ok") for number in range(1, 6)])
    assert bench.ran == [300, 600, 900, 1200, 1500]
    assert outcomes(other) == outcomes(one)
    assert [run.fence for run in runs] == sorted({run.fence for run in runs}, reverse=True)
    last = runs[0]
    assert last.by.endswith(f":{os.getpid()}") and last.tick == datetime.fromtimestamp(T + 1500, UTC)
    assert last.started == last.ended == datetime.fromtimestamp(T + 1500.1, UTC)
    assert (last.until, last.ticks, last.error) == (None, 1, "")


def test_clocks_that_differ(bench: Bench) -> None:
    """The fast one runs the tick early; the slow one finds it done."""
    fast, slow = TurnedClock(T + 100), TurnedClock(T + 90)
    first = bench.known(bench.cron(clock=fast))
    bench.cron(hold=bench.another(), clock=slow).start()
    for moment in (300, 301, 310, 599, 600, 605, 611):
        if moment == 599:  # else it is missed by then
            until(lambda: bench.ran == [300], "a run")
        fast.set(T + moment)
        slow.set(T + moment - 10)
        time.sleep(0.02)  # either of them may look now
    settled(first, (300, "ok"), (600, "ok"))
    assert bench.ran == [300, 600]


def test_a_clock_that_is_set_back(bench: Bench) -> None:
    """What was run is not run again, and the next tick is not lost."""
    cron = bench.known(bench.cron())
    bench.clock.set(T + 901)
    settled(cron, (300, "missed"), (900, "ok"))
    bench.clock.set(T + 10)  # an hour too late for that
    time.sleep(0.05)
    for moment in (301, 601, 899, 901):
        bench.clock.set(T + moment)
        time.sleep(0.02)
    bench.clock.set(T + 1200)
    settled(cron, (300, "missed"), (900, "ok"), (1200, "ok"))
    assert bench.ran == [900, 1200]


def test_a_machine_that_slept(bench: Bench) -> None:
    """What came meanwhile is missed, and said so in one line."""
    cron = bench.known(bench.cron())
    bench.clock.set(T + 86400 + 200)
    (run,) = settled(cron, (300, "missed"))
    assert run.ticks == 288 and run.until == datetime.fromtimestamp(T + 86400, UTC)
    assert bench.ran == []


@pytest.mark.parametrize(
    ("missed", "ran"), [("skip", []), ("once", [1200]), ("all", [300, 600, 900, 1200])], ids=["skip", "once", "all"]
)
def test_missed_while_nobody_was_there(bench: Bench, missed: str, ran: list[int]) -> None:
    """At the next start: nothing, one run for all of them, or each."""
    bench.known(bench.cron()).stop()
    bench.clock.set(T + 1300)
    cron = bench.cron(missed=missed).start()
    until(lambda: outcomes(cron) and outcomes(cron)[-1][1] in ("ok", "missed") and len(bench.ran) == len(ran))
    cron.stop()
    assert bench.ran == ran


def test_a_start_that_is_a_little_late(bench: Bench) -> None:
    """A fleet that is being restarted when the tick comes runs it."""
    bench.known(bench.cron()).stop()
    bench.clock.set(T + 359)
    settled(bench.cron().start(), (300, "ok"))


def test_first_start(bench: Bench) -> None:
    """Nothing was missed before, whatever is to be done about missed ticks."""
    cron = bench.known(bench.cron(missed="all"))
    bench.clock.set(T + 300)
    settled(cron, (300, "ok"))


def test_ticks_that_overlap_are_skipped(bench: Bench) -> None:
    """A run that takes longer than its period: those that came meanwhile are left out, by all hosts."""
    cron = bench.known(bench.cron(work=bench.waits, missed="all"))
    bench.cron(hold=bench.another(), work=bench.waits, missed="all").start()
    bench.clock.set(T + 300)
    until(lambda: bench.ran == [300])
    bench.clock.set(T + 930)
    time.sleep(0.05)
    assert outcomes(cron) == [(300, "running")]
    bench.go_on.set()
    (skipped, _) = settled(cron, (300, "ok"), (600, "skipped"))
    assert skipped.ticks == 2
    bench.clock.set(T + 1200)
    settled(cron, (300, "ok"), (600, "skipped"), (1200, "ok"))


def test_ticks_that_overlap_wait(bench: Bench) -> None:
    """The latest of them is run when the long one has ended."""
    cron = bench.known(bench.cron(work=bench.waits, overlap="wait"))
    bench.clock.set(T + 300)
    until(lambda: bench.ran == [300])
    bench.clock.set(T + 1190)
    bench.go_on.set()
    settled(cron, (300, "ok"), (600, "skipped"), (900, "ok"))
    assert bench.ran == [300, 900]


def test_a_run_that_fails(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    """Its error is in the history, shortened, and in the log; the cron goes on."""

    def fail(tick: int) -> None:
        if tick == 300:
            raise ValueError("x" * 1000)

    cron = bench.known(bench.cron(work=fail))
    bench.clock.set(T + 300)
    (run,) = settled(cron, (300, "error"))
    assert run.error.startswith("ValueError: xxx") and len(run.error) == 300
    assert "rollup: the run of" in caplog.text and "Traceback" in caplog.text
    bench.clock.set(T + 600)
    settled(cron, (300, "error"), (600, "ok"))


def test_a_run_that_takes_too_long(bench: Bench) -> None:
    """After ``at_most`` its lease is lost, the run can see it, and the history says so."""
    seen = threading.Event()

    @bench.hold.cron("*/5 * * * *", "rollup", at_most=0.1, lease_as="lease", clock=bench.clock)
    def rollup(tick: datetime, *, lease: leasehold.Lease) -> None:
        bench.ran.append(int(tick.timestamp()) - T)
        assert lease.lost.wait(60)
        seen.set()

    bench.known(rollup)
    bench.clock.set(T + 300)
    assert seen.wait(60)
    (run,) = settled(rollup, (300, "lost"))
    assert "max_hold" in run.error
    bench.clock.set(T + 600)
    settled(rollup, (300, "lost"), (600, "lost"))


def test_at_least_keeps_others_out(bench: Bench) -> None:
    """The door stays closed after a run, and is not closed again by those who look or note."""
    cron = bench.known(bench.cron(at_least="20m"))
    assert bench.hold.inspect("rollup").closed_for == 0
    bench.clock.set(T + 500)
    settled(cron, (300, "missed"))
    assert bench.hold.inspect("rollup").closed_for == 0
    bench.clock.set(T + 600)
    settled(cron, (300, "missed"), (600, "ok"))
    until(lambda: bench.hold.inspect("rollup").closed_for > 1000, "a closed door")
    bench.clock.set(T + 900)
    time.sleep(0.05)
    assert bench.ran == [600]


def test_a_function_without_parameters(bench: Bench) -> None:
    """It is called without the tick; and a call by hand calls the function, nothing else."""

    @bench.hold.cron("*/5 * * * *", "rollup", clock=bench.clock)
    def rollup() -> str:
        """What it does."""
        bench.ran.append(1)
        return "done"

    assert rollup() == "done" and rollup.__doc__ == "What it does."
    assert rollup.history() == [] and not rollup.running
    bench.known(rollup)
    bench.clock.set(T + 300)
    settled(rollup, (300, "ok"))
    assert bench.ran == [1, 1]


def test_the_tick_in_its_zone(bench: Bench) -> None:
    """The function gets it as people there read it, and so does the history."""
    cron = bench.known(bench.cron(timezone="Europe/Amsterdam"))
    assert cron.next().isoformat() == "2027-01-15T09:05:00+01:00"
    bench.clock.set(T + 300)
    (run,) = settled(cron, (300, "ok"))
    assert run.tick.isoformat() == "2027-01-15T09:05:00+01:00"


def test_history_is_limited(bench: Bench) -> None:
    """To what was asked for, the newest first, and to a hundred."""
    cron = bench.known(bench.cron(missed="all"))
    bench.clock.set(T + 300 * 120)
    until(lambda: len(bench.ran) == 120)
    until(lambda: outcomes(cron)[-1] == (36000, "ok"))
    assert len(cron.history(100)) == 100 and len(cron.history()) == 20
    assert [int(run.tick.timestamp()) - T for run in cron.history(2)] == [36000, 35700]
    for wrong in (0, -1, 101, True, "5", None):
        with pytest.raises(InvalidRequest, match="limit"):
            cron.history(wrong)  # type: ignore[arg-type]  # that is the test


def test_a_result_store_of_ones_own(bench: Bench) -> None:
    """The history is where one wants it."""
    results = MemoryResultStore()
    cron = bench.cron(store=results).start()
    until(lambda: results.read("rollup") is not None)
    bench.clock.set(T + 300)
    settled(cron, (300, "ok"))
    assert bench.hold._results.read("rollup") is None


def test_another_expression(bench: Bench) -> None:
    """A cron that gets a new expression has missed nothing of it."""
    bench.known(bench.cron()).stop()
    bench.clock.set(T + 290)
    cron = bench.cron("* * * * *", missed="all").start()
    until(lambda: schedule(bench).startswith("* * * * *"), "its own books")
    bench.clock.set(T + 300)
    settled(cron, (300, "ok"))


def schedule(bench: Bench) -> str:
    """The expression that the books were written by."""
    stored = bench.hold._results.read("rollup")
    assert isinstance(stored, Entry)
    return decode(stored.text, "").schedule


# ---------------------------------------------------------------- clocks that are wrong


class OffClock(TurnedClock):
    """One that is compared with others."""

    real = True


def test_a_claim_of_the_far_future(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    """A machine that believed in 2040 and was set right does not stop the cron: its claims are void."""
    now = time.time()
    clock = OffClock(now + 14 * 365 * 86400)
    wrong = bench.known(bench.cron("* * * * * *", clock=clock))
    clock.set(clock.now() + 1)
    until(lambda: len(bench.ran) == 1)
    wrong.stop()
    right = bench.cron("* * * * * *", hold=bench.another(), clock=(good := OffClock(now))).start()
    until(lambda: "they are void" in caplog.text)
    good.set(now + 1)
    until(lambda: len(bench.ran) == 2, "a run")
    assert bench.ran[1] + T == int(now + 1)
    assert right.history()[0].outcome in ("ok", "running")


def test_a_machine_whose_clock_is_wrong_runs_nothing(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    """Others and the store agree on the time: it is told which clocks to look at, and claims nothing."""
    now = time.time()
    bench.known(bench.cron("* * * * * *", clock=OffClock(now))).stop()
    clock = OffClock(now + 86400)
    wrong = bench.cron("* * * * * *", hold=bench.another(), clock=clock, missed="all").start()
    until(lambda: "set the one that is wrong" in caplog.text)
    clock.set(now + 86401)
    time.sleep(0.05)
    assert bench.ran == [] and caplog.text.count("set the one that is wrong") <= 2
    clock.set(now + 2)  # somebody has set it right
    until(lambda: bench.ran, "a run")
    wrong.stop()


# ---------------------------------------------------------------- trouble


def test_a_store_that_goes_away(bench: Bench, hold: leasehold.Leasehold, caplog: pytest.LogCaptureFixture) -> None:
    """The tick is run when it is back, if that is within the grace; it is told once."""
    cron = bench.cron(hold=hold).start()
    until(lambda: hold._results.read("rollup") is not None and not hold.lock("rollup").locked())
    with outage(hold):
        bench.clock.set(T + 300)
        until(lambda: "rollup:" in caplog.text)
        time.sleep(0.1)
        told = [record for record in caplog.records if record.name == "leasehold.cron"]
    settled(cron, (300, "ok"))
    assert cron.stop()
    assert len(told) == 1 and told[0].levelno == logging.ERROR


class Forgetful(MemoryResultStore):
    """Its answers are lost now and then: nobody knows whether it was written."""

    __slots__ = ("lost",)

    def __init__(self) -> None:
        super().__init__()
        self.lost = 0

    def write(self, lease: Any, text: str | None, keep: Any) -> None:
        """What was asked for; the answer may be lost."""
        super().write(lease, text, keep)
        if self.lost:
            self.lost -= 1
            raise OutcomeUnknown("the answer was lost")


@pytest.mark.slow
@pytest.mark.parametrize("lost", [1, 2])
def test_a_claim_whose_answer_is_lost(bench: Bench, lost: int) -> None:
    """It is written again, and the tick is run: once."""
    results = Forgetful()
    cron = bench.cron(store=results).start()
    until(lambda: results.read("rollup") is not None)
    results.lost = lost
    bench.clock.set(T + 300)
    settled(cron, (300, "ok"))
    assert bench.ran == [300] and results.lost == 0


@pytest.mark.slow
def test_an_outcome_that_cannot_be_written(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    """It is said in the log, and the cron goes on."""
    results = Forgetful()

    def breaks(tick: int) -> None:
        results.lost = 3 if tick == 300 else 0

    cron = bench.cron(store=results, work=breaks).start()
    until(lambda: results.read("rollup") is not None)
    bench.clock.set(T + 300)
    until(lambda: "a run ended with ok, and the store was away" in caplog.text)
    bench.clock.set(T + 600)
    until(lambda: bench.ran == [300, 600])
    assert cron.stop()


def test_a_run_that_exits(bench: Bench) -> None:
    """``sys.exit()`` is the end of the run, as of the main function of a command, and not of the cron."""
    codes = iter([3, 0, None])
    cron = bench.known(bench.cron(work=lambda _tick: sys.exit(next(codes))))
    for number, outcome in enumerate(["error", "ok", "ok"], 1):
        bench.clock.set(T + 300 * number)
        expected = (300 * number, outcome)
        until(lambda expected=expected: outcomes(cron)[-1:] == [expected])  # type: ignore[misc]  # this one
    assert cron.running and cron.stop()


def test_an_exit_in_the_main_thread_ends_the_program(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    """There it may come from a signal handler: the books are closed, and it goes on its way."""
    cron = bench.cron(work=lambda _tick: sys.exit(3))
    bench.known(cron)
    assert cron.stop()
    bench.clock.set(T + 300)
    with pytest.raises(SystemExit):
        cron.run()
    assert "the cron rollup has stopped" in caplog.text and outcomes(cron) == [(300, "error")]


def test_a_lease_that_is_lost_before_the_run_begins(bench: Bench) -> None:
    """A process that is frozen between claim and run does not begin beside others."""

    class Slow(MemoryResultStore):
        """One that takes longer than the lease lasts, when it is told to."""

        def write(self, lease: Any, text: str | None, keep: Any) -> None:
            super().write(lease, text, keep)
            if text is not None and '"running"' in text:
                assert lease.lost.wait(60)

    cron = bench.cron(store=Slow(), at_most=0.1).start()
    until(lambda: cron._run_history.results.read("rollup") is not None)
    bench.clock.set(T + 300)
    settled(cron, (300, "lost"))
    assert bench.ran == []


def test_a_run_that_is_stolen(bench: Bench) -> None:
    """Somebody evicts it: the next who comes writes that it died, and what it writes itself is refused."""
    cron = bench.known(bench.cron(work=bench.waits))
    bench.clock.set(T + 300)
    until(lambda: bench.ran == [300])
    holder = bench.hold.inspect("rollup").holder
    assert holder is not None
    bench.hold.evict("rollup", fence=holder.fence, reason="a test", delay=0, force=True)
    other = bench.cron(hold=bench.another()).start()
    bench.clock.set(T + 600)
    settled(other, (300, "died"), (600, "ok"))
    bench.go_on.set()
    time.sleep(0.05)
    assert outcomes(cron) == [(300, "died"), (600, "ok")]
    stored = bench.hold._results.read("rollup")
    assert isinstance(stored, Entry) and [line.outcome for line in decode(stored.text, "").lines] == ["died", "ok"]


def test_a_name_that_is_used_twice(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    """Nothing is overwritten, and it is said."""
    with bench.hold.lock("rollup") as lease:
        bench.hold._results.write(lease, '{"leasehold":"once/1"}', keep="1h")
    with pytest.raises(InvalidRequest, match="used twice"):
        bench.cron().run()
    assert "the cron rollup has stopped" in caplog.text
    assert bench.hold._results.read("rollup").text == '{"leasehold":"once/1"}'  # type: ignore[union-attr]  # it is there


# ---------------------------------------------------------------- its end


def test_stop_waits_for_the_run(bench: Bench) -> None:
    """It is finished, and written down; no tick is begun after it."""
    cron = bench.known(bench.cron(work=bench.waits))
    bench.clock.set(T + 300)
    until(lambda: bench.ran == [300])
    assert (cron.stop(wait=0.05), cron.running, cron.stopping) == (False, True, True)
    bench.clock.set(T + 600)
    bench.go_on.set()
    assert (cron.stop(), cron.running) == (True, False)
    assert bench.ran == [300] and outcomes(cron) == [(300, "ok")]
    assert cron.stop() is True


def test_close_stops_it(bench: Bench) -> None:
    """A coordinator that is closed has finished its runs, and given back its leases."""
    hold = bench.another()
    cron = bench.known(bench.cron(hold=hold, work=lambda _tick: time.sleep(0.1)))
    bench.clock.set(T + 300)
    until(lambda: bench.ran == [300])
    hold.close()
    assert not cron.running and not bench.hold.lock("rollup").locked()
    assert outcomes(bench.cron()) == [(300, "ok")]
    with pytest.raises(leasehold.LeaseholdError):
        cron.start()


def test_start_again(bench: Bench) -> None:
    """What was stopped can be started; what runs cannot, and is not harmed."""
    cron = bench.known(bench.cron())
    with pytest.raises(InvalidRequest, match="running already"):
        cron.start()
    with pytest.raises(InvalidRequest, match="running already"):
        cron.run()
    assert cron.stop()
    cron.start()
    bench.clock.set(T + 300)
    settled(cron, (300, "ok"))
    assert len(bench.hold._closers) == 2  # the result store's, and one of its own


def test_run_ends_with_an_interrupt(bench: Bench) -> None:
    """Ctrl-C in the middle of a run comes out of ``run()``; the lease is given back, and the history knows."""
    cron = bench.cron(work=lambda _tick: os.kill(os.getpid(), signal.SIGINT))
    bench.known(cron).stop()
    bench.clock.set(T + 300)
    with pytest.raises(KeyboardInterrupt):
        cron.run()
    assert not cron.running and not bench.hold.lock("rollup").locked()
    assert [(run.outcome, run.error) for run in cron.history()] == [("error", "KeyboardInterrupt")]


def test_stop_from_a_signal_handler(bench: Bench) -> None:
    """It returns at once, wherever it interrupted; ``run()`` ends."""
    cron = bench.cron()
    before = signal.signal(signal.SIGUSR1, lambda *_: cron.stop())

    def interrupt() -> None:
        until(lambda: cron.running, "a cron that runs")
        os.kill(os.getpid(), signal.SIGUSR1)

    interrupting = threading.Thread(target=interrupt)
    interrupting.start()
    try:
        cron.run()
        interrupting.join(PATIENCE)
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert not cron.running


def test_stop_from_inside_the_run(bench: Bench) -> None:
    """The run goes on to its end, and is the last."""
    cron: Any = bench.cron(work=lambda _tick: cron.stop())
    bench.known(cron).stop()
    bench.clock.set(T + 300)
    cron.run()
    assert outcomes(cron) == [(300, "ok")]


def test_a_forked_child_runs_nothing(bench: Bench) -> None:
    """The thread stays with the parent; the child may start one of its own."""
    cron = bench.known(bench.cron())
    child = os.fork()
    if child == 0:
        os._exit(int(cron.running or not cron.stop()))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert cron.running


# ---------------------------------------------------------------- bad input


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"missed": "maybe"}, "missed is one of 'skip', 'once', 'all'"),
    ({"overlap": "allow"}, "overlap is one of 'skip', 'wait'"),
    ({"timezone": "Mars/Olympus"}, "no time zone"),
    ({"ttl": 0}, "ttl"),
    ({"at_least": -1}, "at_least"),
    ({"at_most": "soon"}, "max_hold"),
    ({"grace": -1}, "grace"),
    ({"grace": "late"}, "grace"),
    ({"store": "redis://localhost"}, "store is a result store"),
    ({"lease_as": 5}, "lease_as"),
    ({"lease_as": "lease"}, "lease_as"),
]


@each(("options", "match"), WRONG, ids=[str(one[0]) for one in WRONG])
def test_wrong_options(bench: Bench, options: dict[str, Any], match: str) -> None:
    """They are refused where they are written, and nothing is left behind."""
    with pytest.raises(InvalidRequest, match=match):
        bench.cron(**options)
    assert not list(bench.hold.scan("*"))


@pytest.mark.parametrize("name", [("",), ("rollup", 1.5), ("rollup", None), ("{tick}",), ("rollup", "{tick}"), (7,)])
def test_wrong_names(bench: Bench, name: Any) -> None:
    """So are names, and those that look as if they were filled in."""
    with pytest.raises(InvalidRequest):
        bench.hold.cron("@daily", *name)


def test_wrong_functions(bench: Bench) -> None:
    """A cron calls a plain function with the tick or with nothing."""

    async def on_a_loop(tick: datetime) -> None: ...

    def of_two(one: int, two: int) -> None: ...

    decorate: Any = bench.hold.cron("@daily", "rollup")
    for wrong in (on_a_loop, of_two, None, "text", int, lambda *, key: key):
        with pytest.raises(InvalidRequest):
            decorate(wrong)


def test_an_expression_that_never_fires(bench: Bench) -> None:
    """It is refused at once."""
    with pytest.raises(InvalidRequest, match="never fires"):
        bench.cron("0 0 30 2 *")


def test_a_run_is_a_tuple() -> None:
    """With names, for those who look at the history."""
    assert Run(datetime(2027, 1, 1, tzinfo=UTC), "ok").outcome == "ok"
