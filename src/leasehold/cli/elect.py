"""``leasehold elect``: a command that runs while we lead, from one term to the next."""

from __future__ import annotations

import gc
import os
import threading

from leasehold._core.light_typing import Any, NamedTuple
from leasehold.cli import child, exit_codes
from leasehold.cli.arguments import ElectRequest
from leasehold.cli.child import Child
from leasehold.cli.coordinator import open_election
from leasehold.cli.exit_codes import CommandEnded
from leasehold.cli.lease_thread import LeaseThread
from leasehold.cli.output import Output
from leasehold.cli.run import await_lease, complain_about_start, environment, prepared
from leasehold.cli.signals import HARMLESS, ReceivedSignal, Signals, known, signal
from leasehold.cli.supervisor import Supervisor, tell_loss
from leasehold.primitives.campaign import RestPeriods
from leasehold.stores.clock import SystemClock

# ---------------------------------------------------------------- checkup
#
# ``--health COMMAND`` of ``leasehold elect``: a shell command that says whether we are fit to lead.


LOOK_AGAIN = 1.0  # seconds


class HealthCommand:
    """Asked by a thread of the library. It is the main thread that reaps processes, so that tells it how they ended.
    ``mask``: the signals that the command blocks, as it would without us."""

    def __init__(self, command: str, mask: set[int]) -> None:
        self._command = command
        self._mask = mask
        self._changed = threading.Condition()
        self._pid = 0  # of the one that runs now
        self._status = 0  # of the one that has ended
        self._over = threading.Event()

    def __call__(self) -> bool:
        with self._changed:  # nobody is told of its end before it has a number
            if self._over.is_set():
                return True
            self._pid = self._spawn()
            while self._pid and not self._over.is_set():
                self._changed.wait(LOOK_AGAIN)
            return self._over.is_set() or self._status == 0

    def _spawn(self) -> int:
        """What it prints is no output of the command that we run."""
        actions = [(os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0), (os.POSIX_SPAWN_DUP2, 2, 1)]
        return os.posix_spawn(
            "/bin/sh",
            ["sh", "-c", self._command],
            child.inherited(),
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
        """Nobody reaps any more, and nobody asks: leave no process behind."""
        with self._changed:
            self._over.set()
            self._changed.notify_all()
            if self._pid:
                os.kill(self._pid, signal.SIGKILL)
                os.waitpid(self._pid, 0)
                self._pid = 0


# ---------------------------------------------------------------- elect


ENDING = known("SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT")  # whoever sends one wants us to end, too


def elect(request: ElectRequest) -> int:
    """Lead, again and again; the exit code."""
    voice = Output(request.as_json)
    try:
        if not hasattr(signal, "sigwaitinfo"):
            raise CommandEnded(
                exit_codes.CONFIG, "failed", "leasehold elect needs Linux: this system cannot wait for signals"
            )
        signals = Signals()
        rests = None
        while True:
            ended = _stand(request, voice, signals)
            if isinstance(ended, int):
                return ended
            gc.collect()  # what the last term left behind: the next command is forked from this process
            rests = rests or RestPeriods(ended.ttl, ended.start_period)
            pause = rests.after(ended.reason, ended.lasted)
            if pause:
                voice.say("pausing", f"standing again in {pause:.1f} s", resource=ended.resource, seconds=pause)
            idle(signals, pause)
    except CommandEnded as ended:
        if ended.event:
            voice.say(ended.event, str(ended), **ended.fields)
        return ended.code


class LostTerm(NamedTuple):
    """How a term ended that is to be followed by another."""

    resource: str
    reason: str
    lasted: float
    ttl: float
    start_period: float


def _stand(request: ElectRequest, voice: Output, signals: Signals) -> int | LostTerm:
    """One term, from the command's process to its end. The exit code, or why to stand again. All threads of it have
    ended by then, so that the next process is forked from one that has none."""
    child = prepared(request, signals)
    checkup = None if request.health is None else HealthCommand(request.health, signals.mask)
    try:
        return _lead(request, voice, signals, child, checkup)
    finally:
        child.abandon()


def _lead(
    request: ElectRequest, voice: Output, signals: Signals, child: Child, checkup: HealthCommand | None
) -> int | LostTerm:
    hold, election = open_election(request, checkup)
    now = SystemClock().now
    with hold:
        tenure = LeaseThread(election.campaign(), signals.wake)
        term: Any = await_lease(request, voice, signals, tenure, hold, election)
        since = now()
        child.start({**environment(term), "LEASEHOLD_TERM": str(term.term)})
        voice.note("elected", resource=term.resource, term=term.term, ttl=term.ttl, pid=child.pid)
        supervisor = TermSupervisor(child, term, signals, voice, checkup)
        code = supervisor.watch()
        if checkup is not None:
            checkup.stop()
        loss = tenure.finish(lost=supervisor.loss is not None)
        if loss is not None and supervisor.loss is None:
            tell_loss(voice, loss, "it was over before the command was")
        voice.note("exited", resource=term.resource, code=code)
    complain_about_start(request, child)
    if supervisor.loss is None:
        return code if loss is None else exit_codes.LOST
    if request.once or supervisor.ending:
        return exit_codes.LOST
    start_period = 0.0 if election._health is None else election._health.start_period
    return LostTerm(term.resource, supervisor.loss.reason, now() - since, term.ttl, start_period)


class TermSupervisor(Supervisor):
    """Of one command in one term. Processes of the health check end here, too."""

    def __init__(self, child: Child, term: Any, signals: Signals, voice: Output, checkup: HealthCommand | None) -> None:
        super().__init__(child, term, "term", signals, voice)
        self._checkup = checkup
        self.ending = False  # somebody wants us to end, not only the command

    def _hear(self, heard: ReceivedSignal) -> None:
        self.ending = self.ending or heard.number in ENDING
        super()._hear(heard)

    def _other_ended(self, pid: int, status: int) -> None:
        if self._checkup is not None:
            self._checkup.ended(pid, status)


def idle(signals: Signals, seconds: float) -> None:
    """Who lost its terms waits before it stands again. A signal that would end us does so now."""
    now = SystemClock().now
    until = now() + seconds
    while (left := until - now()) > 0:
        heard = signals.wait(left)
        if heard is None:
            continue
        if heard.number == signal.SIGTSTP:
            os.kill(os.getpid(), signal.SIGSTOP)
        elif heard.number not in HARMLESS:
            raise CommandEnded(exit_codes.of_signal(heard.number))
