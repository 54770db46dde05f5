"""``leasehold cron``: a command at each tick, on one host of the fleet, from one run to the next."""

from __future__ import annotations

import gc
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from leasehold._core.driver import finish
from leasehold._core.durations import is_long, ttl_ms
from leasehold.cli.coordinator import LeaseThread, failed, open_hold, parse_name, place_of, warn_of_long_ttl
from leasehold.cli.elect import idle
from leasehold.cli.output import CommandEnded, ExitCode, Output, printable
from leasehold.cli.process import Child, Signals
from leasehold.cli.run import await_lease, check_start, environment, exit_code_of, measured, open_signals, prepared
from leasehold.cli.service_arguments import CronRequest
from leasehold.cli.supervisor import Supervisor, report_loss
from leasehold.cli.terminal import echo, elapsed, json_fields, paint, table
from leasehold.coordinator import Leasehold
from leasehold.errors import InvalidRequest, LeaseholdError, LeaseLost
from leasehold.patterns.cron.cron import CronOptions
from leasehold.patterns.cron.history import ClaimedTick, history
from leasehold.patterns.cron.runner import AWAY, FIRST_PAUSE, LONGEST_PAUSE, TAKEN, loss_of
from leasehold.patterns.cron.schedule import DueTicks, Schedule, WallClock
from leasehold.patterns.cron.state import DIED, ERROR, KEPT, LOST, MISSED, OK, RUNNING, SKIPPED, Run

# ---------------------------------------------------------------- timetable
#
# ``leasehold cron --history`` and ``--next``: the runs of the past, and the ticks of the future.


HEADS = ["TICK", "OUTCOME", "STARTED", "LASTED", "BY", "WHAT"]
COLOURS = {OK: "green", RUNNING: "cyan", ERROR: "red", LOST: "red", DIED: "red", MISSED: "yellow", SKIPPED: "yellow"}
MOST = 1000


def print_timetable(request: CronRequest) -> int:
    """The last runs, or the next ticks; the exit code."""
    try:
        if request.history:
            return _print_history(request)
        _print_upcoming(request)
    except LeaseholdError as error:
        raise failed(error) from error
    return 0


def _print_history(request: CronRequest) -> int:
    if not 0 < (request.limit or 0) <= KEPT:
        raise InvalidRequest(f"--limit is a number from 1 to {KEPT}: no more runs are kept")
    namespace, kind, ids = parse_name(request.name, request.namespace)
    with open_hold(request.url, namespace, shared=request.shared_store) as hold:
        where, results = place_of(hold, request.url), hold._results
        hold.ping()  # a wrong URL must fail: the results may lie elsewhere, and know nothing of the store
        runs = finish(history(hold._flavour, results, hold.lock(kind, *ids), request.limit or 0))
    if request.as_json:
        echo(json.dumps([json_fields(run) for run in runs], indent=2))
    elif runs:
        table(HEADS, [_row(run) for run in runs])
    else:
        echo(f"Nothing is known of a cron {printable(request.name)} in {printable(where)}.")
    return 0 if runs else ExitCode.NO


def _print_upcoming(request: CronRequest) -> None:
    if not 0 < (request.upcoming or 0) <= MOST:
        raise InvalidRequest(f"--next is a number from 1 to {MOST}")
    schedule, moment, ticks = Schedule(request.expression, request.timezone), time.time(), []
    for _ in range(request.upcoming or 0):
        moment = schedule.after(moment)
        ticks.append(schedule.moment(moment))
    if request.as_json:
        echo(json.dumps([tick.isoformat() for tick in ticks], indent=2))
    else:
        for tick in ticks:
            echo(f"{tick:%a %Y-%m-%d %H:%M:%S} {tick.tzname()}")


def _row(run: Run) -> list[str]:
    started = "-" if run.started is None else f"{run.started:%H:%M:%S}"
    known = run.started is not None and run.ended is not None
    lasted = elapsed((run.ended - run.started).total_seconds()) if known else "-"  # type: ignore[operator]  # both are
    tick = f"{run.tick:%Y-%m-%d %H:%M:%S} {run.tick.tzname()}"
    outcome = paint(printable(run.outcome), COLOURS.get(run.outcome))
    return [tick, outcome, started, lasted, printable(run.by) or "-", _what(run)]


def _what(run: Run) -> str:
    if run.until is None:
        return printable(run.error)
    many = "more than 1000" if run.ticks is None else str(run.ticks)
    return f"{many} ticks, until {run.until:%Y-%m-%d %H:%M:%S}"


# ---------------------------------------------------------------- cron


def cron(request: CronRequest) -> int:
    """Run the command at each tick, or print the timetable; the exit code."""
    output = Output(request.as_json)
    return exit_code_of(lambda: _cron(request, output), output)


def _cron(request: CronRequest, output: Output) -> int:
    if request.history or request.upcoming is not None:
        return print_timetable(request)
    loop, signals = CronLoop(request, output), open_signals("cron")
    return measured(request, output, lambda: loop.serve(signals))


