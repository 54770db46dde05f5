"""``leasehold cron``: a command at each tick, on one host of the fleet, from one run to the next."""

from __future__ import annotations

import gc
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Any

from leasehold._core.driver import finish
from leasehold._core.durations import is_long, ttl_ms
from leasehold.cli import exit_codes
from leasehold.cli.arguments import CronRequest
from leasehold.cli.child import Child
from leasehold.cli.coordinator import failed, open_hold, parse_name, warn_once
from leasehold.cli.elect import ENDING, idle
from leasehold.cli.exit_codes import CommandEnded
from leasehold.cli.lease_thread import LeaseThread
from leasehold.cli.output import Output, printable
from leasehold.cli.run import await_lease, complain_about_start, environment, prepared
from leasehold.cli.signals import ReceivedSignal, Signals, signal
from leasehold.cli.supervisor import Supervisor, tell_loss
from leasehold.cli.terminal import lasting, paint, say, table
from leasehold.coordinator import Leasehold
from leasehold.errors import InvalidRequest, LeaseholdError, LeaseLost
from leasehold.patterns.cron.cron import CronOptions
from leasehold.patterns.cron.history import ClaimedTick, history
from leasehold.patterns.cron.runner import AWAY, FIRST_PAUSE, LONGEST_PAUSE, TAKEN, loss_of
from leasehold.patterns.cron.schedule import DueTicks, Schedule, WallClock
from leasehold.patterns.cron.state import DIED, ERROR, KEPT, LOST, MISSED, OK, RUNNING, SKIPPED, Run

# ---------------------------------------------------------------- timetable
#
# ``leasehold cron --history`` and ``--next``: how it went, and when it will be.


HEADS = ["TICK", "OUTCOME", "STARTED", "LASTED", "BY", "WHAT"]
COLOURS = {OK: "green", RUNNING: "cyan", ERROR: "red", LOST: "red", DIED: "red", MISSED: "yellow", SKIPPED: "yellow"}
MOST = 1000


def answer(request: CronRequest) -> int:
    """What was asked; the exit code."""
    try:
        if request.history:
            _history(request)
        else:
            _upcoming(request)
    except LeaseholdError as error:
        raise failed(error) from error
    return 0


def _history(request: CronRequest) -> None:
    if not 0 < (request.limit or 0) <= KEPT:
        raise InvalidRequest(f"--limit is a number from 1 to {KEPT}: no more runs are kept")
    namespace, kind, ids = parse_name(request.name, request.namespace)
    with open_hold(request.url, namespace) as hold:
        runs = finish(history(hold._flavour, hold._results, hold.lock(kind, *ids), request.limit or 0))
    if request.as_json:
        say(json.dumps([_document(run) for run in runs], indent=2))
    elif runs:
        table(HEADS, [_row(run) for run in runs])
    else:
        say(f"Nothing is known of a cron {printable(request.name)}.")


def _upcoming(request: CronRequest) -> None:
    if not 0 < (request.upcoming or 0) <= MOST:
        raise InvalidRequest(f"--next is a number from 1 to {MOST}")
    schedule, moment, ticks = Schedule(request.expression, request.timezone), time.time(), []
    for _ in range(request.upcoming or 0):
        moment = schedule.after(moment)
        ticks.append(schedule.moment(moment))
    if request.as_json:
        say(json.dumps([tick.isoformat() for tick in ticks], indent=2))
    else:
        for tick in ticks:
            say(f"{tick:%a %Y-%m-%d %H:%M:%S} {tick.tzname()}")


def _document(run: Run) -> dict[str, Any]:
    """For programs: keys that stay, times in ISO 8601."""
    fields: dict[str, Any] = run._asdict()
    return {key: value.isoformat() if isinstance(value, datetime) else value for key, value in fields.items()}


def _row(run: Run) -> list[str]:
    started = "-" if run.started is None else f"{run.started:%H:%M:%S}"
    known = run.started is not None and run.ended is not None
    lasted = lasting((run.ended - run.started).total_seconds()) if known else "-"  # type: ignore[operator]  # both are
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
    """Run the command at each tick, or answer a question; the exit code."""
    voice = Output(request.as_json)
    try:
        if request.history or request.upcoming is not None:
            return answer(request)
        if not hasattr(signal, "sigwaitinfo"):
            raise CommandEnded(
                exit_codes.CONFIG, "failed", "leasehold cron needs Linux: this system cannot wait for signals"
            )
        return CronLoop(request, voice).serve(Signals())
    except CommandEnded as ended:
        if ended.event:
            voice.say(ended.event, str(ended), **ended.fields)
        return ended.code


