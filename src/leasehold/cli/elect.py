"""``leasehold elect``: a command that runs while we lead, from one term to the next."""

from __future__ import annotations

import gc
import os
import threading

from leasehold._core.light_typing import Any, NamedTuple
from leasehold.cli.coordinator import LeaseThread, open_election
from leasehold.cli.output import ExitCode, Output
from leasehold.cli.process import Child, Signals, inherited, signal
from leasehold.cli.run import (
    await_lease,
    check_start,
    environment,
    exit_code_of,
    measured,
    obey_signal,
    open_signals,
    prepared,
)
from leasehold.cli.service_arguments import ElectRequest
from leasehold.cli.supervisor import Supervisor
from leasehold.primitives.campaign import RestPeriods
from leasehold.stores.clock import SystemClock

# ---------------------------------------------------------------- health
#
# ``--health COMMAND`` of ``leasehold elect``: a shell command whose exit code says whether we are fit to lead.


POLL_EVERY = 1.0  # seconds


class HealthCommand:
    """The health check that a thread of the library calls. The main thread reaps all processes, and calls ``ended``
    with their status. ``mask``: the signals that the command blocks, as it would without us."""

    def __init__(self, command: str, mask: set[int]) -> None:
        self._command = command
        self._mask = mask
        self._changed = threading.Condition()
        self._pid = 0  # of the check that runs now; 0: none
        self._status = 0  # of the check that ended last
        self._over = threading.Event()

    def __call__(self) -> bool:
        with self._changed:  # the main thread reports its end only after its pid is known
            if self._over.is_set():
                return True
            self._pid = self._spawn()
            while self._pid and not self._over.is_set():
                self._changed.wait(POLL_EVERY)
            return self._over.is_set() or self._status == 0

    def _spawn(self) -> int:
        """Its standard output goes to standard error, for standard output belongs to the command that we run."""
        actions = [(os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0), (os.POSIX_SPAWN_DUP2, 2, 1)]
        return os.posix_spawn(
            "/bin/sh",
            ["sh", "-c", self._command],
            inherited(),
            file_actions=actions,
            setsigmask=self._mask,
            setsigdef=[signal.SIGPIPE, signal.SIGXFSZ],
        )

    def ended(self, pid: int, status: int) -> None:
        """A process was reaped."""
        with self._changed:
            if pid == self._pid:
                self._pid, self._status = 0, status
                self._changed.notify_all()

    def stop(self) -> None:
        """The term is over, and with it the reaping and the checks: leave no process behind."""
        with self._changed:
            self._over.set()
            self._changed.notify_all()
            if self._pid:
                os.kill(self._pid, signal.SIGKILL)
                os.waitpid(self._pid, 0)
                self._pid = 0


# ---------------------------------------------------------------- elect


def elect(request: ElectRequest) -> int:
    """Lead term after term; the exit code."""
    output = Output(request.as_json)
    return exit_code_of(lambda: _elect(request, output), output)


def _elect(request: ElectRequest, output: Output) -> int:
    signals = open_signals("elect")
    return measured(request, output, lambda: _lead_terms(request, output, signals))


def _lead_terms(request: ElectRequest, output: Output, signals: Signals) -> int:
    rests = None
    while True:
        ended = _stand(request, output, signals)
        if isinstance(ended, int):
            return ended
        gc.collect()  # what the last term left behind: the next command is forked from this process
        rests = rests or RestPeriods(ended.ttl, ended.start_period)
        pause = rests.after(ended.reason, ended.lasted)
        if pause:
            output.report("pausing", f"standing again in {pause:.1f} s", resource=ended.resource, seconds=pause)
        idle(signals, pause)


class LostTerm(NamedTuple):
    """How a term ended, when we are to stand again."""

    resource: str
    reason: str
    lasted: float
    ttl: float
    start_period: float


def _stand(request: ElectRequest, output: Output, signals: Signals) -> int | LostTerm:
    """One term: the exit code, or how it was lost when we are to stand again. All its threads have ended by then, so
    that the next child is forked from a process with one thread."""
    child = prepared(request, signals)
    health = None if request.health is None else HealthCommand(request.health, signals.mask)
    try:
        return _lead(request, output, signals, child, health)
    finally:
        child.abandon()


def _lead(
    request: ElectRequest, output: Output, signals: Signals, child: Child, health: HealthCommand | None
) -> int | LostTerm:
    hold, election = open_election(request, health)
    now = SystemClock().now
    with hold:
        thread = LeaseThread(election.campaign(), signals.wake)
        term: Any = await_lease(request, output, signals, thread, hold, election)
        since = now()
        child.start({**environment(term), "LEASEHOLD_TERM": str(term.term)})
        output.record("elected", resource=term.resource, term=term.term, ttl=term.ttl, pid=child.pid)
        supervisor = TermSupervisor(child, term, request.on_revoke, signals, output, health)
        code = supervisor.watch()
        if health is not None:
            health.stop()
        lost = supervisor.lost(thread.finish(lost=supervisor.loss is not None))
        output.record("exited", resource=term.resource, code=code)
    check_start(request, child)
    if not lost:
        return code
    if supervisor.loss is None or request.once or supervisor.ending:
        return ExitCode.LOST
    start_period = 0.0 if election._health is None else election._health.start_period
    return LostTerm(term.resource, supervisor.loss.reason, now() - since, term.ttl, start_period)


class TermSupervisor(Supervisor):
    """Supervises one command in one term. It also reaps the processes of the health check."""

    def __init__(
        self,
        child: Child,
        term: Any,
        on_revoke: str,
        signals: Signals,
        output: Output,
        health: HealthCommand | None,
    ) -> None:
        super().__init__(child, term, "term", on_revoke, signals, output)
        self._health = health

    def _other_ended(self, pid: int, status: int) -> None:
        if self._health is not None:
            self._health.ended(pid, status)


def idle(signals: Signals, seconds: float) -> None:
    """Wait for so long, while no command runs. A signal that would end us does so now."""
    now = SystemClock().now
    until = now() + seconds
    while (left := until - now()) > 0:
        obey_signal(signals, left)