class CronLoop:
    """One ``leasehold cron``. Each coordinator lives for one query or one run: no thread is left when the command's
    process is forked."""

    _signals: Signals

    def __init__(self, request: CronRequest, output: Output) -> None:
        self._request = request
        self._output = output
        self._clock = WallClock()
        self._since = self._clock.now()  # what is settled by then is not run again, even if the store forgets all
        self._runs = 0
        self._exit_code = 0  # of the last run
        self._reported = ""  # the error that was reported last
        try:
            self._schedule = Schedule(request.expression, request.timezone)
            self._name = parse_name(request.name, request.namespace)
            if is_long(ttl_ms(request.ttl)):
                warn_of_long_ttl(output)
        except LeaseholdError as error:
            raise failed(error) from error

    def serve(self, signals: Signals) -> int:
        """Run at each tick, until a signal ends us or there were enough runs; the exit code."""
        self._signals = signals
        try:
            with self._store() as (_, wanted):
                finish(wanted.run_history.due(self._since))  # a wrong URL or an absent store is reported now
        except LeaseholdError as error:
            raise failed(error) from error
        pause, code = FIRST_PAUSE, None
        while code is None:
            now, runs = self._clock.now(), self._runs
            done, code = self._attempt(patient=pause < LONGEST_PAUSE)
            if done:
                self._reported, pause = "", FIRST_PAUSE
                self._since = max(self._since, now)
                self._sleep(now)
            elif code is None:
                if runs != self._runs:  # there was a run of ours: more ticks may be due
                    pause = FIRST_PAUSE
                idle(self._signals, pause)
                pause = min(2 * pause, LONGEST_PAUSE)
        return code

    def _sleep(self, now: float) -> None:
        """Wait for the next tick, or until the clock was set back."""
        tick = self._schedule.after(now)
        while now <= (moment := self._clock.now()) < tick:
            now = moment
            gc.collect()
            idle(self._signals, self._clock.nap(tick))

    @contextmanager
    def _store(self) -> Iterator[tuple[Leasehold, CronOptions]]:
        request, (namespace, kind, ids) = self._request, self._name
        held = {"ttl": request.ttl, "at_least": request.at_least, "max_hold": request.at_most}
        policy: dict[str, Any] = {"missed": request.missed, "overlap": request.overlap, "grace": request.grace}
        with open_hold(request.url, namespace, request.observers, request.shared_store) as hold:
            yield hold, CronOptions(hold, (kind, *ids), self._schedule, held, **policy, clock=self._clock)

    def _attempt(self, patient: bool) -> tuple[bool, int | None]:
        """Whether there is nothing to do until the next tick; and the exit code, if that is the end."""
        try:
            with self._store() as (_, wanted):
                plan = finish(wanted.run_history.due(self._since))
            if plan is None or (plan.busy and patient):
                return plan is None, None
            return False, self._run_due(plan)
        except TAKEN:
            return False, None
        except AWAY as error:
            if type(error).__name__ != self._reported:
                self._reported = type(error).__name__
                self._output.report("unavailable", str(error))
            return False, None
        except LeaseholdError as error:
            raise failed(error) from error

    def _run_due(self, plan: DueTicks) -> int | None:
        """Acquire the lease for these ticks and run the command; the exit code, if that was the last run."""
        child = prepared(self._request, self._signals)
        try:
            with self._store() as (hold, wanted):
                lock = wanted.lock(plan.tick)
                thread = LeaseThread(lock, self._signals.wake)
                try:
                    lease = await_lease(self._request, self._output, self._signals, thread, hold, lock)
                except CommandEnded:
                    if isinstance(thread.error, (*TAKEN, *AWAY)):
                        raise thread.error from None
                    raise
                try:
                    claimed = finish(wanted.run_history.claim(lease, self._since))
                    if claimed is not None:
                        self._since = max(self._since, claimed.state.last)
                    begun = claimed is not None and self._may_begin(wanted, claimed)
                    supervisor = self._run(child, wanted, claimed) if claimed is not None and begun else None
                finally:
                    loss = thread.finish(lost=lease.state == "lost")
            if supervisor is None:
                return None
            check_start(self._request, child)
            return self._after(supervisor, loss)
        finally:
            child.abandon()

    def _may_begin(self, wanted: CronOptions, claimed: ClaimedTick) -> bool:
        """False when the lease was lost while the tick was claimed, because the store was slow or we were frozen: then
        another host may be at work."""
        loss = loss_of(claimed.lease)
        if loss is None:
            return True
        report_loss(self._output, loss, "the command was not started")
        finish(wanted.run_history.settle(claimed, LOST, f"the lease was lost ({loss.reason}) before the run had begun"))
        return False

    def _run(self, child: Child, wanted: CronOptions, claimed: ClaimedTick) -> Supervisor:
        lease, tick = claimed.lease, self._schedule.moment(claimed.tick).isoformat()
        child.start({**environment(lease), "LEASEHOLD_TICK": tick})
        self._output.record("started", resource=lease.resource, tick=tick, fence=lease.fence, pid=child.pid)
        on_lost, on_revoke = self._request.on_lost, self._request.on_revoke
        supervisor = Supervisor(child, lease, on_lost, on_revoke, self._signals, self._output)
        self._exit_code = code = supervisor.watch()
        outcome, text = (OK, "") if code == 0 else (ERROR, f"exit code {code}")
        if supervisor.loss is not None:
            outcome, text = LOST, f"the lease was lost ({supervisor.loss.reason})"
        finish(wanted.run_history.settle(claimed, outcome, text))
        if outcome == ERROR:
            self._output.report("exited", f"{lease.resource}: the run of {tick} ended with {text}",
                                resource=lease.resource, tick=tick, code=code)  # fmt: skip
        else:
            self._output.record("exited", resource=lease.resource, tick=tick, code=code)
        return supervisor

    def _after(self, supervisor: Supervisor, loss: LeaseLost | None) -> int | None:
        """After a run: the exit code, if that was the last."""
        lost = supervisor.lost(loss)
        self._runs += 1
        if not supervisor.ending and (self._request.runs is None or self._runs < self._request.runs):
            return None
        return ExitCode.LOST if lost else self._exit_code