class CronLoop:
    """One ``leasehold cron``. A coordinator lives for one look or one run: no thread is left when the command's process
    is forked."""

    _signals: Signals

    def __init__(self, request: CronRequest, voice: Output) -> None:
        self._request = request
        self._voice = voice
        self._clock = WallClock()
        self._since = self._clock.now()
        self._runs = 0
        self._told = ""
        try:
            self._schedule = Schedule(request.expression, request.timezone)
            self._name = parse_name(request.name, request.namespace)
            if is_long(ttl_ms(request.ttl)):
                warn_once(voice)
        except LeaseholdError as error:
            raise failed(error) from error

    def serve(self, signals: Signals) -> int:
        """Until a signal, or until there were enough runs."""
        self._signals = signals
        try:
            with self._store() as (_, wanted):
                finish(wanted.run_history.due(self._since))  # what is wrong, or away, is said now
        except LeaseholdError as error:
            raise failed(error) from error
        pause, code = FIRST_PAUSE, None
        while code is None:
            now, runs = self._clock.now(), self._runs
            done, code = self._attempt(patient=pause < LONGEST_PAUSE)
            if done:
                self._told, pause = "", FIRST_PAUSE
                self._since = max(self._since, now)  # should the store forget all, what is settled is not run again
                self._sleep(now)
            elif code is None:
                pause = (
                    pause if runs == self._runs else FIRST_PAUSE
                )  # it was our turn: there may be more to make up for
                idle(self._signals, pause)
                pause = min(2 * pause, LONGEST_PAUSE)
        return code

    def _sleep(self, now: float) -> None:
        """Until the next tick, or until the clock was set back."""
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
        with open_hold(request.url, namespace) as hold:
            yield hold, CronOptions(hold, (kind, *ids), self._schedule, held, **policy, clock=self._clock)

    def _attempt(self, patient: bool) -> tuple[bool, int | None]:
        """Is there nothing to do until the next tick? And the exit code, if that is the end."""
        try:
            with self._store() as (_, wanted):
                plan = finish(wanted.run_history.due(self._since))
            if plan is None or (plan.busy and patient):
                return plan is None, None
            return False, self._attend(plan)
        except TAKEN:
            return False, None
        except AWAY as error:
            if type(error).__name__ != self._told:
                self._told = type(error).__name__
                self._voice.say("unavailable", str(error))
            return False, None
        except LeaseholdError as error:
            raise failed(error) from error

    def _attend(self, plan: DueTicks) -> int | None:
        child = prepared(self._request, self._signals)
        try:
            with self._store() as (hold, wanted):
                lock = wanted.lock(plan.tick)
                tenure = LeaseThread(lock, self._signals.wake)
                try:
                    lease = await_lease(self._request, self._voice, self._signals, tenure, hold, lock)
                except CommandEnded:
                    if isinstance(tenure.error, (*TAKEN, *AWAY)):
                        raise tenure.error from None
                    raise
                try:
                    claimed = finish(wanted.run_history.claim(lease, self._since))
                    begun = claimed is not None and self._may_begin(wanted, claimed)
                    supervisor = self._run(child, wanted, claimed) if claimed is not None and begun else None
                finally:
                    loss = tenure.finish(lost=lease.state == "lost")
            if supervisor is None:
                return None
            complain_about_start(self._request, child)
            return self._after(supervisor, loss)
        finally:
            child.abandon()

    def _may_begin(self, wanted: CronOptions, claimed: ClaimedTick) -> bool:
        """Lost while it was claimed, by a store that was slow or by us, frozen: then others are at work."""
        loss = loss_of(claimed.lease)
        if loss is None:
            return True
        tell_loss(self._voice, loss, "the command was not started")
        finish(wanted.run_history.settle(claimed, LOST, f"the lease was lost ({loss.reason}) before the run had begun"))
        return False

    def _run(self, child: Child, wanted: CronOptions, claimed: ClaimedTick) -> CronSupervisor:
        lease, tick = claimed.lease, self._schedule.moment(claimed.tick).isoformat()
        child.start({**environment(lease), "LEASEHOLD_TICK": tick})
        self._voice.note("started", resource=lease.resource, tick=tick, fence=lease.fence, pid=child.pid)
        supervisor = CronSupervisor(child, lease, self._request.on_lost, self._signals, self._voice)
        supervisor.exit_code = code = supervisor.watch()
        outcome, text = (OK, "") if code == 0 else (ERROR, f"exit code {code}")
        if supervisor.loss is not None:
            outcome, text = LOST, f"the lease was lost ({supervisor.loss.reason})"
        finish(wanted.run_history.settle(claimed, outcome, text))
        if outcome == ERROR:
            self._voice.say("exited", f"{lease.resource}: the run of {tick} ended with {text}",
                            resource=lease.resource, tick=tick, code=code)  # fmt: skip
        else:
            self._voice.note("exited", resource=lease.resource, tick=tick, code=code)
        return supervisor

    def _after(self, supervisor: CronSupervisor, loss: LeaseLost | None) -> int | None:
        """One more is done: the exit code, if that was the last."""
        if loss is not None and supervisor.loss is None:
            tell_loss(self._voice, loss, "it was over before the command was")
        self._runs += 1
        if not supervisor.ending and (self._request.runs is None or self._runs < self._request.runs):
            return None
        return supervisor.exit_code if loss is None and supervisor.loss is None else exit_codes.LOST


class CronSupervisor(Supervisor):
    """Of one run. Whoever ends the command with a signal wants us to end, too."""

    ending = False
    exit_code = 0

    def _hear(self, heard: ReceivedSignal) -> None:
        self.ending = self.ending or heard.number in ENDING
        super()._hear(heard)
